"""From sections of logs to transactions, LSO and holds: the result of a single read, for any tasks and runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.random_logs import KINDS, LEADER_CHANGE, Step, batches
from tests.analysis.test_resume_state import expected_holds
from tests.spark.frames import damaged
from tests.spark.read_log import fold_rows, planned, read, rows, same
from tests.tiers import fuzzed, seed
from toolkit import LogDir
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    PartialTransactions,
    begin,
    finish,
    log_transaction_table,
    merge,
    partial_transactions,
)
from toolkit.analysis.log.lso_timeline import lso_steps, lso_table
from toolkit.analysis.log.resume_state import LogState
from toolkit.formats.log.batches import DELETE_HORIZON, LOG_APPEND_TIME
from toolkit.formats.log.headers import HEADER, DamagedRange, Headers, ScanResult
from toolkit.schema import LOG_TRANSACTIONS, LSO_TIMELINE, Row
from toolkit.sources.log_tables import LogId, ScanChunk
from toolkit.spark import register
from toolkit.spark.datasources.arrow_types import spark_table
from toolkit.spark.pipeline.ingest_plan import plan_logs
from toolkit.spark.pipeline.staging_table import STATE
from toolkit.spark.transforms.log_fold import fold
from toolkit.spark.transforms.partial_transactions import (
    LOST,
    PIECES_SCHEMA,
    REMEMBERED,
    STOP,
    TRUNCATED,
    piece_batches,
    piece_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

WHERE = LogId(topic="orders", partition=3, broker_id=1)
LOG = "1:/kafka/orders-3/"
LOG_COLUMNS = {**WHERE.columns, "log": LOG}
BASE = 50
NO_HEADERS = np.zeros(0, HEADER)
CORRUPT, TORN = "CORRUPT_BATCH: no.", "TORN_TAIL: half."


class Unit(NamedTuple):
    """A batch, damaged bytes, or neither: the beginning of a file."""

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


def log_of(random: Random, base_offset: int = BASE) -> list[Unit]:
    """Batches of some producers in one segment or several, with damage between some of them."""
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
    points = random.choices(range(40), k=random.randint(0, 4))
    corrupt = set(random.choices(range(-1, 40), k=random.choice([0, 1, 3])))
    bounds = sorted({0, *(point % (len(headers) + 1) for point in points)})
    found = []
    for start, stop in zip(bounds, [*bounds[1:], len(headers)], strict=True):
        base = int(headers["base_offset"][start]) if start < len(headers) else base_offset + 1000
        base = base if start else base_offset
        found.append(Unit(file_of(base), base, NO_HEADERS))  # read though it is empty
        if -1 in corrupt:
            found.append(found[-1]._replace(damage=(DamagedRange(9 + 2 * start, 1, CORRUPT),)))
        for row in range(start, stop):
            found.append(found[-1]._replace(headers=headers[row : row + 1], damage=()))
            if row in corrupt:
                damage = DamagedRange(11 + 2 * row, 1, CORRUPT)
                found.append(found[-1]._replace(headers=NO_HEADERS, damage=(damage,)))
    return found


def file_of(base_offset: int) -> str:
    return f"/kafka/orders-3/{base_offset:020d}.log"


def split(items: Sequence[T], random: Random) -> list[Sequence[T]]:
    """Consecutive parts, some of them empty."""
    points = sorted(random.randint(0, len(items)) for _ in range(random.randint(0, 4)))
    return [items[start:stop] for start, stop in pairwise([0, *points, len(items)])]


def parts_of(units: Sequence[Unit], random: Random) -> list[ScanChunk]:
    found = []
    for file, group in groupby(units, key=lambda unit: unit.file):
        for some in split(list(group), random):
            headers = np.concatenate([NO_HEADERS, *(unit.headers for unit in some)])
            damage = tuple(each for unit in some for each in unit.damage)
            found.append(ScanChunk(ScanResult(headers=headers, damage=damage, end=0), file))
    return found


def section_rows(
    units: Sequence[Unit],
    random: Random,
    *,
    section: int = 0,
    before: PartialTransactions = EMPTY,
    reach: int | None = None,
) -> list[pa.RecordBatch]:
    """The rows of a task."""
    parts = parts_of(units, random)
    return [*piece_batches(parts, WHERE, log=LOG, section=section, before=before, log_end_offset=reach)]


@dataclass(slots=True)
class Stored:
    """What runs have made of one log."""

    random: Random
    min_held_ms: int = 0
    kept: list[Row] = field(default_factory=list)
    current: list[Row] = field(default_factory=list)
    state: Row | None = None
    bytes_read: int = 0

    def run(self, rows: Iterable[pa.RecordBatch], *, plan: str = REMEMBERED, **columns: object) -> None:
        """Fold sections after the stored state."""
        rows = list(rows)
        if self.state is not None:
            remembered = {**LOG_COLUMNS, "section": -1, "kind": plan, "packed": self.state["remembered"], **columns}
            rows.append(piece_rows(remembered, rows=1))
        table = pa.Table.from_batches(rows, PIECES_SCHEMA)
        found = fold_rows(table, self.random, min_held_ms=self.min_held_ms)
        if rows:
            (row,) = (row for row in found if row["table"] == STATE.name)
            self.state = row["state"]
            self.bytes_read += row["state"]["bytes_read"]
        else:
            assert not found
        self.kept += [row for row in found if row["is_final"]]
        self.current = [row for row in found if not row["is_final"]]

    def rows(self, table: str = LOG_TRANSACTIONS.name) -> list[Row]:
        return sorted((row[table] for row in (*self.kept, *self.current) if row["table"] == table), key=repr)

    def lso_holds(self) -> list[Row]:
        assert self.state is not None
        log_id: dict[str, object] = WHERE.columns
        state = LogState.from_bytes(self.state["remembered"], **log_id, min_held_ms=self.min_held_ms)  # type: ignore[arg-type]
        rows: list[Row] = state.lso_holds().to_pylist()
        return rows

    @property
    def log_end_offset(self) -> int | None:
        return None if self.state is None else self.state["log_end_offset"]


def listed(table: pa.Table) -> list[Row]:
    return sorted(spark_table(table).to_pylist(), key=repr)


def assert_single_read(
    found: Stored, units: Sequence[Unit], before: PartialTransactions, *, reach: int | None = None
) -> None:
    """Assert that the result is that of a single read."""
    headers = np.concatenate([NO_HEADERS, *(unit.headers for unit in units)])
    files: list[str | None] = list(dict.fromkeys(unit.file for unit in units)) or [None]
    whole = finish(
        merge(before, *(partial_transactions(unit.headers, file_id=files.index(unit.file)) for unit in units))
    )
    log_transactions = log_transaction_table(whole, **WHERE.columns, files=files)
    damage = [(unit.file, each) for unit in units for each in unit.damage]
    errors = [{**WHERE.columns, "file": file, "position": at.position, "error": at.reason} for file, at in damage]
    assert found.rows() == listed(pa.concat_tables([log_transactions, LOG_TRANSACTIONS.arrow(errors)]))
    ends = [reach, *(unit.end for unit in units)]
    end = max((each for each in ends if each is not None), default=None)
    last = int(headers["max_timestamp"][-1]) if len(headers) else -1
    steps = lso_steps(whole, log_end_offset=end, end_time=last)
    assert found.rows(LSO_TIMELINE.name) == listed(lso_table(steps, **WHERE.columns))
    if found.state is None:
        assert not units
        return
    assert found.lso_holds() == expected_holds(headers, log_transactions, found.min_held_ms, end)
    assert found.bytes_read == headers["size"].sum()
    assert (found.state["log_end_offset"], found.state["broker_id"]) == (end, 1)
    assert found.state["leader_epoch"] == (0 if len(headers) else -1)
    assert found.state["is_damaged"] == any(at.reason == CORRUPT for _, at in damage)
    assert found.state["is_held"] == bool(found.lso_holds())


BEFORE = [
    EMPTY,
    begin(),
    begin(opened_before={1000: (BASE - 9, 1), 9000: (3, 0)}),
    begin(opened_before={2000: (0, 0)}),
]


@fuzzed(40)
@given(st.randoms(use_true_random=True))
def test_any_tasks_in_any_runs_match_a_single_read(random: Random) -> None:
    units, before = log_of(random), random.choice(BEFORE)
    stored, start = Stored(random, min_held_ms=random.choice([0, 3])), 0
    for _ in range(random.randint(0, 3)):
        start = read_on(stored, units, start, before, random)
    if random.random() < 0.3:
        units.append(units[-1]._replace(headers=NO_HEADERS, damage=(DamagedRange(999, 1, TORN),)))
    reach = units[-1].base_offset
    read_tasks(stored, split(units[start:], random), before, random, reach=reach)
    assert_single_read(stored, units, before, reach=reach)


def read_on(stored: Stored, units: Sequence[Unit], start: int, before: PartialTransactions, random: Random) -> int:
    """A run that does not read to the end; where the next one starts."""
    end = random.randint(min(start + 1, len(units)), len(units))
    tasks = split(units[start:end], random)
    last, coming = units[end - 1], units[min(end, len(units) - 1)]
    is_live = random.random() < 0.2
    if is_live:  # the batches after some task cannot be read now
        stop = random.randrange(len(tasks))
        end = start + sum(map(len, tasks[:stop]))
        read_tasks(stored, tasks, before, random, stop=stop)
    elif len(coming.headers) and random.random() < 0.3:  # half of the next batch is there
        torn = coming._replace(headers=NO_HEADERS, damage=(DamagedRange(999, 1, TORN),))
        read_tasks(stored, [*tasks, [torn]], before, random, reach=coming.base_offset)
    else:
        read_tasks(stored, tasks, before, random, reach=last.base_offset)
    known = stored.log_end_offset
    if known is None:
        return 0
    # From after the last batch; in files from the segment that contains the offset. Never from before the last start.
    read_ = list(enumerate(units[:end]))
    segments = [number for number, unit in read_ if unit.begins_file and unit.base_offset <= known and not is_live]
    return max([start, *segments, *(number + 1 for number, unit in read_ if len(unit.headers))])


def read_tasks(
    stored: Stored,
    tasks: Sequence[Sequence[Unit]],
    before: PartialTransactions,
    random: Random,
    *,
    reach: int | None = None,
    stop: int | None = None,
) -> None:
    """A run of some tasks."""
    is_new = stored.log_end_offset is None
    known = [unit for units in tasks for unit in units]
    nothing = [unit._replace(headers=NO_HEADERS, damage=()) for unit in known[:1]]
    rows = []
    for number, units in enumerate(tasks):
        is_last = number == len(tasks) - 1
        rows += section_rows(
            units or nothing,
            random,
            section=number,
            before=before if is_new and number == 0 else EMPTY,
            reach=reach if is_last else None,
        )
        if number == stop:
            failure = {**LOG_COLUMNS, "section": number, "kind": STOP, "error": "NOT_LEADER: it moved."}
            rows.append(piece_rows(failure, rows=1))
    columns = {"plan": TRUNCATED, "log_end_offset": BASE} if is_new else {}
    stored.run(rows, **columns)  # type: ignore[arg-type]
    reported = [row for row in stored.rows() if "it moved" in (row["error"] or "")]
    assert len(reported) == (stop is not None)


@fuzzed(15)
@given(st.randoms(use_true_random=True))
def test_transactions_open_at_lost_offsets_are_reported_unchanged(random: Random) -> None:
    first, second = log_of(random, 0), log_of(random, 5000)
    before = random.choice([EMPTY, begin(), begin(opened_before={1000: (4990, 1)})])
    lost = "OFFSETS_LOST: Offsets 9 to 4,999 were deleted."
    stored, ended, other = (Stored(random) for _ in range(3))
    for each in (stored, ended):
        each.run(section_rows(first, random, before=begin(), reach=0))
    stored.run(section_rows(second, random, before=before, reach=5000), plan=LOST, error=lost)
    other.run(section_rows(second, random, before=before, reach=5000))
    still_open = [row for row in ended.rows() if row["outcome"] == "open"]
    ended.current = []
    unread = {"outcome": None, "error": "OFFSETS_LOST: Its end was deleted from the log before it was read."}
    lost_row = {**dict.fromkeys(LOG_TRANSACTIONS.names), **WHERE.columns, "error": lost}
    reported = [*ended.rows(), *({**row, **unread} for row in still_open), lost_row, *other.rows()]
    assert stored.rows() == sorted(reported, key=repr)
    steps = [*ended.rows(LSO_TIMELINE.name), *other.rows(LSO_TIMELINE.name)]
    assert stored.rows(LSO_TIMELINE.name) == sorted(steps, key=repr)
    held = [row for row in ended.lso_holds() if row["marker_offset"] is not None] + other.lso_holds()
    assert [row["first_offset"] for row in stored.lso_holds()] == [row["first_offset"] for row in held]


@fuzzed(15)
@given(st.randoms(use_true_random=True))
def test_a_truncated_log_matches_its_second_read(random: Random) -> None:
    first, second, before = log_of(random), log_of(random), random.choice(BEFORE)
    stored = Stored(random)
    stored.run(section_rows(first, random, before=before, reach=BASE))
    is_before = [row["table"] == LSO_TIMELINE.name and row["lso_timeline"]["offset"] <= BASE for row in stored.kept]
    stored.kept = [row for row, is_kept in zip(stored.kept, is_before, strict=True) if is_kept]  # as the pipeline does
    stored.bytes_read = 0
    stored.run(section_rows(second, random, before=before, reach=BASE), plan=TRUNCATED, log_end_offset=BASE)
    assert_single_read(stored, second, before, reach=BASE)


def test_responses_of_several_brokers_are_one_log() -> None:
    headers = batches([Step("data", 1), Step("data", 2), Step("commit", 1), Step("abort", 2)])
    rows: list[pa.RecordBatch] = []
    for broker_id, sent in ((1, headers[:2]), (2, headers[2:])):
        where = LogId(topic="orders", partition=3, broker_id=broker_id)
        part = ScanChunk(ScanResult(headers=sent, end=0))
        rows += piece_batches([part], where, log=LOG, section=broker_id, before=begin() if broker_id == 1 else EMPTY)
    failure = {"topic": "orders", "partition": 3, "log": LOG, "section": 3, "kind": STOP, "error": "DOWN: it is."}
    stored = Stored(Random(1))
    stored.run([piece_rows(failure, rows=1), *rows])
    found = [(row["first_offset"], row["marker_offset"], row["error"]) for row in stored.rows()]
    assert sorted(found, key=repr) == [(0, 2, None), (1, 3, None), (None, None, "DOWN: it is.")]
    assert stored.log_end_offset == 4


def test_an_unopened_file_is_marked_in_the_state() -> None:
    unread = Unit(file_of(0), 0, NO_HEADERS, (DamagedRange(0, 0, "UNREADABLE: no permission."),))
    stored = Stored(Random(1))
    stored.run(section_rows([unread], Random(1), before=begin(), reach=0))
    assert stored.state is not None
    assert (stored.state["is_unread"], stored.state["is_damaged"]) == (True, True)
    stored.run([], plan=TRUNCATED, log_end_offset=0)
    assert (stored.state["is_unread"], stored.state["is_damaged"], stored.rows()) == (False, False, [])


# What real clients wrote.


@pytest.mark.lab
def test_spark_folds_real_logs(spark: SparkSession, history: Path) -> None:
    register(spark)
    reader = spark.read.format("kafka_log_dir").option("table", "pieces").option("maxPartitionBytes", "64k")
    staged = fold(reader.load(str(history)), min_held_ms=0).toArrow()
    files = LogDir(history)
    for table, frame in ((LOG_TRANSACTIONS, files.log_transactions()), (LSO_TIMELINE, files.lso_timeline())):
        found = staged.filter(pa.compute.equal(staged["table"], table.name))[table.name]
        same(found.to_pylist(), frame, table.name)


@pytest.fixture(scope="module")
def replicas(history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A damaged copy, one of another broker whose logs have lost their beginnings, and one without snapshots, too."""
    folder = tmp_path_factory.mktemp("replicas")
    damaged(history, folder / "1")
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


