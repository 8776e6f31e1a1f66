"""Events by the records of the metadata log; real ones are in tests/test_outcomes.py and tests/sources."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

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


def test_each_change_of_a_partition_is_an_event() -> None:
    found = events(
        *led_by(1), change(isr=(1,)), change(None), change(2, (2,)), change(2), change(isr=(1, 2)), change(1)
    )
    names = [event.event for event in found]
    assert names == [
        *("topic_created", "isr_changed", "no_leader", "unclean_election", "leader_changed", "isr_changed"),
        "leader_changed",
    ]
    assert [event.leader_epoch for event in found[1:]] == [0, 1, 2, 3, 3, 4]
    assert {event.topic for event in found} == {"orders"}
    assert set(names) <= EVENTS.keys()
    assert found[2].text == "broker 1 led, and nobody leads now; in sync: 1"
    assert found[3].text == (
        "broker 2 leads from leader epoch 2 on, nobody before, by an unclean election: in sync was 1, so records and "
        "markers may be lost"
    )


def test_a_partition_without_a_replica_in_sync() -> None:
    """As with eligible leader replicas (KIP-966); one that has no leader still has none."""
    found = events(*led_by(1, isr=(1,)), change(None, ()), change(None), change(2, (2,)))
    assert [event.event for event in found] == ["topic_created", "no_leader", "unclean_election"]
    assert "in sync: nobody (before: 1)" in (found[1].text or "")
    assert "no replica was in sync" in (found[2].text or "")


def test_a_partition_whose_first_record_is_missing_has_no_events() -> None:
    """What held before is not known, so nothing is called a change, least of all an unclean election."""
    (event,) = events(TOPIC, change(2), change(1, (1,)), change(None, ()))
    assert event.event == "topic_created"


def test_an_eligible_leader_replica_is_elected_cleanly() -> None:
    (_, event) = events(*led_by(1, isr=(1,), eligible_leader_replicas=(2,)), change(2, (2,)))
    assert event.event == "leader_changed"


def test_a_snapshot_has_no_events() -> None:
    of_snapshot = [{**record, "file": "00000000000000000009-0000000001.checkpoint"} for record in led_by(1)]
    (event,) = events(*of_snapshot, change(2, (2,)))
    assert event.event == "leader_changed"
    assert event.text == "broker 2 leads from leader epoch 1 on, broker 1 before; in sync: 2 (before: 1, 2)"


def test_an_aborted_metadata_transaction_has_no_events() -> None:
    """KIP-868; what follows is compared with what held before it."""
    begin, abort, end = ({"type": f"{name}Transaction"} for name in ("Begin", "Abort", "End"))
    found = events(abort, end, *led_by(1), begin, change(2), abort, begin, change(isr=(1,)), end)
    assert [event.event for event in found] == ["topic_created", "isr_changed"]
    assert found[-1].leader_epoch == 0


def test_a_topic_that_is_created_again_begins_anew() -> None:
    again = [{**record, "topic_id": "B", "leader": 2} for record in led_by(1)]
    found = events(*led_by(1), {"type": "RemoveTopic", "topic_id": "A"}, *again)
    assert [event.event for event in found] == ["topic_created", "topic_deleted", "topic_created"]


def test_what_could_not_be_read_is_an_event() -> None:
    (event,) = events({"error": "CORRUPT_BATCH: its checksum differs.", "position": 61})
    assert event.error
    assert event.position == 61


def test_brokers_features_and_settings() -> None:
    broker = {"affected_broker": 2, "broker_epoch": 7}
    setting = {"type": "Config", "config_resource": "topic orders", "config_name": "retention.ms"}
    found = events(
        {"type": "RegisterBroker", **broker, "fenced": True},
        {"type": "BrokerRegistrationChange", **broker, "fenced": False},
        {"type": "BrokerRegistrationChange", **broker, "in_controlled_shutdown": True},
        {"type": "FenceBroker", **broker, "fenced": True},
        {"type": "UnregisterBroker", **broker},
        {"type": "FeatureLevel", "feature": "transaction.version", "feature_level": 1},
        {"type": "FeatureLevel", "feature": "transaction.version", "feature_level": 2},
        {"type": "FeatureLevel", "feature": "transaction.version", "feature_level": 2},
        {**setting, "config_value": "1000"},
        {**setting, "config_value": None},
        {"type": "ProducerIds", **broker, "next_producer_id": 2000},
        {"type": "NoOp"},
    )
    assert [event.event for event in found] == [
        *("broker_registered", "broker_unfenced", "broker_stopping", "broker_fenced", "broker_unregistered"),
        *("feature_finalized", "feature_finalized", "setting_changed", "setting_changed", "producer_ids_allocated"),
    ]
    assert found[6].text == "transaction.version is 2, 1 before"
    assert found[8].text == "topic orders: retention.ms is not set, 1000 before"
    assert found[8].topic == "orders"


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
