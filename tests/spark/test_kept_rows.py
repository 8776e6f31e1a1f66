"""What a run has stored stays, whatever becomes of the bytes, and of the tables, before the next run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.sources.log_files import (
    CLEANED,
    after,
    compact_state_topic,
    data,
    in_epoch,
    marker,
    state_record,
    write_checkpoint,
    write_log,
    write_root,
)
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.spark.pipeline import run_sources
from toolkit.spark.pipeline.pipeline_run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from toolkit.spark.pipeline.pipeline_run import RunSummary

IDS = {
    "orders": "AAAAAAAAAAAAAAAAAAAAAQ",
    "created again": "AAAAAAAAAAAAAAAAAAAAAg",
    STATE_TOPIC: "AAAAAAAAAAAAAAAAAAAAAw",
}
STAGES = ("Ongoing", "PrepareCommit", "CompleteCommit")
NAMES = ("log_transactions", "lso_timeline", "transaction_history")
LOST = {"log_transactions": 1, "lso_timeline": 2}  # rows of the one transaction whose batches compaction has deleted

pytestmark = pytest.mark.xdist_group("kept rows")


class Broker:
    """The log directory of a broker, which commits a transaction of `orders-0` at a time."""

    def __init__(self, folder: Path, *, broker_id: int = 1) -> None:
        self.root = write_root(folder, broker_id=broker_id)
        self.records = 0
        self.offset = self.base = 0
        for topic in ("orders", STATE_TOPIC):
            self.create(topic, IDS[topic])

    def create(self, topic: str, topic_id: str) -> None:
        log = self.root / f"{topic}-0"
        shutil.rmtree(log, ignore_errors=True)
        write_log(self.root, log.name, [])
        (log / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        if topic == "orders":
            self.offset = self.base = 0

    def transactions(self, count: int) -> None:
        """Commit transactions, and leave one open; a new segment if it is not the first."""
        for number in range(count):
            second = self.records
            producer_id = 7 + number % 2
            for stage in STAGES:
                at = after(seconds=second)
                record = state_record(self.records, f"app-{producer_id}", producer_id, stage, at, on=[("orders", 0)])
                self._append(STATE_TOPIC, 0, record)
                self.records += 1
            for batch in (data(self.offset, producer_id, at), marker(self.offset + 1, producer_id, at)):
                self._append("orders", self.base, batch)
                self.offset += 1
        self._append("orders", self.base, data(self.offset, 9, after(seconds=self.records)))
        self._append("orders", self.base, marker(self.offset + 1, 9, after(seconds=self.records), commit=False))
        self.offset += 2

    def roll(self) -> None:
        self.base = self.offset

    def _append(self, topic: str, base_offset: int, batch: bytes) -> None:
        with (self.root / f"{topic}-0" / f"{base_offset:020}.log").open("ab") as file:
            file.write(in_epoch(batch))

    def compact(self) -> None:
        compact_state_topic(self.root)

    def retain(self) -> None:
        """Delete segments up to the active one, as retention does."""
        for segment in (self.root / "orders-0").glob("*.log"):
            if int(segment.stem) < self.base:
                segment.unlink()


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The files of a broker, and what the pipeline has stored of them."""

    broker: Broker
    spark: SparkSession
    out: Path  # the tables
    backup: Path  # as they were after the first run

    def run(self) -> RunSummary:
        logs = str(self.broker.root.parent)
        return run(self.spark, logs, str(self.out), min_held_ms=0, consistent_copy=True, txn_state_partitions=1)

    def restore(self, *tables: str) -> None:
        for table in tables:
            shutil.rmtree(self.out / table)
            shutil.copytree(self.backup / table, self.out / table)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(self.out / name).to_pyarrow_table().to_pylist()
        return found

    def final(self) -> dict[str, set[str]]:
        """The final rows of each table of logs, without what says where and by which run they were read."""
        others = {"run_id", "is_final", "log", "broker_id", "file", "position"}
        tables = {}
        for name in NAMES:
            rows = (row for row in self.rows(name) if row["is_final"])
            tables[name] = {repr({key: value for key, value in row.items() if key not in others}) for row in rows}
            assert tables[name], name
        return tables

    def gone(self, before: Mapping[str, set[str]]) -> dict[str, int]:
        """How many of these rows each table has no more."""
        now = self.final()
        return {name: len(rows - now[name]) for name, rows in before.items() if rows - now[name]}


