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
from toolkit.formats.columns import integers, labels, milliseconds, numbers, times
from toolkit.schema import SPANS, Column, Table
from toolkit.schema.table import INT64, STRING, TIME

__all__ = ["HOLDS", "SPAN_COLUMNS", "candidates", "holds", "settled"]

Array = npt.NDArray[Any]

NEVER = np.iinfo(np.int64).max
DIFFER_MS = int(CLOCKS_DIFFER.total_seconds() * 1000)
PRODUCER, BROKER = 0, 1
CLOCKS = ("producer", "broker")

SPAN_COLUMNS = (
    *("topic", "partition", "producer_id", "producer_epoch", "first_epoch", "first_offset", "marker_offset"),
    *("marker_epoch", "coordinator_epoch", "marker", "start", "start_by", "end", "first_sequence", "truncated"),
    *("broker_id", "file", "error"),
)
"""Columns of ``schema.SPANS`` that are needed."""

HOLDS = Table(
    "holds",
    "a transaction that held the LSO of its partition; without first offset, a marker that tells a time",
    (
        *(column for column in SPANS.columns if column.name in SPAN_COLUMNS),
        Column("after_offset", INT64, "Marker of the one that held the LSO until then; null where nothing was open."),
        Column("not_before", TIME, "Time of the last marker before it, where nothing else was open."),
        Column("not_after", TIME, "Time of the first marker behind its first batch; of after_offset where that is."),
        Column("opened_at", TIME, "When it opened, by the clock that opened_by names; null where none can be right."),
        Column("opened_by", STRING, "producer, or broker: LogAppendTime, or the time of the last marker before it."),
        Column("held_from", TIME, "From when on it held the LSO; null where that is not shown."),
        Column("held_to", TIME, "When its marker was written; null while it is open."),
        Column("held_ms", INT64, "How long it held the LSO; null while it is open, and where not shown.", unit="ms"),
        Column("least_ms", INT64, "How long at least, by the markers alone.", unit="ms"),
        Column("as_of", TIME, "Time of the last marker of the log: what it tells, it tells as of then."),
        Column("log_end_offset", INT64, "Offset after the last batch of the log that was read."),
        Column("records_held", INT64, "Data records from its first offset to its marker.", unit="records"),
        Column("bytes_held", INT64, "Bytes of the batches that hold them, other markers included.", unit="bytes"),
    ),
    key=("topic", "partition", "first_offset"),
    sort=("topic", "partition", "broker_id", "first_offset"),
)
"""A table between spans and findings. The last three columns are for others to fill."""

SCHEMA = HOLDS.arrow_schema


def holds(spans: pa.Table, *, min_held_ms: int = 0) -> pa.Table:
    """Every transaction that held the LSO of one log for long enough, or still does.

    Parameters
    ----------
    spans
        Rows of ``schema.SPANS`` of one log, in any order.
    min_held_ms
        Leave out what has ended and held the LSO for less. What has ended and does not show for how long stays.

    Returns
    -------
    pyarrow.Table
        Rows of `HOLDS`, by first offset.
    """
    if not spans.num_rows:  # as of most logs of a cluster, and by far cheaper
        return SCHEMA.empty_table()
    return settled(candidates(spans, min_held_ms=min_held_ms), min_held_ms=min_held_ms)


def candidates(spans: pa.Table, *, start: int = 0, stop: int | None = None, min_held_ms: int = 0) -> pa.Table:
    """What a section of a log tells of `holds`: those of all its sections together are for `settled`.

    Parameters
    ----------
    spans
        Rows of ``schema.SPANS`` of one log, in any order; those that hold an offset of the section are enough.
    start, stop
        The section: transactions that became the lowest at a batch or marker with an offset of
        ``start <= offset < stop``. That is one section for each.
    min_held_ms
        As for `holds`.

    Returns
    -------
    pyarrow.Table
        Rows of `HOLDS`. One that needs the time of a marker of another section is there, however short it is; and so
        are the first and the last marker of this one.
    """
    stop = NEVER if stop is None else stop
    lowest, marks = _Lowest.of(spans), _Marks.of(spans).within(start, stop)
    not_before = np.where(lowest.alone, marks.before(lowest.first), -1)
    # Where it was not alone, the markers around its first batch may lie anywhere before.
    not_after = np.where(lowest.alone, marks.after(lowest.first), lowest.times_before)
    found = _with_times(
        _table(
            spans.take(pa.array(lowest.rows)),
            {
                "after_offset": numbers(np.where(lowest.alone, -1, lowest.became_at)),
                "not_before": times(not_before),
                "not_after": times(not_after),
            },
        )
    )
    inside = (lowest.became_at >= start) & (lowest.became_at < stop)
    bounded = ~lowest.alone | ((not_before >= 0) & (not_after >= 0))
    found = found.filter(pa.array(inside & (~bounded | _long_enough(found, min_held_ms))))
    return pa.concat_tables([found, marks.table(spans)])


