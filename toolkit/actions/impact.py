"""What an abort or commit marker changes on its partition: records, the LSO, groups, and their offsets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC, read_group_key, read_offset_commit
from toolkit.sources.live.logs.transaction_records import LastBatch, open_batches

if TYPE_CHECKING:
    from toolkit.formats.log.batch_records import Record
    from toolkit.formats.log.headers import Headers
    from toolkit.schema.live import Finding, Partition, Producer
    from toolkit.sources.live.client.broker_client import BrokerClient

MAX_BYTES = 64 << 20
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerImpact:
    """What a marker changes for read_committed consumers of its partition."""

    # data records of the transaction; null if the log was not read so far. After a commit they become visible; after an
    # abort nobody receives them.
    records: int | None
    size: int | None  # bytes of its batches in the log; also known if the read ended behind its last batch
    # first_offset, last_offset: of its batches that are left in the log; null if there is none, or it is not known
    first_offset: int | None
    last_offset: int | None
    # data records of others behind the LSO that can be read then; null if the log was not read so far
    records_released: int | None
    groups: Sequence[str] | None  # groups that continue; null if unknown
    # last_stable_offset, next_stable_offset: the LSO now, and where it would go
    last_stable_offset: int
    next_stable_offset: int
    # next_start_offset, next_producer_id: the transaction that holds the LSO then; null if none does
    next_start_offset: int | None
    next_producer_id: int | None
    unread: str = ""  # why a count is null; empty if none is


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """An offset that a group committed within the transaction; a null offset removes the group's."""

    group_id: str
    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteImpact(MarkerImpact):
    """What the marker that is missing changes."""

    # on ``__consumer_offsets``, the offsets that become their groups', the newest of each; empty elsewhere. A group
    # that has committed a newer offset since keeps that one.
    offset_commits: Sequence[OffsetCommitted]


def marker_impact(
    client: BrokerClient, finding: Finding, *, partition: Partition, producers: Sequence[Producer]
) -> MarkerImpact:
    """What ending a transaction changes; reads the log from it to the high watermark, at most some megabytes.

    `partition`: its partition, without error. `producers`: the producers of that partition, as its leader has them.
    """
    start, lso = finding.start_offset or 0, partition.last_stable_offset or 0
    high_watermark = partition.high_watermark or 0
    others = [
        (each.current_txn_start_offset, each.producer_id)
        for each in producers
        if each.current_txn_start_offset is not None and each.producer_id != finding.producer_id
    ]
    next_start, next_producer = min(others, default=(None, None))
    next_lso = max(lso, min(high_watermark, high_watermark if next_start is None else next_start))
    headers, unread = _headers(client, partition, max(min(start, lso), partition.log_start_offset or 0), high_watermark)
    records = released = None
    if not unread:
        from toolkit.analysis.diagnosis.evidence.abort_effects import (
            abort_effects,  # imports numpy, which a refused plan does not need
        )

        records, released = abort_effects(
            headers,
            producer_id=finding.producer_id or 0,
            start_offset=start,
            last_stable_offset=lso,
            next_stable_offset=next_lso,
        )
    own = _own_batches(headers, finding, producers, is_whole=not unread)
    return MarkerImpact(
        records=records,
        records_released=released,
        groups=finding.groups_held if next_lso > lso else (),
        size=None if own is None else int(own["size"].sum()),
        first_offset=int(own["base_offset"][0]) if own is not None and len(own) else None,
        last_offset=int(own["last_offset"][-1]) if own is not None and len(own) else None,
        last_stable_offset=lso,
        next_stable_offset=next_lso,
        next_start_offset=next_start,
        next_producer_id=next_producer,
        unread=unread,
    )


def complete_impact(
    client: BrokerClient, finding: Finding, *, partition: Partition, producers: Sequence[Producer], last: LastBatch
) -> CompleteImpact:
    """`marker_impact`, and the offsets that the transaction commits.

    `client`, `finding`, `partition`, `producers`: as for `marker_impact`. `last`: the transaction's last batch.
    """
    impact = marker_impact(client, finding, partition=partition, producers=producers)
    values = asdict(impact)
    if finding.topic != OFFSETS_TOPIC:
        return CompleteImpact(**values, offset_commits=())
    try:
        return CompleteImpact(**values, offset_commits=offset_commits(client, finding, partition=partition, last=last))
    except ToolkitError as error:
        return CompleteImpact(**{**values, "unread": error.what}, offset_commits=())


def offset_commits(
    client: BrokerClient, finding: Finding, *, partition: Partition, last: LastBatch
) -> tuple[OffsetCommitted, ...]:
    """The newest offset of each group and partition that the transaction commits."""
    found: dict[tuple[str, str, int], OffsetCommitted] = {}
    for batch in open_batches(
        client, partition, producer_id=finding.producer_id or 0, start_offset=finding.start_offset or 0, last=last
    ):
        for record in batch.records():
            commit = _decoded(record)
            if commit is not None:
                found[commit.group_id, commit.topic, commit.partition] = commit
    return tuple(found[key] for key in sorted(found))


def _decoded(record: Record) -> OffsetCommitted | None:
    """Null for what is no offset commit.

    Raises DecodeError if a newer Kafka wrote it: a plan without it would leave out a group.
    """
    key = read_group_key(record.key or b"")
    if key is None or key.topic is None or key.partition is None:
        return None
    offset = None if record.value is None else read_offset_commit(record.value).offset
    return OffsetCommitted(group_id=key.group_id, topic=key.topic, partition=key.partition, offset=offset)


def _own_batches(
    headers: Headers, finding: Finding, producers: Sequence[Producer], *, is_whole: bool
) -> Headers | None:
    """The transaction's batches; null if its last one, by the leader's state, was not read."""
    from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL

    is_data = (headers["attributes"] & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL
    is_own = (headers["producer_id"] == finding.producer_id) & (headers["last_offset"] >= (finding.start_offset or 0))
    own: Headers = headers[is_data & is_own]
    if is_whole:
        return own
    state = next((each for each in producers if each.producer_id == finding.producer_id), None)
    if state is None or not len(own):
        return None
    last = own[-1]
    sequence = (int(last["base_sequence"]) + int(last["last_offset"]) - int(last["base_offset"])) % (1 << 31)
    return own if (int(last["producer_epoch"]), sequence) == (state.producer_epoch, state.last_sequence) else None


def _headers(client: BrokerClient, partition: Partition, first: int, stop: int) -> tuple[Headers, str]:
    """Batches of a range, and why they are incomplete; empty if they are complete."""
    import numpy as np

    from toolkit.formats.log.headers import HEADER
    from toolkit.sources.live.logs.partition_log import read_offsets

    parts: list[Headers] = [np.empty(0, HEADER)]
    size, deadline, unread = 0, time.monotonic() + TIMEOUT_S, ""
    with closing(read_offsets(client, partition, first, stop).chunks) as chunks:
        for chunk in chunks:
            errors = [chunk.error] if chunk.error else [each.reason for each in chunk.damage]
            if errors:
                unread = f"The log could not be read: {errors[0]}"
                break
            parts.append(chunk.headers)
            size += len(chunk.records)
            reached = int(parts[-1]["last_offset"][-1]) + 1 if len(parts[-1]) else stop
            if reached < stop and (size >= MAX_BYTES or time.monotonic() > deadline):
                unread = f"The log was read from offset {first} to {reached} ({size} bytes) and not to {stop}."
                break
    return np.concatenate(parts), unread
