"""Consumer groups: committed offsets, and groups that a held LSO blocks (ListGroups, OffsetFetch)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from toolkit.analysis.diagnosis.verdicts import BRIEF
from toolkit.errors import BrokerError, ConnectionFailed, DecodeError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.log.batches import read_header
from toolkit.schema.live import Finding
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text
from toolkit.sources.live.logs.fetch import FetchedBatches, FetchPosition, fetch
from toolkit.sources.live.state.authorization import groups_are_visible
from toolkit.sources.live.state.cluster_metadata import read_metadata
from toolkit.sources.live.state.coordinators import GROUP, CoordinatorTopic, find_coordinators

Key = TypeVar("Key")

GROUPS_PER_REQUEST = 200
NEAR = 1000  # offsets before the LSO; a group further back is assumed to lag for another reason
FETCH_BYTES = 1 << 17
UNSTABLE_OFFSET_COMMIT = 88
GROUP_ID_NOT_FOUND = 69  # the answer of 4.0 and newer about a group that does not exist; older ones call it Dead
WITH_OFFSETS = {"consumer", ""}  # protocol types whose groups commit offsets; others are Connect, share groups ...


def group_ids(client: BrokerClient, brokers: Iterable[int]) -> dict[str, int]:
    """Group id to its coordinator's broker id, for groups that commit offsets.

    Raises
    ------
    BrokerError, ConnectionFailed
        If a broker does not list its groups.
    """
    listed = listed_groups(client, brokers).items()
    return {group: broker_id for group, (broker_id, protocol_type) in listed if protocol_type in WITH_OFFSETS}


def listed_groups(client: BrokerClient, brokers: Iterable[int]) -> dict[str, tuple[int, str]]:
    """Group id to its coordinator's broker id and its protocol type, for all groups.

    Raises
    ------
    BrokerError, ConnectionFailed
        As `group_ids`.
    """
    groups: dict[str, tuple[int, str]] = {}
    broker_ids = list(brokers)
    responses = client.send([(broker_id, messages.ListGroups()) for broker_id in broker_ids])
    for broker_id, response in zip(broker_ids, responses, strict=True):
        if response.error:
            raise response.error
        if response.message.error_code:
            error = error_text(response.message.error_code)
            raise BrokerError(f"Broker {broker_id} did not list its groups: {error}", code=Error.of(error).code)
        for group in response.message.groups:
            groups[group.group_id] = broker_id, group.protocol_type
    return groups


def committed_offsets(
    client: BrokerClient, group: str, coordinator_id: int
) -> dict[TopicPartition, tuple[int | None, str | None]]:
    """Every committed offset of a group; null with an error where an open transaction has a pending commit.

    Parameters
    ----------
    client
        The connection to the brokers.
    group, coordinator_id
        Group id, and broker id of its coordinator.

    Raises
    ------
    BrokerError, ConnectionFailed
        If the coordinator does not respond.
    """
    ((_, response, message),) = _offset_fetches(client, {group: coordinator_id}, topics=None)
    return {
        tp: (None, error_text(code)) if code else (offset if offset >= 0 else None, None)
        for tp, (offset, code) in _answered(group, response, message).items()
    }


def pending_offsets(
    client: BrokerClient, group: str, coordinator_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, str]:
    """Partitions where an open transaction has a pending commit of a group, with the broker's error.

    Kafka returns a partition that has only a pending offset if the request names it, and else omits it.

    Parameters
    ----------
    client
        The connection to the brokers.
    group, coordinator_id
        Group id, and broker id of its coordinator.
    partitions
        The partitions to ask for.

    Raises
    ------
    BrokerError, ConnectionFailed
        If the coordinator does not respond.
    """
    ((_, response, message),) = _offset_fetches(
        client, {group: coordinator_id}, topics=_by_topic(partitions), require_stable=True
    )
    return {tp: error_text(code) for tp, (_, code) in _answered(group, response, message).items() if _is_pending(code)}


def committing_groups(client: BrokerClient, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
    """Groups with a committed or a pending offset of some partitions, those with a pending one first.

    Raises
    ------
    BrokerError, ConnectionFailed
        If a broker does not list its groups, or a coordinator does not respond.
    """
    coordinators = group_ids(client, sorted(client.brokers))
    found: dict[TopicPartition, list[tuple[bool, str]]] = {tp: [] for tp in partitions}
    for group, response, message in _offset_fetches(
        client, coordinators, topics=_by_topic(partitions), require_stable=True
    ):
        for tp, (offset, code) in _answered(group, response, message).items():
            if tp in found and (_is_pending(code) or offset >= 0):
                found[tp].append((not _is_pending(code), group))
    return {tp: [group for _, group in sorted(groups)] for tp, groups in found.items()}


def undescribed_group(client: BrokerClient, group: str) -> str | None:
    """Why no broker lists a group, as ``NAME: text``; null if it does not exist.

    Kafka omits a group that this principal may not describe, and one whose coordinator is not available.
    """
    offsets_topic = CoordinatorTopic(OFFSETS_TOPIC, read_metadata(client, [OFFSETS_TOPIC]))
    if not offsets_topic.count and not offsets_topic.hidden:
        return None  # FindCoordinator would create the topic
    ((response, coordinator),) = find_coordinators(client, [group], GROUP)
    if coordinator is None:
        return response.error_text
    if coordinator.error_code:
        return error_text(coordinator.error_code, coordinator.error_message)
    (described,) = client.send([(coordinator.node_id, messages.DescribeGroups(groups=[group]))])
    if described.error:
        return described.error_text
    code = described.message.groups[0].error_code
    return None if code in (0, GROUP_ID_NOT_FOUND) else error_text(code)


def offsets_of_groups(
    client: BrokerClient, partitions: Sequence[TopicPartition]
) -> list[tuple[str, dict[TopicPartition, int]]] | None:
    """The committed offsets of all groups on some partitions, negative for none; null if any could not be read.

    Parameters
    ----------
    client
        The connection to the brokers.
    partitions
        The partitions; offsets of every group that the brokers list are requested.
    """
    brokers = sorted(client.brokers)
    try:
        found = _committed(client, group_ids(client, brokers), partitions)
        return None if not found and groups_are_visible(client, brokers).gaps else found
    except (BrokerError, ConnectionFailed):
        return None


def with_groups(client: BrokerClient, findings: Sequence[Finding]) -> list[Finding]:
    """Findings with the groups that wait at a held LSO, if these could be read."""
    held = [
        FetchPosition(TopicPartition(each.topic, each.partition), each.last_stable_offset, each.broker_id)
        for each in findings
        if each.queue_position == 1 and each.verdict not in BRIEF
        if each.topic is not None and each.partition is not None
        if each.last_stable_offset is not None and each.broker_id is not None
    ]
    groups = groups_held(client, held) if held else {}
    return [
        replace(
            each,
            groups_held=_union(each.groups_held, groups.get(TopicPartition(each.topic or "", each.partition or 0))),
        )
        if each.queue_position == 1
        else each
        for each in findings
    ]


def groups_held(client: BrokerClient, held: Sequence[FetchPosition]) -> dict[TopicPartition, list[str]]:
    """Groups that a held LSO blocks, by partition; a partition whose groups are unknown is left out.

    Parameters
    ----------
    client
        The connection to the brokers.
    held
        The LSO of each partition, and its leader.
    """
    offsets = [fetch_position for fetch_position in held if fetch_position.tp[0] == OFFSETS_TOPIC]
    data = [fetch_position for fetch_position in held if fetch_position.tp[0] != OFFSETS_TOPIC]
    found = (groups_at(client, sorted(client.brokers), data) if data else None) or {}
    unstable = (unstable_groups(client, {s.tp[1]: s.broker_id for s in offsets}) if offsets else None) or {}
    return found | {TopicPartition(OFFSETS_TOPIC, number): groups for number, groups in unstable.items() if groups}


def groups_at(
    client: BrokerClient, brokers: Iterable[int], held: Sequence[FetchPosition]
) -> dict[TopicPartition, list[str]] | None:
    """Groups that have read everything that read_committed returns.

    Their committed offset is the LSO, or is before it with only markers and aborted records in between: librdkafka
    commits the offset after the last record, not after the markers that follow it.

    Parameters
    ----------
    client, brokers
        The connection to the brokers, and the ids of those to query.
    held
        The LSO of each partition, and its leader.

    Returns
    -------
    dict or None
        Group ids by partition, sorted; null if the offsets of a group could not be read. A partition without groups is
        left out if this principal may not see all groups.
    """
    brokers = list(brokers)
    try:
        offsets = _committed(client, group_ids(client, brokers), [fetch_position.tp for fetch_position in held])
    except (BrokerError, ConnectionFailed):
        return None
    if offsets is None:
        return None
    found = {}
    for fetch_position in held:
        waiting = _waiting(
            client, fetch_position, {at[fetch_position.tp] for _, at in offsets if fetch_position.tp in at}
        )
        found[fetch_position.tp] = sorted(group for group, at in offsets if at.get(fetch_position.tp) in waiting)
    return _without_hidden(client, brokers, found)


def unstable_groups(client: BrokerClient, partitions: Mapping[int, int]) -> dict[int, list[str]] | None:
    """Groups with a pending offset commit of an open transaction: their consumers cannot start.

    A consumer that requests stable offsets gets UNSTABLE_OFFSET_COMMIT until the transaction ends. A group without
    another committed offset of the same data partition is not found: Kafka returns such a partition only if the request
    names it.

    Parameters
    ----------
    client
        The connection to the brokers.
    partitions
        Partition of ``__consumer_offsets`` to its leader's broker id.

    Returns
    -------
    dict or None
        Group ids by partition, sorted; null if the offsets of a group could not be read. As `groups_at`.
    """
    leaders = sorted(set(partitions.values()))
    try:
        coordinator_topic = CoordinatorTopic(OFFSETS_TOPIC, read_metadata(client, [OFFSETS_TOPIC]))
        listed = group_ids(client, leaders)
        selected = {
            group: leader for group, leader in listed.items() if coordinator_topic.partition(group) in partitions
        }
        responses = _offset_fetches(client, selected, topics=None)
    except (BrokerError, ConnectionFailed):
        return None
    found: dict[int, list[str]] = {number: [] for number in partitions}
    for group, response, message in responses:
        if response.error or message is None or message.error_code:
            return None
        codes = {part.error_code for topic in message.topics for part in topic.partitions}
        if UNSTABLE_OFFSET_COMMIT in codes:
            found[coordinator_topic.partition(group) or 0].append(group)
    return _without_hidden(client, leaders, {number: sorted(groups) for number, groups in found.items()})


def _without_hidden(client: BrokerClient, brokers: Sequence[int], found: dict[Key, list[str]]) -> dict[Key, list[str]]:
    """Without keys that have no group, if groups may be hidden: none that is visible is not none."""
    if all(found.values()) or not groups_are_visible(client, brokers).gaps:
        return found
    return {key: groups for key, groups in found.items() if groups}


def _union(some: Collection[str] | None, others: Collection[str] | None) -> tuple[str, ...] | None:
    """Names of both, sorted; null if both are null."""
    return None if some is None and others is None else tuple(sorted({*(some or ()), *(others or ())}))


def _waiting(client: BrokerClient, lso: FetchPosition, committed: set[int]) -> set[int]:
    """The LSO, and the committed offsets from which read_committed returns nothing up to the LSO."""
    near = [replace(lso, offset=at) for at in committed if max(0, lso.offset - NEAR) <= at < lso.offset]
    pairs = zip(near, fetch(client, near, max_bytes=FETCH_BYTES, read_committed=True), strict=True)
    return {
        lso.offset,
        *(
            fetch_position.offset
            for fetch_position, fetched in pairs
            if _is_unreadable(fetched, fetch_position.offset, lso.offset)
        ),
    }


def _is_unreadable(found: FetchedBatches, start: int, end: int) -> bool:
    """Whether every batch in ``start <= offset < end`` is a marker or aborted."""
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
    topics = _by_topic(topic_partitions)
    committed: list[tuple[str, dict[TopicPartition, int]]] = []
    for group, response, message in _offset_fetches(client, coordinators, topics=topics):
        offsets = _read(response, message)
        if offsets is None:
            return None
        committed.append((group, offsets))
    return committed


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _answered(group: str, response: BrokerResponse, message: Any) -> dict[TopicPartition, tuple[int, int]]:
    """Committed offset and error code by partition.

    Raises
    ------
    BrokerError, ConnectionFailed
        If the coordinator did not respond.
    """
    if response.error:
        raise response.error
    code = message.error_code if message is not None else 0
    if message is None or code:
        error = error_text(code) if code else "no response"
        raise BrokerError(f"The offsets of group {group!r} cannot be read: {error}", code=Error.of(error).code)
    return {
        TopicPartition(topic.name, part.partition_index): (part.committed_offset, part.error_code)
        for topic in message.topics
        for part in topic.partitions
    }


def _is_pending(code: int) -> bool:
    return code == UNSTABLE_OFFSET_COMMIT


def _offset_fetches(
    client: BrokerClient,
    coordinators: Mapping[str, int],
    *,
    topics: Mapping[str, list[int]] | None,
    require_stable: bool = False,
) -> Iterator[tuple[str, BrokerResponse, Any]]:
    """Each group, its response, and its part of the message; with null `topics`, stable offsets of all topics."""
    stable = require_stable or topics is None
    by_broker: dict[int, list[str]] = {}
    for group, broker_id in coordinators.items():
        by_broker.setdefault(broker_id, []).append(group)
    batches = [
        (broker_id, groups[start : start + GROUPS_PER_REQUEST])
        for broker_id, groups in by_broker.items()
        for start in range(0, len(groups), GROUPS_PER_REQUEST)
    ]
    responses = client.send([(broker_id, _many(groups, topics, stable)) for broker_id, groups in batches])
    for (broker_id, groups), response in zip(batches, responses, strict=True):
        if response.error_text and response.error_text.startswith("UNSUPPORTED_VERSION"):
            single = client.send([(broker_id, _one(group, topics, stable)) for group in groups])
            yield from ((group, each, each.message) for group, each in zip(groups, single, strict=True))
        else:
            by_group = {each.group_id: each for each in response.message.groups} if response.message else {}
            yield from ((group, response, by_group.get(group)) for group in groups)


def _many(groups: Sequence[str], topics: Mapping[str, list[int]] | None, require_stable: bool) -> Any:
    group = messages.OffsetFetch.OffsetFetchRequestGroup
    requested = _topics(group.OffsetFetchRequestTopics, topics)
    return messages.OffsetFetch(
        groups=[group(group_id=group_id, topics=requested) for group_id in groups],
        require_stable=require_stable,
        min_version=8,
        max_version=9,
    )


def _one(group: str, topics: Mapping[str, list[int]] | None, require_stable: bool) -> Any:
    requested = _topics(messages.OffsetFetch.OffsetFetchRequestTopic, topics)
    return messages.OffsetFetch(group_id=group, topics=requested, require_stable=require_stable, max_version=7)


def _topics(kind: Any, topics: Mapping[str, list[int]] | None) -> list[Any] | None:
    """The requested partitions as messages of one version; null for all."""
    return None if topics is None else [kind(name=name, partition_indexes=part) for name, part in topics.items()]


def _read(response: BrokerResponse, message: Any) -> dict[TopicPartition, int] | None:
    if response.error or message is None or message.error_code:
        return None
    return {
        TopicPartition(topic.name, part.partition_index): part.committed_offset
        for topic in message.topics
        for part in topic.partitions
        if part.error_code == 0
    }
