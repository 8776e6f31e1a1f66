"""The broker as the oracle: its files give the values of its responses, on random histories of real clients."""

import datetime as dt
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analysis.aborted_transactions import aborted_transactions
from tests.analysis.log_invariants import log_dir_violations
from tests.staged_state import write_marker
from tests.tiers import amount, seed
from tests.workload import BUSY, Workload, random_workload
from toolkit import Cluster, LogDir
from toolkit.analysis.log.log_transactions import begin, finish, partial_transactions
from toolkit.analysis.log.producer_state import producer_records, producer_state, resume
from toolkit.formats.log_dir_files import read_snapshot
from toolkit.formats.scan import scan_file
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import ABORTED, BATCHES, FINDINGS, LSO_HOLDS, LSO_TIMELINE, Row
from toolkit.schema.table import LogId

pytestmark = [pytest.mark.lab, pytest.mark.longer]

DURATION_S = amount(6, full=20)
NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
INTERNAL = {"__transaction_state", "__consumer_offsets"}
DUMP = {"3.5.2": "kafka.tools.DumpLogSegments", "4.3.1": "org.apache.kafka.tools.DumpLogSegments"}


HELD_S = 1.5  # that what was staged held an LSO
MIN_HELD_MS = 1_000
HANGING = ("never_added", "late_message", "busy_elsewhere", "offsets_never_added")


@dataclass(frozen=True, kw_only=True, eq=False)
class Left:
    """What a broker answered before it was stopped, and the directory that it left.

    `staged`: incidents that are over, among random transactions, and ``still``, which is not.
    """

    kafka: Kafka
    load: Workload
    folder: Path
    producers: Sequence[Row]
    partitions: Sequence[Row]
    transactions: Sequence[Row]
    live: Mapping[tuple[str, int], Sequence[Row]]
    staged: Mapping[str, StagedIncident]

    @cached_property
    def files(self) -> LogDir:
        return LogDir(self.folder, consistent_copy=True)

    @cached_property
    def findings(self) -> Sequence[Row]:
        return self.files.finding_rows(min_held_ms=MIN_HELD_MS)


@pytest.fixture(scope="module", params=[pytest.param("3.5.2", marks=pytest.mark.full), "4.3.1"])
def left(request: pytest.FixtureRequest) -> Iterator[Left]:
    """Kept alive: the clients whose transactions are open."""
    name = seed() or uuid.uuid4().hex[:6]
    with (
        Kafka(request.param, properties={**BUSY, **EVERYDAY.properties}) as kafka,
        random_workload(kafka, seed=name, seconds=DURATION_S, every_ending=True) as load,
        Cluster(kafka.bootstrap_servers) as cluster,
        staged_holds(kafka, cluster) as staged,
    ):
        answers = {
            "partitions": cluster.partition_rows(),
            "producers": cluster.producer_rows(),
            "transactions": cluster.transaction_rows(),
        }
        partitions = [(f"plain-{name}", 0), (f"plain-{name}", 1), (f"copies-{name}", 0), (f"append-time-{name}", 0)]
        live = {tp: BATCHES.rows(cluster.batches(partitions=[tp])) for tp in partitions}
        kafka.stop_broker(1)
        print(f"seed {name}: {dict(load.endings)}")
        yield Left(kafka=kafka, load=load, folder=kafka.log_dirs[1], live=live, staged=staged, **answers)
        kafka.start_broker(1)


