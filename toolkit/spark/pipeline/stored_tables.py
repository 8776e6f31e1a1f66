"""The declarations of the stored tables: columns, their names in SQL, and keys; and the state of logs and runs.

Each has the columns that ``toolkit.schema`` declares, in that order, but for names that SQL must quote
(`STORED_NAMES`); then the columns of the pipeline.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from toolkit import schema
from toolkit.analysis.hold_findings import HOLD
from toolkit.analysis.log.log_transactions import LOG_TRANSACTION, LogArray
from toolkit.analysis.transaction_history import HistoryState
from toolkit.errors import NotFound, UsageError
from toolkit.formats.headers import StructuredArray, labels
from toolkit.formats.log_dir_files import segment_base_offset
from toolkit.schema import Column, Row, Table
from toolkit.schema.live import Finding
from toolkit.schema.table import BOOL, INT64, STRING, Int32, Int64, RowsOf, TableRow, Unit, declares
from toolkit.sources.log_tables import ReadError
from toolkit.spark.arrow_types import from_arrow, spark_table, struct_type
from toolkit.spark.datasources.log_reader import LEADER, LogIdentity, LogListing
from toolkit.spark.spark_errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


LOG, IS_FINAL = "log", "is_final"
"""Columns of every row of a log: its name, and whether the next run keeps the row."""


IDS = "#ids"
"""Suffix of the name of the records of a partition of ``__transaction_state``, whichever replica has them."""


Rows: TypeAlias = "pa.Table | LogArray | StoredState"
"""Rows of a table: a table, or what becomes one table of many logs."""


class FoldedRows(NamedTuple):
    """Rows of a declared table."""

    table: str  # its name
    rows: Rows
    is_final: bool  # whether later runs keep them


def _columns_of(dtype: np.dtype[Any]) -> Iterator[Column]:
    """The fields of a structured array of transactions, and the name of each ``file``."""
    for name in dtype.names or ():
        yield Column(name, str(dtype[name]), "As in the array.")
    yield Column("file_name", STRING, "The name of its ``file``.")


def stored_rows(
    table: Table, rows: StructuredArray[Any], files: Sequence[str | None], *others: Sequence[int | None]
) -> pa.StructArray | None:
    """A structured array of transactions as rows of a table of `_columns_of`; null without any.

    `files`: the name of each ``file``. `others`: the columns of the table that the array lacks.
    """
    if not len(rows):
        return None
    arrays = [pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()]
    arrays += [labels(rows["file"], files), *(pa.array(each, pa.int64()) for each in others)]
    return pa.StructArray.from_arrays(arrays, table.names)


def array_of(rows: pa.StructArray, dtype: np.dtype[Any], files: dict[str | None, int]) -> Any:
    """The structured array of `stored_rows`. `files`: the number of each file, to which theirs are added."""
    found = np.empty(len(rows), dtype)
    for name in dtype.names or ():
        found[name] = rows.field(name).to_numpy()
    found["file"] = [files.setdefault(name, len(files)) for name in rows.field("file_name").to_pylist()]
    return found


OPEN_TRANSACTIONS = Table(
    "open_transactions",
    "a transaction that later batches may change",
    (
        *_columns_of(LOG_TRANSACTION),
        Column("records_before", INT64, "Data records of the log before it, if it is open.", unit="records"),
        Column("bytes_before", INT64, "Bytes of their batches.", unit="bytes"),
    ),
    key=(),
    sort=(),
)
"""What is open in a log, and what may have begun before its first batch."""

HOLDS = Table("holds", "a transaction that held the LSO", tuple(_columns_of(HOLD)), key=(), sort=())
"""Holds of a log's LSO."""


@declares("state", key=("log",))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState(TableRow):
    """The state of a log for the next run of the pipeline.

    Or the state of the records of a partition of ``__transaction_state``.
    """

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
    # What the fold of a log continues from (`toolkit.spark.pipeline.log_fold.LogState`).
    is_settled: Annotated[bool | None, "Whether it is known what was open before its first batch."] = None
    is_torn: Annotated[bool | None, "Whether it ends within a batch."] = None
    stays_damaged: Annotated[bool | None, "Whether is_damaged is also of what the next run does not read again."] = None
    steps_from: Annotated[Int64 | None, "An earlier read returned the LSO steps before this offset."] = None
    records: Annotated[Int64 | None, "Data records that were read.", Unit("records")] = None
    bytes: Annotated[Int64 | None, "Bytes of their batches.", Unit("bytes")] = None
    open_transactions: Annotated[pa.StructArray | None, RowsOf(OPEN_TRANSACTIONS), "What later batches may change."] = (
        None
    )
    lso_holds: Annotated[pa.StructArray | None, RowsOf(HOLDS), "Holds of its LSO; null without any."] = None
    marker_offset: Annotated[Int64 | None, "Offset of the newest marker with a time."] = None
    marker_at: Annotated[dt.datetime | None, "Time of that marker."] = None
    ids: Annotated[
        pa.StructArray | None, RowsOf(HistoryState.table), "Of ``__transaction_state``: the state of each id."
    ] = None

    @property
    def damaged_bases(self) -> list[int]:
        """The numbers in ``damaged_segments``."""
        return list(json.loads(self.damaged_segments or "[]"))


