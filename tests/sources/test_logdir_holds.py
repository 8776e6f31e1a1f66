"""Who held LSOs before, from the files of a real broker: incidents that are over, among random transactions."""

from __future__ import annotations

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.sources.test_log_evidence import abort_marker
from tests.workload import BUSY, random_workload
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import BATCHES, FINDINGS, LSO_HOLDS, LSO_TIMELINE, Row

pytestmark = pytest.mark.lab

HELD = 1.5  # seconds that what was staged held an LSO
MIN_HELD_MS = 1_000
HANGING = ("never_added", "late_message", "busy_elsewhere", "offsets_never_added")


@dataclass(kw_only=True)
class Past:
    """What was staged and is over, by name, and what its broker has left."""

    files: LogDir
    staged: Mapping[str, StagedIncident]
    topic: str
    findings: list[Row]


@pytest.fixture(scope="module", params=[pytest.param("3.5.2", marks=pytest.mark.full), "4.3.1"])
def past(request: pytest.FixtureRequest) -> Iterator[Past]:
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(request.param, properties={**BUSY, **EVERYDAY.properties}))
        cluster = stack.enter_context(Cluster(kafka.bootstrap_servers))
        stack.enter_context(random_workload(kafka, seed="holds", seconds=3))
        staged = {name: INCIDENTS[name](kafka) for name in (*HANGING, "superseded_same_partition", "open_young")}
        topic = staged["open_young"].topic
        client = cluster.client
        too_slow = TxnProducer(client, f"too-slow-{topic}", timeout_ms=1_000).init()
        too_slow.add(topic, 1)
        too_slow.send(topic, 1, records=3)
        left = TxnProducer(client, f"left-{topic}").init()
        left.add(topic, 0)
        left.send(topic, 0)
        threading.Event().wait(HELD)
        for name in HANGING:
            abort_marker(cluster, staged[name])
        staged["superseded_same_partition"].close()
        staged["open_young"].close()  # commits
        threading.Event().wait(HELD)
        TxnProducer(client, f"left-{topic}").init()
        threading.Event().wait(0.5)
        staged["still"] = stack.enter_context(INCIDENTS["never_added"](kafka))
        kafka.stop_broker(1)
        files = LogDir(kafka.log_dirs[1], consistent_copy=True)
        yield Past(files=files, staged=staged, topic=topic, findings=files.finding_rows(min_held_ms=MIN_HELD_MS))
        kafka.start_broker(1)


def of(past: Past, producer_id: int | None = None, **fields: Any) -> Row:
    """The finding of the ended transaction."""
    wanted = {"verdict": "ended", **fields} | ({} if producer_id is None else {"producer_id": producer_id})
    (row,) = [row for row in past.findings if all(row[name] == value for name, value in wanted.items())]
    return row


def test_current_findings_are_included_unchanged(past: Past) -> None:
    FINDINGS.arrow(past.findings)
    now = past.files.finding_rows()
    kept = [row for row in past.findings if row["verdict"] != "ended"]
    assert [without_holding(row) for row in kept] == [without_holding(row) for row in now]
    still = next(row for row in kept if row["producer_id"] == past.staged["still"].producer_id)
    assert (still["verdict"], still["held_to"]) == ("hanging", None)
    assert all(row["held_from"] is not None for row in kept if row["queue_position"] == 1), "healthy ones included"


def without_holding(row: Row) -> Row:
    """The end of a log does not show since when it holds; only the complete log may."""
    evidence = [entry for entry in row["evidence"] if not entry["name"].startswith("held_")]
    holding = {"held_from", "held_ms", "records_held", "bytes_held"}
    return {name: value for name, value in row.items() if name not in holding} | {"evidence": evidence}


def test_exactly_the_long_holds_are_reported(past: Past) -> None:
    """By a walk over the batches of each partition whose first ones were not deleted."""
    batches_of: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for batch in BATCHES.rows(past.files.batches()):
        batches_of[batch["topic"], batch["partition"]].append(batch)
    # What holds of deleted batches are known by is their coordinator's log: a slow workload deletes the start of one.
    by_partition = {tp: each for tp, each in batches_of.items() if min(row["base_offset"] for row in each) == 0}
    assert len(by_partition) > len(HANGING)
    holds = [row for row in past.findings if row["held_to"] and (row["topic"], row["partition"]) in by_partition]
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


def test_the_holds_are_the_holders_of_the_timeline_with_the_facts_of_the_findings(past: Past) -> None:
    holds = {(row["topic"], row["partition"], row["first_offset"]): row for row in past.files.lso_hold_rows()}
    LSO_HOLDS.arrow(holds.values())
    steps = LSO_TIMELINE.rows(past.files.lso_timeline())
    assert {(*tp, holder["producer_id"]) for (*tp, _), holder in holds.items()} == {
        (step["topic"], step["partition"], step["holder_producer_id"])
        for step in steps
        if step["holder_producer_id"] is not None
    }
    found = {(row["topic"], row["partition"], row["start_offset"]): row for row in past.findings if row["held_from"]}
    assert len(found) > 5
    for key, finding in found.items():
        hold = holds[key]
        for name in ("producer_id", "producer_epoch", "held_from", "held_to", "records_held", "bytes_held"):
            assert hold[name] == finding[name], (key, name)
        assert hold["transactional_id"] == finding["transactional_id"] or finding["held_to"] is None, key
        assert hold["held_ms"] == (finding["held_ms"] if finding["held_to"] else None)
    assert all(row["held_ms"] < MIN_HELD_MS for key, row in holds.items() if key not in found)


def test_a_range_has_the_holds_that_overlap_it(past: Past) -> None:
    staged = past.staged["open_young"]
    rows = partial(past.files.lso_hold_rows, topics=staged.topic, partitions=staged.partition)
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
