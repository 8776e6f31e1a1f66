"""Options and schemas of ``kafka_log_dir``, by the registry of tables; all checked before anything is read."""

from __future__ import annotations

import ast
import builtins  # `bytes` is a column
import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pyspark.sql.types import StringType, StructField, StructType

from toolkit.errors import UsageError
from toolkit.formats.log_dir_files import parse_folder_name
from toolkit.schema import TABLES
from toolkit.schema.table import Int32, Int64, TableRow, TopicPartition, Unit, declares
from toolkit.sources.logdir import LogDir
from toolkit.sources.logdir.contents import NO_ASSERTIONS, FileAssertions
from toolkit.sources.offset_queries import OffsetSpec, check_offset_spec
from toolkit.sources.source import FILES, TableArguments, requested_partitions, tables_of
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources.reader_options import (
    MODES,
    WORDS,
    Options,
    choice,
    flag,
    local_path,
    milliseconds,
    refuse_unknown,
    whole_number,
)

SOURCE = "kafka_log_dir"
LISTING = "listing"
PROOF = "proof"
INTERNAL = {LISTING, PROOF}
"""Tables that only the pipeline reads."""
FOR_ALL = ("path", "paths", "table", "mode", "maxPartitionBytes")
OPTION_NAMES: Mapping[str, str] = {
    "topics": "subscribe",
    "partitions": "partitions",
    "start": "startingOffsets",
    "stop": "endingOffsets",
    "producer_id": "producerId",
    "producer_ids": "producerId",
    "transactional_ids": "transactionalIds",
    "groups": "groups",
    "crc": "crc",
    "max_transaction_timeout_ms": "maxTransactionTimeout",
    "min_held_ms": "minHeld",
}
"""The option that sets each of `TableArguments`."""
OF_LOG_DIR: Mapping[str, Sequence[str]] = {
    "findings": ("consistentCopy", "asOf", "txnStatePartitions"),
    "transactions": ("txnStatePartitions",),
    "transaction_owners": ("txnStatePartitions",),
    "coordinators": ("txnStatePartitions",),
}
"""The tables that depend on arguments of `LogDir`."""


def _options_of(table: str) -> Sequence[str]:
    if table == PROOF:
        return OF_LOG_DIR["findings"]
    if table in INTERNAL:
        return "subscribe", "partitions"
    takes = LogDir.functions[table].takes
    named = (option for argument, option in OPTION_NAMES.items() if argument in takes)
    return *named, *OF_LOG_DIR.get(table, ())


TABLE_NAMES = ("batches", *sorted({*tables_of(FILES), *INTERNAL} - {"batches"}))
TAKES: Mapping[str, Sequence[str]] = {table: _options_of(table) for table in TABLE_NAMES}
"""The options of each table, besides `FOR_ALL`."""


@declares("listing", row="a log in files, with digests that change when it changes", key=("log",))
@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing(TableRow):
    """A log, as listed; of a live cluster, a partition."""

    log: Annotated[str, "Name of the log."]
    folder: Annotated[str | None, "Folder or text."] = None
    replica: Annotated[builtins.bytes | None, "Its `Replica`, pickled; null for a text, and of a live cluster."] = None
    topic: Annotated[str | None, "Topic."] = None
    partition: Annotated[Int32 | None, "Partition."] = None
    broker_id: Annotated[Int32 | None, "Broker of the log; of a live partition, its leader."] = None
    begin: Annotated[Int64 | None, "Base offset of its first segment."] = None
    has_snapshot: Annotated[bool, "Whether its folder has a producer snapshot of that offset."] = False
    cleaned: Annotated[Int64, "Offset up to which it was cleaned; -1 for never or unknown."] = -1
    segments: Annotated[Int32 | None, "Number of segments."] = None
    bytes: Annotated[Int64 | None, "Size.", Unit("bytes")] = None
    listing: Annotated[str | None, "Digest of names, sizes and times of its segments, and of the two above."] = None
    segment_sizes: Annotated[str | None, "JSON: base offset, size and modification time (ns) of each."] = None
    checkpoints: Annotated[str | None, "The same for its other files and those of its log directory."] = None
    topic_id: Annotated[str | None, "Id of the topic."] = None
    first_batch: Annotated[str | None, "Of a log without a topic id: base offset and checksum."] = None
    leader_epochs: Annotated[str | None, "JSON: the start offset of each; null of a live partition."] = None
    is_best: Annotated[bool, "Of __transaction_state: whether it is the best replica of its partition."] = False
    high_watermark: Annotated[Int64 | None, "Of a live partition; null if it cannot be read."] = None

    @property
    def is_live(self) -> bool:
        """Whether it is a partition of a live cluster."""
        return self.folder is None

    @property
    def is_readable(self) -> bool:
        """Whether it could be listed; what is stored of another one stays as it is."""
        return self.begin is not None and (not self.is_live or self.high_watermark is not None)


LISTING_TYPE = StructType([StructField(each.name, each.dataType) for each in struct_type(LogListing.table)])
"""Spark's schema of the table ``listing``."""

PROOF_TYPE = StructType([StructField("line", StringType())])
"""Spark's schema of the table ``proof``: one row, what the files prove and what they do not."""

