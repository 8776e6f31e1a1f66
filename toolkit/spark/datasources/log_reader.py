"""What identifies a log from run to run: cluster, broker, topic id and partition, wherever its files are.

A moved or dated copy of a log directory has the same logs, and a topic that was created again has new ones. Ids that
are missing: without ``meta.properties``, the folder of the log takes their place, because nothing else distinguishes
replicas; without a topic id, the topic is assumed to be the same as long as its first batch is.
"""

from __future__ import annotations

import builtins  # `bytes` is a column
import hashlib
import json
import pickle
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Annotated, Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from toolkit.errors import UsageError
from toolkit.formats.batches import HEADER_SIZE
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.log_dir_files import CHECKPOINT_NAMES, MANIFEST, LogPath, log_path
from toolkit.formats.scan import bytes_at
from toolkit.schema import TABLES
from toolkit.schema.table import Int32, Int64, TableRow, TopicPartition, Unit, declares
from toolkit.sources.logdir.contents import NO_ASSERTIONS, Contents, FileAssertions, FileScope, Share, found_in
from toolkit.sources.logdir.log_dir import LogDir
from toolkit.sources.logdir.log_dir_layout import CLEAN_SHUTDOWN, LogDirLayout, LogDirRoot
from toolkit.sources.logdir.observe_files import clear_partitions
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog
from toolkit.sources.logdir.replica_state import ReplicaState
from toolkit.sources.source import FILES, RowsOf, TableArguments, requested_partitions, tables_of
from toolkit.spark.arrow_types import freeze_modules, record_batches, selected, struct_type, without_damage
from toolkit.spark.datasources.reader_options import (
    ARGUMENTS,
    MODES,
    Argument,
    Options,
    arguments_of,
    choice,
    flag,
    local_path,
    names,
    refuse_unknown,
    table_arguments,
    whole_number,
)
from toolkit.spark.spark_errors import each_without_traceback, without_traceback

LEADER = "leader"
"""In place of a broker, where a log is that of the partition, whichever broker has it."""
LEADER_EPOCHS, METADATA = "leader-epoch-checkpoint", "partition.metadata"
COMPACTED = {STATE_TOPIC, OFFSETS_TOPIC}


class Origin(NamedTuple):
    """Cluster and topic id of a log, null if unknown: the partitions of one topic are only those with the same."""

    cluster_id: str | None
    topic_id: str | None


class LogIdentity(NamedTuple):
    """The parts of the name of a log, null if unknown."""

    cluster_id: str | None
    broker: str | None
    topic_id: str | None
    place: str  # topic and partition as in a folder's name; the whole path if cluster or broker is unknown

    @classmethod
    def of(cls, name: str) -> LogIdentity:
        """The parts of a name; of a name of another form only the place."""
        parts = name.split("/", 3)
        if len(parts) < 4 or ":" in parts[0]:
            return cls(None, None, None, name)
        return cls(parts[0] or None, parts[1] or None, parts[2] or None, parts[3])

    def __str__(self) -> str:
        return "/".join(each or "" for each in self)

    @property
    def origin(self) -> Origin:
        """Cluster and topic id."""
        return Origin(self.cluster_id, self.topic_id)

    @property
    def broker_id(self) -> int | None:
        """Number of the broker; null if it is unknown, or any."""
        return int(self.broker) if self.broker is not None and self.broker != LEADER else None

    @property
    def is_by_path(self) -> bool:
        """Whether it depends on where the files are."""
        return self.cluster_id is None or self.broker is None


SOURCE = "kafka_log_dir"
FOR_ALL = ("path", "paths", "table", "mode", "maxPartitionBytes")
ASSERTIONS: Mapping[str, Argument] = {
    "consistent_copy": Argument("consistentCopy", flag),
    "as_of": Argument("asOf", lambda options, name: (text := options.get(name)) and text.strip()),
    "txn_state_partitions": Argument("txnStatePartitions", partial(whole_number, lowest=1)),
}
"""The options that set `FileAssertions`."""
OF_LOG_DIR: Mapping[str, Sequence[str]] = {
    "findings": [each.option for each in ASSERTIONS.values()],
    "transactions": ("txnStatePartitions",),
    "transaction_owners": ("txnStatePartitions",),
    "coordinators": ("txnStatePartitions",),
}
"""The tables that depend on them."""


