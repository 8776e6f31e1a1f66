"""Checkpoint files of a log directory: offsets of its partitions, and whether the broker shut down cleanly."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.formats.files.checkpoint_files import CHECKPOINT_NAMES, checkpoint_rows
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.files.log_dir_layout import LogDirRoot, Replica

__all__ = ["CLEAN_SHUTDOWN", "PartitionCheckpoints", "read_partition_checkpoints", "replica_rows", "root_rows"]

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
HIGH_WATERMARK, LOG_START = "replication-offset-checkpoint", "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheckpoints:
    """Offsets in the checkpoint files of a log directory, by topic and partition.

    Parameters
    ----------
    high_watermark
        Written every five seconds and at a clean shutdown, so it may lag, but never leads.
    log_start
        Only of partitions whose log starts after its first segment's base offset.
    cleaned
        Offset up to which the cleaner has compacted.
    tells_cleaned
        Whether the cleaner's checkpoint file exists.
    errors
        Unreadable lines, by file name.
    ended_in_good_order
        Whether the broker has left `CLEAN_SHUTDOWN` and has not started since. *This* directory was then complete,
        checkpoints included. It does not prove a consistent copy: other brokers may have kept running, and some files
        may have been copied before the shutdown and others after.
    modified
        When the newest of the files was written.
    """

    high_watermark: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_start: Mapping[TopicPartition, int] = field(default_factory=dict)
    cleaned: Mapping[TopicPartition, int] = field(default_factory=dict)
    tells_cleaned: bool = False
    errors: Mapping[str, str] = field(default_factory=dict)
    ended_in_good_order: bool = False
    modified: dt.datetime | None = None


def read_partition_checkpoints(root: LogDirRoot) -> PartitionCheckpoints:
    """Read the checkpoint files of a log directory; missing files are skipped."""
    offsets: dict[str, dict[TopicPartition, int]] = {}
    errors: dict[str, str] = {}
    for row in root_rows(root):
        if row["error"]:
            errors.setdefault(row["name"], row["error"])
        elif row["topic"] is not None:
            offsets.setdefault(row["name"], {})[row["topic"], row["partition"]] = row["offset"]
    return PartitionCheckpoints(
        high_watermark=offsets.get(HIGH_WATERMARK, {}),
        log_start=offsets.get(LOG_START, {}),
        cleaned=offsets.get(CLEANED, {}),
        tells_cleaned=(root.path / CLEANED).exists(),
        errors=errors,
        ended_in_good_order=(root.path / CLEAN_SHUTDOWN).exists(),
        modified=_modified(root),
    )


def root_rows(root: LogDirRoot) -> Iterator[Row]:
    """Rows of ``schema.CHECKPOINTS`` of the files in a log directory itself."""
    for name in CHECKPOINT_NAMES:
        yield from _rows(root.path / name, broker_id=root.broker_id)


def replica_rows(replica: Replica) -> Iterator[Row]:
    """Rows of ``schema.CHECKPOINTS`` of the files in a partition's folder."""
    if replica.only is None:
        for name in CHECKPOINT_NAMES:
            yield from _rows(
                replica.path / name,
                broker_id=replica.broker_id,
                topic=replica.topic,
                partition=replica.partition,
            )


def _rows(
    path: Path, *, broker_id: int | None, topic: str | None = None, partition: int | None = None
) -> Iterator[Row]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as exc:
        yield {"name": path.name, "topic": topic, "partition": partition, "broker_id": broker_id, "file": str(path),
               "error": f"UNREADABLE: {exc.strerror}."}  # fmt: skip
        return
    yield from checkpoint_rows(
        path.name, text, broker_id=broker_id, file=os.fspath(path), topic=topic, partition=partition
    )


def _modified(root: LogDirRoot) -> dt.datetime | None:
    times = []
    for name in CHECKPOINT_NAMES:
        try:
            times.append((root.path / name).stat().st_mtime)
        except OSError:
            continue
    return dt.datetime.fromtimestamp(max(times), dt.UTC) if times else None
