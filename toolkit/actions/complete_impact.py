"""What becomes visible by the marker that is missing, and to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.actions.log_impact import log_impact
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC, read_group_key, read_offset_commit
from toolkit.sources.live.logs.transaction_records import LastBatch, open_batches

if TYPE_CHECKING:
    from toolkit.formats.log.batch_records import Record
    from toolkit.schema.live import Finding, Partition, Producer
    from toolkit.sources.live.client.broker_client import BrokerClient


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """An offset that a group committed within the transaction; a null offset removes the group's."""

    group_id: str
    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteImpact:
    """What the marker changes for read_committed consumers of the partition.

    Parameters
    ----------
    records, size
        Data records of the transaction, and the bytes of its batches in the log; null if the log was not read so far.
        After a commit they become visible; after an abort nobody receives them.
    first_offset, last_offset
        Where they are; null if unknown, or if none is left.
    records_released
        Data records of others behind the LSO that can be read then; null likewise.
    groups
        Groups that continue; null if unknown.
    offset_commits
        On ``__consumer_offsets``, the offsets that become their groups', the newest of each; empty elsewhere. A group
        that has committed a newer offset since keeps that one.
    last_stable_offset, next_stable_offset
        The LSO now, and where it would go.
    next_start_offset, next_producer_id
        The transaction that holds the LSO then; null if none does.
    unread
        Why a count is null; empty if none is.
    """

    records: int | None
    size: int | None
    first_offset: int | None
    last_offset: int | None
    records_released: int | None
    groups: Sequence[str] | None
    offset_commits: Sequence[OffsetCommitted]
    last_stable_offset: int
    next_stable_offset: int
    next_start_offset: int | None
    next_producer_id: int | None
    unread: str = ""


def complete_impact(
    client: BrokerClient, finding: Finding, *, partition: Partition, producers: Sequence[Producer], last: LastBatch
) -> CompleteImpact:
    """What becomes visible; reads the log from the transaction to the high watermark, at most some megabytes.

    Parameters
    ----------
    client
        The connection to the brokers.
    finding
        The transaction.
    partition
        Its partition, without error.
    producers
        The producers of that partition, as its leader has them.
    last
        The transaction's last batch.
    """
    log = log_impact(client, finding, partition=partition, producers=producers)
    commits: Sequence[OffsetCommitted] = ()
    unread = log.unread
    if finding.topic == OFFSETS_TOPIC:
        try:
            commits = offset_commits(client, finding, partition=partition, last=last)
        except ToolkitError as error:
            unread = error.what
    groups = finding.groups_held if log.next_stable_offset > log.last_stable_offset else ()
    return CompleteImpact(
        records=log.records,
        size=log.size,
        first_offset=log.first_offset,
        last_offset=log.last_offset,
        records_released=log.released,
        groups=groups,
        offset_commits=commits,
        last_stable_offset=log.last_stable_offset,
        next_stable_offset=log.next_stable_offset,
        next_start_offset=log.next_start_offset,
        next_producer_id=log.next_producer_id,
        unread=unread,
    )


def offset_commits(
    client: BrokerClient, finding: Finding, *, partition: Partition, last: LastBatch
) -> tuple[OffsetCommitted, ...]:
    """The newest offset of each group and partition that the transaction commits."""
    found: dict[tuple[str, str, int], OffsetCommitted] = {}
    for batch in open_batches(
        client,
        partition,
        producer_id=finding.producer_id or 0,
        start_offset=finding.start_offset or 0,
        last=last,
    ):
        for record in batch.records():
            commit = _decoded(record)
            if commit is not None:
                found[commit.group_id, commit.topic, commit.partition] = commit
    return tuple(found[key] for key in sorted(found))


def _decoded(record: Record) -> OffsetCommitted | None:
    """Null for what is no offset commit.

    Raises
    ------
    DecodeError
        If a newer Kafka wrote it: a plan without it would leave out a group.
    """
    key = read_group_key(record.key or b"")
    if key is None or key.topic is None or key.partition is None:
        return None
    offset = None if record.value is None else read_offset_commit(record.value).offset
    return OffsetCommitted(group_id=key.group_id, topic=key.topic, partition=key.partition, offset=offset)