@contextmanager
def staged_holds(kafka: Kafka, cluster: Cluster) -> Iterator[Mapping[str, StagedIncident]]:
    """Incidents that hold an LSO and end; a timeout and a fence do so, too; and one that goes on."""
    client = cluster.client
    staged = {name: INCIDENTS[name](kafka) for name in (*HANGING, "superseded_same_partition", "open_young")}
    topic = staged["open_young"].topic
    too_slow = TxnProducer(client, f"too-slow-{topic}", timeout_ms=1_000).init()
    too_slow.add(topic, 1)
    too_slow.send(topic, 1, records=3)
    fenced = TxnProducer(client, f"left-{topic}").init()
    fenced.add(topic, 0)
    fenced.send(topic, 0)
    threading.Event().wait(HELD_S)
    for name in HANGING:
        write_marker(cluster.client, staged[name])
    staged["superseded_same_partition"].close()
    staged["open_young"].close()  # commits
    threading.Event().wait(HELD_S)
    TxnProducer(client, f"left-{topic}").init()
    threading.Event().wait(0.5)
    with INCIDENTS["never_added"](kafka) as still:
        yield {**staged, "still": still}


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
    of_load = [row for row in ours.values() if row["topic"] in left.load.topics]
    assert sum(row["current_txn_start_offset"] is not None for row in of_load) == left.load.endings["open"]


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
            replayed = producer_state(known, *(part.headers for log in between for part in scan_file(log)))
            ours = producer_records(replayed, LogId(topic=folder.name, partition=0), observed_at=NOW)
            theirs = producer_records(
                resume(read_snapshot(later.read_bytes())), LogId(topic=folder.name, partition=0), observed_at=NOW
            )
            assert ours == theirs, later
            compared += 1
    assert compared > 10


def test_aborted_transactions_match_the_brokers_index(left: Left) -> None:
    columns = ["last_offset", "last_stable_offset"]
    key = ("topic", "partition", "producer_id", "first_offset")
    names = ("producer_id", "first_offset", *columns)
    indexed = [row for row in ABORTED.rows(left.files.aborted()) if not was_cleaned(row)]
    ours = []
    for folder in partition_folders(left):
        topic, _, partition = folder.name.rpartition("-")
        logs = sorted(folder.glob("*.log"))
        snapshot = logs[0].with_suffix(".snapshot")
        opened = {
            state.producer_id: (state.current_txn_start_offset, state.producer_epoch)
            for state in (read_snapshot(snapshot.read_bytes()) if snapshot.exists() else ())
            if state.current_txn_start_offset is not None
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
        for row in BATCHES.rows(LogDir(text).batches())
        if not (row["error"] or "").startswith("NOT_DECODED") and row["topic"] != "__cluster_metadata"
    ]
    read = BATCHES.rows(left.files.batches(crc=True))
    key = ("topic", "partition", "base_offset", "position")
    assert not differences(by(read, *key), by(printed, *key), columns)
    assert len(read) > 200


def test_a_live_partition_matches_its_files(left: Left) -> None:
    from_files = by(BATCHES.rows(left.files.batches()), "topic", "partition", "base_offset")
    columns = [name for name in BATCHES.names if name not in {"broker_id", "file", "position", "crc_ok"}]
    for tp, live in left.live.items():
        ours = {key: row for key, row in from_files.items() if key[:2] == tp}
        assert len(ours) == len(left.files.batches(partitions=[tp])), "read with the same selection"
        assert not differences(by(live, "topic", "partition", "base_offset"), ours, columns)


def test_logs_of_a_real_broker_break_no_invariant(left: Left) -> None:
    assert log_dir_violations(left.files) == []


# Who held LSOs before


def test_current_findings_are_included_unchanged(left: Left) -> None:
    FINDINGS.arrow(left.findings)
    now = left.files.finding_rows()
    kept = [row for row in left.findings if row["verdict"] != "ended"]
    assert [without_holding(row) for row in kept] == [without_holding(row) for row in now]
    still = next(row for row in kept if row["producer_id"] == left.staged["still"].producer_id)
    assert (still["verdict"], still["held_to"]) == ("hanging", None)
    assert all(row["held_from"] is not None for row in kept if row["queue_position"] == 1), "healthy ones included"


def without_holding(row: Row) -> Row:
    """The end of a log does not show since when it holds; only the complete log may."""
    evidence = [entry for entry in row["evidence"] if not entry["name"].startswith("held_")]
    holding = {"held_from", "held_ms", "records_held", "bytes_held"}
    return {name: value for name, value in row.items() if name not in holding} | {"evidence": evidence}


