"""Offset specs (an offset, a time, or a name such as ``lso``), the lag of groups, and the tables about offsets."""

from __future__ import annotations

import datetime as dt
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from toolkit import schema
from toolkit.analysis.diagnosis.consumer_lag import LagParts, group_lag, lag_reason, share_group_lag
from toolkit.errors import BrokerError, NotFound, ToolkitError, UsageError
from toolkit.schema import Row
from toolkit.schema.coerce import OffsetSpec, in_utc
from toolkit.schema.live import GroupLag, Partition
from toolkit.schema.table import EPOCH, Error, TopicPartition

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.analysis.log.offset_status import StatusRange
    from toolkit.sources.offset_reader import OffsetReader


EXAMPLE = "2026-11-21T12:00:00Z"
MILLISECOND = dt.timedelta(milliseconds=1)

NAMED: Mapping[str, str] = {
    "log_start": "log_start_offset",
    "lso": "last_stable_offset",
    "high_watermark": "high_watermark",
    "log_end": "log_end_offset",
}
"""Named offset to its column in ``schema.PARTITIONS``."""


def named_offset(partition: Partition, name: str) -> int | None:
    """The offset of a partition that one of the names stands for; null if it is unknown."""
    offset: int | None = getattr(partition, NAMED[name])
    return offset


def parsed_offset_spec(bound: OffsetSpec | None) -> OffsetSpec | None:
    """An offset spec with a time in place of its text, which begins with a year. Raises UsageError as `in_utc`."""
    if isinstance(bound, str) and re.match(r"\d{4}-", bound):
        return in_utc(bound)
    return bound


def check_offset_spec(bound: OffsetSpec | None) -> None:
    """Raise for an invalid offset spec before anything is read.

    Raises UsageError for an unknown name, a time without a zone, or a negative offset.
    """
    if isinstance(bound, str):
        if bound not in NAMED:
            names = ", ".join(NAMED)
            raise UsageError(f"{bound!r} is not an offset.", do=f"Use a number, a time as {EXAMPLE}, or {names}.")
    elif isinstance(bound, dt.datetime):
        in_utc(bound)
    elif bound is not None and operator.index(bound) < 0:
        raise UsageError(f"Offset {bound} is negative.", do=f"Use 0 or more, or {', '.join(NAMED)}.")


def check_offset_range(start: OffsetSpec | None, stop: OffsetSpec | None) -> None:
    """Raise for an invalid offset spec, and for a range that ends before it starts.

    Bounds of different kinds, such as a time and an offset, are comparable only once they are resolved.

    Raises UsageError as `check_offset_spec`, or if `stop` comes before `start`.
    """
    for bound in (start, stop):
        check_offset_spec(bound)
    if start is None or stop is None:
        return
    if isinstance(start, str) and isinstance(stop, str):
        is_reversed = list(NAMED).index(start) > list(NAMED).index(stop)
    elif isinstance(start, dt.datetime) and isinstance(stop, dt.datetime):
        is_reversed = start > stop
    elif isinstance(start, str | dt.datetime) or isinstance(stop, str | dt.datetime):
        return
    else:
        is_reversed = operator.index(start) > operator.index(stop)
    if is_reversed:
        raise UsageError(f"The range ends at {stop}, before it starts at {start}.", do="Exchange the two bounds.")


