"""What every log in files offers, whether its segments are there or only what kafka-dump-log.sh printed of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from toolkit.formats.headers import Headers
from toolkit.formats.snapshots import ProducerState
from toolkit.schema import Row
from toolkit.sources.log_tables import Part, Where
from toolkit.sources.logdir.layout import LeftOut, Root
from toolkit.sources.logdir.record_index import RecordIndex

__all__ = ["Log", "Snapshot"]


class Snapshot(NamedTuple):
    """A producer snapshot: the offset up to which it goes, and its producers, or why it cannot be used; its file."""

    offset: int
    producers: tuple[ProducerState, ...]
    error: str | None = None
    file: str | None = None


class Log(Protocol):
    """The log of one partition in one place."""

    @property
    def where(self) -> Where:
        """Whose it is."""

    @property
    def name(self) -> str:
        """Folder or file, for messages."""

    @property
    def root(self) -> Root | None:
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
    def left_out(self) -> Sequence[LeftOut]:
        """Files that are no part of it."""

    def parts(self, *, start: int | None = None, stop: int | None = None, crc: bool = False) -> Iterator[Part]:
        """The batches that hold an offset of ``start <= offset < stop``, in the order of the log."""

    def parts_near(self, start: int, *, crc: bool = False) -> Iterator[Part]:
        """The batches from some batch at or before an offset on."""

    def coordinator_events(self, *, start: int | None = None, stop: int | None = None) -> Iterator[Row]:
        """Records of ``__transaction_state`` (``schema.COORDINATOR_EVENTS``), and what could not be read as one."""

    def indexed(self) -> tuple[RecordIndex, Iterator[Part]]:
        """All batches of a partition of ``__transaction_state``; the index fills as they are taken."""

    def group_events(self, *, start: int | None = None, stop: int | None = None) -> Iterator[Row]:
        """Records of ``__consumer_offsets`` (``schema.GROUP_EVENTS``), and what could not be read as one."""

    def group_events_in(self, headers: Headers) -> Iterator[Row]:
        """The records of some batches of ``__consumer_offsets``."""

    def snapshots(self) -> Iterator[Snapshot]:
        """The producer snapshots, newest first."""

    def segment_rows(self) -> Iterator[Row]:
        """Its segments (``schema.SEGMENTS``)."""

    def aborted_rows(self) -> Iterator[Row]:
        """Entries of the transaction indexes (``schema.ABORTED``), and what could not be read as one."""

    def checkpoint_rows(self) -> Iterator[Row]:
        """Entries of the checkpoint files beside it (``schema.CHECKPOINTS``)."""

    def changes(self, *, appending: bool) -> list[str]:
        """What happened to its files since they were listed; as `toolkit.sources.logdir.files.changes`."""
