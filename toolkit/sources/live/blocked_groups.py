"""Groups that a held LSO blocks, and the groups whose members use a transactional id (DescribeGroups)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from toolkit.analysis.coordinator.transaction_owners import ClientGroup, GroupMember, possible_groups
from toolkit.errors import BrokerError, ConnectionFailed, DecodeError
from toolkit.formats.coordinator.group_members import read_connect_assignment, read_connect_url, read_streams_process_id
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.log.batches import read_header
from toolkit.schema.live import Finding
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import error_text
from toolkit.sources.live.logs.fetch import FetchedBatches, FetchPosition, fetch
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.group_offsets import (
    GROUPS_PER_REQUEST,
    fetch_offsets,
    group_ids,
    list_groups,
    missing_groups,
    read_offsets_of,
)

NEAR = 1000  # offsets before the LSO; a group further back is assumed to lag for another reason
FETCH_BYTES = 1 << 17
DESCRIBABLE = {"consumer", "connect"}  # protocol types of DescribeGroups


def with_groups(client: BrokerClient, findings: Sequence[Finding]) -> list[Finding]:
    """Findings with the groups that wait at a held LSO, if these could be read."""
    held = [
        FetchPosition(tp, each.last_stable_offset, each.broker_id)
        for each in findings
        if each.queue_position == 1 and not each.verdict.is_brief and (tp := each.tp) is not None
        if each.last_stable_offset is not None and each.broker_id is not None
    ]
    groups = groups_held(client, held) if held else {}
    return [
        replace(each, groups_held=_union(each.groups_held, groups.get(tp)))
        if each.queue_position == 1 and (tp := each.tp) is not None
        else each
        for each in findings
    ]


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
    out if groups may be hidden.
    `client`, `brokers`: the connection to the brokers, and the ids of those to query.
    `held`: the LSO of each partition, and its leader.
    """
    brokers = list(brokers)
    try:
        offsets = read_offsets_of(client, group_ids(client, brokers), [each.tp for each in held])
    except (BrokerError, ConnectionFailed):
        return None
    found = {}
    for each in held:
        waiting = _waiting(client, each, {at[each.tp] for _, at in offsets if each.tp in at})
        found[each.tp] = sorted(group for group, at in offsets if at.get(each.tp) in waiting)
    if all(found.values()) or not missing_groups(client, brokers):
        return found
    return {tp: groups for tp, groups in found.items() if groups}  # none that is visible is not none


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
        for answer in fetch_offsets(client, selected, None):
            if answer.pending():
                found.setdefault(partitions[answer.group], []).append(answer.group)
    except (BrokerError, ConnectionFailed):
        return {}
    return {tp: sorted(groups) for tp, groups in found.items()}


def _union(some: Collection[str] | None, others: Collection[str] | None) -> tuple[str, ...] | None:
    """Names of both, sorted; null if both are null."""
    return None if some is None and others is None else tuple(sorted({*(some or ()), *(others or ())}))


def _waiting(client: BrokerClient, lso: FetchPosition, committed: set[int]) -> set[int]:
    """The LSO, and the committed offsets from which read_committed returns nothing up to the LSO."""
    near = [replace(lso, offset=at) for at in committed if max(0, lso.offset - NEAR) <= at < lso.offset]
    fetched = fetch(client, near, max_bytes=FETCH_BYTES, read_committed=True)
    return {lso.offset} | {
        each.offset for each, batches in zip(near, fetched, strict=True)
        if _is_unreadable(batches, each.offset, lso.offset)
    }  # fmt: skip


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
    batches = messages.batches(coordinators, GROUPS_PER_REQUEST)
    described: dict[str, Any] = {}
    for response in client.send([(broker_id, messages.DescribeGroups(groups=names)) for broker_id, names in batches]):
        if response.error_text:
            errors.append(response.error_text)
            continue
        described |= {group.group_id: group for group in response.message.groups if not group.error_code}
        errors += [error_text(group.error_code) for group in response.message.groups if group.error_code]
    groups = [_group(group, each.protocol_type, described.get(group)) for group, each in candidates.items()]
    return groups, "; ".join(dict.fromkeys(errors)) or None


def _group(group_id: str, protocol_type: str, described: Any) -> ClientGroup:
    members: Collection[Any] = described.members if described else ()
    if protocol_type == "connect":
        return _connect_cluster(group_id, members)
    return ClientGroup(group_id=group_id, protocol_type=protocol_type, members=[_consumer(each) for each in members])


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
