"""`Cluster`: the tables of a live cluster."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from toolkit.analysis.diagnosis.case import DiagnoseOptions
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.evidence_text import scope
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, BrokersTime, Observation
from toolkit.analysis.exposure import release_of
from toolkit.analysis.transaction_owners import owner_clauses, transaction_owners
from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, NotFound, ToolkitError, UsageError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.schema.checkpoint import FlinkCheckpoint
from toolkit.schema.live import Coordinator, Exposure, Finding, GroupLag, IdOwner, Partition, Producer, Transaction
from toolkit.schema.log import OffsetsLogRecord, PastTransaction, TransactionLogRecord
from toolkit.schema.table import EVERYTHING, Error, Selection, TopicPartition
from toolkit.sources.diagnose import diagnose
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinators import GROUP, TOPICS, TRANSACTION, creation, read_coordinators, visibility_of
from toolkit.sources.live.group_offsets import (
    SHARE,
    WITH_OFFSETS,
    client_groups,
    committing_groups,
    deleted_group,
    group_ids,
    listed_groups,
    missing_groups,
    offsets_of_group,
    share_group_offsets,
    share_isolation_level,
    undescribed_group,
)
from toolkit.sources.live.leaders import (
    COORDINATORS_TOPICS,
    PartitionLeader,
    is_missing,
    read_brokers_time,
    read_metadata,
    read_newest_metadata,
    read_partitions,
    read_producers,
    read_replica_producers,
    resolve_partitions,
)
from toolkit.sources.live.observe import LiveEvidence, observe
from toolkit.sources.live.transactions import (
    TransactionFilters,
    all_ids,
    filtered_transactions,
    named_transactions,
    numbered_ids,
)
from toolkit.sources.offset_queries import OffsetTables, hidden_topics_lag, lag_of_group, lag_of_share_group
from toolkit.sources.source import CLUSTER, Source, TableArguments, implements

if TYPE_CHECKING:
    import pyarrow as pa

    from toolkit.sources.live.partition_log import FetchedRange
    from toolkit.sources.offset_reader import OffsetReader

TopicPartitions = Sequence[int] | Sequence[tuple[str, int]]
Leaders = Mapping[TopicPartition, PartitionLeader]
A = TypeVar("A")


@contextlib.contextmanager
def _pause_gc() -> Iterator[None]:
    """Pause garbage collection: scanning a million rows again and again takes a third of an observation's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _unlisted_group(client: BrokerClient, group: str) -> ToolkitError:
    """The error about a group that no broker lists: it does not exist, or may not be seen."""
    error = undescribed_group(client, group)
    if error is None:
        return NotFound(f"No broker lists the group {group!r}.", do="See kafka-consumer-groups.sh --list.")
    code = Error.of(error).code
    do = f"Grant DESCRIBE on Group {group!r} to this principal." if code == "GROUP_AUTHORIZATION_FAILED" else ""
    return BrokerError(f"The group {group!r} cannot be read: {error.rstrip('.')}.", code=code, do=do)


