"""The table ``partial_transactions`` of logs in files: each task folds its ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from toolkit.analysis.log.log_transactions import EMPTY
from toolkit.sources.logdir.log_window import known_before
from toolkit.sources.logdir.partition_folder import FolderLog
from toolkit.sources.logdir.replica_log import ReplicaLog
from toolkit.spark.datasources.log.log_listing import name_of
from toolkit.spark.datasources.log.log_options import LogOptions
from toolkit.spark.datasources.log.task_input import SegmentRun
from toolkit.spark.datasources.partial_transactions import TAIL, partial_transaction_batches, partial_transaction_rows


def partials_of_run(run: SegmentRun, options: LogOptions) -> Iterator[pa.Table]:
    """The partial transactions of one range of a log; the first range includes those open before the log."""
    begins = run.range_order == 0 and run.start is None
    return _tables(
        partial_transaction_batches(
            run.parts(stop=None),
            run.where,
            log=run.log,
            range_order=run.range_order,
            before=known_before(FolderLog(run.replica), None) if begins else EMPTY,
            log_end_offset=run.log_end_offset if run.is_last else None,
        )
    )


def partials_of_logs(logs: Sequence[ReplicaLog], options: LogOptions) -> Iterator[pa.Table]:
    """The partial transactions of complete logs: texts, and folders without segments to read."""
    for log in logs:
        name = name_of(log)
        start = None if options.starts is None else options.starts[name]
        if log.error:
            failure = {"log": name, "range_order": 0, "kind": TAIL, "file": log.name, "error": log.error}
            yield pa.Table.from_batches([partial_transaction_rows({**log.where.columns, **failure}, rows=1)])
            continue
        yield from _tables(
            partial_transaction_batches(
                log.parts(start=start),
                log.where,
                log=name,
                before=known_before(log, None) if start is None else EMPTY,
                log_end_offset=log.base_offsets[-1] if log.base_offsets else None,
            )
        )


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in batches)
