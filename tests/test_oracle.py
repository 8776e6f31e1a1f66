"""The broker as the oracle: its files give the values of its responses, on random histories of real clients."""

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analysis.aborted_transactions import aborted_transactions
from tests.analysis.log_invariants import log_dir_violations
from tests.tiers import amount, seed
from tests.workload import BUSY, Workload, random_workload
from toolkit import Cluster, LogDir
from toolkit.analysis.log.log_transactions import begin, finish, partial_transactions
from toolkit.analysis.log.producer_state import join, producer_records, replay, resume
from toolkit.formats.log_dir_files import read_snapshot
from toolkit.formats.scan import scan_file
from toolkit.lab import Kafka
from toolkit.schema import ABORTED, BATCHES, Row, Table

pytestmark = [pytest.mark.lab, pytest.mark.longer]

DURATION_S = amount(6, full=60)
NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
INTERNAL = {"__transaction_state", "__consumer_offsets"}
DUMP = {"3.5.2": "kafka.tools.DumpLogSegments", "4.3.1": "org.apache.kafka.tools.DumpLogSegments"}


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a broker answered before it was stopped, and the directory that it left."""

    kafka: Kafka
    load: Workload
    folder: Path
    producers: Sequence[Row]
    partitions: Sequence[Row]
    transactions: Sequence[Row]
    live: Mapping[tuple[str, int], Sequence[Row]]

    @property
    def files(self) -> LogDir:
        return LogDir(self.folder)


@pytest.fixture(scope="module", params=[pytest.param("3.5.2", marks=pytest.mark.full), "4.3.1"])
def left(request: pytest.FixtureRequest) -> Iterator[Left]:
    """Kept alive: the clients whose transactions are open."""
    name = seed() or uuid.uuid4().hex[:6]
    with (
        Kafka(request.param, properties=BUSY) as kafka,
        random_workload(kafka, seed=name, seconds=DURATION_S, every_ending=True) as load,
    ):
        with Cluster(kafka.bootstrap_servers) as cluster:
            answers = {
                "partitions": cluster.partition_rows(),
                "producers": cluster.producer_rows(),
                "transactions": cluster.transaction_rows(),
            }
            partitions = [(f"plain-{name}", 0), (f"plain-{name}", 1), (f"copies-{name}", 0), (f"append-time-{name}", 0)]
            live = {tp: rows_of(BATCHES, cluster.batches(partitions=[tp])) for tp in partitions}
        kafka.stop_broker(1)
        print(f"seed {name}: {dict(load.endings)}")
        yield Left(kafka=kafka, load=load, folder=kafka.log_dirs[1], live=live, **answers)


def by(rows: Sequence[Row], *key: str) -> dict[tuple[Any, ...], Row]:
    """Rows by their key, which no two of them share."""
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows), key
    return found


def differences(ours: Mapping[Any, Row], theirs: Mapping[Any, Row], columns: Sequence[str]) -> list[Any]:
    """What either side has alone, and the columns in which they contradict each other."""
    alone = [("only ours", key, ours[key]) for key in ours.keys() - theirs.keys()]
    alone += [("only theirs", key, theirs[key]) for key in theirs.keys() - ours.keys()]
    return alone + [
        (key, name, ours[key][name], theirs[key][name])
        for key in ours.keys() & theirs.keys()
        for name in columns
        if ours[key][name] != theirs[key][name]
    ]


def was_cleaned(row: Row) -> bool:
    """The cleaner removes markers to which other records still refer; then only a snapshot has the state."""
    return row["topic"].startswith("compacted") or row["topic"] in INTERNAL


def test_every_ending_occurs(left: Left) -> None:
    wanted = {"commit", "abort", "killed", "open", "copied", "empty", "fence"}
    assert wanted <= left.load.endings.keys(), left.load.endings


def test_partitions_match_list_offsets(left: Left) -> None:
    columns = ["log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset", "error"]
    ours = by(left.files.partition_rows(), "topic", "partition")
    assert not differences(ours, by(left.partitions, "topic", "partition"), columns)
    assert any(row["last_stable_offset"] < row["high_watermark"] for row in ours.values())


def test_producers_match_describe_producers(left: Left) -> None:
    columns = ["producer_epoch", "last_sequence", "last_timestamp", "coordinator_epoch", "current_txn_start_offset"]
    key = ("topic", "partition", "producer_id")
    ours = by(left.files.producer_rows(), *key)
    assert not differences(ours, by([row for row in left.producers if not row["error"]], *key), columns)
    assert sum(row["current_txn_start_offset"] is not None for row in ours.values()) == left.load.endings["open"]


def test_transactions_match_describe_transactions(left: Left) -> None:
    columns = ["producer_id", "producer_epoch", "state", "timeout_ms", "start_time", "topic_partitions"]
    theirs = by(left.transactions, "transactional_id")
    assert not differences(by(left.files.transaction_rows(), "transactional_id"), theirs, columns)


def test_each_snapshot_follows_from_the_previous_one_and_the_batches(left: Left) -> None:
    compared = 0
    for folder in partition_folders(left):
        snapshots = sorted(folder.glob("*.snapshot"))
        for earlier, later in pairwise(snapshots):
            known = resume(read_snapshot(earlier.read_bytes()))
            logs = sorted(folder.glob("*.log"))
            between = [log for log in logs if earlier.stem <= log.stem < later.stem]
            if not between or between[0].stem != earlier.stem:
                continue  # retention took the segment that begins there
            replayed = join(known, *(replay(part.headers) for log in between for part in scan_file(log)))
            ours = producer_records(replayed, topic=folder.name, partition=0, observed_at=NOW)
            theirs = producer_records(
                resume(read_snapshot(later.read_bytes())), topic=folder.name, partition=0, observed_at=NOW
            )
            assert ours == theirs, later
            compared += 1
    assert compared > 10


def test_aborted_transactions_match_the_brokers_index(left: Left) -> None:
    columns = ["last_offset", "last_stable_offset"]
    key = ("topic", "partition", "producer_id", "first_offset")
    names = ("producer_id", "first_offset", *columns)
    indexed = [row for row in rows_of(ABORTED, left.files.aborted()) if not was_cleaned(row)]
    ours = []
    for folder in partition_folders(left):
        topic, _, partition = folder.name.rpartition("-")
        logs = sorted(folder.glob("*.log"))
        snapshot = logs[0].with_suffix(".snapshot")
        opened = {
            state.producer_id: (state.current_txn_first_offset, state.producer_epoch)
            for state in (read_snapshot(snapshot.read_bytes()) if snapshot.exists() else ())
            if state.current_txn_first_offset is not None
        }
        headers = np.concatenate([part.headers for log in logs for part in scan_file(log)])
        log_transactions = finish(begin(opened_before=opened) + partial_transactions(headers))
        rows = (dict(zip(names, row, strict=True)) for row in aborted_transactions(log_transactions))
        ours += [{"topic": topic, "partition": int(partition), **row} for row in rows]
    assert not differences(by(ours, *key), by(indexed, *key), columns)
    assert len(indexed) > 10


def test_every_header_field_matches_kafka_dump_log(left: Left, tmp_path: Path) -> None:
    logs = sorted(str(log) for log in left.folder.glob("*-[0-9]*/*.log") if log.stat().st_size)
    tool = DUMP[left.kafka.version]
    done = left.kafka.run_tool(tool, "--deep-iteration", "--files", ",".join(logs))
    text = tmp_path / "dump.txt"
    text.write_text(done.stdout)
    columns = [name for name in BATCHES.names if name not in {"base_timestamp", "broker_id", "file", "position"}]
    printed = [
        row
        for row in rows_of(BATCHES, LogDir(text).batches())
        if not (row["error"] or "").startswith("NOT_DECODED") and row["topic"] != "__cluster_metadata"
    ]
    read = rows_of(BATCHES, left.files.batches(crc=True))
    key = ("topic", "partition", "base_offset", "position")
    assert not differences(by(read, *key), by(printed, *key), columns)
    assert len(read) > 200


def test_a_live_partition_matches_its_files(left: Left) -> None:
    from_files = by(rows_of(BATCHES, left.files.batches()), "topic", "partition", "base_offset")
    columns = [name for name in BATCHES.names if name not in {"broker_id", "file", "position", "crc_ok"}]
    for tp, live in left.live.items():
        ours = {key: row for key, row in from_files.items() if key[:2] == tp}
        assert len(ours) == len(left.files.batches(partitions=[tp])), "read with the same selection"
        assert not differences(by(live, "topic", "partition", "base_offset"), ours, columns)


def test_logs_of_a_real_broker_break_no_invariant(left: Left) -> None:
    assert log_dir_violations(left.files) == []


def partition_folders(left: Left) -> list[Path]:
    """Folders of the partitions that no cleaner touches."""
    found = [folder for folder in sorted(left.folder.glob("*-[0-9]*")) if folder.is_dir()]
    return [f for f in found if not f.name.startswith(("compacted", "__")) and any(f.glob("*.log"))]


def rows_of(table: Table, frame: Any) -> list[Row]:
    return table.rows(frame)
