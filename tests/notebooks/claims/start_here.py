"""Claims of notebook 0."""

from typing import Any


def answer(opened: Any, findings: Any) -> None:
    verdicts = {(row.topic, row.start_offset): row.verdict for row in findings.itertuples()}
    for topic, known in opened.expected.items():
        assert verdicts[topic, known["start_offset"]] == known["verdict"]


def next(opened: Any, findings: Any, next_steps: Any) -> None:
    steps = repr(next_steps(findings))
    for topic, known in opened.expected.items():
        assert f"**{known['verdict']}**: `{topic}-{known['partition']}`" in steps
    assert "04_abort.ipynb" in steps or "hanging" not in set(findings.verdict)
