"""The tables about offsets, for a live cluster and for files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.errors import BrokerError, NotFound, UsageError
from toolkit.schema import Row
from toolkit.schema.live import GroupLag
from toolkit.schema.table import Error, TopicPartition

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.offset_queries.offset_reader import OffsetReader
    from toolkit.sources.offset_queries.offset_spec import OffsetSpec


class OffsetTables(ABC):
    """Visibility of an offset, offsets that consumers do not receive, and the lag of a group."""

    @abstractmethod
    def offset_readers(self, partitions: Sequence[TopicPartition]) -> list[OffsetReader]:
        """One reader per partition."""

    def offset_visibility(self, topic: str, partition: int, offset: int) -> pd.DataFrame:
        """The content of an offset, its transaction, and the consumers that receive it (``schema.OFFSET_VISIBILITY``).

        One row. The log is read around the offset only, for the transaction's first record and its marker.

        Parameters
        ----------
        topic, partition, offset
            The offset. The status of an offset outside the log says so.

        Raises
        ------
        NotFound
            If the partition does not exist.
        BrokerError, ConnectionFailed
            If its leader does not return its offsets.
        """
        return schema.OFFSET_VISIBILITY.frame(self.offset_visibility_rows(topic, partition, offset))

    def offset_visibility_rows(self, topic: str, partition: int, offset: int) -> list[Row]:
        """`offset_visibility` as rows."""
        from toolkit.sources.offset_queries.offset_spec import check_offset_spec
        from toolkit.sources.offset_queries.visibility_of_offset import visibility

        check_offset_spec(offset)
        return [visibility(self._readable(topic, partition), offset).row()]

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

        Consecutive offsets with the same reason are one row. Consumers receive the offsets that are in no row.

        Parameters
        ----------
        topic, partition
            The partition.
        start, stop
            First offset and the offset after the last, as for `batches`; an offset may be outside the log.
        read_committed
            The consumer's isolation level; read_uncommitted if false.

        Raises
        ------
        NotFound, BrokerError, ConnectionFailed
            As `offset_visibility`.
        UsageError
            If `start` or `stop` is not an offset specification, or `stop` comes before `start`.
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
        from toolkit.sources.offset_queries.offset_scan import missing_offsets
        from toolkit.sources.offset_queries.offset_spec import check_offset_range

        check_offset_range(start, stop)
        reader = self._readable(topic, partition)
        first, last = reader.offset(start), reader.offset(stop)
        if first > last:
            bounds = f"{stop} (offset {last}), before it starts at {start} (offset {first})"
            raise UsageError(f"The range of {topic}-{partition} ends at {bounds}.", do="Name a later stop offset.")
        return [each.row() for each in missing_offsets(reader, first, last, read_committed=read_committed)]

    def group_lag(self, group: str, *, max_offsets: int = 1_000_000) -> pd.DataFrame:
        """The lag of a group on each partition, and its parts (``schema.GROUP_LAG``).

        Parameters
        ----------
        group
            Group id. A consumer group is assumed to use read_committed.
        max_offsets
            Up to this lag, the log is read to distinguish records from markers.

        Raises
        ------
        NotFound
            If no broker lists the group, or files have no offset of it.
        BrokerError, ConnectionFailed
            If a broker does not list its groups, or the coordinator does not respond.
        """
        return schema.GROUP_LAG.frame(self.group_lags(group, max_offsets=max_offsets))

    def group_lag_rows(self, group: str, *, max_offsets: int = 1_000_000) -> list[Row]:
        """`group_lag` as rows."""
        return [each.row() for each in self.group_lags(group, max_offsets=max_offsets)]

    @abstractmethod
    def group_lags(self, group: str, *, max_offsets: int = 1_000_000) -> list[GroupLag]:
        """`group_lag` as records."""

    def _readable(self, topic: str, partition: int) -> OffsetReader:
        (reader,) = self.offset_readers([TopicPartition(topic, partition)])
        if reader.partition.high_watermark is None:
            code, text = Error.of(reader.partition.error or "UNKNOWN")
            if code == "UNKNOWN_TOPIC_OR_PARTITION":
                raise NotFound(f"The cluster has no partition {topic}-{partition}.")
            raise BrokerError(f"{topic}-{partition} cannot be read: {code} ({text.rstrip('.')}).", code=code)
        return reader
