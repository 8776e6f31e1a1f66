"""``kafka_log_dir`` returns the rows of `LogDir`, in however many tasks, for any selection."""

from __future__ import annotations

import datetime as dt
import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.read_log import assert_same_rows, plan_read, read, read_and_fold, rows
from toolkit import LogDir
from toolkit.lab import Kafka
from toolkit.schema import TABLES
from toolkit.spark.datasources.data_sources import KafkaLog
from toolkit.spark.datasources.log_reader import TAKES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINGLE_TASK_TABLES = {
    "exposure",
    *("transaction_history", "transactions", "transaction_owners", "coordinators", "statistics", "lso_holds"),
    *("metadata_log", "cluster_events"),  # of the only node
}


@pytest.fixture
def kafka_log_dir(spark: SparkSession) -> Any:
    """A reader of the format."""
    spark.dataSource.register(KafkaLog)
    return lambda: spark.read.format("kafka_log_dir")


@pytest.fixture(scope="module")
def two_brokers(history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log directories of two brokers with the same replicas; some logs of the second broker lag."""
    folder = tmp_path_factory.mktemp("brokers")
    for broker_id in (1, 2):
        shutil.copytree(history, folder / f"data-{broker_id}", copy_function=shutil.copy2)
    meta = folder / "data-2" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    for number, log in enumerate(sorted((folder / "data-2").glob("*/*.log"))):
        if number % 5 == 0 and log.stat().st_size > 500:
            log.write_bytes(log.read_bytes()[:-100])
    return folder


def topics_of(folder: Path) -> list[str]:
    return sorted({row["topic"] for row in LogDir(folder).partition_rows()})


@pytest.mark.parametrize("table", list(TAKES))
@pytest.mark.parametrize("max_partition_bytes", [1500, 300_000])
def test_every_table_matches_log_dir(history: Path, table: str, max_partition_bytes: int) -> None:
    reader, tasks = plan_read(history, table=table, maxPartitionBytes=max_partition_bytes)
    assert (len(tasks) == 1) == (table in SINGLE_TASK_TABLES)
    assert_same_rows(read(reader, tasks).to_pylist(), getattr(LogDir(history), table)(), table)


@pytest.mark.parametrize(
    "table", ["batches", "log_transactions", "lso_timeline", "partitions", "producers", "checkpoints"]
)
def test_every_replica_has_its_own_rows(two_brokers: Path, table: str) -> None:
    actual = rows(two_brokers, table=table, maxPartitionBytes=5000)
    assert_same_rows(actual, getattr(LogDir(two_brokers), table)(), table)
    assert {1, 2} <= {row["broker_id"] for row in actual}


@pytest.mark.parametrize("options", [{}, {"consistentCopy": True}, {"consistentCopy": True, "minHeld": "50ms"}])
def test_findings_of_many_tasks_match_those_of_one(two_brokers: Path, options: dict[str, Any]) -> None:
    for path in (two_brokers / "data-1", two_brokers)[bool(options) :]:
        reader, tasks = plan_read(path, table="findings", maxPartitionBytes=20_000, **options)
        assert len(tasks) > 1
        arguments: dict[str, Any] = {"min_held_ms": 50} if "minHeld" in options else {}
        assert_same_rows(
            read(reader, tasks).to_pylist(),
            LogDir(path, consistent_copy="consistentCopy" in options).findings(**arguments),
            "findings",
        )


def test_a_requested_partition_has_a_finding_even_if_clear(history: Path) -> None:
    topics = topics_of(history)
    actual = rows(history, table="findings", subscribe=", ".join(topics), consistentCopy=True, maxPartitionBytes=20_000)
    assert_same_rows(actual, LogDir(history, consistent_copy=True).findings(topics=topics), "findings")
    assert {row["topic"] for row in actual} == set(topics)


def test_only_selected_rows_are_read(history: Path) -> None:
    files = LogDir(history)
    topic, *_, other = [topic for topic in topics_of(history) if not topic.startswith("__")]
    for table in ("batches", "log_transactions", "lso_timeline", "aborted", "segments", "snapshots", "checkpoints"):
        both = rows(history, table=table, subscribe=f"{topic}, {other}", maxPartitionBytes=1000)
        assert_same_rows(both, getattr(files, table)(topics=[topic, other]), table)
        assert_same_rows(
            rows(history, table=table, subscribe=topic, partitions=0),
            getattr(files, table)(topics=topic, partitions=0),
            table,
        )
        partitions = [(topic, 0), (other, 0)]
        options = ",".join(f"{name}-{number}" for name, number in partitions)
        assert_same_rows(
            rows(history, table=table, partitions=options), getattr(files, table)(partitions=partitions), table
        )
    ids = [row["transactional_id"] for row in files.transaction_rows()][:3]
    for table in ("transaction_log", "transaction_history", "transactions"):
        expected = getattr(files, table)(transactional_ids=ids)
        assert_same_rows(rows(history, table=table, transactionalIds=str(ids)), expected, table)
    group = next(row["group_id"] for row in TABLES["offsets_log"].rows(files.offsets_log()) if row["group_id"])
    assert_same_rows(rows(history, table="offsets_log", groups=group), files.offsets_log(groups=[group]), "offsets_log")
    expected = files.coordinators(transactional_ids=ids, groups=[group])
    assert_same_rows(
        rows(history, table="coordinators", transactionalIds=",".join(ids), groups=group), expected, "coordinators"
    )
    assert_same_rows(rows(history, table="offsets_log", partitions=3), files.offsets_log(partitions=[3]), "offsets_log")
    producer_id = files.transaction_rows()[0]["producer_id"]
    for table in (
        "batches",
        "log_transactions",
        "lso_timeline",
        "aborted",
        "transaction_log",
        "transaction_history",
        "offsets_log",
    ):
        assert_same_rows(
            rows(history, table=table, producerId=producer_id), getattr(files, table)(producer_id=producer_id), table
        )
    expected = files.transactions(producer_ids=[producer_id])
    assert_same_rows(rows(history, table="transactions", producerId=producer_id), expected, "transactions")
    assert_same_rows(rows(history, crc=True, maxPartitionBytes=9000), files.batches(crc=True), "batches")


def test_ranges_match_log_dir(history: Path) -> None:
    files = LogDir(history)
    times = [row["max_timestamp"] for row in TABLES["batches"].rows(files.batches())]
    middle = min(times) + (max(times) - min(times)) / 2
    for start, stop in ((3, 40), (40, None), ("log_start", "lso"), (middle, None)):
        options = {name: bound for name, bound in (("start", start), ("stop", stop)) if bound is not None}
        bounds = {"startingOffsets": start, "endingOffsets": stop}
        bounds = {
            name: bound.isoformat() if isinstance(bound, dt.datetime) else bound
            for name, bound in bounds.items()
            if bound is not None
        }
        for table in ("batches", "log_transactions", "lso_timeline", "aborted", "statistics"):
            actual = rows(history, table=table, maxPartitionBytes=10_000, **bounds)
            assert_same_rows(actual, getattr(files, table)(**options), table)


def test_spark_reads_the_tables(kafka_log_dir: Any, history: Path) -> None:
    frame = kafka_log_dir().option("Table", "Batches").option("MAXPARTITIONBYTES", "2m").load(str(history))
    expected = LogDir(history).batches()
    assert frame.count() == len(expected)
    assert frame.schema == KafkaLog({"path": "x"}).schema()
    actual: pa.Table = frame.toArrow()
    assert {str(field.type) for field in actual.schema if "timestamp" in field.name} == {
        "string",
        "timestamp[us, tz=UTC]",
    }
    assert_same_rows(actual.to_pylist(), expected, "batches")


def test_a_reused_data_frame_is_correct_for_every_filter(kafka_log_dir: Any, history: Path) -> None:
    """With pushed filters, Spark would silently apply those of the first query to the next one."""
    expected = TABLES["batches"].rows(LogDir(history).batches())
    frame = kafka_log_dir().option("maxPartitionBytes", "3m").load(str(history))
    topics = topics_of(history)[-3:]
    counts = {topic: sum(row["topic"] == topic for row in expected) for topic in topics}
    assert frame.where(frame.topic == topics[0]).count() == counts[topics[0]]
    assert frame.count() == len(expected)
    both = frame.where(frame.topic == topics[1]).union(frame.where(frame.topic == topics[2]))
    assert {row["topic"]: row["count"] for row in both.groupBy("topic").count().collect()} == {
        topic: counts[topic] for topic in topics[1:]
    }


def test_a_worker_excludes_its_modules_from_garbage_collection(
    spark: SparkSession, kafka_log_dir: Any, history: Path
) -> None:
    assert kafka_log_dir().load(str(history)).count()

    def count_frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})

    freeze_counts = spark.range(2).mapInArrow(count_frozen, "frozen long").toArrow()["frozen"].to_pylist()
    assert max(freeze_counts) > 10_000


def test_several_paths_are_read_together(kafka_log_dir: Any, two_brokers: Path, history: Path) -> None:
    paths = [str(two_brokers / f"data-{number}") for number in (1, 2)]
    expected = len(LogDir(*paths).segments())
    assert kafka_log_dir().option("table", "segments").load(paths).count() == expected
    for text in (",".join(paths), f'["{paths[0]}", "file:{paths[1]}"]'):
        assert len(rows(None, table="segments", paths=text)) == expected
    assert len(rows(f"file://{paths[0]}", table="segments")) == len(LogDir(paths[0]).segments())
    assert len(rows(paths[0], paths=paths[1], table="segments")) == expected


def test_sql_reads_the_tables(spark: SparkSession, kafka_log_dir: Any, history: Path) -> None:
    assert kafka_log_dir is not None
    spark.sql(
        f"CREATE TEMPORARY VIEW transactions USING kafka_log_dir OPTIONS (path '{history}', table 'log_transactions')"
    )
    counts = spark.sql("SELECT outcome, count(*) AS n FROM transactions GROUP BY outcome").collect()
    expected = LogDir(history).log_transactions()["outcome"].value_counts().to_dict()
    assert {row["outcome"]: row["n"] for row in counts} == expected


def test_a_schema_selects_columns(kafka_log_dir: Any, history: Path) -> None:
    selected = kafka_log_dir().schema("last_offset long, topic string").load(str(history)).toArrow()
    assert selected.column_names == ["last_offset", "topic"]
    assert selected.num_rows == len(LogDir(history).batches())


def test_errors_reach_the_user_as_one_sentence(kafka_log_dir: Any, history: Path) -> None:
    for load, expected in (
        (
            lambda: kafka_log_dir().option("colour", "red").load(str(history)),
            "The table batches of kafka_log_dir has no option 'colour'. It has crc, endingOffsets",
        ),
        (lambda: kafka_log_dir().load("/no/where").count(), "There is no file or folder /no/where."),
        (
            lambda: kafka_log_dir().option("subscribe", "nope").load(str(history)).count(),
            "contain no partition of topic 'nope'.",
        ),
        (
            lambda: kafka_log_dir().schema("topic int").load(str(history)).count(),
            "The schema has topic int; the table batches",
        ),
    ):
        with pytest.raises(Exception, match=r"toolkit\.errors") as error:
            load()  # type: ignore[no-untyped-call]
        message = str(error.value).partition("JVM stacktrace")[0]
        assert expected in message
        assert message.count('File "') == 1, "there is no traceback of the toolkit"


def test_dump_texts_are_read_completely(kafka: Kafka, tmp_path: Path, history: Path) -> None:
    logs = sorted(str(log) for log in history.glob("*-[0-9]*/*.log") if log.stat().st_size and "__" not in str(log))
    text = tmp_path / "dump.txt"
    text.write_text(kafka.run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(logs[:20])).stdout)
    topic = sorted({row["topic"] for row in TABLES["batches"].rows(LogDir(text).batches())})[0]
    for table in ("batches", "log_transactions", "lso_timeline", "segments", "partitions", "findings"):
        actual = rows(text, table=table, maxPartitionBytes=1)
        assert_same_rows(actual, getattr(LogDir(text), table)(), table)
        assert_same_rows(rows(text, table=table, subscribe=topic), getattr(LogDir(text), table)(topics=[topic]), table)
    for table in ("log_transactions", "lso_timeline"):
        assert_same_rows(read_and_fold(text, table), getattr(LogDir(text), table)(), table)
    both = LogDir(text, history)
    for table in ("batches", "checkpoints"):
        assert_same_rows(rows(None, paths=f"{text},{history}", table=table), getattr(both, table)(), table)
