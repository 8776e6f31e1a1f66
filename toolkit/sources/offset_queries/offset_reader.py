"""The interface of the readers of single offsets, for a live leader and for a replica's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from toolkit.analysis.log.offset_status import LogSlice
from toolkit.schema.live import OffsetVisibility, Partition
from toolkit.sources.offset_queries.offset_spec import OffsetSpec


class LogBounds(NamedTuple):
    """The offsets of a partition that can be read."""

    log_start: int
    lso: int
    high_watermark: int


class OffsetReader(Protocol):
    """One partition; its offsets are read once, its log on request.

    Attributes
    ----------
    partition
        The partition; if offsets are null, `error` says why.
    """

    partition: Partition

    @property
    def is_compacted(self) -> bool | None:
        """Whether the log cleaner may have compacted the log; null if unknown."""

    @property
    def opened(self) -> Mapping[int, int]:
        """Start offset of every open transaction, by producer id."""

    @property
    def truncated_end(self) -> int | None:
        """Log end offset of an old leader whose last offsets were truncated; null if none is known."""

    def offset(self, bound: OffsetSpec) -> int:
        """The offset that a specification resolves to."""

    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        """The batches with an offset in ``start <= offset < stop``, in chunks, in log order."""

    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        """The transactional id that owns a producer id, null if the coordinators have none; and a read error."""


def bounds_of(reader: OffsetReader) -> LogBounds:
    """The offsets of a partition whose high watermark is known; then the others are, too."""
    partition = reader.partition
    return LogBounds(partition.log_start_offset or 0, partition.last_stable_offset or 0, partition.high_watermark or 0)


def of_partition(partition: Partition, offset: int) -> OffsetVisibility:
    """An offset of which nothing is known but its partition."""
    return OffsetVisibility.of_record(partition, offset=offset, reason="")
