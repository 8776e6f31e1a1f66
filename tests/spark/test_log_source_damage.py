"""Files that are damaged, or deleted or extended between planning and reading, in each mode."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.sources.log_files import (
    HIGH_WATERMARK,
    META,
    after,
    data,
    marker,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
)
from tests.spark.read_log import assert_like_log_dir, assert_same_rows, plan_read, read, read_and_fold, rows
from toolkit import LogDir
from toolkit.errors import DecodeError, NotFound, UsageError
from toolkit.schema import Row
from toolkit.spark.datasources.log_reader import TAKES

BATCHES = 240
FIRST_SEGMENT, SECOND_SEGMENT = f"{0:020}.log", f"{479:020}.log"


def batches(base_offset: int) -> Iterator[bytes]:
    """Transactions of three producers."""
    for number in range(BATCHES):
        offset, producer_id = base_offset + 2 * number, number % 3
        if number % 10 > 6:
            yield marker(offset, producer_id, after(seconds=number))
        else:
            yield data(offset, producer_id, after(seconds=number), records=2)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """orders-0 with two segments, payments-0 with a small one, empty-0 with an empty one."""
    root = write_root(tmp_path / "data")
    for base_offset in (0, 479):
        write_log(root, "orders-0", list(batches(base_offset)), base_offset=base_offset)
    write_log(root, "payments-0", [data(0, 7, after()), marker(1, 7, after())])
    write_log(root, "empty-0", [])
    write_snapshot(root / "orders-0", 479, {1: 470, 2: None})
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): 958, ("payments", 0): 2, ("empty", 0): 0})
    return root


def damage(log: Path, at: int, *, size: int = 200) -> None:
    content = bytearray(log.read_bytes())
    content[at : at + size] = b"\xff" * size
    log.write_bytes(content)


def errors(result_rows: Sequence[Row]) -> list[str]:
    return [row["error"].partition(":")[0] for row in result_rows if row["error"]]


def test_damage_is_an_error_row(root: Path) -> None:
    damage(root / "orders-0" / FIRST_SEGMENT, 5000)
    damage(root / "orders-0" / SECOND_SEGMENT, 0)
    for table in ("batches", "log_transactions"):
        actual = assert_like_log_dir(root, table, maxPartitionBytes=4000)
        assert errors(actual).count("CORRUPT_BATCH") == 2
        assert set(errors(actual)) <= {"CORRUPT_BATCH", "OFFSETS_LOST"}, "the transactions that may have ended there"
    assert_same_rows(read_and_fold(root), LogDir(root).log_transactions(), "log_transactions")


def test_the_modes_behave_as_in_spark(root: Path) -> None:
    undamaged = rows(root)
    damage(root / "orders-0" / FIRST_SEGMENT, 5000)
    permissive = rows(root, mode="permissive", maxPartitionBytes=4000)
    assert len(errors(permissive)) == 1
    valid_rows = rows(root, mode="DROPMALFORMED", maxPartitionBytes=4000)
    assert sorted(map(repr, valid_rows)) == sorted(repr(row) for row in permissive if not row["error"])
    assert 0 < len(undamaged) - len(valid_rows) < 5
    with pytest.raises(DecodeError) as error:
        rows(root, mode="FailFast", maxPartitionBytes=4000)
    log = root / "orders-0" / FIRST_SEGMENT
    assert str(error.value).startswith(f"{log} cannot be read at {error.value.position}: CORRUPT_BATCH: ")
    assert 4900 < error.value.position < 5100
    assert rows(root, mode="FAILFAST", subscribe="payments") == rows(root, subscribe="payments")


def test_failfast_accepts_the_torn_tail_of_a_running_broker(root: Path) -> None:
    with (root / "orders-0" / SECOND_SEGMENT).open("ab") as log:
        log.write(data(958, 1, after())[:70])
    assert errors(assert_like_log_dir(root, "batches", mode="FAILFAST", maxPartitionBytes=4000)) == ["TORN_TAIL"]
    assert errors(rows(root, mode="FAILFAST", table="log_transactions")) == ["TORN_TAIL"]
    assert set(errors(rows(root, mode="FAILFAST", table="statistics"))) == {"TORN_TAIL"}
    os.truncate(root / "orders-0" / FIRST_SEGMENT, 5000)
    with pytest.raises(DecodeError, match="The segment ends within a batch, but another segment follows"):
        rows(root, mode="FAILFAST", maxPartitionBytes=4000)
    with pytest.raises(DecodeError, match=r"orders-0 cannot be read: CORRUPT_BATCH: .*; TORN_TAIL: "):
        rows(root, mode="FAILFAST", table="statistics")


@pytest.mark.parametrize("table", list(TAKES))
def test_files_deleted_after_planning_do_not_fail_the_job(root: Path, table: str) -> None:
    reader, tasks = plan_read(root, table=table, maxPartitionBytes=4000)
    shutil.rmtree(root / "payments-0")
    (root / "orders-0" / SECOND_SEGMENT).unlink()
    actual = read(reader, tasks).to_pylist()
    if table in {"batches", "log_transactions", "aborted", "snapshots", "segments"}:
        unreadable = {Path(row["file"]).name for row in actual if (row["error"] or "").startswith("UNREADABLE")}
        assert unreadable == {"payments-0"}
    if table == "partitions":
        assert next(row["error"] for row in actual if row["topic"] == "payments").startswith("UNREADABLE")


def test_files_that_grow_after_planning_are_read(root: Path) -> None:
    reader, tasks = plan_read(root, maxPartitionBytes=4000)
    with (root / "orders-0" / SECOND_SEGMENT).open("ab") as log:
        log.write(data(958, 1, after()))
    (root / "empty-0" / FIRST_SEGMENT).write_bytes(data(0, 1, after()))
    assert_same_rows(read(reader, tasks).to_pylist(), LogDir(root).batches(), "batches")


def test_many_small_folders_share_tasks_in_log_order(tmp_path: Path) -> None:
    root = write_root(tmp_path / "data")
    for number in range(200):
        for base_offset in (0, 2):
            write_log(root, f"orders-{number}", [data(base_offset, 7, after(), records=2)], base_offset=base_offset)
    for table in ("batches", "log_transactions", "segments"):
        reader, tasks = plan_read(root, table=table, maxPartitionBytes="8m")
        assert len(tasks) == 2
        actual = read(reader, tasks).to_pylist()
        assert_same_rows(actual, getattr(LogDir(root), table)(), table)
        if table == "batches":
            assert [row["base_offset"] for row in actual if row["partition"] == 17] == [0, 2]


def test_a_folder_with_another_name_is_read_if_its_name_is_not_needed(root: Path) -> None:
    (root / "orders-0").rename(root.parent / "copied")
    copied = root.parent / "copied"
    assert_like_log_dir(copied, "batches", maxPartitionBytes=4000)
    assert_like_log_dir(copied / SECOND_SEGMENT, "log_transactions")
    with pytest.raises(UsageError, match="The topic and partition of"):
        rows(copied, table="partitions")


def test_a_log_directory_without_logs_has_checkpoints(tmp_path: Path) -> None:
    root = write_root(tmp_path / "data")
    assert_like_log_dir(root, "checkpoints")
    for table in TAKES:
        actual = rows(root, table=table)
        assert table in {"checkpoints", "exposure", "statistics"} or not actual
    (root / META).unlink()
    with pytest.raises(NotFound, match="no Kafka files"):
        rows(root)
