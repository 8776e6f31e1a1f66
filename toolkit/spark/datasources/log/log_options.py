"""Options of ``kafka_log_dir``, all checked before anything is read."""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.errors import UsageError
from toolkit.formats.log_dir_files import parse_folder_name
from toolkit.schema import TABLES
from toolkit.schema.table import TopicPartition
from toolkit.sources.offset_queries.offset_spec import OffsetSpec, check_offset_spec
from toolkit.sources.partition_selection import (
    requested_partitions,
)
from toolkit.spark.datasources.corrupt_rows import MODES
from toolkit.spark.datasources.local_paths import local_path
from toolkit.spark.datasources.offset_options import WORDS
from toolkit.spark.datasources.reader_options import Options, choice, flag, milliseconds, refuse_unknown, whole_number

SOURCE = "kafka_log_dir"
PARTIAL_TRANSACTIONS = "partial_transactions"
LISTING = "listing"
INTERNAL = {PARTIAL_TRANSACTIONS, LISTING}
"""Tables that only the pipeline reads."""
FOR_ALL = ("path", "paths", "table", "mode", "maxPartitionBytes")
SELECTION = ("subscribe", "partitions")
RANGE = ("startingOffsets", "endingOffsets")
PARTITIONS = ("partitions",)
IDS = ("transactionalIds",)
GROUPS = ("groups",)
COUNT = ("txnStatePartitions",)
STARTS = "starts"  # set by the pipeline only: JSON with the start offset of each log

TAKES: Mapping[str, Sequence[str]] = {
    "batches": (*SELECTION, *RANGE, STARTS, "producerId", "crc"),
    "log_transactions": (*SELECTION, *RANGE, "producerId"),
    "lso_timeline": (*SELECTION, *RANGE, "producerId"),
    "aborted": (*SELECTION, *RANGE, "producerId"),
    "checkpoints": SELECTION,
    "transaction_log": (*PARTITIONS, *IDS, *RANGE, STARTS, "producerId"),
    "offsets_log": (*PARTITIONS, *GROUPS, *RANGE, "producerId"),
    "transaction_history": (*PARTITIONS, *IDS, *RANGE, "producerId"),
    "partitions": SELECTION,
    "producers": SELECTION,
    "transactions": (*IDS, "producerId", *COUNT),
    "coordinators": (*IDS, *GROUPS, *COUNT),
    "statistics": (*SELECTION, *RANGE),
    "violations": (*SELECTION, *RANGE, "producerId", "crc"),
    "findings": (*SELECTION, "consistentCopy", "maxTransactionTimeout", "minHeld", *COUNT),
    "snapshots": SELECTION,
    "segments": SELECTION,
    PARTIAL_TRANSACTIONS: (*SELECTION, STARTS),
    LISTING: SELECTION,
}
"""The options of each table, besides `FOR_ALL`."""

KNOWN = sorted({*FOR_ALL, *(name for names in TAKES.values() for name in names)})
OF_A_TOPIC = {"transaction_log", "offsets_log", "transaction_history"}  # partitions of one internal topic
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
USUAL_BYTES = "128m"  # as spark.sql.files.maxPartitionBytes
INTERNAL_BYTES = "512m"  # reading so much takes as long as starting a task


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of `toolkit.spark.datasources.log.log_source.KafkaLog`.

    Parameters
    ----------
    paths
        Paths to read.
    table
        Name of the table.
    mode
        What to do with rows with `error`, one of `corrupt_rows.MODES`.
    max_partition_bytes
        Approximate maximum of log bytes per task.
    topics, partitions, start, stop, producer_id, transactional_ids, groups, crc
        As for `LogDir`.
    consistent_copy, txn_state_partitions, max_transaction_timeout_ms, min_held_ms
        As for `LogDir`; null for the default.
    starts
        The logs to read (`log_listing.name_of`), and the start offset of each, null for its beginning; if null, all
        logs from their beginning.
    """

    paths: Sequence[str]
    table: str
    mode: str
    max_partition_bytes: int
    topics: Sequence[str] | None = None
    partitions: Sequence[int] | Sequence[TopicPartition] | None = None
    start: OffsetSpec | None = None
    stop: OffsetSpec | None = None
    producer_id: int | None = None
    transactional_ids: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    crc: bool = False
    consistent_copy: bool = False
    txn_state_partitions: int | None = None
    max_transaction_timeout_ms: int | None = None
    min_held_ms: int | None = None
    starts: Mapping[str, int | None] | None = None

    @property
    def is_everything(self) -> bool:
        """Whether all partitions are selected."""
        return self.topics is None and self.partitions is None

    @property
    def names(self) -> Sequence[str] | None:
        """The selected groups or transactional ids of a coordinator topic's records."""
        return self.groups if self.table == "offsets_log" else self.transactional_ids


def read_options(options: Options) -> LogOptions:
    """Parse and check the options.

    Raises
    ------
    UsageError
        For an unknown option, one that the table does not have, or an invalid value.
    """
    refuse_unknown(options, KNOWN, source=SOURCE)
    table = choice(options, "table", tuple(TAKES), default="batches")
    _refuse_others(options, table)
    topics, partitions = _list(options, "subscribe"), _partitions(options)
    if partitions is not None:
        requested_partitions([""] if table in OF_A_TOPIC else topics, partitions)
    return LogOptions(
        paths=_paths(options),
        table=table,
        mode=_mode(options, table),
        max_partition_bytes=_bytes(
            options, "maxPartitionBytes", default=INTERNAL_BYTES if table in INTERNAL else USUAL_BYTES
        ),
        topics=topics,
        partitions=partitions,
        start=_bound(options, "startingOffsets"),
        stop=_bound(options, "endingOffsets"),
        producer_id=whole_number(options, "producerId"),
        transactional_ids=_list(options, "transactionalIds"),
        groups=_list(options, "groups"),
        crc=flag(options, "crc"),
        consistent_copy=flag(options, "consistentCopy"),
        txn_state_partitions=whole_number(options, "txnStatePartitions", lowest=1),
        max_transaction_timeout_ms=milliseconds(options, "maxTransactionTimeout"),
        min_held_ms=milliseconds(options, "minHeld"),
        starts=json.loads(options[STARTS]) if STARTS in options else None,
    )


def _refuse_others(options: Options, table: str) -> None:
    known = {name.lower() for name in (*FOR_ALL, *TAKES[table])}
    for name in options:
        if name.lower() not in known:
            raise UsageError(f"The table {table} has no option {name}.", do=f"It has {_names_of(table)}.")


def _names_of(table: str) -> str:
    return ", ".join(sorted({*TAKES[table]} - {STARTS}))


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
    bound: OffsetSpec | None = None if text is None else _read_bound(text.strip())
    check_offset_spec(bound)
    return bound


def _read_bound(text: str) -> OffsetSpec:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return WORDS.get(text.lower(), text.lower())


def _bytes(options: Options, name: str, *, default: str) -> int:
    """Bytes, as Spark writes sizes: ``134217728``, ``128m``, ``1GB``."""
    values = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", options.get(name, default).strip().lower())
    size = int(values[1]) * UNITS[values[2]] if values else 0
    if size < 1:
        raise UsageError(
            f"The option {name} is not a size: {options[name]!r}.", do="Use a number of bytes, or for example 128m."
        )
    return size
