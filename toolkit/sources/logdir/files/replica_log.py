"""What every log in files offers, whether its segments are there or only what kafka-dump-log.sh printed of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from toolkit.formats.files.snapshot_files import SnapshotEntry
from toolkit.formats.log.headers import Headers
from toolkit.schema import Row
from toolkit.sources.log_tables import LogId, ScanChunk
from toolkit.sources.logdir.coordinator.record_index import RecordIndex
from toolkit.sources.logdir.files.log_dir_layout import LogDirRoot, SkippedFile

__all__ = ["ProducerSnapshot", "ReplicaLog"]


class ProducerSnapshot(NamedTuple):
    """A producer snapshot: the offset up to which it goes, and its producers, or why it cannot be used; its file."""

    offset: int
    producers: tuple[SnapshotEntry, ...]
    error: str | None = None
    file: str | None = None


class ReplicaLog(Protocol):
    """The log of one partition in one place."""

    @property
    def where(self) -> LogId:
        """Whose it is."""

    @property
    def name(self) -> str:
        """Folder or file, for messages."""

    @property
    def root(self) -> LogDirRoot | None:
        """The log directory that it lies in."""

    @property
    def error(self) -> str | None:
        """Why nothing of it can be read, as ``NAME: sentence``."""

    @property
    def modified(self) -> dt.datetime | None:
        """When the newest of its files was written."""

    @property
    def size(self) -> int:
        """Bytes of its segments."""

    @property
    def base_offsets(self) -> Sequence[int]:
        """Of its segments, in order."""

    @property
    def is_text(self) -> bool:
        """Whether it is known by a text only, in which nothing can be checked."""

    @property
    def left_out(self) -> Sequence[SkippedFile]:
        """Files that are no part of it."""

    def parts(self, *, start: int | None = None, stop: int | None = None, crc: bool = False) -> Iterator[ScanChunk]:
        """The batches that hold an offset of ``start <= offset < stop``, in the order of the log."""

    def parts_near(self, start: int, *, crc: bool = False) -> Iterator[ScanChunk]:
        """The batches from some batch at or before an offset on."""

    def transaction_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[Row]:
        """Records of ``__transaction_state`` (``schema.TRANSACTION_LOG``), and what could not be read as one."""

    def indexed(self) -> tuple[RecordIndex, Iterator[ScanChunk]]:
        """All batches of a partition of ``__transaction_state``; the index fills as they are taken."""

    def offsets_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[Row]:
        """Records of ``__consumer_offsets`` (``schema.OFFSETS_LOG``), and what could not be read as one."""

    def offsets_log_in(self, headers: Headers) -> Iterator[Row]:
        """The records of some batches of ``__consumer_offsets``."""

    def snapshots(self) -> Iterator[ProducerSnapshot]:
        """The producer snapshots, newest first."""

    def segment_rows(self) -> Iterator[Row]:
        """Its segments (``schema.SEGMENTS``)."""

    def aborted_rows(self) -> Iterator[Row]:
        """Entries of the transaction indexes (``schema.ABORTED``), and what could not be read as one."""

    def checkpoint_rows(self) -> Iterator[Row]:
        """Entries of the checkpoint files beside it (``schema.CHECKPOINTS``)."""

    def changes(self, *, appending: bool) -> list[str]:
        """What happened to its files since they were listed; as `replica_files.changes`."""
