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
    """A part of a partition's log, around the first offset of an open transaction.

    Parameters
    ----------
    headers
        Structured array of `toolkit.formats.log.headers.HEADER`: every batch that holds an offset of
        ``start <= offset < stop``, in order.
    start, stop
        The offsets read.
    log_start_offset
        First offset that the log had; null if not known.
    held
        Data records and bytes from the LSO to the high watermark, if counted while the log was read; else null.
    is_compacted
        Whether the cleaner may have taken batches out of it; null if not known.
    groups
        By producer id, the consumer groups whose offsets it has open; on ``__consumer_offsets`` only.
    source, broker_id, observed_at
        Where it was read, and when.
    error
        ``"NAME: text"`` if it could not be read, or not as far as was wanted.
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
        Rows of ``schema.TRANSACTION_LOG`` of the transactional ids that matter, those of a partition in order.
    unread
        Why events may be missing, a sentence each; empty where none is.
    """

    excerpts: Mapping[TopicPartition, Excerpt]
    events: Sequence[Row] = ()
    unread: Sequence[str] = ()


def is_to_explain(row: Row) -> bool:
    """Whether a row of ``schema.FINDINGS`` is of a transaction that the log should explain."""
    return row["start_offset"] is not None and (row["verdict"] in EXPLAINED or bool(row["cause"]))
