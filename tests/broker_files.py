"""The logs of a broker on this machine: batches, read here once more, and cut as a loss of power cuts them."""

from __future__ import annotations

import re
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.sources.log_files import HIGH_WATERMARK
from toolkit.errors import LabError
from toolkit.formats.batch_records import read_records
from toolkit.formats.batches import CONTROL, HEADER_SIZE, TRANSACTIONAL
from toolkit.formats.coordinator_records import (
    STATE_TOPIC,
    TransactionState,
    read_transaction_key,
    read_transaction_value,
)
from toolkit.lab import Kafka
from toolkit.lab.clients import ALWAYS_UP, until

T = TypeVar("T")

VALUE = re.compile(rb"w\d{9}")
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DERIVED = ("index", "timeindex", "txnindex", "snapshot")  # a broker makes them anew from the log


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """A batch in a file.

    `is_commit`: of a marker; null for data.
    `values`: of its records, in the order of their offsets.
    """

    base_offset: int
    last_offset: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_commit: bool | None
    values: Sequence[str]
    content: bytes

    def __str__(self) -> str:
        kind = ", ".join(self.values) if self.is_commit is None else "COMMIT" if self.is_commit else "ABORT"
        return f"{self.base_offset}: producer {self.producer_id} epoch {self.producer_epoch} {kind}"


def read_batches(folder: Path) -> list[LogBatch]:
    """All batches of a partition, in the order of their offsets."""
    return _while_files_stay(
        folder, lambda: [each for log in sorted(folder.glob("*.log")) for each in batches_of(log.read_bytes())]
    )


def copy_partition(folder: Path, copy: Path) -> None:
    """A copy of a partition in place of an older one, while its broker runs."""

    def copied() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)

    _while_files_stay(folder, copied)


def _while_files_stay(folder: Path, read: Callable[[], T]) -> T:
    """Read a folder again if the cleaner, or the end of a segment, has changed its files meanwhile."""
    for _ in range(100):
        names = sorted(folder.iterdir())
        with suppress(FileNotFoundError, shutil.Error):
            found = read()
            if names == sorted(folder.iterdir()):
                return found
        time.sleep(0.02)
    raise LabError(f"The files of {folder} do not stay.", do="")


def batches_of(content: bytes) -> Iterator[LogBatch]:
    position = 0
    while position + HEADER_SIZE <= len(content):
        (base_offset, length) = struct.unpack_from(">qi", content, position)
        batch = content[position : position + 12 + length]
        if not length or len(batch) < 12 + length:  # preallocated, or being written
            return
        attributes, last_delta, _, timestamp_ms, producer_id, epoch = struct.unpack_from(">hiqqqh", batch, 21)
        # Length, attributes, timestamp delta, offset delta and key length of a marker take a byte each.
        is_marker = bool(attributes & CONTROL)
        yield LogBatch(
            base_offset=base_offset,
            last_offset=base_offset + last_delta,
            timestamp_ms=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=bool(attributes & TRANSACTIONAL),
            is_commit=struct.unpack_from(">h", batch, HEADER_SIZE + 7)[0] == 1 if is_marker else None,
            values=[each.decode() for each in VALUE.findall(batch, HEADER_SIZE)],
            content=batch,
        )
        position += len(batch)


def read_states(folder: Path) -> list[tuple[str, TransactionState]]:
    """The records of a partition of ``__transaction_state``, tombstones left out."""
    found = []
    for batch in read_batches(folder):
        for record in read_records(batch.content):
            transactional_id = read_transaction_key(record.key) if record.key else None
            if transactional_id is not None and record.value is not None:
                found.append((transactional_id, read_transaction_value(record.value)))
    return found


def copy_logs(kafka: Kafka, path: Path) -> Path:
    """A copy of all log directories, once their checkpoints have every high watermark; nobody writes meanwhile."""
    since = time.time()
    for broker_id, log_dir in kafka.log_dirs.items():
        checkpoint = log_dir / HIGH_WATERMARK

        def is_written(file: Path = checkpoint) -> bool | None:
            return True if file.exists() and file.stat().st_mtime > since else None

        until(is_written, awaited=str(checkpoint))
        shutil.copytree(log_dir, path / str(broker_id), copy_function=shutil.copy2)
    return path


def partition_folder(kafka: Kafka, topic: str, partition: int) -> Path:
    """Of the only broker."""
    return kafka.log_dirs[ALWAYS_UP] / f"{topic}-{partition}"


def state_folders(kafka: Kafka) -> dict[int, Path]:
    """Partition of ``__transaction_state`` to its folder."""
    root = kafka.log_dirs[ALWAYS_UP]
    return {int(each.name.rpartition("-")[2]): each for each in root.glob(f"{STATE_TOPIC}-*")}


def cut_tail(folder: Path, count: int) -> list[LogBatch]:
    """Remove the last batches of a log, of a broker that is down; those that were there."""
    cut: list[LogBatch] = []
    for log in sorted(folder.glob("*.log"), reverse=True):
        batches = list(batches_of(log.read_bytes()))
        kept = max(len(batches) - (count - len(cut)), 0)
        cut = batches[kept:] + cut
        log.write_bytes(b"".join(each.content for each in batches[:kept]))
        if kept or len(cut) == count:
            break
        if log.name != min(each.name for each in folder.glob("*.log")):
            log.unlink()
    forget_derived(folder)
    return cut


def restore(folder: Path, copy: Path) -> None:
    """Put an older copy of a partition in its place, of a broker that is down."""
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    forget_derived(folder)


def lose_power(kafka: Kafka) -> None:
    """Stop the only broker so that its next start recovers every log."""
    kafka.stop_broker(ALWAYS_UP)
    (kafka.log_dirs[ALWAYS_UP] / CLEAN_SHUTDOWN).unlink(missing_ok=True)


def forget_derived(folder: Path) -> None:
    """Let a broker that is down make indexes and snapshots anew from its log."""
    for suffix in DERIVED:
        for path in folder.glob(f"*.{suffix}"):
            path.unlink()
