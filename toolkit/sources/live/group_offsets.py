"""Groups, their offsets and pending offsets (OffsetFetch), share groups (KIP-932), and groups that an LSO blocks.

A group coordinator keeps the offsets of open transactions in memory, and reads them from its log when it loads. The
partition's leader keeps the open transactions. The two differ if the group or its offsets were deleted while a
transaction was open (KAFKA-19163, KAFKA-19164), or if a marker is no longer in the log while the producer state has
seen it.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from toolkit.analysis.transaction_owners import ClientGroup, GroupMember, possible_groups
from toolkit.errors import BrokerError, ConnectionFailed, DecodeError
from toolkit.formats.batches import read_header
from toolkit.formats.coordinator_records import (
    OFFSETS_TOPIC,
    read_connect_assignment,
    read_connect_url,
    read_streams_process_id,
)
from toolkit.schema.live import Finding, Partition, Producer, open_starts
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live import broker_client, coordinators
from toolkit.sources.live.broker_client import BrokerClient, BrokerResponse, error_text, omitted_text
from toolkit.sources.live.coordinators import GROUP, GROUPS, CoordinatorTopic, find_coordinators, visibility_of
from toolkit.sources.live.leaders import (
    FetchedBatches,
    FetchPosition,
    fetch,
    read_metadata,
    read_partitions,
    read_producers,
    split_error,
)
from toolkit.sources.offset_queries import DELETED, NO_TRANSACTION, CommittedOffset, SharePartition

GROUPS_PER_REQUEST = 200
GROUP_ID_NOT_FOUND = 69  # the answer of 4.0 and newer about a group that does not exist; older ones call it Dead
# Protocol types whose groups commit offsets; the others are of Connect, share groups and other software.
WITH_OFFSETS = {"consumer", "streams", ""}
SHARE = "share"  # protocol type
ISOLATION_LEVEL = "share.isolation.level"


class ListedGroup(NamedTuple):
    """A group's coordinator, and its protocol type."""

    coordinator_id: int
    protocol_type: str


def list_groups(client: BrokerClient, brokers: Iterable[int]) -> tuple[dict[str, ListedGroup], list[BrokerResponse]]:
    """The groups of brokers by group id, and the responses of brokers that failed.

    Brokers omit groups that this principal may not describe.
    """
    groups: dict[str, ListedGroup] = {}
    failed: list[BrokerResponse] = []
    broker_ids = list(brokers)
    responses = client.send([(broker_id, broker_client.ListGroups()) for broker_id in broker_ids])
    for broker_id, response in zip(broker_ids, responses, strict=True):
        if response.failure:
            failed.append(response)
        else:
            groups |= {each.group_id: ListedGroup(broker_id, each.protocol_type) for each in response.message.groups}
    return groups, failed


def listed_groups(client: BrokerClient, brokers: Iterable[int]) -> dict[str, ListedGroup]:
    """All groups by group id. Raises BrokerError or ConnectionFailed if a broker does not list its groups."""
    groups, failed = list_groups(client, brokers)
    for response in failed:
        raise response.error or BrokerError(
            f"Broker {response.broker_id} did not list its groups: {response.failure}",
            code=Error.of(response.failure).code,
        )
    if split := split_error(client):
        code, text = Error.of(split)
        raise BrokerError(f"The groups cannot be read: {text}.", code=code)
    return groups


def group_ids(client: BrokerClient, brokers: Iterable[int]) -> dict[str, int]:
    """Group id to its coordinator's broker id, for groups that commit offsets.

    Raises BrokerError or ConnectionFailed: as `listed_groups`.
    """
    listed = listed_groups(client, brokers).items()
    return {group: each.coordinator_id for group, each in listed if each.protocol_type in WITH_OFFSETS}


def groups_with_offsets(client: BrokerClient) -> tuple[list[str], Sequence[str]]:
    """Groups that commit offsets, share groups included, sorted; and what is missing for the proof that none is hidden.

    Raises BrokerError or ConnectionFailed: as `listed_groups`.
    """
    brokers = sorted(client.brokers)
    groups = listed_groups(client, brokers).items()
    found = sorted(group for group, each in groups if each.protocol_type in {*WITH_OFFSETS, SHARE})
    return found, missing_groups(client, brokers)


