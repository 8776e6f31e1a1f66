"""Markers on other partitions prove an outcome in Spark, too, where each partition is another task's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.sources.test_logdir_other_markers import SkippedMarker
from tests.spark.read_log import plan_read
from toolkit.sources.logdir.contents import FileAssertions
from toolkit.spark import register
from toolkit.spark.pipeline.run_sources import list_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASSERTED = FileAssertions(consistent_copy=True)
COLUMNS = ["verdict", "outcome", "action", "reason"]


def test_tasks_read_markers_of_other_tasks_partitions(spark: SparkSession, tmp_path: Path) -> None:
    files = SkippedMarker(tmp_path)
    expected = [files.finding()[name] for name in COLUMNS]
    assert expected[1] == "commit"
    options = {"table": "findings", "consistentCopy": "true", "maxPartitionBytes": "1k", "subscribe": "left, right"}
    _, tasks = plan_read(files.root, **options)
    assert len(tasks) == 2
    register(spark)
    found = spark.read.format("kafka_log_dir").options(**options).load(str(files.root))
    assert [list(row) for row in found.where("topic = 'left' and producer_id = 7").select(*COLUMNS).collect()] == [
        expected
    ]
    of_pipeline = list_files(spark, [str(files.root)], topics=["left"], assertions=ASSERTED).current_findings()
    assert [[row[name] for name in COLUMNS] for row in of_pipeline.to_pylist() if row["producer_id"] == 7] == [expected]
