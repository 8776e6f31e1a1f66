"""Partitions and their leaders, from Metadata."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from toolkit.errors import BrokerError, NotFound
from toolkit.schema import Row
from toolkit.schema.table import Error, TopicPartition, utc_now
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text
from toolkit.sources.partition_selection import requested_partitions

Requests = Sequence[tuple[int, Any]]  # broker id and message
RowsOf = Callable[[Sequence[BrokerResponse]], list[Row]]
LeaderQuery = Callable[[Mapping[TopicPartition, Row]], tuple[Requests, RowsOf]]
"""From partitions with their leaders: the requests, and what makes rows of the responses."""

PARTITIONS_PER_REQUEST = 2000
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"

# Errors of stale metadata: the leader has changed.
MOVED = ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", UNKNOWN)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One Metadata response.

    Parameters
    ----------
    partitions
        The metadata columns of ``schema.PARTITIONS``; `error` is set if there is no leader.
    errors
        ``"NAME: text"`` by topic, for requested topics that were not returned.
    """

    partitions: Mapping[TopicPartition, Row]
    errors: Mapping[str, str]

    def at(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Row]:
        """Rows of some partitions; one that no longer exists has `error`."""
        return {tp: self.partitions.get(tp) or self._gone(tp) for tp in topic_partitions}

    def _gone(self, tp: TopicPartition) -> Row:
        error = self.errors.get(tp[0]) or f"{UNKNOWN}: the cluster has no such partition"
        return _row(*tp, None, None, None, None, utc_now(), error)


def read_metadata(client: BrokerClient, topics: Iterable[str] | None = None) -> ClusterMetadata:
    """Read the metadata of topics from any broker; null for all topics that this principal may describe.

    Raises
    ------
    ConnectionFailed, BrokerError
        If no broker answers.
    """
    topic_request = messages.Metadata.MetadataRequestTopic
    requested = None if topics is None else [topic_request(name=name) for name in topics]
    message = client.send_one(messages.Metadata(topics=requested, allow_auto_topic_creation=False))
    now = utc_now()
    partitions: dict[TopicPartition, Row] = {}
    errors: dict[str, str] = {}
    for topic in message.topics:
        if topic.error_code:
            errors[topic.name] = error_text(topic.error_code)
        for part in topic.partitions:
            has_leader = part.leader_id >= 0
            partitions[TopicPartition(topic.name, part.partition_index)] = _row(
                topic.name,
                part.partition_index,
                part.leader_id if has_leader else None,
                part.leader_epoch if part.leader_epoch >= 0 else None,
                list(part.replica_nodes),
                list(part.isr_nodes),
                now,
                None if has_leader else "LEADER_NOT_AVAILABLE: the partition has no leader",
            )
    return ClusterMetadata(partitions, errors)


def _row(
    topic: str,
    partition: int,
    leader: int | None,
    leader_epoch: int | None,
    replicas: Sequence[int] | None,
    isr: Sequence[int] | None,
    observed_at: dt.datetime,
    error: str | None,
) -> Row:
    return {
        "topic": topic,
        "partition": partition,
        "leader": leader,
        "leader_epoch": leader_epoch,
        "replicas": replicas,
        "isr": isr,
        "broker_id": leader,
        "observed_at": observed_at,
        "error": error,
    }


def resolve_partitions(
    topology: ClusterMetadata,
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[tuple[str, int]] | None,
) -> list[TopicPartition]:
    """The selected partitions, sorted.

    Parameters
    ----------
    topology
        Metadata of the cluster.
    topics
        Topic names; all topics if null.
    partitions
        Numbers, for each of `topics`; or pairs of topic and number, without `topics`.

    Raises
    ------
    NotFound
        If the cluster does not have one of them.
    BrokerError
        If this principal may not describe one of the topics.
    UsageError
        If `partitions` are numbers without topics, or pairs with topics.
    """
    for name, error in topology.errors.items():
        _raise_topic_error(name, error)
    if partitions is None:
        return sorted(tp for tp in topology.partitions if topics is None or tp[0] in set(topics))
    requested = requested_partitions(topics, partitions)
    for topic, number in requested:
        if (topic, number) not in topology.partitions:
            count = sum(name == topic for name, _ in topology.partitions)
            raise NotFound(f"Topic {topic!r} has no partition {number}: it has 0 to {count - 1}.")
    return sorted(set(requested))


def _raise_topic_error(topic: str, error: str) -> None:
    """Raise the error of a requested topic."""
    name, text = Error.of(error)
    if name == UNKNOWN:
        raise NotFound(f"The cluster has no topic {topic!r}.")
    raise BrokerError(f"Topic {topic!r} cannot be described: {name} ({text.rstrip('.')}).", code=name)


def by_leader(partition_metadata: Mapping[TopicPartition, Row]) -> dict[int, list[TopicPartition]]:
    """Leader's broker id to its partitions; partitions without a leader are left out."""
    partitions: dict[int, list[TopicPartition]] = {}
    for tp, row in partition_metadata.items():
        if row["leader"] is not None:
            partitions.setdefault(row["leader"], []).append(tp)
    return partitions


def batches(topic_partitions: Sequence[TopicPartition]) -> Iterator[dict[str, list[int]]]:
    """Topic to partition numbers, one mapping per request."""
    for start in range(0, len(topic_partitions), PARTITIONS_PER_REQUEST):
        batch: dict[str, list[int]] = {}
        for topic, partition in topic_partitions[start : start + PARTITIONS_PER_REQUEST]:
            batch.setdefault(topic, []).append(partition)
        yield batch


def query_leaders(
    client: BrokerClient, partition_metadata: Mapping[TopicPartition, Row], *queries: LeaderQuery
) -> list[list[Row]]:
    """Rows of each query, all sent in one round; where a leader has changed, read the metadata again and retry once.

    A leader answers the queries in their order, since they share its connection.
    """
    tables: list[list[Row]] = [[] for _ in queries]
    to_query = partition_metadata
    for attempt in (1, 2):
        prepared = [query(to_query) for query in queries]
        responses = iter(client.send([request for requests, _ in prepared for request in requests]))
        tables = [
            [row for row in table if TopicPartition(row["topic"], row["partition"]) not in to_query]
            + rows_of(list(islice(responses, len(requests))))
            for table, (requests, rows_of) in zip(tables, prepared, strict=True)
        ]
        to_query = {} if attempt == 2 else _with_new_leaders(client, partition_metadata, chain.from_iterable(tables))
        if not to_query:
            break
    return tables


def _with_new_leaders(
    client: BrokerClient, partition_metadata: Mapping[TopicPartition, Row], rows: Iterable[Row]
) -> dict[TopicPartition, Row]:
    """Fresh metadata of the partitions that failed because their leader has changed."""
    failed = [(TopicPartition(row["topic"], row["partition"]), row["error"]) for row in rows if row["error"]]
    fresh = read_metadata(client, {topic for (topic, _), _ in failed}).partitions if failed else {}
    return {
        tp: fresh[tp]
        for tp, error in failed
        if tp in fresh and (error.startswith(MOVED) or fresh[tp]["leader"] != partition_metadata[tp]["leader"])
    }


def is_missing(error: str | None) -> bool:
    """Whether an error means that the topic does not exist."""
    return error is not None and error.startswith(UNKNOWN)
