"""What a read of a log says of bytes that are no batch, and of wrong checksums: which offsets they may be at."""

from __future__ import annotations

from pathlib import Path

from tests.sources.log_files import after, data, write_log, write_root
from toolkit.sources.logdir.log_dir_layout import discover
from toolkit.sources.logdir.replica_log import FolderLog
from toolkit.sources.logdir.replica_state import LogWindow, ReadLimit, read_window

BATCHES = [data(10 * number, 7, after(), records=10) for number in range(6)]
SIZE = len(BATCHES[0])


def window(root: Path, *segments: list[bytes]) -> LogWindow:
    folders = [write_log(write_root(root), "orders-0", each, base_offset=30 * at) for at, each in enumerate(segments)]
    [replica] = discover(folders[:1]).replicas
    return read_window(FolderLog(replica), None, limit=ReadLimit.OPEN)


def test_damage_reaches_up_to_the_batch_behind_it_in_its_segment_or_the_next(tmp_path: Path) -> None:
    garbage = b"\xff" * SIZE
    first = [BATCHES[0], garbage, BATCHES[2]]
    damage = window(tmp_path, first, [*BATCHES[3:5], garbage]).damage
    assert [(each.next_offset, each.is_torn) for each in damage] == [(20, False), (None, False)]
    assert [each.place.partition(" of ")[0] for each in damage] == [f"byte {SIZE}", f"byte {2 * SIZE}"]
    assert [damage[0].reaches(offset) for offset in (0, 19, 20)] == [True, True, False]
    assert damage[1].reaches(10**9)
    at_the_end = window(tmp_path / "other", [*BATCHES[:2], garbage], BATCHES[3:]).damage
    assert [each.next_offset for each in at_the_end] == [30]


def test_the_first_and_the_last_wrong_checksum_are_kept(tmp_path: Path) -> None:
    """The last one reaches furthest: with the first alone, a marker behind the start could be missed."""
    wrong = {1, 3, 4}
    batches = [each[:-1] + b"?" if number in wrong else each for number, each in enumerate(BATCHES)]
    found = window(tmp_path, batches)
    assert [(each.next_offset, each.place.partition(" of ")[0]) for each in found.wrong_checksums] == [
        (20, f"byte {SIZE}"),
        (50, f"byte {4 * SIZE}"),
    ]
    assert [each.reason for each in found.wrong_checksums] == [
        f"CORRUPT_BATCH: the checksum at offset {offset} is wrong." for offset in (10, 40)
    ]
    assert not found.damage
