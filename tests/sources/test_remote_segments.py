"""Segments in remote storage (KIP-405) before those of a broker: one log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sources.log_files import after, data, marker, write_checkpoint, write_log, write_root, write_snapshot
from tests.spark.read_log import assert_same_rows, read_and_fold, rows
from toolkit import LogDir

TOPIC_ID, OTHER_TOPIC_ID = "Ab_-Ab_-Ab_-Ab_-Ab_-Ab", "Cd_-Ab_-Ab_-Ab_-Ab_-Ab"
FIRST, SECOND = "Ef_-Ab_-Ab_-Ab_-Ab_-Ab", "Gh_-Ab_-Ab_-Ab_-Ab_-Ab"  # copies of segments
BUSY, OPEN = 8, 9


def batches(start: int, stop: int) -> list[bytes]:
    """Offsets 0 to 9: a transaction that is aborted at 6, and one that begins at 2 and stays open."""
    log = {2: data(2, OPEN, after()), 6: marker(6, BUSY, after(), commit=False)}
    return [log.get(offset) or data(offset, OPEN if offset > 6 else BUSY, after()) for offset in range(start, stop)]


def write_remote(root: Path, start: int, stop: int, *, copy: str = FIRST, topic_id: str = TOPIC_ID) -> Path:
    """A copy of a segment in remote storage, without an index."""
    folder = write_log(root, f"orders-0-{topic_id}", batches(start, stop), base_offset=start)
    return (folder / f"{start:020}.log").rename(folder / f"{start:020}-{copy}.log")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A broker with the offsets from 5 on, and an empty remote storage."""
    broker, remote = write_root(tmp_path / "broker"), tmp_path / "remote"
    folder = write_log(broker, "orders-0", batches(5, 10), base_offset=5)
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    write_checkpoint(broker, "replication-offset-checkpoint", {("orders", 0): 10})
    write_checkpoint(broker, "log-start-offset-checkpoint", {("orders", 0): 0})
    return broker, remote


def offsets(*paths: Path) -> list[int]:
    """Sorted: rows come file by file."""
    return sorted(row["base_offset"] for row in LogDir(*paths).batch_rows(topics=["orders"]))


@pytest.mark.parametrize(
    "copies",
    [
        [(0, 3), (3, 5)],
        [(0, 3), (3, 7)],  # a follower's segments do not begin where the leader's do
        [(0, 4), (3, 5)],  # two leaders have copied them
        [(0, 3), (3, 5), (5, 10)],  # the broker still has what was copied
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_each_batch_is_there_once(
    folders: tuple[Path, Path], copies: Sequence[tuple[int, int]], is_whole: bool
) -> None:
    broker, remote = folders
    if not is_whole:
        write_remote(remote, 0, 1, copy=SECOND)  # an unfinished copy
    for start, stop in copies:
        write_remote(remote, start, stop)
    for paths in ([broker, remote], [remote, broker]):
        assert offsets(*paths) == list(range(10))
    tasks = rows(broker.parent, table="batches", maxPartitionBytes=100)
    assert sorted(row["base_offset"] for row in tasks) == list(range(10))
    folded = read_and_fold(broker.parent)
    assert_same_rows(folded, LogDir(broker.parent).log_transactions(), "log_transactions")
    [row] = LogDir(broker, remote).partition_rows(topics=["orders"])
    assert (row["log_start_offset"], row["local_log_start_offset"], row["log_end_offset"]) == (0, 5, 10)


def test_a_transaction_whose_head_is_only_remote_gets_its_start(folders: tuple[Path, Path]) -> None:
    broker, remote = folders
    write_remote(remote, 0, 5)
    local = LogDir(broker).log_transaction_rows(topics=["orders"])
    assert {row["first_offset"] for row in local} != {0, 2}
    joined = LogDir(broker, remote).log_transaction_rows(topics=["orders"])
    assert [(row["first_offset"], row["outcome"]) for row in joined] == [(0, "abort"), (2, "open")]
    write_snapshot(broker / "orders-0", 10, {OPEN: 2})
    [row] = LogDir(broker, remote, consistent_copy=True).finding_rows(topics=["orders"])
    assert row["start_offset"] == 2
    assert not any("the batch at offset 2" in each for each in row["missing"] or ())


def test_a_segment_that_was_not_copied_is_missing(folders: tuple[Path, Path]) -> None:
    broker, remote = folders
    write_remote(remote, 0, 3)
    found = LogDir(broker, remote).log_transaction_rows(topics=["orders"])
    assert any("OFFSETS_LOST" in (row["error"] or "") for row in found)


def test_a_topic_that_was_created_again_has_other_segments(folders: tuple[Path, Path]) -> None:
    broker, remote = folders
    write_remote(remote, 0, 5, topic_id=OTHER_TOPIC_ID)
    found = LogDir(broker, remote).partition_rows(topics=["orders"])
    assert [(row["broker_id"], row["log_end_offset"]) for row in found] == [(None, 5), (1, 10)]


def test_aborted_transactions_without_their_index_are_rows_with_an_error(tmp_path: Path) -> None:
    """Kafka takes a lost index for that of a segment without aborted transactions, and so did the table."""
    write_remote(tmp_path, 0, 5)
    segment = write_remote(tmp_path, 5, 10)
    [row] = LogDir(tmp_path).aborted_rows()
    assert row["error"].startswith("NO_INDEX: ")
    assert (row["producer_id"], row["first_offset"], row["last_offset"]) == (BUSY, 0, 6)
    assert row["file"] == str(segment)
    (tmp_path / segment.parent / f"{segment.stem}.txnindex").write_bytes(b"")
    assert LogDir(tmp_path).aborted_rows() == []