class Cluster(Source, OffsetTables):
    """A live cluster, connected at once.

    Parameters
    ----------
    config
        ``"host:port"``, a mapping of librdkafka or Java client keys, or a `ClientConfig`.
    timeout
        Seconds for connecting and for each round of requests.
    flink_checkpoints
        Returns the completed checkpoints of Flink jobs by now, as `toolkit.FlinkCheckpoints` of their paths: what they
        are to commit is never proposed for an abort or fence.

    Raises
    ------
    ConnectionFailed, AuthenticationFailed
        If no broker can be reached, or it rejects the credentials.
    NotFound, DecodeError, UsageError
        If a checkpoint cannot be read.

    Examples
    --------
    >>> with Cluster("localhost:9092") as cluster:  # doctest: +SKIP
    ...     cluster.findings(topics=["orders"])
    """

    kind = CLUSTER
    flink_checkpoints: Sequence[FlinkCheckpoint] = ()
    """What completed checkpoints of Flink jobs are to commit."""
    _read_checkpoints: Callable[[], Sequence[FlinkCheckpoint]] = staticmethod(tuple)
    clock_warning: str | None = None
    """That this machine's clock is far from the brokers', once that was seen."""
    on_clock_warning: Callable[[str], None] = staticmethod(warnings.warn)
    """Called with it, once."""

    def __init__(
        self,
        config: str | Mapping[str, object] | ClientConfig,
        *,
        timeout: float = 30.0,
        flink_checkpoints: Callable[[], Sequence[FlinkCheckpoint]] = tuple,
    ) -> None:
        self._read_checkpoints = flink_checkpoints
        self.newest_checkpoints()
        self.config = ClientConfig(config)
        self.timeout = timeout
        self.client = BrokerClient(self.config, timeout=timeout)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Self:
        """Connect with the ``client.properties`` of an application."""
        return cls(ClientConfig.from_properties(path), timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cluster({self.bootstrap_servers!r}, brokers={sorted(self.client.brokers)})"

    def close(self) -> None:
        """Close every connection."""
        self.client.close()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, comma-separated."""
        return ",".join(self.config.bootstrap_servers)

    def offset_readers(self, partitions: Sequence[TopicPartition]) -> list[OffsetReader]:
        """Readers of single partitions; a partition that does not exist has its `error`."""
        if not partitions:
            return []
        from toolkit.sources.live.partition_log import LiveOffsetReader

        metadata = read_newest_metadata(self.client, {topic for topic, _ in partitions})
        found = read_partitions(self.client, metadata.at(partitions))
        return [LiveOffsetReader(self.client, each) for each in found]

    def group_lags(self, group: str, *, max_offsets: int = 1_000_000) -> list[GroupLag]:
        """`group_lag` as records."""
        brokers = sorted(self.client.brokers)
        listed = listed_groups(self.client, brokers).get(group) or deleted_group(self.client, group)
        if listed is None:
            raise _unlisted_group(self.client, group)
        coordinator_id, protocol_type = listed
        if protocol_type not in {*WITH_OFFSETS, SHARE}:
            raise UsageError(
                f"The group {group!r} is of type {protocol_type}, whose groups commit no offsets.",
                do="Name a group of consumers; kafka-txn lag shows them all.",
            )
        if protocol_type == SHARE:
            partitions = share_group_offsets(self.client, group, coordinator_id)
            readers, level = self.offset_readers(sorted(partitions)), share_isolation_level(self.client, group)
            lags = lag_of_share_group(readers, group, partitions, level=level, max_offsets=max_offsets)
        else:
            committed = offsets_of_group(self.client, group, coordinator_id)
            lags = lag_of_group(self.offset_readers(sorted(committed)), group, committed, max_offsets=max_offsets)
        gaps = visibility_of(TOPICS, self.client, brokers).gaps
        hidden = [hidden_topics_lag(group, gap, broker_id=coordinator_id) for gap in gaps]
        return lags + hidden

    def committing_groups(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
        """Groups with a committed or a pending offset of some partitions, those with a pending one first.

        Raises
        ------
        BrokerError, ConnectionFailed
            If a group may be hidden from this principal, or its offsets cannot be read.
        """
        for gap in missing_groups(self.client, sorted(self.client.brokers)):
            raise BrokerError(f"Groups may be hidden; missing: {gap}.", code="GROUP_AUTHORIZATION_FAILED")
        return committing_groups(self.client, partitions)

    def producer_findings(
        self,
        producer_id: int,
        partitions: Sequence[TopicPartition],
        *,
        earlier: Observation | None = None,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    ) -> tuple[list[Finding], Observation]:
        """The findings on a producer, with the claims of a live transaction, too, whose log a diagnosis does not read.

        Parameters
        ----------
        producer_id
            The producer.
        partitions
            Where to look; one that cannot be read has a finding with an error. What the cluster does not have is left
            out: a deleted topic hides nothing of the others.
        earlier
            An observation before this one.
        max_transaction_timeout_ms
            As for `findings`.

        Returns
        -------
        tuple
            The findings, and the observation that they rest on.

        Raises
        ------
        BrokerError, ConnectionFailed, NotFound
            If the partitions cannot be observed.
        """
        from toolkit.sources.diagnose import gather  # imports numpy and Arrow

        leaders = read_newest_metadata(self.client, {topic for topic, _ in partitions}).at(sorted(partitions))
        there = [tp for tp, each in leaders.items() if not is_missing(each.error)]
        evidence = ClusterEvidence(self, TableArguments.of(partitions=there))
        observation = self.observe(partitions=there)
        options = DiagnoseOptions(
            max_transaction_timeout_ms=max_transaction_timeout_ms, checkpoints=self.newest_checkpoints()
        )
        diagnosis = Diagnosis.of([observation] if earlier is None else [earlier, observation], options)
        opened = [
            each
            for found in diagnosis.opened.values()
            for each in found
            if each.producer_id == producer_id and each.start is not None
        ]
        found = diagnosis.findings(read=gather(evidence, opened, search_all=True) if opened else {})
        return [each for each in found if each.is_not_read or each.producer_id == producer_id], observation

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, by its brokers; null if none has answered."""
        return self.client.cluster_id

    @property
    def principal(self) -> str | None:
        """User name of the client at the brokers; null if it has none."""
        return self.config.principal

    def topic_gaps(self) -> Sequence[str]:
        """Rights and proofs that are missing, so that a topic may be hidden from this principal; empty if none is.

        Kafka omits a topic that a principal may not describe from every answer, without an error.
        """
        return visibility_of(TOPICS, self.client, sorted(self.client.brokers)).gaps

    def observe(self, *, topics: Sequence[str] | None = None, partitions: TopicPartitions | None = None) -> Observation:
        """Everything the verdicts need, observed once (`analysis.diagnosis.observation.Observation`).

        The leaders are those by all brokers, as in a second look: for a recorder and a fence this is the only one.
        """
        arguments = TableArguments.of(topics=topics, partitions=partitions)
        with _pause_gc():
            found = self._of_leaders(
                arguments,
                lambda leaders: observe(
                    self.client, leaders, selection=arguments.selection(leaders), every_broker=True
                ),
            )
        self._check_clock(found.brokers_time)
        return found

    @implements(Source.partitions, without=["at"])
    @_pause_gc()
    def partitions(self, arguments: TableArguments) -> Iterable[Partition]:
        return self._of_leaders(arguments, lambda leaders: read_partitions(self.client, leaders, tiered=True))

    @implements(Source.producers, without=["at"])
    @_pause_gc()
    def producers(self, arguments: TableArguments) -> Iterable[Producer]:
        broker_id = arguments.broker_id
        if broker_id is None:
            return self._of_leaders(arguments, lambda leaders: read_producers(self.client, leaders))
        self._check_broker(broker_id)
        of_any = arguments if arguments.partitions is None else replace(arguments, broker_id=None)
        return read_replica_producers(self.client, self._metadata(of_any), broker_id=broker_id)

    @implements(Source.transactions, without=["at"])
    def transactions(self, arguments: TableArguments) -> Iterable[Transaction]:
        if arguments.transactional_ids is None:
            return filtered_transactions(self.client, TransactionFilters.of(arguments))
        return named_transactions(self.client, arguments.transactional_ids)

    @implements(Source.coordinators, without=["at"])
    def coordinators(self, arguments: TableArguments) -> Iterable[Coordinator]:
        transactional_ids, groups = arguments.transactional_ids, arguments.groups
        if transactional_ids is None:
            transactional_ids = all_ids(self.client)
        if groups is None:
            groups = list(group_ids(self.client, sorted(self.client.brokers)))
        found = read_coordinators(self.client, transactional_ids, TRANSACTION)
        return found + read_coordinators(self.client, groups, GROUP)

    @implements(Source.exposure)
    def exposure(self, arguments: TableArguments) -> Iterable[Exposure]:
        from toolkit.sources.live.coordinator_logs import read_exposure  # imports numpy

        version = arguments.kafka_version
        return read_exposure(self.client, release=release_of(version) if version else None)

    @implements(Source.findings, without=["at", "min_held_ms"])
    @_pause_gc()
    def findings(self, arguments: TableArguments) -> Iterable[Finding]:
        evidence = ClusterEvidence(self, arguments)
        return diagnose(evidence, arguments.diagnosis(DiagnoseOptions(checkpoints=self.newest_checkpoints()))).findings

    @implements(Source.transaction_owners, without=["at"])
    def transaction_owners(self, arguments: TableArguments) -> Iterable[IdOwner]:
        if arguments.transactional_ids is None:
            found = filtered_transactions(self.client, TransactionFilters())
        else:
            found = named_transactions(self.client, arguments.transactional_ids)
        groups, error = client_groups(self.client, (each.transactional_id for each in found))
        every_id = numbered_ids(self.client, {each.transactional_id for each in found})
        return transaction_owners(
            found, groups=groups, groups_error=error, all_ids=every_id, flink_prefixes=self._flink_prefixes
        )

    @implements(Source.batches)
    def batches(self, arguments: TableArguments) -> Iterator[pa.Table]:
        from toolkit.sources.live.partition_log import batch_tables_of

        for log_range in self._ranges(arguments, crc=arguments.crc):
            yield from batch_tables_of(log_range, producer_id=arguments.producer_id)

    @implements(Source.log_transactions)
    def log_transactions(self, arguments: TableArguments) -> Iterator[pa.Table]:
        from toolkit.sources.log_tables import log_transaction_tables

        for each in self._ranges(arguments, crc=True):
            yield from log_transaction_tables(
                each.divided, each.log_id, before=each.before, producer_id=arguments.producer_id
            )

    @implements(Source.lso_timeline, without=["producer_id"])
    def lso_timeline(self, arguments: TableArguments) -> Iterator[pa.Table]:
        from toolkit.sources.log_tables import lso_timeline_tables

        for each in self._ranges(arguments, crc=True):
            end = max(each.start, each.stop)
            yield from lso_timeline_tables(each.divided, each.log_id, before=each.before, log_end_offset=end)

    @implements(Source.transaction_log, without=["start", "stop", "producer_id"])
    def transaction_log(self, arguments: TableArguments) -> Iterable[TransactionLogRecord]:
        from toolkit.sources.live.coordinator_logs import read_coordinator_topic, records_of_ids

        topic = read_coordinator_topic(self.client, STATE_TOPIC)
        return records_of_ids(self.client, topic, arguments.transactional_ids, arguments.partition_numbers)

    @implements(Source.transaction_history, without=["start", "stop", "producer_id"])
    def transaction_history(self, arguments: TableArguments) -> Iterable[PastTransaction]:
        from toolkit.analysis.transaction_history import transaction_history, unread_histories, unread_partitions
        from toolkit.sources.live.coordinator_logs import read_coordinator_topic, records_of_ids

        read_at, topic = self.brokers_time().time, read_coordinator_topic(self.client, STATE_TOPIC)
        ids = arguments.transactional_ids
        records = list(records_of_ids(self.client, topic, ids, arguments.partition_numbers))
        times = [each.timestamp for each in records if each.timestamp is not None]
        past = transaction_history(records, as_of=max(times if read_at is None else [*times, read_at], default=None))
        without = sorted({*(ids or ())} - {each.transactional_id for each in past})
        if ids is None:
            return [*past, *unread_partitions(past, records)]
        return [*past, *unread_histories({each: topic.partition(each) for each in without}, records)]

    @implements(Source.offsets_log, without=["start", "stop", "producer_id"])
    def offsets_log(self, arguments: TableArguments) -> Iterable[OffsetsLogRecord]:
        from toolkit.sources.live.coordinator_logs import offsets_log_records, read_coordinator_topic

        topic = read_coordinator_topic(self.client, OFFSETS_TOPIC)
        groups, partitions = arguments.groups, arguments.partition_numbers
        if groups is None:
            return offsets_log_records(self.client, topic, partitions)
        hashed = {number for group in groups if (number := topic.partition(group)) is not None}
        records = offsets_log_records(self.client, topic, hashed if partitions is None else hashed & {*partitions})
        return [record for record in records if record.error or record.group_id in groups]

    def brokers_time(self) -> BrokersTime:
        """The time by the brokers' clocks now, or why it is unknown: this machine's clock may be hours off."""
        found = read_brokers_time(self.client, read_metadata(self.client, COORDINATORS_TOPICS))
        self._check_clock(found)
        return found

    def _check_clock(self, brokers_time: BrokersTime) -> None:
        if brokers_time.warning is not None and self.clock_warning is None:
            self.clock_warning = brokers_time.warning
            self.on_clock_warning(self.clock_warning)

    def newest_checkpoints(self) -> Sequence[FlinkCheckpoint]:
        """`flink_checkpoints`, with those that were completed since they were read: a job decides by its last one."""
        self.flink_checkpoints = self._read_checkpoints()
        return self.flink_checkpoints

    @property
    def _flink_prefixes(self) -> frozenset[str]:
        return frozenset().union(*(each.prefixes for each in self.flink_checkpoints))

    def _ranges(self, arguments: TableArguments, *, crc: bool) -> Iterator[FetchedRange]:
        """The logs of partitions, fetched lazily."""
        from toolkit.sources.live.partition_log import fetch_range

        start = "log_start" if arguments.start is None else arguments.start
        stop = "high_watermark" if arguments.stop is None else arguments.stop
        for partition in self._of_leaders(arguments, partial(read_partitions, self.client)):
            yield fetch_range(self.client, partition, start, stop, crc=crc)

    def _of_leaders(self, arguments: TableArguments, read: Callable[[Leaders], A]) -> A:
        """What the leaders of the selected partitions answer.

        If brokers differ on which ones there are, the one that has named the leaders may not know who leads now.
        """
        found = read(self._metadata(arguments))
        return read(self._metadata(arguments)) if self.client.is_split else found

    def _metadata(self, arguments: TableArguments) -> Leaders:
        """Metadata of the selected partitions; with `broker_id`, of those with a replica on it.

        By all brokers, in case one does not know who leads now; that of all topics only if brokers differ.
        """
        topics, partitions, broker_id = arguments.topics, arguments.partitions, arguments.broker_id
        selected: Iterable[str] | None = topics
        if broker_id is not None:
            self._check_broker(broker_id)
        if topics is None and partitions is not None:
            selected = [item[0] for item in partitions if not isinstance(item, int)]
        read = read_metadata if selected is None and not self.client.is_split else read_newest_metadata
        metadata = read(self.client, None if selected is None else set(selected))
        leaders = metadata.at(resolve_partitions(metadata, topics, partitions))
        if broker_id is None:
            return leaders
        return {tp: each for tp, each in leaders.items() if broker_id in (each.replicas or ())}

    def _check_broker(self, broker_id: int) -> None:
        read_metadata(self.client, [])  # refreshes the brokers
        self.client.check_broker(broker_id)


class ClusterEvidence(LiveEvidence):
    """What a cluster gives to a diagnosis of the partitions that arguments select."""

    def __init__(self, cluster: Cluster, arguments: TableArguments) -> None:
        super().__init__(cluster.client)
        self._cluster, self._arguments = cluster, arguments
        self.are_named = arguments.topics is not None or arguments.partitions is not None

    def _observe(self, leaders: Leaders) -> Observation:
        self._leaders, selection = leaders, self._arguments.selection(leaders)
        is_all = selection == EVERYTHING
        self.requested = () if is_all else list(leaders)
        return observe(self.client, leaders, selection=selection, idle_producers=False, clear_partitions=not is_all)

    def observations(self) -> Sequence[Observation]:
        cluster = self._cluster
        self._first = cluster._of_leaders(self._arguments, self._observe)
        cluster._check_clock(self._first.brokers_time)
        brokers = {broker_id for each in self._leaders.values() for broker_id in each.replicas or ()}
        cluster.scope = scope(self._first, len(self._leaders), brokers=brokers)
        text, is_possible = ("", True) if self._first.coverage.has_coordinators else creation(self.client)
        cluster.no_coordinators = None if is_possible else text
        return [self._first]

    def observe_again(self, partitions: Sequence[TopicPartition]) -> Observation:
        """With the topic gaps of the first, and leaders by all brokers: the one that names them may be cut off."""
        leaders = read_metadata(self.client, {topic for topic, _ in partitions}).at(partitions)
        selection = Selection(partitions=leaders)
        second = observe(self.client, leaders, selection=selection, idle_producers=False, every_broker=True)
        return replace(second, coverage=replace(second.coverage, topic_gaps=self._first.coverage.topic_gaps))

    def owners(self, ids: Collection[str], observations: Sequence[Observation]) -> Mapping[str, str | None]:
        transactions = {txn.transactional_id: txn for each in observations for txn in each.transactions}
        return owner_clauses(
            transactions.values(),
            groups=client_groups(self.client, ids)[0],
            all_ids=numbered_ids(self.client, ids),
            flink_prefixes=self._cluster._flink_prefixes,
        )
