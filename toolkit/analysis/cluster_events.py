"""What happened to the cluster, by the metadata log: leaders, in-sync replicas, brokers, features, settings, topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.metadata_records import MetadataState
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.log import FROM_METADATA, ClusterEvent, MetadataLogRecord

UNCLEAN = "unclean_election"
SNAPSHOT = ".checkpoint"
LEADER_EVENTS = ("leader_changed", "no_leader", UNCLEAN)
IN_METADATA = (*LEADER_EVENTS, "isr_changed")


def metadata_events(records: Iterable[MetadataLogRecord]) -> Iterator[ClusterEvent]:
    """The events of one replica of the metadata log.

    In the order of the log. What a metadata transaction (KIP-868) aborts is left out. An unreadable range is an event
    with `error`.
    `records`: its records in order, each partition's with all that holds after it, as the table ``metadata_log`` has
    them. A snapshot is no event: it says what held at its end.
    """
    cluster = MetadataState()
    pending: list[ClusterEvent] | None = None  # of a transaction that is open
    for record in records:
        events = list(_events(record, cluster))
        cluster.keep(record)
        if record.type == "BeginTransaction":
            pending = []
        elif record.type in ("EndTransaction", "AbortTransaction"):
            yield from pending if pending and record.type == "EndTransaction" else ()
            pending = None
        elif pending is None:
            yield from events
        else:
            pending += events


def _events(record: MetadataLogRecord, cluster: MetadataState) -> Iterator[ClusterEvent]:
    """The events of a record, by what held before it."""
    event = ClusterEvent.of_record(
        record, leader=None, leader_epoch=None, source=FROM_METADATA, broker_id=record.metadata_node_id
    )
    if record.error:
        yield event
    elif (record.file or "").endswith(SNAPSHOT):
        return
    elif record.partition is not None:
        event = replace(event, leader=record.leader, leader_epoch=record.leader_epoch)
        yield from _of_partition(event, record, cluster.partitions.get((record.topic_id or "", record.partition)))
    else:
        yield from _of_cluster(event, record, cluster)


def _of_partition(
    event: ClusterEvent, record: MetadataLogRecord, before: MetadataLogRecord | None
) -> Iterator[ClusterEvent]:
    if before is None or before.leader_epoch is None:  # new; or its first record is missing, which an error says
        return
    isr, isr_before = record.isr or (), before.isr or ()
    now_in_sync = f"in sync: {_brokers(isr)}"
    changed = "" if isr == isr_before else f" (before: {_brokers(isr_before)})"
    if record.leader is None and before.leader is not None:
        text = f"broker {before.leader} led, and nobody leads now; {now_in_sync}{changed}"
        yield replace(event, event="no_leader", text=text)
    elif record.leader is not None and (record.leader, record.leader_epoch) != (before.leader, before.leader_epoch):
        led = "nobody" if before.leader is None else f"broker {before.leader}"
        text = f"broker {record.leader} leads from leader epoch {record.leader_epoch} on, {led} before"
        if record.leader in {*isr_before, *(before.eligible_leader_replicas or ())}:
            yield replace(event, event="leader_changed", text=f"{text}; {now_in_sync}{changed}")
        else:
            in_sync = f"in sync was {_brokers(isr_before)}" if isr_before else "no replica was in sync"
            text += f", by an unclean election: {in_sync}, so records and markers may be lost"
            yield replace(event, event=UNCLEAN, text=text)
    elif changed:
        yield replace(event, event="isr_changed", text=now_in_sync + changed)


def _of_cluster(event: ClusterEvent, record: MetadataLogRecord, cluster: MetadataState) -> Iterator[ClusterEvent]:
    broker = f"broker {record.affected_broker}"
    if record.type == "Topic":
        yield replace(event, event="topic_created", text=f"topic {record.topic} was created")
    elif record.type == "RemoveTopic":
        yield replace(event, event="topic_deleted", text=f"topic {record.topic} was deleted")
    elif record.type == "RegisterBroker":
        text = f"{broker} started and registered, broker epoch {record.broker_epoch}"
        yield replace(event, event="broker_registered", text=text)
    elif record.type == "UnregisterBroker":
        yield replace(event, event="broker_unregistered", text=f"{broker} was removed from the cluster")
    elif record.feature is not None and cluster.features.get(record.feature) != record.feature_level:
        text = f"{record.feature} is {record.feature_level}, {_value(cluster.features.get(record.feature))} before"
        yield replace(event, event="feature_finalized", text=text)
    elif record.config_name is not None:
        kind, _, name = (record.config_resource or "").partition(" ")
        before = _value(cluster.settings.get((record.config_resource or "", record.config_name)))
        text = f"{record.config_resource}: {record.config_name} is {_value(record.config_value)}, {before} before"
        yield replace(event, event="setting_changed", topic=name if kind == "topic" else None, text=text)
    elif record.next_producer_id is not None:
        text = f"{broker} got the producer ids up to {record.next_producer_id - 1}"
        yield replace(event, event="producer_ids_allocated", text=text)
    elif record.affected_broker is not None:
        if record.in_controlled_shutdown:
            yield replace(event, event="broker_stopping", text=f"{broker} began its controlled shutdown")
        if record.fenced:
            yield replace(event, event="broker_fenced", text=f"{broker} was fenced: it leads nothing")
        elif record.fenced is False:
            yield replace(event, event="broker_unfenced", text=f"{broker} may lead again")


def events_around(
    events: Iterable[ClusterEvent],
    tp: tuple[str | None, int | None],
    *,
    transactional_ids: Collection[str | None],
    txn_state_partitions: Collection[int | None],
) -> Iterator[ClusterEvent]:
    """The events that bear on a partition's transactions.

    About the partition or its topic, the leaders of the coordinators, an id, or a broker that came or went; and what
    could not be read. Leaders and in-sync replicas are those of the metadata log, if it was read, from its first event
    on: every controller and replica logs them, too.
    `events`: of the whole cluster.
    `txn_state_partitions`: their partitions of ``__transaction_state``.
    """
    events = list(events)
    decided = [event for event in events if event.source == FROM_METADATA]
    is_decided = any(event.event for event in decided) and not any(event.error for event in decided)
    begins = min((event.timestamp for event in decided if event.timestamp), default=None)
    for event in events:
        is_before = begins is not None and event.timestamp is not None and event.timestamp < begins - CLOCKS_DIFFER
        if is_decided and event.source != FROM_METADATA and event.event in IN_METADATA and not is_before:
            continue
        if event.error:
            is_near = True
        elif event.transactional_id is not None:
            is_near = event.transactional_id in transactional_ids
        elif event.topic is None:
            is_near = event.affected_broker is not None and event.event != "producer_ids_allocated"
        elif event.topic == STATE_TOPIC:
            is_near = event.partition in txn_state_partitions
        else:
            is_near = event.topic == tp[0] and event.partition in (None, tp[1])
        if is_near:
            yield event


def _brokers(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "nobody"


def _value(value: object) -> str:
    return "not set" if value is None else str(value)
