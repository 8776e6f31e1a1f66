"""Claims of notebook 3."""

from typing import Any


def crossed(opened: Any, crossed: Any, topic: str) -> None:
    for known in [opened.expected[topic]] if topic in opened.expected else []:
        row = crossed[crossed.start_offset == known["start_offset"]].iloc[0]
        assert (row.producer_id, row.producer_epoch) == (known["producer_id"], known["producer_epoch"])
        assert (row.combination == "its own") == (known["verdict"] != "hanging")


def all(opened: Any, found: Any) -> None:
    combined = {row["topic"]: row["combination"] for row in found[:-1]}
    wanted = {"orders": "superseded epoch", "refunds": "late", "carts": "never added"}
    wanted |= {"invoices": "not this partition", "clicks": "its own"}
    assert not opened.staged or combined == wanted
    assert found[-1]["combination"] == "orphan"


def verdict(opened: Any, here: Any) -> None:
    for row in here:
        known = opened.expected.get(row["topic"], {})
        assert row["start_offset"] != known.get("start_offset") or row["verdict"] == known["verdict"]