@pytest.fixture(scope="module")
def first_runs(spark_process: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Two runs, and compaction between them, for all tests here."""
    folder, spark = tmp_path_factory.mktemp("runs"), spark_process.newSession()
    spark.createDataFrame([], "number int")  # makes it the active one
    runs = Runs(broker=Broker(folder / "logs" / "1"), spark=spark, out=folder / "out", backup=folder / "backup")
    runs.broker.transactions(3)
    assert not runs.run().repairs
    shutil.copytree(runs.out, runs.backup)
    before = runs.final()
    runs.broker.compact()
    runs.broker.transactions(1)
    runs.broker.roll()
    runs.broker.transactions(1)
    assert not runs.run().repairs
    assert not runs.gone(before)
    for each in (runs.broker.root.parent, runs.out):
        shutil.copytree(each, f"{each}-saved")
    return runs


@pytest.fixture
def runs(first_runs: Runs) -> Runs:
    """These runs as they were, at the same place: the path of the files is part of what is stored."""
    for each in (first_runs.broker.root.parent, first_runs.out):
        shutil.rmtree(each)
        shutil.copytree(f"{each}-saved", each)
    return replace(first_runs, broker=copy(first_runs.broker))


def test_rows_that_any_run_has_seen_stay(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """``__transaction_state`` is compacted between runs: of 1,559 rows of its history, 52 were left after the fourth.

    The second run's state had lost the broker of the log, so that the third took it for another one. And a replica of
    another broker, or one without leader epochs, took the place of all rows before.
    """
    broker, seen = runs.broker, runs.final()

    def check(what: str) -> None:
        runs.run()
        assert not runs.gone(seen), what
        for name, rows in runs.final().items():
            seen[name] |= rows

    broker.compact()
    broker.retain()
    broker.transactions(2)
    check("compaction, and retention")
    monkeypatch.setattr(run_sources, "SMALL", -1)  # Spark's tasks read now, onto what this process has read
    broker.compact()
    broker.create("orders", IDS["created again"])
    broker.transactions(2)
    check("orders was deleted and created again")
    other = Broker(broker.root.parent / "2", broker_id=2)
    shutil.copytree(broker.root / f"{STATE_TOPIC}-0", other.root / f"{STATE_TOPIC}-0", dirs_exist_ok=True)
    shutil.rmtree(broker.root)
    other.records = broker.records
    (other.root / f"{STATE_TOPIC}-0" / "leader-epoch-checkpoint").unlink()
    other.transactions(2)
    check("only the compacted replica of another broker is left, and no leader epoch shows what it has lost")


def test_every_run_finds_tables_that_are_not_of_one_run(runs: Runs) -> None:
    """A state table that was older than the others cost 3,288 rows, and made 3,034 wrong, in silence."""
    broker, seen = runs.broker, runs.final()
    broker.compact()
    runs.restore("internal/state")
    broker.roll()
    broker.retain()  # it has deleted what the last run read
    broker.transactions(1)
    newer = runs.run()
    assert [each.partition(",")[0] for each in newer.repairs] == [
        "Tables had rows of a later run than the last complete one"
    ]
    assert not runs.gone(seen)
    shutil.rmtree(runs.out / "internal" / "runs")  # as a kill before the first of them, or a restore
    assert runs.run().repairs == newer.repairs
    assert not runs.gone(seen)
    whole = runs.final()
    runs.restore("transaction_history", "log_transactions")
    assert [each.partition(" was older")[0] for each in runs.run().repairs] == [
        "The table log_transactions",
        "The table transaction_history",
    ]
    assert runs.final()["lso_timeline"] == whole["lso_timeline"]
    offsets = sorted(row["first_offset"] for row in runs.rows("log_transactions") if row["topic"] == "orders")
    assert offsets == [0, 2, 4, 6, 16, 18], "the first four were there, and the last two still are in the log"
    assert not runs.run().repairs


def test_findings_and_holds_that_are_older_are_made_again(runs: Runs) -> None:
    """Restored, they stayed as they were while nothing was new: what hangs was no row, and a run exited with 0."""
    tables = ("lso_holds", "findings")
    whole = [len(runs.rows(name)) for name in tables]
    runs.restore(*tables)
    assert [len(runs.rows(name)) for name in tables] != whole
    assert {each.partition(" was older")[0] for each in runs.run().repairs} == {f"The table {name}" for name in tables}
    assert [len(runs.rows(name)) for name in tables] == whole
    assert not runs.run().repairs


@pytest.mark.parametrize("older", ["internal/state", "log_transactions", "lso_timeline"])
def test_a_repair_keeps_what_compaction_of_a_data_topic_has_deleted(runs: Runs, older: str) -> None:
    """A repair read a compacted log again, and what compaction had left took the place of what was stored."""
    broker, whole = runs.broker, runs.final()
    segment = broker.root / "orders-0" / f"{0:020}.log"
    left = segment.read_bytes()
    while int.from_bytes(left[:8], "big") < 10:  # compaction leaves the last two batches of the first segment
        left = left[12 + int.from_bytes(left[8:12], "big") :]
    segment.write_bytes(left)
    write_checkpoint(broker.root, CLEANED, {("orders", 0): broker.base})
    runs.restore(older)
    assert runs.run().repairs
    assert runs.gone(whole) == ({older: LOST[older]} if older in LOST else {})
    assert not runs.run().repairs