STATE = StoredState.table


@declares("newest_sample", key=("log",))
@dataclass(frozen=True, slots=True, kw_only=True)
class NewestSample(TableRow):
    """The newest stored sample of a recording."""

    log: Annotated[str, "Name of the recording in the stored rows."]
    sampled_at: Annotated[dt.datetime, "Due time of the sample."]


@declares("counts", key=("name",))
@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts(TableRow):
    """The rows of a stored table after a run."""

    name: Annotated[str, "Name of the table."]
    rows: Annotated[Int64, "Number of rows."] = 0
    errors: Annotated[Int64, "Rows with error."] = 0
    new: Annotated[Int64, "Rows that the run wrote."] = 0
    newest_run: Annotated[Int64, "Number of the last run that wrote some of them."] = 0


@declares("runs", key=("run_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun(TableRow):
    """A complete run of the pipeline.

    Its row is written last. What a run did not change, it has from the run before.
    """

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


@declares("logs", key=("log",), sort=("topic", "partition", "broker_id", "log"))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog(TableRow):
    """A log that was read: a replica of a partition."""

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
    "lso_timeline": (LOG, "log_end_offset", "event", "error"),
    "transaction_history": (LOG, "transactional_id", "first_offset", "error"),
    "logs": (LOG,),
    "lso_holds": (CLUSTER_ID, TOPIC_ID, "topic", "partition", "producer_id", "first_offset", "marker_offset"),
    "findings": (CLUSTER_ID, TOPIC_ID, "topic", "partition", "producer_id", "start_offset", "broker_id"),
}
"""The unique keys of the stored tables; nulls are equal. The broker counts in findings without a transaction only."""


FROM_OFFSET = {
    "log_transactions": "coalesce(marker_offset >= {offset}, first_offset >= {begin}, true)",
    "lso_timeline": "log_end_offset > {offset} OR (error IS NOT NULL AND coalesce(log_end_offset >= {begin}, true))",
    "transaction_history": "last_offset >= {offset}",
    "batches": "coalesce(base_offset >= {offset}, true)",
}
"""SQL conditions for the rows of a table at or after an offset; of those without a marker, at or after another one."""


ORDERED_BY = {
    "log_transactions": (LOG, "marker_offset"),
    "lso_timeline": (LOG, "offset"),
    "transaction_history": (LOG, "transactional_id", "last_offset"),
    "batches": (LOG, "base_offset"),
}
"""By which offset the final rows of a log, or of an id in it, follow each other."""


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

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[each] for each in KEYS[name] if each != "broker_id" or row["start_offset"] is None)

    return {key(row): row for row in rows}


def lasting_content(row: Row) -> Row:
    """What a change of counts as a change of the row: of what is over, not when it was last observed."""
    if row.get("verdict") != "ended" and row.get("marker_offset") is None:
        return {name: value for name, value in row.items() if name != RUN_ID}
    evidence = {"evidence": [{**each, "observed_at": None} for each in row["evidence"]]} if "evidence" in row else {}
    return {name: value for name, value in {**row, **evidence}.items() if name not in OF_OBSERVATION}


FORMATS = ("delta", "parquet")
INTERNAL = "internal"
"""The folder of the pipeline's own tables, and the suffix of their schema in a catalog."""

