"""Options of ``kafka_log``: what they may say, and that nothing said is ignored."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from toolkit.errors import UsageError
from toolkit.schema import TABLES
from toolkit.spark.local_paths import local_path
from toolkit.spark.log_options import GOES_BY, INTERNAL, PIECES, LogOptions, read_options
from toolkit.spark.log_source import KafkaLog


def said(**options: str) -> LogOptions:
    return read_options({"path": "/logs", **options})


def test_every_table_of_files_is_there() -> None:
    elsewhere = {"samples", "late_transactions", "actions", "exposure"}
    assert set(GOES_BY) == set(TABLES) - elsewhere | INTERNAL
    for table in GOES_BY:
        assert KafkaLog({"path": "/logs", "table": table}).schema().fieldNames()


def test_names_are_a_list_in_any_form() -> None:
    for text in ("a,b", " a , b ", '["a", "b"]', "['a', 'b']"):
        assert said(topics=text).topics == ["a", "b"]
        assert said(topic=text).topics == ["a", "b"]
    assert said(topics='["a"]').topics == ["a"]
    for text in ("", "a,,b", "[", "[]", '["a"'):
        with pytest.raises(UsageError, match="The option topic cannot be read"):
            said(topics=text)
    with pytest.raises(UsageError, match="Both topic and topics are said"):
        said(topic="a", topics="b")


def test_partitions_are_numbers_of_topics_or_named_as_folders() -> None:
    assert said(topic="a", partition="3").partitions == [3]
    assert said(topic="a", partitions="[0, 2]").partitions == [0, 2]
    assert said(partitions="orders-0,my-orders-12").partitions == [("orders", 0), ("my-orders", 12)]
    assert said(table="histories", partition="7").partitions == [7]
    for options in ({"partition": "0"}, {"topic": "a", "partition": "a-0"}, {"table": "histories", "partition": "a-0"}):
        with pytest.raises(UsageError, match="partitions are either numbers"):
            said(**options)
    with pytest.raises(UsageError, match="The option partition cannot be read: 0, x"):
        said(topic="a", partition="0,x")


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("17", 17),
        ("lso", "lso"),
        ("LOG_END", "log_end"),
        ("2026-11-21T12:00:00Z", dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)),
        ("2026-11-21 13:00:00+01:00", dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)),
    ],
)
def test_bounds_are_offsets_names_or_times(text: str, bound: Any) -> None:
    assert (said(start=text).start, said(stop=text).stop) == (bound, bound)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": "yesterday"}, "'yesterday' is no place in a log"),
        ({"stop": "2026-11-21"}, "has no time zone"),
        ({"start": "-1"}, "-1 is no offset"),
        ({"table": "batch"}, "The option table is none of its values. Say one of batches, "),
        ({"mode": "strict"}, "The option mode is none of its values. Say one of PERMISSIVE, "),
        ({"producer_id": "x"}, "The option producer_id is no whole number"),
        ({"crc": "yes"}, "The option crc is none of its values"),
        ({"topc": "orders"}, "kafka_log has no option 'topc'. It has at_rest, "),
        ({"table": "segments", "start": "3"}, "The table segments does not go by start. It goes by partition, "),
        ({"table": "spans", "crc": "true"}, "The table spans does not go by crc."),
        ({"table": "histories", "topic": "a"}, "The table histories does not go by topic."),
        ({"table": "lso_timeline", "mode": "FAILFAST"}, "The mode FAILFAST means nothing for the table lso_timeline"),
        ({"table": PIECES, "mode": "DROPMALFORMED"}, "The mode DROPMALFORMED means nothing for the table pieces"),
        ({"max_partition_bytes": "much"}, "The option max_partition_bytes is no size: 'much'"),
        ({"max_partition_bytes": "0"}, "The option max_partition_bytes is no size"),
        ({"table": "findings", "txn_state_partitions": "0"}, "no whole number from 1 on"),
        ({"path": "s3://bucket/logs"}, "s3://bucket/logs is no path on the machines that read it."),
    ],
)
def test_what_is_wrong_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        said(**options)
    assert sentence in str(refused.value)


def test_a_source_without_paths_is_refused() -> None:
    for options in ({}, {"paths": ""}, {"path": ""}):
        with pytest.raises(UsageError, match="not told where the files are"):
            read_options(options)


def test_sizes_are_written_as_spark_writes_them() -> None:
    sizes = {"134217728": 1 << 27, "128m": 1 << 27, "128MB": 1 << 27, "1g": 1 << 30, "64 KiB": 1 << 16, "7b": 7}
    for text, size in sizes.items():
        assert said(max_partition_bytes=text).max_partition_bytes == size
    assert said().max_partition_bytes == 1 << 27


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/kafka/logs", "/kafka/logs"),
        ("relative/path", "relative/path"),
        ("C:\\kafka", "C:\\kafka"),
        ("file:/kafka/logs", "/kafka/logs"),
        ("file:///kafka/a b", "/kafka/a b"),
        ("file://localhost/kafka", "/kafka"),
        ("dbfs:/Volumes/main/kafka/logs", "/Volumes/main/kafka/logs"),
        ("dbfs:/mnt/logs", "/dbfs/mnt/logs"),
        ("/logs/with:colon-0", "/logs/with:colon-0"),
    ],
)
def test_a_path_is_that_of_the_file_system(path: str, local: str) -> None:
    assert local_path(path) == local


@pytest.mark.parametrize(
    "path", ["hdfs://name/logs", "abfss://c@a.dfs.core.windows.net/logs", "file://host/logs", "s3:/x"]
)
def test_a_path_of_another_machine_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="Give a path of a mounted volume"):
        local_path(path)
