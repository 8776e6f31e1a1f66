"""Snapshots and segments of a log directory as tables."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest

from tests.sources.log_files import after, data, write_log, write_root, write_snapshot
from toolkit import LogDir
from toolkit.errors import NotFound
from toolkit.schema import SEGMENTS, SNAPSHOTS, Table
from toolkit.sources.logdir.contents import Contents


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """orders-0 with two segments, a snapshot with two producers and an empty one; payments-1 with a damaged one."""
    root = write_root(tmp_path / "data", broker_id=3)
    folder = write_log(root, "orders-0", [data(0, 7, after())])
    write_log(root, "orders-0", [data(4, 8, after())], base_offset=4)
    write_snapshot(folder, 0, {})
    write_snapshot(folder, 4, {7: None, 8: 2})
    folder = write_log(root, "payments-1", [])
    (folder / "00000000000000000009.snapshot").write_bytes(b"\0\1")
    return root


def rows(table: Table, frame: Any, *names: str) -> list[tuple[Any, ...]]:
    assert list(frame.columns) == table.names
    return [tuple(row[name] for name in names) for row in table.rows(frame)]


def test_every_producer_of_every_snapshot_is_a_row(root: Path) -> None:
    frame = LogDir(root).snapshots(topics=["orders"])
    names = ("broker_id", "snapshot_offset", "producer_id", "current_txn_start_offset", "last_offset", "error")
    assert rows(SNAPSHOTS, frame, *names) == [
        (3, 0, None, None, None, None),  # it is there, and nothing was open
        (3, 4, 7, None, 0, None),
        (3, 4, 8, 2, 0, None),
    ]
    assert {Path(file).name for file in frame["file"]} == {f"{0:020}.snapshot", f"{4:020}.snapshot"}


def test_an_unreadable_snapshot_is_an_error_row(root: Path) -> None:
    [row] = SNAPSHOTS.rows(LogDir(root).snapshots(topics="payments", partitions=1))
    assert (row["snapshot_offset"], row["producer_id"]) == (9, None)
    assert row["error"].startswith("CORRUPT_SNAPSHOT: 00000000000000000009.snapshot: ")
    with pytest.raises(NotFound):
        LogDir(root).snapshots(topics="payments", partitions=0)


def test_segments_have_size_and_modification_time(root: Path) -> None:
    file = root / "orders-0" / f"{4:020}.log"
    os.utime(file, (1_795_262_400.5, 1_795_262_400.5))
    found = rows(SEGMENTS, LogDir(root).segments(), "topic", "base_offset", "size", "modified", "broker_id")
    written = dt.datetime(2026, 11, 21, 12, 0, 0, 500_000, tzinfo=dt.UTC)
    assert [row[:3] for row in found] == [
        ("orders", 0, file.stat().st_size),
        ("orders", 4, file.stat().st_size),
        ("payments", 0, 0),
    ]
    assert found[1][3:] == (written, 3)


def test_a_removed_file_is_an_error_row(root: Path) -> None:
    files = LogDir(root)
    contents = files.contents()
    (root / "payments-1").rename(root / "moved")
    for table, frame in ((SNAPSHOTS, files.snapshots()), (SEGMENTS, files.segments())):
        assert {row["topic"] for row in table.rows(frame)} == {"orders"}
    gone = LogDir.of(Contents(contents.layout), root)
    for table, frame in (
        (SNAPSHOTS, gone.snapshots(topics=["payments"])),
        (SEGMENTS, gone.segments(topics=["payments"])),
    ):
        [row] = table.rows(frame)
        assert row["error"].startswith("UNREADABLE: ")
        assert row["file"] == str(root / "payments-1")
