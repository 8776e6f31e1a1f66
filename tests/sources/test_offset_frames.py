"""The frames of questions about offsets are their rows, with the same arguments."""

from pathlib import Path
from typing import Any

import pytest

from toolkit.errors import UsageError
from toolkit.lab import samples
from toolkit.lab.lab_source import SampleSource
from toolkit.schema import MISSING_OFFSETS, OFFSET_VISIBILITY


def test_the_frames_of_offsets_are_their_rows() -> None:
    log_dir = samples.load("several-open").log_dir()
    topic = samples.load("several-open").topic
    rows = log_dir.offset_visibility_rows(topic, 0, 2)
    assert (rows[0]["topic"], rows[0]["partition"], rows[0]["offset"]) == (topic, 0, 2)
    assert log_dir.offset_visibility(topic, 0, 2).equals(OFFSET_VISIBILITY.frame(rows))
    everything = log_dir.missing_offsets(topic, 0)
    first = int(everything["first_offset"][0])
    options: dict[str, Any]
    for options in ({"start": first + 1}, {"stop": first + 1}, {"read_committed": False}):
        frame = log_dir.missing_offsets(topic, 0, **options)
        assert frame.equals(MISSING_OFFSETS.frame(log_dir.missing_offset_rows(topic, 0, **options)))
        assert not frame.equals(everything), options
    with pytest.raises(UsageError, match="ends at 1"):
        log_dir.missing_offsets(topic, 0, start=2, stop=1)


def test_a_sample_without_a_trail_of_actions_has_one_of_its_own(tmp_path: Path) -> None:
    source = SampleSource(samples.load("several-open"), folder=tmp_path)
    assert source.audit.path == tmp_path / "audit.jsonl"
