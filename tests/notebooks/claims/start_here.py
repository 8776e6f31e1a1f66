"""Claims of notebook 0."""

from collections.abc import Callable
from typing import Any


def explain(opened: Any, error: str, explain: Callable[..., Any]) -> None:
    """It pasted an error that its incident never prints."""
    if opened.kafka:
        assert f"group {opened.group} stopped" in error
        assert "hanging" in set(explain(error, opened.source, recheck_after=1).findings().verdict)


def answer(opened: Any, findings: Any) -> None:
    verdicts = {(row.topic, row.start_offset): row.verdict for row in findings.itertuples()}
    for topic, known in opened.expected.items():
        assert verdicts[topic, known["start_offset"]] == known["verdict"]


def next(opened: Any, findings: Any, next_steps: Any) -> None:
    steps = repr(next_steps(findings))
    for topic, known in opened.expected.items():
        assert f"**{known['verdict']}**: `{topic}-{known['partition']}`" in steps
    assert "04_abort.ipynb" in steps or "hanging" not in set(findings.verdict)
