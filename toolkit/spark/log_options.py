"""What the options of ``kafka_log`` say, checked as a whole before anything is read."""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.errors import UsageError
from toolkit.formats.folders import partition_of
from toolkit.schema import TABLES
from toolkit.sources.asked import Place, asked_places
from toolkit.sources.bounds import Bound, check_bound
from toolkit.spark.local_paths import local_path
from toolkit.spark.modes import MODES
from toolkit.spark.reader_options import Options, choice, flag, refuse_unknown, whole_number

__all__ = ["INTERNAL", "LISTING", "PIECES", "LogOptions", "read_options"]

SOURCE = "kafka_log"
PIECES = "pieces"
LISTING = "listing"
INTERNAL = {PIECES, LISTING}
"""Tables that only the pipeline reads."""
FOR_ALL = ("path", "paths", "table", "mode", "max_partition_bytes")
SELECTION = ("topic", "topics", "partition", "partitions")
SECTION = ("start", "stop")
PARTITIONS = ("partition", "partitions")
IDS = ("transactional_id", "transactional_ids")
GROUPS = ("group", "groups")
COUNT = ("txn_state_partitions",)
STARTS = "starts"  # what only the pipeline says: a JSON object of logs and the offsets to read them from

GOES_BY: Mapping[str, Sequence[str]] = {
    "batches": (*SELECTION, *SECTION, STARTS, "producer_id", "crc"),
    "spans": (*SELECTION, *SECTION, "producer_id"),
    "lso_timeline": (*SELECTION, *SECTION, "producer_id"),
    "aborted": (*SELECTION, *SECTION, "producer_id"),
    "checkpoints": SELECTION,
    "coordinator_events": (*PARTITIONS, *IDS, *SECTION, STARTS, "producer_id"),
    "group_events": (*PARTITIONS, *GROUPS, *SECTION, "producer_id"),
    "histories": (*PARTITIONS, *IDS, *SECTION, "producer_id"),
    "partitions": SELECTION,
    "producers": SELECTION,
    "transactions": (*IDS, "producer_id", *COUNT),
    "coordinators": (*IDS, *GROUPS, *COUNT),
    "statistics": (*SELECTION, *SECTION),
    "violations": (*SELECTION, *SECTION, "producer_id", "crc"),
    "findings": (*SELECTION, "at_rest", "max_transaction_timeout_ms", "min_held_ms", *COUNT),
    "snapshots": SELECTION,
    "segments": SELECTION,
    PIECES: (*SELECTION, STARTS),
    LISTING: SELECTION,
}
"""Tables, and the options that each goes by."""

KNOWN = sorted({*FOR_ALL, *(name for names in GOES_BY.values() for name in names)})
OF_A_TOPIC = {"coordinator_events", "group_events", "histories"}  # partitions are its, and no topics are said
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
USUAL_BYTES = "128m"  # as spark.sql.files.maxPartitionBytes
INTERNAL_BYTES = "512m"  # read as quickly as a task begins


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What is asked of `toolkit.spark.log_source.KafkaLog`.

    Parameters
    ----------
    paths
        Where to look.
    table
        Name of the table.
    mode
        What becomes of rows with `error`.
    max_partition_bytes
        How much of the logs one task reads, about.
    topics, partitions, start, stop, producer_id, transactional_ids, groups, crc
        As `LogDir` takes them.
    at_rest, txn_state_partitions, max_transaction_timeout_ms, min_held_ms
        Likewise; null for what it does by itself.
    starts
        The logs to read (`toolkit.spark.log_listing.name_of`), and from which offset on each; all of all if null.
    """

    paths: Sequence[str]
    table: str
    mode: str
    max_partition_bytes: int
    topics: Sequence[str] | None = None
    partitions: Sequence[int] | Sequence[Place] | None = None
    start: Bound | None = None
    stop: Bound | None = None
    producer_id: int | None = None
    transactional_ids: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    crc: bool = False
    at_rest: bool = False
    txn_state_partitions: int | None = None
    max_transaction_timeout_ms: int | None = None
    min_held_ms: int | None = None
    starts: Mapping[str, int | None] | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing narrows down which partitions are meant."""
        return self.topics is None and self.partitions is None

    @property
    def names(self) -> Sequence[str] | None:
        """The ids that the records of a coordinators' topic are about."""
        return self.groups if self.table == "group_events" else self.transactional_ids


