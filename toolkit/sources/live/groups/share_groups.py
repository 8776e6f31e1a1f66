"""Share groups (KIP-932): isolation level and start offsets."""

from __future__ import annotations

from typing import NamedTuple

from toolkit.errors import BrokerError
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import error_text

SHARE = "share"  # protocol type
GROUP = 32  # resource type
ISOLATION_LEVEL = "share.isolation.level"


def share_isolation_level(client: BrokerClient, group: str) -> str | None:
    """Isolation level of a share group (DescribeConfigs of the group); null if its configuration is not visible."""
    resource = messages.DescribeConfigs.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=[ISOLATION_LEVEL]
    )
    request = messages.DescribeConfigs(resources=[resource], include_synonyms=False, include_documentation=False)
    (response,) = client.send([(None, request)])
    if response.error:
        return None
    configs = (config for result in response.message.results if result.error_code == 0 for config in result.configs)
    level: str | None = next((config.value for config in configs if config.name == ISOLATION_LEVEL), None)
    return level


class SharePartition(NamedTuple):
    """Start offset of a share partition (null if the group has read nothing of it), its lag, and the broker's error."""

    start_offset: int | None
    lag: int | None
    error: str | None


def share_group_offsets(client: BrokerClient, group: str, coordinator_id: int) -> dict[TopicPartition, SharePartition]:
    """Start offset and lag of a share group on each of its partitions (DescribeShareGroupOffsets).

    Raises
    ------
    BrokerError, ConnectionFailed
        If the coordinator does not respond.
    """
    requested = messages.DescribeShareGroupOffsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    (found,) = client.send_one(messages.DescribeShareGroupOffsets(groups=[requested]), broker_id=coordinator_id).groups
    if found.error_code:
        error = error_text(found.error_code, found.error_message)
        raise BrokerError(f"The offsets of share group {group!r} cannot be read: {error}", code=Error.of(error).code)
    return {
        TopicPartition(topic.topic_name, part.partition_index): SharePartition(
            _known(part.start_offset),
            _known(part.lag),
            error_text(part.error_code, part.error_message) if part.error_code else None,
        )
        for topic in found.topics
        for part in topic.partitions
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None
