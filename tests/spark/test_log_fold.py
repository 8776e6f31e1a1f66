"""Folding logs into transactions, LSO and holds in any runs matches a single read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.analysis.random_logs import KINDS, LEADER_CHANGE, Step, batches
from tests.sources.log_files import NOON, data, marker
from tests.spark.frames import damaged_copy
from tests.spark.test_incomplete_copies import Tables, assert_like_log_dir
from tests.spark.test_log_state import expected_holds
from tests.tiers import fuzzed, seed
from toolkit.analysis.log.log_transactions import EMPTY, END_NOT_READ, PartialTransactions, begin, log_transaction_table
from toolkit.analysis.log.offset_status import at_missing_offsets
from toolkit.config import ClientConfig
from toolkit.formats.batches import DELETE_HORIZON, LOG_APPEND_TIME
from toolkit.formats.headers import HEADER, DamagedRange, Headers, LogChunk
from toolkit.formats.scan import scan
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, Row
from toolkit.schema.table import LogId
from toolkit.sources.live import partition_log
from toolkit.sources.live.partition_log import FetchedChunk, FetchedRange
from toolkit.sources.log_tables import LogFold, ReadError, batch_tables, log_transaction_tables, lso_timeline_tables
from toolkit.spark.arrow_types import spark_table
from toolkit.spark.datasources.log_reader import LogListing
from toolkit.spark.pipeline import log_fold
from toolkit.spark.pipeline.log_fold import LogRead, LogState, LogWork, StoppedRead, WorkOptions, fold_log, fold_work
from toolkit.spark.pipeline.log_states import CONTINUED, LOST, TRUNCATED, LogPlan, plan_logs
from toolkit.spark.pipeline.stored_tables import STATE, StoredState, damaged_segments

T = TypeVar("T")

LOG_ID = LogId(topic="orders", partition=3, broker_id=1)
LOG = "1:/kafka/orders-3/"
FROM_BEGINNING = LogPlan()
BASE = 50
NO_HEADERS = np.zeros(0, HEADER)
CORRUPT, TORN = "CORRUPT_BATCH: no.", "TORN_TAIL: half."


class Unit(NamedTuple):
    """A batch, damaged bytes, or neither for the beginning of a file."""

    file: str
    base_offset: int  # of the file
    headers: Headers
    damage: tuple[DamagedRange, ...] = ()

    @property
    def begins_file(self) -> bool:
        return not len(self.headers) and not self.damage

    @property
    def end(self) -> int | None:
        return int(self.headers["last_offset"][-1]) + 1 if len(self.headers) else None


def random_units(random: Random, base_offset: int = BASE) -> list[Unit]:
    """Random batches of some producers in segments; some batches are damaged, and some segments are missing."""
    attributes = [0, 0, 0, LOG_APPEND_TIME, DELETE_HORIZON]
    headers = batches(
        [
            Step(
                random.choice(KINDS),
                random.randint(0, 3),
                random.randint(1, 3),
                random.randint(0, 2),
                random.choice([1, 2]),
                random.choice(attributes),
                random.randint(-2, 5),
            )
            for _ in range(random.randint(0, 30))
        ],
        base_offset=base_offset,
    )
    headers["producer_id"][headers["marker"] == LEADER_CHANGE] = -1  # as the controllers write it
    headers["position"] = 10 + 2 * np.arange(len(headers))
    cut_points = random.choices(range(40), k=random.randint(0, 4))
    corrupt = set(random.choices(range(-1, 40), k=random.choice([0, 1, 3])))
    bounds = sorted({0, *(point % (len(headers) + 1) for point in cut_points)})
    units = []
    for start, stop in zip(bounds, [*bounds[1:], len(headers)], strict=True):
        if start and random.random() < 0.2:
            continue
        base = int(headers["base_offset"][start]) if start < len(headers) else base_offset + 1000
        base = base if start else base_offset
        units.append(Unit(file_of(base), base, NO_HEADERS))  # read although it is empty
        if -1 in corrupt:
            units.append(units[-1]._replace(damage=(DamagedRange(9 + 2 * start, 1, CORRUPT),)))
        for row in range(start, stop):
            if row not in corrupt or random.random() < 0.5:
                units.append(units[-1]._replace(headers=headers[row : row + 1], damage=()))
            if row in corrupt:
                damage = DamagedRange(11 + 2 * row, 1, CORRUPT)
                units.append(units[-1]._replace(headers=NO_HEADERS, damage=(damage,)))
    return units


def file_of(base_offset: int) -> str:
    return f"/kafka/orders-3/{base_offset:020d}.log"


def split(items: Sequence[T], random: Random) -> list[Sequence[T]]:
    """Consecutive parts, some of them empty."""
    points = sorted(random.randint(0, len(items)) for _ in range(random.randint(0, 4)))
    return [items[start:stop] for start, stop in pairwise([0, *points, len(items)])]


def scan_chunks(units: Sequence[Unit], random: Random) -> list[LogChunk]:
    chunks = []
    for file, group in groupby(units, key=lambda unit: unit.file):
        for chunk_units in split(list(group), random):
            headers = np.concatenate([NO_HEADERS, *(unit.headers for unit in chunk_units)])
            damage = tuple(each for unit in chunk_units for each in unit.damage)
            chunks.append(LogChunk(headers=headers, damage=damage, file=file))
    return chunks


@dataclass(slots=True)
class Stored:
    """Results of several runs over one log; some give out their rows at each batch."""

    random: Random
    min_held_ms: int = 0
    with_batches: bool = True
    final: list[Row] = field(default_factory=list)
    provisional: list[Row] = field(default_factory=list)
    state: Row | None = None
    bytes_read: int = 0
    damaged_segments: set[int] = field(default_factory=set)

    def run(
        self,
        units: Sequence[Unit],
        plan: LogPlan = FROM_BEGINNING,
        *,
        before: PartialTransactions = EMPTY,
        end: int | None = None,
        cleaned: int = -1,
        failure: str | None = None,
    ) -> None:
        """Fold what is read onto the stored state."""

        def chunks() -> Iterator[LogChunk]:
            yield from scan_chunks(units, self.random)
            if failure is not None:
                raise StoppedRead(ReadError(None, None, failure))

        state = LogState(where=LOG_ID) if self.state is None else LogState.of(StoredState.of(self.state))
        state.min_held_ms, state.with_batches = self.min_held_ms, self.with_batches
        read = LogRead(chunks=chunks(), before=before, end=end, cleaned=cleaned)
        self.provisional = []
        with mock.patch.object(log_fold, "ROWS_AT_ONCE", self.random.choice([1, 1 << 16])):
            folded = list(fold_log(LOG, read, plan, state))
        assert [table for table, _, _ in folded].index(STATE.name) == len(folded) - 1
        for table, rows, is_final in folded:
            found = [{"table": table, table: row} for row in spark_table(rows).to_pylist()]
            if table == STATE.name:
                self.state = found[0][table]
                self.bytes_read += self.state["bytes_read"]
                self.damaged_segments |= {*json.loads(self.state["damaged_segments"])}
            else:
                (self.final if is_final else self.provisional).extend(found)

    def rows(self, table: str = LOG_TRANSACTIONS.name) -> list[Row]:
        return sorted((row[table] for row in (*self.final, *self.provisional) if row["table"] == table), key=repr)

    def lso_holds(self) -> list[Row]:
        assert self.state is not None
        state = LogState.of(StoredState.of(self.state), min_held_ms=self.min_held_ms)
        rows: list[Row] = state.lso_holds().to_pylist()
        return rows

    @property
    def log_end_offset(self) -> int | None:
        return None if self.state is None else self.state["log_end_offset"]


def sorted_rows(table: pa.Table) -> list[Row]:
    return sorted(spark_table(table).to_pylist(), key=repr)


def assert_single_read(
    stored: Stored,
    units: Sequence[Unit],
    before: PartialTransactions,
    *,
    last_base_offset: int | None = None,
    cleaned: int = -1,
) -> None:
    """Assert that the result is that of a single read by `toolkit.LogDir`."""
    headers = np.concatenate([NO_HEADERS, *(unit.headers for unit in units)])
    chunks = list(at_missing_offsets(scan_chunks(units, stored.random), end=last_base_offset, cleaned=cleaned))
    expected_rows = pa.concat_tables(log_transaction_tables(chunks, LOG_ID, before=before))
    assert stored.rows() == sorted_rows(expected_rows)
    ends = [last_base_offset, *(unit.end for unit in units)]
    end = max((each for each in ends if each is not None), default=None)
    timeline = pa.concat_tables(lso_timeline_tables(chunks, LOG_ID, before=before, log_end_offset=end))
    if end is not None:
        assert stored.rows(LSO_TIMELINE.name) == sorted_rows(timeline)
    if stored.state is None:
        assert not units
        return
    fold = LogFold(partial=before)
    for chunk in chunks:
        fold.add(chunk)
    ranges = [log_transaction_table(each.log_transactions, LOG_ID, files=fold.file_names) for each in fold.finish()]
    assert stored.lso_holds() == expected_holds(headers, ranges, stored.min_held_ms, end)
    assert stored.bytes_read == headers["size"].sum()
    assert (stored.state["log_end_offset"], stored.state["broker_id"]) == (end, 1)
    assert stored.state["leader_epoch"] == (0 if len(headers) else -1)
    assert stored.state["is_damaged"] == any(each.error != TORN for each in fold.damage)
    assert stored.state["is_held"] == bool(stored.lso_holds())
    assert stored.state["log"] == LOG
    assert not stored.state["is_unread"], "each file was opened"
    rows_of_batches = list(batch_tables(scan_chunks(units, stored.random), LOG_ID))
    expected_batches = sorted_rows(pa.concat_tables([BATCHES.arrow([]), *rows_of_batches]))
    assert stored.rows(BATCHES.name) == (expected_batches if stored.with_batches else [])
    missing = [each.missing for each in chunks if each.missing and each.missing.error is not None]
    lost = {~each.found for each in missing if each.expected < each.found}
    begins = set() if before.settled else {~units[0].base_offset}
    assert stored.damaged_segments - begins == (damaged_segments(fold.damage) | lost) - begins


BEFORE = [EMPTY, begin(), begin(opened_before={1000: (BASE - 9, 1), 9000: (3, 0)}), begin(opened_before={2000: (0, 0)})]


@fuzzed(40)
@given(st.randoms(use_true_random=True))
@example(Random(6363))  # a task ends in a segment of which it has damage and no batch, after offsets that were cleaned
def test_any_runs_match_a_single_read(random: Random) -> None:
    units, before, cleaned = random_units(random), random.choice(BEFORE), random.choice([-1, BASE + 20])
    stored, start = Stored(random, min_held_ms=random.choice([0, 3]), with_batches=random.random() < 0.7), 0
    for _ in range(random.randint(0, 3)):
        start = read_partially(stored, units, start, before, random, cleaned=cleaned)
    if random.random() < 0.3:
        units.append(units[-1]._replace(headers=NO_HEADERS, damage=(DamagedRange(999, 1, TORN),)))
    last_base_offset = units[-1].base_offset
    read_on(stored, units[start:], before, end=last_base_offset, cleaned=cleaned)
    assert_single_read(stored, units, before, last_base_offset=last_base_offset, cleaned=cleaned)


def read_partially(
    stored: Stored, units: Sequence[Unit], start: int, before: PartialTransactions, random: Random, *, cleaned: int
) -> int:
    """Run without reading to the end; return where the next run starts."""
    end = random.randint(min(start + 1, len(units)), len(units))
    last, next_unit = units[end - 1], units[min(end, len(units) - 1)]
    is_live = random.random() < 0.2 and len({unit.file for unit in units}) == 1
    if is_live:  # the batches after some offset cannot be read in this run
        end = random.randint(start, end)
        read_on(stored, units[start:end], before, failure="NOT_LEADER: it moved.", cleaned=cleaned)
    elif len(next_unit.headers) and random.random() < 0.3:  # the next batch is half written
        torn_unit = next_unit._replace(headers=NO_HEADERS, damage=(DamagedRange(999, 1, TORN),))
        read_on(stored, [*units[start:end], torn_unit], before, end=next_unit.base_offset, cleaned=cleaned)
    else:
        read_on(stored, units[start:end], before, end=last.base_offset, cleaned=cleaned)
    known_end = stored.log_end_offset
    if known_end is None:
        return 0
    # After the last batch; in files, at the segment that contains the offset; never before the start of this run.
    read_units = list(enumerate(units[:end]))
    segments = [
        number for number, unit in read_units if unit.begins_file and unit.base_offset <= known_end and not is_live
    ]
    return max([start, *segments, *(number + 1 for number, unit in read_units if len(unit.headers))])


def read_on(stored: Stored, units: Sequence[Unit], before: PartialTransactions, **options: Any) -> None:
    """Read from the end of the last run on."""
    start = stored.log_end_offset
    if stored.state is None:
        plan = FROM_BEGINNING
    elif start is None:
        plan = LogPlan(mode=TRUNCATED, offset=BASE)
    else:
        plan, before = LogPlan(start=start, mode=CONTINUED), EMPTY
    stored.run(units, plan, before=before, **options)
    stop_errors = [row for row in stored.rows() if "it moved" in (row["error"] or "")]
    assert len(stop_errors) == ("failure" in options)


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
    rows = [(row, each.is_final) for each in of_log for row in each.rows.to_pylist()]
    (damage,) = [is_final for row, is_final in rows if row["producer_id"] is None]
    assert damage, "the next run begins after it"
    outcomes = {row["first_offset"]: row["outcome"] for row, _ in rows if row["producer_id"] is not None}
    assert outcomes == {0: None, 2: "commit"}
    assert StoredState.of_table(folded[-1].rows)[0].log_end_offset == 6


@fuzzed(15)
@given(st.randoms(use_true_random=True))
def test_transactions_open_before_lost_offsets_have_no_outcome(random: Random) -> None:
    first, second = random_units(random, 0), random_units(random, 5000)
    before = random.choice([EMPTY, begin(), begin(opened_before={1000: (4990, 1)})])
    lost = "OFFSETS_LOST: Offsets 9 to 4,999 were deleted."
    stored, first_only, second_only = (Stored(random) for _ in range(3))
    for each in (stored, first_only):
        each.run(first, before=begin(), end=0)
    stored.run(second, LogPlan(mode=LOST, offset=5000, error=lost), before=before, end=5000)
    second_only.run(second, before=before, end=5000)
    still_open = [row for row in first_only.rows() if row["outcome"] == "open"]
    first_only.provisional = []
    unknown_end = {"outcome": None, "error": END_NOT_READ}
    lost_row = {**dict.fromkeys(LOG_TRANSACTIONS.names), **LOG_ID.columns, "error": lost}
    expected = [*first_only.rows(), *({**row, **unknown_end} for row in still_open), lost_row, *second_only.rows()]
    assert stored.rows() == sorted(expected, key=repr)
    lost_at = {"offset": first_only.log_end_offset, "error": lost}
    lost_step = {**dict.fromkeys(LSO_TIMELINE.names), **LOG_ID.columns, **lost_at}
    expected_steps = [*first_only.rows(LSO_TIMELINE.name), lost_step, *second_only.rows(LSO_TIMELINE.name)]
    assert stored.rows(LSO_TIMELINE.name) == sorted(expected_steps, key=repr)
    expected_lso_holds = [
        row for row in first_only.lso_holds() if row["marker_offset"] is not None
    ] + second_only.lso_holds()
    assert [row["first_offset"] for row in stored.lso_holds()] == [row["first_offset"] for row in expected_lso_holds]


@fuzzed(15)
@given(st.randoms(use_true_random=True))
def test_a_truncated_log_matches_a_new_read(random: Random) -> None:
    first, second, before = random_units(random), random_units(random), random.choice(BEFORE)
    stored = Stored(random)
    stored.run(first, before=before, end=BASE)
    of_steps = [row for row in stored.final if row["table"] == LSO_TIMELINE.name]
    stored.final = [  # as the pipeline does
        row for row in of_steps if row["lso_timeline"]["offset"] <= BASE and row["lso_timeline"]["error"] is None
    ]
    stored.bytes_read, stored.damaged_segments = 0, set()
    stored.run(second, LogPlan(mode=TRUNCATED, offset=BASE), before=before, end=BASE)
    assert_single_read(stored, second, before, last_base_offset=BASE)


def test_an_unopened_file_is_marked_in_the_state() -> None:
    unreadable = Unit(file_of(0), 0, NO_HEADERS, (DamagedRange(0, 0, "UNREADABLE: no permission."),))
    stored = Stored(Random(1))
    stored.run([unreadable], before=begin(), end=0)
    assert stored.state is not None
    assert (stored.state["is_unread"], stored.state["is_damaged"]) == (True, True)
    stored.run([], LogPlan(mode=TRUNCATED, offset=0))
    assert (stored.state["is_unread"], stored.state["is_damaged"], stored.rows()) == (False, False, [])


def test_a_partition_whose_first_read_failed_is_read_by_the_next_run() -> None:
    """Every later run failed: "The transactions that begin the log cannot follow others"."""
    units = random_units(Random(3), 0)
    stored, whole = Stored(Random(1)), Stored(Random(1))
    stored.run([], LogPlan(start=0, stop=90), before=begin(), failure="NOT_LEADER: it moved.")
    stored.run(units, LogPlan(start=0, stop=90, mode=CONTINUED), before=begin())
    whole.run(units, LogPlan(start=0, stop=90), before=begin())
    assert stored.rows() == whole.rows()
    assert any(row["outcome"] for row in stored.rows())


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


def test_growing_real_logs_are_read_incrementally(history: Path, tmp_path: Path) -> None:
    """Each is first truncated at a random position, usually within a batch."""
    random, logs = Random(seed()), tmp_path / "logs"
    shutil.copytree(history, logs)
    for partition in (path for path in logs.iterdir() if path.is_dir()):
        segments = sorted(partition.glob("*.log"))
        last = random.choice(segments)
        os.truncate(last, random.randint(0, last.stat().st_size))
        for segment in segments[segments.index(last) + 1 :]:
            segment.unlink()
    tables = Tables(logs)
    for _ in range(2):
        tables.run()
        assert_like_log_dir(tables)
        shutil.rmtree(logs)
        shutil.copytree(history, logs)


@pytest.mark.full
def test_a_partition_larger_than_a_workers_memory_is_folded() -> None:
    command = [sys.executable, "-m", "tests.spark.large_log", "600"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=1100)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-2:] == ["in order: all 104900", "in one table: out of memory"], process.stdout


def test_a_live_partition_without_leader_has_a_row_until_it_can_be_read() -> None:
    """It had none, though its files have one: every transaction that was open there seemed to be known."""
    listing = LogListing(log="a/leader/id/orders-0", topic="orders", partition=0, error="LEADER_NOT_AVAILABLE: none")
    options = WorkOptions(min_held_ms=0, config=ClientConfig({"bootstrap.servers": "127.0.0.1:1"}))
    (plan,) = plan_logs({listing.log: listing}, {}).values()
    *rows, state = fold_work(LogWork(log=listing.log, listing=listing, plan=plan, state=None), options)
    assert [each.table for each in rows] == [LOG_TRANSACTIONS.name, LSO_TIMELINE.name]
    assert [(each.is_final, each.rows["error"].to_pylist()) for each in rows] == [(False, [listing.error])] * 2
    (stored,) = StoredState.of_table(state.rows)
    back = replace(listing, begin=0, high_watermark=0, error=None)
    assert plan_logs({listing.log: replace(back, high_watermark=4)}, {listing.log: stored}) != {}
    read_before = replace(stored, log_end_offset=0)
    assert plan_logs({listing.log: back}, {listing.log: read_before}) == {
        listing.log: LogPlan(start=0, stop=0, mode=CONTINUED)
    }, "the row goes, though nothing is new"