def missing_groups(client: BrokerClient, brokers: Sequence[int]) -> list[str]:
    """What is missing for the proof that these brokers list all groups: rights, leaders of ``__consumer_offsets``.

    Brokers omit the groups that this principal may not describe, and no broker has those of a partition without leader.
    """
    gaps = [*visibility_of(GROUPS, client, brokers).gaps]
    topic = CoordinatorTopic.read(client, OFFSETS_TOPIC)
    if topic.hidden_gap:
        gaps.append(topic.hidden_gap)
    elif topic.leaderless:
        gaps.append(f"{topic.leaderless}: no broker lists their groups")
    return gaps


def undescribed_group(client: BrokerClient, group: str) -> str | None:
    """Why no broker lists a group, as ``NAME: text``; null if it does not exist.

    Kafka omits a group that this principal may not describe, and one whose coordinator is not available.
    """
    offsets_topic = CoordinatorTopic.read(client, OFFSETS_TOPIC)
    if not offsets_topic.count and not offsets_topic.hidden:
        return None  # FindCoordinator would create the topic
    ((response, coordinator),) = find_coordinators(client, [group], GROUP)
    if coordinator is None:
        return response.error_text or omitted_text("FindCoordinator", "this group")
    if coordinator.error_code:
        return error_text(coordinator.error_code, coordinator.error_message)
    (described,) = client.send([(coordinator.node_id, broker_client.DescribeGroups(groups=[group]))])
    if described.error:
        return described.error_text
    code = next((each.error_code for each in described.message.groups), None)
    if code is None:
        return omitted_text("DescribeGroups", "this group")
    return None if code in (0, GROUP_ID_NOT_FOUND) else error_text(code)


def _offsets(group: str, response: BrokerResponse, message: Any) -> dict[TopicPartition, CommittedOffset]:
    """The answer of OffsetFetch for one group. Raises BrokerError or ConnectionFailed if there is none."""
    if response.error:
        raise response.error
    if message is None or message.error_code:
        error = omitted_text("OffsetFetch", "this group") if message is None else error_text(message.error_code)
        raise BrokerError(f"The offsets of group {group!r} cannot be read: {error}", code=Error.of(error).code)
    return {
        TopicPartition(topic.name, part.partition_index): CommittedOffset(
            None if part.error_code or part.committed_offset < 0 else part.committed_offset,
            error_text(part.error_code) if part.error_code else None,
        )
        for topic in message.topics
        for part in topic.partitions
    }


