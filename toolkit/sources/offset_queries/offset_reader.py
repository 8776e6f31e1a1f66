"""The interface of the readers of single offsets, for a live leader and for a replica's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from toolkit.analysis.log.offset_status import LogSlice
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.offset_queries.offset_spec import OffsetSpec

PARTITION_COLUMNS = ("topic", "partition", "log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset",
                     "broker_id", "observed_at", "error")  # fmt: skip
"""Columns of the partition in a row about an offset."""


class OffsetReader(Protocol):
    """One partition; its offsets are read once, its log on request.

    Attributes
    ----------
    partition
        Its row of ``schema.PARTITIONS``; if offsets are null, `error` says why.
    """

    partition: Row

    @property
    def tp(self) -> TopicPartition:
        """Topic and partition."""

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
