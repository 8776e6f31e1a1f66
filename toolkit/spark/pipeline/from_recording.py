"""A recording as a source of the pipeline: the samples after those already stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.session import SparkSession as ClassicSession

from toolkit.formats.log_paths import log_path
from toolkit.schema import RECORDED
from toolkit.sources.recording.recording_folder import EMPTY, current_files
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.pipeline.tables.staging_table import LOG
from toolkit.spark.pipeline.tables.stored_tables import RECORDED_AS
from toolkit.spark.pipeline.tables.table_store import NOT_THERE, TableStore, sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
RECORDING = "recording:"  # before its path
TRIES = 5
GONE = ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException", "SparkFileNotFoundException")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSamples:
    """A recording, as listed once: its samples after the last stored one are new."""

    spark: SparkSession  # the session
    path: str  # the folder of the recording
    listed: int  # number of samples
    # oldest, newest: due times of these samples; null without any. A sample without a row in ``samples`` is incomplete
    # and does not count.
    oldest: dt.datetime | None
    newest: dt.datetime | None
    after: dt.datetime | None  # due time of the last stored one

    @property
    def log(self) -> str:
        """The name of its stored rows."""
        return f"{RECORDING}{self.path}"

    @property
    def has_new(self) -> bool:
        """Whether there are new samples."""
        return self.newest is not None and (self.after is None or self.newest > self.after)

    def count_new(self) -> int:
        """Number of new samples."""
        return _retried(lambda: self.rows("samples").count()) if self.has_new else 0

    def rows(self, table: str) -> DataFrame:
        """The new rows of a table of ``schema.RECORDED``."""
        rows = _read(self.spark, self.path, table, after=self.after).withColumn(LOG, sf.lit(self.log))
        return rows.where(self.is_new).where(sf.col("sampled_at") <= sf.lit(self.newest))

    @property
    def is_new(self) -> str:
        """Condition in SQL for the rows of new samples; stored ones are of a killed run."""
        times = [f"sampled_at >= TIMESTAMP '{self.oldest}'"]
        if self.after is not None:
            times.append(f"sampled_at > TIMESTAMP '{self.after}'")
        return " AND ".join([f"{LOG} = {sql_text(self.log)}", *times])


def store_samples(store: TableStore, name: str, recordings: Sequence[RecordedSamples], *, run_id: int) -> None:
    """Add the new rows of a table of ``schema.RECORDED``; stored rows stay when the recorder deletes samples."""

    def write() -> None:
        rows = reduce(DataFrame.unionByName, (each.rows(name) for each in recordings))
        replaced = " OR ".join(f"({each.is_new})" for each in recordings)
        store.replace(RECORDED_AS[name], RECORDED[name], rows, run_id=run_id, replaced=replaced)

    _retried(write)


def is_recording(spark: SparkSession, path: str) -> bool:
    """Whether a path is a recording; also for paths that only Spark can read."""
    found = log_path(path)
    if isinstance(spark, ClassicSession) and found.exists():  # without a Spark job
        return (found / "samples").is_dir()
    try:
        return bool(spark.read.schema(struct_type(RECORDED["samples"])).parquet(f"{path}/samples").columns)
    except PySparkException as error:
        is_absent = isinstance(error, AnalysisException) and error.getCondition() in NOT_THERE
        if not is_absent and isinstance(found, Path):  # Spark may lack the file system of an object store
            raise
        return False


def list_samples(spark: SparkSession, path: str, *, stored: Mapping[str, dt.datetime]) -> RecordedSamples:
    """List the samples of a recording. `stored`: the last stored sample of each, by `log`."""
    numbers = [sf.count("sampled_at").alias("listed"), sf.min("sampled_at").alias("oldest")]
    numbers.append(sf.max("sampled_at").alias("newest"))
    (row,) = _retried(lambda: _read(spark, path, "samples").agg(*numbers).toArrow()).to_pylist()
    return RecordedSamples(spark=spark, path=path, **row, after=stored.get(f"{RECORDING}{path}"))


def _read(spark: SparkSession, path: str, table: str, *, after: dt.datetime | None = None) -> DataFrame:
    """Rows of a table: of the files that have samples after a time, each sample once."""
    reader, folder = spark.read.schema(struct_type(RECORDED[table])), f"{path}/{table}"
    files = current_files(lambda: (each.rpartition("/")[2] for each in reader.parquet(folder).inputFiles()))
    names = [file.name for file in files if after is None or file.stop > after] or [EMPTY]
    return reader.parquet(*(f"{folder}/{name}" for name in names))


def _retried(read: Callable[[], Result]) -> Result:
    """Read again if the recorder has merged files since they were listed."""
    for _ in range(TRIES - 1):
        try:
            return read()
        except PySparkException as error:
            if not any(text in str(error) for text in GONE):
                raise
    return read()