def _readable(
    group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> Mapping[TopicPartition, CommittedOffset]:
    """The offsets of a group. Raises BrokerError if one of them is an error other than that it is pending."""
    for tp, each in offsets.items():
        if each.error and not each.is_pending:
            text = f"The offset of group {group!r} on {tp} cannot be read: {each.error}"
            raise BrokerError(text, code=Error.of(each.error).code)
    return offsets


def committed_offsets(
    client: BrokerClient, group: str, coordinator_id: int, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """The stable offsets of a group on some partitions, or every one of them.

    Kafka returns a partition that has only a pending offset if the request names it, and else omits it.

    Raises BrokerError or ConnectionFailed if the coordinator does not respond.
    """
    ((_, offsets),) = fetch_offsets(client, {group: coordinator_id}, partitions, require_stable=True)
    return offsets


def pending_offsets(
    client: BrokerClient, group: str, coordinator_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, CommittedOffset]:
    """Partitions where an open transaction has a pending commit of a group, with the broker's error.

    Raises BrokerError or ConnectionFailed if the coordinator does not respond.
    """
    offsets = committed_offsets(client, group, coordinator_id, partitions)
    return {tp: each for tp, each in offsets.items() if each.is_pending}


def committing_groups(client: BrokerClient, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
    """Groups with a committed or a pending offset of some partitions, those with a pending one first.

    Raises BrokerError or ConnectionFailed if a broker does not list its groups, or an offset cannot be read.
    """
    coordinators = group_ids(client, sorted(client.brokers))
    found: dict[TopicPartition, list[tuple[bool, str]]] = {tp: [] for tp in partitions}
    for group, offsets in fetch_offsets(client, coordinators, partitions, require_stable=True):
        for tp, each in _readable(group, offsets).items():
            if tp in found and (each.is_pending or each.offset is not None):
                found[tp].append((not each.is_pending, group))
    return {tp: [group for _, group in sorted(groups)] for tp, groups in found.items()}


def offsets_of_groups(
    client: BrokerClient, partitions: Sequence[TopicPartition]
) -> list[tuple[str, dict[TopicPartition, int]]] | None:
    """The committed offsets of all groups on some partitions; null if any could not be read.

    `partitions`: the partitions; offsets of every group that the brokers list are requested.
    """
    brokers = sorted(client.brokers)
    try:
        found = read_offsets_of(client, group_ids(client, brokers), partitions)
        return None if not found and missing_groups(client, brokers) else found
    except (BrokerError, ConnectionFailed):
        return None


def read_offsets_of(
    client: BrokerClient, coordinators: Mapping[str, int], partitions: Sequence[TopicPartition]
) -> list[tuple[str, dict[TopicPartition, int]]]:
    """The committed offsets of groups on some partitions.

    Raises BrokerError or ConnectionFailed if the offsets of a group could not be read.
    """
    return [
        (group, {tp: each.offset for tp, each in _readable(group, offsets).items() if each.offset is not None})
        for group, offsets in fetch_offsets(client, coordinators, partitions)
    ]


def fetch_offsets(
    client: BrokerClient,
    coordinators: Mapping[str, int],
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = False,
) -> Iterator[tuple[str, dict[TopicPartition, CommittedOffset]]]:
    """The offsets of groups on some partitions; where these are null, the stable offsets on all.

    Raises BrokerError or ConnectionFailed at a group whose coordinator did not respond.
    """
    topics: dict[str, list[int]] | None = None
    if partitions is not None:
        topics = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
    stable = require_stable or topics is None
    batches = broker_client.batches(
        ((broker_id, group) for group, broker_id in coordinators.items()), GROUPS_PER_REQUEST
    )
    responses = client.send([(broker_id, _many(groups, topics, stable)) for broker_id, groups in batches])
    for (broker_id, groups), response in zip(batches, responses, strict=True):
        if response.is_too_old:
            single = client.send([(broker_id, _one(group, topics, stable)) for group in groups])
            yield from (
                (group, _offsets(group, each, each.message)) for group, each in zip(groups, single, strict=True)
            )
        else:
            by_group = {each.group_id: each for each in response.message.groups} if response.message else {}
            yield from ((group, _offsets(group, response, by_group.get(group))) for group in groups)


def _many(groups: Sequence[str], topics: Mapping[str, list[int]] | None, require_stable: bool) -> Any:
    group = broker_client.OffsetFetch.OffsetFetchRequestGroup
    requested = _topics(group.OffsetFetchRequestTopics, topics)
    return broker_client.OffsetFetch(
        groups=[group(group_id=group_id, topics=requested) for group_id in groups],
        require_stable=require_stable,
        min_version=8,
        max_version=9,
    )


def _one(group: str, topics: Mapping[str, list[int]] | None, require_stable: bool) -> Any:
    requested = _topics(broker_client.OffsetFetch.OffsetFetchRequestTopic, topics)
    return broker_client.OffsetFetch(group_id=group, topics=requested, require_stable=require_stable, max_version=7)


def _topics(kind: Any, topics: Mapping[str, list[int]] | None) -> list[Any] | None:
    """The requested partitions as messages of one version; null for all."""
    return None if topics is None else [kind(name=name, partition_indexes=part) for name, part in topics.items()]


def share_isolation_level(client: BrokerClient, group: str) -> str | None:
    """Isolation level of a share group (DescribeConfigs of the group); null if its configuration is not visible."""
    configs = coordinators.describe_configs(client, coordinators.GROUP_CONFIGS, [group], [ISOLATION_LEVEL])
    return next((config.values.get(ISOLATION_LEVEL) for config in configs if not config.error), None)


def share_group_offsets(client: BrokerClient, group: str, coordinator_id: int) -> dict[TopicPartition, SharePartition]:
    """Start offset and lag of a share group on each of its partitions (DescribeShareGroupOffsets).

    Raises BrokerError or ConnectionFailed if the coordinator does not respond.
    """
    requested = broker_client.DescribeShareGroupOffsets.DescribeShareGroupOffsetsRequestGroup(
        group_id=group, topics=None
    )
    answer = client.send_one(broker_client.DescribeShareGroupOffsets(groups=[requested]), broker_id=coordinator_id)
    found = next(iter(answer.groups), None)
    if found is None or found.error_code:
        error = omitted_text("DescribeShareGroupOffsets", "this group")
        error = error if found is None else error_text(found.error_code, found.error_message)
        raise BrokerError(f"The offsets of share group {group!r} cannot be read: {error}", code=Error.of(error).code)
    return {
        TopicPartition(topic.topic_name, part.partition_index): SharePartition(
            part.start_offset if part.start_offset >= 0 else None,
            part.lag if part.lag >= 0 else None,
            error_text(part.error_code, part.error_message) if part.error_code else None,
        )
        for topic in found.topics
        for part in topic.partitions
    }


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
    from toolkit.sources.live.coordinator_logs import offsets_log_records  # imports numpy

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


NEAR = 1000  # offsets before the LSO; a group further back is assumed to lag for another reason
FETCH_BYTES = 1 << 17
DESCRIBABLE = {"consumer", "connect"}  # protocol types of DescribeGroups


MAX_BRIEF = 20  # held partitions of live transactions whose groups are read: a busy cluster has thousands
UNUSUAL = dt.timedelta(minutes=5)  # age of a live transaction; most end within milliseconds


def with_groups(client: BrokerClient, findings: Sequence[Finding], *, of_any_age: bool = False) -> list[Finding]:
    """Findings with the groups that wait at a held LSO, if these could be read.

    Of live transactions, those of the oldest ones that are open for longer than is usual, or `of_any_age`.
    """
    holders = [each for each in findings if each.queue_position == 1]
    brief = [each for each in holders if each.verdict.is_brief and (of_any_age or _is_old(each))]
    oldest = sorted(brief, key=lambda each: each.opened_at or each.observed_at)[:MAX_BRIEF]
    held = [
        FetchPosition(tp, each.last_stable_offset, each.broker_id)
        for each in (*(each for each in holders if not each.verdict.is_brief), *oldest)
        if (tp := each.tp) is not None and each.last_stable_offset is not None and each.broker_id is not None
    ]
    groups = groups_held(client, held) if held else {}
    return [
        replace(each, groups_held=_union(each.groups_held, groups.get(tp)))
        if each.queue_position == 1 and (tp := each.tp) is not None
        else each
        for each in findings
    ]


def _is_old(finding: Finding) -> bool:
    now, opened_at = finding.brokers_time, finding.opened_at
    return now is not None and opened_at is not None and now - opened_at > UNUSUAL


def groups_held(client: BrokerClient, held: Sequence[FetchPosition]) -> dict[TopicPartition, list[str]]:
    """Groups that a held LSO blocks, by partition; a partition whose groups are unknown is left out.

    `held`: the LSO of each partition, and its leader.
    """
    offsets = {each.tp: each.broker_id for each in held if each.tp.topic == OFFSETS_TOPIC}
    data = [each for each in held if each.tp not in offsets]
    found = (groups_at(client, sorted(client.brokers), data) if data else None) or {}
    return found | (unstable_groups(client, offsets) if offsets else {})


def groups_at(
    client: BrokerClient, brokers: Iterable[int], held: Sequence[FetchPosition]
) -> dict[TopicPartition, list[str]] | None:
    """Groups that have read everything that read_committed returns.

    Their committed offset is the LSO, or is before it with only markers and aborted records in between: a group may
    have committed the offset after its last record, and not the one after the markers that follow it.

    Group ids by partition, sorted; null if the offsets of a group could not be read. A partition without groups is left
    out if groups may be hidden, or the log before the LSO could not be read.
    `client`, `brokers`: the connection to the brokers, and the ids of those to query.
    `held`: the LSO of each partition, and its leader.
    """
    brokers = list(brokers)
    try:
        offsets = read_offsets_of(client, group_ids(client, brokers), [each.tp for each in held])
    except (BrokerError, ConnectionFailed):
        return None
    found, unread = dict[TopicPartition, list[str]](), set[TopicPartition]()
    for each in held:
        waiting, is_read = _waiting(client, each, {at[each.tp] for _, at in offsets if each.tp in at})
        found[each.tp] = sorted(group for group, at in offsets if at.get(each.tp) in waiting)
        unread |= set() if is_read else {each.tp}
    if not all(found.values()) and missing_groups(client, brokers):
        unread |= found.keys()
    return {tp: groups for tp, groups in found.items() if groups or tp not in unread}  # none that is seen is not none


def unstable_groups(client: BrokerClient, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[str]]:
    """Groups with a pending offset commit of an open transaction: their consumers cannot start.

    A consumer that requests stable offsets gets UNSTABLE_OFFSET_COMMIT until the transaction ends. A group without
    another committed offset of the same data partition is not found: Kafka returns such a partition only if the request
    names it.

    Group ids by partition, sorted; without partitions where none is found, as that does not prove that there is none.
    `leaders`: broker id by partition of ``__consumer_offsets``.
    """
    found: dict[TopicPartition, list[str]] = {}
    try:
        coordinator_topic = CoordinatorTopic.read(client, OFFSETS_TOPIC)
        listed = group_ids(client, sorted(set(leaders.values())))
        numbers = ((group, coordinator_topic.partition(group)) for group in listed)
        partitions = {group: TopicPartition(OFFSETS_TOPIC, each) for group, each in numbers if each is not None}
        selected = {group: listed[group] for group, tp in partitions.items() if tp in leaders}
        for group, offsets in fetch_offsets(client, selected, None):
            if any(each.is_pending for each in offsets.values()):
                found.setdefault(partitions[group], []).append(group)
    except (BrokerError, ConnectionFailed):
        return {}
    return {tp: sorted(groups) for tp, groups in found.items()}


def _union(some: Collection[str] | None, others: Collection[str] | None) -> tuple[str, ...] | None:
    """Names of both, sorted; null if both are null."""
    return None if some is None and others is None else tuple(sorted({*(some or ()), *(others or ())}))


def _waiting(client: BrokerClient, lso: FetchPosition, committed: set[int]) -> tuple[set[int], bool]:
    """The LSO, and the committed offsets from which read_committed returns nothing up to it; and whether all are known.

    They are not where the log could not be read, or not up to the LSO.
    """
    near = [replace(lso, offset=at) for at in committed if max(0, lso.offset - NEAR) <= at < lso.offset]
    fetched = fetch(client, near, max_bytes=FETCH_BYTES, read_committed=True)
    shown = {
        each.offset: _is_unreadable(batches, each.offset, lso.offset)
        for each, batches in zip(near, fetched, strict=True)
    }
    return {lso.offset, *(offset for offset, is_waiting in shown.items() if is_waiting)}, None not in shown.values()


def _is_unreadable(found: FetchedBatches, start: int, end: int) -> bool | None:
    """Whether every batch in ``start <= offset < end`` is a marker or aborted; null if these bytes do not show it."""
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
        return None  # the bytes ended before the LSO
    return True


def client_groups(
    client: BrokerClient, transactional_ids: Iterable[str | None]
) -> tuple[list[ClientGroup], str | None]:
    """Groups whose name occurs in one of the ids, with their members; and errors, if some may be missing.

    Brokers omit groups that this principal may not describe.
    """
    ids = [text for text in transactional_ids if text]
    if not ids:
        return [], None
    listed, failed = list_groups(client, sorted(client.brokers))
    errors = [response.failure or "" for response in failed]
    possible = set().union(*map(possible_groups, ids))
    candidates = {group: each for group, each in listed.items() if group in possible}
    describable = {group: each for group, each in candidates.items() if each.protocol_type in DESCRIBABLE}
    coordinators = ((each.coordinator_id, group) for group, each in describable.items())
    batches = broker_client.batches(coordinators, GROUPS_PER_REQUEST)
    described: dict[str, Any] = {}
    responses = client.send([(broker_id, broker_client.DescribeGroups(groups=names)) for broker_id, names in batches])
    for (_, names), response in zip(batches, responses, strict=True):
        if response.error_text:
            errors.append(response.error_text)
            continue
        if {*names} - {group.group_id for group in response.message.groups}:
            errors.append(omitted_text("DescribeGroups", "every group"))
        described |= {group.group_id: group for group in response.message.groups if not group.error_code}
        errors += [error_text(group.error_code) for group in response.message.groups if group.error_code]
    groups = [_group(group, each.protocol_type, described.get(group)) for group, each in candidates.items()]
    return groups, "; ".join(dict.fromkeys(errors)) or None


def _group(group_id: str, protocol_type: str, described: Any) -> ClientGroup:
    members: Collection[Any] = described.members if described else ()
    if protocol_type == "connect":
        return _connect_cluster(group_id, members)
    return ClientGroup(
        group_id=group_id,
        protocol_type=protocol_type,
        members=[_consumer(each) for each in members],
        is_described=described is not None,
    )


def _consumer(member: Any) -> GroupMember:
    process_id = None
    if "-StreamThread-" in member.client_id:
        with suppress(DecodeError):  # no metadata while the group rebalances
            process_id = read_streams_process_id(member.member_metadata)
    return GroupMember(
        member_id=member.member_id, client_id=member.client_id, client_host=member.client_host, process_id=process_id
    )


def _connect_cluster(group_id: str, described: Iterable[Any]) -> ClientGroup:
    leader = None
    members: list[GroupMember] = []
    for member in described:
        url, tasks = None, frozenset[tuple[str, int]]()
        with suppress(DecodeError):  # as above
            url = read_connect_url(member.member_metadata)
            assignment = read_connect_assignment(member.member_assignment)
            leader, tasks = assignment.leader_member_id, assignment.tasks
        members.append(
            GroupMember(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                url=url,
                tasks=tasks,
            )
        )
    return ClientGroup(group_id=group_id, protocol_type="connect", members=members, leader_member_id=leader)
