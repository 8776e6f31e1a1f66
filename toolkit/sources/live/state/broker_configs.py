"""Configurations of topics, brokers and groups (DescribeConfigs), and the software that brokers show."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.analysis.exposure import MAX_TIMEOUT, BrokerIdentity
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import error_text, omitted_text

TOPIC, BROKER, GROUP = 2, 4, 32  # resource types
POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceConfig:
    """Values of one resource by key, or the error; keys that the broker does not know are left out."""

    name: str
    broker_id: int | None
    observed_at: dt.datetime
    values: Mapping[str, str | None] = field(default_factory=dict)
    error: str | None = None


def describe_configs(
    client: BrokerClient, resource_type: int, names: Collection[str], keys: Sequence[str]
) -> list[ResourceConfig]:
    """The configurations of resources, in one request to each broker that is a resource, or else to any broker.

    `resource_type`, `names`: `TOPIC`, `BROKER` or `GROUP`, and the names of the resources.
    """
    request = messages.DescribeConfigs
    resources = [
        request.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=list(keys))
        for name in names
    ]
    options = {"include_synonyms": False, "include_documentation": False}
    requests: list[tuple[int | None, Any]] = [(None, request(resources=resources, **options))]
    if resource_type == BROKER:
        requests = [(int(each.resource_name), request(resources=[each], **options)) for each in resources]
    found: list[ResourceConfig] = []
    for (broker_id, _), response in zip(requests, client.send(requests), strict=True):
        sender, at = response.broker_id if broker_id is None else broker_id, response.observed_at
        results = {} if response.error else {result.resource_name: result for result in response.message.results}
        for name in names if broker_id is None else [str(broker_id)]:
            values: dict[str, str | None] = {}
            error: str | None = response.error_text or omitted_text("DescribeConfigs", "this resource")
            if result := results.get(name):
                values = {config.name: config.value for config in result.configs or ()}
                error = error_text(result.error_code, result.error_message) if result.error_code else None
            found.append(ResourceConfig(name=name, broker_id=sender, observed_at=at, values=values, error=error))
    return found


def broker_configs(client: BrokerClient, brokers: Iterable[int], keys: Sequence[str]) -> list[ResourceConfig]:
    """The configuration of each broker, from itself."""
    return describe_configs(client, BROKER, [str(broker) for broker in brokers], keys)


def compacted_topics(client: BrokerClient, topics: Collection[str]) -> dict[str, bool]:
    """Whether each topic is compacted; topics whose configuration may not be described are left out."""
    return {
        config.name: "compact" in (config.values[POLICY] or "")
        for config in describe_configs(client, TOPIC, sorted(topics), [POLICY])
        if not config.error and POLICY in config.values
    }


def longest_timeout_ms(client: BrokerClient) -> int | None:
    """The longest timeout that a broker allows; null if one may not be described."""
    configs = broker_configs(client, sorted(client.brokers), [MAX_TIMEOUT])
    values = [config.values.get(MAX_TIMEOUT) or "" for config in configs if not config.error]
    numbers = [int(value) for value in values if value.isdecimal()]
    return max(numbers) if numbers and len(numbers) == len(configs) else None


def broker_identities(client: BrokerClient, brokers: Iterable[int]) -> list[BrokerIdentity]:
    """What each broker shows of its software, if there was a connection to it; nothing is sent."""
    addresses, cluster_id = client.brokers, client.cluster_id
    return [
        BrokerIdentity(
            broker_id=broker_id, host=addresses.get(broker_id, "").rpartition(":")[0], cluster_id=cluster_id, apis=apis
        )
        for broker_id in brokers
        if (apis := client.apis(broker_id)) is not None
    ]
