"""Clients of the lab: queries that are repeated until they succeed, a producer that errs on purpose, a consumer."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from toolkit.config import ClientConfig
from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed, LabError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.lab.broker import Kafka
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient, error_name, is_lost, write_batch
from toolkit.sources.live.coordinators import CoordinatorTopic, loading_coordinators

ALWAYS_UP = 1  # broker that no incident stops; with fewer than three brokers it is the only controller, too

T = TypeVar("T")

ClusterAddress: TypeAlias = Kafka | ClientConfig | str | Mapping[str, object]
"""A lab cluster, or the client configuration of another one."""

# Transient errors.
PASSING = {
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "LEADER_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_TOPIC_OR_PARTITION",
}

VERIFIED = (
    "The broker verified with the coordinator whether this transaction is open on this partition: it is not, so it "
    "refused the write: KIP-890 at work, which is what makes hanging transactions rare from Kafka 3.6 on.",
    "Start the broker with transaction.partition.verification.enable=false to stage this all the same.",
)
FENCED = ("A newer epoch of this producer is known: this one is fenced.", "")

# Meaning and remedy of an error, in general or of one API, while an incident is staged.
EXPLAINED = {
    "EndTxn: INVALID_TXN_STATE": ("There is no open transaction to end.", ""),
    "INVALID_PRODUCER_EPOCH": FENCED,
    "INVALID_PRODUCER_ID_MAPPING": ("The coordinator does not know the transactional id any more: it has expired.", ""),
    "INVALID_TRANSACTION_TIMEOUT": ("The broker allows no timeout as long.", "Raise transaction.max.timeout.ms."),
    "INVALID_TXN_STATE": VERIFIED,
    "PRODUCER_FENCED": FENCED,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "The user may not write under this id, or used two-phase commit where it is disabled.",
        "Grant WRITE on the id, or start the broker with transaction.two.phase.commit.enable=true.",
    ),
    "TRANSACTION_ABORTABLE": VERIFIED,
}


class RequestRefused(LabError):
    """A broker refused a request.

    `api`, `whose`: the request, and the topic or id that it is about.
    `error`: Kafka's name of the error.
    """

    def __init__(self, api: str, whose: str, *, error: str) -> None:
        self.error = error
        means, do = EXPLAINED.get(f"{api}: {error}") or EXPLAINED.get(error) or ("", "")
        super().__init__(f"{api} of {whose} was refused with {error}.", means=means, do=do)


@dataclass(frozen=True, slots=True)
class LeaderTransaction:
    """An open transaction in the producer state of its partition's leader."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    coordinator_epoch: int


def config_of(kafka: ClusterAddress) -> ClientConfig:
    """The client configuration of a cluster."""
    return ClientConfig(kafka.client_config() if isinstance(kafka, Kafka) else kafka)


