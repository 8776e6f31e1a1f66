"""Log evidence of a finding: an excerpt of the partition's log, and records of the coordinators."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.schema import Row
from toolkit.schema.table import TopicPartition

if TYPE_CHECKING:
    from toolkit.formats.log.headers import Headers

__all__ = ["Excerpt", "LogEvidence", "is_to_explain"]

EXPLAINED = {"hanging", "unknown", "overdue", "stuck_ending", "prepared", "long"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Excerpt:
    """The part of a partition's log around the first offset of an open transaction.

    Parameters
    ----------
    headers
        Structured array of `toolkit.formats.log.headers.HEADER`: every batch that contains an offset of
        ``start <= offset < stop``, in order.
    start, stop
        The range of offsets that was read.
    log_start_offset
        First offset of the log; null if unknown.
    held
        Data records and bytes from the LSO to the high watermark, if counted while the log was read; else null.
    is_compacted
        Whether the cleaner may have removed batches from it; null if unknown.
    groups
        Consumer groups with offsets in an open transaction, by producer id; on ``__consumer_offsets`` only.
    source, broker_id, observed_at
        Where it was read, and when.
    error
        ``"NAME: text"`` if it could not be read, or not completely.
    """

    headers: Headers
    start: int
    stop: int
    log_start_offset: int | None
    observed_at: dt.datetime
    held: tuple[int, int] | None = None
    is_compacted: bool | None = None
    groups: Mapping[int, Sequence[str]] = field(default_factory=dict)
    source: str = "Fetch"
    broker_id: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogEvidence:
    """Log evidence of held partitions.

    Parameters
    ----------
    excerpts
        By partition.
    events
        Rows of ``schema.TRANSACTION_LOG`` of the relevant transactional ids, in order within a partition.
    unread
        Why events may be missing, one sentence per reason; empty if all were read.
    """

    excerpts: Mapping[TopicPartition, Excerpt]
    events: Sequence[Row] = ()
    unread: Sequence[str] = ()


def is_to_explain(row: Row) -> bool:
    """Whether the log should explain the transaction in a row of ``schema.FINDINGS``."""
    return row["start_offset"] is not None and (row["verdict"] in EXPLAINED or bool(row["cause"]))