NOT_THERE = {
    *("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"),
    *("DELTA_MISSING_DELTA_TABLE", "UNABLE_TO_INFER_SCHEMA"),
}
LEFT_OVER = {"TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"}
"""Errors where a run that was killed before its first commit has left files."""
NAMES = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
IS_DELETED = "is_deleted"  # of rows to merge
LOGS_READ = f"{LOG} string, read_from long, read_begin long"
MAX_NAMED = 100  # logs in a condition; beyond that, the rows of all logs are written anew


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStore:
    """Tables of one target."""

    spark: SparkSession  # the session
    path: str | None = None  # path or URL of the folder for Spark; null for a catalog
    schema: str | None = None  # schema of the tables in a catalog (``catalog.schema`` or ``schema``); null for a folder
    format: str = "delta"  # ``delta`` or ``parquet``
    empty: set[str] = field(default_factory=set, compare=False)  # tables that were created, and have no rows yet

    @property
    def target(self) -> str:
        """The name of the target."""
        return self.path or self.schema or ""

    @property
    def internal(self) -> TableStore:
        """The store of the pipeline's own tables."""
        if self.schema is not None:
            return TableStore(spark=self.spark, schema=f"{self.schema}_{INTERNAL}", format=self.format)
        return TableStore(spark=self.spark, path=f"{self.path}/{INTERNAL}", format=self.format)

    def identifier(self, name: str) -> str:
        """A table in SQL."""
        return f"delta.`{self.path}/{name}`" if self.schema is None else f"{self.schema}.{name}"

    def load(self, name: str, table: Table) -> DataFrame:
        """A stored table with the declared columns, by their declared names, and those of the pipeline.

        It is empty if it does not exist.
        """
        frame = self.find(name)
        empty = stored_type(name, table)
        return self._declared(name, table, self.spark.createDataFrame([], empty) if frame is None else frame)

    def _declared(self, name: str, table: Table, frame: DataFrame) -> DataFrame:
        """A stored table with the declared columns and those of the pipeline. Raises UsageError if it lacks one."""
        names = with_extra(name, table).names
        stored = {each.name: each.dataType.simpleString() for each in frame.schema}
        if any(stored.get(each.name) != each.dataType.simpleString() for each in stored_type(name, table)):
            raise UsageError(
                "Another release of this package wrote these tables; this release cannot continue them.",
                do="Write into a new directory.",
            )
        return frame.select(*(sf.col(f"`{STORED_NAMES.get(each, each)}`").alias(each) for each in names))

    def arrow(self, name: str, table: Table, *columns: str, where: str = "true") -> pa.Table:
        """Rows of a small stored table: some columns, or the declared ones; no rows if it does not exist."""
        if (frame := self.find(name)) is None:
            return table.arrow_schema.empty_table()
        return self._declared(name, table, frame).where(where).select(*(columns or table.names)).toArrow()

    def find(self, name: str) -> DataFrame | None:
        """A stored table with its stored columns; null if it does not exist."""
        try:
            if self.schema is not None:
                frame = self.spark.table(f"{self.schema}.{name}")
            else:
                frame = self.spark.read.format(self.format).load(f"{self.path}/{name}")
            columns = frame.columns
        except AnalysisException as error:
            if error.getCondition() not in NOT_THERE:
                raise
            return None
        return frame if columns else None

    def write(
        self,
        name: str,
        table: Table,
        rows: DataFrame,
        *,
        run_id: int,
        last_run: int | None = None,
        read: Mapping[str, tuple[int, int]],
        changed: Collection[str] = (),
        keeps_provisional: bool = True,
    ) -> None:
        """Add the rows of logs and delete those that they replace, in one transaction.

        Of a log that was read, these are rows that are not final, and at or after the offset from which it was read
        rows of a killed run. All other rows stay: another run cannot read what was deleted since.

        `rows`: rows with the declared columns, `LOG` and `IS_FINAL`.
        `last_run`: number of the last run that was complete; by default the one before.
        `read`: from which offset each log that was read has `rows`, and where the read began.
        `changed`: those of them of which rows of earlier runs are replaced, too.
        `keeps_provisional`: whether rows of other logs stay that are not final.
        """
        if name in self.empty or (stored := self.find(name)) is None:
            self._append(name, table, self._with_run(name, table, rows, run_id))
            return
        new = self._with_run(name, table, rows, run_id)
        last_run = run_id - 1 if last_run is None else last_run
        conditions = [f"NOT {IS_FINAL}", f"{RUN_ID} > {last_run}"]
        if len(changed) > MAX_NAMED:
            conditions = ["true"]
        elif changed:
            conditions.append(f"{LOG} IN ({', '.join(map(sql_text, changed))})")
        replaced = " OR ".join(conditions)
        logs = self.spark.createDataFrame([(log, *each) for log, each in read.items()], LOGS_READ)
        is_read = FROM_OFFSET.get(name, "true").format(offset="read_from", begin="read_begin")
        of_others = "true" if keeps_provisional else IS_FINAL
        kept = f"CASE WHEN read_from IS NULL THEN {of_others} ELSE {IS_FINAL} AND NOT coalesce({is_read}, false) END"
        others = stored.where(replaced).join(sf.broadcast(logs), LOG, "left").where(kept)
        new = new.unionByName(
            others.drop("read_from", "read_begin"), allowMissingColumns=True
        )  # with a user's own columns
        self._save(name, new, mode="overwrite", replaceWhere=replaced)

    def replace_rows(self, name: str, table: Table, rows: DataFrame, *, run_id: int, replaced: str) -> None:
        """Add rows and delete others, in one transaction.

        `replaced`: condition in SQL for the rows to delete; all new rows must meet it, too.
        """
        new = self._with_run(name, table, rows, run_id)
        if self.find(name) is None:
            self._append(name, table, new)
        else:
            self._save(name, new, mode="overwrite", replaceWhere=replaced)

    def _append(self, name: str, table: Table, rows: DataFrame) -> None:
        """Store the first rows of a table."""
        if self.format == "delta" and name not in self.empty:
            self.create(name, table)
        self._save(name, rows, mode="append")
        self.empty.discard(name)

    def overwrite(self, name: str, table: Table, rows: DataFrame, *, run_id: int) -> None:
        """Replace one of the pipeline's own tables."""
        self.overwrite_plain(name, self._with_run(name, table, rows, run_id))

    def overwrite_plain(self, name: str, rows: DataFrame) -> DataFrame:
        """Replace a table with rows as they are, without further columns, and return the stored table."""
        if self.format == "delta":
            self._create_schema()
        self._save(name, rows, mode="overwrite", **({"overwriteSchema": "true"} if self.format == "delta" else {}))
        found = self.find(name)
        assert found is not None
        return found

    def merge(self, name: str, table: Table, rows: Iterable[Row], *, run_id: int) -> TableCounts:
        """Change a table to these rows; rows with the same `lasting_content`, and others' columns, are not written.

        `name`, `table`: name and declaration of the table; its key is in `KEYS`.
        `rows`: all rows, with the declared columns and those of the pipeline. Of several with one key, the last is
            kept.
        """
        declared = with_extra(name, table)
        new = rows_by_key(name, declared.arrow([{**row, RUN_ID: run_id} for row in rows]).to_pylist())
        stored = None if name in self.empty else self.find(name)
        old: dict[tuple[Any, ...], Row] = {}
        if stored is not None:
            found = self._declared(name, table, stored).select(*declared.names).toArrow()
            old = rows_by_key(name, found.cast(declared.arrow_schema).to_pylist())
        same = {key for key in new.keys() & old.keys() if lasting_content(old[key]) == lasting_content(new[key])}
        written = [row for key, row in new.items() if key not in same]
        deleted = [row for key, row in old.items() if key not in new]
        frame = self._stored_frame(declared, written)
        if stored is None:
            self._append(name, table, frame)
        elif written or deleted:
            gone = self._stored_frame(declared, deleted).withColumn(IS_DELETED, sf.lit(True))
            self._merge(name, frame.withColumn(IS_DELETED, sf.lit(False)).unionByName(gone))
        return TableCounts(
            name=name,
            rows=len(new),
            errors=sum(row.get("error") is not None for row in new.values()),
            new=len(written),
            newest_run=max((row[RUN_ID] for row in (*written, *(old[key] for key in same))), default=0),
        )

    def rename_logs(self, names: Mapping[str, LogIdentity]) -> None:
        """Give stored logs other names, and their cluster, broker and topic id; a repeated call changes nothing.

        `names`: what identifies them now, by their old names.
        """
        rows = [(old, str(new), new.cluster_id, new.topic_id, new.broker_id) for old, new in names.items()]
        types = "old string, new string, cluster_id string, topic_id string, broker_id int"
        view = self.view(self.spark.createDataFrame(rows, types))
        for name in ("batches", "log_transactions", "lso_timeline", "transaction_history", "logs"):
            if self.find(name) is not None:
                self.spark.sql(
                    f"MERGE INTO {self.identifier(name)} AS stored USING {view} AS new ON stored.{LOG} = new.old WHEN "
                    f"MATCHED THEN UPDATE SET {LOG} = new.new, {CLUSTER_ID} = new.cluster_id, {TOPIC_ID} = "
                    "new.topic_id, broker_id = coalesce(new.broker_id, stored.broker_id)"
                ).collect()

    def create(self, name: str, table: Table) -> None:
        """Make a Delta table without rows; what is left of one at its place is replaced."""
        self._create_schema()
        fields = list(stored_type(name, table))
        columns = ", ".join(
            f"`{field.name}` {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
            f" COMMENT {sql_text((field.metadata or {}).get('comment', ''))}"
            for field in fields
        )
        declared = f"TABLE {self.identifier(name)} ({columns}) USING delta COMMENT {sql_text(f'One row: {table.row}.')}"
        try:
            self.spark.sql(f"CREATE {declared}")
        except AnalysisException as error:
            if error.getCondition() not in LEFT_OVER:
                raise
            rows = self.spark.createDataFrame([], StructType([StructField(f.name, f.dataType) for f in fields]))
            rows.writeTo(self.identifier(name)).using("delta").createOrReplace()
            self.spark.sql(f"REPLACE {declared}")
        self.empty.add(name)

    def _create_schema(self) -> None:
        is_internal = self.schema is not None and self.schema.endswith(f"_{INTERNAL}")
        if is_internal and not self.spark.catalog.databaseExists(str(self.schema)):  # needs a right that jobs may lack
            self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")

    def _with_run(self, name: str, table: Table, rows: DataFrame, run_id: int) -> DataFrame:
        """The columns to store, from the declared ones."""
        have = set(rows.columns)
        is_of_log = ~sf.col(LOG).startswith("recording:") if LOG in have else sf.lit(False)
        values = {
            RUN_ID: sf.lit(run_id).cast("long"),
            CLUSTER_ID: sf.when(is_of_log, sf.nullif(sf.split_part(LOG, sf.lit("/"), sf.lit(1)), sf.lit(""))),
            TOPIC_ID: sf.when(is_of_log, sf.nullif(sf.split_part(LOG, sf.lit("/"), sf.lit(3)), sf.lit(""))),
            LOG: sf.lit(None).cast("string"),
            IS_FINAL: sf.lit(True),
        }
        if LOG not in have:
            values |= {each: sf.lit(None).cast("string") for each in (CLUSTER_ID, TOPIC_ID)}
        return rows.select(
            *(
                (sf.col(f"`{each.name}`") if each.name in have else values[each.name]).alias(
                    STORED_NAMES.get(each.name, each.name)
                )
                for each in with_extra(name, table).columns
            )
        )

    def _stored_frame(self, declared: Table, rows: Iterable[Row]) -> DataFrame:
        frame = from_arrow(self.spark, spark_table(declared.arrow(rows)))
        return frame.select(*(sf.col(f"`{each}`").alias(STORED_NAMES.get(each, each)) for each in declared.names))

    def _merge(self, name: str, changes: DataFrame) -> None:
        columns = [each for each in changes.columns if each != IS_DELETED]
        same = [
            f"stored.{each} <=> new.{each}"
            if each != "broker_id"
            else "(stored.start_offset IS NOT NULL OR stored.broker_id <=> new.broker_id)"
            for each in KEYS[name]
        ]
        clauses = (
            f"MERGE INTO {self.identifier(name)} AS stored USING {self.view(changes)} AS new ON {' AND '.join(same)}",
            f"WHEN MATCHED AND new.{IS_DELETED} THEN DELETE",
            "WHEN MATCHED THEN UPDATE SET " + ", ".join(f"{each} = new.{each}" for each in columns),
            f"WHEN NOT MATCHED AND NOT new.{IS_DELETED} THEN",
            f"INSERT ({', '.join(columns)})",
            f"VALUES ({', '.join(f'new.{each}' for each in columns)})",
        )
        self.spark.sql(" ".join(clauses)).collect()

    def view(self, rows: DataFrame) -> str:
        """The name of a temporary view of rows."""
        name = f"kafka_txn_rows_{id(rows)}"
        rows.createOrReplaceTempView(name)
        return name

    def _save(self, name: str, rows: DataFrame, *, mode: str, **options: str) -> None:
        writer = rows.write.format(self.format).mode(mode).options(**options)
        if self.schema is None:
            writer.save(f"{self.path}/{name}")
        else:
            writer.saveAsTable(f"{self.schema}.{name}")


