"""What the fold of a log says of what was not read; any copies in any order are in `test_incomplete_copies`."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.sources.log_files import NOON, data, marker
from tests.spark import read_log
from tests.spark.frames import damaged_copy
from tests.spark.test_incomplete_copies import Tables, assert_like_log_dir
from toolkit.analysis.log.log_transactions import END_NOT_READ, LOG_TRANSACTION, LogArray, begin
from toolkit.config import ClientConfig
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import COMMIT, HEADER, NO_MARKER, DamagedRange, Headers, LogChunk
from toolkit.formats.scan import scan
from toolkit.schema import LOG_TRANSACTIONS, LSO_TIMELINE, Row, Table
from toolkit.schema.table import LogId
from toolkit.sources.live import partition_log
from toolkit.sources.live.partition_log import FetchedChunk, FetchedRange
from toolkit.sources.log_tables import ReadError, error_table
from toolkit.spark.datasources.log_reader import LogListing
from toolkit.spark.pipeline import log_fold
from toolkit.spark.pipeline.log_fold import LogRead, LogState, LogWork, StoppedRead, WorkOptions, fold_log, fold_work
from toolkit.spark.pipeline.log_states import CONTINUED, LOST, TRUNCATED, LogPlan, plan_logs
from toolkit.spark.pipeline.stored_tables import STATE, FoldedRows

LOG_ID = LogId(topic="orders", partition=3, broker_id=1)
LOG = "1:/kafka/orders-3/"
FROM_BEGINNING = LogPlan()


def run(
    state: LogState, *chunks: LogChunk, plan: LogPlan = FROM_BEGINNING, failure: str | None = None, **read: Any
) -> list[FoldedRows]:
    """What the fold of a log gives out, and last its new state."""

    def read_on() -> Iterator[LogChunk]:
        yield from chunks
        if failure is not None:
            raise StoppedRead(ReadError(None, None, failure))

    *found, stored = fold_log(LOG, LogRead(chunks=read_on(), before=begin(), **read), plan, state)
    assert stored.table == STATE.name
    return [*found, stored]


def rows_of(folded: Sequence[FoldedRows], table: Table = LOG_TRANSACTIONS) -> list[Row]:
    return [row for each in folded if each.table == table.name for row in read_log.rows_of(each)]


def chunk(*batches: bytes) -> LogChunk:
    return LogChunk(headers=scan(b"".join(batches), crc=True).headers, file=f"/kafka/orders-3/{0:020}.log")


def test_damage_in_a_response_of_a_broker_is_a_row_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """An aborted transaction whose marker was unreadable got the COMMIT of the next one; the next run had no error.

    The cleaner has removed what is above the last batch: nothing is lost there.
    """
    aborted, rest = data(0, 7, NOON), marker(1, 7, NOON, commit=False)
    found = scan(b"".join([aborted, b"\xff" * len(rest), data(2, 7, NOON), marker(3, 7, NOON)]))
    chunk = FetchedChunk(headers=found.headers, damage=found.damage, broker_id=1)
    fetched = FetchedRange(log_id=LOG_ID, start=0, stop=6, chunks=(each for each in [chunk]))
    monkeypatch.setattr(partition_log, "read_range", lambda client, log_range, crc: fetched)
    monkeypatch.setattr(log_fold, "_connect", mock.MagicMock())
    work = LogWork(
        log=LOG,
        listing=LogListing(log=LOG, topic="orders", partition=3, broker_id=1),
        plan=LogPlan(start=0, stop=6),
        state=None,
    )
    folded = list(fold_work(work, WorkOptions(min_held_ms=0, config=mock.Mock())))
    of_log = [each for each in folded if each.table == LOG_TRANSACTIONS.name]
    rows = [(row, each.is_final) for each in of_log for row in read_log.rows_of(each)]
    (damage,) = [is_final for row, is_final in rows if row["producer_id"] is None]
    assert damage, "the next run begins after it"
    outcomes = {row["first_offset"]: row["outcome"] for row, _ in rows if row["producer_id"] is not None}
    assert outcomes == {0: None, 2: "commit"}
    assert read_log.state_of(folded[-1]).log_end_offset == 6


def test_transactions_open_before_lost_offsets_have_no_outcome() -> None:
    """Its marker may be among them; the marker that follows is of another one, and the hold of the first has no end."""
    lost = "OFFSETS_LOST: Offsets 2 to 4,999 were deleted."
    state = LogState(where=LOG_ID)
    run(state, chunk(data(0, 7, NOON), marker(1, 8, NOON)), end=0)
    later = chunk(data(5000, 8, NOON), marker(5001, 7, NOON))
    folded = run(state, later, plan=LogPlan(mode=LOST, offset=5000, error=lost), end=5000)
    names = ("producer_id", "first_offset", "marker_offset", "outcome", "error")
    assert [tuple(row[name] for name in names) for row in rows_of(folded)] == [
        (7, 0, None, None, END_NOT_READ), (None, None, None, None, lost), (7, None, 5001, "empty", None),
        (8, 5000, None, "open", None),
    ]  # fmt: skip
    steps = [(row["offset"], row["last_stable_offset"], row["error"]) for row in rows_of(folded, LSO_TIMELINE)]
    assert steps[0] == (2, None, lost)
    assert [row["first_offset"] for row in state.lso_holds().to_pylist()] == [5000]


def test_a_file_that_could_not_be_opened_is_marked_in_the_state() -> None:
    unreadable = replace(chunk(), damage=(DamagedRange(0, 0, "UNREADABLE: no permission."),))
    state = LogState(where=LOG_ID)
    stored = read_log.state_of(run(state, unreadable, end=0)[-1])
    assert (stored.is_unread, stored.is_damaged) == (True, True)
    *rows, last = run(LogState.of(stored), plan=LogPlan(mode=TRUNCATED, offset=0))
    stored = read_log.state_of(last)
    assert (stored.is_unread, stored.is_damaged, rows_of(rows)) == (False, False, [])


def test_a_partition_whose_first_read_failed_is_read_by_the_next_run() -> None:
    """Every later run failed: "The transactions that begin the log cannot follow others"."""
    batches = chunk(data(0, 7, NOON), marker(1, 7, NOON), data(2, 7, NOON))
    *failed, last = run(LogState(where=LOG_ID), plan=LogPlan(start=0, stop=90), failure="NOT_LEADER: it moved.")
    assert [(each.is_final, row["error"]) for each in failed for row in read_log.rows_of(each)] == [
        (False, "NOT_LEADER: it moved.")
    ] * 2
    stored = read_log.state_of(last)
    again = run(LogState.of(stored), batches, plan=LogPlan(start=0, stop=90, mode=CONTINUED))
    assert [row["outcome"] for row in rows_of(again)] == ["commit", "open"]
    assert rows_of(again) == rows_of(run(LogState(where=LOG_ID), batches, plan=LogPlan(start=0, stop=90)))


# Logs of real clients.


@pytest.fixture(scope="module")
def replicas(history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A damaged copy, one of another broker without the first segments, and one that also lacks snapshots."""
    folder = tmp_path_factory.mktemp("replicas")
    damaged_copy(history, folder / "1")
    for number in (2, 3):
        copy = Path(shutil.copytree(history, folder / str(number)))
        properties = copy / "meta.properties"
        properties.write_text(properties.read_text().replace("node.id=1", f"node.id={number}"))
        for partition in (path for path in copy.iterdir() if path.is_dir()):
            logs = sorted(partition.glob("*.log"))
            for log in logs[: len(logs) // 2]:
                log.unlink()
            for snapshot in partition.glob("*.snapshot") if number == 3 else ():
                snapshot.unlink()
    return folder


def test_damaged_logs_and_logs_without_a_beginning_are_folded(replicas: Path) -> None:
    tables = Tables(replicas)
    tables.run()
    assert_like_log_dir(tables)
    errors = {row["error"] for row in tables.log_transactions}
    assert "CORRUPT_BATCH" in str(errors)
    assert any(row["truncated"] is None for row in tables.log_transactions if row["producer_id"] is not None)


def transactions(start: int, stop: int) -> Headers:
    """Batches of one record; 50 producers take turns, and each of their transactions ends with a marker."""
    number = np.arange(start, stop)
    turn = number // 50
    is_end = turn % 20 == 19
    headers = np.zeros(len(number), HEADER)
    headers["base_offset"] = headers["last_offset"] = number
    headers["producer_id"], headers["base_sequence"] = number % 50, np.where(is_end, -1, turn)
    headers["max_timestamp"] = 1_760_000_000_000 + number
    headers["attributes"] = np.where(is_end, TRANSACTIONAL | CONTROL, TRANSACTIONAL)
    headers["marker"] = np.where(is_end, COMMIT, NO_MARKER)
    headers["size"], headers["record_count"], headers["magic"], headers["crc_ok"] = 100, 1, 2, 1
    return headers


def test_a_log_of_any_size_is_folded_in_the_same_memory() -> None:
    """All batches of a partition at once took more than a worker of Spark has."""
    peaks, size = list[int](), 1 << 15
    for count in (4, 16):
        read = (LogChunk(headers=transactions(at, at + size), file=f"/{0:020}.log")
                for at in range(0, count * size, size))  # fmt: skip
        state, found = LogState(where=LOG_ID, min_held_ms=1 << 40), 0
        tracemalloc.start()
        with mock.patch.object(log_fold, "ROWS_AT_ONCE", 1):
            for table, rows, is_final in fold_log(LOG, LogRead(chunks=read, before=begin()), FROM_BEGINNING, state):
                if (table, is_final) == (LOG_TRANSACTIONS.name, True):
                    assert isinstance(rows, LogArray)
                    found += len(rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found == count * size // 1000 * 50
    assert peaks[1] < 1.2 * peaks[0]


def test_each_staged_row_has_its_own_log() -> None:
    """The rows of many logs become one table, errors after the others."""
    rows = np.zeros(2, LOG_TRANSACTION)
    found = [
        (error_table([ReadError(None, None, "UNREADABLE: no.")], replace(LOG_ID, broker_id=1)), "log 1", True),
        (LogArray(rows, replace(LOG_ID, broker_id=2)), "log 2", False),
        (LogArray(rows[:1], replace(LOG_ID, broker_id=3)), "log 3", True),
    ]
    rows_of_logs = log_fold.rows_of_logs(LOG_TRANSACTIONS.name, found)
    in_order = [(2, "log 2", False)] * 2 + [(3, "log 3", True), (1, "log 1", True)]
    assert [(row["broker_id"], row["log"], row["is_final"]) for row in rows_of_logs.to_pylist()] == in_order
    staged = log_fold.stage_rows(LOG_TRANSACTIONS.name, rows_of_logs)
    assert [row[LOG_TRANSACTIONS.name] for row in staged.to_pylist()] == rows_of_logs.to_pylist()


def test_a_live_partition_without_leader_has_a_row_until_it_can_be_read() -> None:
    """It had none, though its files have one: every transaction that was open there seemed to be known."""
    listing = LogListing(log="a/leader/id/orders-0", topic="orders", partition=0, error="LEADER_NOT_AVAILABLE: none")
    options = WorkOptions(min_held_ms=0, config=ClientConfig({"bootstrap.servers": "127.0.0.1:1"}))
    (plan,) = plan_logs({listing.log: listing}, {}).values()
    *rows, state = fold_work(LogWork(log=listing.log, listing=listing, plan=plan, state=None), options)
    assert [each.table for each in rows] == [LOG_TRANSACTIONS.name, LSO_TIMELINE.name]
    assert [(each.is_final, row["error"]) for each in rows for row in read_log.rows_of(each)] == [
        (False, listing.error)
    ] * 2
    stored = read_log.state_of(state)
    back = replace(listing, begin=0, high_watermark=0, error=None)
    assert plan_logs({listing.log: replace(back, high_watermark=4)}, {listing.log: stored}) != {}
    read_before = replace(stored, log_end_offset=0)
    assert plan_logs({listing.log: back}, {listing.log: read_before}) == {
        listing.log: LogPlan(start=0, stop=0, mode=CONTINUED)
    }, "the row goes, though nothing is new"
