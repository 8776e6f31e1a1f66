"""Partitions, their leaders (Metadata), and what these answer: offsets (ListOffsets), producers (DescribeProducers)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar, overload

from toolkit.errors import BrokerError, NotFound
from toolkit.schema import utc
from toolkit.schema.live import Partition, Producer
from toolkit.schema.table import Error, TopicPartition, utc_now
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text
from toolkit.sources.partition_selection import requested_partitions

PARTITIONS_PER_REQUEST = 2000
MAX_EPOCH = 32_767
UNKNOWN_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"

# Errors of stale metadata: the leader has changed.
MOVED = {"NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", UNKNOWN_PARTITION}


class PartitionLeader(NamedTuple):
    """A partition and its leader; `error` is set if there is none, or no such partition."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...] | None
    isr: tuple[int, ...] | None
    observed_at: dt.datetime
    error: str | None

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


Leader = PartitionLeader | Partition  # a partition whose offsets were read tells its leader as well
Leaders = Mapping[TopicPartition, Leader]
A = TypeVar("A", Partition, Producer)
B = TypeVar("B", Partition, Producer)
Requests = Sequence[tuple[int, Any]]  # broker id and message
LeaderQuery = Callable[[Leaders], tuple[Requests, Callable[[Sequence[BrokerResponse]], list[A]]]]
"""From partitions with their leaders: the requests, and what makes records of the responses."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One Metadata response.

    Parameters
    ----------
    partitions
        Partitions and their leaders.
    errors
        ``"NAME: text"`` by topic, for requested topics that were not returned.
    topic_ids
        By topic; of brokers that have them.
    """

    partitions: Mapping[TopicPartition, PartitionLeader]
    errors: Mapping[str, str]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def at(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        """Some of the partitions; one that no longer exists has `error`."""
        return {tp: self.partitions.get(tp) or self._gone(tp) for tp in topic_partitions}

    def _gone(self, tp: TopicPartition) -> PartitionLeader:
        error = self.errors.get(tp.topic) or f"{UNKNOWN_PARTITION}: the cluster has no such partition"
        return PartitionLeader(*tp, None, None, None, None, utc_now(), error)


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
    partitions: dict[TopicPartition, PartitionLeader] = {}
    for topic in message.topics:
        for part in topic.partitions:
            has_leader = part.leader_id >= 0
            partitions[TopicPartition(topic.name, part.partition_index)] = PartitionLeader(
                topic=topic.name,
                partition=part.partition_index,
                leader=part.leader_id if has_leader else None,
                leader_epoch=part.leader_epoch if part.leader_epoch >= 0 else None,
                replicas=tuple(part.replica_nodes),
                isr=tuple(part.isr_nodes),
                observed_at=now,
                error=None if has_leader else "LEADER_NOT_AVAILABLE: the partition has no leader",
            )
    errors = {topic.name: error_text(topic.error_code) for topic in message.topics if topic.error_code}
    topic_ids = {topic.name: topic.topic_id for topic in message.topics if topic.topic_id}
    return ClusterMetadata(partitions, errors, topic_ids)


def is_missing(error: str | None) -> bool:
    """Whether an error means that the topic or partition does not exist."""
    return error is not None and Error.of(error).code == UNKNOWN_PARTITION


def resolve_partitions(
    metadata: ClusterMetadata,
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[tuple[str, int]] | None,
) -> list[TopicPartition]:
    """The selected partitions, sorted.

    Parameters
    ----------
    metadata
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
    for topic, error in metadata.errors.items():
        if is_missing(error):
            raise NotFound(f"The cluster has no topic {topic!r}.")
        code, text = Error.of(error)
        raise BrokerError(f"Topic {topic!r} cannot be described: {code} ({text.rstrip('.')}).", code=code)
    if partitions is None:
        return sorted(tp for tp in metadata.partitions if topics is None or tp.topic in set(topics))
    requested = requested_partitions(topics, partitions)
    for tp in requested:
        if tp not in metadata.partitions:
            count = sum(topic == tp.topic for topic, _ in metadata.partitions)
            raise NotFound(f"Topic {tp.topic!r} has no partition {tp.partition}: it has 0 to {count - 1}.")
    return sorted(set(requested))


@overload
def query_leaders(client: BrokerClient, leaders: Leaders, query: LeaderQuery[A], /) -> tuple[list[A]]: ...
@overload
def query_leaders(
    client: BrokerClient, leaders: Leaders, first: LeaderQuery[A], second: LeaderQuery[B], /
) -> tuple[list[A], list[B]]: ...
def query_leaders(client: BrokerClient, leaders: Leaders, /, *queries: LeaderQuery[Any]) -> tuple[list[Any], ...]:
    """Records of each query, all sent in one round; where a leader has changed, read the metadata again and retry once.

    A leader answers the queries in their order, since they share its connection.
    """
    tables: list[list[Any]] = [[] for _ in queries]
    to_query = leaders
    for attempt in (1, 2):
        prepared = [query(to_query) for query in queries]
        responses = iter(client.send([request for requests, _ in prepared for request in requests]))
        tables = [
            [each for each in table if each.tp not in to_query] + records_of(list(islice(responses, len(requests))))
            for table, (requests, records_of) in zip(tables, prepared, strict=True)
        ]
        to_query = {} if attempt == 2 else _with_new_leaders(client, leaders, chain.from_iterable(tables))
        if not to_query:
            break
    return tuple(tables)


def _with_new_leaders(client: BrokerClient, leaders: Leaders, answers: Iterable[Partition | Producer]) -> Leaders:
    """Fresh metadata of the partitions that failed because their leader has changed."""
    failed = [(each.tp, each.error) for each in answers if each.error]
    fresh = read_metadata(client, {tp.topic for tp, _ in failed}).partitions if failed else {}
    return {
        tp: fresh[tp]
        for tp, error in failed
        if tp in fresh and (Error.of(error).code in MOVED or fresh[tp].leader != leaders[tp].leader)
    }


def _by_leader(leaders: Leaders) -> dict[int, list[TopicPartition]]:
    """Leader's broker id to its partitions; partitions without a leader are left out."""
    found: dict[int, list[TopicPartition]] = {}
    for tp, each in leaders.items():
        if each.leader is not None:
            found.setdefault(each.leader, []).append(tp)
    return found


def _batches(by_broker: Mapping[int, Sequence[TopicPartition]]) -> Iterator[tuple[int, dict[str, list[int]]]]:
    """Broker id, and topic to partition numbers, one for each request."""
    for broker_id, topic_partitions in by_broker.items():
        for start in range(0, len(topic_partitions), PARTITIONS_PER_REQUEST):
            batch: dict[str, list[int]] = {}
            for topic, partition in topic_partitions[start : start + PARTITIONS_PER_REQUEST]:
                batch.setdefault(topic, []).append(partition)
            yield broker_id, batch


class OffsetQuery(NamedTuple):
    """A column, and what ListOffsets has to be sent for it."""

    column: str
    replica_id: int
    isolation_level: int
    timestamp: int
    min_version: int = 0


LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -4, -5
CONSUMER, DEBUGGING = -1, -2  # a debugging replica gets the log end
UNCOMMITTED, COMMITTED = 0, 1

# In this order on each connection: the high watermark before the LSO, so that LSO >= high watermark proves that the LSO
# was not held at that moment; the log end last.
OFFSET_QUERIES = (
    OffsetQuery("log_start_offset", CONSUMER, UNCOMMITTED, EARLIEST),
    OffsetQuery("high_watermark", CONSUMER, UNCOMMITTED, LATEST),
    OffsetQuery("last_stable_offset", CONSUMER, COMMITTED, LATEST),
    OffsetQuery("log_end_offset", DEBUGGING, UNCOMMITTED, LATEST),
)
LSO_QUERIES = OFFSET_QUERIES[1:3]
TIERED_QUERIES = (  # of remote storage; null by brokers that do not know it
    OffsetQuery("local_log_start_offset", CONSUMER, UNCOMMITTED, EARLIEST_LOCAL, min_version=8),
    OffsetQuery("latest_tiered_offset", CONSUMER, UNCOMMITTED, LATEST_TIERED, min_version=9),
)
TIERED = {query.column for query in TIERED_QUERIES}
OPTIONAL = TIERED | {"log_end_offset"}  # not every compatible broker returns them


def read_partitions(client: BrokerClient, leaders: Leaders, *, tiered: bool = False) -> list[Partition]:
    """The offsets of partitions, from their leaders; null where `error` is set.

    Parameters
    ----------
    client
        The connection to the brokers.
    leaders
        From `ClusterMetadata`; where a leader has changed, the metadata is read again.
    tiered
        Read the offsets of remote storage, too; no verdict needs them.
    """
    (found,) = query_leaders(client, leaders, offsets_query(client, tiered=tiered))
    return found


def offsets_query(client: BrokerClient, *, tiered: bool = False) -> LeaderQuery[Partition]:
    """The query behind `read_partitions`, to be sent together with others."""
    queries = (*OFFSET_QUERIES, *TIERED_QUERIES) if tiered else OFFSET_QUERIES
    return partial(_query_offsets, queries=queries, timeout=client.timeout)


def lso_query(client: BrokerClient) -> LeaderQuery[Partition]:
    """The same with the high watermark and the LSO only, in half the requests."""
    return partial(_query_offsets, queries=LSO_QUERIES, timeout=client.timeout)


def _query_offsets(
    leaders: Leaders, *, queries: Sequence[OffsetQuery], timeout: float
) -> tuple[Requests, Callable[[Sequence[BrokerResponse]], list[Partition]]]:
    sent = [(leader, batch, query) for leader, batch in _batches(_by_leader(leaders)) for query in queries]
    requests = [
        (
            leader,
            messages.ListOffsets(
                partitions=batch,
                timestamp=query.timestamp,
                replica_id=query.replica_id,
                isolation_level=query.isolation_level,
                timeout_ms=int(timeout * 1000),  # used for tiered storage only
                min_version=query.min_version,
            ),
        )
        for leader, batch, query in sent
    ]

    def records_of(responses: Sequence[BrokerResponse]) -> list[Partition]:
        answers = _OffsetAnswers(queries)
        for (_, batch, query), response in zip(sent, responses, strict=True):
            answers.add(query.column, batch, response)
        return [answers.partition(each) for each in leaders.values()]

    return requests, records_of


class _OffsetAnswers:
    """Answers of ListOffsets by column, as there are hundreds of thousands; a record is made once."""

    def __init__(self, queries: Iterable[OffsetQuery]) -> None:
        self._offsets: dict[str, dict[tuple[str, int], int]] = {query.column: {} for query in queries}
        self._epochs: dict[tuple[str, int], int] = {}
        self._observed: dict[tuple[str, int], dt.datetime] = {}
        self._errors: dict[tuple[str, int], str | None] = {}

    def add(self, column: str, batch: Mapping[str, list[int]], response: BrokerResponse) -> None:
        observed_at = response.observed_at
        if response.error:
            if column in TIERED:
                return
            for topic, numbers in batch.items():
                for number in numbers:
                    self._errors[topic, number] = response.error_text
                    self._observed[topic, number] = observed_at
            return
        offsets = self._offsets[column]
        for topic, number, error_code, _, offset, leader_epoch in response.message.partitions:
            self._observed[topic, number] = observed_at
            if error_code == 0 and offset >= 0:
                offsets[topic, number] = offset
            elif error_code and column not in OPTIONAL:
                self._errors[topic, number] = error_text(error_code)
            if column == "high_watermark" and leader_epoch >= 0:
                self._epochs[topic, number] = leader_epoch  # newer than the metadata's

    def partition(self, of: Leader) -> Partition:
        key = of.topic, of.partition
        error = self._errors.get(key, of.error)
        offsets = {} if error else {column: found.get(key) for column, found in self._offsets.items()}
        return Partition(
            topic=of.topic,
            partition=of.partition,
            leader=of.leader,
            leader_epoch=self._epochs.get(key, of.leader_epoch),
            replicas=of.replicas,
            isr=of.isr,
            broker_id=of.leader,
            observed_at=self._observed.get(key, of.observed_at),
            error=error,
            **offsets,
        )


def read_producers(client: BrokerClient, leaders: Leaders, *, idle_producers: bool = True) -> list[Producer]:
    """The producers of partitions, from their leaders.

    A partition without producers has no record; a failed one has a record with `error`. Brokers also answer from
    follower replicas, so compare the leader epochs before and after.

    Parameters
    ----------
    client
        The connection to the brokers.
    leaders
        As for `read_partitions`.
    idle_producers
        Include producers without an open transaction; no verdict needs them.
    """
    (found,) = query_leaders(client, leaders, producers_query(idle_producers=idle_producers))
    return found


def producers_query(*, idle_producers: bool) -> LeaderQuery[Producer]:
    """The query behind `read_producers`, to be sent together with others."""
    return partial(_query_producers, idle=idle_producers)


def read_replica_producers(
    client: BrokerClient, topic_partitions: Iterable[TopicPartition], *, broker_id: int
) -> list[Producer]:
    """The same from one broker's replicas; a partition without a replica there has a record with `error`."""
    requests, records_of = _query_brokers({broker_id: list(topic_partitions)}, idle=True)
    return records_of(client.send(requests))


def _query_producers(
    leaders: Leaders, *, idle: bool
) -> tuple[Requests, Callable[[Sequence[BrokerResponse]], list[Producer]]]:
    leaderless = [
        Producer(topic=each.topic, partition=each.partition, observed_at=each.observed_at, error=each.error)
        for each in leaders.values()
        if each.leader is None
    ]
    requests, records_of = _query_brokers(_by_leader(leaders), idle=idle)
    return requests, lambda responses: leaderless + records_of(responses)


def _query_brokers(
    by_broker: Mapping[int, Sequence[TopicPartition]], *, idle: bool
) -> tuple[Requests, Callable[[Sequence[BrokerResponse]], list[Producer]]]:
    sent = list(_batches(by_broker))

    def records_of(responses: Sequence[BrokerResponse]) -> list[Producer]:
        return [
            producer for (broker_id, batch), response in zip(sent, responses, strict=True)
            for producer in _producers(broker_id, batch, response, idle=idle)
        ]  # fmt: skip

    return [(broker_id, messages.DescribeProducers(partitions=batch)) for broker_id, batch in sent], records_of


def _producers(
    broker_id: int, batch: Mapping[str, list[int]], response: BrokerResponse, *, idle: bool
) -> Iterator[Producer]:
    observed_at = response.observed_at
    if response.error:
        for topic, numbers in batch.items():
            for number in numbers:
                error = response.error_text
                yield Producer(topic=topic, partition=number, broker_id=broker_id, observed_at=observed_at, error=error)
        return
    for topic, number, error_code, message, producers in response.message.partitions:
        if error_code:
            error = error_text(error_code, message)
            yield Producer(topic=topic, partition=number, broker_id=broker_id, observed_at=observed_at, error=error)
        for producer_id, epoch, sequence, time, coordinator_epoch, start in producers:
            if start < 0 and not idle:
                continue
            # Null for Kafka's -1, and for values that Apache Kafka never returns (Redpanda: redpanda#11949).
            yield Producer(
                topic=topic,
                partition=number,
                producer_id=producer_id if producer_id >= 0 else None,
                producer_epoch=epoch if 0 <= epoch <= MAX_EPOCH else None,
                last_sequence=sequence if sequence >= 0 else None,
                last_timestamp=utc(time) if time >= 0 else None,
                coordinator_epoch=coordinator_epoch if coordinator_epoch >= 0 else None,
                current_txn_start_offset=start if start >= 0 else None,
                broker_id=broker_id,
                observed_at=observed_at,
            )
