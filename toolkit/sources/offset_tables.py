"""The tables about offsets, the same of a live cluster and of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.errors import BrokerError, NotFound
from toolkit.schema import Row

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.schema.table import TopicPartition
    from toolkit.sources.offset_reader import OffsetReader
    from toolkit.sources.offset_spec import OffsetSpec

__all__ = ["OffsetTables"]


class OffsetTables(ABC):
    """Who receives an offset, which offsets of a range are missing, and how far a group is behind."""

    @abstractmethod
    def offset_readers(self, partitions: Sequence[TopicPartition]) -> list[OffsetReader]:
        """What reads single partitions."""

    def offset_visibility(self, topic: str, partition: int, offset: int) -> pd.DataFrame:
        """What an offset holds, whose it is, and which consumers receive it (``schema.OFFSET_VISIBILITY``): one row.

        The log is read around the offset only, for the transaction's first record and its marker.

        Parameters
        ----------
        topic, partition, offset
            Which one. An offset that is not in the log is told as such.

        Raises
        ------
        NotFound
            If the partition is not there.
        BrokerError, ConnectionFailed
            If its leader does not tell its offsets.
        """
        return schema.OFFSET_VISIBILITY.frame(self.offset_visibility_rows(topic, partition, offset))

    def offset_visibility_rows(self, topic: str, partition: int, offset: int) -> list[Row]:
        """`offset_visibility` as rows."""
        from toolkit.sources.offset_spec import check_offset_spec
        from toolkit.sources.visibility_of_offset import visibility_row

        check_offset_spec(offset)
        return [visibility_row(self._readable(topic, partition), offset)]

    def missing_offsets(
        self,
        topic: str,
        partition: int,
        *,
        start: OffsetSpec = "log_start",
        stop: OffsetSpec = "high_watermark",
        read_committed: bool = True,
    ) -> pd.DataFrame:
        """Every offset of a range that a consumer does not receive, and why (``schema.MISSING_OFFSETS``).

        Consecutive offsets of one reason are one row. Consumers receive all other offsets.

        Parameters
        ----------
        topic, partition
            Which partition.
        start, stop
            From where to before where: as for `batches`, and an offset may lie outside the log.
        read_committed
            The consumer's isolation level; read_uncommitted if false.

        Raises
        ------
        NotFound, BrokerError, ConnectionFailed
            As `offset_visibility`.
        UsageError
            If a bound is none.
        """
        rows = self.missing_offset_rows(topic, partition, start=start, stop=stop, read_committed=read_committed)
        return schema.MISSING_OFFSETS.frame(rows)

    def missing_offset_rows(
        self,
        topic: str,
        partition: int,
        *,
        start: OffsetSpec = "log_start",
        stop: OffsetSpec = "high_watermark",
        read_committed: bool = True,
    ) -> list[Row]:
        """`missing_offsets` as rows."""
        from toolkit.sources.missing_offset_ranges import missing_rows
        from toolkit.sources.offset_spec import check_offset_spec

        for bound in (start, stop):
            check_offset_spec(bound)
        reader = self._readable(topic, partition)
        return missing_rows(reader, reader.offset(start), reader.offset(stop), read_committed=read_committed)

    def group_lag(self, group: str, *, max_offsets: int = 1_000_000) -> pd.DataFrame:
        """How far a group is behind on each partition, and what that is made of (``schema.GROUP_LAG``).

        Parameters
        ----------
        group
            Group id. A consumer group is taken to read with read_committed.
        max_offsets
            The log is read to tell records from markers where the lag is no more than this.

        Raises
        ------
        NotFound
            If no broker lists the group, or files have no offset of it.
        BrokerError, ConnectionFailed
            If a broker does not list its groups, or the coordinator does not answer.
        """
        return schema.GROUP_LAG.frame(self.group_lag_rows(group, max_offsets=max_offsets))

    def group_lag_rows(self, group: str, *, max_offsets: int = 1_000_000) -> list[Row]:
        """`group_lag` as rows."""
        from toolkit.sources.group_lag import group_lag_rows

        return list(group_lag_rows(self, group, max_offsets=max_offsets))  # type: ignore[arg-type]

    def _readable(self, topic: str, partition: int) -> OffsetReader:
        (reader,) = self.offset_readers([(topic, partition)])
        if reader.partition["high_watermark"] is None:
            code, _, text = (reader.partition["error"] or "UNKNOWN").partition(": ")
            if code == "UNKNOWN_TOPIC_OR_PARTITION":
                raise NotFound(f"The cluster has no partition {topic}-{partition}.")
            raise BrokerError(f"{topic}-{partition} cannot be read: {text or code}.", code=code)
        return reader
