"""Steps of the LSO from transactions: the rows of pandas, section by section."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from toolkit.spark.log_ends import _logs
from toolkit.spark.lso import OFFSETS_PER_TASK, lso_timeline
from toolkit.spark.spans import spans

from tests.analysis.histories import Step, batches
from tests.spark.frames import arrow, assert_rows, damaged, shuffled
from toolkit import LogDir
from toolkit.analysis.lso import lso_steps, lso_table
from toolkit.analysis.spans import finish, piece, span_table
from toolkit.formats.header_table import header_table
from toolkit.schema import BATCHES, LSO_TIMELINE, PARTITIONS, SPANS, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def assert_same(spark: SparkSession, folder: Path, *, offsets_per_task: int = OFFSETS_PER_TASK) -> None:
    files = LogDir(folder)
    found, rows, partitions = (
        shuffled(spark, arrow(frame, table))
        for frame, table in (
            (files.spans(), SPANS),
            (files.batches(), BATCHES),
            (files.partitions(), PARTITIONS),
        )
    )
    steps = lso_timeline(found, rows, partitions=partitions, offsets_per_task=offsets_per_task)
    assert_rows(steps, arrow(files.lso_timeline(), LSO_TIMELINE), LSO_TIMELINE)


@pytest.mark.lab
@pytest.mark.parametrize("offsets_per_task", [OFFSETS_PER_TASK, 10])
def test_spark_gives_the_steps_of_real_logs(spark: SparkSession, history: Path, offsets_per_task: int) -> None:
    assert_same(spark, history, offsets_per_task=offsets_per_task)


@pytest.mark.lab
def test_spark_gives_the_steps_of_damaged_logs_and_of_other_replicas(
    spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    """These have lost their beginning, and had transactions open there."""
    damaged(history, tmp_path / "one" / "logs")
    copy = Path(shutil.copytree(history, tmp_path / "other" / "logs"))
    properties = copy / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    for folder in copy.iterdir():
        for log in sorted(folder.glob("*.log"))[:-1] if folder.is_dir() else ():
            log.unlink()
    assert_same(spark, tmp_path, offsets_per_task=100)


def test_spark_gives_the_steps_of_what_brokers_sent(spark: SparkSession) -> None:
    """Though another one leads now."""
    headers = batches([Step("data", 1), Step("data", 2, records=3), Step("commit", 1), Step("plain", 3, records=3)])
    sent = [
        header_table(headers[:2], topic="orders", partition=0, broker_id=1),
        header_table(headers[2:], topic="orders", partition=0, broker_id=2),
    ]
    table = span_table(made := finish(piece(headers), from_start=True), topic="orders", partition=0, broker_id=2)
    steps = lso_steps(made, log_end_offset=8, end_time=int(headers["max_timestamp"][-1]))
    found = lso_timeline(
        shuffled(spark, table), shuffled(spark, sent[0]).union(shuffled(spark, sent[1])), offsets_per_task=2
    )
    assert_rows(found, lso_table(steps, topic="orders", partition=0, broker_id=2), LSO_TIMELINE)


def test_of_nothing_there_is_nothing(spark: SparkSession) -> None:
    rows = header_table(batches([Step("data", 1)]), topic="orders", partition=0)
    nothing = shuffled(spark, rows).where("size < 0")
    found = spans(nothing)
    assert found.count() == lso_timeline(found, nothing).count() == 0


def of_file(broker_id: int, folder: str, first: int, end: int) -> Row:
    file = f"/{folder}/orders-0/{first:020d}.log"
    return {"topic": "orders", "partition": 0, "broker_id": broker_id, "file": file, "first_offset": first,
            "log_end_offset": end, "end_time": end, "is_clear": None}  # fmt: skip


def told(broker_id: int, end: int, *, is_clear: bool = False) -> Row:
    return {"topic": "orders", "partition": 0, "broker_id": broker_id, "file": None, "first_offset": None,
            "log_end_offset": end, "end_time": None, "is_clear": is_clear}  # fmt: skip


def test_a_log_reaches_from_its_first_to_its_last_file_and_to_what_is_said_of_it() -> None:
    of_one = [of_file(1, "a", 10, 20), of_file(1, "a", 0, 10), of_file(1, "b", 0, 15), of_file(2, "a", 0, 9)]

    def ends(*more: Row) -> list[tuple[str | None, int, int, int | None]]:
        found = _logs([*of_one, *more])
        return [(row["log"], row["first_offset"], row["log_end_offset"], row["end_time"]) for row in found]

    known = [("1:/a/orders-0/", 0, 20, 20), ("1:/b/orders-0/", 0, 15, 15), ("2:/a/orders-0/", 0, 9, 9)]
    assert ends() == known
    furthest = ("1:/a/orders-0/", 0, 30, 20)
    assert ends(told(1, 30)) == [furthest, *known[1:]]
    assert ends(told(1, 12)) == known
    assert ends(told(3, 7)) == known, "who knows what is open in it"
    assert ends(told(3, 7, is_clear=True)) == [*known, ("3:", 7, 7, None)]
