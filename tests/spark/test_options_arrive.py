"""Every option of the data sources is read, and its value is used: what each changes, as text."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from tests.spy import Calls, spy_on
from tests.stored import compare
from toolkit import LogDir
from toolkit.config import ClientConfig
from toolkit.errors import ConnectionFailed, UsageError
from toolkit.schema import BATCHES, TABLES
from toolkit.schema.live import Partition
from toolkit.schema.table import TopicPartition, utc_now
from toolkit.sources.live.partition_log import LogRange
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources import batches_reader, log_reader
from toolkit.spark.datasources.data_sources import KafkaBatches, KafkaLog
from toolkit.spark.datasources.log_reader import FOR_ALL, TAKES, LogOptions, read_options
from toolkit.spark.datasources.reader_options import CONNECTION, OF_BATCHES, batches_options

VALUES = (
    *("other", "7", "7m", "orders-7", "true", "false", '{"orders": [7]}', '{"orders": {"7": 8}}'),
    *("2001-02-03T04:05:06Z", "FAILFAST", "samples", "producers"),
)
SOURCES: Mapping[str, tuple[Callable[[Mapping[str, str]], Any], Mapping[str, str], Sequence[str]]] = {
    **{
        f"kafka_log_dir {table}": (read_options, {"path": "some", "table": table}, (*FOR_ALL, *takes))
        for takes, table in {takes: table for table, takes in TAKES.items()}.items()
    },
    "kafka_log_live": (batches_options, {"subscribe": "some"}, (*OF_BATCHES, *CONNECTION)),
}
READERS: Mapping[type, Sequence[Any]] = {LogOptions: (log_reader,)}
"""What reads the options of each kind: a module, or some of its classes and functions."""

PATHS = (
    *("/kafka/logs", "relative/path", "C:\\kafka", "file:/kafka/logs", "file:///kafka/a b", "file://localhost/kafka"),
    *("dbfs:/Volumes/main/kafka/logs", "dbfs:/mnt/logs", "/logs/with:colon-0", "s3://bucket/logs/"),
    "abfss://c@a.dfs.core.windows.net/logs",
)
ACCEPTED: Sequence[Mapping[str, str]] = [
    *({"path": path} for path in PATHS),
    *({"subscribe": names} for names in ("a,b", " a , b ", '["a", "b"]', "['a', 'b']", '["a"]')),
    *({"subscribe": "a", "partitions": numbers} for numbers in ("3", "[0, 2]")),
    {"partitions": "orders-0,my-orders-12"},
    {"table": "transaction_history", "partitions": "7"},
    *(
        {"startingOffsets": text, "endingOffsets": text}
        for text in ("17", "lso", "LOG_END", "2026-11-21T12:00:00Z", "2026-11-21 13:00:00+01:00")
    ),
    *({"maxPartitionBytes": size} for size in ("268435456", "256m", "256MB", "1g", "64 KiB", "7b")),
]
"""Options of ``kafka_log_dir`` that are accepted in several notations."""

WRONG: Sequence[tuple[type[Any], Mapping[str, str]]] = [
    (KafkaBatches, {"subscribe": "a", "starting_offsets": "latest"}),
    (KafkaBatches, {}),
    (KafkaBatches, {"subscribe": "a", "partitions": "a-0"}),
    (KafkaBatches, {"subscribe": ","}),
    (KafkaBatches, {"partitions": "[1"}),
    (KafkaBatches, {"subscribe": "a", "startingOffsets": "sometimes"}),
    (KafkaBatches, {"subscribe": "a", "startingOffsets": "-3"}),
    (KafkaBatches, {"subscribe": "a", "endingOffsets": "2026-11-21T12:00:00"}),
    (KafkaBatches, {"subscribe": "a", "crc": "maybe"}),
    (KafkaBatches, {"subscribe": "a", "maxRecordsPerPartition": "0"}),
    (KafkaBatches, {"subscribe": "a", "mode": "CAREFUL"}),
    (KafkaBatches, {"subscribe": "a", "timeout": "soon"}),
    (KafkaLog, {"startingOffsets": "yesterday"}),
    (KafkaLog, {"endingOffsets": "2026-11-21"}),
    (KafkaLog, {"startingOffsets": "-1"}),
    (KafkaLog, {"table": "batch"}),
    (KafkaLog, {"mode": "strict"}),
    (KafkaLog, {"producerId": "x"}),
    (KafkaLog, {"crc": "yes"}),
    (KafkaLog, {"topc": "orders"}),
    (KafkaLog, {"table": "segments", "startingOffsets": "3"}),
    (KafkaLog, {"table": "log_transactions", "crc": "true"}),
    (KafkaLog, {"table": "transaction_history", "subscribe": "a"}),
    (KafkaLog, {"maxPartitionBytes": "much"}),
    (KafkaLog, {"maxPartitionBytes": "0"}),
    (KafkaLog, {"table": "findings", "txnStatePartitions": "0"}),
    (KafkaLog, {"table": "findings", "asOf": "yesterday"}),
    (KafkaLog, {"table": "findings", "asOf": "2026-11-21T12:00:00"}),
    *((KafkaLog, {"path": path}) for path in ("hdfs://name/logs", "file://host/logs", "s3:/x")),
    *((KafkaLog, {"subscribe": names}) for names in ("", "a,,b", "[", "[]", '["a"')),
    *((KafkaLog, {"subscribe": "a", "partitions": numbers}) for numbers in ("a-0", "0,x")),
    *((KafkaLog, {"partitions": names}) for names in ("0", "orders-0,x")),
    (KafkaLog, {"table": "transaction_history", "partitions": "a-0"}),
    *((KafkaLog, options) for options in ({"path": ""}, {"path": "", "paths": ""})),
]
"""Options that are refused when a source is loaded; it has a path, or the address of a cluster."""


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The fields of options, also of those in a field, as text."""
    if is_dataclass(value):
        for each in fields(value):
            yield from flat(getattr(value, each.name), f"{name}.{each.name}".strip("."))
    else:
        yield name, repr(value)