def read_options(options: Options) -> LogOptions:
    """What the options say.

    Raises
    ------
    UsageError
        For one that is not known, that the table does not go by, or that cannot be read.
    """
    refuse_unknown(options, KNOWN, source=SOURCE)
    table = choice(options, "table", tuple(GOES_BY), default="batches")
    _refuse_others(options, table)
    topics, partitions = _list(options, "topic"), _partitions(options)
    if partitions is not None:
        asked_places([""] if table in OF_A_TOPIC else topics, partitions)
    return LogOptions(
        paths=_paths(options),
        table=table,
        mode=_mode(options, table),
        max_partition_bytes=_bytes(
            options, "max_partition_bytes", default=INTERNAL_BYTES if table in INTERNAL else USUAL_BYTES
        ),
        topics=topics,
        partitions=partitions,
        start=_bound(options, "start"),
        stop=_bound(options, "stop"),
        producer_id=whole_number(options, "producer_id"),
        transactional_ids=_list(options, "transactional_id"),
        groups=_list(options, "group"),
        crc=flag(options, "crc"),
        at_rest=flag(options, "at_rest"),
        txn_state_partitions=whole_number(options, "txn_state_partitions", lowest=1),
        max_transaction_timeout_ms=whole_number(options, "max_transaction_timeout_ms"),
        min_held_ms=whole_number(options, "min_held_ms"),
        starts=json.loads(options[STARTS]) if STARTS in options else None,
    )


def _refuse_others(options: Options, table: str) -> None:
    goes_by = {*FOR_ALL, *GOES_BY[table]}
    for name in options:
        if name.lower() not in goes_by:
            mine = ", ".join(sorted(GOES_BY[table]))
            raise UsageError(f"The table {table} does not go by {name}.", do=f"It goes by {mine}.")


def _mode(options: Options, table: str) -> str:
    mode = choice(options, "mode", MODES, default=MODES[0])
    if mode != MODES[0] and (table in INTERNAL or "error" not in TABLES[table].names):
        raise UsageError(
            f"The mode {mode} means nothing for the table {table}, which has no column error.",
            do="Ask without mode; batches tells what could not be read.",
        )
    return mode


def _paths(options: Options) -> list[str]:
    """Spark hands several paths of ``load`` over as JSON."""
    found = [options["path"]] if options.get("path") else []
    if text := options.get("paths", "").strip():
        found += _names("paths", text)
    if not found:
        raise UsageError(
            f"{SOURCE} is not told where the files are.",
            do='Say load("/kafka/logs"), or the options path, or paths: separated by commas, or a JSON list.',
        )
    return [local_path(path) for path in found]


def _list(options: Options, name: str) -> list[str] | None:
    """Names under the singular or the plural of an option, which cannot both be said."""
    plural = f"{name}s"
    if options.get(name) is not None and options.get(plural) is not None:
        raise UsageError(f"Both {name} and {plural} are said.", do="Say one of them.")
    text = options.get(name, options.get(plural))
    return None if text is None else _names(name, text)


def _names(name: str, text: str) -> list[str]:
    """Separated by commas, or a list as JSON or Python writes it."""
    text = text.strip()
    found: Any = text.split(",")
    if text.startswith("["):
        found = next((read for parse in (json.loads, ast.literal_eval) if (read := _parsed(parse, text))), None)
    names = [str(each).strip() for each in found or ()]
    if not all(names) or not names:
        raise UsageError(f"The option {name} cannot be read: {text!r}.", do="Separate names by commas, or say a list.")
    return names


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except (ValueError, SyntaxError):
        return None


def _partitions(options: Options) -> Sequence[int] | Sequence[Place] | None:
    """Numbers, or topics and numbers as folders are named: ``orders-0``."""
    said = _list(options, "partition")
    if said is None:
        return None
    if all(each.isdecimal() for each in said):
        return [int(each) for each in said]
    places = [partition_of(each) for each in said]
    found = [place for place in places if place is not None]
    if len(found) < len(said):
        raise UsageError(
            f"The option partition cannot be read: {', '.join(said)}.", do="Say 0, 1 or orders-0, orders-1."
        )
    return found


def _bound(options: Options, name: str) -> Bound | None:
    text = options.get(name)
    bound: Bound | None = None if text is None else _read_bound(text.strip())
    check_bound(bound)
    return bound


def _read_bound(text: str) -> Bound:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return text.lower()  # the name of a place


def _bytes(options: Options, name: str, *, default: str) -> int:
    """Bytes, as Spark writes sizes: ``134217728``, ``128m``, ``1GB``."""
    said = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", options.get(name, default).strip().lower())
    size = int(said[1]) * UNITS[said[2]] if said else 0
    if size < 1:
        raise UsageError(f"The option {name} is no size: {options[name]!r}.", do="Say bytes, or for example 128m.")
    return size
