"""The offsets of a group, and whether those that are pending agree with the open transactions on its partition.

A group coordinator keeps the offsets of open transactions in memory, and reads them from its log when it loads. The
partition's leader keeps the open transactions. The two differ if the group or its offsets were deleted while a
transaction was open (KAFKA-19163, KAFKA-19164), or if a marker is no longer in the log while the producer state has
seen it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.schema.live import Partition, Producer, open_starts
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.group_offsets import ListedGroup, committed_offsets, pending_offsets
from toolkit.sources.live.state.leaders import read_metadata, read_partitions
from toolkit.sources.live.state.producer_states import read_producers
from toolkit.sources.offset_queries.group_lag import DELETED, NO_TRANSACTION, CommittedOffset

PAUSE_S = 1.0
"""A commit that its coordinator has accepted is in the log by then, or its replicas are behind."""
MAX_OFFSETS = 1_000_000
"""Of the log behind the first open transaction, to find offsets that were deleted; a longer one is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupPartition:
    """A group's partition of ``__consumer_offsets``, and its producers, as the leader has them."""

    partition: Partition
    producers: Collection[Producer]

    @property
    def opened(self) -> Mapping[int, int]:
        """First offsets of the open transactions, by producer id."""
        return open_starts(self.producers)

    @property
    def quiet_at(self) -> int | None:
        """The high watermark if nothing is open below it; null if something is, or that is not known.

        A marker that is not replicated yet does not move the LSO.
        """
        end = self.partition.high_watermark
        is_known = not self.partition.error and not any(each.error for each in self.producers)
        return end if is_known and not self.opened and self.partition.last_stable_offset == end else None


def offsets_of_group(client: BrokerClient, group: str, coordinator_id: int) -> dict[TopicPartition, CommittedOffset]:
    """Every committed offset of a group; null with an error where it is pending, or was deleted while it was.

    Raises BrokerError or ConnectionFailed if the coordinator does not respond.
    """
    topic = CoordinatorTopic.read(client, OFFSETS_TOPIC)
    before = _read(client, topic, group)
    everywhere = read_metadata(client, None).partitions
    pending = pending_offsets(client, group, coordinator_id, everywhere)
    found = dict(pending)
    if before is not None and before.opened:
        found = _deleted(client, topic, group, coordinator_id, before) | found
    elif before is not None and pending and before.quiet_at is not None:
        threading.Event().wait(PAUSE_S)
        again = pending_offsets(client, group, coordinator_id, pending)
        after = _read(client, topic, group)
        if after is not None and after.quiet_at == before.quiet_at:  # nothing was written, so no transaction began
            error = NO_TRANSACTION.format(before.partition.partition)
            found |= {tp: CommittedOffset(None, error) for tp in again if tp in pending}
    committed = committed_offsets(client, group, coordinator_id)
    return committed | {tp: each for tp, each in found.items() if tp not in committed or committed[tp].error}


def deleted_group(client: BrokerClient, group: str) -> ListedGroup | None:
    """A group that no broker lists, if an open transaction has committed offsets of it; else null."""
    topic = CoordinatorTopic.read(client, OFFSETS_TOPIC)
    now = _read(client, topic, group)
    leader = now.partition.leader if now is not None else None
    if now is None or leader is None or not _deleted(client, topic, group, leader, now):
        return None
    return ListedGroup(leader, "")


def _read(client: BrokerClient, topic: CoordinatorTopic, group: str) -> _GroupPartition | None:
    own = (OFFSETS_TOPIC, topic.partition(group))
    known = {tp: each for tp, each in topic.metadata.partitions.items() if tp == own}
    if not known:
        return None
    producers = read_producers(client, known, idle_producers=False)
    (partition,) = read_partitions(client, known)
    return _GroupPartition(partition=partition, producers=producers)


def _deleted(
    client: BrokerClient, topic: CoordinatorTopic, group: str, coordinator_id: int, before: _GroupPartition
) -> dict[TopicPartition, CommittedOffset]:
    """Offsets that transactions have committed, which are open before and after, and that are not pending between."""
    from toolkit.sources.live.logs.coordinator_logs import offsets_log_records  # imports numpy

    number, end = before.partition.partition, before.partition.high_watermark
    if not before.opened or end is None or end - min(before.opened.values()) > MAX_OFFSETS:
        return {}
    written: dict[TopicPartition, tuple[int, int]] = {}
    for record in offsets_log_records(client, topic, [number], start={number: min(before.opened.values())}):
        if record.error:
            return {}
        start = before.opened.get(record.producer_id) if record.producer_id is not None else None
        if record.group_id == group and record.is_transactional and start is not None and start <= (record.offset or 0):
            tp = TopicPartition(record.topic or "", record.partition or 0)
            written[tp] = (record.producer_id or 0, record.committed_offset or 0)
    pending = pending_offsets(client, group, coordinator_id, written) if written else {}
    after = _read(client, topic, group) if written.keys() - pending.keys() else None
    return {
        tp: CommittedOffset(None, DELETED.format(offset))
        for tp, (producer_id, offset) in written.items()
        if tp not in pending and after is not None and after.opened.get(producer_id) == before.opened[producer_id]
    }
