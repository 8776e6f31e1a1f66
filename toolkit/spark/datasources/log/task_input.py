"""The input of one task of ``kafka_log_dir``: ranges of segments, or complete logs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pyspark.sql.datasource import InputPartition

from toolkit.sources.log_tables import LogId, ScanChunk, clip
from toolkit.sources.logdir.contents import FileScope
from toolkit.sources.logdir.log_dir_layout import LogDirLayout, Replica
from toolkit.sources.logdir.segment_splits import SegmentSplit, read_split


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRun:
    """Consecutive splits of one log.

    Parameters
    ----------
    where
        Topic, partition and broker.
    log
        Name of the log, see `toolkit.spark.datasources.log.log_listing.name_of`.
    replica
        The folder of the log.
    start
        First offset to read; null for the beginning of the log.
    splits
        The splits, in the order of the log.
    range_order
        Index of the first one among all splits of the log.
    is_last
        Whether the last one ends the log.
    log_end_offset
        Base offset of the newest segment, which may be empty.
    """

    where: LogId
    log: str
    replica: Replica
    start: int | None
    splits: Sequence[SegmentSplit]
    range_order: int
    is_last: bool
    log_end_offset: int

    def parts(self, *, stop: int | None, crc: bool = False) -> Iterator[ScanChunk]:
        """The batches before `stop`; with `crc` the checksums are verified."""
        chunks = chain.from_iterable(read_split(split, crc=crc) for split in self.splits)
        return clip(chunks, start=self.start, stop=stop)


@dataclass(frozen=True, eq=False)
class SegmentRanges(InputPartition):
    """Splits of one log, or small splits of several."""

    runs: Sequence[SegmentRun]


@dataclass(frozen=True, eq=False)
class WholeLogs(InputPartition):
    """Complete logs.

    Parameters
    ----------
    layout
        The folders and texts to read.
    topic_partitions
        Topics and partitions of the requested logs.
    scope
        Brokers and log directories of all tasks, for findings.
    """

    layout: LogDirLayout
    topic_partitions: Collection[tuple[str | None, int | None]]
    scope: FileScope | None = None
