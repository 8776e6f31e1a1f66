"""The table ``pieces`` of a log in files: what each task folds of it (`toolkit.spark.pieces`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from toolkit.analysis.spans import EMPTY
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.folder import FolderLog
from toolkit.sources.logdir.log import Log
from toolkit.sources.logdir.tables import Section
from toolkit.sources.logdir.window import known_before
from toolkit.spark.log_options import LogOptions
from toolkit.spark.log_work import Run
from toolkit.spark.pieces import DAMAGE, OF_LOG, log_name, piece_batches, piece_rows

__all__ = ["pieces_of_logs", "pieces_of_run"]


def pieces_of_run(run: Run, options: LogOptions) -> Iterator[pa.Table]:
    """Pieces of stretches; the first one of a log begins with what is known before it, the last one tells its end."""
    start: Any = options.start
    stop: Any = options.stop
    return _tables(
        piece_batches(
            run.parts(start=start, stop=stop),
            run.where,
            log=log_name(run.splits[0].path, run.where.broker_id),
            before=known_before(FolderLog(run.replica), start) if run.is_first else EMPTY,
            log_end_offset=run.log_end_offset if run.is_last and stop is None else None,
        )
    )


def pieces_of_logs(contents: Contents, logs: Sequence[Log], section: Section) -> Iterator[pa.Table]:
    """Pieces of whole logs."""
    for number, log in enumerate(logs):
        if log.error:
            row = {**log.where.columns, "log": log.name, "slot": OF_LOG, "kind": DAMAGE, "file": log.name}
            yield pa.Table.from_batches([piece_rows({**row, "error": log.error}, rows=1)])
            continue
        start, stop = section.offsets(contents, log)
        yield from _tables(
            piece_batches(
                log.parts(start=start, stop=stop),
                log.where,
                log=f"{log.name}#{number}" if log.is_text else log_name(f"{log.name}/", log.where.broker_id),
                before=known_before(log, start),
                log_end_offset=log.base_offsets[-1] if log.base_offsets and stop is None else None,
            )
        )


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in batches)
