"""Claims of notebook 9."""

from typing import Any


def page(opened: Any, page: Any) -> None:
    page.refresh()
    assert page.error is None
    overview = page.children[2].value
    assert all(f"{topic}-{known['partition']}" in overview for topic, known in opened.expected.items() if opened.kafka)