def milliseconds(time: dt.datetime) -> int:
    """Epoch milliseconds of a time with zone, rounded up: earlier records are older."""
    return -((EPOCH - time) // MILLISECOND)


READ_COMMITTED = "read_committed"
NO_LEVEL = "UNKNOWN: share.isolation.level of the share group is not visible, so it is unknown whether the group waits"


NO_TRANSACTION = (
    "NO_TRANSACTION: the offset is pending, and no transaction that could commit it is open on __consumer_offsets-{}; "
    "no consumer can read it until that partition's leader ends it (WriteTxnMarkers) or the group is deleted"
)
BEYOND_THE_END = (
    "The committed offset {} lies {} beyond the end of the partition, {}: the log lost its end, the topic was created "
    "again, or the offset is from another cluster or from after this copy. A consumer that continues there resets it "
    "by auto.offset.reset."
)
DELETED = (
    "DELETED: an open transaction has committed offset {}, and the group or its offsets were deleted since then, so "
    "that it is not pending any more: also after a commit the group does not have it"
)


class CommittedOffset(NamedTuple):
    """A committed offset of a group; null with an error where an open transaction has a pending commit."""

    offset: int | None
    error: str | None

    @property
    def is_pending(self) -> bool:
        """Whether its broker says that an open transaction has a pending commit."""
        return Error.of(self.error).code == "UNSTABLE_OFFSET_COMMIT"


class SharePartition(NamedTuple):
    """Start offset of a share partition (null if the group has read nothing of it), its lag, and the broker's error."""

    start_offset: int | None
    lag: int | None
    error: str | None


def lag_of_group(
    readers: Iterable[OffsetReader],
    group: str,
    committed: Mapping[TopicPartition, CommittedOffset],
    *,
    max_offsets: int,
) -> list[GroupLag]:
    """The lag of a consumer group on partitions with a committed offset, and its reason.

    An offset whose commit is pending in an open transaction is a row with an error; a finding on
    ``__consumer_offsets`` shows the transaction.

    `readers`: one per partition.
    `group`: group id. It is assumed to use read_committed, since brokers do not know its isolation level.
    `committed`: committed offset and error by partition.
    `max_offsets`: up to this lag, the log is read to distinguish records from markers.
    """
    return _sorted(_lag(each, group, *committed[each.partition.tp], max_offsets) for each in readers)


def lag_of_share_group(
    readers: Iterable[OffsetReader],
    group: str,
    partitions: Mapping[TopicPartition, SharePartition],
    *,
    level: str | None,
    max_offsets: int,
) -> list[GroupLag]:
    """The same of a share group, which reads from its start offset.

    `readers`, `group`, `max_offsets`: as for `lag_of_group`.
    `partitions`: what the group's coordinator has of each partition.
    `level`: its ``share.isolation.level``; null where that is not visible.
    """
    return _sorted(_share_lag(each, group, level, partitions[each.partition.tp], max_offsets) for each in readers)


def absent_lags(
    group: str, committed: Mapping[TopicPartition, CommittedOffset], *, taken_at: dt.datetime
) -> list[GroupLag]:
    """Partitions whose log is not among the files: the offset, or that it is pending, is known, and nothing behind."""
    error = "UNKNOWN_TOPIC_OR_PARTITION: its log is not among the files, so its lag is unknown"
    return _sorted(
        GroupLag(
            group_id=group,
            topic=topic,
            partition=partition,
            committed_offset=offset,
            observed_at=taken_at,
            error=own_error or error,
        )
        for (topic, partition), (offset, own_error) in committed.items()
    )


def hidden_topics_lag(group: str, gap: str, *, broker_id: int) -> GroupLag:
    """The record for topics that this principal may not describe: Kafka omits their offsets without an error.

    `gap`: the right or the proof that is missing. `broker_id`: the group's coordinator.
    """
    error = f"TOPIC_AUTHORIZATION_FAILED: offsets of other topics may be hidden; missing: {gap.rstrip('.')}"
    return GroupLag(group_id=group, broker_id=broker_id, observed_at=dt.datetime.now(dt.UTC), error=error)


def _lag(reader: OffsetReader, group: str, committed: int | None, error: str | None, max_offsets: int) -> GroupLag:
    lag = _unsplit(reader, group, committed, error)
    lso, high_watermark = lag.last_stable_offset, lag.high_watermark
    if error or committed is None or lso is None or high_watermark is None:
        return lag
    ranges, unread = _ranges(reader, committed, high_watermark, max_offsets)
    split = group_lag(committed, last_stable_offset=lso, high_watermark=high_watermark, ranges=ranges)
    end = max(high_watermark, reader.partition.log_end_offset or 0)
    found = replace(_split(lag, split, unread), beyond_end=max(0, committed - end))
    return replace(found, reason=BEYOND_THE_END.format(committed, committed - end, end)) if found.beyond_end else found


def _share_lag(
    reader: OffsetReader, group: str, level: str | None, share: SharePartition, max_offsets: int
) -> GroupLag:
    lag = replace(_unsplit(reader, group, share.start_offset, share.error), isolation_level=level)
    if level is None:
        return replace(lag, lag=share.lag, error=lag.error or NO_LEVEL)
    start, lso, high_watermark = share.start_offset, lag.last_stable_offset, lag.high_watermark
    if share.error or start is None or lso is None or high_watermark is None:
        return replace(lag, lag=share.lag)
    read_committed = level == READ_COMMITTED
    ranges, unread = _ranges(reader, start, high_watermark, max_offsets) if read_committed else (None, None)
    split = share_group_lag(
        share.lag,
        start_offset=start,
        last_stable_offset=lso,
        high_watermark=high_watermark,
        ranges=ranges,
        read_committed=read_committed,
    )
    return _split(lag, split, unread)


def _unsplit(reader: OffsetReader, group: str, committed: int | None, error: str | None) -> GroupLag:
    error = error or reader.partition.error
    return GroupLag.of_record(reader.partition, group_id=group, committed_offset=committed, error=error)


def _split(lag: GroupLag, parts: LagParts, unread: str | None) -> GroupLag:
    found = replace(lag, **parts._asdict(), error=unread or lag.error)
    return replace(found, reason=lag_reason(found))


def _sorted(found: Iterable[GroupLag]) -> list[GroupLag]:
    return sorted(found, key=attrgetter("topic", "partition"))


def _ranges(
    reader: OffsetReader, committed: int, high_watermark: int, max_offsets: int
) -> tuple[Sequence[StatusRange] | None, str | None]:
    """The status of the offsets from the committed one on, and a read error; both null for too many offsets."""
    if high_watermark - committed > max_offsets:
        return None, None
    try:
        ranges, errors = reader.classified_ranges(committed, high_watermark)
    except ToolkitError as error:
        return None, f"the log was not read: {error}"
    return (None, errors[0]) if errors else (ranges, None)


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
        check_offset_spec(offset)
        return [self._readable(topic, partition).visibility(offset).row()]

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
        check_offset_range(start, stop)
        reader = self._readable(topic, partition)
        first, last = reader.offset(start), reader.offset(stop)
        if first > last:
            bounds = f"{stop} (offset {last}), before it starts at {start} (offset {first})"
            raise UsageError(f"The range of {topic}-{partition} ends at {bounds}.", do="Name a later stop offset.")
        return [each.row() for each in reader.missing_offsets(first, last, read_committed=read_committed)]

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
                raise NotFound(
                    f"The cluster has no partition {topic}-{partition}.", do="kafka-txn partitions lists them."
                )
            raise BrokerError(f"{topic}-{partition} cannot be read: {code} ({text.rstrip('.')}).", code=code)
        return reader
