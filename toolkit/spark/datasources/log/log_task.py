"""One task of ``kafka_log_dir``: the rows of `LogDir` from some of the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from toolkit.schema import TABLES, Row
from toolkit.sources import log_tables
from toolkit.sources.logdir import replica_tables
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.replica_log import ReplicaLog
from toolkit.sources.logdir.replica_state import partition_of, producers_of
from toolkit.sources.logdir.replica_tables import OffsetRange
from toolkit.sources.logdir.subset import Subset
from toolkit.spark.datasources.log.log_listing import listing_rows, name_of
from toolkit.spark.datasources.log.log_options import LISTING, PARTIAL_TRANSACTIONS, LogOptions
from toolkit.spark.datasources.log.log_partials import partials_of_logs, partials_of_run
from toolkit.spark.datasources.log.task_input import SegmentRanges, SegmentRun, WholeLogs

ROWS_AT_ONCE = 1 << 13  # per table; rows as Python dicts are large


def read_work(work: SegmentRanges | WholeLogs, options: LogOptions) -> Iterator[pa.Table]:
    """The rows of one task.

    Parameters
    ----------
    work
        The input of the task.
    options
        The options.
    """
    if isinstance(work, SegmentRanges):
        read_run = BY_RUN[options.table]
        return chain.from_iterable(read_run(run, options) for run in work.runs)
    subset = Subset(
        options.paths,
        work.layout,
        topic_partitions=work.topic_partitions,
        scope=work.scope,
        consistent_copy=options.consistent_copy,
        txn_state_partitions=options.txn_state_partitions,
    )
    if options.table in BY_SUBSET:
        return _in_tables(BY_SUBSET[options.table](subset, options), options.table)
    contents = subset.contents()
    logs = contents.replica_logs()
    if options.table in IN_TABLES:
        return IN_TABLES[options.table](contents, logs, options)
    return _in_tables(IN_ROWS[options.table](contents, logs, options), options.table)


def _batches_of_run(run: SegmentRun, options: LogOptions) -> Iterator[pa.Table]:
    stop: Any = options.stop
    return log_tables.batch_tables(run.parts(stop=stop, crc=options.crc), run.where, producer_id=options.producer_id)


def _in_tables(rows: Iterable[Row], name: str) -> Iterator[pa.Table]:
    rows = iter(rows)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield TABLES[name].arrow(some)


def _range(options: LogOptions) -> OffsetRange:
    return OffsetRange(start=options.start, stop=options.stop)


def _batches(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[pa.Table]:
    return replica_tables.batch_tables(
        contents, logs, _range(options), producer_id=options.producer_id, crc=options.crc
    )


def _log_transactions(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[pa.Table]:
    return replica_tables.log_transaction_tables(contents, logs, _range(options), producer_id=options.producer_id)


def _lso_timeline(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[pa.Table]:
    return replica_tables.lso_tables(contents, logs, _range(options), producer_id=options.producer_id)


def _partials(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[pa.Table]:
    return partials_of_logs(logs, options)


def _listing(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[pa.Table]:
    return listing_rows(contents, logs)


def _events(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    for log in logs:
        offsets = _range(options) if options.starts is None else OffsetRange(start=options.starts[name_of(log)])
        yield from replica_tables.event_rows(
            contents, [log], offsets, producer_id=options.producer_id, names=options.names
        )


def _transaction_history(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return replica_tables.history_rows(
        contents, logs, _range(options), producer_id=options.producer_id, names=options.names
    )


def _aborted(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return replica_tables.aborted_rows(contents, logs, _range(options), producer_id=options.producer_id)


def _violations(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return replica_tables.violation_rows(
        contents, logs, _range(options), producer_id=options.producer_id, crc=options.crc
    )


def _checkpoints(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return replica_tables.checkpoint_rows(contents, logs, everything=options.is_everything)


def _snapshots(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return replica_tables.snapshot_rows(logs)


def _segments(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return replica_tables.segment_rows(logs)


def _partitions(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return (partition_of(contents.read(log)).row() for log in logs)


def _producers(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return (each.row() for log in logs for each in producers_of(contents.read(log)))


def _statistics(contents: Contents, logs: list[ReplicaLog], options: LogOptions) -> Iterator[Row]:
    return replica_tables.statistic_rows(replica_tables.figures(contents, logs, _range(options)))


def _transactions(subset: Subset, options: LogOptions) -> Iterable[Row]:
    producer_ids = None if options.producer_id is None else [options.producer_id]
    return subset.transaction_rows(producer_ids=producer_ids, transactional_ids=options.transactional_ids)


def _coordinators(subset: Subset, options: LogOptions) -> Iterable[Row]:
    return subset.coordinator_rows(transactional_ids=options.transactional_ids, groups=options.groups)


def _findings(subset: Subset, options: LogOptions) -> Iterable[Row]:
    durations = {"max_transaction_timeout_ms": options.max_transaction_timeout_ms, "min_held_ms": options.min_held_ms}
    arguments: Any = {name: value for name, value in durations.items() if value is not None}
    return subset.finding_rows(topics=options.topics, partitions=options.partitions, **arguments)


BY_RUN: Mapping[str, Callable[[SegmentRun, LogOptions], Iterator[pa.Table]]] = {
    "batches": _batches_of_run,
    PARTIAL_TRANSACTIONS: partials_of_run,
}
IN_TABLES: Mapping[str, Callable[[Contents, list[ReplicaLog], LogOptions], Iterator[pa.Table]]] = {
    "batches": _batches,
    "lso_timeline": _lso_timeline,
    "log_transactions": _log_transactions,
    PARTIAL_TRANSACTIONS: _partials,
    LISTING: _listing,
}
IN_ROWS: Mapping[str, Callable[[Contents, list[ReplicaLog], LogOptions], Iterator[Row]]] = {
    "aborted": _aborted,
    "checkpoints": _checkpoints,
    "transaction_log": _events,
    "offsets_log": _events,
    "transaction_history": _transaction_history,
    "partitions": _partitions,
    "producers": _producers,
    "segments": _segments,
    "snapshots": _snapshots,
    "statistics": _statistics,
    "violations": _violations,
}
BY_SUBSET: Mapping[str, Callable[[Subset, LogOptions], Iterable[Row]]] = {
    "coordinators": _coordinators,
    "findings": _findings,
    "transactions": _transactions,
}
