"""Hanging transactions: no coordinator will end them."""

from __future__ import annotations

import datetime as dt
import uuid

from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import coordinator_partition
from toolkit.lab.producer import TxnProducer
from toolkit.lab.queries import LeaderTransaction, leader, open_transactions, partitions, send_until_accepted, until
from toolkit.lab.staging import EVERYDAY, NEGLECTFUL, Stage, StagedIncident, incident
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_never_added(stage: Stage, *, records: int = 1) -> StagedIncident:
    """A producer wrote to a partition that it never added to its transaction, so no coordinator will end it there.

    InitProducerId, then Produce, without AddPartitionsToTxn.
    """
    stage.create_topic()
    producer = stage.producer()
    return stage.staged(producer, producer.send(stage.topic, stage.partition, records=records))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_late_message(stage: Stage) -> StagedIncident:
    """A batch arrived after its transaction was aborted and opened another one that the coordinator knows nothing of.

    The abort marker overtook a batch in flight, or a retry of it.
    """
    return _late(stage, commit=False)


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_late_after_commit(stage: Stage) -> StagedIncident:
    """A batch arrived after its transaction was committed and opened one that the coordinator knows nothing of."""
    return _late(stage, commit=True)


def _late(stage: Stage, *, commit: bool) -> StagedIncident:
    stage.create_topic()
    producer = stage.producer()
    producer.add(stage.topic, stage.partition)
    producer.send(stage.topic, stage.partition)
    producer.end(commit=commit)
    return stage.staged(producer, producer.send(stage.topic, stage.partition))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_offsets_never_added(stage: Stage, *, group: str | None = None) -> StagedIncident:
    """A producer committed a group's offset without adding the group to its transaction, and now the group is stuck.

    TxnOffsetCommit without AddOffsetsToTxn. The open transaction is on the group's partition of
    ``__consumer_offsets``, not on the topic that the group reads.
    """
    stage.create_topic()
    producer = stage.producer()
    group = group or _group_of_its_own(stage)
    producer.commit_offset(group, stage.topic, stage.partition, offset=0)
    partition, opened = _on_consumer_offsets(stage.cluster, producer)
    return stage.staged(producer, opened.start_offset, topic=OFFSETS_TOPIC, partition=partition, group=group)


def _group_of_its_own(stage: Stage) -> str:
    """A new group, on a partition of ``__consumer_offsets`` without an open transaction."""
    known = partitions(stage.cluster, OFFSETS_TOPIC)
    while True:
        group = f"{stage.plot.name}-{uuid.uuid4().hex[:6]}"
        partition = coordinator_partition(group, len(known)) if known else None
        if partition is None or not open_transactions(stage.cluster, OFFSETS_TOPIC, partition):
            return group


def _on_consumer_offsets(cluster: BrokerClient, producer: TxnProducer) -> tuple[int, LeaderTransaction]:
    """The partition of ``__consumer_offsets`` where a producer has a transaction open, found by querying all."""
    for partition in sorted(partitions(cluster, OFFSETS_TOPIC)):
        for opened in open_transactions(cluster, OFFSETS_TOPIC, partition):
            if opened.producer_id == producer.producer_id:
                return partition, opened
    raise AssertionError("an accepted TxnOffsetCommit is an open transaction")


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_superseded_elsewhere(stage: Stage) -> StagedIncident:
    """A producer left a transaction open that nobody knows of, and its successor of the next epoch works elsewhere."""
    stage.create_topic()
    dead = stage.producer()
    start = dead.send(stage.topic, stage.partition)
    alive = TxnProducer(stage.cluster, dead.transactional_id).init()
    beyond = stage.partition + 1
    alive.add(stage.topic, beyond)
    also = stage.staged(alive, alive.send(stage.topic, beyond), partition=beyond, expected="ongoing")
    return stage.staged(dead, start, also=(also,), closing=stage.finishing(alive))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_superseded_same_partition(stage: Stage) -> StagedIncident:
    """A producer left a transaction open, and its successor has added the same partition: its commit will publish both.

    The successor has written nothing here yet. `close` commits it, as its application would: if the dead epoch's
    records are still open then, they become visible to read_committed.
    """
    stage.create_topic()
    dead = stage.producer()
    start = dead.send(stage.topic, stage.partition)
    alive = TxnProducer(stage.cluster, dead.transactional_id).init()
    alive.add(stage.topic, stage.partition)
    return stage.staged(dead, start, closing=stage.finishing(alive))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_busy_elsewhere(stage: Stage) -> StagedIncident:
    """A producer wrote to a partition that its transaction, open and healthy on another one, does not have."""
    stage.create_topic()
    producer = stage.producer()
    beyond = stage.partition + 1
    start = producer.send(stage.topic, stage.partition)
    producer.add(stage.topic, beyond)
    also = stage.staged(producer, producer.send(stage.topic, beyond), partition=beyond, expected="ongoing")
    return stage.staged(producer, start, also=(also,), closing=stage.finishing(producer))


