"""The reader of ``kafka_log_dir``: the rows of `LogDir` from some of the logs in each task, and listings."""

from __future__ import annotations

import gc
import hashlib
import json
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.copy_manifest import MANIFEST
from toolkit.formats.log_dir_files import CHECKPOINT_NAMES
from toolkit.formats.log_paths import LogPath, log_path
from toolkit.schema import TABLES
from toolkit.sources import log_tables
from toolkit.sources.logdir.consistency import files_proof
from toolkit.sources.logdir.contents import Contents, Share, found_in, logs_in_texts
from toolkit.sources.logdir.log_dir import LogDir
from toolkit.sources.logdir.replica.log_dir_layout import CLEAN_SHUTDOWN, LogDirRoot
from toolkit.sources.logdir.replica.replica_log import FolderLog, ReplicaLog
from toolkit.spark.datasources.log_identity import LogNames
from toolkit.spark.datasources.log_options import LISTING, LISTING_TYPE, PROOF, LogListing, LogOptions, schema_of
from toolkit.spark.datasources.log_plan import SegmentRanges, SegmentRun, WholeLogs, plan
from toolkit.spark.datasources.row_batches import record_batches, selected, without_damage
from toolkit.spark.spark_errors import each_without_traceback, without_traceback

ROWS_AT_ONCE = 1 << 13  # per table; rows as Python dicts are large
LISTING_SCHEMA: pa.Schema = to_arrow_schema(LISTING_TYPE)


class LogReader(DataSourceReader):
    """Plans the tasks on the driver, and reads in them.

    Parameters
    ----------
    options
        The options.
    schema
        The schema of the table, or some of its columns.

    Raises
    ------
    UsageError
        If a column is not in the table, or has another type there.
    """

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self.options = options
        self.columns = selected(schema, options.table, schema_of(options.table))

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """The input of each task."""
        return plan(self.options)

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        # For an empty plan, Spark adds a partition of another type.
        if isinstance(partition, SegmentRanges | WholeLogs):
            found = without_damage(read_task(partition, self.options), self.options.mode)
            yield from record_batches(found, self.columns)
        freeze_modules()


_FROZEN: set[bool] = set()  # whether numba was loaded, with most of the modules


def freeze_modules() -> None:
    """Exclude the loaded modules from garbage collection, once per worker, and again after numba was loaded.

    A reused worker collects garbage after each task. Scanning all modules takes longer than reading 100 MB of a log.
    """
    with_numba = "numba" in sys.modules
    if TaskContext.get() is not None and with_numba not in _FROZEN:
        _FROZEN.add(with_numba)
        gc.collect()
        gc.freeze()


def read_task(work: SegmentRanges | WholeLogs, options: LogOptions) -> Iterator[pa.Table]:
    """The rows of one task."""
    if isinstance(work, SegmentRanges):
        return chain.from_iterable(_batches_of_run(run, options) for run in work.runs)
    if options.table == PROOF:
        contents = found_in(options.paths, assertions=options.assertions)
        return iter([pa.table({"line": [files_proof(contents).line]})])
    share = Share(
        paths=options.paths, topic_partitions=work.topic_partitions, elsewhere=work.elsewhere, scope=work.scope
    )
    contents = Contents(work.layout, logs_in_texts(work.layout), assertions=options.assertions, share=share)
    if options.table == LISTING:
        return listing_rows(contents, contents.replica_logs())
    return _in_tables(LogDir.of(contents, *options.paths).read(options.table, options.arguments), options.table)


def _in_tables(found: Iterable[Any], name: str) -> Iterator[pa.Table]:
    """Rows as Arrow tables; Arrow tables as they are."""
    found = iter(found)
    while some := list(islice(found, 1)):
        if isinstance(some[0], pa.Table):
            yield from chain(some, found)
            return
        yield TABLES[name].arrow([*some, *islice(found, ROWS_AT_ONCE - 1)])


def _batches_of_run(run: SegmentRun, options: LogOptions) -> Iterator[pa.Table]:
    arguments = options.arguments
    start: Any = arguments.start  # a number, or null: others are planned by log
    stop: Any = arguments.stop
    chunks = run.parts(start=start, stop=stop, crc=arguments.crc)
    return log_tables.batch_tables(chunks, run.where, producer_id=arguments.producer_id)


def listing_rows(contents: Contents, logs: Sequence[ReplicaLog]) -> Iterator[pa.Table]:
    """Rows of the table ``listing``. `logs`: all replicas of a partition, or none."""
    names = LogNames(contents)
    by_name = names.by_name(logs)
    numbers = [log.where.partition for log in logs if log.where.topic == STATE_TOPIC]
    has_replicas = len(numbers) > len(set(numbers))
    best = {names.name(each.log) for each in contents.best(STATE_TOPIC).values()} if has_replicas else None
    roots: dict[LogDirRoot, str] = {}
    rows = []
    for name, log in by_name.items():
        if log.root is not None and log.root not in roots:
            roots[log.root] = _digest(
                _stamps(log.root.path / name for name in (*CHECKPOINT_NAMES, CLEAN_SHUTDOWN, MANIFEST))
            )
        is_best = log.where.topic == STATE_TOPIC and (best is None or name in best)
        checkpoints, cleaned = "" if log.root is None else roots[log.root], contents.cleaned(log)
        rows.append(_row(names, name, log, is_best=is_best, checkpoints=checkpoints, cleaned=cleaned))
    yield LogListing.table.arrow(rows).cast(LISTING_SCHEMA)


def _row(
    names: LogNames, log_name: str, log: ReplicaLog, *, is_best: bool, checkpoints: str, cleaned: int
) -> LogListing:
    segments: list[tuple[str, int, int]] = list(_stamps([log_path(log.name)])) if log.is_text else []
    others: list[tuple[str, int, int]] = []
    sizes: list[tuple[int, int, int]] = []
    if isinstance(log, FolderLog):
        base_offsets = {segment.path.name: segment.offset for segment in log.segments}
        for name, stamp in sorted(log.stamps.items()):
            (segments if name in base_offsets else others).append((name, stamp.size, stamp.modified_ns))
        sizes = sorted((base_offsets[name], size, modified) for name, size, modified in segments)
    epochs, topic_id = names.metadata(log)
    begin = log.base_offsets[0] if log.base_offsets else None
    snapshot = [each for each in others if begin is not None and each[0] == f"{begin:020}.snapshot"]
    return LogListing(
        log=log_name,
        folder=log.name,
        replica=pickle.dumps(log.replica) if isinstance(log, FolderLog) else None,
        **log.where.columns,
        begin=begin,
        has_snapshot=bool(snapshot),
        cleaned=cleaned,
        segments=len(log.base_offsets),
        bytes=log.size,
        listing=_digest([segments, topic_id, log.error, *snapshot, *([cleaned] if cleaned >= 0 else [])]),
        segment_sizes=json.dumps(sizes),
        checkpoints=_digest([checkpoints, others]),
        topic_id=topic_id,
        first_batch=names.first_batch(log),
        leader_epochs=json.dumps(epochs),
        is_best=is_best,
    )


def _stamps(paths: Iterable[LogPath]) -> Iterator[tuple[str, int, int]]:
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        yield path.name, stat.st_size, stat.st_mtime_ns


def _digest(values: Iterable[object]) -> str:
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:16]
