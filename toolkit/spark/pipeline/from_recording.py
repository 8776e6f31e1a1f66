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
from toolkit.spark.pipeline.tables.staging_table import LOG, StoredState
from toolkit.spark.pipeline.tables.stored_tables import RECORDED_AS
from toolkit.spark.pipeline.tables.table_store import NOT_THERE, TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
TRIES = 5
GONE = ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException", "SparkFileNotFoundException")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSamples:
    """A recording, as listed once."""

    spark: SparkSession  # the session
    path: str  # the folder of the recording
    listed: int  # number of samples
    # due time of the newest sample; null without any. A sample without a row in ``samples`` is incomplete and does not
    # count.
    newest: dt.datetime | None

    @property
    def log(self) -> str:
        """The name of its state."""
        return f"recording:{self.path}"

    def after(self, states: Mapping[str, StoredState]) -> dt.datetime | None:
        """Due time of the last stored sample; null for none."""
        state = states.get(self.log)
        return None if state is None else state.latest

    def has_new(self, states: Mapping[str, StoredState]) -> bool:
        """Whether there are samples after the last stored one."""
        after = self.after(states)
        return self.newest is not None and (after is None or self.newest > after)

    def count_new(self, states: Mapping[str, StoredState]) -> int:
        """Number of samples after the last stored one."""
        return _retried(lambda: self.rows("samples", self.after(states)).count())

    def rows(self, table: str, after: dt.datetime | None) -> DataFrame:
        """Rows of a table of ``schema.RECORDED``: all samples after a time, up to `newest`."""
        rows = _read(self.spark, self.path, table, after=after).where(sf.col("sampled_at") <= sf.lit(self.newest))
        return rows if after is None else rows.where(sf.col("sampled_at") > sf.lit(after))


def store_samples(
    store: TableStore,
    name: str,
    recordings: Sequence[RecordedSamples],
    states: Mapping[str, StoredState],
    *,
    run_id: int,
    last_run: int,
) -> None:
    """Add the new rows of a table of ``schema.RECORDED``; stored rows stay when the recorder deletes samples."""

    def write() -> None:
        frames = [each.rows(name, each.after(states)).withColumn(LOG, sf.lit(each.log)) for each in recordings]
        rows = reduce(DataFrame.unionByName, frames)
        store.write(RECORDED_AS[name], RECORDED[name], rows, run_id=run_id, last_run=last_run)

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


def list_samples(spark: SparkSession, path: str) -> RecordedSamples:
    """List the samples of a recording."""
    newest = sf.max("sampled_at").alias("newest")
    found = _retried(
        lambda: _read(spark, path, "samples").agg(sf.count("sampled_at").alias("listed"), newest).toArrow()
    )
    (row,) = found.to_pylist()
    return RecordedSamples(spark=spark, path=path, **row)


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
