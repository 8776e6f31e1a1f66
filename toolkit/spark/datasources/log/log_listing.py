"""The table ``listing``: one row per log in the files, with digests that change when the log changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log_dir_files import CHECKPOINT_NAMES
from toolkit.schema import Row
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.log_dir_layout import CLEAN_SHUTDOWN, LogDirRoot
from toolkit.sources.logdir.partition_folder import FolderLog
from toolkit.sources.logdir.replica_log import ReplicaLog
from toolkit.spark.datasources.partial_transactions import log_name

LISTING = StructType(
    [
        StructField("log", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("broker_id", IntegerType()),
        StructField("begin", LongType()),  # base offset of its first segment
        StructField("segments", IntegerType()),
        StructField("bytes", LongType()),
        StructField("listing", StringType()),  # digest of names, sizes and modification times of its segments
        StructField("checkpoints", StringType()),  # the same for its other files and those of its log directory
        StructField("topic_id", StringType()),
        StructField("leader_epochs", StringType()),  # JSON: the start offset of each
        StructField(
            "is_best", BooleanType()
        ),  # of __transaction_state: whether it is the best replica of its partition
    ]
)
"""Spark's schema of the table."""

LISTING_SCHEMA: pa.Schema = to_arrow_schema(LISTING)
LEADER_EPOCHS, METADATA = "leader-epoch-checkpoint", "partition.metadata"


def name_of(log: ReplicaLog) -> str:
    """The name of a log: broker and folder, or text file and partition."""
    if log.is_text:
        return f"{log.name}#{log.where}"
    return str(log_name(f"{log.name}/", log.where.broker_id))


def listing_rows(contents: Contents, logs: Sequence[ReplicaLog]) -> Iterator[pa.Table]:
    """Rows of the table.

    Parameters
    ----------
    contents
        The contents of the files.
    logs
        The logs to list: all replicas of a partition, or none.
    """
    best = {id(each.log) for each in contents.best(STATE_TOPIC).values()} if _has_replicas(logs) else None
    roots: dict[LogDirRoot, str] = {}
    rows = []
    for log in logs:
        if log.root is not None and log.root not in roots:
            roots[log.root] = _digest(_stamps(log.root.path / name for name in (*CHECKPOINT_NAMES, CLEAN_SHUTDOWN)))
        is_best = log.where.topic == STATE_TOPIC and (best is None or id(log) in best)
        rows.append(_row(log, is_best, "" if log.root is None else roots[log.root]))
    yield pa.Table.from_pylist(rows, schema=LISTING_SCHEMA)


def _has_replicas(logs: Iterable[ReplicaLog]) -> bool:
    """Whether a partition of ``__transaction_state`` has several replicas."""
    numbers = [log.where.partition for log in logs if log.where.topic == STATE_TOPIC]
    return len(numbers) > len(set(numbers))


def _row(log: ReplicaLog, is_best: bool, checkpoints: str) -> Row:
    segments: list[tuple[str, int, int]] = list(_stamps([Path(log.name)])) if log.is_text else []
    others: list[tuple[str, int, int]] = []
    if isinstance(log, FolderLog):
        names = {segment.path.name for segment in log.listing.segments}
        for name, stamp in sorted(log.listing.stamps.items()):
            (segments if name in names else others).append((name, stamp.size, stamp.modified_ns))
    epochs, topic_id = _read_metadata(log)
    return {
        "log": name_of(log),
        **log.where.columns,
        "begin": log.base_offsets[0] if log.base_offsets else None,
        "segments": len(log.base_offsets),
        "bytes": log.size,
        "listing": _digest([segments, topic_id, log.error]),
        "checkpoints": _digest([checkpoints, others]),
        "topic_id": topic_id,
        "leader_epochs": json.dumps(epochs),
        "is_best": is_best,
    }


def _read_metadata(log: ReplicaLog) -> tuple[dict[int, int], str | None]:
    """The start offset of each leader epoch, and the topic id, from the files next to the segments."""
    epochs: dict[int, int] = {}
    topic_id = None
    for row in () if log.error else log.checkpoint_rows():
        if row.get("error"):
            continue
        if row["name"] == LEADER_EPOCHS and row["leader_epoch"] is not None:
            epochs[row["leader_epoch"]] = row["offset"]
        elif row["name"] == METADATA and row["key"] == "topic_id":
            topic_id = row["value"]
    return epochs, topic_id


def _stamps(paths: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        yield path.name, stat.st_size, stat.st_mtime_ns


def _digest(values: Iterable[object]) -> str:
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:16]
