"""The tables that the pipeline stores: a folder of Delta or Parquet tables, or a schema of Delta tables in a catalog.

Tables for the pipeline alone, ``runs``, ``state`` and ``stage``, are in a folder or schema of their own. Only Delta
Lake is needed to read the others (`stored_tables`). Their views are in SQL that Spark, DuckDB and DataFusion
(deltalake) understand: a run makes them in a catalog; for tables in a folder, `create_views` makes them in the session.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from toolkit.errors import NotFound, UsageError
from toolkit.schema import Row, Table
from toolkit.spark.arrow_types import from_arrow, spark_table
from toolkit.spark.datasources.log_identity import LogIdentity
from toolkit.spark.pipeline.stored_tables import (
    CLUSTER_ID,
    FROM_OFFSET,
    IS_FINAL,
    KEPT,
    KEYS,
    LOG,
    RUN_ID,
    STORED_NAMES,
    TOPIC_ID,
    lasting_content,
    rows_by_key,
    stored_type,
    with_extra,
)
from toolkit.spark.spark_errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
MAX_NAMED = 100  # logs in a condition; beyond that, the rows of all logs are written anew


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStore:
    """Tables of one target."""

    spark: SparkSession  # the session
    path: str | None = None  # path or URL of the folder for Spark; null for a catalog
    schema: str | None = None  # schema of the tables in a catalog (``catalog.schema`` or ``schema``); null for a folder
    format: str = "delta"  # ``delta`` or ``parquet``

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
        """A stored table with the declared columns and those of the pipeline."""
        names = with_extra(name, table).names
        return frame.select(*(sf.col(f"`{STORED_NAMES.get(each, each)}`").alias(each) for each in names))

    def rows(self, name: str, table: Table, *columns: str, where: str = "true") -> list[Row]:
        """Rows of a small stored table: some columns, or the declared ones; no rows if it does not exist."""
        if (frame := self.find(name)) is None:
            return []
        chosen = self._declared(name, table, frame).where(where).select(*(columns or table.names))
        found: list[Row] = chosen.toArrow().to_pylist()
        return found

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
        read: Mapping[str, int],
        changed: Collection[str] = (),
        keeps_provisional: bool = True,
    ) -> None:
        """Add the rows of logs and delete those that they replace, in one transaction.

        Of a log that was read, these are rows that are not final, and at or after the offset from which it was read
        rows of a killed run. All other rows stay: another run cannot read what was deleted since.

        `name`, `table`: name and declaration of the table.
        `rows`: rows with the declared columns, `LOG` and `IS_FINAL`.
        `run_id`: number of the run.
        `last_run`: number of the last run that was complete; by default the one before.
        `read`: from which offset each log was read that `rows` are from.
        `changed`: those of them of which rows of earlier runs are replaced, too.
        `keeps_provisional`: whether rows of other logs stay that are not final.
        """
        if (stored := self._to_change(name)) is None:
            self.replace_rows(name, table, rows, run_id=run_id, replaced="false")
            return
        new = self._with_run(name, table, rows, run_id)
        last_run = run_id - 1 if last_run is None else last_run
        conditions = [f"NOT {IS_FINAL}", f"{RUN_ID} > {last_run}"]
        if len(changed) > MAX_NAMED:
            conditions = ["true"]
        elif changed:
            conditions.append(f"{LOG} IN ({', '.join(map(sql_text, changed))})")
        replaced = " OR ".join(conditions)
        types = StructType().add(LOG, "string").add("read_from", "long")
        logs = self.spark.createDataFrame(list(read.items()), types)
        is_read = FROM_OFFSET.get(name, "true").format(offset="read_from")
        of_others = "true" if keeps_provisional else IS_FINAL
        kept = f"CASE WHEN read_from IS NULL THEN {of_others} ELSE {IS_FINAL} AND NOT coalesce({is_read}, false) END"
        others = stored.where(replaced).join(sf.broadcast(logs), LOG, "left").where(kept)
        new = new.unionByName(others.drop("read_from"), allowMissingColumns=True)  # with a user's own columns
        self._save(name, new, mode="overwrite", replaceWhere=replaced)

    def replace_rows(self, name: str, table: Table, rows: DataFrame, *, run_id: int, replaced: str) -> None:
        """Add rows and delete others, in one transaction.

        `name`, `table`, `rows`, `run_id`: as for `write`.
        `replaced`: condition in SQL for the rows to delete; all new rows must meet it, too.
        """
        new = self._with_run(name, table, rows, run_id)
        if self.format == "parquet":
            new.write.parquet(f"{self.path}/{name}")
        elif self._to_change(name) is None:
            self.create(name, table)
            self._save(name, new, mode="append")
        else:
            self._save(name, new, mode="overwrite", replaceWhere=replaced)

    def _to_change(self, name: str) -> DataFrame | None:
        """A stored Delta table; null if there is none."""
        return None if self.format == "parquet" else self.find(name)

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

    def merge(self, name: str, table: Table, rows: Iterable[Row], *, run_id: int) -> int:
        """Change a table to these rows; rows with the same `lasting_content`, and others' columns, are not written.

        `name`, `table`: name and declaration of the table; its key is in `KEYS`.
        `rows`: all rows, with the declared columns and those of the pipeline. Of several with one key, the last is
            kept.
        `run_id`: number of the run.
        Returns: number of rows that were added or changed.
        """
        declared = with_extra(name, table)
        new = rows_by_key(name, declared.arrow([{**row, RUN_ID: run_id} for row in rows]).to_pylist())
        stored = self._to_change(name)
        old: dict[tuple[Any, ...], Row] = {}
        if stored is not None:
            found = self._declared(name, table, stored).select(*declared.names).toArrow()
            old = rows_by_key(name, found.cast(declared.arrow_schema).to_pylist())
        written = [
            row for key, row in new.items() if key not in old or lasting_content(old[key]) != lasting_content(row)
        ]
        deleted = [row for key, row in old.items() if key not in new]
        frame = self._stored_frame(declared, written)
        if self.format == "parquet":
            frame.write.parquet(f"{self.path}/{name}")
        elif stored is None:
            self.create(name, table)
            if written:
                self._save(name, frame, mode="append")
        elif written or deleted:
            gone = self._stored_frame(declared, deleted).withColumn(IS_DELETED, sf.lit(True))
            self._merge(name, frame.withColumn(IS_DELETED, sf.lit(False)).unionByName(gone))
        return len(written)

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
        else:
            return
        rows = self.spark.createDataFrame([], StructType([StructField(f.name, f.dataType) for f in fields]))
        rows.writeTo(self.identifier(name)).using("delta").createOrReplace()
        self.spark.sql(f"REPLACE {declared}")

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
    `spark`: the session.
    `target`: a folder: any path or URL with a slash in it; or a schema: ``catalog.schema``, or one word.
    `format`: ``delta`` or ``parquet``.
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
        "FROM {lso_holds} GROUP BY topic, transactional_id, producer_id"
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
