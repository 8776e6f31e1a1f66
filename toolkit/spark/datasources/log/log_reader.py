"""What Spark plans and reads ``kafka_log_dir`` with."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from toolkit.spark.datasources.log.log_options import LogOptions
from toolkit.spark.datasources.log.log_plan import plan
from toolkit.spark.datasources.log.log_task import read_work
from toolkit.spark.datasources.log.row_batches import record_batches, selected, without_damage
from toolkit.spark.datasources.log.task_input import SegmentRanges, WholeLogs
from toolkit.spark.spark_errors import each_without_traceback, without_traceback

__all__ = ["LogReader"]


class LogReader(DataSourceReader):
    """Shares the work out on the driver, and does it in tasks.

    Parameters
    ----------
    options
        The options.
    schema
        The table's own, or some of its columns.

    Raises
    ------
    UsageError
        If the table has no such columns.
    """

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self.options = options
        self.columns = selected(schema, options.table)

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """What each task reads."""
        return plan(self.options)

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        if isinstance(
            partition, SegmentRanges | WholeLogs
        ):  # where there is nothing to read, Spark plans a task of its own
            found = without_damage(read_work(partition, self.options), self.options.mode)
            yield from record_batches(found, self.columns)
        spare_what_is_loaded()


_SPARED: set[bool] = set()  # whether numba was there: its modules are the most


def spare_what_is_loaded() -> None:
    """Leave the modules that are loaded by now out of garbage collections, once in a worker.

    A worker that is used again collects garbage after each task, and scanning all modules takes longer
    than to read a hundred megabytes of a log.
    """
    with_numba = "numba" in sys.modules
    if TaskContext.get() is not None and with_numba not in _SPARED:
        _SPARED.add(with_numba)
        gc.collect()
        gc.freeze()
