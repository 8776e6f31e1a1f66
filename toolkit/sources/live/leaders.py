"""What partitions' leaders answer: Metadata, ListOffsets, DescribeProducers, raw batches (Fetch), brokers' time.

Brokers' time is the clock of the KRaft leader (KIP-836), or the newest record that a coordinator wrote. A broker
forwards DescribeQuorum to the active controller, which answers its own current time as that of its own replica
(``RaftUtil.toReplicaState``); it needs DESCRIBE on the cluster. The records of ``__transaction_state`` and
``__consumer_offsets`` have the times of the coordinators' clocks: the newest one is at most the time now.
"""

from __future__ import annotations

import datetime as dt
import operator
import time
from base64 import urlsafe_b64encode
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from toolkit.analysis.diagnosis.observation import CLOCK_OF, BrokersTime, clocks_apart
from toolkit.errors import BrokerError, NotFound
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.schema import utc
from toolkit.schema.coerce import OffsetSpec
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.live import Partition, Producer
from toolkit.schema.table import Error, TopicPartition, utc_now
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient, BrokerResponse, error_name, error_text, omitted_text
from toolkit.sources.offset_queries import check_offset_spec, milliseconds, named_offset
from toolkit.sources.source import requested_partitions

PARTITIONS_PER_REQUEST = 2000
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
    topic_id: str | None = None  # as Kafka prints it; null by brokers before 2.8

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


Leader = PartitionLeader | Partition  # a partition whose offsets were read tells its leader as well
Leaders = Mapping[TopicPartition, Leader]
A = TypeVar("A", Partition, Producer)
B = TypeVar("B", Partition, Producer)
Requests = Sequence[tuple[int, Any]]  # broker id and message


