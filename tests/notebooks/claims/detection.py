"""Claims of notebook 1."""

from typing import Any


def answer(opened: Any, findings: Any, incidents: Any) -> None:
    verdicts = {(row.topic, row.start_offset): row.verdict for row in findings.itertuples()}
    for topic, known in opened.expected.items():
        place = "__consumer_offsets" if incidents.get(topic) == "offsets_never_added" else topic
        assert verdicts[place, known["start_offset"]] == known["verdict"]
    assert opened.kafka is None or not findings.error.notna().any(), "every broker answered"


def offsets(opened: Any, internal: Any) -> None:
    if "carts" in opened.staged:
        assert list(internal.verdict) == ["hanging"]
        assert list(internal.iloc[0].groups_held) == [opened.group]


def explain(opened: Any, explained: Any) -> None:
    assert explained.symptoms == ("unstable-offset-commit",)
    if "carts" in opened.staged:
        assert "hanging" in set(explained.findings().verdict)


def young(opened: Any, findings: Any, healthy: Any) -> None:
    for topic in set(healthy) & set(opened.expected):
        (row,) = findings[findings.topic == topic].to_dict("records")
        assert row["verdict"] == "ongoing"
        assert row["expires_at"] > row["observed_at"], "its coordinator aborts it then, if its client does not end it"


def long(opened: Any) -> None:
    for topic in {"exports"} & set(opened.staged):
        (row,) = opened.source.finding_rows(topics=[topic], partitions=[0], max_transaction_timeout_ms=1_000)
        assert (row["verdict"], opened.staged[topic].later) == ("long", "long")
