"""Claims of notebook 4."""

from typing import Any


def find(opened: Any, findings: Any, topic: str) -> None:
    if topic in opened.expected:
        (row,) = findings.to_dict("records")
        assert (row["verdict"], row["start_offset"]) == ("hanging", opened.expected[topic]["start_offset"])


def plan(opened: Any, plans: Any, topic: str) -> None:
    if topic in opened.expected:
        (made,) = plans
        assert (made.impact.records, made.impact.records_released) == (1, 20)
        assert opened.group in made.impact.groups


def execute(opened: Any, cluster: Any, plans: Any, done: Any) -> None:
    """It is closed, and the healthy ones live on; without the typed name nothing was written."""
    now = {(row["topic"], row["start_offset"]) for row in cluster.finding_rows(recheck_after=0)}
    assert all(((made.transaction.topic, made.transaction.start_offset) in now) is (done is None) for made in plans)
    assert done is None or done.last_stable_offset_after >= plans[0].impact.next_stable_offset
    for name, known in opened.expected.items():
        assert known["verdict"] != "ongoing" or (name, known["start_offset"]) in now


def saved(opened: Any, saved: Any, done: Any) -> None:
    if done is not None:
        assert len(saved) == done.records_saved
        assert done.records_file.parent.parent == opened.audit.path.parent


def trail(opened: Any, trail: Any, done: Any) -> None:
    if done is not None:
        assert list(trail.step)[-2:] == ["intent", "outcome"]
    assert not opened.audit.unfinished()


def complete(opened: Any, completes: Any) -> None:
    if "payments" in opened.staged:
        assert [each.target for each in completes] == [opened.confirmations["payments"]]
        (row,) = (row for row in opened.audit.rows() if (row["action"], row["step"]) == ("complete", "outcome"))
        assert row["error"] is None


def fence(fences: Any) -> None:
    assert all(fence.refusal for fence in fences), "a live owner is fenced by choice only"
