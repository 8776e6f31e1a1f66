"""Which transaction held a partition's LSO from when to when, by its log.

The lowest open transaction holds it: from its first batch on where nothing else was open then, else from the marker of
the last one that had been open before it. What counts is the order of the log; what is told is the time of that batch
or marker. Markers carry the time of the partition's leader. The first batch carries its producer's, which counts as far
as the markers around it allow, as in `toolkit.analysis.impact`.

As in `toolkit.analysis.lso`, the first batch that was read counts as the beginning of a transaction that may have begun
before, and replication is left aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.impact import CLOCKS_DIFFER
from toolkit.analysis.ordering import stable_order
from toolkit.formats.columns import labels, numbers, times
from toolkit.schema import SPANS, Column, Table
from toolkit.schema.table import INT64, STRING, TIME

__all__ = ["HOLDS", "holds", "last_marker_time"]

Array = npt.NDArray[Any]

NEVER = np.iinfo(np.int64).max
DIFFER_MS = int(CLOCKS_DIFFER.total_seconds() * 1000)
PRODUCER, BROKER = 0, 1
CLOCKS = ("producer", "broker")

HOLDS = Table(
    "holds",
    "a transaction that held the LSO of its partition",
    (
        *SPANS.columns,
        Column("opened_at", TIME, "When it opened, by the clock that opened_by names; null where none can be right."),
        Column("opened_by", STRING, "producer, or broker: LogAppendTime, or the time of the last marker before it."),
        Column("not_before", TIME, "Time of the last marker before it, where nothing else was open; null without one."),
        Column("after_offset", INT64, "Marker of the one that held the LSO until then; null where nothing was open."),
        Column("held_from", TIME, "From when on it held the LSO; null where that is not shown."),
        Column("held_to", TIME, "When its marker was written; null while it is open."),
        Column("held_ms", INT64, "How long it held the LSO; null while it is open, and where not shown.", unit="ms"),
        Column("least_ms", INT64, "How long at least, by the markers alone.", unit="ms"),
        Column("log_end_offset", INT64, "Offset after the last batch of the log that was read."),
        Column("as_of", TIME, "Time of the last marker of the log: what it tells, it tells as of then."),
        Column("records_held", INT64, "Data records from its first offset to its marker.", unit="records"),
        Column("bytes_held", INT64, "Bytes of the batches that hold them, other markers included.", unit="bytes"),
    ),
    key=("topic", "partition", "first_offset"),
    sort=("topic", "partition", "broker_id", "first_offset"),
)
"""A table between spans and findings; `holds` leaves the last four columns null."""


def holds(spans: pa.Table, *, start: int = 0, stop: int | None = None, min_held_ms: int = 0) -> pa.Table:
    """Every transaction that held the LSO of one log for long enough, or still does.

    Parameters
    ----------
    spans
        Rows of ``schema.SPANS`` of one log, in any order: all, or for a section those that hold an offset of it and
        the marker that is the last before it and the one that is the first behind it, for their times.
    start, stop
        A section: the transactions that became the lowest at a batch or marker with an offset of
        ``start <= offset < stop``. That is one section for each, so that those of all sections are those of the log.
    min_held_ms
        Leave out what has ended and held the LSO for less. What has ended and does not show for how long stays.

    Returns
    -------
    pyarrow.Table
        Rows of `HOLDS`, by first offset.
    """
    lowest, marks = _Lowest.of(spans), _Marks.of(spans)
    # Where it was not alone, the markers around its first batch may lie in another section.
    not_before = np.where(lowest.alone, marks.before(lowest.first), -1)
    not_after = np.where(lowest.alone, marks.after(lowest.first), lowest.times_before)
    opened_at, opened_by = _openings(lowest, not_before, not_after)
    held_from = np.where(lowest.alone, opened_at, lowest.times_before)
    ended = lowest.end_times >= 0
    held_from = np.where(ended, np.minimum(held_from, lowest.end_times), held_from)
    held_ms = np.where(ended & (held_from >= 0), lowest.end_times - held_from, -1)
    least_ms = np.where(ended & (not_after >= 0), np.maximum(lowest.end_times - not_after, 0), -1)
    inside = (lowest.became_at >= start) & (lowest.became_at < (NEVER if stop is None else stop))
    chosen = np.flatnonzero(inside & ((lowest.end == NEVER) | (held_ms < 0) | (held_ms >= min_held_ms)))
    found = {
        "opened_at": times(opened_at[chosen]),
        "opened_by": labels(opened_by[chosen], CLOCKS),
        "not_before": times(not_before[chosen]),
        "after_offset": numbers(np.where(lowest.alone, -1, lowest.became_at)[chosen]),
        "held_from": times(held_from[chosen]),
        "held_to": times(lowest.end_times[chosen]),
        "held_ms": numbers(held_ms[chosen]),
        "least_ms": numbers(least_ms[chosen]),
    }
    return _table(spans.take(pa.array(lowest.rows[chosen])), found)


def last_marker_time(spans: pa.Table) -> pa.Scalar:
    """Time of the marker with the highest offset; null without one."""
    marks = _Marks.of(spans)
    return times(marks.times[-1:])[0] if len(marks.times) else pa.scalar(None, pa.timestamp("ms", tz="UTC"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lowest:
    """The transactions that were the lowest open one at some time, by first offset; -1 is unknown.

    Parameters
    ----------
    rows
        Where they stand in the table of spans.
    first, end
        First offset, and offset of the marker; `NEVER` while it is open.
    alone
        Whether nothing else was open when it opened.
    became_at
        Offset of the batch or marker that made it the lowest.
    times_before
        Time of that marker.
    told, told_by, end_times
        Time of its first batch, whose clock that was, and time of its marker.
    """

    rows: Array
    first: Array
    end: Array
    alone: Array
    became_at: Array
    times_before: Array
    told: Array
    told_by: Array
    end_times: Array

    @staticmethod
    def of(spans: pa.Table) -> _Lowest:
        first, marker = _integers(spans, "first_offset"), _integers(spans, "marker_offset")
        rows = np.flatnonzero(first >= 0)
        rows = rows[stable_order(first[rows])]
        end = np.where(marker[rows] < 0, NEVER, marker[rows])
        before = np.concatenate(([-1], np.maximum.accumulate(end)))[: len(end)]
        lowest = np.flatnonzero(end > before)  # those that end after all that opened before them
        rows, end, before = rows[lowest], end[lowest], before[lowest]
        alone = first[rows] > before
        end_times = _milliseconds(spans, "end")[rows]
        return _Lowest(
            rows=rows,
            first=first[rows],
            end=end,
            alone=alone,
            became_at=np.where(alone, first[rows], before),
            times_before=np.concatenate(([-1], end_times))[: len(end_times)],
            told=_milliseconds(spans, "start")[rows],
            told_by=pc.is_in(spans["start_by"], pa.array(CLOCKS[BROKER:])).to_numpy()[rows],
            end_times=end_times,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Marks:
    """Markers that tell their time, in the order of the log."""

    offsets: Array
    times: Array

    @staticmethod
    def of(spans: pa.Table) -> _Marks:
        offsets, ends = _integers(spans, "marker_offset"), _milliseconds(spans, "end")
        known = np.flatnonzero((offsets >= 0) & (ends >= 0))
        known = known[stable_order(offsets[known])]
        return _Marks(offsets=offsets[known], times=ends[known])

    def before(self, offsets: Array) -> Array:
        """Time of the last marker before each offset; -1 where there is none."""
        return np.concatenate(([-1], self.times))[np.searchsorted(self.offsets, offsets)]

    def after(self, offsets: Array) -> Array:
        """Time of the first marker behind each offset; -1 where there is none."""
        return np.concatenate((self.times, [-1]))[np.searchsorted(self.offsets, offsets)]


def _openings(lowest: _Lowest, not_before: Array, not_after: Array) -> tuple[Array, Array]:
    """When they opened, and by whose clock: a producer's where the markers around the first batch allow it."""
    allowed = (not_before < 0) | (lowest.told >= not_before - DIFFER_MS)
    allowed &= (not_after < 0) | (lowest.told <= not_after + DIFFER_MS)
    as_told = (lowest.told >= 0) & (lowest.told_by | allowed)
    by = np.where(as_told, np.where(lowest.told_by, BROKER, PRODUCER), np.where(not_before >= 0, BROKER, -1))
    return np.where(as_told, lowest.told, not_before), by


def _table(spans: pa.Table, found: dict[str, pa.Array]) -> pa.Table:
    columns = []
    for field in HOLDS.arrow_schema:
        given = found.get(field.name)
        if given is None and field.name in SPANS.names:
            given = spans[field.name]
        columns.append(pa.nulls(spans.num_rows, field.type) if given is None else given.cast(field.type))
    return pa.Table.from_arrays(columns, schema=HOLDS.arrow_schema)


def _integers(table: pa.Table, name: str) -> Array:
    values: Array = table[name].fill_null(-1).to_numpy()
    return values


def _milliseconds(table: pa.Table, name: str) -> Array:
    values: Array = table[name].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).fill_null(-1).to_numpy()
    return values