def changed(parse: Callable[[Mapping[str, str]], Any], base: Mapping[str, str], option: str) -> str:
    """What the first value that is accepted changes."""
    before = dict(flat(parse(base)))
    refusals = 0
    for value in VALUES:
        try:
            after = dict(flat(parse({**base, option: value})))
        except (UsageError, ValueError):  # one that only the pipeline sets has no sentence
            refusals += 1
            continue
        if after != before:
            shown = "; ".join(f"{name}={value}" for name, value in after.items() if value != before.get(name))
            return f"{option}={value}: {shown}"
    return f"{option}: {'refused' if refusals == len(VALUES) else 'no effect'}"


def test_every_option_is_parsed() -> None:
    lines = []
    for name, (parse, base, options) in SOURCES.items():
        lines += [name, *(f"    {changed(parse, base, option)}" for option in options)]
    ignored = {line.strip() for line in lines if line.endswith("no effect")}
    assert ignored == {"commandConfig: no effect"}, "but for the client, whose settings are parsed elsewhere"
    lines.append("kafka_log_dir")
    for each in ACCEPTED:
        found = dict(flat(read_options({"path": "some", **each})))
        default = dict(flat(read_options({"path": "some"})))
        shown = "; ".join(f"{name}={value}" for name, value in found.items() if value != default[name])
        lines.append(f"    {each}: {shown}")
    compare("spark_options.txt", lines)


def test_every_table_of_files_is_available() -> None:
    not_in_files = {"samples", "late_transactions", "actions", "saved_records"}
    not_in_files |= {"group_lag", "observation_times", "offset_visibility", "missing_offsets"}
    assert set(TAKES) == set(TABLES) - not_in_files == LogDir.functions.keys()
    for table in TAKES:
        assert KafkaLog({"path": "/logs", "table": table}).schema().fieldNames()


def test_every_option_is_used() -> None:
    for options, readers in READERS.items():
        read = {
            node.attr
            for reader in readers
            for node in ast.walk(ast.parse(inspect.getsource(reader)))
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("options")
        }
        assert read - {"get"} == {each.name for each in fields(options)}, options  # `get` is of Spark's own mapping


def test_wrong_options_are_refused_with_a_sentence() -> None:
    lines = list[str]()
    for source, options in WRONG:
        base = {"path": "/logs"} if source is KafkaLog else {"kafka.bootstrap.servers": "127.0.0.1:1"}
        with pytest.raises(UsageError) as error:
            source(CaseInsensitiveDict({**base, **options})).schema()
        lines += [f"{source.name()} {options}", f"  {error.value}"]
    compare("spark_wrong_options.txt", lines)


def lost(**_: object) -> None:
    raise ConnectionFailed("Nobody answers.", do="")


RANGE = LogRange(tp=TopicPartition("orders", 3), start=5, stop=9)
PARTITION = Partition(topic="orders", partition=3, leader=2, observed_at=utc_now())
LIVE: Mapping[str, Any] = {
    "read_partitions()": [PARTITION],
    "resolve_range()": (5, 9),
    "split()": [RANGE],
    "batch_tables_of()": [],
}


def calls_of(calls: Calls, options: Mapping[str, str]) -> list[str]:
    """What planning and a task of live batches call with some options, and their rows."""
    calls.lines.clear()
    config = ClientConfig("127.0.0.1:1")
    reader = batches_reader.BatchesReader(batches_options(options), config, struct_type(BATCHES))
    rows = [row for each in reader.partitions() for part in reader.read(each) for row in part.to_pylist()]
    texts = (", ".join(f"{name}={value}" for name, value in row.items() if value is not None) for row in rows)
    return [*calls.lines, *(f"row({text})" for text in texts)]


def test_every_option_of_live_batches_reaches_the_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Planning had a time limit of its own, whatever the option said."""
    answers = dict(LIVE)
    calls = Calls(answers, folder=tmp_path)
    real = ("toolkit.errors", "toolkit.schema", "toolkit.config", "toolkit.spark")
    spy_on("toolkit.spark.datasources.batches_reader", calls, monkeypatch, real=real)
    base = {"subscribe": "some"}
    before = calls_of(calls, base)
    lines = ["kafka_log_live", *(f"    {line}" for line in before)]
    for option in (*OF_BATCHES, "timeout"):
        for value in VALUES:
            try:
                found = calls_of(calls, base | {option: value})
            except UsageError:
                continue
            if changes := Counter(found) - Counter(before):
                lines.append(f"  {option}={value}: {'; '.join(changes.elements())}")
                break
        else:
            lines.append(f"  {option}: no effect")
    assert [line for line in lines if "no effect" in line] == ["  mode: no effect"], "which drops rows"
    for place in ("read_range()", "resolve_range()"):
        answers[place] = lost
        lines += [f"{place} fails", *(f"    {each}" for each in calls_of(calls, base) if each.startswith("row"))]
        answers[place] = LIVE.get(place)
    compare("spark_live_calls.txt", lines)