@incident("hanging", outcome="undecided", action="abort", setup=NEGLECTFUL, since="3.0.0")
def stage_orphan(stage: Stage) -> StagedIncident:
    """A transaction stayed open until the coordinator forgot the id that it belongs to.

    transactional.id.expiration.ms has passed (3 s here, a week by default).
    """
    stage.create_topic()
    producer = stage.producer()
    start = producer.send(stage.topic, stage.partition)
    brokers = list(stage.cluster.brokers)
    until(
        lambda: None if any(producer.producer_id in _listed(stage.cluster, each) for each in brokers) else True,
        awaited=f"the coordinator to forget {producer.transactional_id!r}",
    )
    return stage.staged(producer, start)


def _listed(cluster: BrokerClient, broker_id: int) -> set[int]:
    """Producer id of every transactional id that a coordinator lists."""
    listing = send_until_accepted(
        cluster,
        lambda: messages.ListTransactions(state_filters=[], producer_id_filters=[], max_version=0),
        of=f"broker {broker_id}",
        to=lambda: broker_id,
        codes=lambda message: [message.error_code],
    )
    return {each.producer_id for each in listing.transaction_states}


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_head_deleted(stage: Stage, *, all_of_it: bool = False) -> StagedIncident:
    """A transaction hangs although the records that it starts with are deleted: retention does not end it.

    DeleteRecords to the middle of its second batch, so that from Kafka 4 on the LSO lies below the log
    start offset. With `all_of_it` every record is gone and the LSO is the high watermark, until somebody writes.
    """
    stage.create_topic()
    producer = stage.producer()
    start = producer.send(stage.topic, stage.partition, records=2)
    second = producer.send(stage.topic, stage.partition, records=5)
    _delete_records(stage, before=second + (5 if all_of_it else 2))
    return stage.staged(producer, start)


def _delete_records(stage: Stage, *, before: int) -> None:
    request = messages.DeleteRecords.DeleteRecordsTopic
    one = request.DeleteRecordsPartition(partition_index=stage.partition, offset=before)
    send_until_accepted(
        stage.cluster,
        lambda: messages.DeleteRecords(
            topics=[request(name=stage.topic, partitions=[one])], timeout_ms=10_000, max_version=1
        ),
        of=f"{stage.topic}-{stage.partition}",
        to=lambda: leader(stage.cluster, stage.topic, stage.partition),
        codes=lambda message: [message.topics[0].partitions[0].error_code],
    )


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_future_clock(stage: Stage) -> StagedIncident:
    """A transaction hangs whose producer's clock is 50 minutes ahead, so that tools that trust it call it young."""
    stage.create_topic()
    producer = stage.producer()
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=50)
    return stage.staged(producer, producer.send(stage.topic, stage.partition, timestamp=ahead))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_several_open(stage: Stage) -> StagedIncident:
    """Three transactions are open on one partition: one hangs, a healthy one follows, then another hangs."""
    stage.create_topic()
    first, healthy, last = stage.producer(), stage.producer(), stage.producer()
    start = first.send(stage.topic, stage.partition)
    healthy.add(stage.topic, stage.partition)
    also = (
        stage.staged(healthy, healthy.send(stage.topic, stage.partition), expected="ongoing"),
        stage.staged(last, last.send(stage.topic, stage.partition)),
    )
    return stage.staged(first, start, also=also, closing=stage.finishing(healthy))
