"""`LogDir`: the tables of a live cluster, read from files, and the tables that only logs have."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.diagnosis.observation import BrokersTime, Observation
from toolkit.analysis.log.log_transactions import PartialTransactions, Statistics, statistics_row
from toolkit.analysis.log.offset_status import AbortedRange, LogSlice, at_missing_offsets, intact, missing_between
from toolkit.analysis.log.producer_state import open_batches
from toolkit.analysis.transaction_history import transaction_history, unread_partitions
from toolkit.analysis.transaction_owners import transaction_owners
from toolkit.errors import NotFound, UsageError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.headers import Header, LogChunk
from toolkit.formats.log_dir_files import LogPath, log_path
from toolkit.formats.scan import bytes_at
from toolkit.schema import BATCHES, CLUSTER_EVENTS, LOG_TRANSACTIONS, LSO_TIMELINE, utc
from toolkit.schema.coerce import OffsetSpec
from toolkit.schema.live import Coordinator, Exposure, Finding, GroupLag, IdOwner, Partition, Producer, Transaction
from toolkit.schema.log import (
    Batch,
    CheckpointEntry,
    ClusterEvent,
    LogSegment,
    LogTransaction,
    LsoStep,
    MetadataLogRecord,
    OffsetsLogRecord,
    PastTransaction,
    SnapshotProducer,
    TransactionLogRecord,
    TransactionStatistics,
    TxnIndexEntry,
)
from toolkit.schema.recorded import LsoHold
from toolkit.schema.table import UNKNOWN_LOG, Error, LogId, TopicPartition
from toolkit.sources import log_tables
from toolkit.sources.logdir.contents import COMPACTED, Contents, FileAssertions, FileScope
from toolkit.sources.logdir.coordinator_state import (
    absent_partitions,
    committed_in_files,
    committing_in_files,
    named_transactions,
    read_coordinators,
    read_state_topic,
    transactions_of,
    unread_histories_of,
)
from toolkit.sources.logdir.log_dir_layout import (
    METADATA_TOPIC,
    LogDirLayout,
    SkippedFile,
    checkpoint_rows_in,
    discover,
)
from toolkit.sources.logdir.replica_log import ReplicaLog, between, known_before
from toolkit.sources.logdir.replica_state import (
    ReadLimit,
    ReplicaState,
    metadata_records,
    offset_of,
    partition_of,
    producers_of,
)
from toolkit.sources.offset_queries import OffsetTables, named_offset
from toolkit.sources.offset_reader import OffsetReader, slice_of
from toolkit.sources.progress_bar import progress
from toolkit.sources.source import (
    FILES,
    Partitions,
    RowsOf,
    Source,
    TableArguments,
    Topics,
    implements,
    requested_partitions,
)

if TYPE_CHECKING:
    from toolkit.sources.logdir.consistency import FilesProof
    from toolkit.sources.logdir.observe_files import FileObservation


class ReplicaOffsetReader(OffsetReader):
    """A partition in files.

    `replicas`: the partition's replicas, the one with most of the log first.
    """

    def __init__(self, contents: Contents, replicas: Sequence[ReplicaState]) -> None:
        self._contents, self._replicas = contents, replicas
        self._state = replicas[0]
        partition = partition_of(self._state)
        if partition.high_watermark is None:  # the LSO then assumes a log that is replicated to its end
            partition = replace(partition, high_watermark=partition.log_end_offset)
        super().__init__(partition)
        # The longest log with an older leader epoch; a longer replica of the same epoch is only ahead.
        self.truncated_end = max((_truncated_end(replicas[0], each) for each in replicas[1:]), default=0) or None

    @cached_property
    def is_compacted(self) -> bool | None:
        """By the cleaner's checkpoint; null if it is not among the files, or a line of it cannot be read."""
        log, checkpoints = self._state.log, self._state.checkpoints
        if log.where.topic in COMPACTED or log.where.tp in checkpoints.cleaned:
            return True
        return None if log.root is None or not checkpoints.has_cleaned else False

    @cached_property
    def opened(self) -> Mapping[int, int]:
        opened = open_batches(self._state.window.producers)
        return dict(zip(opened["producer_id"].tolist(), opened["base_offset"].tolist(), strict=True))

    def offset(self, bound: OffsetSpec) -> int:
        if isinstance(bound, str):
            return named_offset(self.partition, bound) or 0
        return offset_of(self._state.log, bound, self._state) or 0

    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        aborted, is_complete, errors = self._aborted
        touching = {each for each in aborted if each.last_offset is None or each.last_offset >= start}
        for part in self._parts(start, stop):
            damage = [each.reason for each in part.damage if not each.is_torn]
            damage += [] if part.missing is None else [part.missing.reason]
            found = slice_of(
                part,
                partial(self._bytes_of, part.file),
                aborted=touching,
                is_index_complete=is_complete,
                errors=[*damage, *errors],
            )
            found.indexed = {each.last_offset for each in aborted if each.last_offset is not None}
            yield found

    def _parts(self, start: int, stop: int) -> Iterator[LogChunk]:
        """The batches of a range, divided at offsets that the files lack: no consumer says what these are."""
        log, cleaned = self._state.log, self._contents.cleaned(self._state.log)
        newest, at = max(log.base_offsets, default=stop), start
        parts = log.parts(start=start, stop=stop, crc=True)
        for part in at_missing_offsets(parts, expected=start, end=newest if newest < stop else None, cleaned=cleaned):
            at = max(at, int(part.headers["last_offset"][-1]) + 1) if len(part.headers) else at
            yield part
        following = min((each for each in log.base_offsets if each >= stop), default=None)
        if following is None or at >= stop or any(len(each.headers) for each in log.parts(start=stop, stop=following)):
            return
        if (missing := missing_between(at, following, cleaned=cleaned, damaged=None)) is not None:
            yield LogChunk(missing=missing)

    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        found = transactions_of(read_state_topic(self._contents))
        return next((each.transactional_id for each in found if each.producer_id == producer_id), None), None

    def _bytes_of(self, file: str | None, header: Header) -> bytes | None:
        if self._state.log.is_text or file is None:
            return None
        return bytes_at(file, int(header["position"]), int(header["size"]))

    @cached_property
    def _aborted(self) -> tuple[set[AbortedRange], bool, Sequence[str]]:
        """Aborted transactions in the transaction indexes, whether these are complete, and read errors.

        If the indexes were not copied, the markers decide.
        """
        entries = list(self._state.log.aborted_rows())
        errors = [entry.error for entry in entries if entry.error]
        aborted = {
            AbortedRange(entry.producer_id, entry.first_offset, entry.last_offset)
            for entry in entries
            if entry.producer_id is not None and entry.first_offset is not None and not entry.error
        }
        return aborted, bool(aborted) and not errors, errors


