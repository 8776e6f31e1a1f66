"""Groups and members that identify the owner of a transactional id (ListGroups, DescribeGroups)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from toolkit.analysis.coordinator.transaction_owners import ClientGroup, GroupMember, possible_groups
from toolkit.errors import DecodeError
from toolkit.formats.coordinator.group_members import (
    read_connect_assignment,
    read_connect_url,
    read_streams_process_id,
)
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import error_text

GROUPS_PER_REQUEST = 200
DESCRIBABLE = {"consumer", "connect"}  # protocol types of DescribeGroups


def client_groups(
    client: BrokerClient, transactional_ids: Iterable[str | None]
) -> tuple[list[ClientGroup], str | None]:
    """Groups whose name occurs in one of the ids, with their members; and errors, if some may be missing.

    Brokers omit groups that this principal may not describe.
    """
    ids = [text for text in transactional_ids if text]
    if not ids:
        return [], None
    listed, errors = _listed(client)
    possible = set().union(*map(possible_groups, ids))
    candidates = {group: entry for group, entry in listed.items() if group in possible}
    described: dict[str, Any] = {}
    requests = []
    for broker_id in {broker_id for broker_id, _ in candidates.values()}:
        names = [group for group, (owner, kind) in candidates.items() if owner == broker_id and kind in DESCRIBABLE]
        batches = (names[start : start + GROUPS_PER_REQUEST] for start in range(0, len(names), GROUPS_PER_REQUEST))
        requests += [(broker_id, batch) for batch in batches]
    responses = client.send([(broker_id, messages.DescribeGroups(groups=names)) for broker_id, names in requests])
    for response in responses:
        if response.error_text:
            errors.append(response.error_text)
            continue
        described |= {group.group_id: group for group in response.message.groups if not group.error_code}
    groups = [_group(group, kind, described.get(group)) for group, (_, kind) in candidates.items()]
    return groups, "; ".join(dict.fromkeys(errors)) or None


def _listed(client: BrokerClient) -> tuple[dict[str, tuple[int, str]], list[str]]:
    """Group id to its coordinator and protocol type; and the errors of brokers that failed."""
    brokers = sorted(client.brokers)
    groups: dict[str, tuple[int, str]] = {}
    errors: list[str] = []
    for broker_id, response in zip(
        brokers, client.send([(each, messages.ListGroups()) for each in brokers]), strict=True
    ):
        code = response.message.error_code if response.message else 0
        if response.error_text or code:
            errors.append(response.error_text or error_text(code))
        else:
            groups |= {each.group_id: (broker_id, each.protocol_type) for each in response.message.groups}
    return groups, errors


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
