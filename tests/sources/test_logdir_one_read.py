"""Findings read each byte of a log once, in every case, and a little around open transactions."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.log_files import (
    CLEANED,
    HIGH_WATERMARK,
    STATE_TOPIC,
    after,
    data,
    ids_of,
    marker,
    state_record,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
    write_state_topic,
)
from toolkit import LogDir
from toolkit.analysis.diagnosis.log_excerpts import MAX_OFFSETS
from toolkit.schema import Row

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/io counts what a process reads")

K = 33
OWNER, OTHER = ids_of(K, 2)
HUNG, BUSY = 7, 8
TRANSACTIONS, BATCHES, RECORDS = 1_200, 5, 8
LENGTH = BATCHES * RECORDS + 1  # offsets of a transaction with its marker
END = RECORDS + TRANSACTIONS * LENGTH
AROUND = 300_000  # bytes: openings, indexes, and a few batches before the lowest open one


def batches() -> Iterator[bytes]:
    """One transaction opens the log, and many others run and end behind it."""
    yield data(0, HUNG, after(), records=RECORDS)
    for number in range(TRANSACTIONS):
        first = RECORDS + number * LENGTH
        for batch in range(BATCHES):
            yield data(first + batch * RECORDS, BUSY, after(seconds=number), records=RECORDS)
        yield marker(first + LENGTH - 1, BUSY, after(seconds=number + 0.5))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Log directories in which that transaction hangs, is alive, has lost its id, or has ended."""
    return {
        name: write_scene(tmp_path_factory.mktemp(name), name) for name in ("hanging", "ongoing", "orphan", "ended")
    }


def write_scene(path: Path, name: str) -> Path:
    root = write_root(path / "data")
    whole = list(batches())
    if name == "ended":
        whole.append(marker(END, HUNG, after(hours=1), commit=False))
    half = len(whole) // 2
    folder = write_log(root, "orders-0", whole[:half])
    at = RECORDS + (half - 1) // (BATCHES + 1) * LENGTH + (half - 1) % (BATCHES + 1) * RECORDS
    write_log(root, "orders-0", whole[half:], base_offset=at)
    write_snapshot(folder, at, {HUNG: 0, BUSY: None})
    on = [("orders", 0)] if name == "ongoing" else []
    state = "Ongoing" if name == "ongoing" else "Empty"
    producer_id = HUNG + 100 if name == "orphan" else HUNG
    many = [state_record(n, OTHER, BUSY, "CompleteCommit", after(seconds=n)) for n in range(20_000)]
    owner = state_record(20_000, OWNER, producer_id, state, after(), on=on)
    newest = state_record(20_001, OTHER, BUSY, "CompleteCommit", after(hours=6))
    write_state_topic(root, {K: [*many, owner, newest]})
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): END + (name == "ended"), (STATE_TOPIC, K): 20_002})
    write_checkpoint(root, CLEANED, {(STATE_TOPIC, K): 20_001})
    return root


def bytes_read() -> int:
    (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar"))
    return int(line.split()[1])


def size_of(root: Path) -> int:
    return sum(file.stat().st_size for file in root.rglob("*.log"))


@pytest.mark.parametrize("min_held_ms", [None, 0, 60_000])
@pytest.mark.parametrize(
    ("name", "verdict"), [("hanging", "hanging"), ("ongoing", "overdue"), ("orphan", "unknown"), ("ended", "ended")]
)
def test_each_byte_is_read_once(logs: dict[str, Path], name: str, verdict: str, min_held_ms: int | None) -> None:
    files = LogDir(logs[name], consistent_copy=True)
    read = []
    for _ in range(3):  # imports, and code that is compiled later, are read once
        before = bytes_read()
        rows = files.finding_rows(min_held_ms=min_held_ms)
        read.append(bytes_read() - before)
    assert min(read) < size_of(logs[name]) + AROUND
    if verdict == "ended" and min_held_ms is None:
        assert not rows
        return
    held = of_hung(rows)
    assert held["verdict"] == verdict
    assert held["records_held"] == RECORDS + TRANSACTIONS * BATCHES * RECORDS


def test_a_log_without_indexes_that_ends_in_an_open_transaction_is_read_once(tmp_path: Path) -> None:
    """Its producer has no marker near: batches far back were read again, and those before them for lack of an index."""
    root = write_root(tmp_path / "data")
    _, *ended = batches()
    opened = data(END, HUNG, after(hours=1), records=RECORDS)
    write_log(root, "orders-0", [data(0, BUSY, after(), records=RECORDS), *ended, opened])
    newest = state_record(1, OTHER, BUSY, "CompleteCommit", after(hours=2))
    write_state_topic(root, {K: [state_record(0, OWNER, HUNG, "Empty", after()), newest]})
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): END + RECORDS, (STATE_TOPIC, K): 2})
    read = []
    for _ in range(2):
        before = bytes_read()
        rows = LogDir(root, consistent_copy=True).finding_rows()
        read.append(bytes_read() - before)
    assert of_hung(rows)["verdict"] == "hanging"
    assert min(read) < size_of(root) + AROUND


@pytest.mark.parametrize("topics", [None, ["orders"]])
def test_a_bounded_range_of_other_logs_is_read_for_markers(tmp_path: Path, topics: list[str] | None) -> None:
    """Each byte once, and of the log with the marker, which has many offsets more, as many as may be read for it."""
    root = write_scene(tmp_path / "logs", "hanging")
    count = 3 * MAX_OFFSETS
    payments = [data(number, BUSY, after()) for number in range(count)]
    ended = [marker(count, BUSY, after()), data(count + 1, HUNG, after()), marker(count + 2, HUNG, after(), epoch=1)]
    folder = write_log(root, "payments-0", [*payments, *ended])
    index = [struct.pack(">ii", number, number * len(payments[0])) for number in range(50, count, 50)]
    (folder / f"{0:020}.index").write_bytes(b"".join(index))
    replicated = {("orders", 0): END, ("payments", 0): count + 3, (STATE_TOPIC, K): 20_001}
    write_checkpoint(root, HIGH_WATERMARK, replicated)
    last = state_record(20_000, OWNER, HUNG, "Empty", after(hours=9), epoch=1)
    write_log(root, f"{STATE_TOPIC}-{K}", [last])
    files = LogDir(root, consistent_copy=True)
    read = []
    for _ in range(2):
        before = bytes_read()
        rows = files.finding_rows(topics=topics)
        read.append(bytes_read() - before)
    assert of_hung(rows)["outcome"] == "unknown", "epoch 0 begins with no commit that shows version 2"
    assert min(read) < size_of(root) + AROUND + (MAX_OFFSETS + 1) * len(payments[0])


def of_hung(rows: list[Row]) -> Row:
    (row,) = (row for row in rows if row["producer_id"] == HUNG)
    return row
