"""What one task of ``kafka_log_dir`` reads: ranges of segments, or whole logs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pyspark.sql.datasource import InputPartition

from toolkit.sources.log_tables import LogId, ScanChunk, clip
from toolkit.sources.logdir.contents import FileScope
from toolkit.sources.logdir.files.log_dir_layout import LogDirLayout, Replica
from toolkit.sources.logdir.files.segment_splits import SegmentSplit, read_split

__all__ = ["SegmentRanges", "SegmentRun", "WholeLogs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRun:
    """Consecutive ranges of one log.

    Parameters
    ----------
    where
        Whose.
    log
        Its name, see `toolkit.spark.datasources.log.log_listing.name_of`.
    replica
        Where it is.
    start
        From which offset on it is read; from its beginning if null.
    splits
        In the order of the log.
    section
        Number of the first of them among those that are read of the log.
    is_last
        Whether they end it.
    log_end_offset
        Base offset of its newest segment, which may be empty.
    """

    where: LogId
    log: str
    replica: Replica
    start: int | None
    splits: Sequence[SegmentSplit]
    section: int
    is_last: bool
    log_end_offset: int

    def parts(self, *, stop: int | None, crc: bool = False) -> Iterator[ScanChunk]:
        """The batches before `stop`; with `crc` the checksums are verified."""
        parts = chain.from_iterable(read_split(split, crc=crc) for split in self.splits)
        return clip(parts, start=self.start, stop=stop)


@dataclass(frozen=True, eq=False)
class SegmentRanges(InputPartition):
    """Ranges of one log, or small ones of several."""

    runs: Sequence[SegmentRun]


@dataclass(frozen=True, eq=False)
class WholeLogs(InputPartition):
    """Whole logs.

    Parameters
    ----------
    layout
        The folders and texts that are read.
    places
        Topics and partitions of the logs to read.
    scope
        What the findings of all tasks go by.
    """

    layout: LogDirLayout
    places: Collection[tuple[str | None, int | None]]
    scope: FileScope | None = None