TABLE_NAMES = ("batches", *sorted({*tables_of(FILES)} - {"batches"}))
TAKES: Mapping[str, Sequence[str]] = {
    table: (
        *(ARGUMENTS[each].option for each in arguments_of(LogDir.functions[table].takes)),
        *OF_LOG_DIR.get(table, ()),
    )
    for table in TABLE_NAMES
}
"""The options of each table, besides `FOR_ALL`."""


@declares("listing", key=("log",), sort=())
@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing(TableRow):
    """A log in files, with digests that change when it changes.

    A log, as listed; of a live cluster, a partition.
    """

    log: Annotated[str, "Name of the log."]
    folder: Annotated[str | None, "Folder or text."] = None
    replica: Annotated[builtins.bytes | None, "Its `Replica`, pickled; null for a text, and of a live cluster."] = None
    topic: Annotated[str | None, "Topic."] = None
    partition: Annotated[Int32 | None, "Partition."] = None
    broker_id: Annotated[Int32 | None, "Broker of the log; of a live partition, its leader."] = None
    begin: Annotated[Int64 | None, "Base offset of its first segment."] = None
    has_snapshot: Annotated[bool, "Whether its folder has a producer snapshot of that offset."] = False
    cleaned: Annotated[Int64, "Offset up to which it was cleaned; -1 for never or unknown."] = -1
    bytes: Annotated[Int64 | None, "Size.", Unit("bytes")] = None
    listing: Annotated[str | None, "Digest of names, sizes and times of its segments, and of the two above."] = None
    segment_sizes: Annotated[str | None, "JSON: base offset, size and modification time (ns) of each."] = None
    checkpoints: Annotated[str | None, "The same for its other files and those of its log directory."] = None
    topic_id: Annotated[str | None, "Id of the topic."] = None
    first_batch: Annotated[str | None, "Of a log without a topic id: base offset and checksum."] = None
    leader_epochs: Annotated[str | None, "JSON: the start offset of each; null of a live partition."] = None
    is_best: Annotated[bool, "Of __transaction_state: whether it is the best replica of its partition."] = False
    high_watermark: Annotated[Int64 | None, "Of a live partition; null if it cannot be read."] = None
    error: Annotated[
        str | None, "Why a live partition cannot be read; of the best replica of __transaction_state, what it may lack."
    ] = None

    @property
    def is_live(self) -> bool:
        """Whether it is a partition of a live cluster."""
        return self.folder is None

    @property
    def is_readable(self) -> bool:
        """Whether it could be listed; what is stored of another one stays as it is."""
        return self.begin is not None and (not self.is_live or self.high_watermark is not None)


UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
USUAL_BYTES = 128 << 20  # as spark.sql.files.maxPartitionBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of `KafkaLog`."""

    paths: Sequence[str]  # to read
    table: str
    mode: str = MODES[0]  # what to do with rows with `error`, one of `MODES`
    max_partition_bytes: int = USUAL_BYTES  # approximate maximum of log bytes per task
    arguments: TableArguments  # of the table
    assertions: FileAssertions = NO_ASSERTIONS


def read_options(options: Options) -> LogOptions:
    """Parse and check the options. Raises UsageError for one that the table does not have, or an invalid value."""
    table = choice(options, "table", TABLE_NAMES, default="batches")
    refuse_unknown(options, (*FOR_ALL, *TAKES[table]), source=f"The table {table} of {SOURCE}")
    function = LogDir.functions[table]
    arguments = TableArguments.of(**table_arguments(options, function.takes))
    if arguments.partitions is not None:
        requested_partitions(function.topics or arguments.topics, arguments.partitions)
    return LogOptions(
        paths=_paths(options),
        table=table,
        mode=choice(options, "mode", MODES, default=MODES[0]),
        max_partition_bytes=_bytes(options, "maxPartitionBytes", default=USUAL_BYTES),
        arguments=arguments,
        assertions=FileAssertions.of(**{name: each.parse(options, each.option) for name, each in ASSERTIONS.items()}),
    )