@pytest.mark.lab
def test_damaged_logs_and_those_without_beginning_are_folded(replicas: Path) -> None:
    files, pieces = LogDir(replicas), read(*planned(replicas, table="pieces", maxPartitionBytes=20_000))
    log_transactions = files.log_transactions()
    found = fold_rows(pieces, Random(1))
    for table, frame in ((LOG_TRANSACTIONS, log_transactions), (LSO_TIMELINE, files.lso_timeline())):
        same([row[table.name] for row in found if row["table"] == table.name], frame, table.name)
    assert "CORRUPT_BATCH" in str(log_transactions["error"].unique())
    assert log_transactions["truncated"].isna().any()


@pytest.mark.lab
def test_growing_real_logs_are_read_incrementally(history: Path, tmp_path: Path) -> None:
    """Each was cut anywhere, most of them within a batch."""
    random, logs = Random(seed()), tmp_path / "logs"
    shutil.copytree(history, logs)
    for partition in (path for path in logs.iterdir() if path.is_dir()):
        segments = sorted(partition.glob("*.log"))
        last = random.choice(segments)
        os.truncate(last, random.randint(0, last.stat().st_size))
        for segment in segments[segments.index(last) + 1 :]:
            segment.unlink()
    kept: list[Row] = []
    states: dict[str, Row] = {}
    current: list[Row] = []
    for _ in range(2):
        listed = rows(logs, table="listing")
        plans = plan_logs(listed, states)
        starts = json.dumps({log: plan.start for log, plan in plans.items()})
        pieces = [read(*planned(logs, table="pieces", starts=starts, maxPartitionBytes=20_000))]
        for log in set(plans) & set(states):
            assert plans[log].remembered == REMEMBERED
            log_columns = {name: states[log][name] for name in ("topic", "partition", "broker_id", "log")}
            remembered = {**log_columns, "section": -1, "kind": REMEMBERED, "packed": states[log]["remembered"]}
            pieces.append(pa.Table.from_batches([piece_rows(remembered, rows=1)]))
        found = fold_rows(pa.concat_tables(pieces), random)
        kept += [row for row in found if row["is_final"]]
        current = [row for row in current if row["log"] not in plans] + [row for row in found if not row["is_final"]]
        listings = {row["log"]: {"listing": row["listing"], "topic_id": row["topic_id"]} for row in listed}
        states |= {row["log"]: row["state"] | listings[row["log"]] for row in found if row["table"] == STATE.name}
        assert set(states) == set(listings)
        files = LogDir(logs)
        for table, frame in ((LOG_TRANSACTIONS, files.log_transactions()), (LSO_TIMELINE, files.lso_timeline())):
            same([row[table.name] for row in (*kept, *current) if row["table"] == table.name], frame, table.name)
        shutil.rmtree(logs)
        shutil.copytree(history, logs)


@pytest.mark.full
def test_a_partition_larger_than_a_workers_memory_is_folded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.large_log", str(tmp_path), "600"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["in pieces: all 104900", "in one group: out of memory"], done.stdout
