"""Which topics the log cleaner works on (DescribeConfigs)."""

from __future__ import annotations

from collections.abc import Collection

from toolkit.sources import wire as kafka
from toolkit.sources.wire import Wire

__all__ = ["compacted_topics"]

TOPIC = 2  # resource type
POLICY = "cleanup.policy"


def compacted_topics(wire: Wire, topics: Collection[str]) -> dict[str, bool]:
    """Whether each topic is compacted; one whose configuration may not be seen is left out.

    Parameters
    ----------
    topics
        Names.
    """
    request = kafka.DescribeConfigs
    asked = [
        request.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[POLICY])
        for name in sorted(topics)
    ]
    (answer,) = wire.send([(None, request(resources=asked, include_synonyms=False, include_documentation=False))])
    if answer.error:
        return {}
    return {
        found.resource_name: "compact" in (config.value or "")
        for found in answer.message.results
        if found.error_code == 0
        for config in found.configs
        if config.name == POLICY
    }
