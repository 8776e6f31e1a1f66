"""Claims of notebook 4."""

from typing import Any

from toolkit.actions import plan_abort
from toolkit.errors import ActionRefused


def find(opened: Any, findings: Any) -> None:
    verdicts = {(row.topic, row.start_offset): row.verdict for row in findings.itertuples()}
    for name, known in opened.expected.items():
        assert verdicts[name, known["start_offset"]] == known["verdict"]


def impact(opened: Any, impact: Any, topic: str) -> None:
    if topic in opened.expected:
        assert (impact.records, impact.records_released) == (1, 20)
        assert opened.group in impact.groups


def check(fresh: Any) -> None:
    assert fresh["verdict"] == "hanging"


def confirm_wrong(opened: Any, plan: Any) -> None:
    """It was refused before anything was written."""
    (*_, last) = opened.audit.rows()
    assert (last["target"], last["step"]) == (plan.target, "refused")


def confirm_alive(cluster: Any, findings: Any) -> None:
    _refused(cluster, findings[findings.verdict == "ongoing"].head(3))


def execute(opened: Any, cluster: Any, plan: Any, done: Any, impact: Any, topic: str) -> None:
    assert done.last_stable_offset_after >= impact.next_stable_offset
    now = {(row["topic"], row["start_offset"]) for row in cluster.finding_rows(recheck_after=0)}
    assert (topic, plan.start_offset) not in now, "it is closed"
    for name, known in opened.expected.items():
        assert known["verdict"] != "ongoing" or (name, known["start_offset"]) in now, "healthy ones live on"


def saved(opened: Any, saved: Any, done: Any, impact: Any) -> None:
    assert len(saved) == done.records_saved == impact.records
    assert done.records_file.parent.parent == opened.audit.path.parent


def trail(opened: Any, trail: Any, plan: Any) -> None:
    assert list(trail.step)[-2:] == ["intent", "outcome"]
    assert plan.target not in {row["target"] for row in opened.audit.unfinished()}


def complete_refused(cluster: Any, incomplete: Any) -> None:
    _refused(cluster, incomplete)


def complete(opened: Any, completes: Any) -> None:
    if "payments" in opened.staged:
        assert [each.target for each in completes] == [opened.confirmations["payments"]]
        (row,) = (row for row in opened.audit.rows() if (row["action"], row["step"]) == ("complete", "outcome"))
        assert row["error"] is None


def fence(fences: Any) -> None:
    assert all(fence.refusal for fence in fences), "a live owner is fenced by choice only"


def panel(panel: Any) -> None:
    assert panel.error is None


def _refused(cluster: Any, findings: Any) -> None:
    """No abort of one of these can be planned."""
    for _, row in findings.iterrows():
        try:
            plan_abort(cluster, row)
        except ActionRefused:
            continue
        raise AssertionError(f"an abort of {row.topic}-{row.partition}@{row.start_offset} was planned")