def _paths(options: Options) -> list[str]:
    """The paths; Spark passes several paths of ``load`` as JSON."""
    found = [options["path"]] if options.get("path") else []
    if text := options.get("paths", "").strip():
        found += names("paths", text)
    if not found:
        raise UsageError(
            f"No path is set for {SOURCE}.",
            do='Use load("/kafka/logs"), or set path, or paths (separated by commas, or a JSON list).',
        )
    return [local_path(path) for path in found]


def _bytes(options: Options, name: str, *, default: int) -> int:
    """Bytes, as Spark writes sizes: ``134217728``, ``128m``, ``1GB``."""
    values = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", options.get(name, str(default)).strip().lower())
    size = int(values[1]) * UNITS[values[2]] if values else 0
    if size < 1:
        raise UsageError(
            f"The option {name} is not a size: {options[name]!r}.", do="Use a number of bytes, or for example 128m."
        )
    return size


OF_THE_END = {"partitions", "producers", "findings"}  # they read little more than the newest segment of a log
OF_SMALL_FILES = {"aborted", "checkpoints", "snapshots", "segments"}
TO_OPEN = 1 << 16  # bytes that can be read in the time of opening a file
WORTH_IT = 4  # a task of findings reads __transaction_state, and at least so many times as much of other logs

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class WholeLogs(InputPartition):
    """Complete logs."""

    layout: LogDirLayout  # the folders and texts to read
    topic_partitions: Collection[tuple[str | None, int | None]]  # topics and partitions of the requested logs
    # for the one task of findings that answers for partitions that are in no log: those of the other tasks
    elsewhere: Collection[TopicPartition] | None = None
    scope: FileScope | None = None  # brokers and log directories of all tasks, for findings


def plan(options: LogOptions, contents: Contents | None = None) -> list[InputPartition]:
    """The input of each task. Raises NotFound, UsageError as for `LogDir`.

    `contents`: the logs, if they were listed already.
    """
    contents = contents or found_in(options.paths, assertions=options.assertions)
    return list(_of_logs(contents, _selected_logs(contents, options), options))


def _selected_logs(contents: Contents, options: LogOptions) -> Sequence[ReplicaLog]:
    arguments, function = options.arguments, LogDir.functions[options.table]
    if function.topics:
        return [log for topic in function.topics for log in contents.of_topic(topic, arguments.partition_numbers)]
    if options.table == "checkpoints" and arguments.is_everything:
        return contents.logs
    select = contents.named_logs if function.needs_topic else contents.replica_logs
    return select(arguments.topics, arguments.partitions)


