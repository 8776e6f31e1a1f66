"""Is a broker ready? Ask it."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

__all__ = ["is_ready", "quiet_admin"]


def quiet_admin(server: str) -> AdminClient:
    """Return a client that keeps trying, and says nothing while nobody is there yet."""
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": server,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
    }
    return AdminClient(config)


def is_ready(admin: AdminClient, broker_ids: set[int]) -> bool:
    """Tell whether all these brokers are known and a topic over all of them could be created; none is."""
    try:
        if not broker_ids <= set(admin.list_topics(timeout=1).brokers):
            return False
        attempt = NewTopic("ready", num_partitions=1, replication_factor=len(broker_ids))
        admin.create_topics([attempt], validate_only=True, request_timeout=5)["ready"].result()
    except KafkaException:
        return False
    return True