def until(condition: Callable[[], T | None], *, awaited: str, timeout: float = 180) -> T:
    """Repeat a query until it returns a result, also if a broker does not answer it: it may be busy, or starting.

    Raises LabError if there is none in time.
    `condition`: returns None while there is no result.
    `awaited`: description of the result, for the error.
    `timeout`: seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        failed: Exception | None = None
        try:
            if (found := condition()) is not None:
                return found
        except (BrokerError, ConnectionFailed, KafkaException) as error:
            if not _is_passing(error):
                raise
            failed = error
        if time.monotonic() > deadline:
            raise LabError(
                f"Waited {timeout:g} s in vain for {awaited}.", do="Try again when this machine has less to do."
            ) from failed
        time.sleep(0.05)


def _is_passing(error: BrokerError | ConnectionFailed | KafkaException) -> bool:
    if isinstance(error, KafkaException):
        return error.args[0].name() in {*PASSING, "_TIMED_OUT", "_TRANSPORT", "_WAIT_COORD"}
    return is_lost(error) and not isinstance(error, AuthenticationFailed)


def send_until_accepted(
    cluster: BrokerClient,
    request: Callable[[], Any],
    *,
    of: str,
    codes: Callable[[Any], Iterable[int]],
    to: Callable[[], int | None] = lambda: None,
) -> Any:
    """Send a request until its response has no transient error.

    Raises RequestRefused if the response has another error, or still an error at the end of the timeout.
    `cluster`: the client to send it with.
    `request`: makes the request.
    `of`: topic or id of the request, for the error.
    `codes`: returns the error codes of a response.
    `to`: returns the broker, before every attempt; any broker if null.
    """
    api = str(request().name).removesuffix("Request")
    passing: set[str] = set()

    def accepted() -> Any:
        message = cluster.send_one(request(), broker_id=to())
        errors = {error_name(code) for code in codes(message)} - {"NONE"}
        for error in sorted(errors - PASSING):
            raise RequestRefused(api, of, error=error)
        passing.clear()
        passing.update(errors)
        return None if errors else message

    try:
        return until(accepted, awaited=f"an answer to {api}")
    except RequestRefused:
        raise
    except LabError as waited:
        raise RequestRefused(api, of, error=", ".join(sorted(passing)) or "REQUEST_TIMED_OUT") from waited


QUIET: Mapping[str, Any] = {"log_level": 0, "error_cb": lambda error: None}
"""Settings of a client that logs nothing."""


def create_topic(kafka: ClusterAddress, topic: str, **options: Any) -> None:
    """Create a topic with two partitions of one replica.

    Raises RequestRefused if the cluster refuses it.
    `**options`: other arguments of ``NewTopic``.
    """
    new = NewTopic(topic, **({"num_partitions": 2, "replication_factor": 1} | options))
    administer(kafka, "CreateTopics", topic, lambda admin: admin.create_topics([new]))


def administer(
    kafka: ClusterAddress, api: str, whose: str, request: Callable[[AdminClient], Mapping[Any, Future[Any]]]
) -> None:
    """Send a request about one topic or partition, and wait for the answer. Raises RequestRefused if it is an error."""
    admin = admin_of(kafka)
    (answer,) = request(admin).values()
    try:
        answer.result(60)
    except KafkaException as refused:
        raise RequestRefused(api, whose, error=refused.args[0].name()) from None


def admin_of(kafka: ClusterAddress) -> AdminClient:
    """A client that manages topics and logs nothing: brokers may be down on purpose."""
    return AdminClient({**config_of(kafka).librdkafka(), **QUIET})


def partitions(cluster: BrokerClient, topic: str) -> dict[int, Any]:
    """Metadata by partition, of those that have a leader; empty while the topic does not exist."""
    request = broker_client.Metadata(
        topics=[broker_client.Metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (found,) = cluster.send_one(request).topics
    return {each.partition_index: each for each in found.partitions if each.leader_id >= 0}


def leader(cluster: BrokerClient, topic: str, partition: int) -> int:
    """Broker id of a partition's leader, once there is one."""

    def elected() -> int | None:
        found = partitions(cluster, topic).get(partition)
        return None if found is None else int(found.leader_id)

    return until(elected, awaited=f"a leader of {topic}-{partition}")


def elect_uncleanly(cluster: BrokerClient, topic: str, numbers: Sequence[int], *, broker_id: int) -> None:
    """Let a replica that is not in sync lead partitions (ElectLeaders), as unclean.leader.election.enable does.

    Before 3.9, controllers in KRaft mode ignore that setting. They need a while to know that the last leader is gone.
    """
    of_topic = broker_client.ElectLeaders.TopicPartitions

    def leads_all() -> bool | None:
        found = partitions(cluster, topic)
        missing = [each for each in numbers if each not in found or found[each].leader_id != broker_id]
        if missing:
            controller_id = int(cluster.send_one(broker_client.Metadata(topics=[])).controller_id)
            request = broker_client.ElectLeaders(
                election_type=1,
                topic_partitions=[of_topic(topic=topic, partitions=missing)],
                timeout_ms=1_000,
                min_version=1,
            )
            # The controller may be the broker that is gone, or a broker that still forwards to it; it is asked again.
            cluster.send_one(request, broker_id=controller_id)
        return None if missing else True

    until(leads_all, awaited=f"broker {broker_id} to lead {topic}")


