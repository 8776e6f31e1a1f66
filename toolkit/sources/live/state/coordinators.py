"""Coordinators of transactional ids and groups, by hash and metadata and by FindCoordinator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text
from toolkit.sources.live.state.cluster_metadata import ClusterMetadata, is_missing, read_metadata

GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
NAMES = {GROUP: ("group", OFFSETS_TOPIC), TRANSACTION: ("transaction", STATE_TOPIC)}
KEYS_PER_REQUEST = 1000


@dataclass(frozen=True)
class CoordinatorTopic:
    """A coordinators' topic: the partition that a key hashes to, and its leader.

    Parameters
    ----------
    topic
        ``__transaction_state`` or ``__consumer_offsets``.
    topology
        Metadata of this topic.
    """

    topic: str
    topology: ClusterMetadata

    @cached_property
    def count(self) -> int:
        """Partitions of the topic; 0 if it does not exist or may not be described."""
        return sum(topic == self.topic for topic, _ in self.topology.partitions)

    @property
    def hidden(self) -> str | None:
        """``"NAME: text"`` if the topic may not be described; null if it is visible or not created yet."""
        error = self.topology.errors.get(self.topic)
        return None if is_missing(error) else error

    def partition(self, key: str) -> int | None:
        """The partition that a key hashes to; null if the topic is not visible."""
        return coordinator_partition(key, self.count) if self.count else None

    def leader(self, partition: int | None) -> int | None:
        """Broker id of a partition's leader; null if it has none."""
        row = None if partition is None else self.topology.partitions.get(TopicPartition(self.topic, partition))
        return row["leader"] if row else None


def coordinator_rows(client: BrokerClient, keys: Sequence[str], key_type: int) -> list[Row]:
    """Rows of ``schema.COORDINATORS`` for ids of one type (`GROUP` or `TRANSACTION`)."""
    type_name, topic = NAMES[key_type]
    coordinator_topic = CoordinatorTopic(topic, read_metadata(client, [topic]))
    rows: list[Row] = []
    for key, (response, result) in zip(keys, find_coordinators(client, keys, key_type), strict=True):
        partition = coordinator_topic.partition(key)
        leader = coordinator_topic.leader(partition)
        coordinator = result.node_id if result and result.error_code == 0 else None
        hidden = coordinator_topic.hidden and f"{coordinator_topic.hidden} ({topic}, so its partition is not known)"
        rows.append(
            {
                "key_type": type_name,
                "key": key,
                "topic": topic,
                "partition": partition,
                "leader": leader,
                "coordinator_id": coordinator,
                "agrees": None if leader is None or coordinator is None else leader == coordinator,
                "broker_id": response.broker_id,
                "observed_at": response.observed_at,
                "error": _error(response, result) or hidden,
            }
        )
    return rows


def _error(response: BrokerResponse, result: Any) -> str | None:
    if result is None:
        return response.error_text
    return error_text(result.error_code, result.error_message) if result.error_code else None


def find_coordinators(client: BrokerClient, keys: Sequence[str], key_type: int) -> list[tuple[BrokerResponse, Any]]:
    """Find the coordinator of each key through any broker.

    Returns
    -------
    list of (BrokerResponse, message)
        Per key, in order: the response, and the coordinator in it (``node_id``, ``error_code``, ``error_message``),
        null without a response.
    """
    if not keys:
        return []
    batches = [keys[start : start + KEYS_PER_REQUEST] for start in range(0, len(keys), KEYS_PER_REQUEST)]
    request = messages.FindCoordinator
    responses = client.send(
        [(None, request(key_type=key_type, coordinator_keys=list(batch), min_version=4)) for batch in batches]
    )
    if any(response.error_text and response.error_text.startswith("UNSUPPORTED_VERSION") for response in responses):
        responses = client.send([(None, request(key_type=key_type, key=key, max_version=3)) for key in keys])
        return [(response, response.message) for response in responses]
    results = []
    for batch, response in zip(batches, responses, strict=True):
        by_key = {result.key: result for result in response.message.coordinators} if response.message else {}
        results += [(response, by_key.get(key)) for key in batch]
    return results
