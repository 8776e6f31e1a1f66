"""What questions about single offsets are answered from, whether a leader or a replica's files are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from toolkit.analysis.log.offset_status import LogSlice
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.offset_spec import OffsetSpec

__all__ = ["PARTITION_COLUMNS", "OffsetReader"]

PARTITION_COLUMNS = ("topic", "partition", "log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset",
                     "broker_id", "observed_at", "error")  # fmt: skip
"""What a row about an offset has of its partition."""


class OffsetReader(Protocol):
    """One partition, its offsets read once and its log as far as it is asked for.

    Attributes
    ----------
    partition
        Its row of ``schema.PARTITIONS``; offsets are null where `error` says why.
    """

    partition: Row

    @property
    def tp(self) -> TopicPartition:
        """Topic and partition."""

    @property
    def is_compacted(self) -> bool | None:
        """Whether the log cleaner may have been there; null where that is not known."""

    @property
    def opened(self) -> Mapping[int, int]:
        """Start offset of every open transaction, by producer id."""

    @property
    def truncated_end(self) -> int | None:
        """Where the log of an old leader ended whose last offsets were cut off; null where none is known."""

    def offset(self, bound: OffsetSpec) -> int:
        """The offset that a bound means."""

    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        """The batches that hold an offset of ``start <= offset < stop``, one chunk after the other."""

    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        """The id that owns a producer id, null where the coordinators know none; and what could not be read."""