class LeaderQuery(Protocol[A]):
    """What to ask the leaders of partitions: an `OffsetsQuery` or a `ProducersQuery`."""

    def requests(self, leaders: Leaders) -> Requests:
        """The requests to the leaders."""

    def records(self, responses: Sequence[BrokerResponse]) -> list[A]:
        """The records of the responses to them."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One Metadata response."""

    partitions: Mapping[TopicPartition, PartitionLeader]  # partitions and their leaders
    errors: Mapping[str, str]  # ``"NAME: text"`` by topic, for requested topics that were not returned

    def at(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        """Some of the partitions; one that no longer exists has `error`."""
        return {tp: self.partitions.get(tp) or self._gone(tp) for tp in topic_partitions}

    def _gone(self, tp: TopicPartition) -> PartitionLeader:
        error = self.errors.get(tp.topic) or f"{UNKNOWN_PARTITION}: the cluster has no such partition"
        return PartitionLeader(*tp, None, None, None, None, utc_now(), error)


def read_metadata(
    client: BrokerClient, topics: Collection[str] | None = None, *, broker_id: int | None = None
) -> ClusterMetadata:
    """Read the metadata of topics from a broker, or any; null for all topics that this principal may describe.

    Raises ConnectionFailed or BrokerError if no broker answers.
    """
    return _metadata(client.send_one(_metadata_request(topics), broker_id=broker_id), topics)


def read_newest_metadata(client: BrokerClient, topics: Collection[str] | None) -> ClusterMetadata:
    """As `read_metadata`, of each partition what the broker with the highest leader epoch says.

    A broker that no controller reaches answers on, and takes itself for the leader of what others lead since.
    """
    responses = client.send([(each, _metadata_request(topics)) for each in sorted(client.brokers)])
    for response in responses:
        if isinstance(response.error, BrokerError) and response.error.code == broker_client.OTHER_CLUSTER:
            raise response.error
    found = [_metadata(each.message, topics) for each in responses if not each.error]
    partitions: dict[TopicPartition, PartitionLeader] = {}
    for tp, each in chain.from_iterable(metadata.partitions.items() for metadata in found):
        known = partitions.get(tp)
        if known is None or _epoch(each) > _epoch(known):
            partitions[tp] = each
    if not found:
        return read_metadata(client, topics)
    shown = {tp.topic for tp in partitions}  # a broker that is behind does not know a new topic
    errors = ((name, error) for each in found for name, error in each.errors.items())
    return ClusterMetadata(
        partitions, {name: error for name, error in errors if not (name in shown and is_missing(error))}
    )


BROKERS_DIFFER = (
    "BROKERS_DIFFER: the brokers name different brokers of the cluster, so one that no controller reaches may answer "
    "for what others lead"
)


def split_error(client: BrokerClient) -> str | None:
    """That brokers differ on which ones there are, so that answers of former coordinators may be among theirs."""
    if client.is_split:
        read_newest_metadata(client, ())  # what a broker knew when it was connected may be old
    return BROKERS_DIFFER if client.is_split else None


def _epoch(leader: PartitionLeader) -> int:
    return -1 if leader.leader_epoch is None else leader.leader_epoch


def _metadata_request(topics: Iterable[str] | None) -> Any:
    topic_request = broker_client.Metadata.MetadataRequestTopic
    requested = None if topics is None else [topic_request(name=name) for name in topics]
    return broker_client.Metadata(topics=requested, allow_auto_topic_creation=False)


def _metadata(message: Any, topics: Iterable[str] | None) -> ClusterMetadata:
    now = utc_now()
    partitions: dict[TopicPartition, PartitionLeader] = {}
    for topic in message.topics:
        name, topic_id = topic.name, None
        if topic.topic_id:
            topic_id = urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")
        numbers = {part.partition_index for part in topic.partitions}
        for number in {*range(max(numbers, default=-1) + 1)} - numbers:
            error = omitted_text("Metadata", "this partition")
            partitions[TopicPartition(name, number)] = PartitionLeader(
                name, number, None, None, None, None, now, error, topic_id
            )
        for part in topic.partitions:
            number, leader, epoch = part.partition_index, part.leader_id, part.leader_epoch
            partitions[TopicPartition(name, number)] = PartitionLeader(
                name,
                number,
                leader if leader >= 0 else None,
                epoch if epoch >= 0 else None,
                tuple(part.replica_nodes),
                tuple(part.isr_nodes),
                now,
                None if leader >= 0 else _no_leader(part),
                topic_id,
            )
    errors = dict.fromkeys(set(topics or ()) - {topic.name for topic in message.topics}, omitted_text("Metadata", "it"))
    errors |= {topic.name: error_text(topic.error_code) for topic in message.topics if topic.error_code}
    return ClusterMetadata(partitions, errors)


def _no_leader(partition: Any) -> str:
    """Why a partition has no leader, or none on this listener: then its broker is not down, and counts as offline."""
    if error_name(partition.error_code) == "LISTENER_NOT_FOUND":
        return error_text(partition.error_code)
    brokers = sorted(partition.offline_replicas or ())
    are = f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))} {'are' if brokers[1:] else 'is'}"
    return f"LEADER_NOT_AVAILABLE: the partition has no leader{f': {are} offline' if brokers else ''}"


def is_missing(error: str | None) -> bool:
    """Whether an error means that the topic or partition does not exist."""
    return error is not None and Error.of(error).code == UNKNOWN_PARTITION


