"""The live page: the worst partition until another is chosen, with its evidence; an error leaves the pictures."""

from typing import Any

import pytest

from toolkit.errors import ConnectionFailed, UsageError
from toolkit.lab.samples import load
from toolkit.sources.recording import Recording
from toolkit.views.live import LivePage


@pytest.fixture
def recording() -> Recording:
    found = load("flight-recording").recording()
    assert found is not None
    return found


def test_a_recording_is_shown_sample_by_sample(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    page = LivePage(recording, is_running=False)
    status, _, choices, drawn, details = page.children[1:]
    for _ in range(8):
        page.refresh()
    assert page.error is None
    assert "orders-0: LSO held at 15" in drawn.value
    assert "hanging" in details.value
    assert "Evidence" in details.value
    held = next(key for text, key in choices.options if "orders-0" in text)
    choices.value = held
    sizes = []
    for _ in range(20):  # it ends after 23 samples, and its last one stays
        page.refresh()
        sizes.append(len(drawn.value))
    assert "orders-0: nothing is open" in drawn.value, "what was chosen stays, though it is clear by now"
    assert (choices.value, choices.options[-1]) == (held, ("clear: orders-0", held))
    assert sizes[-1] == sizes[-2], "memory is bounded"
    before = drawn.value

    def fail(**_: Any) -> None:
        raise ConnectionFailed("The broker hung up.", do="Try again.")

    monkeypatch.setattr(recording, "finding_rows", fail)
    page.refresh()
    assert "The broker hung up." in status.value
    assert drawn.value == before


def test_a_line_of_the_overview_chooses_its_partition(recording: Recording) -> None:
    """Its rows have the numbers of the list; `tests/browser` clicks on one."""
    page = LivePage(recording, is_running=False)
    for _ in range(8):
        page.refresh()
    overview, choices = page.children[2:4]
    assert overview.value.count("data-row=") == 2 * (len(choices.options) - 1), "in both themes"


def test_files_do_not_change() -> None:
    with pytest.raises(UsageError, match="does not change"):
        LivePage(load("late-message").log_dir())  # type: ignore[arg-type]