def _truncated_end(newest: ReplicaState, other: ReplicaState) -> int:
    """Log end offset of the other replica if its end was truncated by a newer leader, else 0."""
    epoch, end = newest.leader_epoch, newest.log_end_offset
    other_epoch, other_end = other.leader_epoch, other.log_end_offset
    if epoch is None or end is None or other_epoch is None or other_end is None:
        return 0
    return other_end if other_epoch < epoch and other_end > end else 0


R = TypeVar("R", TransactionLogRecord, OffsetsLogRecord, PastTransaction)


class PartitionStats(NamedTuple):
    """Transaction statistics of one log, and its read errors."""

    where: LogId
    found: Statistics
    failures: Sequence[str]
    is_counted: bool = True  # in the total: of several replicas in a cluster, the one with most of the log


# Modules that a single table needs are imported in its method: this keeps short commands fast.
class LogDir(Source, OffsetTables):
    """Files of brokers, read only and listed for every call, or once within ``with``. A broker may be writing them.

    `observed_at` is the newest time that a broker wrote into the files of a row, or when they were copied. Times of
    files count for nothing, since each copy has new ones. Every replica of a partition has its own rows.

    Parameters
    ----------
    path, *more_paths
        Log directories (entries of ``log.dirs``), folders above several of them, folders of partitions, segments,
        snapshots, transaction indexes, and texts of kafka-dump-log.sh. None is needed for `cluster_events` of
        `broker_logs` alone.
    consistent_copy
        Assert that this is a consistent copy: brokers shut down cleanly, replicas in sync. Without it a transaction is
        `hanging` only if the files prove that partition and coordinator were copied at one moment
        (`consistency`), otherwise `unknown`. If the assertion is false, a healthy transaction can be reported as
        hanging.
    as_of
        When the files were copied, a time with its zone, or its text: no older than that is what they say. Up to then
        the age of an open transaction counts; without it, up to the newest record of its coordinator, or to the time in
        the manifest of ``kafka-txn copy``, which this argument does not change.
    txn_state_partitions
        Number of partitions of ``__transaction_state``, if not 50.
    broker_logs
        The events in brokers' own logs, as `toolkit.BrokerLogs` reads them: `cluster_events` has their lines about
        transactions, and findings and `transaction_history` cite them.

    Raises
    ------
    NotFound
        If a path does not exist, or contains no Kafka files.
    UsageError
        If a path cannot be read, or a file has an unknown type.

    Examples
    --------
    >>> LogDir("/var/lib/kafka/data").findings(topics=["orders"])  # doctest: +SKIP
    """

    kind = FILES

    def __init__(
        self,
        path: str | os.PathLike[str] | LogPath | None = None,
        *more_paths: str | os.PathLike[str] | LogPath,
        consistent_copy: bool = False,
        as_of: dt.datetime | str | None = None,
        txn_state_partitions: int | None = None,
        broker_logs: Iterable[ClusterEvent] = (),
    ) -> None:
        self.assertions = FileAssertions.of(
            consistent_copy=consistent_copy, as_of=as_of, txn_state_partitions=txn_state_partitions
        )
        self.paths = [log_path(each) for each in (path, *more_paths) if each is not None]
        if not self.paths and not broker_logs:
            raise UsageError("No files are named.", do="Pass a log directory, or files of one.")
        self.broker_logs = broker_logs
        self._listed: Contents | None = None
        self._layout()

    @classmethod
    def of(cls, contents: Contents, *paths: str | os.PathLike[str] | LogPath) -> LogDir:
        """The tables of logs that were listed at paths, such as those of one of several tasks that share the work."""
        found = cls.__new__(cls)
        found.assertions, found.broker_logs = contents.assertions, contents.broker_logs
        found.paths = list(map(log_path, paths))
        found._listed = contents
        return found

    def __enter__(self) -> LogDir:
        """Within ``with``, files are listed once, and what one table has read serves the next."""
        self._listed = self.contents()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listed = None

    def read(self, table: str, arguments: TableArguments) -> Any:
        """As `Source.read`; brokers' logs alone have no other table than `cluster_events`."""
        if not self.paths and table != CLUSTER_EVENTS.name:
            raise UsageError(f"Brokers' logs alone have no table {table}.", do="Pass the log directory, too.")
        return super().read(table, arguments)

    def __repr__(self) -> str:
        consistent_copy = ", consistent_copy=True" if self.assertions.consistent_copy else ""
        return f"LogDir({', '.join(repr(str(path)) for path in self.paths)}{consistent_copy})"

    @property
    def left_out(self) -> list[SkippedFile]:
        """Files and folders that no table, or not every table, reads, with the reason."""
        return self.contents().left_out

    def offset_readers(self, partitions: Sequence[TopicPartition]) -> list[OffsetReader]:
        """One reader per partition, of the replica with the longest log."""
        contents = self.contents()
        found = contents.by_partition(contents.replica_logs(partitions=partitions))
        return [ReplicaOffsetReader(contents, replicas) for _, replicas in found]

    def group_lags(self, group: str, *, max_offsets: int = 1_000_000) -> list[GroupLag]:
        """`group_lag` as records; a partition whose log is not among the files has an error."""
        from toolkit.sources.offset_queries import absent_lags, lag_of_group

        found, unread = committed_in_files(self, group)
        if not found:
            is_there = any(not (log.error or log.is_text) for log in self.contents().of_topic(OFFSETS_TOPIC))
            means = f"Not all of {OFFSETS_TOPIC} could be read, so the group may have some: {unread}" if unread else ""
            raise NotFound(
                f"The files have no committed offset of the group {group!r}.",
                means=means
                if is_there
                else f"No segment of {OFFSETS_TOPIC} is among them, so the group may have some.",
                do="List the groups in the files: LogDir.offsets_log()." if is_there else f"Copy {OFFSETS_TOPIC}, too.",
            )
        present = {log.where.tp for log in self.contents().named_logs()}
        committed = {tp: offset for tp, offset in found.items() if tp in present}
        lags = lag_of_group(self.offset_readers(sorted(committed)), group, committed, max_offsets=max_offsets)
        absent = {tp: offset for tp, offset in found.items() if tp not in present}
        lags += absent_lags(group, absent, taken_at=self.contents().taken_at)
        return [
            *lags,
            *([GroupLag(group_id=group, observed_at=self.contents().taken_at, error=unread)] if unread else []),
        ]

    def committing_groups(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
        """Groups that have committed offsets of some partitions, by the records of ``__consumer_offsets`` in the files.

        Raises
        ------
        NotFound
            If ``__consumer_offsets`` is not among the files.
        DecodeError
            If it could not be read whole.
        """
        return committing_in_files(self, partitions)

    def proof(self) -> FilesProof:
        """What the files prove, what they do not, and what to do about that."""
        from toolkit.sources.logdir.consistency import files_proof

        return files_proof(self.contents())

    def observe(self, *, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> Observation:
        """The input of the verdicts (`observation.Observation`), with doubts about the consistency of the files."""
        arguments = TableArguments.of(topics=topics, partitions=partitions)
        return self._observe(arguments, limit=ReadLimit.OPEN).observation

    @implements(Source.batches)
    def batches(self, arguments: TableArguments) -> Iterator[pa.Table]:
        for log, start, stop, advance in _read(self.contents(), arguments, "reading batches"):
            if log.error:
                yield BATCHES.arrow([Batch(**log.where.columns, file=log.name, error=log.error)])
                continue
            parts = _counted(log.parts(start=start, stop=stop, crc=arguments.crc), advance)
            yield from log_tables.batch_tables(parts, log.where, producer_id=arguments.producer_id)

    @implements(Source.log_transactions)
    def log_transactions(self, arguments: TableArguments) -> Iterator[pa.Table]:
        contents = self.contents()
        for log, start, stop, advance in _read(contents, arguments, "reading transactions"):
            if log.error:
                yield LOG_TRANSACTIONS.arrow([LogTransaction(**log.where.columns, file=log.name, error=log.error)])
                continue
            parts = _counted(_parts(contents, log, start, stop), advance)
            yield from log_tables.log_transaction_tables(
                parts, log.where, before=_before(contents, log, start), producer_id=arguments.producer_id
            )

    @implements(Source.lso_timeline)
    def lso_timeline(self, arguments: TableArguments) -> Iterator[pa.Table]:
        contents = self.contents()
        for log, start, stop, advance in _read(contents, arguments, "reading the LSO"):
            if log.error:
                yield LSO_TIMELINE.arrow([LsoStep(**log.where.columns, error=log.error)])
                continue
            parts = _counted(_parts(contents, log, start, stop), advance)
            end = None if stop is not None or not log.base_offsets else log.base_offsets[-1]
            steps, errors = log_tables.lso_timeline_tables(
                parts, log.where, before=_before(contents, log, start), log_end_offset=end
            )
            if arguments.producer_id is not None:
                steps = steps.filter(pc.equal(steps["holder_producer_id"], arguments.producer_id))
            yield from (steps, errors)

    def figures(
        self,
        *,
        topics: Topics | None = None,
        partitions: Partitions | None = None,
        start: OffsetSpec | None = None,
        stop: OffsetSpec | None = None,
    ) -> list[PartitionStats]:
        """The data behind `statistics`, per log, and the open transactions themselves."""
        arguments = TableArguments.of(topics=topics, partitions=partitions, start=start, stop=stop)
        contents = self.contents()
        logs = contents.replica_logs(arguments.topics, arguments.partitions)
        ids = [log.root.cluster_id if log.root else None for log in logs]
        has_several = len({*ids} - {None}) > 1  # else those without an id are of the same one
        of_clusters: defaultdict[str | None, list[ReplicaLog]] = defaultdict(list)
        for log, cluster_id in zip(logs, ids, strict=True):
            of_clusters[cluster_id if has_several else None].append(log)
        others = set[int]()
        for of_cluster in of_clusters.values():
            replicas = Counter((log.where.topic, log.where.partition) for log in of_cluster)
            several = [log for log in of_cluster if replicas[log.where.topic, log.where.partition] > 1]
            others |= {id(state.log) for _, (_, *states) in contents.by_partition(several) for state in states}
        with progress("reading transactions", total=_size(logs), unit="B") as advance:

            def partition_stats(log: ReplicaLog) -> PartitionStats:
                if log.error:
                    return PartitionStats(log.where, Statistics(), [log.error])
                start, stop = offsets(contents, log, arguments)
                parts = _counted(_parts(contents, log, start, stop), advance)
                found, failures = log_tables.log_statistics(parts, before=_before(contents, log, start))
                return PartitionStats(log.where, found, failures, is_counted=id(log) not in others)

            with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 4)) as pool:  # the loops release the GIL
                return list(pool.map(partition_stats, logs))

    @implements(Source.statistics, rows_of=RowsOf.ALL)
    def statistics(self, arguments: TableArguments) -> Iterator[TransactionStatistics]:
        start, stop = arguments.start, arguments.stop
        found = self.figures(topics=arguments.topics, partitions=arguments.partitions, start=start, stop=stop)
        return statistic_rows(found)

    @implements(Source.transaction_log, topics=[STATE_TOPIC])
    def transaction_log(self, arguments: TableArguments) -> Iterator[TransactionLogRecord]:
        ids, contents = arguments.transactional_ids, self.contents()
        for log in self._coordinator_logs(contents, STATE_TOPIC, arguments):
            records = transaction_log_records(contents, log, arguments)
            yield from only(
                records, producer_id=arguments.producer_id, ids=ids, id_of=lambda record: record.transactional_id
            )

    @implements(Source.offsets_log, topics=[OFFSETS_TOPIC])
    def offsets_log(self, arguments: TableArguments) -> Iterator[OffsetsLogRecord]:
        contents = self.contents()
        for log in self._coordinator_logs(contents, OFFSETS_TOPIC, arguments):
            start, stop = offsets(contents, log, arguments)
            records = between(log.offsets_log(start=start, stop=stop), start, stop)
            yield from only(
                records, producer_id=arguments.producer_id, ids=arguments.groups, id_of=lambda record: record.group_id
            )

    def _coordinator_logs(self, contents: Contents, topic: str, arguments: TableArguments) -> Iterator[ReplicaLog]:
        logs = contents.of_topic(topic, arguments.partition_numbers)
        with progress("reading records", total=len(logs), unit="partitions") as advance:
            for log in logs:
                yield log
                advance(1)

    @implements(Source.transaction_history, rows_of=RowsOf.ALL, topics=[STATE_TOPIC])
    def transaction_history(self, arguments: TableArguments) -> Iterator[PastTransaction]:
        """From the replica with most of the log of each partition."""
        contents, ids = self.contents(), arguments.transactional_ids
        records: Iterable[TransactionLogRecord]
        errors = list[TransactionLogRecord]()
        if ids is None or arguments.start is not None or arguments.stop is not None:
            records = only(_best_records(contents, arguments), ids=ids, id_of=lambda record: record.transactional_id)
            records = _with_errors(records, errors) if ids is None else list(records)
        else:
            records = list(_best_records(contents, arguments, indexed=ids))
        past = list(transaction_history(records, broker_log_events=contents.broker_log_events))
        yield from only(past, producer_id=arguments.producer_id, id_of=lambda record: record.transactional_id)
        yield from unread_partitions(past, errors)
        without = {*(ids or ())} - {each.transactional_id for each in past}
        if without and arguments.partition_numbers is None:
            yield from unread_histories_of(contents, sorted(without), records)

    @implements(Source.metadata_log, topics=[METADATA_TOPIC])
    def metadata_log(self, arguments: TableArguments) -> Iterator[MetadataLogRecord]:
        return (record for log in self.contents().metadata_logs for record in metadata_records(log))

    @implements(Source.cluster_events, rows_of=RowsOf.ALL, topics=[METADATA_TOPIC])
    def cluster_events(self, arguments: TableArguments) -> Iterator[ClusterEvent]:
        events = self.contents().cluster_events()
        if arguments.is_everything:
            return events
        if arguments.partitions is None:
            return (event for event in events if event.topic is None or event.topic in (arguments.topics or ()))
        selected = {*requested_partitions(arguments.topics, arguments.partitions)}
        topics = {topic for topic, _ in selected}
        return (
            event
            for event in events
            if event.topic is None
            or (event.topic in topics and event.partition is None)
            or (event.topic, event.partition) in selected
        )

    @implements(Source.aborted)
    def aborted(self, arguments: TableArguments) -> Iterator[TxnIndexEntry]:
        contents, producer_id = self.contents(), arguments.producer_id
        for log in contents.replica_logs(arguments.topics, arguments.partitions):
            if log.error:
                yield TxnIndexEntry(**log.where.columns, file=log.name, error=log.error)
                continue
            start, stop = offsets(contents, log, arguments)
            for entry in log.aborted_rows():
                first, last = entry.first_offset, entry.last_offset
                if producer_id is not None and entry.producer_id not in {producer_id, None}:
                    continue
                if first is None or last is None or (last >= (start or 0) and (stop is None or first < stop)):
                    yield entry

    @implements(Source.snapshots)
    def snapshots(self, arguments: TableArguments) -> Iterator[SnapshotProducer]:
        for log in self.contents().replica_logs(arguments.topics, arguments.partitions):
            if log.error:
                yield SnapshotProducer(**log.where.columns, file=log.name, error=log.error)
                continue
            for snapshot in log.snapshots():
                row = SnapshotProducer(**log.where.columns, snapshot_offset=snapshot.offset, file=snapshot.file)
                if snapshot.error or not snapshot.producers:  # an empty snapshot shows that nothing was open
                    yield replace(row, error=snapshot.error)
                for producer in snapshot.producers:
                    yield replace(row, **{**asdict(producer), "last_timestamp": utc(producer.last_timestamp)})

    @implements(Source.segments)
    def segments(self, arguments: TableArguments) -> Iterator[LogSegment]:
        for log in self.contents().replica_logs(arguments.topics, arguments.partitions):
            if log.error:
                yield LogSegment(**log.where.columns, file=log.name, error=log.error)
            else:
                yield from log.segment_rows()

    @implements(Source.checkpoints, rows_of=RowsOf.PARTITION)
    def checkpoints(self, arguments: TableArguments) -> Iterator[CheckpointEntry]:
        """Of all partitions, also lines about no partition, or about one without a folder."""
        contents, everything = self.contents(), arguments.is_everything
        logs = contents.logs if everything else contents.replica_logs(arguments.topics, arguments.partitions)
        selected = {(log.where.topic, log.where.partition) for log in logs}
        for root in contents.layout.roots:
            for entry in checkpoint_rows_in(root.path, broker_id=root.broker_id):
                if everything or (entry.topic, entry.partition) in selected:
                    yield entry
        for log in logs:
            yield from log.checkpoint_rows()

    @implements(Source.partitions, without=["at"], needs_topic=True)
    def partitions(self, arguments: TableArguments) -> Iterable[Partition]:
        contents = self.contents()
        logs = contents.named_logs(arguments.topics, arguments.partitions)
        return (partition_of(contents.read(log)) for log in logs)

    @implements(Source.producers, without=["at", "broker_id"], needs_topic=True)
    def producers(self, arguments: TableArguments) -> Iterable[Producer]:
        contents = self.contents()
        logs = contents.named_logs(arguments.topics, arguments.partitions)
        return (producer for log in logs for producer in producers_of(contents.read(log)))

    @implements(
        Source.transactions, without=["at"], rows_of=RowsOf.ALL, topics=[STATE_TOPIC], also_reads=[METADATA_TOPIC]
    )
    def transactions(self, arguments: TableArguments) -> Iterable[Transaction]:
        from toolkit.sources.live.transactions import TransactionFilters  # it imports Kafka's client

        filters = TransactionFilters.of(arguments)
        contents = self.contents()
        state_topic = read_state_topic(contents)
        if arguments.transactional_ids is not None:
            return named_transactions(state_topic, arguments.transactional_ids, taken_at=contents.taken_at)
        return [  # `observed_at` is the time up to which its partition is proven
            each
            for each in transactions_of(state_topic)
            if each.error or filters.match(each, BrokersTime(time=each.observed_at, is_current=True))
        ]

    @implements(
        Source.coordinators,
        without=["at"],
        rows_of=RowsOf.ALL,
        topics=[STATE_TOPIC, OFFSETS_TOPIC],
        also_reads=[METADATA_TOPIC],
    )
    def coordinators(self, arguments: TableArguments) -> Iterable[Coordinator]:
        ids, groups = arguments.transactional_ids, arguments.groups
        return read_coordinators(self.contents(), ids, groups)

    @implements(
        Source.transaction_owners, without=["at"], rows_of=RowsOf.ALL, topics=[STATE_TOPIC], also_reads=[METADATA_TOPIC]
    )
    def transaction_owners(self, arguments: TableArguments) -> Iterable[IdOwner]:
        transactions = self.records(Transaction, transactional_ids=arguments.transactional_ids)
        state_topic = read_state_topic(self.contents())
        return transaction_owners(transactions, all_ids=state_topic.all_ids)

    @implements(Source.exposure, rows_of=RowsOf.ALL, topics=[STATE_TOPIC, METADATA_TOPIC])
    def exposure(self, arguments: TableArguments) -> Iterable[Exposure]:
        from toolkit.analysis.exposure import (
            MAX_TIMEOUT,
            VERIFICATION,
            ObservedBroker,
            ObservedCluster,
            broker_facts,
            exposure_rows,
            release_of,
        )

        version, contents = arguments.kafka_version, self.contents()
        records = list(_best_records(contents, arguments))
        if (absent := absent_partitions(contents)) is not None:
            records.append(TransactionLogRecord(error=absent))
        times = (each.timestamp for each in records if each.timestamp is not None)
        as_of = max(times, default=contents.taken_at)
        metadata = contents.metadata
        # The log has settings that were changed while the cluster ran: of one broker, or of all.
        changed = metadata.state.settings
        brokers = []
        for broker_id, broker in sorted(metadata.state.brokers.items()):
            resources = ("broker for all", f"broker {broker_id}")
            of_both = ((name, changed.get((each, name))) for each in resources for name in (VERIFICATION, MAX_TIMEOUT))
            observed = ObservedBroker(
                broker_id=broker_id,
                observed_at=as_of,
                release=broker_facts().releases.get(broker.max_metadata_version or 0),
                release_source="the features that it registered",
                settings={name: value for name, value in of_both if value is not None},
                settings_error=metadata.error,
            )
            brokers.append(observed)
        cluster = ObservedCluster(
            observed_at=as_of,
            features=metadata.state.features,
            features_error=metadata.error,
            brokers=brokers,
            records=records,
        )
        return exposure_rows(cluster, release=release_of(version) if version else None)

    @implements(
        Source.findings,
        without=["at", "broker_id", "recheck_after"],
        rows_of=RowsOf.PARTITION,
        also_reads=[STATE_TOPIC, METADATA_TOPIC],
        needs_topic=True,
    )
    def findings(self, arguments: TableArguments) -> Iterable[Finding]:
        from toolkit.analysis.diagnosis.evidence_text import scope
        from toolkit.sources.diagnose import diagnose

        min_held_ms = arguments.min_held_ms
        observed = self._observe(arguments, limit=ReadLimit.OPEN if min_held_ms is None else ReadLimit.WHOLE)
        self.scope = scope(observed.observation, len(observed.replicas))
        observed.requested = () if arguments.is_everything else list(observed.replicas)
        found = diagnose(observed, replace(arguments.diagnosis(), recheck_after=0)).findings
        if min_held_ms is None:
            return found
        from toolkit.sources.logdir.observe_files import with_holds

        held = with_holds(observed, found, min_held_ms=min_held_ms)
        return [replace(each, cluster_id=observed.cluster_id) for each in held]

    @implements(Source.lso_holds, rows_of=RowsOf.ALL, also_reads=[STATE_TOPIC, METADATA_TOPIC], needs_topic=True)
    def lso_holds(self, arguments: TableArguments) -> Iterator[LsoHold]:
        from toolkit.analysis.hold_findings import attributed_holds
        from toolkit.sources.logdir.observe_files import history_of, replica_holds

        contents = self.contents()
        logs = contents.named_logs(arguments.topics, arguments.partitions)
        state_topic = read_state_topic(contents)
        for tp, (state, *_) in contents.by_partition(logs, limit=ReadLimit.WHOLE):
            damage = (each.error for each in state.window.damage if not each.is_torn)
            if error := state.error or next(damage, None):
                yield LsoHold(topic=tp.topic, partition=tp.partition, broker_id=state.log.where.broker_id, error=error)
            start, stop = offsets(contents, state.log, arguments)
            lso, high_watermark = state.last_stable_offset, state.high_watermark
            holds = replica_holds(state, lso=lso, high_watermark=high_watermark)
            for hold in attributed_holds(holds, history_of(holds, state_topic)):
                first, marker = hold.first_offset or 0, hold.marker_offset
                if (stop is None or first < stop) and (start is None or marker is None or marker >= start):
                    yield hold

    def contents(self) -> Contents:
        """The logs as of now, or as of the start of ``with``."""
        if self._listed is not None:
            return self._listed
        layout = self._layout()
        found = Contents(layout, self.broker_logs, assertions=self.assertions)
        if layout.texts and not found.logs:
            raise UsageError(
                f"{layout.texts[0]} has no row of kafka-dump-log.sh that can be read.",
                do="Dump it again with --deep-iteration, or pass the segment itself.",
            )
        return found

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, by the ``meta.properties`` read last; null if they name none, or several."""
        return self._cluster_id

    def _layout(self) -> LogDirLayout:
        layout = discover(self.paths)
        self._cluster_id = FileScope(brokers=(), roots=layout.roots).cluster_id
        return layout

    def _observe(self, arguments: TableArguments, *, limit: ReadLimit) -> FileObservation:
        from toolkit.sources.logdir.observe_files import observe_files

        contents = self.contents()
        logs = contents.named_logs(arguments.topics, arguments.partitions)
        selection = contents.selection(arguments.selection({log.where.tp for log in logs}))
        return observe_files(contents, logs, selection=selection, limit=limit)


def offsets(contents: Contents, log: ReplicaLog, arguments: TableArguments) -> tuple[int | None, int | None]:
    """`start` and `stop` as offsets of a log."""
    is_named = isinstance(arguments.start, str) or isinstance(arguments.stop, str)
    state = contents.read(log) if is_named else None
    return offset_of(log, arguments.start, state), offset_of(log, arguments.stop, state, is_stop=True)


def _read(
    contents: Contents, arguments: TableArguments, doing: str
) -> Iterator[tuple[ReplicaLog, int | None, int | None, Callable[[int], object]]]:
    """The selected logs, each with its range of offsets, and what to call with the bytes that were read of it."""
    logs = contents.replica_logs(arguments.topics, arguments.partitions)
    with progress(doing, total=_size(logs), unit="B") as advance:
        for log in logs:
            yield log, *offsets(contents, log, arguments), advance


def transaction_log_records(
    contents: Contents, log: ReplicaLog, arguments: TableArguments
) -> Iterator[TransactionLogRecord]:
    """The records of a log of ``__transaction_state``."""
    start, stop = offsets(contents, log, arguments)
    return between(log.transaction_log(start=start, stop=stop), start, stop)


def _best_records(
    contents: Contents, arguments: TableArguments, *, indexed: Collection[str] | None = None
) -> Iterator[TransactionLogRecord]:
    """The records of the replica with most of the log of each partition, and why there may be more.

    `indexed`: only those of some ids, by the index of all records.
    """
    logs = contents.of_topic(STATE_TOPIC, arguments.partition_numbers)
    limit = ReadLimit.TAIL if indexed is None else ReadLimit.RECORDS
    for tp, (best, *_) in contents.by_partition(logs, limit=limit):
        log, records = best.log, best.window.records
        yield from transaction_log_records(contents, log, arguments) if indexed is None else records.records(indexed)
        if best.lost:
            yield TransactionLogRecord(txn_state_partition=tp.partition, broker_id=log.where.broker_id, error=best.lost)


def _with_errors(
    records: Iterable[TransactionLogRecord], errors: list[TransactionLogRecord]
) -> Iterator[TransactionLogRecord]:
    """The records; those without an id, which could not be read, are added to `errors`."""
    for record in records:
        if record.transactional_id is None and record.error:
            errors.append(record)
        yield record


def statistic_rows(by_log: Sequence[PartitionStats]) -> Iterator[TransactionStatistics]:
    """Rows of ``schema.STATISTICS``: of each log and, if there are several, of all partitions together."""
    for stats in by_log:
        yield statistics_row(stats.found, stats.where, error="; ".join(stats.failures) or None)
    if len(by_log) > 1:
        total = sum((stats.found for stats in by_log if stats.is_counted), Statistics())
        failed = Counter(code for stats in by_log for code in {Error.of(each).code for each in stats.failures})
        errors = (f"{code}: {number:,} of {len(by_log):,} logs" for code, number in sorted(failed.items()))
        yield statistics_row(total, UNKNOWN_LOG, error="; ".join(errors) or None)


def only(
    records: Iterable[R],
    *,
    producer_id: int | None = None,
    ids: Collection[str] | None = None,
    id_of: Callable[[R], object],
) -> Iterator[R]:
    """Records of a producer and of some ids, and errors without an id, which may concern them."""
    wanted: frozenset[object] | None = None if ids is None else frozenset(ids)
    if producer_id is None and wanted is None:
        yield from records
        return
    for record in records:
        is_selected = producer_id is None or record.producer_id == producer_id
        is_named = wanted is None or id_of(record) in wanted
        if (is_selected and is_named) or (record.error and id_of(record) is None):
            yield record


def _parts(contents: Contents, log: ReplicaLog, start: int | None, stop: int | None) -> Iterator[LogChunk]:
    """The batches of a range of a log, divided at missing offsets."""
    return at_missing_offsets(
        map(intact, log.parts(start=start, stop=stop, crc=True)),
        is_within_file=start is not None,
        end=log.base_offsets[-1] if stop is None and log.base_offsets else None,
        cleaned=contents.cleaned(log),
    )


def _before(contents: Contents, log: ReplicaLog, start: int | None) -> PartialTransactions:
    return known_before(log, start, cleaned=contents.cleaned(log))


def _counted(parts: Iterable[LogChunk], advance: Callable[[int], object]) -> Iterator[LogChunk]:
    for part in parts:
        advance(int(part.headers["size"].sum()) + sum(damage.size for damage in part.damage))
        yield part


def _size(logs: Iterable[ReplicaLog]) -> int:
    return sum(log.size for log in logs)
