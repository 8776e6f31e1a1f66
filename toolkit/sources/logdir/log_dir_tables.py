"""The tables of logs in files that read one replica's log after another."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.coordinator.transaction_history import transaction_history
from toolkit.analysis.log.transaction_statistics import Statistics, statistics_row
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, utc
from toolkit.schema.log import (
    Batch,
    CheckpointEntry,
    LogSegment,
    LogTransaction,
    OffsetsLogRecord,
    PastTransaction,
    SnapshotProducer,
    TransactionLogRecord,
    TransactionStatistics,
    TxnIndexEntry,
)
from toolkit.schema.metadata import ClusterEvent, MetadataLogRecord
from toolkit.sources import log_tables
from toolkit.sources.log_tables import LogId, ScanChunk, at_missing_offsets
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.coordinator_state import unread_histories_of
from toolkit.sources.logdir.replica.log_dir_layout import METADATA_TOPIC, checkpoint_rows_in
from toolkit.sources.logdir.replica.log_window import ReadLimit, known_before
from toolkit.sources.logdir.replica.metadata_log import metadata_logs, metadata_records
from toolkit.sources.logdir.replica.replica_log import ReplicaLog, between
from toolkit.sources.logdir.replica.replica_state import offset_of
from toolkit.sources.progress_bar import progress
from toolkit.sources.source import Source
from toolkit.sources.source_table import RowsOf, TableArguments, implements, requested_partitions

R = TypeVar("R", TransactionLogRecord, OffsetsLogRecord, PastTransaction, TxnIndexEntry)


class PartitionStats(NamedTuple):
    """Transaction statistics of one log, and its read errors."""

    where: LogId
    found: Statistics
    failures: Sequence[str]


class LogDirTables(Source, ABC):
    """These tables, of the logs that `contents` lists."""

    @abstractmethod
    def contents(self) -> Contents:
        """The logs, as of now."""

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
                parts, log.where, before=known_before(log, start), producer_id=arguments.producer_id
            )

    @implements(Source.lso_timeline)
    def lso_timeline(self, arguments: TableArguments) -> Iterator[pa.Table]:
        contents = self.contents()
        for log, start, stop, advance in _read(contents, arguments, "reading the LSO"):
            if log.error:
                continue
            parts = _counted(_parts(contents, log, start, stop), advance)
            end = None if stop is not None or not log.base_offsets else log.base_offsets[-1]
            table = log_tables.lso_timeline_table(parts, log.where, before=known_before(log, start), log_end_offset=end)
            if arguments.producer_id is not None:
                table = table.filter(pc.equal(table["holder_producer_id"], arguments.producer_id))
            yield table

    def statistics_by_log(self, arguments: TableArguments) -> list[PartitionStats]:
        """Transaction statistics of each log; several logs are read in parallel, as the loops release the GIL."""
        contents = self.contents()
        logs = contents.replica_logs(arguments.topics, arguments.partitions)
        with progress("reading transactions", total=_size(logs), unit="B") as advance:

            def partition_stats(log: ReplicaLog) -> PartitionStats:
                if log.error:
                    return PartitionStats(log.where, Statistics(), [log.error])
                start, stop = offsets(contents, log, arguments)
                parts = _counted(_parts(contents, log, start, stop), advance)
                return PartitionStats(log.where, *log_tables.log_statistics(parts, before=known_before(log, start)))

            with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 4)) as pool:
                return list(pool.map(partition_stats, logs))

    @implements(Source.statistics, rows_of=RowsOf.ALL)
    def statistics(self, arguments: TableArguments) -> Iterator[TransactionStatistics]:
        return statistic_rows(self.statistics_by_log(arguments))

    @implements(Source.transaction_log, topics=[STATE_TOPIC])
    def transaction_log(self, arguments: TableArguments) -> Iterator[TransactionLogRecord]:
        ids, contents = arguments.transactional_ids, self.contents()
        for log in self._coordinator_logs(contents, STATE_TOPIC, arguments):
            records = transaction_log_records(contents, log, arguments)
            yield from only(records, producer_id=arguments.producer_id, ids=ids, id_of=_transactional_id)

    @implements(Source.offsets_log, topics=[OFFSETS_TOPIC])
    def offsets_log(self, arguments: TableArguments) -> Iterator[OffsetsLogRecord]:
        contents = self.contents()
        for log in self._coordinator_logs(contents, OFFSETS_TOPIC, arguments):
            start, stop = offsets(contents, log, arguments)
            records = between(log.offsets_log(start=start, stop=stop), start, stop)
            yield from only(records, producer_id=arguments.producer_id, ids=arguments.groups, id_of=_group_id)

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
        logs = contents.of_topic(STATE_TOPIC, arguments.partition_numbers)
        records: Iterable[TransactionLogRecord]
        formatted = [log for log in logs if log.where.partition is None]  # records from a console consumer
        if formatted or ids is None or arguments.start is not None or arguments.stop is not None:
            best = [*formatted, *(replicas[0].log for _, replicas in contents.by_partition(logs))]
            read = (record for log in best for record in transaction_log_records(contents, log, arguments))
            records = only(read, ids=ids, id_of=_transactional_id)
            records = records if ids is None else list(records)
        else:
            by_partition = contents.by_partition(logs, limit=ReadLimit.RECORDS)
            indexes = [replicas[0].window.records for _, replicas in by_partition]
            records = [record for index in indexes for record in index.records(ids)]
        past = list(transaction_history(records, broker_log_events=contents.broker_log_events))
        yield from only(past, producer_id=arguments.producer_id, id_of=_transactional_id)
        without = {*(ids or ())} - {each.transactional_id for each in past}
        if without and arguments.partition_numbers is None:
            yield from unread_histories_of(contents, sorted(without), records)

    @implements(Source.metadata_log, topics=[METADATA_TOPIC])
    def metadata_log(self, arguments: TableArguments) -> Iterator[MetadataLogRecord]:
        return (record for log in metadata_logs(self.contents().logs) for record in metadata_records(log))

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
        found = self._aborted(arguments)
        return only(found, producer_id=arguments.producer_id, id_of=lambda entry: entry.producer_id)

    def _aborted(self, arguments: TableArguments) -> Iterator[TxnIndexEntry]:
        """Transactions with an offset in the range."""
        contents = self.contents()
        for log in contents.replica_logs(arguments.topics, arguments.partitions):
            if log.error:
                yield TxnIndexEntry(**log.where.columns, file=log.name, error=log.error)
                continue
            start, stop = offsets(contents, log, arguments)
            for entry in log.aborted_rows():
                first, last = entry.first_offset, entry.last_offset
                if first is None or last is None or (last >= (start or 0) and (stop is None or first < stop)):
                    yield entry

    @implements(Source.snapshots)
    def snapshots(self, arguments: TableArguments) -> Iterator[SnapshotProducer]:
        return snapshot_rows(self.contents().replica_logs(arguments.topics, arguments.partitions))

    @implements(Source.segments)
    def segments(self, arguments: TableArguments) -> Iterator[LogSegment]:
        return segment_rows(self.contents().replica_logs(arguments.topics, arguments.partitions))

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


def offsets(contents: Contents, log: ReplicaLog, arguments: TableArguments) -> tuple[int | None, int | None]:
    """`start` and `stop` as offsets of a log."""
    is_named = isinstance(arguments.start, str) or isinstance(arguments.stop, str)
    state = contents.read(log) if is_named else None
    return offset_of(log, arguments.start, state), offset_of(log, arguments.stop, state)


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


def statistic_rows(by_log: Sequence[PartitionStats]) -> Iterator[TransactionStatistics]:
    """Rows of ``schema.STATISTICS``: of each log and, if there are several, of all together."""
    for stats in by_log:
        yield statistics_row(stats.found, **stats.where.columns, error="; ".join(stats.failures) or None)
    if len(by_log) > 1:
        yield statistics_row(sum((stats.found for stats in by_log), Statistics()), topic=None, partition=None)


def snapshot_rows(logs: Iterable[ReplicaLog]) -> Iterator[SnapshotProducer]:
    """Rows of ``schema.SNAPSHOTS``."""
    for log in logs:
        if log.error:
            yield SnapshotProducer(**log.where.columns, file=log.name, error=log.error)
            continue
        for snapshot in log.snapshots():
            row = SnapshotProducer(**log.where.columns, snapshot_offset=snapshot.offset, file=snapshot.file)
            if snapshot.error or not snapshot.producers:  # an empty snapshot shows that nothing was open
                yield replace(row, error=snapshot.error)
            for producer in snapshot.producers:
                yield replace(
                    row,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    last_sequence=producer.last_sequence,
                    last_offset=producer.last_offset,
                    offset_delta=producer.offset_delta,
                    last_timestamp=utc(producer.last_timestamp),
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.current_txn_first_offset,
                )


def segment_rows(logs: Iterable[ReplicaLog]) -> Iterator[LogSegment]:
    """Rows of ``schema.SEGMENTS``."""
    for log in logs:
        if log.error:
            yield LogSegment(**log.where.columns, file=log.name, error=log.error)
        else:
            yield from log.segment_rows()


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


def _transactional_id(record: TransactionLogRecord | PastTransaction) -> str | None:
    return record.transactional_id


def _group_id(record: OffsetsLogRecord) -> str | None:
    return record.group_id


def _parts(contents: Contents, log: ReplicaLog, start: int | None, stop: int | None) -> Iterator[ScanChunk]:
    """The batches of a range of a log, divided at missing offsets."""
    return at_missing_offsets(
        log.parts(start=start, stop=stop),
        is_within_file=start is not None,
        end=log.base_offsets[-1] if stop is None and log.base_offsets else None,
        cleaned=contents.cleaned(log),
    )


def _counted(parts: Iterable[ScanChunk], advance: Callable[[int], object]) -> Iterator[ScanChunk]:
    for part in parts:
        advance(int(part.scanned.headers["size"].sum()) + sum(damage.size for damage in part.scanned.damage))
        yield part


def _size(logs: Iterable[ReplicaLog]) -> int:
    return sum(log.size for log in logs)
