"""Options of ``kafka_log_dir``: accepted values; no option is ignored."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from toolkit import LogDir
from toolkit.errors import UsageError
from toolkit.schema import TABLES
from toolkit.spark.datasources.data_sources import KafkaLog
from toolkit.spark.datasources.log_reader import INTERNAL, TAKES, LogOptions, read_options
from toolkit.spark.datasources.reader_options import local_path


def parse(**options: str) -> LogOptions:
    return read_options({"path": "/logs", **options})


def test_every_table_of_files_is_available() -> None:
    not_in_files = {"samples", "late_transactions", "actions", "saved_records"}
    not_in_files |= {"group_lag", "observation_times", "offset_visibility", "missing_offsets"}
    assert set(TAKES) == set(TABLES) - not_in_files | INTERNAL == LogDir.functions.keys() | INTERNAL
    for table in TAKES:
        assert KafkaLog({"path": "/logs", "table": table}).schema().fieldNames()


def test_names_are_accepted_in_any_list_syntax() -> None:
    for text in ("a,b", " a , b ", '["a", "b"]', "['a', 'b']"):
        assert parse(subscribe=text).arguments.topics == ["a", "b"]
    assert parse(subscribe='["a"]').arguments.topics == ["a"]
    for text in ("", "a,,b", "[", "[]", '["a"'):
        with pytest.raises(UsageError, match="The option subscribe is not a list"):
            parse(subscribe=text)


def test_partitions_are_numbers_or_folder_names() -> None:
    assert parse(subscribe="a", partitions="3").arguments.partitions == [3]
    assert parse(subscribe="a", partitions="[0, 2]").arguments.partitions == [0, 2]
    assert parse(partitions="orders-0,my-orders-12").arguments.partitions == [("orders", 0), ("my-orders", 12)]
    assert parse(table="transaction_history", partitions="7").arguments.partitions == [7]
    for options in (
        {"partitions": "0"},
        {"subscribe": "a", "partitions": "a-0"},
        {"table": "transaction_history", "partitions": "a-0"},
    ):
        with pytest.raises(UsageError, match="partitions are either numbers"):
            parse(**options)
    with pytest.raises(UsageError, match="The option partitions is invalid: 0, x"):
        parse(subscribe="a", partitions="0,x")


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
def test_start_and_stop_are_offsets_names_or_times(text: str, bound: Any) -> None:
    assert (parse(startingOffsets=text).arguments.start, parse(endingOffsets=text).arguments.stop) == (bound, bound)


def test_sizes_have_sparks_units() -> None:
    sizes = {"134217728": 1 << 27, "128m": 1 << 27, "128MB": 1 << 27, "1g": 1 << 30, "64 KiB": 1 << 16, "7b": 7}
    for text, size in sizes.items():
        assert parse(maxPartitionBytes=text).max_partition_bytes == size
    assert parse().max_partition_bytes == 1 << 27


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
        ("s3://bucket/logs/", "s3://bucket/logs"),
        ("abfss://c@a.dfs.core.windows.net/logs", "abfss://c@a.dfs.core.windows.net/logs"),
    ],
)
def test_paths_are_converted_to_file_system_paths(path: str, local: str) -> None:
    assert local_path(path) == local


@pytest.mark.parametrize("path", ["hdfs://name/logs", "file://host/logs", "s3:/x"])
def test_a_remote_path_is_rejected(path: str) -> None:
    with pytest.raises(UsageError, match="Use the path of a mounted volume"):
        local_path(path)
