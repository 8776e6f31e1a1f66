"""Groups and their offsets: of consumer groups (ListGroups, OffsetFetch), and of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolkit.errors import BrokerError, ConnectionFailed, ToolkitError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text, omitted_text
from toolkit.sources.live.state import broker_configs
from toolkit.sources.live.state.authorization import GROUPS, visibility_of
from toolkit.sources.live.state.coordinators import GROUP, CoordinatorTopic, find_coordinators
from toolkit.sources.offset_queries.group_lag import CommittedOffset, SharePartition

GROUPS_PER_REQUEST = 200
UNSTABLE_OFFSET_COMMIT = 88
GROUP_ID_NOT_FOUND = 69  # the answer of 4.0 and newer about a group that does not exist; older ones call it Dead
WITH_OFFSETS = {"consumer", ""}  # protocol types whose groups commit offsets; others are Connect, share groups ...
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
    responses = client.send([(broker_id, messages.ListGroups()) for broker_id in broker_ids])
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
    (described,) = client.send([(coordinator.node_id, messages.DescribeGroups(groups=[group]))])
    if described.error:
        return described.error_text
    code = next((each.error_code for each in described.message.groups), None)
    if code is None:
        return omitted_text("DescribeGroups", "this group")
    return None if code in (0, GROUP_ID_NOT_FOUND) else error_text(code)


class GroupOffsets(NamedTuple):
    """The answer of OffsetFetch for one group."""

    group: str
    response: BrokerResponse
    message: Any

    @property
    def error(self) -> ToolkitError | None:
        """Why the offsets could not be read; null if they were."""
        if self.response.error:
            return self.response.error
        if self.message is not None and not self.message.error_code:
            return None
        omitted = omitted_text("OffsetFetch", "this group")
        error = omitted if self.message is None else error_text(self.message.error_code)
        return BrokerError(f"The offsets of group {self.group!r} cannot be read: {error}", code=Error.of(error).code)

    def by_partition(self) -> dict[TopicPartition, tuple[int, int]]:
        """Committed offset and error code by partition.

        Raises BrokerError or ConnectionFailed if the coordinator did not respond.
        """
        if self.error:
            raise self.error
        return {
            TopicPartition(topic.name, part.partition_index): (part.committed_offset, part.error_code)
            for topic in self.message.topics
            for part in topic.partitions
        }

    def committed(self) -> dict[TopicPartition, int | None]:
        """Committed offset by partition, negative for none, null where an open transaction has a pending commit.

        Raises BrokerError or ConnectionFailed if the coordinator did not respond, or one of the offsets is an error.
        """
        offsets: dict[TopicPartition, int | None] = {}
        for tp, (offset, code) in self.by_partition().items():
            if code not in (0, UNSTABLE_OFFSET_COMMIT):
                error = error_text(code)
                text = f"The offset of group {self.group!r} on {tp} cannot be read: {error}"
                raise BrokerError(text, code=Error.of(error).code)
            offsets[tp] = None if code else offset
        return offsets

    def pending(self) -> dict[TopicPartition, int]:
        """Error code of the partitions where an open transaction has a pending commit; errors as `by_partition`."""
        return {tp: code for tp, (_, code) in self.by_partition().items() if code == UNSTABLE_OFFSET_COMMIT}


def committed_offsets(client: BrokerClient, group: str, coordinator_id: int) -> dict[TopicPartition, CommittedOffset]:
    """Every committed offset of a group. Raises BrokerError or ConnectionFailed if the coordinator does not respond."""
    (answer,) = fetch_offsets(client, {group: coordinator_id}, None)
    return {
        tp: CommittedOffset(None, error_text(code)) if code else CommittedOffset(offset if offset >= 0 else None, None)
        for tp, (offset, code) in answer.by_partition().items()
    }


def pending_offsets(
    client: BrokerClient, group: str, coordinator_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, CommittedOffset]:
    """Partitions where an open transaction has a pending commit of a group, with the broker's error.

    Kafka returns a partition that has only a pending offset if the request names it, and else omits it.

    Raises BrokerError or ConnectionFailed if the coordinator does not respond.
    """
    (answer,) = fetch_offsets(client, {group: coordinator_id}, partitions, require_stable=True)
    return {tp: CommittedOffset(None, error_text(code)) for tp, code in answer.pending().items()}


def committing_groups(client: BrokerClient, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
    """Groups with a committed or a pending offset of some partitions, those with a pending one first.

    Raises BrokerError or ConnectionFailed if a broker does not list its groups, or an offset cannot be read.
    """
    coordinators = group_ids(client, sorted(client.brokers))
    found: dict[TopicPartition, list[tuple[bool, str]]] = {tp: [] for tp in partitions}
    for answer in fetch_offsets(client, coordinators, partitions, require_stable=True):
        for tp, offset in answer.committed().items():
            if tp in found and (offset is None or offset >= 0):
                found[tp].append((offset is not None, answer.group))
    return {tp: [group for _, group in sorted(groups)] for tp, groups in found.items()}


def offsets_of_groups(
    client: BrokerClient, partitions: Sequence[TopicPartition]
) -> list[tuple[str, dict[TopicPartition, int]]] | None:
    """The committed offsets of all groups on some partitions, negative for none; null if any could not be read.

    `partitions`: the partitions; offsets of every group that the brokers list are requested.
    """
    brokers = sorted(client.brokers)
    try:
        found = read_offsets_of(client, group_ids(client, brokers), partitions)
        return None if not found and visibility_of(GROUPS, client, brokers).gaps else found
    except (BrokerError, ConnectionFailed):
        return None


def read_offsets_of(
    client: BrokerClient, coordinators: Mapping[str, int], partitions: Sequence[TopicPartition]
) -> list[tuple[str, dict[TopicPartition, int]]]:
    """The committed offsets of groups on some partitions, negative for none.

    Raises BrokerError or ConnectionFailed if the offsets of a group could not be read.
    """
    return [
        (answer.group, {tp: offset for tp, offset in answer.committed().items() if offset is not None})
        for answer in fetch_offsets(client, coordinators, partitions)
    ]


def fetch_offsets(
    client: BrokerClient,
    coordinators: Mapping[str, int],
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = False,
) -> Iterator[GroupOffsets]:
    """The offsets of groups on some partitions; where these are null, the stable offsets on all."""
    topics: dict[str, list[int]] | None = None
    if partitions is not None:
        topics = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
    stable = require_stable or topics is None
    batches = messages.batches(((broker_id, group) for group, broker_id in coordinators.items()), GROUPS_PER_REQUEST)
    responses = client.send([(broker_id, _many(groups, topics, stable)) for broker_id, groups in batches])
    for (broker_id, groups), response in zip(batches, responses, strict=True):
        if response.is_too_old:
            single = client.send([(broker_id, _one(group, topics, stable)) for group in groups])
            yield from (GroupOffsets(group, each, each.message) for group, each in zip(groups, single, strict=True))
        else:
            by_group = {each.group_id: each for each in response.message.groups} if response.message else {}
            yield from (GroupOffsets(group, response, by_group.get(group)) for group in groups)


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


def share_isolation_level(client: BrokerClient, group: str) -> str | None:
    """Isolation level of a share group (DescribeConfigs of the group); null if its configuration is not visible."""
    configs = broker_configs.describe_configs(client, broker_configs.GROUP, [group], [ISOLATION_LEVEL])
    return next((config.values.get(ISOLATION_LEVEL) for config in configs if not config.error), None)


def share_group_offsets(client: BrokerClient, group: str, coordinator_id: int) -> dict[TopicPartition, SharePartition]:
    """Start offset and lag of a share group on each of its partitions (DescribeShareGroupOffsets).

    Raises BrokerError or ConnectionFailed if the coordinator does not respond.
    """
    requested = messages.DescribeShareGroupOffsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    (found,) = client.send_one(messages.DescribeShareGroupOffsets(groups=[requested]), broker_id=coordinator_id).groups
    if found.error_code:
        error = error_text(found.error_code, found.error_message)
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
