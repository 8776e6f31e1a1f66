"""What a run has stored stays, whatever becomes of the bytes, and of the tables, before the next run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

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


def run_on(spark: SparkSession, folder: Path, out: Path) -> RunSummary:
    return run(spark, str(folder), str(out), min_held_ms=0, consistent_copy=True, txn_state_partitions=1)


def stored(out: Path, name: str) -> set[str]:
    """The final rows of a table, without what says where and by which run they were read."""
    rows = DeltaTable(out / name).to_pyarrow_table().to_pylist()
    others = {"run_id", "is_final", "log", "broker_id", "file", "position"}
    found = {repr({key: value for key, value in row.items() if key not in others}) for row in rows if row["is_final"]}
    assert found, name
    return found


@pytest.mark.xdist_group("kept rows")
@pytest.mark.parametrize("by_jobs", [False, pytest.param(True, marks=pytest.mark.full)])
def test_rows_that_any_run_has_seen_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_jobs: bool
) -> None:
    """``__transaction_state`` is compacted between runs: of 1,559 rows of its history, 52 were left after the fourth.

    The second run's state had lost the broker of the log, so that the third took it for another one. And a replica of
    another broker, or one without leader epochs, took the place of all rows before.
    """
    monkeypatch.setattr(run_sources, "SMALL", -1 if by_jobs else 1 << 40)
    logs, out = tmp_path / "logs", tmp_path / "out"
    broker = Broker(logs / "1")
    seen: dict[str, set[str]] = {name: set() for name in NAMES}

    def check(what: str) -> None:
        run_on(spark, logs, out)
        for name in NAMES:
            found = stored(out, name)
            assert seen[name] <= found, (what, name, len(seen[name] - found), sorted(seen[name] - found)[:2])
            seen[name] |= found

    for number in range(4):
        broker.transactions(3)
        check(f"run {number}")
        broker.compact()
        if number == 1:  # retention
            broker.roll()
        if number == 2:
            (broker.root / "orders-0" / f"{0:020}.log").unlink()
    broker.create("orders", IDS["created again"])
    broker.transactions(2)
    check("orders was deleted and created again")
    other = Broker(logs / "2", broker_id=2)
    shutil.copytree(broker.root / f"{STATE_TOPIC}-0", other.root / f"{STATE_TOPIC}-0", dirs_exist_ok=True)
    shutil.rmtree(broker.root)
    other.records = broker.records
    (other.root / f"{STATE_TOPIC}-0" / "leader-epoch-checkpoint").unlink()
    other.transactions(2)
    check("only the compacted replica of another broker is left, and no leader epoch shows what it has lost")


@pytest.mark.xdist_group("older tables")
def test_every_run_finds_tables_that_are_not_of_one_run(spark: SparkSession, tmp_path: Path) -> None:
    """A state table that was older than the others cost 3,288 rows, and made 3,034 wrong, in silence."""
    logs, out, backup = tmp_path / "logs", tmp_path / "out", tmp_path / "backup"
    broker = Broker(logs / "1")
    broker.transactions(3)
    assert not run_on(spark, logs, out).repairs
    shutil.copytree(out, backup)
    broker.roll()
    broker.transactions(2)
    assert not run_on(spark, logs, out).repairs
    broker.compact()
    seen = {name: stored(out, name) for name in NAMES}

    def restore(table: str) -> None:
        shutil.rmtree(out / table)
        shutil.copytree(backup / table, out / table)

    # Retention has deleted what the last run read.
    restore("internal/state")
    (broker.root / "orders-0" / f"{0:020}.log").unlink()
    broker.base = broker.offset
    (broker.root / "orders-0" / f"{8:020}.log").unlink()
    broker.transactions(1)
    newer = run_on(spark, logs, out)
    assert [each.partition(",")[0] for each in newer.repairs] == [
        "Tables had rows of a later run than the last complete one"
    ]
    for name in NAMES:
        assert seen[name] <= stored(out, name), name
    shutil.rmtree(out / "internal" / "runs")  # as a kill before the first of them, or a restore
    assert run_on(spark, logs, out).repairs == newer.repairs
    for name in NAMES:
        assert seen[name] <= stored(out, name), name
    whole = {name: stored(out, name) for name in NAMES}
    restore("transaction_history")
    restore("log_transactions")
    older = run_on(spark, logs, out)
    assert [each.partition(" was older")[0] for each in older.repairs] == [
        "The table log_transactions",
        "The table transaction_history",
    ]
    assert stored(out, "lso_timeline") == whole["lso_timeline"]
    rows = DeltaTable(out / "log_transactions").to_pyarrow_table().to_pylist()
    offsets = sorted(row["first_offset"] for row in rows if row["topic"] == "orders")
    assert offsets == [0, 2, 4, 6, 14, 16], "the first four were there, and the last two still are in the log"
    assert not run_on(spark, logs, out).repairs


@pytest.mark.xdist_group("older tables")
def test_findings_and_holds_that_are_older_are_made_again(spark: SparkSession, tmp_path: Path) -> None:
    """Restored, they stayed as they were while nothing was new: what hangs was no row, and a run exited with 0."""
    logs, out, backup = tmp_path / "logs", tmp_path / "out", tmp_path / "backup"
    broker = Broker(logs / "1")
    broker.transactions(1)
    run_on(spark, logs, out)
    shutil.copytree(out, backup)
    broker.transactions(2)
    run_on(spark, logs, out)
    tables = ("lso_holds", "findings")
    whole = [DeltaTable(out / name).to_pyarrow_table().num_rows for name in tables]
    for name in tables:
        shutil.rmtree(out / name)
        shutil.copytree(backup / name, out / name)
    repaired = run_on(spark, logs, out)
    assert {each.partition(" was older")[0] for each in repaired.repairs} == {f"The table {name}" for name in tables}
    assert [DeltaTable(out / name).to_pyarrow_table().num_rows for name in tables] == whole
    assert not run_on(spark, logs, out).repairs


@pytest.mark.xdist_group("older tables")
@pytest.mark.parametrize(
    "older",
    ["internal/state", *(pytest.param(each, marks=pytest.mark.full) for each in ("log_transactions", "lso_timeline"))],
)
def test_a_repair_keeps_what_compaction_of_a_data_topic_has_deleted(
    spark: SparkSession, tmp_path: Path, older: str
) -> None:
    """A repair read a compacted log again, and what compaction had left took the place of what was stored."""
    logs, out, backup = tmp_path / "logs", tmp_path / "out", tmp_path / "backup"
    broker = Broker(logs / "1")
    broker.transactions(2)
    run_on(spark, logs, out)
    shutil.copytree(out, backup)
    broker.transactions(1)
    broker.roll()
    broker.transactions(1)
    run_on(spark, logs, out)
    whole = {name: stored(out, name) for name in NAMES}
    segment = broker.root / "orders-0" / f"{0:020}.log"
    left = segment.read_bytes()
    while int.from_bytes(left[:8], "big") < 8:  # compaction leaves the last two batches of the first segment
        left = left[12 + int.from_bytes(left[8:12], "big") :]
    segment.write_bytes(left)
    write_checkpoint(broker.root, CLEANED, {("orders", 0): broker.base})
    shutil.rmtree(out / older)
    shutil.copytree(backup / older, out / older)
    assert run_on(spark, logs, out).repairs
    for name in NAMES:
        gone = whole[name] - stored(out, name)
        assert len(gone) == (LOST.get(name, 0) if name == older else 0), (name, gone)
    assert not run_on(spark, logs, out).repairs
