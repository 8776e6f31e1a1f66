"""A recording of the flight recorder into the store, day by day."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sf

from toolkit.schema import RECORDED
from toolkit.spark.ledger import Ledger, digest
from toolkit.spark.store import NOT_THERE, RUN, Store
from toolkit.spark.tables import DAY, KEPT, RECORDED_AS
from toolkit.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RecordedDays", "is_recording", "list_days"]

Day = Sequence[dt.datetime]
TRIES = 5
GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "SparkFileNotFoundException")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDays:
    """A recording as it was at one time.

    Parameters
    ----------
    spark
        The session.
    path
        The folder of the recording.
    days
        When the samples of each day (``2026-11-21``, UTC) were due, those that saw nothing included.
    """

    spark: SparkSession
    path: str
    days: Mapping[str, Day]

    @property
    def listed(self) -> int:
        """How many samples there are."""
        return sum(map(len, self.days.values()))

    def changed(self, ledger: Ledger) -> Mapping[str, Day]:
        """The days of which samples are new. Those that the recorder has deleted stay as they are stored."""
        return {
            day: samples
            for day, samples in self.days.items()
            if not ledger.is_made(RECORDED_AS["samples"], self.unit(day), given=_signature(samples))
        }

    def unit(self, day: str) -> str:
        """The name of a day of this recording."""
        return f"{day}@{digest(self.path)[:8]}"

    def begin(self, ledger: Ledger) -> None:
        """Note what is about to be stored."""
        ledger.begin_made(RECORDED_AS["samples"], [self.unit(day) for day in self.changed(ledger)])

    def store(self, store: Store, table: str, days: Mapping[str, Day], *, run: int) -> None:
        """Write the rows of some days.

        Parameters
        ----------
        table
            Its name in `RECORDED_AS`.
        """
        name = KEPT[table].table.name
        days_of = [(sample, self.unit(day)) for day, samples in days.items() for sample in samples]
        columns = {
            "sample": pa.array([sample for sample, _ in days_of], pa.timestamp("us", tz="UTC")),
            DAY: pa.array([unit for _, unit in days_of]),
        }
        wanted = sf.broadcast(self.spark.createDataFrame(pa.table(columns)))
        for left in reversed(range(TRIES)):
            rows = _read(self.spark, self.path, name).join(wanted, "sample")
            numbered = rows.select(*RECORDED[name].names, sf.lit(run).cast("long").alias(RUN), DAY)
            try:
                store.replace_units(table, numbered.hint("rebalance", sf.col(DAY)), [DAY])
            except PySparkException as error:  # the recorder has merged files since they were listed
                if left == 0 or not any(text in str(error) for text in GONE):
                    raise
            else:
                return

    def end(self, ledger: Ledger, days: Mapping[str, Day]) -> None:
        """Note what is stored."""
        ledger.end_made(RECORDED_AS["samples"], {self.unit(day): _signature(samples) for day, samples in days.items()})


def is_recording(spark: SparkSession, path: str) -> bool:
    """Whether a path is a folder of a recording, wherever Spark reads it."""
    try:
        return bool(_read(spark, path, "samples").columns)
    except AnalysisException as error:
        if error.getCondition() not in NOT_THERE:
            raise
        return False


def list_days(spark: SparkSession, path: str) -> RecordedDays:
    """List what a recording has. What has no row in ``samples`` is not whole, and does not count."""
    days: dict[str, list[dt.datetime]] = defaultdict(list)
    for sample in sorted(_read(spark, path, "samples").select("sample").toArrow()["sample"].to_pylist()):
        days[f"{sample.astimezone(dt.UTC):%Y-%m-%d}"].append(sample)
    return RecordedDays(spark=spark, path=path, days=days)


def _read(spark: SparkSession, path: str, table: str) -> DataFrame:
    return spark.read.schema(struct_type(RECORDED[table])).parquet(f"{path}/{table}")


def _signature(samples: Day) -> str:
    return f"{len(samples)} to {samples[-1].isoformat()}"
