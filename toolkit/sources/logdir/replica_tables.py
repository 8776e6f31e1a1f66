"""Tables of logs in files, row by row, replica after replica."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from toolkit import schema
from toolkit.analysis.coordinator.transaction_history import transaction_history
from toolkit.analysis.log import transaction_statistics
from toolkit.analysis.log.log_invariants import InvariantChecker, event_violations
from toolkit.analysis.log.transaction_statistics import NO_TRANSACTIONS, Statistics
from toolkit.formats.coordinator.coordinator_log_rows import unread_records
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.log import TransactionLogRecord
from toolkit.sources import log_tables
from toolkit.sources.log_tables import LogId, ScanChunk
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.log_dir_layout import checkpoint_rows_in
from toolkit.sources.logdir.log_window import ReadLimit, known_before
from toolkit.sources.logdir.replica_log import ReplicaLog
from toolkit.sources.logdir.replica_state import offset_of
from toolkit.sources.offset_queries.offset_spec import OffsetSpec, check_offset_range
from toolkit.sources.progress_bar import progress

COMPACTED = {STATE_TOPIC, OFFSETS_TOPIC}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """A range of offsets, resolved in each log.

    Parameters
    ----------
    start, stop
        First offset and the offset after the last, as for `toolkit.sources.logdir.replica_state`; null for the
        ends of the log.

    Raises
    ------
    UsageError
        If one of them is not an offset specification, or `stop` comes before `start`.
    """

    start: OffsetSpec | None = None
    stop: OffsetSpec | None = None

    def __post_init__(self) -> None:
        check_offset_range(self.start, self.stop)

    def offsets(self, contents: Contents, log: ReplicaLog) -> tuple[int | None, int | None]:
        """`start` and `stop` as offsets of a log."""
        is_named = isinstance(self.start, str) or isinstance(self.stop, str)
        state = contents.read(log) if is_named else None
        return offset_of(log, self.start, state), offset_of(log, self.stop, state)


def batch_tables(
    contents: Contents, logs: Sequence[ReplicaLog], offset_range: OffsetRange, *, producer_id: int | None, crc: bool
) -> Iterator[pa.Table]:
    """Batches as tables of ``schema.BATCHES``."""
    with progress("reading batches", total=_size(logs), unit="B") as advance:
        for log in logs:
            if log.error:
                yield _error_row(log, schema.BATCHES)
                continue
            start, stop = offset_range.offsets(contents, log)
            parts = _counted(log.parts(start=start, stop=stop, crc=crc), advance)
            yield from log_tables.batch_tables(parts, log.where, producer_id=producer_id)


def log_transaction_tables(
    contents: Contents, logs: Sequence[ReplicaLog], offset_range: OffsetRange, *, producer_id: int | None
) -> Iterator[pa.Table]:
    """Transactions as tables of ``schema.LOG_TRANSACTIONS``."""
    with progress("reading transactions", total=_size(logs), unit="B") as advance:
        for log in logs:
            if log.error:
                yield _error_row(log, schema.LOG_TRANSACTIONS)
                continue
            start, stop = offset_range.offsets(contents, log)
            parts = _counted(log.parts(start=start, stop=stop), advance)
            before = known_before(log, start)
            yield from log_tables.log_transaction_tables(parts, log.where, before=before, producer_id=producer_id)


class PartitionStats(NamedTuple):
    """Transaction statistics of one log, and its read errors."""

    where: LogId
    found: Statistics
    failures: Sequence[str]


def figures(contents: Contents, logs: Sequence[ReplicaLog], offset_range: OffsetRange) -> list[PartitionStats]:
    """Transaction statistics of each log; several logs are read in parallel, as the loops release the GIL."""
    with progress("reading transactions", total=_size(logs), unit="B") as advance:

        def partition_stats(log: ReplicaLog) -> PartitionStats:
            if log.error:
                return PartitionStats(log.where, NO_TRANSACTIONS, [log.error])
            start, stop = offset_range.offsets(contents, log)
            parts = _counted(log.parts(start=start, stop=stop), advance)
            return PartitionStats(log.where, *log_tables.log_statistics(parts, before=known_before(log, start)))

        with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 4)) as pool:
            return list(pool.map(partition_stats, logs))


def statistic_rows(found: Sequence[PartitionStats]) -> Iterator[Row]:
    """Rows of ``schema.STATISTICS``: of each log and, if there are several, of all together."""
    for stats in found:
        rows = transaction_statistics.statistic_rows(stats.found, **stats.where.columns)
        yield from ({**row, "error": "; ".join(stats.failures) or None} for row in rows)
    if len(found) > 1:
        everything = transaction_statistics.combined(*(stats.found for stats in found))
        yield from transaction_statistics.statistic_rows(everything, topic=None, partition=None)


def lso_tables(
    contents: Contents, logs: Sequence[ReplicaLog], offset_range: OffsetRange, *, producer_id: int | None
) -> Iterator[pa.Table]:
    """Steps of the LSO as tables of ``schema.LSO_TIMELINE``."""
    with progress("reading the LSO", total=_size(logs), unit="B") as advance:
        for log in logs:
            if log.error:
                continue
            start, stop = offset_range.offsets(contents, log)
            parts = _counted(log.parts(start=start, stop=stop), advance)
            end = None if stop is not None or not log.base_offsets else log.base_offsets[-1]
            table = log_tables.lso_timeline_table(parts, log.where, before=known_before(log, start), log_end_offset=end)
            if producer_id is not None:
                import pyarrow.compute as pc

                table = table.filter(pc.equal(table["holder_producer_id"], producer_id))
            yield table


def event_rows(
    contents: Contents,
    logs: Sequence[ReplicaLog],
    offset_range: OffsetRange,
    *,
    producer_id: int | None = None,
    names: Collection[str] | None = None,
) -> Iterator[Row]:
    """Records of a coordinators' topic: rows of ``schema.TRANSACTION_LOG``, or of ``schema.OFFSETS_LOG``.

    `names` are transactional ids or group ids.
    """
    with progress("reading records", total=len(logs), unit="partitions") as advance:
        for log in logs:
            name = "transactional_id" if log.where.topic == STATE_TOPIC else "group_id"
            yield from only(_event_rows(contents, log, offset_range), producer_id=producer_id, names=names, name=name)
            advance(1)


def history_rows(
    contents: Contents,
    logs: Sequence[ReplicaLog],
    offset_range: OffsetRange,
    *,
    producer_id: int | None = None,
    names: Collection[str] | None = None,
) -> Iterator[Row]:
    """Rows of ``schema.TRANSACTION_HISTORY``, from the replica with most of the log of each partition."""
    if names is None or offset_range != OffsetRange():
        best = [replicas[0].log for _, replicas in contents.by_partition(logs)]
        rows = event_rows(contents, best, offset_range, names=names)
        events: Iterable[TransactionLogRecord] = map(TransactionLogRecord.of, rows)
    else:
        indexes = [replicas[0].window.records for _, replicas in contents.by_partition(logs, reach=ReadLimit.RECORDS)]
        events = (each for index in indexes for each in index.records(names))
    past = (each.row() for each in transaction_history(events))
    return only(past, producer_id=producer_id, name="transactional_id")


def _event_rows(contents: Contents, log: ReplicaLog, offset_range: OffsetRange) -> Iterator[Row]:
    where = log.where
    if log.error:
        yield unread_records(
            where.topic or "", where.partition, error=log.error, broker_id=where.broker_id, file=log.name
        )
        return
    start, stop = offset_range.offsets(contents, log)
    read = log.transaction_log if where.topic == STATE_TOPIC else log.offsets_log
    for row in read(start=start, stop=stop):
        if _in_range(row.get("offset"), start, stop):
            yield row


def aborted_rows(
    contents: Contents, logs: Iterable[ReplicaLog], offset_range: OffsetRange, *, producer_id: int | None = None
) -> Iterator[Row]:
    """Rows of ``schema.ABORTED``: transactions with an offset in the range."""
    return only(_aborted_rows(contents, logs, offset_range), producer_id=producer_id, name="producer_id")


def _aborted_rows(contents: Contents, logs: Iterable[ReplicaLog], offset_range: OffsetRange) -> Iterator[Row]:
    for log in logs:
        if log.error:
            yield {**log.where.columns, "file": log.name, "error": log.error}
            continue
        start, stop = offset_range.offsets(contents, log)
        for row in log.aborted_rows():
            first, last = row.get("first_offset"), row.get("last_offset")
            if first is None or last is None or (last >= (start or 0) and (stop is None or first < stop)):
                yield row


def snapshot_rows(logs: Iterable[ReplicaLog]) -> Iterator[Row]:
    """Rows of ``schema.SNAPSHOTS``."""
    for log in logs:
        if log.error:
            yield {**log.where.columns, "file": log.name, "error": log.error}
            continue
        for snapshot in log.snapshots():
            log_columns = {**log.where.columns, "snapshot_offset": snapshot.offset, "file": snapshot.file}
            if snapshot.error or not snapshot.producers:  # an empty snapshot shows that nothing was open
                yield {**log_columns, "error": snapshot.error}
            for producer in snapshot.producers:
                yield log_columns | {
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "last_sequence": producer.last_sequence,
                    "last_offset": producer.last_offset,
                    "offset_delta": producer.offset_delta,
                    "last_timestamp": schema.utc(producer.last_timestamp),
                    "coordinator_epoch": producer.coordinator_epoch,
                    "current_txn_start_offset": producer.current_txn_first_offset,
                }


def segment_rows(logs: Iterable[ReplicaLog]) -> Iterator[Row]:
    """Rows of ``schema.SEGMENTS``."""
    for log in logs:
        if log.error:
            yield {**log.where.columns, "file": log.name, "error": log.error}
        else:
            yield from log.segment_rows()


def checkpoint_rows(contents: Contents, logs: Iterable[ReplicaLog], *, everything: bool) -> Iterator[Row]:
    """Rows of ``schema.CHECKPOINTS``.

    Parameters
    ----------
    contents
        The files.
    logs
        The selected partitions.
    everything
        Whether these are all, so that lines about no partition, or about one without a folder, are included.
    """
    logs = list(logs)
    topic_partitions = {(log.where.topic, log.where.partition) for log in logs}
    for root in contents.layout.roots:
        for row in checkpoint_rows_in(root.path, broker_id=root.broker_id):
            if everything or (row.get("topic"), row.get("partition")) in topic_partitions:
                yield row
    for log in logs:
        yield from log.checkpoint_rows()


def violation_rows(
    contents: Contents,
    logs: Sequence[ReplicaLog],
    offset_range: OffsetRange,
    *,
    producer_id: int | None = None,
    crc: bool,
) -> Iterator[Row]:
    """Rows of ``schema.VIOLATIONS``."""
    return only(_violation_rows(contents, logs, offset_range, crc=crc), producer_id=producer_id, name="producer_id")


def _violation_rows(
    contents: Contents, logs: Sequence[ReplicaLog], offset_range: OffsetRange, *, crc: bool
) -> Iterator[Row]:
    with progress("checking", total=_size(logs), unit="B") as advance:
        for log in logs:
            start, stop = offset_range.offsets(contents, log)
            checker = InvariantChecker(**log.where.columns, compacted=_may_be_compacted(contents, log))
            for scanned, file in _counted(log.parts(start=start, stop=stop, crc=crc), advance):
                yield from (each.row() for each in checker.check(scanned.headers, file=file))
            if log.where.topic == STATE_TOPIC and not log.error:
                records = map(TransactionLogRecord.of, log.transaction_log(start=start, stop=stop))
                yield from (each.row() for each in event_violations(records))


def _may_be_compacted(contents: Contents, log: ReplicaLog) -> bool:
    """Whether the cleaner may have compacted the log, by its checkpoint; true without log directory or checkpoint."""
    if log.where.topic in COMPACTED or log.root is None:
        return True
    checkpoints = contents.checkpoints(log.root)
    return not checkpoints.has_cleaned or (log.where.topic or "", log.where.partition or 0) in checkpoints.cleaned


def _counted(parts: Iterable[ScanChunk], advance: Callable[[int], object]) -> Iterator[ScanChunk]:
    for part in parts:
        advance(int(part.scanned.headers["size"].sum()) + sum(damage.size for damage in part.scanned.damage))
        yield part


def _size(logs: Iterable[ReplicaLog]) -> int:
    return sum(log.size for log in logs)


def _error_row(log: ReplicaLog, table: schema.Table) -> pa.Table:
    return table.arrow([{**log.where.columns, "file": log.name, "error": log.error}])


def _in_range(offset: int | None, start: int | None, stop: int | None) -> bool:
    return offset is None or ((start is None or offset >= start) and (stop is None or offset < stop))


def only(
    rows: Iterable[Row], *, producer_id: int | None = None, names: Collection[str] | None = None, name: str = ""
) -> Iterator[Row]:
    """Rows of a producer and of some ids in a column, and errors without an id, which may concern them."""
    for row in rows:
        is_selected = producer_id is None or row.get("producer_id") == producer_id
        is_named = names is None or row.get(name) in names
        if (is_selected and is_named) or (row.get("error") and row.get(name) is None):
            yield row
