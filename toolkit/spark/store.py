"""Where tables are kept: a folder of Parquet or Delta tables, or tables of a schema in a catalog.

Only what Spark does on all of them is used: a part of a table is replaced by writing to its partition, and taken away
by writing nothing there. A crash leaves a part as it was, or new, or not there at all; never half of it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from toolkit.errors import NotFound, UsageError
from toolkit.schema import Table
from toolkit.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "RUN", "Store", "open_store"]

FORMATS = ("parquet", "delta")
RUN = "run"
"""Column of every stored row: the number of the run that wrote it."""

OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
NOT_THERE = {
    *("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"),
    *("DELTA_MISSING_DELTA_TABLE", "UNABLE_TO_INFER_SCHEMA"),
}
UNFINISHED = "*/.spark-staging-*"
NAMES = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Tables in one place.

    Parameters
    ----------
    spark
        The session.
    path
        Folder of the tables, as Spark names it; null for a catalog.
    schema
        Schema of the tables in a catalog (``catalog.schema`` or ``schema``); null for a folder.
    format
        ``parquet`` or ``delta``.
    """

    spark: SparkSession
    path: str | None = None
    schema: str | None = None
    format: str = "parquet"

    def where(self, name: str) -> str:
        """Path or name of a table."""
        return f"{self.path}/{name}" if self.schema is None else f"{self.schema}.{name}"

    def load(self, name: str, table: Table, *, units: Sequence[str] = ()) -> DataFrame:
        """A stored table with the columns that are declared, `RUN`, and those of its units; empty if it is not there.

        A column that was declared after the table had been written is null.

        Parameters
        ----------
        units
            Columns that the table is partitioned by.
        """
        wanted = stored_type(table, units)
        try:
            frame = self._stored(name, wanted)
            have = set(frame.columns)
        except AnalysisException as error:
            if error.getCondition() not in NOT_THERE:
                raise
            return self.spark.createDataFrame([], wanted)
        return frame.select(
            *(
                sf.col(f"`{field.name}`") if field.name in have else sf.lit(None).cast(field.dataType).alias(field.name)
                for field in wanted
            )
        )

    def replace_units(self, name: str, frame: DataFrame, units: Sequence[str]) -> None:
        """Write the units that rows of a frame are of in the place of what was stored of them; the others stay."""
        writer = frame.write.format(self.format).mode("overwrite").option("partitionOverwriteMode", "dynamic")
        if self.schema is None:
            writer.partitionBy(*units).save(self.where(name))
        elif self.format == "delta":
            writer.partitionBy(*units).option("mergeSchema", "true").saveAsTable(self.where(name))
        else:
            self._insert(name, frame, units)

    def replace(self, name: str, frame: DataFrame) -> None:
        """Write a whole table in the place of what was stored."""
        writer = frame.write.format(self.format).mode("overwrite")
        if self.schema is None:
            writer.option("overwriteSchema", "true").save(self.where(name))
        elif self.format == "delta":
            writer.option("overwriteSchema", "true").saveAsTable(self.where(name))
        else:
            self._insert(name, frame, ())

    def remove_units(self, name: str, table: Table, units: Sequence[Mapping[str, str]]) -> None:
        """Take units out of a stored table; one that is not there is none to take out."""
        if not units or not self._is_there(name, table, list(units[0])):
            return
        if self.format == "delta":
            which = " OR ".join("(" + " AND ".join(_equal(unit)) + ")" for unit in units)
            there = f"delta.`{self.where(name)}`" if self.schema is None else self.where(name)
            self.spark.sql(f"DELETE FROM {there} WHERE {which}")  # noqa: S608  our own names
            return
        nothing = self.spark.createDataFrame([], stored_type(table, ()))
        for unit in units:
            if self.schema is None:
                folder = "/".join(f"{name}={value}" for name, value in unit.items())
                nothing.write.mode("overwrite").parquet(f"{self.where(name)}/{folder}")
            else:
                which = ", ".join(_equal(unit))
                nulls = ", ".join(
                    f"CAST(NULL AS {field.dataType.simpleString()})"
                    for field in self._columns(name)
                    if field.name not in unit
                )
                self.spark.sql(
                    f"INSERT OVERWRITE TABLE {self.where(name)} PARTITION ({which}) SELECT {nulls} WHERE false"
                )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While tables of a catalog are written: Spark takes this from the session, not from the writer."""
        if self.schema is None or self.format == "delta":
            yield
            return
        before = self.spark.conf.get(OVERWRITE_MODE, None)
        self.spark.conf.set(OVERWRITE_MODE, "dynamic")
        try:
            yield
        finally:
            if before is None:
                self.spark.conf.unset(OVERWRITE_MODE)
            else:
                self.spark.conf.set(OVERWRITE_MODE, before)

    def sweep(self) -> None:
        """Remove what crashed writers have left unfinished in a folder of this machine; nobody reads it."""
        if self.path is not None and "://" not in self.path:
            for left in Path(self.path).glob(UNFINISHED):
                shutil.rmtree(left, ignore_errors=True)

    def _stored(self, name: str, wanted: StructType) -> DataFrame:
        if self.schema is not None:
            return self.spark.table(self.where(name))
        reader = self.spark.read.format(self.format)
        if self.format == "parquet":
            reader = reader.schema(wanted)  # types of folders' names are guessed otherwise, and so are columns
        return reader.load(self.where(name))

    def _is_there(self, name: str, table: Table, units: Sequence[str]) -> bool:
        try:
            return bool(self._stored(name, stored_type(table, units)).columns)
        except AnalysisException as error:
            if error.getCondition() not in NOT_THERE:
                raise
            return False

    def _insert(self, name: str, frame: DataFrame, units: Sequence[str]) -> None:
        """Into a Parquet table of the catalog, which knows columns by their place only."""
        there = self.where(name)
        if not self.spark.catalog.tableExists(there):
            frame.limit(0).write.format(self.format).partitionBy(*units).saveAsTable(there)
        stored = self._columns(name)
        have = {field.name for field in stored}
        if new := [field for field in frame.schema if field.name not in have]:
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in new)
            self.spark.sql(f"ALTER TABLE {there} ADD COLUMNS ({columns})")
            stored = self._columns(name)
        given = set(frame.columns)
        ordered = [
            sf.col(f"`{field.name}`") if field.name in given else sf.lit(None).cast(field.dataType).alias(field.name)
            for field in stored
        ]
        frame.select(*ordered).write.insertInto(there, overwrite=True)

    def _columns(self, name: str) -> StructType:
        return self.spark.table(self.where(name)).schema


def open_store(spark: SparkSession, target: str, *, format: str = "parquet") -> Store:
    """The store that a target names.

    Parameters
    ----------
    target
        A folder: any path or URL with a slash in it; or a schema: ``catalog.schema``, or one word.
    format
        ``parquet`` or ``delta``.

    Raises
    ------
    UsageError
        If it is neither, or there is no such format.
    NotFound
        If the catalog has no such schema.
    """
    if format not in FORMATS:
        raise UsageError(f"Tables are not written as {format}.", do=f"Say one of {', '.join(FORMATS)}.")
    if "/" in target or "\\" in target:
        return Store(spark=spark, path=target.rstrip("/"), format=format)
    if not NAMES.fullmatch(target):
        raise UsageError(f"{target!r} is neither a folder nor a schema.", do="Say a path with a slash, or a.schema.")
    try:
        found = spark.catalog.databaseExists(target)
    except PySparkException:
        found = False  # no such catalog
    if not found:
        raise NotFound(
            f"The catalog has no schema {target}.", do=f"CREATE SCHEMA {target}; or for a folder say ./{target}."
        )
    return Store(spark=spark, schema=target, format=format)


def stored_type(table: Table, units: Sequence[str]) -> StructType:
    """Columns of a stored table: those that are declared, `RUN`, and those of its units."""
    given = [StructField(field.name, field.dataType, True, field.metadata) for field in struct_type(table)]
    return StructType([*given, StructField(RUN, LongType()), *(StructField(unit, StringType()) for unit in units)])


def _equal(unit: Mapping[str, str]) -> Iterator[str]:
    for name, value in unit.items():
        yield "`{}` = '{}'".format(name, value.replace("\\", "\\\\").replace("'", "\\'"))
