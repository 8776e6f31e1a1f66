"""Transactions from batches: the rows of pandas, whatever order and parts the batches come in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolkit.spark.merging import merged
from toolkit.spark.spans import merged_spans, spans

from tests.analysis.histories import LEADER_CHANGE, Step, batches, cuts, step_lists
from tests.spark.frames import arrow, assert_rows, damaged, listed, shuffled
from toolkit import LogDir
from toolkit.analysis.spans import EMPTY, Piece, begin, finish, merge, piece, span_table
from toolkit.formats.header_table import header_table
from toolkit.formats.headers import Headers, Scanned
from toolkit.schema import BATCHES, SNAPSHOTS, SPANS
from toolkit.sources.log_tables import Part, Where
from toolkit.spark import register
from toolkit.spark import spans as of_spark
from toolkit.spark.pieces import BEGIN, GROUP, IN_ORDER, PIECES_SCHEMA, piece_batches
from toolkit.spark.types import spark_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHERE = Where(topic="orders", partition=3, broker_id=1)
BASE = 50
Opened = dict[int, tuple[int, int]]
unhurried = settings(deadline=None)


def segments(headers: Headers, points: Iterable[int]) -> list[Part]:
    """The batches in files, cut at some of them."""
    found = []
    for start, stop in pairwise(sorted({0, len(headers), *(point % (len(headers) + 1) for point in points)})):
        part = headers[start:stop].copy()
        part["position"] -= part["position"][0]
        file = f"/kafka/orders-3/{int(part['base_offset'][0]):020d}.log"
        found.append(Part(Scanned(headers=part, end=0), file))
    return found


def as_one(parts: Sequence[Part], before: Piece) -> pa.Table:
    """The transactions of a log that is read from one end to the other."""
    pieces = [piece(part.scanned.headers, file_id=number) for number, part in enumerate(parts)]
    files = [part.file for part in parts] or [None]
    return span_table(finish(merge(before, *pieces)), **WHERE.columns, files=files)


def sorted_batches(rows: Iterable[pa.RecordBatch], random: Random) -> list[pa.RecordBatch]:
    """As one task of Spark gets them: sorted, and cut anywhere; in no order within what is sorted by."""
    table = pa.Table.from_batches(list(rows), PIECES_SCHEMA)
    table = table.take(pa.array(random.sample(range(len(table)), len(table)), pa.int64()))
    order = [(name, "ascending") for name in (*GROUP, *IN_ORDER)]
    found: list[pa.RecordBatch] = table.sort_by(order).to_batches(max_chunksize=random.randint(1, 20))
    return found


def in_pieces(rows: pa.Table, snapshots: pa.Table, random: Random, *, batches_per_task: int) -> pa.Table:
    """What the tasks of Spark make of batches, without it."""
    rows = spark_table(rows.take(pa.array(random.sample(range(len(rows)), len(rows)), pa.int64())))
    split = rows.to_batches(max_chunksize=random.randint(1, 20))
    packed = of_spark._packed(split, batches_per_task=batches_per_task)
    folded = [*of_spark._folded(sorted_batches(packed, random)), *of_spark._opened(snapshots.to_batches())]
    found = list(merged(sorted_batches(folded, random)))
    return pa.Table.from_batches(found, spark_table(SPANS.arrow_schema.empty_table()).schema)


def batch_rows(parts: Sequence[Part]) -> pa.Table:
    tables = [header_table(part.scanned.headers, **WHERE.columns, file=part.file) for part in parts]
    return pa.concat_tables([BATCHES.arrow_schema.empty_table(), *tables])


def snapshot_rows(opened: Opened | None, offset: int) -> pa.Table:
    """A snapshot that knows of these, another producer, and an older one that does not count."""
    if opened is None:
        return SNAPSHOTS.arrow([])
    file = "/kafka/orders-3/1.snapshot"
    place = {**WHERE.columns, "file": file, "snapshot_offset": offset, "producer_epoch": 0}
    known = [
        {**place, "producer_id": producer, "producer_epoch": epoch, "current_txn_start_offset": start}
        for producer, (start, epoch) in opened.items()
    ]
    older = {**place, "snapshot_offset": offset - 1, "producer_id": 3000, "current_txn_start_offset": 1}
    broken = {**place, "error": "CORRUPT_SNAPSHOT: no."}
    return SNAPSHOTS.arrow([*known, {**place, "producer_id": 4}, older, broken])


@st.composite
def logs(draw: st.DrawFn, base_offset: int = 0) -> list[Part]:
    headers = batches(draw(step_lists), base_offset=base_offset)
    headers["producer_id"][headers["marker"] == LEADER_CHANGE] = -1  # as the controllers write it
    return segments(headers, draw(st.lists(st.integers(0, 40), max_size=4)))


openings = st.none() | st.dictionaries(
    st.sampled_from([1000, 2000, 9000]), st.tuples(st.integers(0, BASE - 1), st.integers(0, 2))
)
per_task = st.sampled_from([1, 7, 1 << 18])


@unhurried
@given(logs(), per_task, st.randoms())
def test_batches_in_any_order_give_the_transactions_of_their_log(
    parts: list[Part], batches_per_task: int, random: Random
) -> None:
    found = in_pieces(batch_rows(parts), snapshot_rows(None, 0), random, batches_per_task=batches_per_task)
    assert listed(found, SPANS) == listed(as_one(parts, begin()), SPANS)


@unhurried
@given(logs(BASE), openings, per_task, st.randoms())
def test_a_snapshot_tells_what_was_open_where_the_log_begins(
    parts: list[Part], opened: Opened | None, batches_per_task: int, random: Random
) -> None:
    snapshots = snapshot_rows(opened, BASE)
    found = in_pieces(batch_rows(parts), snapshots, random, batches_per_task=batches_per_task)
    before = EMPTY if opened is None or not parts else begin(opened_before=opened)
    assert listed(found, SPANS) == listed(as_one(parts, before), SPANS)


@unhurried
@given(logs(), st.integers(1, 20), st.randoms())
def test_of_a_log_whose_first_batches_were_not_read_nothing_is_known_before_it(
    parts: list[Part], dropped: int, random: Random
) -> None:
    rows = batch_rows(parts)
    kept = rows.slice(dropped) if len(rows) else rows
    left = [Part(Scanned(headers=part.scanned.headers.copy(), end=0), part.file) for part in parts]
    for part in left:
        gone = min(dropped, len(part.scanned.headers))
        object.__setattr__(part.scanned, "headers", part.scanned.headers[gone:])
        dropped -= gone
    left = [part for part in left if len(part.scanned.headers)]
    found = in_pieces(kept, snapshot_rows({1000: (0, 0)}, -7), random, batches_per_task=7)
    assert listed(found, SPANS) == listed(as_one(left, EMPTY), SPANS)


@unhurried
@given(logs(BASE), openings, st.data(), st.randoms())
def test_tasks_that_read_any_parts_of_a_log_give_its_transactions(
    parts: list[Part], opened: Opened | None, data: st.DataObject, random: Random
) -> None:
    before = EMPTY if opened is None else begin(opened_before=opened)
    shared = [
        [Part(Scanned(headers=headers, end=0), part.file) for headers in data.draw(cuts(part.scanned.headers))]
        for part in parts
    ]
    tasks = [
        piece_batches(task, WHERE, log="1:/kafka/orders-3/", before=EMPTY if number else before)
        for number, task in enumerate(shared or [[]])
    ]
    rows = [rows for task in tasks for rows in task]
    assert any(row["kind"] == BEGIN for each in rows for row in each.to_pylist()) == before.settled
    found = pa.Table.from_batches(
        list(merged(sorted_batches(rows, random))), spark_table(SPANS.arrow_schema.empty_table()).schema
    )
    assert listed(found, SPANS) == listed(as_one(parts, before), SPANS)


def test_what_brokers_sent_is_one_log_whoever_sent_it_and_counts_once() -> None:
    steps = [Step("data", 1), Step("data", 2), Step("commit", 1), Step("data", 1), Step("abort", 2), Step("commit", 1)]
    headers = batches(steps)
    headers["position"] = -1
    rows = pa.concat_tables(
        [
            header_table(headers[:4], topic="orders", partition=3, broker_id=1),
            header_table(headers[2:], topic="orders", partition=3, broker_id=2),
            BATCHES.arrow([{"topic": "orders", "partition": 3, "broker_id": 2, "error": "NOT_LEADER: it moved."}]),
        ]
    )
    for batches_per_task in (2, 100):
        found = in_pieces(rows, snapshot_rows(None, 0), Random(1), batches_per_task=batches_per_task).to_pylist()
        told = [
            {name: row[name] for name in ("first_offset", "marker_offset", "batches", "truncated")} for row in found
        ]
        assert sorted(tuple(row.values()) for row in told if row["batches"]) == [
            (0, 2, 1, False),
            (1, 4, 1, False),
            (3, 5, 1, False),
        ]
        assert [row["error"] for row in found if row["error"]] == ["NOT_LEADER: it moved."]
        assert {row["file"] for row in found} == {None}


def test_damage_before_the_first_batch_is_no_reason_not_to_know_where_a_log_begins() -> None:
    file = f"/kafka/orders-3/{0:020d}.log"
    headers = batches([Step("data", 1), Step("commit", 1)], base_offset=9)
    headers["position"] += 70
    failure = {**WHERE.columns, "file": file, "position": 0, "size": 70, "error": "CORRUPT_BATCH: no."}
    rows = pa.concat_tables([header_table(headers, **WHERE.columns, file=file), BATCHES.arrow([failure])])
    found = in_pieces(rows, snapshot_rows(None, 0), Random(1), batches_per_task=100).to_pylist()
    assert [row["truncated"] for row in found if not row["error"]] == [False]
    (error,) = (row for row in found if row["error"])
    said = {name: value for name, value in error.items() if value is not None}
    assert said == {**WHERE.columns, "file": file, "position": 0, "error": "CORRUPT_BATCH: no."}


# With Spark, on what real clients wrote.


@pytest.mark.lab
@pytest.mark.parametrize("batches_per_task", [of_spark.BATCHES_PER_TASK, 5])
def test_spark_gives_the_transactions_of_real_logs(spark: SparkSession, history: Path, batches_per_task: int) -> None:
    files = LogDir(history)
    rows, snapshots = arrow(files.batches(), BATCHES), arrow(files.snapshots(), SNAPSHOTS)
    found = spans(shuffled(spark, rows), snapshots=shuffled(spark, snapshots), batches_per_task=batches_per_task)
    assert found.schema.fieldNames() == SPANS.names
    assert_rows(found, arrow(files.spans(), SPANS), SPANS)


@pytest.mark.lab
def test_spark_gives_the_transactions_of_damaged_logs_and_the_damage(
    spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    files = LogDir(damaged(history, tmp_path / "logs"))
    rows, snapshots = arrow(files.batches(), BATCHES), arrow(files.snapshots(), SNAPSHOTS)
    expected = arrow(files.spans(), SPANS)
    assert any("CORRUPT_BATCH" in (error or "") for error in expected["error"].to_pylist())
    assert_rows(spans(shuffled(spark, rows), snapshots=shuffled(spark, snapshots)), expected, SPANS)


@pytest.mark.lab
@pytest.mark.parametrize("with_snapshots", [True, False])
def test_spark_gives_the_transactions_of_logs_whose_beginning_is_gone(
    spark: SparkSession, history: Path, tmp_path: Path, with_snapshots: bool
) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(history, folder)
    for partition in folder.iterdir():
        logs = sorted(partition.glob("*.log")) if partition.is_dir() else []
        for log in logs[: len(logs) // 2]:
            log.unlink()
        for snapshot in partition.glob("*.snapshot") if not with_snapshots else ():
            snapshot.unlink()
    files = LogDir(folder)
    rows, snapshots = arrow(files.batches(), BATCHES), arrow(files.snapshots(), SNAPSHOTS)
    expected = arrow(files.spans(), SPANS)
    assert (None in expected["truncated"].to_pylist()) == (not with_snapshots)
    found = spans(shuffled(spark, rows), snapshots=shuffled(spark, snapshots) if with_snapshots else None)
    assert_rows(found, expected, SPANS)


@pytest.mark.lab
def test_spark_merges_the_pieces_of_tasks_that_read_parts_of_segments(spark: SparkSession, history: Path) -> None:
    register(spark)
    reader = spark.read.format("kafka_log").option("table", "pieces").option("max_partition_bytes", "30000")
    assert_rows(merged_spans(reader.load(str(history))), arrow(LogDir(history).spans(), SPANS), SPANS)


@pytest.mark.full
def test_a_partition_far_larger_than_a_workers_memory_is_worked_on_in_parts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.large_log", str(tmp_path), "600"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["in pieces: all 104900", "in one group: out of memory"], done.stdout
