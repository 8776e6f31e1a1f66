"""The tables that the pipeline stores: a folder of Delta or Parquet tables, or a schema of Delta tables in a catalog.

Every table has the columns that ``toolkit.schema`` declares, in that order; then `run_id`, the number of the run that
wrote the row; ``log``, the row's log; and ``is_final``: false if the next run replaces the row. Only Delta Lake is
needed to read them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from toolkit import schema
from toolkit.errors import NotFound, UsageError
from toolkit.schema import Row, Table
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.pipeline.staging_table import IS_FINAL, LOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FORMATS = ("delta", "parquet")
RUN_ID = "run_id"
"""Column of every stored row: the number of the run that wrote it."""

EXTRA = (StructField(RUN_ID, LongType()), StructField(LOG, StringType()), StructField(IS_FINAL, BooleanType()))
"""Columns of stored rows after the declared ones."""

NOT_THERE = {
    *("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"),
    *("DELTA_MISSING_DELTA_TABLE", "UNABLE_TO_INFER_SCHEMA"),
}
NAMES = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStore:
    """Tables of one target.

    Parameters
    ----------
    spark
        The session.
    path
        Path or URL of the folder for Spark; null for a catalog.
    schema
        Schema of the tables in a catalog (``catalog.schema`` or ``schema``); null for a folder.
    format
        ``delta`` or ``parquet``.
    """

    spark: SparkSession
    path: str | None = None
    schema: str | None = None
    format: str = "delta"

    @property
    def target(self) -> str:
        """The name of the target."""
        return self.path or self.schema or ""

    def load(self, name: str, table: Table) -> DataFrame:
        """A stored table with the declared columns and `EXTRA`; empty if it does not exist.

        A column that was declared after the table was written is null.
        """
        declared = (StructField(f.name, f.dataType, True, f.metadata) for f in struct_type(table) if f.name != LOG)
        schema_type = StructType([*declared, *EXTRA])
        frame = self.find(name)
        if frame is None:
            return self.spark.createDataFrame([], schema_type)
        have = set(frame.columns)
        return frame.select(
            *(
                sf.col(f"`{field.name}`") if field.name in have else sf.lit(None).cast(field.dataType).alias(field.name)
                for field in schema_type
            )
        )

    def rows(self, name: str, table: Table, *columns: str) -> list[Row]:
        """Rows of a small stored table: some columns, or the declared ones; no rows if it does not exist."""
        if self.find(name) is None:
            return []
        found: list[Row] = self.load(name, table).select(*(columns or table.names)).toArrow().to_pylist()
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
        changed: Collection[str] | None = None,
        obsolete: Iterable[str] = (),
    ) -> None:
        """Add the rows of a run and delete obsolete ones, in one transaction.

        Obsolete are rows of earlier runs that are not final, and rows of a killed run with the same number.

        Parameters
        ----------
        name, table
            Name and declaration of the table.
        rows
            Rows with the declared columns; rows of logs also with `LOG` and `IS_FINAL`.
        run_id
            Number of the run.
        changed
            The logs of `rows`: rows of other logs stay, even if not final; null for all logs.
        obsolete
            SQL conditions for further obsolete rows.
        """
        new = self._numbered(rows, table, run_id)
        if self.format == "parquet" or self.find(name) is None:
            self._create(name, new, comment=table.row, partitions=[IS_FINAL])
            return
        if changed is not None:
            stored = self.load(name, table).where(~sf.col(IS_FINAL) & (sf.col(RUN_ID) < run_id))
            logs = self.spark.createDataFrame([(log,) for log in changed], f"{LOG} string")
            others = stored.join(sf.broadcast(logs), LOG, "left_anti")
            new = new.unionByName(others.select(*new.columns))
        conditions = [f"NOT {IS_FINAL}", f"{RUN_ID} >= {run_id}", *(f"({each})" for each in obsolete)]
        self._overwrite(name, new, mergeSchema="true", replaceWhere=" OR ".join(conditions))

    def replace(self, name: str, table: Table, rows: DataFrame, *, run_id: int) -> None:
        """Replace all rows of a table."""
        new = self._numbered(rows, table, run_id)
        if self.format == "parquet" or self.find(name) is None:
            self._create(name, new, comment=table.row)
        else:
            self._overwrite(name, new, overwriteSchema="true")

    def replace_plain(self, name: str, rows: DataFrame) -> DataFrame:
        """Replace a table with rows as they are, without further columns, and return the stored table."""
        if self.format == "parquet" or self.find(name) is None:
            self._create(name, rows, comment="a row that the last run wrote to one of the other tables")
        else:
            self._overwrite(name, rows, overwriteSchema="true")
        found = self.find(name)
        assert found is not None
        return found

    def _numbered(self, rows: DataFrame, table: Table, run_id: int) -> DataFrame:
        have = set(rows.columns)
        log = sf.col(LOG) if LOG in have else sf.lit(None).cast("string")
        is_final = sf.col(IS_FINAL) if IS_FINAL in have else sf.lit(True)
        return rows.select(
            *(
                sf.col(each.name).alias(each.name, metadata={"comment": each.doc})
                for each in table.columns
                if each.name != LOG
            ),
            sf.lit(run_id).cast("long").alias(RUN_ID),
            log.alias(LOG),
            is_final.alias(IS_FINAL),
        )

    def _create(self, name: str, rows: DataFrame, *, comment: str, partitions: Sequence[str] = ()) -> None:
        if self.format == "parquet":
            rows.write.partitionBy(*partitions).parquet(f"{self.path}/{name}")
            return
        where = f"delta.`{self.path}/{name}`" if self.schema is None else f"{self.schema}.{name}"
        writer = rows.writeTo(where).using("delta").tableProperty("comment", f"One row: {comment}.")
        if partitions:
            writer = writer.partitionedBy(*map(sf.col, partitions))
        writer.createOrReplace()  # a run that was killed before its commit may have left files

    def _overwrite(self, name: str, rows: DataFrame, **options: str) -> None:
        writer = rows.write.format("delta").mode("overwrite").options(**options)
        if self.schema is None:
            writer.save(f"{self.path}/{name}")
        else:
            writer.saveAsTable(f"{self.schema}.{name}")


def open_store(spark: SparkSession, target: str, *, format: str = "delta") -> TableStore:
    """The store of a target.

    Parameters
    ----------
    spark
        The session.
    target
        A folder: any path or URL with a slash in it; or a schema: ``catalog.schema``, or one word.
    format
        ``delta`` or ``parquet``.

    Raises
    ------
    UsageError
        If the target or the format is invalid.
    NotFound
        If the catalog has no such schema.
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


RECORDED_AS = {name: f"recorded_{name}" for name in schema.RECORDED}
"""Stored names of the tables of a recording; most of the plain names are tables of a cluster, too."""

KEPT: Mapping[str, Table] = {
    "batches": schema.BATCHES,
    "log_transactions": schema.LOG_TRANSACTIONS,
    "lso_timeline": schema.LSO_TIMELINE,
    "transaction_history": schema.TRANSACTION_HISTORY,
    **{RECORDED_AS[name]: table for name, table in schema.RECORDED.items()},
    "lso_holds": schema.LSO_HOLDS,
    "findings": schema.FINDINGS,
}
"""The stored tables by name."""


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
    """
    if table not in KEPT:
        raise UsageError(f"There is no table {table}.", do=f"Use one of {', '.join(KEPT)}.")
    return open_store(spark, target, format=format).load(table, KEPT[table]).select(*KEPT[table].names)
