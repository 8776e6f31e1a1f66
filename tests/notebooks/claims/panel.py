"""Claims of notebook 10."""

from typing import Any


def panel(opened: Any, panel: Any) -> None:
    """It lists what hangs, and changes nothing by itself."""
    assert panel.error is None
    assert panel.step == "choose"
    found = {(each.topic, each.start_offset): each.verdict for each in panel.findings}
    for topic, known in opened.expected.items():
        assert found[topic, known["start_offset"]] == known["verdict"]