def test_exactly_the_long_holds_are_reported(left: Left) -> None:
    """By a walk over the batches of each partition whose first ones were not deleted."""
    batches_of: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for batch in BATCHES.rows(left.files.batches()):
        batches_of[batch["topic"], batch["partition"]].append(batch)
    # What holds of deleted batches are known by is their coordinator's log: a slow workload deletes the start of one.
    by_partition = {tp: each for tp, each in batches_of.items() if min(row["base_offset"] for row in each) == 0}
    assert len(by_partition) > len(HANGING)
    holds = [row for row in left.findings if row["held_to"] and (row["topic"], row["partition"]) in by_partition]
    found = {(row["topic"], row["partition"], row["start_offset"]): row for row in holds}
    for tp, batches in by_partition.items():
        for first, marker, held_ms in walked(batches):
            row = found.pop((*tp, first), None)
            assert (row is not None) == (held_ms >= MIN_HELD_MS), (tp, first, held_ms)
            if row is not None:
                between = [each for each in batches if first <= each["base_offset"] < marker]
                data = [each for each in between if not each["is_control"]]
                assert row["held_ms"] == held_ms
                assert row["offsets_held"] == marker - first
                assert row["records_held"] == sum(each["record_count"] for each in data)
                assert row["bytes_held"] == sum(each["size"] for each in between)
    assert found == {}


def test_the_holds_are_the_holders_of_the_timeline_with_the_facts_of_the_findings(left: Left) -> None:
    holds = {(row["topic"], row["partition"], row["first_offset"]): row for row in left.files.lso_hold_rows()}
    LSO_HOLDS.arrow(holds.values())
    steps = LSO_TIMELINE.rows(left.files.lso_timeline())
    assert {(*tp, holder["producer_id"]) for (*tp, _), holder in holds.items()} == {
        (step["topic"], step["partition"], step["holder_producer_id"])
        for step in steps
        if step["holder_producer_id"] is not None
    }
    found = {(row["topic"], row["partition"], row["start_offset"]): row for row in left.findings if row["held_from"]}
    assert len(found) > 5
    for key, finding in found.items():
        hold = holds[key]
        for name in ("producer_id", "producer_epoch", "held_from", "held_to", "records_held", "bytes_held"):
            assert hold[name] == finding[name], (key, name)
        assert hold["transactional_id"] == finding["transactional_id"] or finding["held_to"] is None, key
        assert hold["held_ms"] == (finding["held_ms"] if finding["held_to"] else None)
    assert all(row["held_ms"] < MIN_HELD_MS for key, row in holds.items() if key not in found)


def test_a_range_has_the_holds_that_overlap_it(left: Left) -> None:
    staged = left.staged["open_young"]
    rows = partial(left.files.lso_hold_rows, topics=staged.topic, partitions=staged.partition)
    (row,) = [row for row in rows() if row["producer_id"] == staged.producer_id]
    first, marker = row["first_offset"], row["marker_offset"]
    assert row in rows(start=first + 1, stop=marker)
    assert row not in rows(start=marker + 1)
    assert row not in rows(stop=first)


def walked(batches: list[Row]) -> Iterator[tuple[int, int, int]]:
    """First offset, marker, and for how long it was the lowest, of what has ended; its clock is the broker's."""
    open_: dict[int, int] = {}
    held_from: dt.datetime | None = None
    for batch in sorted(batches, key=lambda row: row["base_offset"]):
        lowest = min(open_.values(), default=None)
        if batch["marker"]:
            first = open_.pop(batch["producer_id"], None)
            if first is not None and first == lowest and held_from is not None:
                yield (
                    first,
                    batch["base_offset"],
                    max((batch["max_timestamp"] - held_from) // dt.timedelta(milliseconds=1), 0),
                )
                held_from = batch["max_timestamp"]
        elif batch["is_transactional"]:
            if not open_:
                held_from = batch["base_timestamp"] or batch["max_timestamp"]
                if batch["timestamp_type"] == "LogAppendTime":
                    held_from = batch["max_timestamp"]
            open_.setdefault(batch["producer_id"], batch["base_offset"])


def partition_folders(left: Left) -> list[Path]:
    """Folders with batches of the partitions that no cleaner touches."""
    found = {log.parent for log in left.folder.glob("*-[0-9]*/*.log") if log.stat().st_size}
    return sorted(each for each in found if not each.name.startswith(("compacted", "__")))
