"""The reader of ``kafka_log_dir``: it plans tasks by segment, by log, or one for everything, and reads in them."""

from __future__ import annotations

import datetime as dt
import gc
import hashlib
import json
import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from toolkit.analysis.log.offset_status import clip
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import LogChunk
from toolkit.formats.log_dir_files import CHECKPOINT_NAMES, MANIFEST, LogPath, log_path
from toolkit.schema import TABLES
from toolkit.schema.table import TopicPartition
from toolkit.sources import log_tables
from toolkit.sources.log_tables import LogId
from toolkit.sources.logdir.consistency import files_proof
from toolkit.sources.logdir.contents import Contents, FileScope, Share, found_in, logs_in_texts
from toolkit.sources.logdir.log_dir import LogDir
from toolkit.sources.logdir.log_dir_layout import CLEAN_SHUTDOWN, LogDirLayout, LogDirRoot
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog, SegmentSplit, read_split, splits
from toolkit.sources.source import RowsOf
from toolkit.spark.datasources.log_identity import LogNames
from toolkit.spark.datasources.log_options import LISTING, LISTING_TYPE, PROOF, LogListing, LogOptions, schema_of
from toolkit.spark.datasources.row_batches import record_batches, selected, without_damage
from toolkit.spark.spark_errors import each_without_traceback, without_traceback

OF_THE_END = {"partitions", "producers", "findings"}  # they read little more than the newest segment of a log
OF_SMALL_FILES = {"aborted", "checkpoints", "snapshots", "segments", LISTING}
TO_OPEN = 1 << 16  # bytes that can be read in the time of opening a file
AT_ONCE = 8  # segments split in parallel: on a mounted volume, reading an index has latency
WORTH_IT = 4  # a task of findings reads __transaction_state, and at least so many times as much of other logs

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRun:
    """Consecutive splits of one log."""

    where: LogId  # topic, partition and broker
    splits: Sequence[SegmentSplit]  # the splits, in the order of the log

    def parts(self, *, start: int | None, stop: int | None, crc: bool = False) -> Iterator[LogChunk]:
        """The batches between two offsets; with `crc` the checksums are verified."""
        chunks = chain.from_iterable(read_split(split, crc=crc) for split in self.splits)
        return clip(chunks, start=start, stop=stop)


@dataclass(frozen=True, eq=False)
class SegmentRanges(InputPartition):
    """Splits of one log, or small splits of several."""

    runs: Sequence[SegmentRun]


@dataclass(frozen=True, eq=False)
class WholeLogs(InputPartition):
    """Complete logs."""

    layout: LogDirLayout  # the folders and texts to read
    topic_partitions: Collection[tuple[str | None, int | None]]  # topics and partitions of the requested logs
    # for the one task of findings that answers for partitions that are in no log: those of the other tasks
    elsewhere: Collection[TopicPartition] | None = None
    scope: FileScope | None = None  # brokers and log directories of all tasks, for findings


def plan(options: LogOptions) -> list[InputPartition]:
    """The input of each task. Raises NotFound, UsageError as for `LogDir`."""
    if options.table == PROOF:  # one task reads what it needs
        nothing = LogDirLayout(roots=(), replicas=(), texts=(), left_out=())
        return [WholeLogs(layout=nothing, topic_partitions=())]
    contents = found_in(options.paths)
    logs = _selected_logs(contents, options)
    bounds = options.arguments.start, options.arguments.stop
    by_state = any(isinstance(bound, str | dt.datetime) for bound in bounds)  # the log must be read to resolve them
    if options.table != "batches" or by_state:
        return list(_of_logs(contents, logs, options))
    in_folders = [log for log in logs if isinstance(log, FolderLog) and not log.error]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        cut = dict(zip(in_folders, pool.map(partial(_cut, options=options), in_folders), strict=True))
    return [*_of_segments(cut, options), *_of_logs(contents, [log for log in logs if log not in cut], options)]


def _selected_logs(contents: Contents, options: LogOptions) -> Sequence[ReplicaLog]:
    arguments, function = options.arguments, LogDir.functions.get(options.table)
    if function and function.topics:
        return [log for topic in function.topics for log in contents.of_topic(topic, arguments.partition_numbers)]
    if options.table == "checkpoints" and arguments.is_everything:
        return contents.logs
    select = contents.named_logs if function and function.needs_topic else contents.replica_logs
    return select(arguments.topics, arguments.partitions)