def settled(found: pa.Table, *, min_held_ms: int = 0) -> pa.Table:
    """The holds of one log, from the `candidates` of all its sections.

    Parameters
    ----------
    found
        Rows of `HOLDS`, in any order.
    min_held_ms
        As for `holds`.

    Returns
    -------
    pyarrow.Table
        Rows of `HOLDS`, by first offset.
    """
    marks = _Marks.of(found)
    found = found.filter(pc.is_valid(found["first_offset"])).sort_by("first_offset")
    first, alone = integers(found["first_offset"]), pc.is_null(found["after_offset"]).to_numpy()
    before, after = milliseconds(found["not_before"]), milliseconds(found["not_after"])
    before = np.where(alone & (before < 0), marks.before(first), before)
    after = np.where(alone & (after < 0), marks.after(first), after)
    as_of = np.full(found.num_rows, marks.times[-1] if len(marks.times) else -1)
    found = _table(found, {"not_before": times(before), "not_after": times(after), "as_of": times(as_of)})
    found = _with_times(found)
    return found.filter(pa.array(_long_enough(found, min_held_ms)))


def _with_times(found: pa.Table) -> pa.Table:
    """The same with what follows from the times of markers around."""
    alone = pc.is_null(found["after_offset"]).to_numpy()
    not_before, not_after = milliseconds(found["not_before"]), milliseconds(found["not_after"])
    end = milliseconds(found["end"])
    opened_at, opened_by = _openings(found, not_before, not_after)
    held_from = np.where(alone, opened_at, not_after)
    held_from = np.where(end >= 0, np.minimum(held_from, end), held_from)
    return _table(
        found,
        {
            "opened_at": times(opened_at),
            "opened_by": labels(opened_by, CLOCKS),
            "held_from": times(held_from),
            "held_to": times(end),
            "held_ms": numbers(np.where((end >= 0) & (held_from >= 0), end - held_from, -1)),
            "least_ms": numbers(np.where((end >= 0) & (not_after >= 0), np.maximum(end - not_after, 0), -1)),
        },
    )


def _openings(found: pa.Table, not_before: Array, not_after: Array) -> tuple[Array, Array]:
    """When they opened, and by whose clock: a producer's where the markers around the first batch allow it."""
    told = milliseconds(found["start"])
    by_broker = pc.is_in(found["start_by"], pa.array(CLOCKS[BROKER:])).to_numpy()
    allowed = (not_before < 0) | (told >= not_before - DIFFER_MS)
    allowed &= (not_after < 0) | (told <= not_after + DIFFER_MS)
    as_told = (told >= 0) & (by_broker | allowed)
    by = np.where(as_told, np.where(by_broker, BROKER, PRODUCER), np.where(not_before >= 0, BROKER, -1))
    return np.where(as_told, told, not_before), by


def _long_enough(found: pa.Table, min_held_ms: int) -> Array:
    held_ms = integers(found["held_ms"])
    return (held_ms < 0) | (held_ms >= min_held_ms)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lowest:
    """The transactions that were the lowest open one at some time, by first offset; -1 is unknown.

    Parameters
    ----------
    rows
        Where they stand in the table of spans.
    first
        First offset.
    alone
        Whether nothing else was open when it opened.
    became_at
        Offset of the batch or marker that made it the lowest.
    times_before
        Time of that marker.
    """

    rows: Array
    first: Array
    alone: Array
    became_at: Array
    times_before: Array

    @staticmethod
    def of(spans: pa.Table) -> _Lowest:
        first, marker = integers(spans["first_offset"]), integers(spans["marker_offset"])
        rows = np.flatnonzero(first >= 0)
        rows = rows[stable_order(first[rows])]
        end = np.where(marker[rows] < 0, NEVER, marker[rows])
        before = np.concatenate(([-1], np.maximum.accumulate(end)))[: len(end)]
        lowest = np.flatnonzero(end > before)  # those that end after all that opened before them
        rows, before = rows[lowest], before[lowest]
        alone = first[rows] > before
        return _Lowest(
            rows=rows,
            first=first[rows],
            alone=alone,
            became_at=np.where(alone, first[rows], before),
            times_before=np.concatenate(([-1], milliseconds(spans["end"])[rows]))[: len(rows)],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Marks:
    """Markers that tell their time, in the order of the log."""

    offsets: Array
    times: Array
    rows: Array

    @staticmethod
    def of(spans: pa.Table) -> _Marks:
        offsets, ends = integers(spans["marker_offset"]), milliseconds(spans["end"])
        rows = np.flatnonzero((offsets >= 0) & (ends >= 0))
        rows = rows[stable_order(offsets[rows])]
        return _Marks(offsets=offsets[rows], times=ends[rows], rows=rows)

    def within(self, start: int, stop: int) -> _Marks:
        inside = slice(*np.searchsorted(self.offsets, (start, stop)))
        return _Marks(offsets=self.offsets[inside], times=self.times[inside], rows=self.rows[inside])

    def before(self, offsets: Array) -> Array:
        """Time of the last marker before each offset; -1 where there is none."""
        return np.concatenate(([-1], self.times))[np.searchsorted(self.offsets, offsets)]

    def after(self, offsets: Array) -> Array:
        """Time of the first marker behind each offset; -1 where there is none."""
        return np.concatenate((self.times, [-1]))[np.searchsorted(self.offsets, offsets)]

    def table(self, spans: pa.Table) -> pa.Table:
        """The first and the last of them as rows of `HOLDS` without first offset."""
        both = spans.take(pa.array(self.rows[[0, -1]] if len(self.rows) else self.rows))
        return _table(both.select(["topic", "partition", "broker_id", "marker_offset", "end"]), {})


def _table(rows: pa.Table, given: dict[str, pa.Array]) -> pa.Table:
    """Rows as declared, with some columns given; what is missing is null."""
    columns = []
    for field in SCHEMA:
        column = given[field.name] if field.name in given else _column(rows, field)
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    return rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
