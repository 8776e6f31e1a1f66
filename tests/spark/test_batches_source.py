"""``kafka_log_live`` returns the rows of `Cluster.batches`, for any split into tasks."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict

from tests.builders import create_topics, delete_records
from tests.sources.test_authorization import is_led
from tests.spark.read_log import rows_of as folded_rows
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, Row, Table
from toolkit.spark import register
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources.data_sources import KafkaBatches
from toolkit.spark.pipeline.log_fold import LogWork, fold_work
from toolkit.spark.pipeline.run_sources import list_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("spark")]  # so that its cluster is started once

TOPIC_PARTITIONS = [("many", 0), ("many", 1), ("many", 2), ("cut", 0), ("empty", 0)]
TOPICS = "many,cut,empty"
TRANSACTIONS, DELETED = 60, 30


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[Kafka]:
    with Kafka("4.3.1", brokers=2, properties=EVERYDAY.properties) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def cluster(two_brokers: Kafka) -> Iterator[Cluster]:
    """With topics of committed, aborted and open transactions, one with deleted first offsets, and an empty one."""
    with Cluster(two_brokers.bootstrap_servers, timeout=20) as cluster:
        for topic, replicas in (("many", [[1], [2], [1]]), ("cut", [[1]]), ("empty", [[2]])):
            create_topics(two_brokers, NewTopic(topic, len(replicas), replica_assignment=replicas))
            until(partial(is_led, cluster.client, topic), awaited=f"the leader of {topic}")
        rng = random.Random("batches")
        producers = [TxnProducer(cluster.client, f"producer-{number}").init() for number in range(3)]
        for number in range(TRANSACTIONS):
            producer, topic_partitions = producers[number % 3], rng.sample(TOPIC_PARTITIONS[:4], 2)
            for topic, partition in topic_partitions:
                producer.add(topic, partition)
                for _ in range(rng.randint(1, 3)):
                    producer.send(topic, partition, records=rng.randint(1, 5))
            if number < TRANSACTIONS - 3:
                producer.end(commit=rng.random() < 0.7)
        delete_records(cluster.client, "cut", before=DELETED)
        assert cluster.partition_rows(topics=["cut"])[0]["log_start_offset"] == DELETED
        yield cluster


def options(two_brokers: Kafka, **overrides: object) -> dict[str, str]:
    values = {"kafka.bootstrap.servers": two_brokers.bootstrap_servers} | overrides
    return {name: str(value) for name, value in values.items()}


def read(spark: SparkSession, two_brokers: Kafka, **overrides: object) -> DataFrame:
    register(spark)
    return spark.read.format("kafka_log_live").options(**options(two_brokers, **overrides)).load()


def rows_of(frame: DataFrame, table: Table) -> list[Row]:
    return sort_rows(frame.toArrow().cast(table.arrow_schema).to_pylist(), table)


def sort_rows(rows: Sequence[Row], table: Table) -> list[Row]:
    return sorted(rows, key=lambda row: [(row[name] is None, row[name]) for name in (*table.key, "error")])


def rows_of_cluster(cluster: Cluster, topic_partitions: Sequence[tuple[str, int]], **bounds: Any) -> list[Row]:
    frames = [cluster.batches(partitions=[tp], **bounds) for tp in topic_partitions]
    return sort_rows([row for frame in frames for row in BATCHES.rows(frame)], BATCHES)


@pytest.mark.parametrize("max_records", [1_000_000, 30])
def test_the_rows_match_those_of_cluster(
    spark: SparkSession, two_brokers: Kafka, cluster: Cluster, max_records: int
) -> None:
    frame = read(spark, two_brokers, subscribe=TOPICS, maxRecordsPerPartition=max_records)
    assert [(field.name, field.dataType) for field in frame.schema] == [
        (field.name, field.dataType) for field in struct_type(BATCHES)
    ]
    rows = rows_of(frame, BATCHES)
    assert rows == rows_of_cluster(cluster, TOPIC_PARTITIONS)
    assert {(row["topic"], row["partition"]) for row in rows} == set(TOPIC_PARTITIONS[:4])


def test_every_offset_spec_selects_the_rows_of_cluster(
    spark: SparkSession, two_brokers: Kafka, cluster: Cluster
) -> None:
    lso = read(spark, two_brokers, subscribe=TOPICS, startingOffsets="lso", endingOffsets="log_end")
    assert rows_of(lso, BATCHES) == rows_of_cluster(cluster, TOPIC_PARTITIONS, start="lso", stop="log_end")

    tp = TOPIC_PARTITIONS[0]
    all_rows = rows_of_cluster(cluster, [tp])
    middle = all_rows[len(all_rows) // 2]
    batch_of_several_records = next(row for row in all_rows if row["last_offset"] > row["base_offset"])
    start, stop = batch_of_several_records["last_offset"], middle["last_offset"]
    options = {"partitions": f"{tp[0]}-{tp[1]}", "startingOffsets": start, "endingOffsets": stop}
    for max_records in (1_000_000, 3):
        frame = read(spark, two_brokers, maxRecordsPerPartition=max_records, crc=True, **options)
        assert rows_of(frame, BATCHES) == rows_of_cluster(cluster, [tp], start=start, stop=stop, crc=True)

    time: dt.datetime = middle["max_timestamp"]
    by_time = read(spark, two_brokers, subscribe=tp[0], startingOffsets=time.isoformat())
    topic_partitions = TOPIC_PARTITIONS[:3]
    assert rows_of(by_time, BATCHES) == rows_of_cluster(cluster, topic_partitions, start=time)
    producer_id = middle["producer_id"]
    by_producer = read(spark, two_brokers, subscribe=tp[0], producerId=producer_id, endingOffsets=time.isoformat())
    assert rows_of(by_producer, BATCHES) == rows_of_cluster(
        cluster, topic_partitions, stop=time, producer_id=producer_id
    )


def test_the_pipeline_folds_the_transactions_of_cluster(spark: SparkSession, cluster: Cluster) -> None:
    listed = list_partitions(spark, cluster, topics=TOPICS.split(","))
    works = (
        LogWork(log=log, listing=listed.listings[log], plan=plan, state=None) for log, plan in listed.plans({}).items()
    )
    options = listed.options(min_held_ms=0, with_batches=False)
    found = [
        row
        for work in works
        for each in fold_work(work, options)
        for row in (folded_rows(each) if each.table == "log_transactions" else ())
    ]
    frames = [cluster.log_transactions(partitions=[tp]) for tp in TOPIC_PARTITIONS]
    expected = [row for each in frames for row in LOG_TRANSACTIONS.rows(each)]
    assert sort_rows(found, LOG_TRANSACTIONS) == sort_rows(expected, LOG_TRANSACTIONS)


def test_deleted_offsets_are_one_row_handled_by_each_mode(
    spark: SparkSession, two_brokers: Kafka, cluster: Cluster
) -> None:
    options = {"subscribe": "cut", "startingOffsets": 0, "maxRecordsPerPartition": 20}
    expected = rows_of_cluster(cluster, [("cut", 0)], start=0)
    assert [row["error"].partition("; ")[2] for row in expected if row["error"]] == [
        f"offsets 0 to {DELETED - 1} are deleted, by retention or DeleteRecords"
    ]
    assert rows_of(read(spark, two_brokers, **options), BATCHES) == expected
    valid_rows = rows_of(read(spark, two_brokers, mode="dropmalformed", **options), BATCHES)
    assert valid_rows == [row for row in expected if not row["error"]]
    with pytest.raises(PySparkException, match="OFFSET_OUT_OF_RANGE"):
        read(spark, two_brokers, mode="FAILFAST", **options).count()


def test_an_invalid_topic_option_or_server_is_reported(
    spark: SparkSession, two_brokers: Kafka, cluster: Cluster
) -> None:
    with pytest.raises(PySparkException, match=r"has no topic 'nowhere'"):
        read(spark, two_brokers, subscribe="nowhere").count()
    with pytest.raises(PySparkException, match=r"Topic 'many' has no partition 9"):
        read(spark, two_brokers, partitions="many-9").count()
    with pytest.raises(PySparkException, match=r"starting_offsets"):
        read(spark, two_brokers, subscribe="many", starting_offsets="latest")
    with pytest.raises(PySparkException, match=r"No bootstrap server|cannot be used"):
        spark.read.format("kafka_log_live").options(subscribe="a").option(
            "kafka.bootstrap.servers", "127.0.0.1:1"
        ).load().count()


def test_an_abandoned_task_closes_its_connections(two_brokers: Kafka, cluster: Cluster) -> None:
    reader = KafkaBatches(CaseInsensitiveDict(options(two_brokers, subscribe="many"))).reader(struct_type(BATCHES))
    before = set(threading.enumerate())
    first, *_ = reader.partitions()
    batches: Any = reader.read(first)
    next(batches)
    batches.close()
    assert not [thread for thread in set(threading.enumerate()) - before if "kafka-txn-toolkit" in thread.name]


def test_a_broker_killed_after_planning_gives_error_rows(two_brokers: Kafka, cluster: Cluster) -> None:
    """One partition moves to another leader; the other has no leader left. Both were planned before the kill."""
    producer = TxnProducer(cluster.client, "dying-producer").init()
    for topic, replicas in (("moves", [2, 1]), ("stays", [2])):
        create_topics(two_brokers, NewTopic(topic, 1, replica_assignment=[replicas]))
        until(partial(is_led, cluster.client, topic), awaited=f"the leader of {topic}")
        for _ in range(10):
            producer.send(topic, 0)
    reader_options = options(two_brokers, subscribe="moves,stays", maxRecordsPerPartition=4, timeout=2)
    reader = KafkaBatches(CaseInsensitiveDict(reader_options)).reader(struct_type(BATCHES))
    tasks = reader.partitions()
    assert len(tasks) == 6
    two_brokers.kill(2)
    try:
        patient_reader = KafkaBatches(CaseInsensitiveDict({**reader_options, "timeout": "30"})).reader(
            struct_type(BATCHES)
        )
        rows = [row for task in tasks if task.value.tp[0] == "moves" for row in read_task(patient_reader, task)]
        assert [row["base_offset"] for row in rows] == list(range(10))
        assert {row["broker_id"] for row in rows} == {1}
        errors = [row["error"] for task in tasks if task.value.tp[0] == "stays" for row in read_task(reader, task)]
        assert [error.partition("; ")[2] for error in errors] == [
            f"offsets {start} to {stop} were not read" for start, stop in ((0, 2), (3, 5), (6, 9))
        ]
        until(lambda: None if is_led(cluster.client, "stays") else True, awaited="the end of its leader")
        (error_row,) = [row for task in reader.partitions() for row in read_task(reader, task) if row["error"]]
        assert (error_row["topic"], error_row["error"]) == (
            "stays",
            "LEADER_NOT_AVAILABLE: the partition has no leader: broker 2 is offline",
        )
    finally:
        two_brokers.start_broker(2)


def read_task(reader: Any, task: Any) -> list[Row]:
    return [row for batch in reader.read(task) for row in batch.to_pylist()]
