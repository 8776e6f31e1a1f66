"""The records that an abort discards, saved before its marker is sent: a Parquet file beside the audit trail."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import ActionRefused, DecodeError, ToolkitError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC, read_group_key, read_offset_commit
from toolkit.schema import SAVED_RECORDS, utc
from toolkit.schema.actions import SavedHeader, SavedRecord
from toolkit.sources.live.logs.transaction_records import LastBatch, OpenBatch, open_batches
from toolkit.sources.recording.durable_files import flush

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.formats.log.batch_records import Record
    from toolkit.schema.live import Partition
    from toolkit.sources.live.cluster import Cluster

MAX_SAVE_BYTES = 256_000_000
"""Bytes of a transaction in the log that are saved without a question."""
ROW_GROUP_BYTES = 8 << 20  # of keys, values and headers; bounds the memory
MAX_ROWS = 100_000
NOT_SENT = "Nothing was written: the marker would have discarded them."


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRecords:
    """A file of saved records: its path, how many there are, and their size in the log."""

    path: Path
    records: int
    size: int

    def discard(self) -> None:
        """Delete the file, and its folder if that is empty: nothing was aborted."""
        _remove(self.path)


def records_path(audit: Audit, target: str, producer_id: int) -> Path:
    """Where the records of a transaction go; with a number if such a file exists."""
    folder = audit.path.with_name(f"{audit.path.stem}.records")
    return folder / f"{target}-{producer_id}.parquet"


def save_records(
    cluster: Cluster,
    partition: Partition,
    path: Path,
    *,
    producer_id: int,
    start_offset: int,
    last: LastBatch,
    max_bytes: int = MAX_SAVE_BYTES,
    check: Callable[[], None] = lambda: None,
) -> SavedRecords:
    """Write every record of an open transaction on a partition to a new file, and flush it to disk.

    `partition`: the partition as its leader has it now.
    `path`: as of `records_path`. The file gets mode 0600, and its folder 0700.
    `producer_id`, `start_offset`, `last`: the transaction, and its last batch by the producer's state.
    `max_bytes`: limit of its size in the log.
    `check`: called for each batch; what it raises ends the work.
    Raises ActionRefused if the records could not be read or written, or are more than the limit. No file is left then.
    """
    batches = open_batches(cluster.client, partition, producer_id=producer_id, start_offset=start_offset, last=last)
    hidden = final = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        records, size = _write(hidden, _limited(batches, max_bytes, check), partition)
        final = _reserved(path)
        hidden.replace(final)
        flush(path.parent)
        flush(path.parent.parent)  # the name of a new folder is on disk once its parent is synced
    except BaseException as error:
        for left in {hidden, final}:
            _remove(left)
        if isinstance(error, OSError):
            raise ActionRefused(
                f"The records could not be saved to {path}: {error.strerror or error}.",
                means=NOT_SENT,
                do="Name another audit file by --audit-file: the records are saved beside it.",
            ) from error
        if isinstance(error, ToolkitError) and not isinstance(error, ActionRefused):
            what = f"The records could not be saved: {error.what}"
            raise ActionRefused(what, means=NOT_SENT, do=error.do) from error
        raise
    return SavedRecords(path=final, records=records, size=size)


def _remove(path: Path) -> None:
    """Delete a file, and its folder if that is empty."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def _limited(batches: Iterable[OpenBatch], max_bytes: int, check: Callable[[], None]) -> Iterator[OpenBatch]:
    size = 0
    for batch in batches:
        check()
        size += batch.size
        if size > max_bytes:
            raise ActionRefused(
                f"The transaction's records take more than {max_bytes} bytes, the limit for saving them.",
                means=NOT_SENT,
                do="Raise --max-save-bytes. Where the outcome is proven, --no-save-records goes on without a copy.",
            )
        yield batch


def _write(path: Path, batches: Iterable[OpenBatch], partition: Partition) -> tuple[int, int]:
    """Number of records, and their size in the log."""
    import pyarrow.parquet as pq

    count = size = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with pq.ParquetWriter(file, SAVED_RECORDS.arrow_schema, compression="zstd") as writer:
            for rows, in_log in _row_groups(batches, partition):
                writer.write_table(SAVED_RECORDS.arrow(rows))
                count, size = count + len(rows), size + in_log
        file.flush()
        os.fsync(file.fileno())
    return count, size


def _reserved(path: Path) -> Path:
    """An empty file of that name, or with a number where there is one: no copy replaces another."""
    number, final = 1, path
    while True:
        try:
            os.close(os.open(final, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            number += 1
            final = path.with_name(f"{path.stem}.{number}{path.suffix}")
        else:
            return final


def _row_groups(batches: Iterable[OpenBatch], partition: Partition) -> Iterator[tuple[list[SavedRecord], int]]:
    rows: list[SavedRecord] = []
    waiting = in_log = 0
    for batch in batches:
        in_log += batch.size
        for record in batch.records():
            rows.append(_row(record, batch, partition))
            waiting += _size(record)
            if waiting > ROW_GROUP_BYTES or len(rows) == MAX_ROWS:
                yield rows, in_log
                rows, waiting, in_log = [], 0, 0
    yield rows, in_log


def _size(record: Record) -> int:
    headers = sum(len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _row(record: Record, batch: OpenBatch, partition: Partition) -> SavedRecord:
    row = SavedRecord(
        topic=partition.topic,
        partition=partition.partition,
        offset=record.offset,
        timestamp=utc(record.timestamp_ms),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        key=record.key,
        value=record.value,
        headers=tuple(SavedHeader(key=key.decode(errors="replace"), value=value) for key, value in record.headers),
    )
    return _with_offset_commit(row) if partition.topic == OFFSETS_TOPIC else row


def _with_offset_commit(row: SavedRecord) -> SavedRecord:
    """The columns of a committed offset decoded; null for what is none, or of a newer Kafka: its bytes are saved."""
    try:
        key = read_group_key(row.key or b"")
        if key is None or key.kind != "offset_commit":
            return row
        commit = None if row.value is None else read_offset_commit(row.value)
    except DecodeError:
        return row
    return replace(
        row,
        group_id=key.group_id,
        committed_topic=key.topic,
        committed_partition=key.partition,
        committed_offset=None if commit is None else commit.offset,
        committed_leader_epoch=None if commit is None else commit.leader_epoch,
    )