def _cut(log: FolderLog, options: LogOptions) -> list[SegmentSplit]:
    start: Any = options.arguments.start
    stop: Any = options.arguments.stop
    return splits(log, start=start, stop=stop, max_bytes=options.max_partition_bytes)


def _of_segments(cut: Mapping[FolderLog, list[SegmentSplit]], options: LogOptions) -> Iterator[SegmentRanges]:
    pairs = [(log, split) for log, splits in cut.items() for split in splits]
    for bundle in _bundled(pairs, lambda pair: pair[1].size + TO_OPEN, options.max_partition_bytes):
        by_log = groupby(bundle, key=lambda pair: pair[0])
        yield SegmentRanges(
            [SegmentRun(where=log.where, splits=[split for _, split in of_log]) for log, of_log in by_log]
        )


def _of_logs(contents: Contents, logs: Sequence[ReplicaLog], options: LogOptions) -> Iterator[WholeLogs]:
    """Bundles of logs, the largest first, so that the last task is short."""
    scope = contents.scope(logs) if options.table == "findings" else None
    function = LogDir.functions.get(options.table)
    besides = [log for topic in function.also_reads for log in contents.of_topic(topic)] if function else []
    max_weight = max(options.max_partition_bytes, WORTH_IT * sum(log.size for log in besides))
    groups = _groups(logs, options)
    bundles = _bundled(groups, lambda group: sum(_weight(log, options) for log in group), max_weight)
    bundled_logs = [[log for group in bundle for log in group] for bundle in bundles]
    bundled_logs.sort(key=lambda group: sum(log.size for log in group), reverse=True)
    for number, group in enumerate(bundled_logs):
        others = None
        if options.table == "findings" and number == 0:
            others = frozenset(log.where.tp for each in bundled_logs[1:] for log in each)
        yield WholeLogs(
            layout=_layout(contents, [*group, *besides], options, is_first=number == 0),
            topic_partitions=frozenset((log.where.topic, log.where.partition) for log in group),
            elsewhere=others,
            scope=scope,
        )


def _groups(logs: Sequence[ReplicaLog], options: LogOptions) -> list[Sequence[ReplicaLog]]:
    """Groups of logs, each to be read by one task."""
    texts = any(log.is_text for log in logs)
    function = LogDir.functions.get(options.table)
    rows_of = function.rows_of if function else RowsOf.PARTITION if options.table == LISTING else RowsOf.LOG
    if rows_of is RowsOf.ALL or (options.table == "findings" and texts):
        return [logs]

    def group_key(log: ReplicaLog) -> tuple[object, ...]:
        return (log.where.topic, log.where.partition) if rows_of is RowsOf.PARTITION else (log.name,)

    by_key: dict[tuple[object, ...], list[ReplicaLog]] = {}
    for log in logs:
        by_key.setdefault(group_key(log), []).append(log)
    return list(by_key.values()) or ([[]] if options.table == "checkpoints" else [])


def _weight(log: ReplicaLog, options: LogOptions) -> int:
    if options.table in OF_SMALL_FILES:
        return TO_OPEN
    if options.table in OF_THE_END and options.arguments.min_held_ms is None and isinstance(log, FolderLog):
        return TO_OPEN + log.newest_size
    return TO_OPEN + log.size


def _layout(contents: Contents, logs: Sequence[ReplicaLog], options: LogOptions, *, is_first: bool) -> LogDirLayout:
    """The input of a task; the first one also reads the checkpoint lines without a partition."""
    replicas = {log.replica: None for log in logs if isinstance(log, FolderLog)}
    texts = {log_path(log.name): None for log in logs if log.is_text}
    has_roots = options.table == "checkpoints" and (is_first or not options.arguments.is_everything)
    return LogDirLayout(
        roots=contents.layout.roots if has_roots else (), replicas=list(replicas), texts=list(texts), left_out=()
    )


def _bundled(items: Sequence[Item], weight: Callable[[Item], int], max_weight: int) -> Iterator[list[Item]]:
    """Consecutive items grouped up to `max_weight`; a heavier item is alone."""
    bundle: list[Item] = []
    total = 0
    for item in items:
        item_weight = weight(item)
        if bundle and total + item_weight > max_weight:
            yield bundle
            bundle, total = [], 0
        bundle.append(item)
        total += item_weight
    if bundle:
        yield bundle


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
