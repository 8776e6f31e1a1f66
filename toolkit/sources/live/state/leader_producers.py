"""Producer state of partitions (DescribeProducers)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from toolkit.schema import Row, utc
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text
from toolkit.sources.live.state.cluster_metadata import LeaderQuery, Requests, RowsOf, batches, by_leader, query_leaders

MAX_EPOCH = 32_767
UNKNOWN = {
    "producer_id": None,
    "producer_epoch": None,
    "last_sequence": None,
    "last_timestamp": None,
    "coordinator_epoch": None,
    "current_txn_start_offset": None,
}


def producer_rows(
    client: BrokerClient, partition_metadata: Mapping[TopicPartition, Row], *, idle_producers: bool = True
) -> list[Row]:
    """Rows of ``schema.PRODUCERS`` from the partitions' leaders.

    A partition without producers has no row; a failed one has a row with `error`. Brokers also answer from follower
    replicas, so compare the leader epochs before and after.

    Parameters
    ----------
    client
        The connection to the brokers.
    partition_metadata
        Rows with `leader`, of `cluster_metadata.ClusterMetadata` or ``schema.PARTITIONS``.
    idle_producers
        Include producers without an open transaction; no verdict needs them.
    """
    (rows,) = query_leaders(client, partition_metadata, producers_query(idle_producers=idle_producers))
    return rows


def producers_query(*, idle_producers: bool) -> LeaderQuery:
    """The query behind `producer_rows`, to be sent together with others."""
    return partial(_query, idle=idle_producers)


def producer_rows_at(
    client: BrokerClient, partition_metadata: Mapping[TopicPartition, Row], *, broker_id: int
) -> list[Row]:
    """The same from one broker's replicas; a partition without a replica there has an error row."""
    requests, rows_of = _broker_query({broker_id: list(partition_metadata)}, idle=True)
    return rows_of(client.send(requests))


def _query(partition_metadata: Mapping[TopicPartition, Row], *, idle: bool) -> tuple[Requests, RowsOf]:
    leaderless = [
        _failed(tp, None, row["observed_at"], row["error"])
        for tp, row in partition_metadata.items()
        if row["leader"] is None
    ]
    requests, rows_of = _broker_query(by_leader(partition_metadata), idle=idle)
    return requests, lambda responses: leaderless + rows_of(responses)


def _broker_query(by_broker: Mapping[int, list[TopicPartition]], *, idle: bool) -> tuple[Requests, RowsOf]:
    sent = [
        (broker_id, batch) for broker_id, topic_partitions in by_broker.items() for batch in batches(topic_partitions)
    ]

    def rows_of(responses: Sequence[BrokerResponse]) -> list[Row]:
        return [
            row for (broker_id, batch), response in zip(sent, responses, strict=True)
            for row in _rows(broker_id, batch, response, idle=idle)
        ]  # fmt: skip

    return [(broker_id, messages.DescribeProducers(partitions=batch)) for broker_id, batch in sent], rows_of


def _rows(broker_id: int, batch: Mapping[str, list[int]], response: BrokerResponse, *, idle: bool) -> Iterator[Row]:
    observed_at = response.observed_at
    if response.error:
        for name, numbers in batch.items():
            for number in numbers:
                yield _failed(TopicPartition(name, number), broker_id, observed_at, response.error_text)
        return
    for topic, number, error_code, message, producers in response.message.partitions:
        if error_code:
            yield _failed(TopicPartition(topic, number), broker_id, observed_at, error_text(error_code, message))
        for producer_id, epoch, sequence, time, coordinator_epoch, start in producers:
            if start < 0 and not idle:
                continue
            # Null for Kafka's -1, and for values that Apache Kafka never returns (Redpanda: redpanda#11949).
            yield {
                "topic": topic,
                "partition": number,
                "producer_id": producer_id if producer_id >= 0 else None,
                "producer_epoch": epoch if 0 <= epoch <= MAX_EPOCH else None,
                "last_sequence": sequence if sequence >= 0 else None,
                "last_timestamp": utc(time) if time >= 0 else None,
                "coordinator_epoch": coordinator_epoch if coordinator_epoch >= 0 else None,
                "current_txn_start_offset": start if start >= 0 else None,
                "broker_id": broker_id,
                "observed_at": observed_at,
                "error": None,
            }


def _failed(tp: TopicPartition, broker_id: int | None, observed_at: dt.datetime, error: str | None) -> Row:
    key = {"topic": tp[0], "partition": tp[1], "broker_id": broker_id}
    return {**key, **UNKNOWN, "observed_at": observed_at, "error": error}