def _of_logs(contents: Contents, logs: Sequence[ReplicaLog], options: LogOptions) -> Iterator[WholeLogs]:
    def weight(group: Iterable[ReplicaLog]) -> int:
        return sum(_weight(log, options) for log in group)

    scope, clear = None, frozenset[TopicPartition]()
    if options.table == "findings":
        scope, clear = contents.scope(logs), frozenset(clear_partitions(contents, logs))
        logs = [log for log in logs if log.where.tp not in clear]
    besides = [log for topic in LogDir.functions[options.table].also_reads for log in contents.of_topic(topic)]
    max_weight = max(options.max_partition_bytes, WORTH_IT * sum(log.size for log in besides))
    groups = _groups(logs, options)
    count = -(-sum(map(weight, groups)) // max_weight)
    bundled_logs = [[*chain.from_iterable(bundle)] for bundle in bundled(groups, weight, count)]
    for number, group in enumerate(bundled_logs):
        others = None
        if options.table == "findings" and number == 0:
            others = clear.union(log.where.tp for each in bundled_logs[1:] for log in each)
        yield WholeLogs(
            layout=_layout(contents, [*group, *besides], options, is_first=number == 0),
            topic_partitions=frozenset((log.where.topic, log.where.partition) for log in group),
            elsewhere=others,
            scope=scope,
        )


def _groups(logs: Sequence[ReplicaLog], options: LogOptions) -> list[Sequence[ReplicaLog]]:
    """Groups of logs, each to be read by one task."""
    # A marker of any partition may refute the time of the copy for all of them.
    together = options.assertions.as_of is not None or any(log.is_text for log in logs)
    rows_of = LogDir.functions[options.table].rows_of
    if rows_of is RowsOf.ALL or (options.table == "findings" and together):
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


def bundled(items: Collection[Item], weight: Callable[[Item], int], count: int) -> list[list[Item]]:
    """The items of each of at most `count` tasks of about the same weight, the largest item first."""
    bundles: list[list[Item]] = [[] for _ in range(max(1, min(count, len(items))))]
    weights = [0] * len(bundles)
    for item in sorted(items, key=weight, reverse=True):
        lightest = weights.index(min(weights))
        bundles[lightest].append(item)
        weights[lightest] += weight(item)
    return [bundle for bundle in bundles if bundle]


ROWS_AT_ONCE = 1 << 13  # per table; rows as Python dicts are large


class LogReader(DataSourceReader):
    """Plans the tasks on the driver, and reads in them. `schema`: the schema of the table, or some of its columns."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self.options = options
        self.columns = selected(schema, options.table, struct_type(TABLES[options.table]))

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        return plan(self.options)

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For an empty plan, Spark adds a partition of another type.
        if isinstance(partition, WholeLogs):
            found = without_damage(read_task(partition, self.options), self.options.mode)
            yield from record_batches(found, self.columns)
        freeze_modules()


def read_task(work: WholeLogs, options: LogOptions) -> Iterator[pa.Table]:
    """The rows of one task."""
    share = Share(
        paths=options.paths, topic_partitions=work.topic_partitions, elsewhere=work.elsewhere, scope=work.scope
    )
    contents = Contents(work.layout, assertions=options.assertions, share=share)
    return _in_tables(LogDir.of(contents, *options.paths).read(options.table, options.arguments), options.table)


def _in_tables(found: Iterable[Any], name: str) -> Iterator[pa.Table]:
    """Rows as Arrow tables; Arrow tables as they are."""
    found = iter(found)
    while some := list(islice(found, 1)):
        if isinstance(some[0], pa.Table):
            yield from chain(some, found)
            return
        yield TABLES[name].arrow([*some, *islice(found, ROWS_AT_ONCE - 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedLog:
    """A log, with what the files next to its segments say; nothing of a log that cannot be read."""

    log: ReplicaLog
    contents: Contents
    leader_epochs: Mapping[int, int]  # the start offset of each
    topic_id: str | None

    @staticmethod
    def of(log: ReplicaLog, contents: Contents) -> _NamedLog:
        epochs: dict[int, int] = {}
        topic_id = None
        for entry in () if log.error else log.checkpoint_rows():
            if entry.error:
                continue
            if entry.name == LEADER_EPOCHS and entry.leader_epoch is not None and entry.offset is not None:
                epochs[entry.leader_epoch] = entry.offset
            elif entry.name == METADATA and entry.key == "topic_id":
                topic_id = entry.value
        return _NamedLog(log=log, contents=contents, leader_epochs=epochs, topic_id=topic_id)

    @property
    def identity(self) -> LogIdentity:
        """What identifies the log."""
        log = self.log
        if log.is_text or not isinstance(log, FolderLog):
            return LogIdentity(None, None, None, f"{log.name}#{log.where}")
        root, where = log.replica.root, log.where
        broker = None if where.broker_id is None else str(where.broker_id)
        is_whole = where.topic is not None and log.replica.only is None and not log.is_remote
        if root.cluster_id and broker and is_whole:
            return LogIdentity(root.cluster_id, broker, self.topic_id, str(where))
        manifest = self.contents.copies.manifest(root)
        folder = f"{manifest.source}/{log.replica.path.name}" if manifest and is_whole else log.name
        return LogIdentity(None, broker, self.topic_id, folder)

    @property
    def reach(self) -> tuple[int, int, int]:
        """How far it reaches, to choose from several copies."""
        newest_size = self.log.newest_size if isinstance(self.log, FolderLog) else 0
        return max(self.leader_epochs, default=-1), max(self.log.base_offsets, default=-1), newest_size

    @property
    def first_batch(self) -> str | None:
        """Base offset and checksum of the first batch of a log without a topic id; null where these may change."""
        log = self.log
        if not isinstance(log, FolderLog) or log.error or self.topic_id or not log.segments:
            return None
        is_cleaned = self.contents.cleaned(log) >= 0 or not self.contents.checkpoints(log.root).has_cleaned
        if is_cleaned or log.where.topic in COMPACTED:
            return None
        try:
            header = bytes_at(str(log.segments[0].path), 0, HEADER_SIZE)
        except OSError:
            return None
        if len(header) < HEADER_SIZE or not any(header):
            return None
        return f"{int.from_bytes(header[:8], 'big')}:{int.from_bytes(header[17:21], 'big')}"

    def listing(self, *, best: ReplicaState | None, checkpoints: str) -> LogListing:
        """Its listing. `best`: its state, if its records count. `checkpoints`: digest of its log directory's files."""
        log, cleaned = self.log, self.contents.cleaned(self.log)
        segments: list[tuple[str, int, int]] = list(_stamps([log_path(log.name)])) if log.is_text else []
        others: list[tuple[str, int, int]] = []
        sizes: list[tuple[int, int, int]] = []
        if isinstance(log, FolderLog):
            base_offsets = {segment.path.name: segment.offset for segment in log.segments}
            for name, stamp in sorted(log.stamps.items()):
                (segments if name in base_offsets else others).append((name, stamp.size, stamp.modified_ns))
            sizes = sorted((base_offsets[name], size, modified) for name, size, modified in segments)
        begin = log.base_offsets[0] if log.base_offsets else None
        snapshot = [each for each in others if begin is not None and each[0] == f"{begin:020}.snapshot"]
        digested = [segments, self.topic_id, log.error, *snapshot, *([cleaned] if cleaned >= 0 else [])]
        lost = None if best is None else best.lost
        return LogListing(
            log=str(self.identity),
            folder=log.name,
            replica=pickle.dumps(log.replica) if isinstance(log, FolderLog) else None,
            **log.where.columns,
            begin=begin,
            has_snapshot=bool(snapshot),
            cleaned=cleaned,
            bytes=log.size,
            listing=_digest([*digested, *([lost] if lost else [])]),
            segment_sizes=json.dumps(sizes),
            checkpoints=_digest([checkpoints, others]),
            topic_id=self.topic_id,
            first_batch=self.first_batch,
            leader_epochs=json.dumps(self.leader_epochs),
            is_best=best is not None,
            error=lost,
        )


def listings(contents: Contents, logs: Sequence[ReplicaLog]) -> list[LogListing]:
    """The listings of logs: of several copies of one log, that of the one that reaches furthest.

    Raises UsageError if two logs may be of two brokers, but nothing in their files says so.
    `logs`: all replicas of a partition, or none.
    """
    by_name: dict[LogIdentity, _NamedLog] = {}
    for named in (_NamedLog.of(log, contents) for log in logs):
        identity = named.identity
        other = by_name.setdefault(identity, named)
        if other is not named and identity.is_by_path:
            raise UsageError(
                f"{other.log.name} and {named.log.name} may be of two brokers, or of one at two times.",
                means="Both log directories are copies of the same path, and neither has a meta.properties.",
                do="Copy meta.properties, too, or read one of them at a time.",
            )
        by_name[identity] = max(other, named, key=lambda each: each.reach)
    best = {_NamedLog.of(each.log, contents).identity: each for each in contents.best(STATE_TOPIC).values()}
    roots: dict[LogDirRoot | None, str] = {None: ""}
    found = []
    for identity, named in by_name.items():
        root = named.log.root
        if root is not None and root not in roots:
            names = (*CHECKPOINT_NAMES, CLEAN_SHUTDOWN, MANIFEST)
            roots[root] = _digest(_stamps(root.path / name for name in names))
        found.append(named.listing(best=best.get(identity), checkpoints=roots[root]))
    return found


def _stamps(paths: Iterable[LogPath]) -> Iterator[tuple[str, int, int]]:
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        yield path.name, stat.st_size, stat.st_mtime_ns


def _digest(values: Iterable[object]) -> str:
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:16]
