"""How long brokers let a transaction be open (DescribeConfigs)."""

from __future__ import annotations

from toolkit.sources import wire as kafka
from toolkit.sources.wire import Wire

__all__ = ["longest_timeout_ms"]

BROKER = 4  # resource type
LONGEST = "transaction.max.timeout.ms"


def longest_timeout_ms(wire: Wire) -> int | None:
    """The longest timeout that any broker allows; null where this principal may not see that of one of them."""
    request = kafka.DescribeConfigs
    brokers = sorted(wire.brokers)
    asked = [
        (
            broker_id,
            request(
                resources=[
                    request.DescribeConfigsResource(
                        resource_type=BROKER, resource_name=str(broker_id), configuration_keys=[LONGEST]
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
        for answer in wire.send(asked)
        if not answer.error
        for found in answer.message.results
        if found.error_code == 0
        for config in found.configs
        if config.name == LONGEST and (config.value or "").isdecimal()
    ]
    return max(values) if values and len(values) == len(brokers) else None
