"""A recording of the flight recorder for the pipeline: samples behind those that are kept."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.session import SparkSession as ClassicSession

from toolkit.schema import RECORDED, Row
from toolkit.spark.datasources.arrow_types import struct_type
from toolkit.spark.pipeline.kept_tables import RECORDED_AS
from toolkit.spark.pipeline.staging_table import LOG
from toolkit.spark.pipeline.table_store import NOT_THERE, TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RecordedSamples", "is_recording", "list_samples", "store_samples"]

TRIES = 5
GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "SparkFileNotFoundException")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSamples:
    """A recording as it was at one time.

    Parameters
    ----------
    spark
        The session.
    path
        The folder of the recording.
    listed
        How many samples it has.
    newest
        When the newest of them was due; null where there is none. What has no row in ``samples`` is not whole, and does
        not count.
    """

    spark: SparkSession
    path: str
    listed: int
    newest: dt.datetime | None

    @property
    def log(self) -> str:
        """Its name among the states."""
        return f"recording:{self.path}"

    def after(self, states: Mapping[str, Row]) -> dt.datetime | None:
        """The sample up to which it is kept; null for none."""
        state = states.get(self.log)
        return None if state is None else state["latest"]

    def has_new(self, states: Mapping[str, Row]) -> bool:
        """Whether there are samples behind those that are kept."""
        after = self.after(states)
        return self.newest is not None and (after is None or self.newest > after)

    def count_new(self, states: Mapping[str, Row]) -> int:
        """How many samples are behind those that are kept."""
        return self.rows("samples", self.after(states)).count()

    def rows(self, table: str, after: dt.datetime | None) -> DataFrame:
        """Rows of a table of ``schema.RECORDED`` of the samples behind one, up to `newest`."""
        rows = _read(self.spark, self.path, table).where(sf.col("sampled_at") <= sf.lit(self.newest))
        return rows if after is None else rows.where(sf.col("sampled_at") > sf.lit(after))


def store_samples(
    store: TableStore, name: str, recordings: Sequence[RecordedSamples], states: Mapping[str, Row], *, run_id: int
) -> None:
    """Add the new rows of a table of ``schema.RECORDED``; what the recorder has deleted stays."""
    for left in reversed(range(TRIES)):
        frames = [each.rows(name, each.after(states)).withColumn(LOG, sf.lit(each.log)) for each in recordings]
        try:
            store.write(
                RECORDED_AS[name],
                RECORDED[name],
                reduce(DataFrame.unionByName, frames),
                run_id=run_id,
            )
        except PySparkException as error:  # the recorder has merged files since they were listed
            if left == 0 or not any(text in str(error) for text in GONE):
                raise
        else:
            return


def is_recording(spark: SparkSession, path: str) -> bool:
    """Whether a path is a folder of a recording, wherever Spark reads it."""
    if isinstance(spark, ClassicSession) and Path(path).exists():  # that takes no job
        return Path(path, "samples").is_dir()
    try:
        return bool(_read(spark, path, "samples").columns)
    except AnalysisException as error:
        if error.getCondition() not in NOT_THERE:
            raise
        return False


def list_samples(spark: SparkSession, path: str) -> RecordedSamples:
    """List the samples of a recording."""
    found = _read(spark, path, "samples").agg(
        sf.count("sampled_at").alias("listed"), sf.max("sampled_at").alias("newest")
    )
    (row,) = found.toArrow().to_pylist()
    return RecordedSamples(spark=spark, path=path, **row)


def _read(spark: SparkSession, path: str, table: str) -> DataFrame:
    return spark.read.schema(struct_type(RECORDED[table])).parquet(f"{path}/{table}")
