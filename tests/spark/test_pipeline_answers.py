"""The pipeline on files of the corpus, cut at first and then whole: all that it stores, and its summaries, as text."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.corpus.calls import json_line
from tests.corpus.file_calls import archives, clock_of, unpacked
from tests.stored import compare
from toolkit.spark.pipeline import run_sources
from toolkit.spark.pipeline.pipeline_run import RunSummary, run
from toolkit.spark.pipeline.stored_tables import KEPT, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INPUT = "4.3.1-lost-marker-files"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Log directories whose logs end within a batch."""
    folder = tmp_path / "files"
    shutil.copytree(unpacked(archives()[INPUT]), folder)
    for log in folder.glob("log-dir-*/*/*.log"):
        os.truncate(log, log.stat().st_size * 3 // 5)
    return folder


def test_what_two_runs_store(
    spark: SparkSession, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run reads in this process, the others in tasks."""
    whole, target = unpacked(archives()[INPUT]), str(tmp_path / "tables")
    lines = list[str]()
    for is_whole in (False, True, True):
        if is_whole:
            shutil.copytree(whole, copied, dirs_exist_ok=True)
            monkeypatch.setattr(run_sources, "SMALL", 0)
        summary = run(
            spark,
            sorted(copied.glob("log-dir-*")),
            target,
            min_held_ms=0,
            consistent_copy=True,
            as_of=clock_of(whole).at,
            with_batches=True,
        )
        lines += [*_of_summary(summary), ""]
    store = open_store(spark, target)
    for name, table in KEPT.items():
        rows = sorted(json_line(row.asDict(recursive=True)) for row in store.load(name, table).collect())
        lines += [f"--- {name}", *map(str.rstrip, rows)]
    compare("pipeline.txt", (each.replace(str(tmp_path), "") for each in lines))


def _of_summary(summary: RunSummary) -> Iterator[str]:
    yield "--- run"
    for name, value in dataclasses.asdict(dataclasses.replace(summary, findings=(), seconds=0)).items():
        yield f"{name}: {json.dumps(value, default=str)}"
    yield from (json_line(finding.row()).rstrip() for finding in summary.findings)