def await_coordinators(cluster: BrokerClient) -> None:
    """Return when every partition of ``__transaction_state`` has a leader that has loaded it, as after a restart."""

    def are_loaded() -> bool | None:
        topic = CoordinatorTopic.read(cluster, STATE_TOPIC)
        has_leaders = all(topic.leader(number) is not None for number in range(topic.count))
        return True if has_leaders and not loading_coordinators(cluster, topic) else None

    until(are_loaded, awaited=f"the coordinators to load {STATE_TOPIC}")


def coordinator(cluster: BrokerClient, key: str, *, group: bool = False) -> int:
    """Broker id of the coordinator of a transactional id, or of a group."""
    found = send_until_accepted(
        cluster,
        lambda: broker_client.FindCoordinator(key=key, key_type=0 if group else 1, max_version=2),
        of=key,
        codes=lambda message: [message.error_code],
    )
    return int(found.node_id)


def open_transactions(cluster: BrokerClient, topic: str, partition: int) -> list[LeaderTransaction]:
    """Open transactions in the producer state of a partition's leader, the one that holds the LSO first."""
    described = send_until_accepted(
        cluster,
        lambda: broker_client.DescribeProducers(topics=[(topic, [partition])]),
        of=f"{topic}-{partition}",
        to=lambda: leader(cluster, topic, partition),
        codes=lambda message: [message.topics[0].partitions[0].error_code],
    )
    found = [
        LeaderTransaction(each.producer_id, each.producer_epoch, each.current_txn_start_offset, each.coordinator_epoch)
        for each in described.topics[0].partitions[0].active_producers
        if each.current_txn_start_offset >= 0
    ]
    return sorted(found, key=lambda each: each.start_offset)


def offsets(cluster: BrokerClient, topic: str, partition: int) -> tuple[int, int, int]:
    """Log start offset, last stable offset and high watermark of a partition (ListOffsets)."""
    return (
        _offset(cluster, topic, partition, timestamp=-2, isolation_level=0),
        _offset(cluster, topic, partition, timestamp=-1, isolation_level=1),
        _offset(cluster, topic, partition, timestamp=-1, isolation_level=0),
    )


def _offset(cluster: BrokerClient, topic: str, partition: int, *, timestamp: int, isolation_level: int) -> int:
    found = send_until_accepted(
        cluster,
        lambda: broker_client.ListOffsets(
            partitions={topic: [partition]},
            timestamp=timestamp,
            replica_id=-1,
            isolation_level=isolation_level,
            max_version=4,
        ),
        of=f"{topic}-{partition}",
        to=lambda: leader(cluster, topic, partition),
        codes=lambda message: [message.topics[0].partitions[0].error_code],
    )
    return int(found.topics[0].partitions[0].offset)


class SteadyClient(BrokerClient):
    """A client that sends requests for any broker to the one that no incident stops."""

    def send_one(self, request: Any, *, broker_id: int | None = None) -> Any:
        """As `BrokerClient.send_one`; without a broker id, to that broker."""
        return super().send_one(request, broker_id=ALWAYS_UP if broker_id is None else broker_id)