def sql_text(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def open_store(spark: SparkSession, target: str, *, format: str = "delta") -> TableStore:
    """The store of a target.

    Raises UsageError if the target or the format is invalid.
    Raises NotFound if the catalog has no such schema.
    `target`: a folder: any path or URL with a slash in it; or a schema: ``catalog.schema``, or one word.
    """
    if format not in FORMATS:
        raise UsageError(f"{format!r} is not a table format.", do=f"Use one of {', '.join(FORMATS)}.")
    if "/" in target or "\\" in target:
        return TableStore(spark=spark, path=target.rstrip("/"), format=format)
    if not NAMES.fullmatch(target):
        raise UsageError(
            f"{target!r} is neither a folder nor a schema.", do="Use a path with a slash, or catalog.schema."
        )
    if format != "delta":
        raise UsageError("A catalog schema only stores Delta tables.", do="Use the format delta, or write to a folder.")
    try:
        found = spark.catalog.databaseExists(target)
    except PySparkException:
        found = False  # no such catalog
    if not found:
        raise NotFound(
            f"The catalog has no schema {target}.", do=f"Run CREATE SCHEMA {target}; or use ./{target} for a folder."
        )
    return TableStore(spark=spark, schema=target, format=format)


def read(spark: SparkSession, target: str, table: str, *, format: str = "delta") -> DataFrame:
    """A stored table with exactly the declared columns; empty if it does not exist.

    Parameters
    ----------
    spark
        The session.
    target
        Target of the pipeline: a folder (with a slash in it), or ``catalog.schema``.
    table
        Name of the table.
    format
        Its format: ``delta`` or ``parquet``.

    Raises
    ------
    UsageError, NotFound
        If the table, the format or the schema does not exist.
    SetupError
        If the stored table is damaged.
    """
    if table not in KEPT:
        raise UsageError(f"There is no table {table}.", do=f"Use one of {', '.join(KEPT)}.")
    with translate_errors():
        return open_store(spark, target, format=format).load(table, KEPT[table]).select(*KEPT[table].names)


VIEWS: Mapping[str, str] = {
    "best_transactions": (
        "SELECT t.* FROM {log_transactions} AS t JOIN {logs} AS l ON t.log = l.log WHERE l.is_best AND t.error IS NULL"
    ),
    "best_lso_timeline": "SELECT t.* FROM {lso_timeline} AS t JOIN {logs} AS l ON t.log = l.log WHERE l.is_best",
    "longest_lso_holds": (
        "SELECT topic, transactional_id, producer_id, count(*) AS holds, "
        "max(coalesce(held_ms, least_ms)) / 1e3 AS longest_s, sum(coalesce(held_ms, least_ms)) / 1e3 AS total_s, "
        "sum(records_held) AS records_held, max(held_to) AS last_held_to "
        "FROM {lso_holds} WHERE producer_id IS NOT NULL GROUP BY topic, transactional_id, producer_id"
    ),
    "lso_held_now": (
        "SELECT topic, partition, queue_position, verdict, outcome, transactional_id, owner, producer_id, "
        "start_offset, held_from, held_ms, records_held, cause, reason, remedy, action, observed_at, "
        "cluster_id, topic_id "
        "FROM {findings} WHERE is_current AND verdict <> 'ended'"
    ),
}
"""Queries of the views; names of tables are in braces.

Transactions and LSO steps of the best replica of each partition; who held LSOs, how often and how long; and who holds
one now, with the remedy."""


def create_views(spark: SparkSession, target: str, *, format: str = "delta") -> None:
    """Make the views of a target, in its catalog, or of a folder in the session, with the tables themselves.

    Parameters
    ----------
    spark
        The session.
    target
        Target of the pipeline: a folder (with a slash in it), or ``catalog.schema``.
    format
        Format of its tables: ``delta`` or ``parquet``.

    Raises
    ------
    UsageError, NotFound
        If the target or the format is invalid, or the catalog has no such schema.
    SetupError
        If a stored table is damaged.
    """
    with translate_errors():
        make_views(open_store(spark, target, format=format))


def make_views(store: TableStore) -> None:
    """`create_views` of a store."""
    found = {name: frame for name in KEPT if (frame := store.find(name)) is not None}
    if store.schema is None:
        for name, frame in found.items():
            frame.createOrReplaceTempView(name)
        verb, prefix = "CREATE OR REPLACE TEMPORARY VIEW ", ""
    else:
        verb, prefix = "CREATE OR REPLACE VIEW ", f"{store.schema}."
    tables = {name: prefix + name for name in found}
    for name, query in VIEWS.items():
        if all(f"{{{table}}}" not in query or table in tables for table in KEPT):
            store.spark.sql(f"{verb}{prefix}{name} AS {query.format(**tables)}")
