"""The reader of ``kafka_log_dir``."""

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


class LogReader(DataSourceReader):
    """Plans the tasks on the driver, and reads in them.

    Parameters
    ----------
    options
        The options.
    schema
        The schema of the table, or some of its columns.

    Raises
    ------
    UsageError
        If a column is not in the table, or has another type there.
    """

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self.options = options
        self.columns = selected(schema, options.table)

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """The input of each task."""
        return plan(self.options)

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        # For an empty plan, Spark adds a partition of another type.
        if isinstance(partition, SegmentRanges | WholeLogs):
            found = without_damage(read_work(partition, self.options), self.options.mode)
            yield from record_batches(found, self.columns)
        freeze_modules()


_FROZEN: set[bool] = set()  # whether numba was loaded, with most of the modules


def freeze_modules() -> None:
    """Exclude the loaded modules from garbage collection, once per worker, and again after numba was loaded.

    A reused worker collects garbage after each task. Scanning all modules takes longer than reading 100 MB of a log.
    """
    with_numba = "numba" in sys.modules
    if TaskContext.get() is not None and with_numba not in _FROZEN:
        _FROZEN.add(with_numba)
        gc.collect()
        gc.freeze()