class TxnProducer:
    """A transactional id and its producer id; every step is one request, also those that a correct one never sends.

    By default it behaves like clients before transaction version 2 (the epoch stays from one transaction to the next),
    which every broker from 2.8 to 4.x still accepts. With ``transaction_version=2`` it behaves like a Java client of
    4.0 or newer: its writes add the partition to the transaction, and each end brings the next epoch.

    Each step raises RequestRefused with the Kafka error; transient errors (a coordinator that loads, a marker that is
    still being written) are retried.
    `cluster`: the client to send with.
    `transaction_version`: 1, or 2 (KIP-890, brokers from 4.0 on).
    """

    def __init__(
        self, cluster: BrokerClient, transactional_id: str, *, timeout_ms: int = 600_000, transaction_version: int = 1
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.transaction_version = transaction_version
        self.producer_id = self.producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    def init(self, *, two_phase: bool = False) -> TxnProducer:
        """InitProducerId: get a producer id, or the next epoch, which fences the one before.

        `two_phase`: use two-phase commit (KIP-939), which needs version 6 of the request.
        """
        init_request = {"transactional_id": self.transactional_id, "transaction_timeout_ms": self.timeout_ms}
        response = self._ask(
            lambda: (
                broker_client.InitProducerId(**init_request, enable2_pc=True, min_version=6)
                if two_phase
                else broker_client.InitProducerId(**init_request, max_version=2)
            ),
            codes=lambda message: [message.error_code],
        )
        self._adopt(response)
        return self

    def add(self, topic: str, *partitions: int) -> None:
        """AddPartitionsToTxn: add the partition to the transaction; in transaction version 2, `send` does that."""
        if self.transaction_version == 2:
            return
        request = broker_client.AddPartitionsToTxn
        self._ask(
            lambda: request(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.producer_epoch,
                v3_and_below_topics=[request.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
                max_version=3,
            ),
            codes=lambda message: [
                each.partition_error_code
                for found in message.results_by_topic_v3_and_below
                for each in found.results_by_partition
            ],
        )

    def send(self, topic: str, partition: int, *, records: int = 1, timestamp: dt.datetime | None = None) -> int:
        """Produce one batch with the next sequence number, and return its base offset.

        `topic`, `partition`: the partition; the caller decides whether the coordinator knows of it.
        `records`: number of records.
        `timestamp`: the client's clock; now if null.
        """
        sequence = self._sequences.get((topic, partition), 0)
        key = self.transactional_id.encode()
        batch = write_batch(
            [(key, b"record %d" % number) for number in range(sequence, sequence + records)],
            timestamp=timestamp or dt.datetime.now(dt.UTC),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = broker_client.Produce.TopicProduceData
        produced = self._ask(
            lambda: broker_client.Produce(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    request(name=topic, partition_data=[request.PartitionProduceData(index=partition, records=batch)])
                ],
                **({"min_version": 12, "max_version": 12} if self.transaction_version == 2 else {"max_version": 8}),
            ),
            to=lambda: leader(self.cluster, topic, partition),
            codes=lambda message: [message.responses[0].partition_responses[0].error_code],
        )
        self._sequences[topic, partition] = sequence + records
        return int(produced.responses[0].partition_responses[0].base_offset)

    def add_offsets(self, group: str) -> None:
        """AddOffsetsToTxn: add a group's partition of ``__consumer_offsets`` to the transaction."""
        self._ask(
            lambda: broker_client.AddOffsetsToTxn(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=group,
                max_version=3,
            ),
            codes=lambda message: [message.error_code],
        )

    def commit_offset(self, group: str, topic: str, partition: int, *, offset: int) -> None:
        """TxnOffsetCommit: write a group's offset as part of the transaction; the group needs no members."""
        request = broker_client.TxnOffsetCommit.TxnOffsetCommitRequestTopic
        one = request.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        self._ask(
            lambda: broker_client.TxnOffsetCommit(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[request(name=topic, partitions=[one])],
                max_version=3,
            ),
            to=lambda: coordinator(self.cluster, group, group=True),
            codes=lambda message: [message.topics[0].partitions[0].error_code],
        )

    def decide(self, *, commit: bool) -> None:
        """EndTxn: let the coordinator decide; returns before the markers are written."""
        ended = self._end_txn(commit=commit)
        if self.transaction_version == 2:
            self._adopt(ended)

    def end(self, *, commit: bool) -> None:
        """End the transaction, and return when every marker is written."""
        self._end_txn(commit=commit)
        # Until then, a repeated request fails with CONCURRENT_TRANSACTIONS.
        ended = self._end_txn(commit=commit)
        if self.transaction_version == 2:
            self._adopt(ended)

    def _end_txn(self, *, commit: bool) -> Any:
        return self._ask(
            lambda: broker_client.EndTxn(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                committed=commit,
                **({"min_version": 5} if self.transaction_version == 2 else {"max_version": 3}),
            ),
            codes=lambda message: [message.error_code],
        )

    def _adopt(self, response: Any) -> None:
        """Producer id and epoch of an InitProducerId or EndTxn response, whose sequences begin anew."""
        self.producer_id, self.producer_epoch = int(response.producer_id), int(response.producer_epoch)
        self._sequences.clear()

    def _ask(
        self, request: Callable[[], Any], *, codes: Callable[[Any], Iterable[int]], to: Callable[[], int] | None = None
    ) -> Any:
        return send_until_accepted(
            self.cluster,
            request,
            of=f"{self.transactional_id!r} (producer {self.producer_id}, epoch {self.producer_epoch})",
            codes=codes,
            to=to or (lambda: coordinator(self.cluster, self.transactional_id)),
        )


def write_committed(cluster: BrokerClient, topic: str, partition: int, *, records: int = 1) -> int:
    """Write records in a new transaction, commit it, and return the offset of the first record."""
    producer = TxnProducer(cluster, f"healthy-{uuid.uuid4().hex[:6]}").init()
    producer.add(topic, partition)
    offset = producer.send(topic, partition, records=records)
    producer.end(commit=True)
    return offset


EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class BlockedConsumer:
    """A read_committed consumer of one partition that has read up to the LSO and committed; it goes on once that moves.

    `kafka`: a lab cluster, or the client configuration of another one.
    `topic`, `partition`: partition to read, from the group's committed offset or from the start of the log.
    """

    def __init__(self, kafka: ClusterAddress, topic: str, group: str, *, partition: int = 0) -> None:
        settings = {**config_of(kafka).librdkafka(), **QUIET}
        self.group = group
        self.topic = topic
        self.partition = partition
        self._admin = admin_of(kafka)
        self._consumer = Consumer(
            settings
            | {
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            }
        )
        committed = until(self._committed, awaited=f"the committed offset of group {group}")
        self.position: int = committed if committed >= 0 else self._offset(EARLIEST)
        """Next offset to read."""
        self._end = -1
        self._consumer.assign([TopicPartition(topic, partition, self.position)])
        try:
            self.read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BlockedConsumer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the group keeps its committed offset."""
        self._consumer.close()

    @property
    def lag(self) -> int:
        """Offsets from its position to the high watermark, as monitoring reports it."""
        return self._offset(LATEST) - self.position

    def read(self, *, timeout: float = 30) -> list[Message]:
        """Read up to the last stable offset, commit, and return the records.

        Raises LabError if it does not reach the LSO within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        records = []
        while self._end < self._offset(LATEST, IsolationLevel.READ_COMMITTED):
            if time.monotonic() > deadline:
                raise LabError(
                    f"{self.group} did not reach the end of {self.topic}-{self.partition} in {timeout:g} s.",
                    do="Wait longer, or see what holds the LSO.",
                )
            records += self._read_to_end()
        until(self._commit, awaited=f"the coordinator of group {self.group}")
        return records

    def _read_to_end(self) -> list[Message]:
        """Records up to the end of the partition, or until none arrives for a moment."""
        records = []
        while message := self._consumer.poll(0.2):
            error = message.error()
            if error and error.code() == KafkaError._PARTITION_EOF:
                self._end = message.offset() or 0
                break
            if error:
                raise KafkaException(error)
            records.append(message)
            self.position = (message.offset() or 0) + 1
        return records

    def _commit(self) -> bool:
        topic_partition = TopicPartition(self.topic, self.partition, self.position)
        self._consumer.commit(offsets=[topic_partition], asynchronous=False)
        return True

    def _committed(self) -> int:
        """The group's committed offset, negative if it has none."""
        (found,) = self._consumer.committed([TopicPartition(self.topic, self.partition)], timeout=30)
        return int(found.offset)

    def _offset(self, spec: Any, isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        partition = TopicPartition(self.topic, self.partition)

        def listed() -> int:
            futures = self._admin.list_offsets({partition: spec}, isolation_level=isolation_level, request_timeout=30)
            return int(futures[partition].result().offset)

        return until(listed, awaited=f"an offset of {self.topic}-{self.partition}")
