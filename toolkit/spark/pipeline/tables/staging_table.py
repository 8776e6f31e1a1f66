"""Rows of several tables in one DataFrame: one pass over the logs stores them once, then they are split by table."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from toolkit.formats.log_dir_files import segment_base_offset
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY
from toolkit.schema.live import Finding
from toolkit.schema.record import Int32, Int64, TableRow, Unit, declares
from toolkit.sources.log_tables import ReadError
from toolkit.spark.arrow_types import arrow_fields, struct_arrays, struct_fields
from toolkit.spark.datasources.log_identity import LEADER, LogIdentity
from toolkit.spark.datasources.log_options import LogListing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG, IS_FINAL = "log", "is_final"
"""Columns of every row of a log: its name, and whether the next run keeps the row."""


IDS = "#ids"
"""Suffix of the name of the records of a partition of ``__transaction_state``, whichever replica has them."""


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


@declares("table_size", row="the rows of a stored table", key=("name",), sort=("name",))
@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize(TableRow):
    """The rows of a stored table."""

    name: Annotated[str, "Name of the table."]
    rows: Annotated[Int64, "Number of rows."]
    errors: Annotated[Int64, "Rows with error."]
    newest_run: Annotated[Int64, "Number of the last run that wrote some of them."]


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
    tables: Annotated[tuple[TableSize, ...], "The rows of the tables after this run."] = ()


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

STAGED = [(each.name, each) for each in (BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY, STATE)]

STAGE = StructType(
    [
        StructField("table", StringType()),
        StructField(LOG, StringType()),
        StructField(IS_FINAL, BooleanType()),
        *struct_fields(STAGED),
    ]
)
"""Spark's schema: name of the row's table, its log, and a struct for each table, null in rows of other tables."""

STAGE_SCHEMA = pa.schema([("table", pa.string()), (LOG, pa.string()), (IS_FINAL, pa.bool_()), *arrow_fields(STAGED)])


def stage_rows(table: str, rows: pa.Table, *, log: str, is_final: bool) -> pa.RecordBatch:
    """Rows of a declared table as rows of `STAGE`."""
    leading = [pa.repeat(value, len(rows)) for value in (table, log, is_final)]
    return pa.RecordBatch.from_arrays([*leading, *struct_arrays(STAGED, table, rows)], schema=STAGE_SCHEMA)


def rows_of(staged: DataFrame, table: str) -> DataFrame:
    """The rows of one table, with `LOG` and `IS_FINAL`; states without."""
    common = () if table == STATE.name else (LOG, IS_FINAL)
    return staged.where(sf.col("table") == table).select(f"{table}.*", *common)


def damaged_segments(errors: Iterable[ReadError]) -> set[int]:
    """Base offsets of the segments that errors are about, other than at a torn end."""
    base_offsets = (segment_base_offset(each.file) for each in errors if not each.damage.is_torn)
    return {each for each in base_offsets if each is not None}
