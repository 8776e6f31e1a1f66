"""The declarative pipeline: the tables of `kafka-txn pipeline` by ``spark-pipelines`` on the same log directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from tests.spark.test_pipeline import sorted_rows, stored_rows
from toolkit.lab import samples
from toolkit.spark.pipeline.pipeline_run import run
from toolkit.spark.pipeline.stored_tables import KEPT, STORED_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NAMES = ("log_transactions", "lso_timeline", "transaction_history", "lso_holds", "findings")


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_declarative_pipeline_makes_the_tables_of_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    logs = str(samples.load("late-message").log_dir().paths[0])
    folder = tmp_path / "declarative"
    shutil.copytree(ROOT / "notebooks" / "declarative", folder, ignore=shutil.ignore_patterns("__pycache__"))
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text().replace("/Volumes/main/kafka/logs", logs).replace('"false"', '"true"')
    spec.write_text(text.replace("file:///Volumes/main/kafka/pipeline", (tmp_path / "storage").as_uri()))
    checked = spark_pipelines("dry-run", folder)
    assert checked.returncode == 0, checked.stdout[-3000:]
    assert not [*folder.rglob("*.parquet")]
    done = spark_pipelines("run", folder)  # it prints everything to stdout
    # The client of pyspark 4.2 fails on the server's last response, of a run that is complete.
    assert done.returncode == 0 or "UNKNOWN_RESPONSE" in done.stdout, done.stdout[-3000:]
    out = tmp_path / "out"
    run(spark, logs, str(out), consistent_copy=True)
    for name in NAMES:
        table = KEPT[name]
        found = pyarrow.parquet.read_table(folder / "spark-warehouse" / name)
        stored = found.select([STORED_NAMES.get(each, each) for each in table.names])
        made = sorted_rows(stored.rename_columns(table.names), table)
        assert made == stored_rows(out, name), name
        assert made, name


def spark_pipelines(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not re.match("PYSPARK_|SPARK_", name)}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = str(Path(sys.executable).with_name("spark-pipelines"))
    return subprocess.run(
        [program, command, "--spec", "spark-pipeline.yml"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
    )
