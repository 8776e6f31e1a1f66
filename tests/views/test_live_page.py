"""The live page: the worst partition until another is chosen, with its evidence; an error leaves the pictures."""

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest

from tests.sources.recorded import NINE, sample
from toolkit.errors import ConnectionFailed, UsageError
from toolkit.lab.samples import load
from toolkit.sources.recording import Recording
from toolkit.sources.recording.sample_writer import SampleWriter
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
    assert "held back" in drawn.value, "an open transaction ended between two requests of one sample"
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


def test_a_recording_is_followed_while_the_recorder_writes_and_eight_hours_of_it_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page stood at the sample that was the newest when it opened, and read all of the recording for each one."""
    read: list[int] = []
    history = Recording.history

    def counted(self: Recording, table: str, **options: Any) -> Any:
        found = history(self, table, **options)
        read.append(len(found) if table == "partitions" else 0)
        return found

    monkeypatch.setattr(Recording, "history", counted)
    with SampleWriter(tmp_path) as writer:
        writer.write(sample(NINE))
        page = LivePage(Recording(tmp_path), is_running=False)
        for hours in (0, 5, 9):
            if hours:
                writer.write(sample(NINE + dt.timedelta(hours=hours)))
            for _ in range(2):
                page.refresh()
                assert page.error is None
                assert f"{NINE + dt.timedelta(hours=hours):%Y-%m-%d %H:%M:%S}" in page.children[1].value
    assert "orders-0: LSO held at 100" in page.children[4].value
    assert max(read) == 2, "one partition, of the last 8 hours"


def test_a_line_of_the_overview_chooses_its_partition(recording: Recording) -> None:
    """Its rows have the numbers of the list; `tests/browser` clicks on one."""
    page = LivePage(recording, is_running=False)
    for _ in range(8):
        page.refresh()
    overview, choices = page.children[2:4]
    assert overview.value.count("data-row=") == len(choices.options) - 1


def test_every_colour_of_the_pictures_follows_the_theme(recording: Recording) -> None:
    page = LivePage(recording, is_running=False)
    for _ in range(8):
        page.refresh()
    drawn = page.children[2].value + page.children[4].value
    colours = re.findall(r'(?:fill|stroke)="([^"]*)"', drawn)
    assert {each for each in colours if not each.startswith(("var(--kafka-txn-", "url("))} <= {"none", "transparent"}


def test_files_do_not_change() -> None:
    with pytest.raises(UsageError, match="does not change"):
        LivePage(load("late-message").log_dir())  # type: ignore[arg-type]
