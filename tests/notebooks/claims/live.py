"""Claims of notebook 9."""

import threading
from collections.abc import Callable
from typing import Any


def page(opened: Any, page: Any, stopped: threading.Event, redraw: Callable[[], None]) -> None:
    """It stops when it is told to and after its rounds; a look that fails says why, and the pictures stay."""
    (looks,) = (each for each in threading.enumerate() if each.name == "looks")
    stopped.set()
    looks.join(60)
    assert not looks.is_alive()
    drawn = page.value
    assert "failed" not in drawn
    for topic, known in opened.expected.items():
        place = f"{topic}-{known['partition']}"
        assert place in drawn
        assert known["verdict"] != "hanging" or f"{place}: LSO held at {known['start_offset']}" in drawn
    cells = redraw.__globals__
    stopped.clear()
    before = {name: cells[name] for name in ("every_s", "rounds", "look")}
    cells.update(every_s=0, rounds=2, look=_fail)
    redraw()
    assert page.value.startswith('<p role="status">Look 2 of 2, ')
    assert "</b> nobody answers &lt;b&gt;</p><style>" in page.value
    assert page.value.partition("</p>")[2] == drawn.partition("</p>")[2]
    cells.update(before)


def _fail() -> None:
    raise OSError("nobody answers <b>")