def resolve_partitions(
    metadata: ClusterMetadata,
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[tuple[str, int]] | None,
) -> list[TopicPartition]:
    """The selected partitions, sorted.

    `topics`: topic names; all topics if null.
    `partitions`: numbers, for each of `topics`; or pairs of topic and number, without `topics`.
    Raises NotFound if the cluster does not have one of them. Raises BrokerError if this principal may not describe one
    of the topics. Raises UsageError if `partitions` are numbers without topics, or pairs with topics.
    """
    for topic, error in metadata.errors.items():
        if is_missing(error):
            raise NotFound(
                f"The cluster has no topic {topic!r}.", do="kafka-txn partitions lists the topics that you may see."
            )
        code, text = Error.of(error)
        raise BrokerError(f"Topic {topic!r} cannot be described: {code} ({text.rstrip('.')}).", code=code)
    if partitions is None:
        return sorted(tp for tp in metadata.partitions if topics is None or tp.topic in set(topics))
    requested = requested_partitions(topics, partitions)
    for tp in requested:
        if tp not in metadata.partitions:
            count = sum(topic == tp.topic for topic, _ in metadata.partitions)
            raise NotFound(
                f"Topic {tp.topic!r} has no partition {tp.partition}: it has 0 to {count - 1}.", do="Name one of these."
            )
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
        requests = [query.requests(to_query) for query in queries]
        responses = iter(client.send(list(chain.from_iterable(requests))))
        tables = [
            [each for each in table if each.tp not in to_query] + query.records(list(islice(responses, len(sent))))
            for table, query, sent in zip(tables, queries, requests, strict=True)
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


def batches_by_leader(leaders: Leaders) -> list[tuple[int, dict[str, list[int]]]]:
    """Broker id, and topic to partition numbers, one for each request; partitions without a leader are left out."""
    led = ((each.leader, each) for each in leaders.values() if each.leader is not None)
    batches = []
    for broker_id, partitions in broker_client.batches(led, PARTITIONS_PER_REQUEST):
        by_topic: dict[str, list[int]] = {}
        for each in partitions:
            by_topic.setdefault(each.topic, []).append(each.partition)
        batches.append((broker_id, by_topic))
    return batches


class OffsetColumn(NamedTuple):
    """A column, and what ListOffsets has to be sent for it."""

    name: str
    replica_id: int
    isolation_level: int
    timestamp: int
    min_version: int = 0


LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -4, -5
CONSUMER, DEBUGGING = -1, -2  # a debugging replica gets the log end
UNCOMMITTED, COMMITTED = 0, 1

# In this order on each connection: the high watermark before the LSO, so that LSO >= high watermark proves that the LSO
# was not held at that moment; the log end last.
OFFSET_COLUMNS = (
    OffsetColumn("log_start_offset", CONSUMER, UNCOMMITTED, EARLIEST),
    OffsetColumn("high_watermark", CONSUMER, UNCOMMITTED, LATEST),
    OffsetColumn("last_stable_offset", CONSUMER, COMMITTED, LATEST),
    OffsetColumn("log_end_offset", DEBUGGING, UNCOMMITTED, LATEST),
)
LSO_COLUMNS = OFFSET_COLUMNS[1:3]
TIERED_COLUMNS = (  # of remote storage; null by brokers that do not know it
    OffsetColumn("local_log_start_offset", CONSUMER, UNCOMMITTED, EARLIEST_LOCAL, min_version=8),
    OffsetColumn("latest_tiered_offset", CONSUMER, UNCOMMITTED, LATEST_TIERED, min_version=9),
)
TIERED = {column.name for column in TIERED_COLUMNS}
OPTIONAL = TIERED | {"log_end_offset"}  # not every compatible broker returns them


def read_partitions(client: BrokerClient, leaders: Leaders, *, tiered: bool = False) -> list[Partition]:
    """The offsets of partitions, from their leaders; null where `error` is set.

    `leaders`: from `ClusterMetadata`; where a leader has changed, the metadata is read again.
    `tiered`: read the offsets of remote storage, too; no verdict needs them.
    """
    columns = (*OFFSET_COLUMNS, *TIERED_COLUMNS) if tiered else OFFSET_COLUMNS
    (found,) = query_leaders(client, leaders, OffsetsQuery(client, columns))
    return found


class OffsetsQuery:
    """ListOffsets, once for each column.

    `client`: the connection to the brokers, for its timeout: offsets in remote storage may take long.
    `columns`: all; or `LSO_COLUMNS`, in half the requests.
    `notable_only`: make no records of partitions without an error and with an LSO that is not held; `partition` makes
        one of them.
    """

    def __init__(
        self, client: BrokerClient, columns: Sequence[OffsetColumn] = OFFSET_COLUMNS, *, notable_only: bool = False
    ) -> None:
        self._columns = columns
        self._notable_only = notable_only
        self._timeout_ms = int(client.timeout * 1000)
        self._leaders: Leaders = {}
        self._answered: list[tuple[Leaders, _OffsetAnswers]] = []
        self._sent: list[tuple[int, dict[str, list[int]], OffsetColumn]] = []

    def requests(self, leaders: Leaders) -> Requests:
        """The requests to the leaders."""
        self._leaders = leaders
        self._sent = [
            (leader, batch, column) for leader, batch in batches_by_leader(leaders) for column in self._columns
        ]
        return [
            (
                leader,
                broker_client.ListOffsets(
                    partitions=batch,
                    timestamp=column.timestamp,
                    replica_id=column.replica_id,
                    isolation_level=column.isolation_level,
                    timeout_ms=self._timeout_ms,
                    min_version=column.min_version,
                ),
            )
            for leader, batch, column in self._sent
        ]

    def records(self, responses: Sequence[BrokerResponse]) -> list[Partition]:
        """The partitions; null offsets where `error` is set."""
        answers = _OffsetAnswers(self._columns)
        for (_, batch, column), response in zip(self._sent, responses, strict=True):
            answers.add(column.name, batch, response)
        self._answered.append((self._leaders, answers))
        notable = answers.notable() if self._notable_only else self._leaders
        return [answers.partition(each) for tp, each in self._leaders.items() if tp in notable or each.error]

    def partition(self, tp: TopicPartition) -> Partition:
        """A partition by the newest responses."""
        leaders, answers = next(each for each in reversed(self._answered) if tp in each[0])
        return answers.partition(leaders[tp])


class _OffsetAnswers:
    """Answers of ListOffsets by column, as there are hundreds of thousands; a record is made of one that is needed."""

    def __init__(self, columns: Iterable[OffsetColumn]) -> None:
        self._listed: dict[str, dict[tuple[str, int], Any]] = {column.name: {} for column in columns}
        self._observed: dict[tuple[str, int], dt.datetime] = {}
        self._failed: dict[tuple[str, int], str | None] = {}

    def add(self, column: str, batch: Mapping[str, list[int]], response: BrokerResponse) -> None:
        requested = [(topic, number) for topic, numbers in batch.items() for number in numbers]
        if not response.error:
            topics = response.message.topics
            listed = {(topic.name, each.partition_index): each for topic in topics for each in topic.partitions}
            self._listed[column].update(listed)
            self._observed.update(dict.fromkeys(listed, response.observed_at))
            if column not in OPTIONAL:
                omitted = [
                    key
                    for key in requested
                    if (each := listed.get(key)) is None or (each.offset < 0 and each.error_code == 0)
                ]
                error = omitted_text("ListOffsets", f"the {column} of this partition")
                self._failed.update(dict.fromkeys(omitted, error))
        elif column not in TIERED:
            self._failed.update(dict.fromkeys(requested, response.error_text))
            self._observed.update(dict.fromkeys(requested, response.observed_at))

    def notable(self) -> set[tuple[str, int]]:
        """Partitions with an error, or an LSO below the high watermark."""
        found = set(self._failed)
        for listed in self._listed.values():
            found.update(key for key, each in listed.items() if each.error_code)
        high_watermarks = self._listed["high_watermark"]
        lsos = self._listed["last_stable_offset"].items()
        return found.union(key for key, each in lsos if each.offset < high_watermarks.get(key, each).offset)

    def partition(self, of: Leader) -> Partition:
        key = of.topic, of.partition
        error, leader_epoch, offsets = self._failed.get(key, of.error), of.leader_epoch, {}
        for column, listed in self._listed.items():
            if (answer := listed.get(key)) is None:
                continue
            if answer.error_code == 0 and answer.offset >= 0:
                offsets[column] = answer.offset
            elif answer.error_code and column not in OPTIONAL:
                error = error_text(answer.error_code)
            if column == "high_watermark" and answer.leader_epoch >= 0:
                leader_epoch = answer.leader_epoch  # newer than the metadata's
        return Partition(
            topic=of.topic,
            partition=of.partition,
            leader=of.leader,
            leader_epoch=leader_epoch,
            replicas=of.replicas,
            isr=of.isr,
            broker_id=of.leader,
            observed_at=self._observed.get(key, of.observed_at),
            error=error,
            **({} if error else offsets),
        )


MAX_EPOCH = 32_767


def read_producers(
    client: BrokerClient, leaders: Leaders, *, idle_producers: bool = True, producer_ids: Container[int] | None = None
) -> list[Producer]:
    """The producers of partitions, from their leaders.

    A partition without producers has no record; a failed one has a record with `error`. Brokers also answer from
    follower replicas, so compare the leader epochs before and after.

    `client`: the connection to the brokers.
    `leaders`: as for `read_partitions`.
    `idle_producers`: include producers without an open transaction; no verdict needs them.
    `producer_ids`: make records of these only: a large cluster has millions.
    """
    query = ProducersQuery(idle_producers=idle_producers, producer_ids=producer_ids)
    (found,) = query_leaders(client, leaders, query)
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

    def __init__(self, *, idle_producers: bool, producer_ids: Container[int] | None = None) -> None:
        self._idle_producers, self._producer_ids = idle_producers, producer_ids
        self._leaders: Leaders = {}
        self._sent: list[tuple[int, dict[str, list[int]]]] = []

    def requests(self, leaders: Leaders) -> Requests:
        """The requests to the leaders."""
        self._leaders, self._sent = leaders, batches_by_leader(leaders)
        return [(leader, broker_client.DescribeProducers(topics=list(batch.items()))) for leader, batch in self._sent]

    def records(self, responses: Sequence[BrokerResponse]) -> list[Producer]:
        """The producers, after an error for each partition without a leader."""
        found = [
            Producer(topic=each.topic, partition=each.partition, observed_at=each.observed_at, error=each.error)
            for each in self._leaders.values()
            if each.leader is None
        ]
        for (leader, batch), response in zip(self._sent, responses, strict=True):
            found += _producers(leader, batch, response, idle=self._idle_producers, only=self._producer_ids)
        return found


def _producers(
    broker_id: int, batch: Mapping[str, list[int]], response: BrokerResponse, *, idle: bool, only: Container[int] | None
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
            start = each.current_txn_start_offset
            if (start < 0 and not idle) or (only is not None and each.producer_id not in only):
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


COORDINATORS_TOPICS = (STATE_TOPIC, OFFSETS_TOPIC)
METADATA_TOPIC = "__cluster_metadata"
MAX_TIMESTAMP = -3  # of ListOffsets, from version 7 on (KIP-734)
QUORUM_TIMEOUT_S = 5.0  # brokers wait for a controller: the time is not worth more


def read_brokers_time(client: BrokerClient, metadata: ClusterMetadata) -> BrokersTime:
    """Read the brokers' time; nothing is changed.

    `metadata`: that of `COORDINATORS_TOPICS`, or of one of them.
    """
    newest = _newest_record(client, metadata)
    sent = time.monotonic()
    (response,) = client.send([(None, _quorum_request())], timeout=min(client.timeout, QUORUM_TIMEOUT_S))
    clock = _controllers_clock(response, elapsed=dt.timedelta(seconds=time.monotonic() - sent))
    if clock.time is None:
        return BrokersTime(error=clock.error) if newest is None else _of_record(*newest, response)
    if newest is not None and newest[1] > clock.time + CLOCKS_DIFFER:
        return clocks_apart(_record_name(newest[0]), newest[1], clock)
    return clock


def _quorum_request() -> Any:
    topic = broker_client.DescribeQuorum.TopicData
    partition = topic.PartitionData(partition_index=0)
    return broker_client.DescribeQuorum(
        topics=[topic(topic_name=METADATA_TOPIC, partitions=[partition])], min_version=1
    )


def _controllers_clock(response: BrokerResponse, *, elapsed: dt.timedelta) -> BrokersTime:
    """The leader's time in a response that took so long; it may be from any time in between."""
    if error := response.failure:
        return BrokersTime(error=f"DescribeQuorum: {error}")
    partitions = [each for topic in response.message.topics for each in topic.partitions]
    for each in partitions:
        if each.error_code:
            return BrokersTime(error=f"DescribeQuorum: {error_text(each.error_code)}")
        for replica in (*each.current_voters, *each.observers):
            if replica.replica_id == each.leader_id and (now := utc(replica.last_caught_up_timestamp)) is not None:
                ahead = response.observed_at - now
                return BrokersTime(
                    time=now,
                    source=f"{CLOCK_OF}controller {each.leader_id}",
                    is_current=True,
                    machine_ahead=dt.timedelta(0) if dt.timedelta(0) <= ahead <= elapsed + CLOCKS_DIFFER else ahead,
                )
    return BrokersTime(error="DescribeQuorum: no time of the leader was returned")


def _newest_record(client: BrokerClient, metadata: ClusterMetadata) -> tuple[TopicPartition, dt.datetime] | None:
    """The partition with the newest record of a coordinator, and its time; null if none could be read."""
    leaders = {tp: each for tp, each in metadata.partitions.items() if tp.topic in COORDINATORS_TOPICS}
    timeout_ms = int(client.timeout * 1000)
    responses = client.send(
        [
            (
                leader,
                broker_client.ListOffsets(
                    partitions=batch, timestamp=MAX_TIMESTAMP, timeout_ms=timeout_ms, replica_id=-1, isolation_level=0,
                    min_version=7,
                ),
            )
            for leader, batch in batches_by_leader(leaders)
        ]
    )  # fmt: skip
    found = [
        (TopicPartition(topic.name, each.partition_index), each.timestamp)
        for response in responses
        if not response.error
        for topic in response.message.topics
        for each in topic.partitions
        if each.error_code == 0 and each.timestamp >= 0
    ]
    if not found:
        return None
    tp, milliseconds = max(found, key=lambda each: each[1])
    newest = utc(milliseconds)
    return None if newest is None else (tp, newest)


def _of_record(tp: TopicPartition, written: dt.datetime, response: BrokerResponse) -> BrokersTime:
    """A time that brokers have reached; this machine's clock can only be seen to be behind it."""
    behind = min(response.observed_at - written, dt.timedelta(0))
    return BrokersTime(time=written, source=_record_name(tp), machine_ahead=behind)


def _record_name(tp: TopicPartition) -> str:
    return f"the newest record of {tp.topic}-{tp.partition}"


THROTTLED = "THROTTLED: a quota withholds records from this client for now: consumer_byte_rate or request_percentage"
WAIT_MS = 500  # for a leader that does not have the offsets yet

# Transient errors: an election, a restart, a leader that does not know its high watermark yet.
TRANSIENT = {
    "BROKER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_LEADER_OR_FOLLOWER",
    "OFFSET_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
}


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """An offset of a partition, and the broker to fetch it from."""

    tp: TopicPartition
    offset: int
    broker_id: int
    # epoch in which that broker leads, so that it fails if it no longer leads, or not yet; -1 skips the check
    leader_epoch: int = -1

    @classmethod
    def of(cls, partition: Leader, offset: int) -> FetchPosition:
        """An offset of a partition, to fetch from its leader in its present epoch."""
        leader, epoch = partition.leader, partition.leader_epoch
        return cls(partition.tp, offset, -1 if leader is None else leader, -1 if epoch is None else epoch)


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The response for one partition."""

    # record batches; the first contains the offset, or follows it if compacted away. The last may be truncated. Empty
    # at the high watermark
    records: bytes = b""
    # producer id to the first offsets of its aborted transactions in `records`; with read_committed only
    aborted: Mapping[int, Sequence[int]] = field(default_factory=dict)
    high_watermark: int | None = None  # the broker's, at the time of the response
    error: str | None = None  # ``"NAME: text"``; null on success


def fetch(
    client: BrokerClient,
    fetch_positions: Sequence[FetchPosition],
    *,
    max_bytes: int,
    read_committed: bool = False,
    max_wait_ms: int = 0,
) -> list[FetchedBatches]:
    """Fetch up to `max_bytes` at each position, but at least one whole batch (KIP-74), in one request each.

    A broker that limits this client, its bytes or its requests, answers at first with nothing, and is asked again if it
    may answer in time.

    `max_bytes`: limit per position.
    `read_committed`: only up to the LSO; otherwise up to the high watermark, open transactions included.
    `max_wait_ms`: how long a broker may wait for records.
    """
    requests = [
        (position.broker_id, _request(position, max_bytes, read_committed, max_wait_ms)) for position in fetch_positions
    ]
    responses, deadline = client.send(requests), time.monotonic() + client.timeout
    while limited := [
        index
        for index, each in enumerate(responses)
        if _is_throttled(each) and time.monotonic() + each.message.throttle_time_ms / 1000 < deadline
    ]:
        for index, response in zip(limited, client.send([requests[i] for i in limited]), strict=True):
            responses[index] = response
    return [_fetched(response) for response in responses]


def _is_throttled(response: BrokerResponse) -> bool:
    """Whether a quota kept the broker from answering; its connection is paused until it may."""
    return not response.failure and not response.message.responses and response.message.throttle_time_ms > 0


def _request(position: FetchPosition, max_bytes: int, read_committed: bool, max_wait_ms: int) -> Any:
    topic = broker_client.Fetch.FetchTopic
    partition = topic.FetchPartition(
        partition=position.tp.partition,
        current_leader_epoch=position.leader_epoch,
        fetch_offset=position.offset,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return broker_client.Fetch(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,  # no session
        topics=[topic(topic=position.tp.topic, partitions=[partition])],
        forgotten_topics_data=[],
        max_version=10,  # from 11 a broker may redirect to a follower; 10 has every compression
    )


def _fetched(response: BrokerResponse) -> FetchedBatches:
    if response.failure:
        return FetchedBatches(error=response.failure)
    partition = next((each for topic in response.message.responses for each in topic.partitions), None)
    if partition is None:
        return FetchedBatches(error=THROTTLED if _is_throttled(response) else omitted_text("Fetch", "this partition"))
    if partition.error_code:
        return FetchedBatches(error=error_text(partition.error_code))
    aborted: dict[int, list[int]] = {}
    for transaction in partition.aborted_transactions or ():
        aborted.setdefault(transaction.producer_id, []).append(transaction.first_offset)
    return FetchedBatches(bytes(partition.records or b""), aborted, partition.high_watermark)


def offset_of(client: BrokerClient, spec: OffsetSpec, partition: Partition) -> int:
    """The offset that a spec resolves to now.

    `spec`: an offset; a time with zone, for the first record at or after it; or ``"log_start"``, ``"lso"``,
        ``"high_watermark"``, ``"log_end"``.
    `partition`: the partition, without error. A time after the last record, and a log end that the broker does not
        return, resolve to its high watermark.
    Raises UsageError if the spec is invalid. Raises BrokerError or ConnectionFailed if the leader does not return the
    time's offset.
    """
    check_offset_spec(spec)
    high_watermark = partition.high_watermark or 0
    if isinstance(spec, str):
        offset = named_offset(partition, spec)
    elif isinstance(spec, dt.datetime):
        offset = _offset_at(client, partition, spec)
    else:
        return operator.index(spec)
    return high_watermark if offset is None else offset


def _offset_at(client: BrokerClient, partition: Partition, time: dt.datetime) -> int | None:
    """Offset of the first record at or after a time; null if there is none."""
    message = client.send_one(
        broker_client.ListOffsets(
            partitions={partition.topic: [partition.partition]},
            timestamp=milliseconds(time),
            replica_id=-1,
            isolation_level=0,
            timeout_ms=int(client.timeout * 1000),
        ),
        broker_id=partition.leader,
    )
    result = next((each for topic in message.topics for each in topic.partitions), None)
    if result is None or result.error_code:
        error = error_text(result.error_code) if result else omitted_text("ListOffsets", "this partition")
        where = f"{time} in {partition.topic}-{partition.partition}"
        raise BrokerError(f"Broker {partition.leader} did not find {where}: {error}", code=Error.of(error).code)
    return result.offset if result.offset >= 0 else None
