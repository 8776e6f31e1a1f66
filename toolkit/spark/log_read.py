"""One task of ``kafka_log``: the rows of `LogDir`, of the share of the logs that it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from toolkit.schema import TABLES, Row
from toolkit.sources import log_tables
from toolkit.sources.logdir import tables
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.log import Log
from toolkit.sources.logdir.share import Share
from toolkit.sources.logdir.state import partition_row, producer_rows
from toolkit.sources.logdir.tables import Section
from toolkit.spark.log_listing import listing_rows, name_of
from toolkit.spark.log_options import LISTING, PIECES, LogOptions
from toolkit.spark.log_pieces import pieces_of_logs, pieces_of_run
from toolkit.spark.log_work import Logs, Run, Stretches

__all__ = ["read_work"]

ROWS_AT_ONCE = 1 << 13  # of Python's, which are large


def read_work(work: Stretches | Logs, options: LogOptions) -> Iterator[pa.Table]:
    """The rows of a table that are a task's.

    Parameters
    ----------
    work
        What the task reads.
    options
        What was asked for.
    """
    if isinstance(work, Stretches):
        of_run = BY_RUN[options.table]
        return chain.from_iterable(of_run(run, options) for run in work.runs)
    share = Share(
        options.paths,
        work.layout,
        places=work.places,
        scope=work.scope,
        at_rest=options.at_rest,
        txn_state_partitions=options.txn_state_partitions,
    )
    if options.table in BY_SHARE:
        return _in_tables(BY_SHARE[options.table](share, options), options.table)
    contents = share.contents()
    logs = contents.asked()
    if options.table in IN_TABLES:
        return IN_TABLES[options.table](contents, logs, options)
    return _in_tables(IN_ROWS[options.table](contents, logs, options), options.table)


def _batches_of_run(run: Run, options: LogOptions) -> Iterator[pa.Table]:
    stop: Any = options.stop
    return log_tables.batch_tables(run.parts(stop=stop, crc=options.crc), run.where, producer_id=options.producer_id)


def _in_tables(rows: Iterable[Row], name: str) -> Iterator[pa.Table]:
    rows = iter(rows)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield TABLES[name].arrow(some)


def _section(asked: LogOptions) -> Section:
    return Section(start=asked.start, stop=asked.stop)


def _batches(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[pa.Table]:
    return tables.batch_tables(contents, logs, _section(asked), producer_id=asked.producer_id, crc=asked.crc)


def _spans(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[pa.Table]:
    return tables.span_tables(contents, logs, _section(asked), producer_id=asked.producer_id)


def _lso_timeline(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[pa.Table]:
    return tables.lso_tables(contents, logs, _section(asked), producer_id=asked.producer_id)


def _pieces(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[pa.Table]:
    return pieces_of_logs(logs, asked)


def _listing(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[pa.Table]:
    return listing_rows(contents, logs)


def _events(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    for log in logs:
        section = _section(asked) if asked.starts is None else Section(start=asked.starts[name_of(log)])
        yield from tables.event_rows(contents, [log], section, producer_id=asked.producer_id, names=asked.names)


def _histories(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return tables.history_rows(contents, logs, _section(asked), producer_id=asked.producer_id, names=asked.names)


def _aborted(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return tables.aborted_rows(contents, logs, _section(asked), producer_id=asked.producer_id)


def _violations(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return tables.violation_rows(contents, logs, _section(asked), producer_id=asked.producer_id, crc=asked.crc)


def _checkpoints(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return tables.checkpoint_rows(contents, logs, everything=asked.is_everything)


def _snapshots(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return tables.snapshot_rows(logs)


def _segments(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return tables.segment_rows(logs)


def _partitions(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return (partition_row(contents.read(log).state) for log in logs)


def _producers(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return (row for log in logs for row in producer_rows(contents.read(log).state))


def _statistics(contents: Contents, logs: list[Log], asked: LogOptions) -> Iterator[Row]:
    return tables.statistic_rows(tables.figures(contents, logs, _section(asked)))


def _transactions(share: Share, asked: LogOptions) -> Iterable[Row]:
    producer_ids = None if asked.producer_id is None else [asked.producer_id]
    return share.transaction_rows(producer_ids=producer_ids, transactional_ids=asked.transactional_ids)


def _coordinators(share: Share, asked: LogOptions) -> Iterable[Row]:
    return share.coordinator_rows(asked.transactional_ids, asked.groups)


def _findings(share: Share, asked: LogOptions) -> Iterable[Row]:
    said = {"max_transaction_timeout_ms": asked.max_transaction_timeout_ms, "min_held_ms": asked.min_held_ms}
    given: Any = {name: value for name, value in said.items() if value is not None}
    return share.finding_rows(asked.topics, asked.partitions, **given)


BY_RUN: Mapping[str, Callable[[Run, LogOptions], Iterator[pa.Table]]] = {
    "batches": _batches_of_run,
    PIECES: pieces_of_run,
}
IN_TABLES: Mapping[str, Callable[[Contents, list[Log], LogOptions], Iterator[pa.Table]]] = {
    "batches": _batches,
    "lso_timeline": _lso_timeline,
    "spans": _spans,
    PIECES: _pieces,
    LISTING: _listing,
}
IN_ROWS: Mapping[str, Callable[[Contents, list[Log], LogOptions], Iterator[Row]]] = {
    "aborted": _aborted,
    "checkpoints": _checkpoints,
    "coordinator_events": _events,
    "group_events": _events,
    "histories": _histories,
    "partitions": _partitions,
    "producers": _producers,
    "segments": _segments,
    "snapshots": _snapshots,
    "statistics": _statistics,
    "violations": _violations,
}
BY_SHARE: Mapping[str, Callable[[Share, LogOptions], Iterable[Row]]] = {
    "coordinators": _coordinators,
    "findings": _findings,
    "transactions": _transactions,
}
