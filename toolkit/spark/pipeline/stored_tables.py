"""The declarations of the stored tables: columns, their names in SQL, and keys; and the state of logs and runs.

Each has the columns that ``toolkit.schema`` declares, in that order, but for names that SQL must quote
(`STORED_NAMES`); then the columns of the pipeline.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pyspark.sql.types import StructField, StructType

from toolkit import schema
from toolkit.formats.log_dir_files import segment_base_offset
from toolkit.schema import Column, Row, Table
from toolkit.schema.live import Finding
from toolkit.schema.table import BOOL, INT64, STRING, Int32, Int64, TableRow, Unit, declares
from toolkit.sources.log_tables import ReadError
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources.log_identity import LEADER, LogIdentity
from toolkit.spark.datasources.log_options import LogListing

if TYPE_CHECKING:
    import pyarrow as pa


LOG, IS_FINAL = "log", "is_final"
"""Columns of every row of a log: its name, and whether the next run keeps the row."""


IDS = "#ids"
"""Suffix of the name of the records of a partition of ``__transaction_state``, whichever replica has them."""


class FoldedRows(NamedTuple):
    """Rows of a declared table."""

    table: str  # its name
    rows: pa.Table
    is_final: bool  # whether later runs keep them


@declares("state", row="the state of a log for the next run of the pipeline", key=("log",), sort=("log",))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState(TableRow):
    """The state of a log, or of the records of a partition of ``__transaction_state``."""

    log: Annotated[str, "Name of the log."]
    topic: Annotated[str | None, "Topic."] = None
    partition: Annotated[Int32 | None, "Partition."] = None
    broker_id: Annotated[Int32 | None, "Broker of the log; null if several brokers may have sent it."] = None
    log_end_offset: Annotated[Int64 | None, "Offset after the last one read."] = None
    leader_epoch: Annotated[Int32 | None, "Highest leader epoch of its batches; -1 if not known."] = None
    is_damaged: Annotated[bool | None, "Whether something other than a torn end could not be read."] = None
    is_unread: Annotated[
        bool | None, "Whether a file could not be opened; the next run reads the log again completely."
    ] = None
    bytes_read: Annotated[Int64 | None, "Size of the batches that the last run read.", Unit("bytes")] = None
    listing: Annotated[str | None, "Digest of its files, as listed."] = None
    segment_sizes: Annotated[
        str | None, "JSON: base offset, size and modification time (ns) of each segment, as listed."
    ] = None
    damaged_segments: Annotated[
        str | None,
        "JSON: base offsets of segments with bytes that could not be read; -1 - base offset of a segment before which "
        "offsets are missing, or of the first one that was read, if transactions may be open before it.",
    ] = None
    replica: Annotated[str | None, "Name of the log that was read."] = None
    topic_id: Annotated[str | None, "Id of the topic."] = None
    first_batch: Annotated[
        str | None, "Base offset and checksum of the first batch of a log without a topic id; null if they may change."
    ] = None
    latest: Annotated[dt.datetime | None, "Newest time in the log."] = None
    is_held: Annotated[bool | None, "Whether its LSO is or was held."] = None
    remembered: Annotated[bytes | None, "Open transactions and LSO holds (LogState)."] = None

    @property
    def damaged_bases(self) -> list[int]:
        """The numbers in ``damaged_segments``."""
        return list(json.loads(self.damaged_segments or "[]"))


STATE = StoredState.table


@declares("newest_sample", row="the newest stored sample of a recording", key=("log",), sort=("log",))
@dataclass(frozen=True, slots=True, kw_only=True)
class NewestSample(TableRow):
    """The newest stored sample of a recording."""

    log: Annotated[str, "Name of the recording in the stored rows."]
    sampled_at: Annotated[dt.datetime, "Due time of the sample."]


@declares("counts", row="the rows of a stored table after a run", key=("name",), sort=("name",))
@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts(TableRow):
    """Rows of a table after a run."""

    name: Annotated[str, "Name of the table."]
    rows: Annotated[Int64, "Number of rows."] = 0
    errors: Annotated[Int64, "Rows with error."] = 0
    new: Annotated[Int64, "Rows that the run wrote."] = 0
    newest_run: Annotated[Int64, "Number of the last run that wrote some of them."] = 0


@declares("runs", row="a complete run of the pipeline", key=("run_id",), sort=("run_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun(TableRow):
    """A complete run: the row is written last. What a run did not change, it has from the run before."""

    run_id: Annotated[Int64, "Number of the run; 0 for none."] = 0
    state_run: Annotated[Int64, "Number of the run that wrote the states of the logs."] = 0
    logs: Annotated[Int64, "Number of these states."] = 0
    signature: Annotated[str | None, "Digest of the files and arguments of the last diagnosis of logs."] = None
    diagnosed_at: Annotated[dt.datetime | None, "Time of that diagnosis."] = None
    proof: Annotated[str | None, "What the files prove and what they do not."] = None
    findings: Annotated[tuple[Finding, ...], "What that diagnosis found open."] = ()
    samples: Annotated[tuple[NewestSample, ...], "The newest stored sample of each recording."] = ()
    tables: Annotated[tuple[TableCounts, ...], "The rows of the tables after this run."] = ()


RUNS = StoredRun.table


def records_name(row: LogListing) -> str:
    """The name of the records of a partition of ``__transaction_state``. `row`: a replica of it."""
    identity = LogIdentity.of(row.log)
    return f"{LogIdentity(identity.cluster_id, LEADER, identity.topic_id, f'{row.topic}-{row.partition}')}{IDS}"


@declares(
    "logs",
    row="a log that was read: a replica of a partition",
    key=("log",),
    sort=("topic", "partition", "broker_id", "log"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog(TableRow):
    """A log that was read."""

    topic: Annotated[str | None, "Topic name; null for a loose file whose path does not name it."] = None
    partition: Annotated[Int32 | None, "Partition number; null as topic."] = None
    broker_id: Annotated[Int32 | None, "Broker of the log; null if several brokers may have sent it."] = None
    log: Annotated[str, "Name of the log: cluster, broker, topic id and partition; a path without these."]
    is_best: Annotated[bool, "Whether it is the replica that findings and LSO holds of its partition are from."]
    is_damaged: Annotated[bool, "Whether something other than a torn end could not be read."]
    log_end_offset: Annotated[Int64 | None, "Offset after the last one read."] = None
    leader_epoch: Annotated[Int32 | None, "Highest leader epoch of its batches; -1 if not known."] = None
    latest: Annotated[dt.datetime | None, "Newest time in the log."] = None


LOGS = StoredLog.table


def damaged_segments(errors: Iterable[ReadError]) -> set[int]:
    """Base offsets of the segments that errors are about, other than at a torn end."""
    base_offsets = (segment_base_offset(each.file) for each in errors if not each.damage.is_torn)
    return {each for each in base_offsets if each is not None}


RUN_ID, CLUSTER_ID, TOPIC_ID, IS_CURRENT = "run_id", "cluster_id", "topic_id", "is_current"
IDS_OF_LOG = (
    Column(CLUSTER_ID, STRING, "Id of the cluster; null if meta.properties is missing."),
    Column(TOPIC_ID, STRING, "Id of the topic; null if it has none, ~1 and so on for deleted topics without an id."),
)
RUN = Column(RUN_ID, INT64, "Number of the run that wrote the row.")
OF_LOGS = (
    *IDS_OF_LOG,
    RUN,
    Column(LOG, STRING, "Name of the log: cluster, broker, topic id and partition; a path without these."),
    Column(IS_FINAL, BOOL, "Whether later runs keep the row; false while the transaction is open."),
)
CURRENT = Column(IS_CURRENT, BOOL, "Whether it was open at the newest diagnosis or sample.")
EXTRA: Mapping[str, Sequence[Column]] = {
    "findings": (*IDS_OF_LOG, CURRENT, RUN),
    "lso_holds": (*IDS_OF_LOG, RUN),
    "logs": (*IDS_OF_LOG, RUN),
    "state": (RUN,),
    "runs": (),
}

STORED_NAMES = {"start": "start_time", "end": "end_time", "at": "event_time", "offset": "log_end_offset"}
"""Stored names of columns whose declared name SQL must quote, or that belong to one of them."""

RECORDED_AS = {name: f"recorded_{name}" for name in schema.RECORDED}
"""Stored names of the tables of a recording; most of the plain names are tables of a cluster, too."""

KEPT: Mapping[str, Table] = {
    "batches": schema.BATCHES,
    "log_transactions": schema.LOG_TRANSACTIONS,
    "lso_timeline": schema.LSO_TIMELINE,
    "transaction_history": schema.TRANSACTION_HISTORY,
    **{RECORDED_AS[name]: table for name, table in schema.RECORDED.items()},
    "logs": LOGS,
    "lso_holds": schema.LSO_HOLDS,
    "findings": schema.FINDINGS,
}
"""The stored tables by name."""

KEYS: Mapping[str, Sequence[str]] = {
    "batches": (LOG, "base_offset", "position"),
    "log_transactions": (LOG, "producer_id", "first_offset", "marker_offset", "file", "position", "error"),
    "lso_timeline": (LOG, "log_end_offset", "event"),
    "transaction_history": (LOG, "transactional_id", "first_offset"),
    "logs": (LOG,),
    "lso_holds": (CLUSTER_ID, TOPIC_ID, "topic", "partition", "producer_id", "first_offset", "marker_offset"),
    "findings": (CLUSTER_ID, TOPIC_ID, "topic", "partition", "producer_id", "start_offset", "broker_id"),
}
"""The unique keys of the stored tables; nulls are equal. The broker counts in findings without a transaction only."""


FROM_OFFSET = {
    "log_transactions": "coalesce(greatest(marker_offset, first_offset) >= {offset}, true)",
    "lso_timeline": "log_end_offset > {offset}",
    "transaction_history": "last_offset >= {offset}",
    "batches": "coalesce(base_offset >= {offset}, true)",
}
"""SQL conditions for the rows of a table at or after an offset."""


OF_OBSERVATION = {RUN_ID, "observed_at", "as_of", "log_end_offset"}
"""Columns that change with every diagnosis, also of what is over."""


def with_extra(name: str, table: Table) -> Table:
    """A declared table with the columns of the pipeline."""
    extra = tuple(each for each in EXTRA.get(name, OF_LOGS) if each.name not in table.names)
    return Table(table.name, table.row, (*table.columns, *extra), table.key, table.sort)


def stored_type(name: str, table: Table) -> StructType:
    """Spark's schema of a stored table, by stored names."""
    fields = struct_type(with_extra(name, table))
    return StructType(
        [StructField(STORED_NAMES.get(f.name, f.name), f.dataType, f.nullable, f.metadata) for f in fields]
    )


def rows_by_key(name: str, rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Rows of a table whose key has only declared names; of several with one key, the last."""
    return {tuple(row[each] for each in KEYS[name] if _counts(each, row)): row for row in rows}


def _counts(column: str, row: Row) -> bool:
    return column != "broker_id" or row["start_offset"] is None


def lasting_content(row: Row) -> Row:
    """What a change of counts as a change of the row: of what is over, not when it was last observed."""
    if row.get("verdict") != "ended" and row.get("marker_offset") is None:
        return {name: value for name, value in row.items() if name != RUN_ID}
    evidence = {"evidence": [{**each, "observed_at": None} for each in row["evidence"]]} if "evidence" in row else {}
    return {name: value for name, value in {**row, **evidence}.items() if name not in OF_OBSERVATION}
