"""``kafka_log_dir`` returns the rows of `LogDir`, in however many tasks, for any selection."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.sources.log_files import after, data, marker, write_log
from tests.sources.test_logdir_consistency import write_owners
from tests.spark.read_log import assert_like_log_dir, assert_same_rows, plan_read, read, read_and_fold, rows
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
    found = assert_like_log_dir(two_brokers, table, maxPartitionBytes=5000)
    assert {1, 2} <= {row["broker_id"] for row in found}


def test_a_time_of_the_copy_that_a_marker_refutes_is_refuted_for_all_partitions(tmp_path: Path) -> None:
    """The marker was another task's: what is open on the others was overdue by that time, to be fenced."""
    write_owners(tmp_path)
    write_log(tmp_path, "orders-0", [data(0, 7, after()), marker(1, 7, after(seconds=5))])
    as_of = after(minutes=30)
    of_files = LogDir(tmp_path, as_of=as_of)
    found = assert_like_log_dir(tmp_path, "findings", of=of_files, asOf=as_of.isoformat(), maxPartitionBytes="1k")
    assert {row["producer_id"]: row["verdict"] for row in found} == dict.fromkeys((7, 8, 9), "unknown")


@pytest.mark.parametrize("options", [{}, {"consistentCopy": True}, {"consistentCopy": True, "minHeld": "50ms"}])
def test_findings_of_many_tasks_match_those_of_one(two_brokers: Path, options: dict[str, Any]) -> None:
    for path in (two_brokers / "data-1", two_brokers)[bool(options) :]:
        arguments = {"min_held_ms": 50} if "minHeld" in options else {}
        files = LogDir(path, consistent_copy="consistentCopy" in options)
        assert len(plan_read(path, table="findings", maxPartitionBytes=20_000, **options)[1]) > 1
        assert_like_log_dir(path, "findings", arguments, of=files, maxPartitionBytes=20_000, **options)


def test_a_requested_partition_has_a_finding_even_if_clear(history: Path) -> None:
    topics, files = topics_of(history), LogDir(history, consistent_copy=True)
    options = {"subscribe": ", ".join(topics), "consistentCopy": True, "maxPartitionBytes": 20_000}
    found = assert_like_log_dir(history, "findings", {"topics": topics}, of=files, **options)
    assert {row["topic"] for row in found} == set(topics)


LOG_TABLES = ("batches", "log_transactions", "lso_timeline", "aborted")


def test_only_selected_rows_are_read(history: Path) -> None:
    files = LogDir(history)
    topic, *_, other = [topic for topic in topics_of(history) if not topic.startswith("__")]
    owners = files.transaction_rows()[:3]
    ids, producer_id = [row["transactional_id"] for row in owners], owners[0]["producer_id"]
    group = next(row["group_id"] for row in TABLES["offsets_log"].rows(files.offsets_log()) if row["group_id"])
    both = {"subscribe": f"{topic}, {other}", "maxPartitionBytes": 1000}
    pairs = [(topic, 0), (other, 0)]
    named = {"partitions": ",".join(f"{name}-{number}" for name, number in pairs)}
    cases: list[tuple[Sequence[str], Mapping[str, object], dict[str, object]]] = [
        ((*LOG_TABLES, "segments", "snapshots", "checkpoints"), both, {"topics": [topic, other]}),
        ((*LOG_TABLES, "segments", "snapshots", "checkpoints"), named, {"partitions": pairs}),
        ((*LOG_TABLES, "segments", "snapshots", "checkpoints"), {"subscribe": topic, "partitions": 0},
         {"topics": topic, "partitions": 0}),
        (("transaction_log", "transaction_history", "transactions"), {"transactionalIds": str(ids)},
         {"transactional_ids": ids}),
        (["offsets_log"], {"groups": group}, {"groups": [group]}),
        (["offsets_log"], {"partitions": 3}, {"partitions": [3]}),
        (["coordinators"], {"transactionalIds": ",".join(ids), "groups": group},
         {"transactional_ids": ids, "groups": [group]}),
        ((*LOG_TABLES, "transaction_log", "transaction_history", "offsets_log"), {"producerId": producer_id},
         {"producer_id": producer_id}),
        (["transactions"], {"producerId": producer_id}, {"producer_ids": [producer_id]}),
        (["batches"], {"crc": True, "maxPartitionBytes": 9000}, {"crc": True}),
    ]  # fmt: skip
    times = [row["max_timestamp"] for row in TABLES["batches"].rows(files.batches())]
    middle = min(times) + (max(times) - min(times)) / 2
    for start, stop in ((3, 40), (40, None), ("log_start", "lso"), (middle, None)):
        bounds = {"startingOffsets": middle.isoformat() if start == middle else start, "maxPartitionBytes": 10_000}
        bounds |= {} if stop is None else {"endingOffsets": stop}
        cases.append(((*LOG_TABLES, "statistics"), bounds, {"start": start, "stop": stop}))
    for tables, options, arguments in cases:
        for table in tables:
            assert_like_log_dir(history, table, arguments, of=files, **options)


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


@pytest.mark.parametrize(
    ("options", "columns", "expected"),
    [
        ({"colour": "red"}, "", "The table batches of kafka_log_dir has no option 'colour'. It has crc, endingOffsets"),
        ({"path": "/no/where"}, "", "There is no file or folder /no/where."),
        ({"subscribe": "nope"}, "", "contain no partition of topic 'nope'."),
        ({}, "topic int", "The schema has topic int; the table batches"),
    ],
)
def test_errors_reach_the_user_as_one_sentence(
    kafka_log_dir: Any, history: Path, options: dict[str, str], columns: str, expected: str
) -> None:
    reader = kafka_log_dir().options(**{"path": str(history)} | options)
    with pytest.raises(Exception, match=r"toolkit\.errors") as error:
        (reader.schema(columns) if columns else reader).load().count()
    message = str(error.value).partition("JVM stacktrace")[0]
    assert expected in message
    assert message.count('File "') == 1, "there is no traceback of the toolkit"


def test_dump_texts_are_read_completely(kafka: Kafka, tmp_path: Path, history: Path) -> None:
    logs = sorted(str(log) for log in history.glob("*-[0-9]*/*.log") if log.stat().st_size and "__" not in str(log))
    text = tmp_path / "dump.txt"
    text.write_text(kafka.run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(logs[:20])).stdout)
    topic = sorted({row["topic"] for row in TABLES["batches"].rows(LogDir(text).batches())})[0]
    for table in ("batches", "log_transactions", "lso_timeline", "segments", "partitions", "findings"):
        assert_like_log_dir(text, table, maxPartitionBytes=1)
        assert_like_log_dir(text, table, {"topics": [topic]}, subscribe=topic)
    for table in ("log_transactions", "lso_timeline"):
        assert_same_rows(read_and_fold(text, table), getattr(LogDir(text), table)(), table)
    for table in ("batches", "checkpoints"):
        assert_like_log_dir(None, table, of=LogDir(text, history), paths=f"{text},{history}")
