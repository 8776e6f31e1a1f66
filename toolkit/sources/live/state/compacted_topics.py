"""Topics with log compaction (DescribeConfigs)."""

from __future__ import annotations

from collections.abc import Collection

from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient

TOPIC = 2  # resource type
POLICY = "cleanup.policy"


def compacted_topics(client: BrokerClient, topics: Collection[str]) -> dict[str, bool]:
    """Whether each topic is compacted; topics whose configuration may not be described are left out."""
    request = messages.DescribeConfigs
    resources = [
        request.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[POLICY])
        for name in sorted(topics)
    ]
    (response,) = client.send(
        [(None, request(resources=resources, include_synonyms=False, include_documentation=False))]
    )
    if response.error:
        return {}
    return {
        result.resource_name: "compact" in (config.value or "")
        for result in response.message.results
        if result.error_code == 0
        for config in result.configs
        if config.name == POLICY
    }
