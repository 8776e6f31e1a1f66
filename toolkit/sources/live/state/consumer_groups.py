"""Consumer groups that a held LSO keeps from moving (ListGroups, OffsetFetch)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.analysis.diagnosis.verdicts import BRIEF
from toolkit.errors import BrokerError, ConnectionFailed, DecodeError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.log.batches import read_header
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse
from toolkit.sources.live.client.error_codes import error_text
from toolkit.sources.live.logs.fetch import FetchedBatches, FetchPosition, fetch
from toolkit.sources.live.state.cluster_metadata import (
    read_metadata,
)
from toolkit.sources.live.state.coordinators import CoordinatorTopic

__all__ = [
    "WITH_OFFSETS",
    "committed_offsets",
    "group_ids",
    "groups_at",
    "groups_held",
    "listed_groups",
    "offsets_of_groups",
    "unstable_groups",
    "with_groups",
]

GROUPS_PER_REQUEST = 200
NEAR = 1000  # offsets before the LSO; a group that stands further back is taken to be behind by itself
ENOUGH = 1 << 17  # bytes
UNSTABLE_OFFSET_COMMIT = 88
WITH_OFFSETS = {"consumer", ""}  # protocol types whose groups commit offsets; others are Connect, share groups ...


def group_ids(client: BrokerClient, brokers: Iterable[int]) -> dict[str, int]:
    """Group id to its coordinator's broker id, of groups that commit offsets.

    Raises
    ------
    BrokerError, ConnectionFailed
        If a broker does not list its groups.
    """
    listed = listed_groups(client, brokers).items()
    return {group: broker_id for group, (broker_id, protocol_type) in listed if protocol_type in WITH_OFFSETS}


def listed_groups(client: BrokerClient, brokers: Iterable[int]) -> dict[str, tuple[int, str]]:
    """Group id to its coordinator's broker id and its protocol type, of groups of every kind.

    Raises
    ------
    BrokerError, ConnectionFailed
        As `group_ids`.
    """
    groups: dict[str, tuple[int, str]] = {}
    asked = list(brokers)
    for broker_id, response in zip(asked, client.send([(each, messages.ListGroups()) for each in asked]), strict=True):
        if response.error:
            raise response.error
        if response.message.error_code:
            error = error_text(response.message.error_code)
            raise BrokerError(f"Broker {broker_id} did not list its groups: {error}", code=error.partition(":")[0])
        for group in response.message.groups:
            groups[group.group_id] = broker_id, group.protocol_type
    return groups


def committed_offsets(
    client: BrokerClient, group: str, coordinator_id: int
) -> dict[TopicPartition, tuple[int | None, str | None]]:
    """Every offset that a group has committed, null with its error where an open transaction has committed another.

    Parameters
    ----------
    group, coordinator_id
        Whose, and the broker to ask.

    Raises
    ------
    BrokerError, ConnectionFailed
        If the coordinator does not answer.
    """
    ((_, response, message),) = _offset_fetches(client, {group: coordinator_id}, topics=None)
    if response.error:
        raise response.error
    code = message.error_code if message is not None else 0
    if message is None or code:
        error = error_text(code) if code else "no answer"
        raise BrokerError(f"Group {group!r} has no offsets to tell: {error}", code=error.partition(":")[0])
    return {
        (topic.name, part.partition_index): (None, error_text(part.error_code))
        if part.error_code
        else (part.committed_offset if part.committed_offset >= 0 else None, None)
        for topic in message.topics
        for part in topic.partitions
    }


def offsets_of_groups(
    client: BrokerClient, partitions: Sequence[TopicPartition]
) -> list[tuple[str, dict[TopicPartition, int]]] | None:
    """The offsets that groups have committed on some partitions, negative for none; null if one could not be asked.

    Parameters
    ----------
    partitions
        Which; every group that the brokers list is asked for them.
    """
    try:
        return _committed(client, group_ids(client, sorted(client.brokers)), partitions)
    except (BrokerError, ConnectionFailed):
        return None


def with_groups(client: BrokerClient, rows: Sequence[Row]) -> list[Row]:
    """Rows of ``schema.FINDINGS`` with the groups that wait at a held LSO, where that could be read."""
    held = [
        FetchPosition((row["topic"], row["partition"]), row["last_stable_offset"], row["broker_id"])
        for row in rows
        if row["queue_position"] == 1 and row["verdict"] not in BRIEF and row["last_stable_offset"] is not None
    ]
    groups = groups_held(client, held) if held else {}
    return [
        {**row, "groups_held": _union(row["groups_held"], groups.get((row["topic"], row["partition"])))}
        if row["queue_position"] == 1
        else row
        for row in rows
    ]


def groups_held(client: BrokerClient, held: Sequence[FetchPosition]) -> dict[TopicPartition, list[str]]:
    """Groups that cannot move because of what holds an LSO; a partition of which that is not known is left out.

    Parameters
    ----------
    held
        The LSO of each partition, and its leader.
    """
    offsets = [fetch_position for fetch_position in held if fetch_position.tp[0] == OFFSETS_TOPIC]
    data = [fetch_position for fetch_position in held if fetch_position.tp[0] != OFFSETS_TOPIC]
    found = (groups_at(client, sorted(client.brokers), data) if data else None) or {}
    unstable = (unstable_groups(client, {s.tp[1]: s.broker_id for s in offsets}) if offsets else None) or {}
    return found | {(OFFSETS_TOPIC, number): groups for number, groups in unstable.items() if groups}


def groups_at(
    client: BrokerClient, brokers: Iterable[int], held: Sequence[FetchPosition]
) -> dict[TopicPartition, list[str]] | None:
    """Groups that have read all that read_committed lets them.

    Their committed offset is the LSO, or lies before it with nothing in between that a read_committed consumer is
    given: librdkafka commits the offset after the last record, not after the markers that follow it.

    Parameters
    ----------
    held
        The LSO of each partition, and its leader.

    Returns
    -------
    dict or None
        Group ids by partition, sorted; null if a group could not be asked. Groups that this principal may not
        describe are not shown by brokers at all.
    """
    try:
        offsets = _committed(client, group_ids(client, brokers), [fetch_position.tp for fetch_position in held])
    except (BrokerError, ConnectionFailed):
        return None
    if offsets is None:
        return None
    found = {}
    for fetch_position in held:
        standing = _waiting(
            client, fetch_position, {at[fetch_position.tp] for _, at in offsets if fetch_position.tp in at}
        )
        found[fetch_position.tp] = sorted(group for group, at in offsets if at.get(fetch_position.tp) in standing)
    return found


def unstable_groups(client: BrokerClient, partitions: Mapping[int, int]) -> dict[int, list[str]] | None:
    """Groups with an offset that an open transaction committed: they cannot be told where to go on reading.

    A consumer that asks for stable offsets gets UNSTABLE_OFFSET_COMMIT until the transaction ends. A group that never
    committed another offset of the same partition does not show before Kafka is asked for that very partition.

    Parameters
    ----------
    partitions
        Partition of ``__consumer_offsets`` to its leader's broker id.

    Returns
    -------
    dict or None
        Group ids by partition, sorted; null if a group could not be asked.
    """
    try:
        coordinator_topic = CoordinatorTopic(OFFSETS_TOPIC, read_metadata(client, [OFFSETS_TOPIC]))
        listed = group_ids(client, sorted(set(partitions.values())))
        mine = {group: leader for group, leader in listed.items() if coordinator_topic.partition(group) in partitions}
        responses = _offset_fetches(client, mine, topics=None)
    except (BrokerError, ConnectionFailed):
        return None
    found: dict[int, list[str]] = {number: [] for number in partitions}
    for group, response, message in responses:
        if response.error or message is None or message.error_code:
            return None
        codes = {part.error_code for topic in message.topics for part in topic.partitions}
        if UNSTABLE_OFFSET_COMMIT in codes:
            found[coordinator_topic.partition(group) or 0].append(group)
    return {number: sorted(groups) for number, groups in found.items()}


def _union(some: Collection[str] | None, others: Collection[str] | None) -> list[str] | None:
    """Names of both, sorted; null where neither is known."""
    return None if some is None and others is None else sorted({*(some or ()), *(others or ())})


def _waiting(client: BrokerClient, lso: FetchPosition, committed: set[int]) -> set[int]:
    """Those of the committed offsets from which nothing can be read up to the LSO, and the LSO."""
    near = [replace(lso, offset=at) for at in committed if max(0, lso.offset - NEAR) <= at < lso.offset]
    pairs = zip(near, fetch(client, near, max_bytes=ENOUGH, read_committed=True), strict=True)
    return {
        lso.offset,
        *(
            fetch_position.offset
            for fetch_position, one in pairs
            if _is_unreadable(one, fetch_position.offset, lso.offset)
        ),
    }


def _is_unreadable(found: FetchedBatches, start: int, end: int) -> bool:
    """Whether every batch from an offset up to another is a marker or was aborted."""
    aborted = {producer_id: sorted(firsts) for producer_id, firsts in found.aborted.items()}
    position, reached = 0, start
    try:
        while reached < end:
            header = read_header(found.records, position)
            firsts = aborted.get(header.producer_id or 0, [])
            is_aborted = bool(firsts) and firsts[0] <= header.base_offset
            if header.is_control and is_aborted:
                firsts.pop(0)
            elif header.last_offset >= start and not header.is_control and not is_aborted:
                return header.base_offset >= end
            position, reached = position + header.size, header.last_offset + 1
    except DecodeError:
        return False  # the bytes ended before the LSO
    return True


def _committed(
    client: BrokerClient, coordinators: Mapping[str, int], topic_partitions: Sequence[TopicPartition]
) -> list[tuple[str, dict[TopicPartition, int]]] | None:
    topics: dict[str, list[int]] = {}
    for topic, partition in topic_partitions:
        topics.setdefault(topic, []).append(partition)
    committed: list[tuple[str, dict[TopicPartition, int]]] = []
    for group, response, message in _offset_fetches(client, coordinators, topics=topics):
        offsets = _read(response, message)
        if offsets is None:
            return None
        committed.append((group, offsets))
    return committed


def _offset_fetches(
    client: BrokerClient, coordinators: Mapping[str, int], *, topics: Mapping[str, list[int]] | None
) -> Iterator[tuple[str, BrokerResponse, Any]]:
    """Each group with the answer it came in and its coordinator's words on it; stable offsets of all topics if null."""
    by_broker: dict[int, list[str]] = {}
    for group, broker_id in coordinators.items():
        by_broker.setdefault(broker_id, []).append(group)
    batches = [
        (broker_id, groups[start : start + GROUPS_PER_REQUEST])
        for broker_id, groups in by_broker.items()
        for start in range(0, len(groups), GROUPS_PER_REQUEST)
    ]
    responses = client.send([(broker_id, _many(groups, topics)) for broker_id, groups in batches])
    for (broker_id, groups), response in zip(batches, responses, strict=True):
        if response.error_text and response.error_text.startswith("UNSUPPORTED_VERSION"):
            single = client.send([(broker_id, _one(group, topics)) for group in groups])
            yield from ((group, one, one.message) for group, one in zip(groups, single, strict=True))
        else:
            messages = {one.group_id: one for one in response.message.groups} if response.message else {}
            yield from ((group, response, messages.get(group)) for group in groups)


def _many(groups: Sequence[str], topics: Mapping[str, list[int]] | None) -> Any:
    group = messages.OffsetFetch.OffsetFetchRequestGroup
    asked = _topics(group.OffsetFetchRequestTopics, topics)
    return messages.OffsetFetch(
        groups=[group(group_id=group_id, topics=asked) for group_id in groups],
        require_stable=topics is None,
        min_version=8,
        max_version=9,
    )


def _one(group: str, topics: Mapping[str, list[int]] | None) -> Any:
    asked = _topics(messages.OffsetFetch.OffsetFetchRequestTopic, topics)
    return messages.OffsetFetch(group_id=group, topics=asked, require_stable=topics is None, max_version=7)


def _topics(kind: Any, topics: Mapping[str, list[int]] | None) -> list[Any] | None:
    """The partitions that are asked for, in the words of one version; null is all."""
    return None if topics is None else [kind(name=name, partition_indexes=part) for name, part in topics.items()]


def _read(response: BrokerResponse, message: Any) -> dict[TopicPartition, int] | None:
    if response.error or message is None or message.error_code:
        return None
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in message.topics
        for part in topic.partitions
        if part.error_code == 0
    }
