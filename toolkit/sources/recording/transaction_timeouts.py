"""The brokers' transaction.max.timeout.ms (DescribeConfigs)."""

from __future__ import annotations

from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient

__all__ = ["longest_timeout_ms"]

BROKER = 4  # resource type
MAX_TIMEOUT = "transaction.max.timeout.ms"


def longest_timeout_ms(client: BrokerClient) -> int | None:
    """The longest timeout that a broker allows; null if one may not be described."""
    request = messages.DescribeConfigs
    brokers = sorted(client.brokers)
    requests = [
        (
            broker_id,
            request(
                resources=[
                    request.DescribeConfigsResource(
                        resource_type=BROKER, resource_name=str(broker_id), configuration_keys=[MAX_TIMEOUT]
                    )
                ],
                include_synonyms=False,
                include_documentation=False,
            ),
        )
        for broker_id in brokers
    ]
    values = [
        int(config.value)
        for response in client.send(requests)
        if not response.error
        for result in response.message.results
        if result.error_code == 0
        for config in result.configs
        if config.name == MAX_TIMEOUT and (config.value or "").isdecimal()
    ]
    return max(values) if values and len(values) == len(brokers) else None
