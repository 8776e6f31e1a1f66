"""The plan of a read of log directories: tasks by segment, by log, or one task for everything."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql.datasource import InputPartition

from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.log_dir_layout import LogDirLayout
from toolkit.sources.logdir.partition_folder import FolderLog
from toolkit.sources.logdir.replica_log import ReplicaLog
from toolkit.sources.logdir.segment_splits import SegmentSplit, splits
from toolkit.sources.logdir.subset import found_in
from toolkit.spark.datasources.log.log_listing import name_of
from toolkit.spark.datasources.log.log_options import LISTING, PARTIAL_TRANSACTIONS, LogOptions
from toolkit.spark.datasources.log.task_input import SegmentRanges, SegmentRun, WholeLogs

BY_SEGMENT = {"batches", PARTIAL_TRANSACTIONS}
AS_ONE = {
    "transaction_history",
    "transactions",
    "coordinators",
    "statistics",
}  # each row depends on all logs
OF_NAMED = {"partitions", "producers", "findings"}
OF_THE_END = {"partitions", "producers", "findings"}  # they read little more than the newest segment of a log
OF_SMALL_FILES = {"aborted", "checkpoints", "snapshots", "segments", LISTING}
OF_TOPICS = {
    "transaction_log": (STATE_TOPIC,),
    "transaction_history": (STATE_TOPIC,),
    "transactions": (STATE_TOPIC,),
    "offsets_log": (OFFSETS_TOPIC,),
    "coordinators": (STATE_TOPIC, OFFSETS_TOPIC),
}
TO_OPEN = 1 << 16  # bytes that can be read in the time of opening a file
AT_ONCE = 8  # segments split in parallel: on a mounted volume, reading an index has latency
WORTH_IT = 4  # a task of findings reads __transaction_state, and at least so many times as much of other logs

Item = TypeVar("Item")


def plan(options: LogOptions) -> list[InputPartition]:
    """The input of each task.

    Raises
    ------
    NotFound, UsageError
        As for `LogDir`.
    """
    contents = found_in(options.paths)
    logs = _selected_logs(contents, options)
    if options.starts is not None:
        logs = [log for log in logs if name_of(log) in options.starts]
    if options.table not in BY_SEGMENT or _is_by_state(options.start) or _is_by_state(options.stop):
        return list(_of_logs(contents, logs, options))
    in_folders = [log for log in logs if isinstance(log, FolderLog) and not log.error]
    cut = _cut(in_folders, options)
    # The table partial_transactions needs logs without splits, too: a snapshot may have open transactions.
    complete = [log for log in logs if log not in cut or (options.table == PARTIAL_TRANSACTIONS and not cut[log])]
    return [*_of_segments(cut, options), *_of_logs(contents, complete, options)]


def _selected_logs(contents: Contents, options: LogOptions) -> Sequence[ReplicaLog]:
    if options.table in OF_TOPICS:
        numbers: Any = options.partitions
        return [log for topic in OF_TOPICS[options.table] for log in contents.of_topic(topic, numbers)]
    if options.table == "checkpoints" and options.is_everything:
        return contents.logs
    select = contents.named_logs if options.table in OF_NAMED else contents.replica_logs
    return select(options.topics, options.partitions)


def _is_by_state(bound: object) -> bool:
    """Whether the log must be read to resolve the offset."""
    return isinstance(bound, str | dt.datetime)


def _cut(logs: Sequence[FolderLog], options: LogOptions) -> dict[ReplicaLog, list[SegmentSplit]]:
    stop: Any = options.stop

    def cut(log: FolderLog) -> list[SegmentSplit]:
        return splits(log.listing, start=_start(log, options), stop=stop, max_bytes=options.max_partition_bytes)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(logs, pool.map(cut, logs), strict=True))


def _start(log: ReplicaLog, options: LogOptions) -> int | None:
    start: Any = options.start if options.starts is None else options.starts[name_of(log)]
    return start  # type: ignore[no-any-return]


def _of_segments(cut: dict[ReplicaLog, list[SegmentSplit]], options: LogOptions) -> Iterator[SegmentRanges]:
    pairs = [(log, split) for log, splits in cut.items() for split in splits]
    for bundle in _bundled(pairs, lambda pair: pair[1].size + TO_OPEN, options.max_partition_bytes):
        runs = groupby(bundle, key=lambda pair: pair[0])
        yield SegmentRanges(
            [_run(log, [split for _, split in splits], cut[log], _start(log, options)) for log, splits in runs]
        )


def _run(
    log: ReplicaLog, splits: Sequence[SegmentSplit], of_log: Sequence[SegmentSplit], start: int | None
) -> SegmentRun:
    assert isinstance(log, FolderLog)
    return SegmentRun(
        where=log.where,
        log=name_of(log),
        replica=log.replica,
        start=start,
        splits=splits,
        range_order=of_log.index(splits[0]),
        is_last=splits[-1] == of_log[-1],
        log_end_offset=log.base_offsets[-1],
    )


def _of_logs(contents: Contents, logs: Sequence[ReplicaLog], options: LogOptions) -> Iterator[WholeLogs]:
    """Bundles of logs, the largest first, so that the last task is short."""
    scope = contents.scope(logs) if options.table == "findings" else None
    state_logs = contents.of_topic(STATE_TOPIC) if options.table == "findings" else []
    max_weight = max(options.max_partition_bytes, WORTH_IT * sum(log.size for log in state_logs))
    groups = _groups(logs, options)
    bundles = _bundled(groups, lambda group: sum(_weight(log, options) for log in group), max_weight)
    bundled_logs = [[log for group in bundle for log in group] for bundle in bundles]
    bundled_logs.sort(key=lambda group: sum(log.size for log in group), reverse=True)
    for number, group in enumerate(bundled_logs):
        yield WholeLogs(
            layout=_layout(contents, [*group, *state_logs], options, is_first=number == 0),
            topic_partitions=frozenset((log.where.topic, log.where.partition) for log in group),
            scope=scope,
        )


def _groups(logs: Sequence[ReplicaLog], options: LogOptions) -> list[Sequence[ReplicaLog]]:
    """Groups of logs, each to be read by one task."""
    texts = any(log.is_text for log in logs)
    if options.table in AS_ONE or (options.table == "findings" and texts):
        return [logs]

    def group_key(log: ReplicaLog) -> tuple[object, ...]:
        if options.table in {"findings", "checkpoints", LISTING}:  # replicas are compared
            return log.where.topic, log.where.partition
        return (log.name,)

    by_key: dict[tuple[object, ...], list[ReplicaLog]] = {}
    for log in logs:
        by_key.setdefault(group_key(log), []).append(log)
    return list(by_key.values()) or ([[]] if options.table == "checkpoints" else [])


def _weight(log: ReplicaLog, options: LogOptions) -> int:
    if options.table in OF_SMALL_FILES:
        return TO_OPEN
    if options.table in OF_THE_END and options.min_held_ms is None and isinstance(log, FolderLog):
        return TO_OPEN + log.newest_size
    return TO_OPEN + log.size


def _layout(contents: Contents, logs: Sequence[ReplicaLog], options: LogOptions, *, is_first: bool) -> LogDirLayout:
    """The input of a task; the first one also reads the checkpoint lines without a partition."""
    replicas = {log.replica: None for log in logs if isinstance(log, FolderLog)}
    texts = {Path(log.name): None for log in logs if log.is_text}
    has_roots = options.table == "checkpoints" and (is_first or not options.is_everything)
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