KNOWN = sorted({*FOR_ALL, *(name for names in TAKES.values() for name in names)})
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
USUAL_BYTES = "128m"  # as spark.sql.files.maxPartitionBytes
INTERNAL_BYTES = "512m"  # reading so much takes as long as starting a task


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of `KafkaLog`."""

    paths: Sequence[str]  # to read
    table: str
    mode: str  # what to do with rows with `error`, one of `reader_options.MODES`
    max_partition_bytes: int  # approximate maximum of log bytes per task
    arguments: TableArguments  # of the table
    assertions: FileAssertions = NO_ASSERTIONS


def read_options(options: Options) -> LogOptions:
    """Parse and check the options.

    Raises
    ------
    UsageError
        For an unknown option, one that the table does not have, or an invalid value.
    """
    refuse_unknown(options, KNOWN, source=SOURCE)
    table = choice(options, "table", TABLE_NAMES, default="batches")
    known = {name.lower() for name in (*FOR_ALL, *TAKES[table])}
    for name in options:
        if name.lower() not in known:
            takes = ", ".join(sorted(TAKES[table]))
            raise UsageError(f"The table {table} has no option {name}.", do=f"It has {takes}.")
    topics, partitions = _list(options, "subscribe"), _partitions(options)
    if partitions is not None:
        function = LogDir.functions.get(table)
        requested_partitions(function.topics if function and function.topics else topics, partitions)
    producer_id = whole_number(options, "producerId")
    return LogOptions(
        paths=_paths(options),
        table=table,
        mode=_mode(options, table),
        max_partition_bytes=_bytes(
            options, "maxPartitionBytes", default=INTERNAL_BYTES if table in INTERNAL else USUAL_BYTES
        ),
        arguments=TableArguments.of(
            topics=topics,
            partitions=partitions,
            start=_bound(options, "startingOffsets"),
            stop=_bound(options, "endingOffsets"),
            transactional_ids=_list(options, "transactionalIds"),
            groups=_list(options, "groups"),
            crc=flag(options, "crc"),
            max_transaction_timeout_ms=milliseconds(options, "maxTransactionTimeout", None),
            min_held_ms=milliseconds(options, "minHeld", None),
            **_of_producer(table, producer_id),
        ),
        assertions=FileAssertions(
            consistent_copy=flag(options, "consistentCopy"),
            as_of=_time(options, "asOf"),
            txn_state_partitions=whole_number(options, "txnStatePartitions", lowest=1),
        ),
    )


def _of_producer(table: str, producer_id: int | None) -> dict[str, Any]:
    """The argument for one producer: some tables take several."""
    if producer_id is None:
        return {}
    takes_several = "producer_ids" in LogDir.functions[table].takes
    return {"producer_ids": [producer_id]} if takes_several else {"producer_id": producer_id}


def _mode(options: Options, table: str) -> str:
    mode = choice(options, "mode", MODES, default=MODES[0])
    if mode != MODES[0] and (table in INTERNAL or "error" not in TABLES[table].names):
        raise UsageError(
            f"The mode {mode} does not apply to the table {table}, which has no column error.",
            do="Remove mode; the table batches has error rows for unreadable ranges.",
        )
    return mode


def _paths(options: Options) -> list[str]:
    """The paths; Spark passes several paths of ``load`` as JSON."""
    found = [options["path"]] if options.get("path") else []
    if text := options.get("paths", "").strip():
        found += _names("paths", text)
    if not found:
        raise UsageError(
            f"No path is set for {SOURCE}.",
            do='Use load("/kafka/logs"), or set path, or paths (separated by commas, or a JSON list).',
        )
    return [local_path(path) for path in found]


def _list(options: Options, name: str) -> list[str] | None:
    text = options.get(name)
    return None if text is None else _names(name, text)


def _names(name: str, text: str) -> list[str]:
    """Names separated by commas, or in a list as JSON or Python writes it."""
    text = text.strip()
    found: Any = text.split(",")
    if text.startswith("["):
        found = next((read for parse in (json.loads, ast.literal_eval) if (read := _parsed(parse, text))), None)
    names = [str(each).strip() for each in found or ()]
    if not all(names) or not names:
        raise UsageError(f"The option {name} is not a list: {text!r}.", do="Separate names by commas, or use JSON.")
    return names


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except (ValueError, SyntaxError):
        return None


def _partitions(options: Options) -> Sequence[int] | Sequence[TopicPartition] | None:
    """Partition numbers, or topics and numbers as in folder names: ``orders-0``."""
    values = _list(options, "partitions")
    if values is None:
        return None
    if all(each.isdecimal() for each in values):
        return [int(each) for each in values]
    found = [TopicPartition(name.topic, name.partition) for each in values if (name := parse_folder_name(each))]
    if len(found) < len(values):
        raise UsageError(
            f"The option partitions is invalid: {', '.join(values)}.", do="Use 0, 1 or orders-0, orders-1."
        )
    return found


def _bound(options: Options, name: str) -> OffsetSpec | None:
    text = options.get(name)
    if text is None:
        return None
    text = text.strip()
    bound: OffsetSpec
    try:
        bound = int(text) if re.fullmatch(r"-?\d+", text) else dt.datetime.fromisoformat(text)
    except ValueError:
        bound = WORDS.get(text.lower(), text.lower())
    check_offset_spec(bound)
    return bound


def _time(options: Options, name: str) -> dt.datetime | None:
    """A time with its zone."""
    text = options.get(name)
    if text is None:
        return None
    try:
        time = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise UsageError(f"The option {name} is not a time with its zone: {text!r}.", do="Write 2026-11-21T12:00:00Z.")
    return time


def _bytes(options: Options, name: str, *, default: str) -> int:
    """Bytes, as Spark writes sizes: ``134217728``, ``128m``, ``1GB``."""
    values = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", options.get(name, default).strip().lower())
    size = int(values[1]) * UNITS[values[2]] if values else 0
    if size < 1:
        raise UsageError(
            f"The option {name} is not a size: {options[name]!r}.", do="Use a number of bytes, or for example 128m."
        )
    return size


def schema_of(table: str) -> StructType:
    """Spark's schema of a table, declared or internal."""
    return {LISTING: LISTING_TYPE, PROOF: PROOF_TYPE}.get(table) or struct_type(TABLES[table])
