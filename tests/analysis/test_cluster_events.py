"""Events by the records of the metadata log; real ones are in tests/test_outcomes.py and tests/sources."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from tests.stored import compare
from toolkit.analysis.cluster_events import events_around, metadata_events
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.metadata_records import NO_CHANGE, MetadataState
from toolkit.schema.log import EVENTS, FROM_BROKER_LOG, FROM_METADATA, ClusterEvent, MetadataLogRecord

NOON = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
TOPIC = {"type": "Topic", "topic": "orders", "topic_id": "A"}
PARTITION = {"type": "Partition", "topic_id": "A", "partition": 0, "replicas": (1, 2), "isr": (1, 2)}


def events(*records: dict[str, Any]) -> list[ClusterEvent]:
    """The events of records, a second each."""
    state = MetadataState()
    whole = [
        state.add(MetadataLogRecord(**{"timestamp": NOON + dt.timedelta(seconds=number), **record}))
        for number, record in enumerate(records)
    ]
    return list(metadata_events(whole))


def change(leader: int | None = NO_CHANGE, isr: Sequence[int] | None = None) -> dict[str, Any]:
    leader = -1 if leader is None else leader
    return {"type": "PartitionChange", "topic_id": "A", "partition": 0, "leader": leader, "isr": isr}


def led_by(leader: int, **more: Any) -> list[dict[str, Any]]:
    return [TOPIC, {**PARTITION, "leader": leader, "leader_epoch": 0, **more}]


BROKER = {"affected_broker": 2, "broker_epoch": 7}
SETTING = {"type": "Config", "config_resource": "topic orders", "config_name": "retention.ms"}
BEGIN, ABORT, END = ({"type": f"{name}Transaction"} for name in ("Begin", "Abort", "End"))
RECORDS: dict[str, list[dict[str, Any]]] = {
    "each change of a partition": [
        *led_by(1), change(isr=(1,)), change(None), change(2, (2,)), change(2), change(isr=(1, 2)), change(1)],
    # As with eligible leader replicas (KIP-966); one that has no leader still has none.
    "without a replica in sync": [*led_by(1, isr=(1,)), change(None, ()), change(None), change(2, (2,))],
    # What held before is not known, so nothing is called a change, least of all an unclean election.
    "its first record is missing": [TOPIC, change(2), change(1, (1,)), change(None, ())],
    "an eligible leader replica is elected cleanly": [
        *led_by(1, isr=(1,), eligible_leader_replicas=(2,)), change(2, (2,))],
    "a snapshot has no events": [
        *({**record, "file": "00000000000000000009-0000000001.checkpoint"} for record in led_by(1)), change(2, (2,))],
    # KIP-868; what follows is compared with what held before it.
    "an aborted metadata transaction has no events": [
        ABORT, END, *led_by(1), BEGIN, change(2), ABORT, BEGIN, change(isr=(1,)), END],
    "a topic that is created again begins anew": [
        *led_by(1), {"type": "RemoveTopic", "topic_id": "A"},
        *({**record, "topic_id": "B", "leader": 2} for record in led_by(1))],
    "what could not be read": [{"error": "CORRUPT_BATCH: its checksum differs.", "position": 61}],
    "brokers, features and settings": [
        {"type": "RegisterBroker", **BROKER, "fenced": True},
        {"type": "BrokerRegistrationChange", **BROKER, "fenced": False},
        {"type": "BrokerRegistrationChange", **BROKER, "in_controlled_shutdown": True},
        {"type": "FenceBroker", **BROKER, "fenced": True}, {"type": "UnregisterBroker", **BROKER},
        *({"type": "FeatureLevel", "feature": "transaction.version", "feature_level": level} for level in (1, 2, 2)),
        {**SETTING, "config_value": "1000"}, {**SETTING, "config_value": None},
        {"type": "ProducerIds", **BROKER, "next_producer_id": 2000}, {"type": "NoOp"}],
}  # fmt: skip


def test_the_events_of_records() -> None:
    lines = []
    for name, records in RECORDS.items():
        lines.append(f"# {name}")
        for each in events(*records):
            assert each.event is None or each.event in EVENTS
            where = [each.topic, each.partition, each.affected_broker, each.leader, each.leader_epoch, each.position]
            lines.append(f"{each.event} {where}: {each.text or each.error}")
    compare("cluster_events.txt", lines)


def test_events_around_a_partition() -> None:
    found = [
        ClusterEvent(event="leader_changed", topic="orders", partition=0),
        ClusterEvent(event="leader_changed", topic="orders", partition=1),
        ClusterEvent(event="leader_changed", topic=STATE_TOPIC, partition=3),
        ClusterEvent(event="leader_changed", topic=STATE_TOPIC, partition=4),
        ClusterEvent(event="broker_fenced", affected_broker=2),
        ClusterEvent(event="producer_ids_allocated", affected_broker=2),
        ClusterEvent(event="transaction_timed_out", transactional_id="pay", topic=STATE_TOPIC, partition=4),
        ClusterEvent(event="transaction_timed_out", transactional_id="other"),
        ClusterEvent(event="topic_created", topic="orders"),
        ClusterEvent(event="feature_finalized"),
        ClusterEvent(event="leader_changed", topic="refunds", partition=0),
    ]
    around = events_around(found, ("orders", 0), transactional_ids={"pay"}, txn_state_partitions={3})
    assert [found.index(each) for each in around] == [0, 2, 4, 6, 8]


def test_leaders_by_the_metadata_log_are_not_repeated_by_replicas() -> None:
    """Every controller and replica logs them; what that log does not have is kept, and all of it without that log."""
    by_replica = [
        ClusterEvent(event=event, topic="orders", partition=0, source=FROM_BROKER_LOG)
        for event in ("leader_changed", "no_leader", "isr_changed", "unclean_election", "log_truncated")
    ]
    decided = ClusterEvent(event="leader_changed", topic="orders", partition=0, source=FROM_METADATA)
    for found, expected in (([decided, *by_replica], [decided, *by_replica[4:]]), (by_replica, by_replica)):
        around = events_around(found, ("orders", 0), transactional_ids=(), txn_state_partitions=())
        assert list(around) == expected


def test_what_was_before_the_metadata_log_is_as_replicas_logged_it() -> None:
    """Its snapshots had replaced it: an unclean election that a broker had logged was left out."""
    lost, repeated = (
        ClusterEvent(event="unclean_election", topic="orders", partition=0, source=FROM_BROKER_LOG, timestamp=time)
        for time in (NOON - dt.timedelta(hours=1), NOON)
    )
    decided = ClusterEvent(event="leader_changed", topic="orders", partition=0, source=FROM_METADATA, timestamp=NOON)
    unread = ClusterEvent(source=FROM_METADATA, error="CORRUPT_BATCH: its checksum differs.")
    for found, expected in (([lost, decided, repeated], [lost, decided]), ([decided, unread, repeated], None)):
        around = events_around(found, ("orders", 0), transactional_ids=(), txn_state_partitions=())
        assert list(around) == (expected or found)


def test_what_could_not_be_read_is_near_every_partition() -> None:
    """Then the metadata log decides nothing: what a replica logged is kept."""
    unread = ClusterEvent(source=FROM_METADATA, error="CORRUPT_BATCH: its checksum differs.")
    by_replica = ClusterEvent(event="leader_changed", topic="orders", partition=0, source=FROM_BROKER_LOG)
    found = [unread, by_replica]
    assert list(events_around(found, ("orders", 0), transactional_ids=(), txn_state_partitions=())) == found
