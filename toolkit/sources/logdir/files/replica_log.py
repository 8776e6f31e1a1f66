"""The interface of a log in files, whether segments or output of kafka-dump-log.sh."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from toolkit.formats.log.headers import Headers
from toolkit.formats.segment_files import SnapshotEntry
from toolkit.schema import Row
from toolkit.sources.log_tables import LogId, ScanChunk
from toolkit.sources.logdir.coordinator.record_index import RecordIndex
from toolkit.sources.logdir.files.log_dir_layout import LogDirRoot, SkippedFile


class ProducerSnapshot(NamedTuple):
    """A producer snapshot: its offset, its producers or why it cannot be used, and its file."""

    offset: int
    producers: tuple[SnapshotEntry, ...]
    error: str | None = None
    file: str | None = None


class ReplicaLog(Protocol):
    """The log of one replica."""

    @property
    def where(self) -> LogId:
        """Topic, partition and broker."""

    @property
    def name(self) -> str:
        """Folder or file, for messages."""

    @property
    def root(self) -> LogDirRoot | None:
        """Its log directory; null for a text."""

    @property
    def error(self) -> str | None:
        """Why it cannot be read at all, as ``NAME: sentence``."""

    @property
    def modified(self) -> dt.datetime | None:
        """When the newest of its files was written."""

    @property
    def size(self) -> int:
        """Bytes of its segments."""

    @property
    def base_offsets(self) -> Sequence[int]:
        """Base offsets of its segments, in order."""

    @property
    def is_text(self) -> bool:
        """Whether it is output of kafka-dump-log.sh, in which nothing can be verified."""

    @property
    def left_out(self) -> Sequence[SkippedFile]:
        """Files that are not part of it."""

    def parts(self, *, start: int | None = None, stop: int | None = None, crc: bool = False) -> Iterator[ScanChunk]:
        """The batches with an offset in ``start <= offset < stop``, in log order."""

    def parts_near(self, start: int, *, crc: bool = False) -> Iterator[ScanChunk]:
        """The batches from one at or before an offset on."""

    def transaction_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[Row]:
        """Records of ``__transaction_state`` (``schema.TRANSACTION_LOG``), and read errors."""

    def indexed(self) -> tuple[RecordIndex, Iterator[ScanChunk]]:
        """All batches of a partition of ``__transaction_state``, and an index that is filled as they are consumed."""

    def offsets_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[Row]:
        """Records of ``__consumer_offsets`` (``schema.OFFSETS_LOG``), and read errors."""

    def offsets_log_in(self, headers: Headers) -> Iterator[Row]:
        """The records of some batches of ``__consumer_offsets``."""

    def snapshots(self) -> Iterator[ProducerSnapshot]:
        """The producer snapshots, newest first."""

    def segment_rows(self) -> Iterator[Row]:
        """Its segments (``schema.SEGMENTS``)."""

    def aborted_rows(self) -> Iterator[Row]:
        """Entries of the transaction indexes (``schema.ABORTED``), and read errors."""

    def checkpoint_rows(self) -> Iterator[Row]:
        """Entries of the checkpoint files in its folder (``schema.CHECKPOINTS``)."""

    def changes(self, *, appending: bool) -> list[str]:
        """What happened to its files since they were listed; as `replica_files.changes`."""
