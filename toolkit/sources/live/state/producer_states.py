"""Producers on partitions, as the leaders or other replicas answer (DescribeProducers)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from toolkit.schema import utc
from toolkit.schema.live import Producer
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text, omitted_text
from toolkit.sources.live.state.leaders import Leaders, PartitionLeader, Requests, batches_by_leader, query_leaders

MAX_EPOCH = 32_767


def read_producers(client: BrokerClient, leaders: Leaders, *, idle_producers: bool = True) -> list[Producer]:
    """The producers of partitions, from their leaders.

    A partition without producers has no record; a failed one has a record with `error`. Brokers also answer from
    follower replicas, so compare the leader epochs before and after.

    `client`: the connection to the brokers.
    `leaders`: as for `read_partitions`.
    `idle_producers`: include producers without an open transaction; no verdict needs them.
    """
    (found,) = query_leaders(client, leaders, ProducersQuery(idle_producers=idle_producers))
    return found


def read_replica_producers(
    client: BrokerClient, partitions: Mapping[TopicPartition, PartitionLeader], *, broker_id: int
) -> list[Producer]:
    """The same from one broker's replicas; a partition without a replica there has a record with `error`."""
    query = ProducersQuery(idle_producers=True)
    requests = query.requests({tp: each._replace(leader=broker_id) for tp, each in partitions.items()})
    return query.records(client.send(requests))


class ProducersQuery:
    """DescribeProducers; of producers with an open transaction only, or of idle ones too."""

    def __init__(self, *, idle_producers: bool) -> None:
        self._idle_producers = idle_producers
        self._leaders: Leaders = {}
        self._sent: list[tuple[int, dict[str, list[int]]]] = []

    def requests(self, leaders: Leaders) -> Requests:
        """The requests to the leaders."""
        self._leaders, self._sent = leaders, batches_by_leader(leaders)
        return [(leader, messages.DescribeProducers(topics=list(batch.items()))) for leader, batch in self._sent]

    def records(self, responses: Sequence[BrokerResponse]) -> list[Producer]:
        """The producers, after an error for each partition without a leader."""
        found = [
            Producer(topic=each.topic, partition=each.partition, observed_at=each.observed_at, error=each.error)
            for each in self._leaders.values()
            if each.leader is None
        ]
        for (leader, batch), response in zip(self._sent, responses, strict=True):
            found += _producers(leader, batch, response, idle=self._idle_producers)
        return found


def _producers(
    broker_id: int, batch: Mapping[str, list[int]], response: BrokerResponse, *, idle: bool
) -> Iterator[Producer]:
    observed_at = response.observed_at
    topics = () if response.error else response.message.topics
    described = {(topic.name, each.partition_index): each for topic in topics for each in topic.partitions}
    requested = ((topic, number) for topic, numbers in batch.items() for number in numbers)
    for topic, number in sorted(each for each in requested if each not in described):
        error = response.error_text or omitted_text("DescribeProducers", "this partition")
        yield Producer(topic=topic, partition=number, broker_id=broker_id, observed_at=observed_at, error=error)
    for (topic, number), partition in described.items():
        if partition.error_code:
            error = error_text(partition.error_code, partition.error_message)
            yield Producer(topic=topic, partition=number, broker_id=broker_id, observed_at=observed_at, error=error)
        for each in partition.active_producers:
            if (start := each.current_txn_start_offset) < 0 and not idle:
                continue
            epoch, time = each.producer_epoch, each.last_timestamp
            # Null for Kafka's -1, and for values that Apache Kafka never returns (Redpanda: redpanda#11949).
            yield Producer(
                topic=topic,
                partition=number,
                producer_id=each.producer_id if each.producer_id >= 0 else None,
                producer_epoch=epoch if 0 <= epoch <= MAX_EPOCH else None,
                last_sequence=each.last_sequence if each.last_sequence >= 0 else None,
                last_timestamp=utc(time) if time >= 0 else None,
                coordinator_epoch=each.coordinator_epoch if each.coordinator_epoch >= 0 else None,
                current_txn_start_offset=start if start >= 0 else None,
                broker_id=broker_id,
                observed_at=observed_at,
            )
