"""Claims of notebook 3."""

from typing import Any

CAUSES = {
    "orders": "superseded epoch",
    "refunds": "late-after-abort",
    "carts": "never-added",
    "invoices": "never-added",
}


def both(opened: Any, here: Any) -> None:
    for row in here:
        known = opened.expected.get(row["topic"], {})
        if row["start_offset"] == known.get("start_offset"):
            found = (row["verdict"], row["producer_id"], row["producer_epoch"])
            assert found == (known["verdict"], known["producer_id"], known["producer_epoch"])


def all(opened: Any, findings: Any) -> None:
    """The sample's partition `orders` was joined to those of the reader's own cluster."""
    assert len({row["cluster_id"] for row in findings}) <= 1
    causes = {(row["topic"], row["partition"]): str(row["cause"]) for row in findings}
    for topic, cause in CAUSES.items() if opened.staged else ():
        assert cause in causes[topic, opened.expected[topic]["partition"]]


def orphan(orphan: Any) -> None:
    assert "no-owner" in orphan.finding_rows()[0]["cause"]
