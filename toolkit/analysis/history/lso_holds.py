"""Which transaction held a partition's LSO, and from when to when, by the partition's log.

The lowest open transaction holds the LSO: from its first batch if no other transaction was open then, otherwise from
the last marker of the transactions that opened before it. The order of the log decides; the time is that of the batch
or marker. Markers carry the time of the partition's leader. The first batch carries its producer's time, which the
markers around it bound, as in `toolkit.analysis.diagnosis.evidence.explanation.held_since`.

As in `log.lso_timeline`, a transaction that may have begun before the range read begins with its first batch in that
range, and replication is not considered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER
from toolkit.formats.columns import integers, labels, milliseconds, numbers, times
from toolkit.formats.log.headers import Array
from toolkit.schema.derived import LSO_HOLDS

NEVER = np.iinfo(np.int64).max
DIFFER_MS = int(CLOCKS_DIFFER.total_seconds() * 1000)
PRODUCER, BROKER = 0, 1
CLOCKS = ("producer", "broker")
SCHEMA = LSO_HOLDS.arrow_schema


def lso_holds(*ranges: pa.Table, min_held_ms: int = 0) -> pa.Table:
    """Every transaction that held the LSO of one log for long enough, or still does.

    Rows of `LSO_HOLDS`, by first offset.
    `*ranges`: rows of ``schema.LOG_TRANSACTIONS`` of one log, in any order; if it has missing offsets, those of each
        range between them. Only those open at the end of the last range are known to be open.
    `min_held_ms`: leave out ended transactions that held the LSO for less; those with an unknown duration stay.
    """
    if not any(each.num_rows for each in ranges):  # most logs of a cluster; by far cheaper
        return SCHEMA.empty_table()
    found = [candidates(each, min_held_ms=min_held_ms) for each in ranges]
    found[:-1] = [each.filter(pc.is_valid(each["marker_offset"])) for each in found[:-1]]
    return without_short_holds(pa.concat_tables(found), min_held_ms=min_held_ms)


def candidates(
    log_transactions: pa.Table, *, start: int = 0, stop: int | None = None, min_held_ms: int = 0
) -> pa.Table:
    """Candidates for holds from one range of a log; `without_short_holds` selects from the candidates of all ranges.

    Rows of `LSO_HOLDS`. They include holds of any duration that need the time of a marker in another range. The first
    and the last marker of this range are rows without first_offset.
    `log_transactions`: rows of ``schema.LOG_TRANSACTIONS`` of one log, in any order; the transactions in the range are
        enough.
    `start`, `stop`: only transactions that became the lowest at a batch or marker with an offset of ``start <= offset <
        stop``, so each is in one range.
    `min_held_ms`: as for `lso_holds`.
    """
    stop = NEVER if stop is None else stop
    lowest, marker_times = _LowestOpen.of(log_transactions), _MarkerTimes.of(log_transactions).within(start, stop)
    not_before: Array = np.where(lowest.alone, marker_times.before(lowest.first), -1)
    # If it was not alone, the markers around its first batch may be anywhere before.
    not_after: Array = np.where(lowest.alone, marker_times.after(lowest.first), lowest.times_before)
    found = _with_times(
        hold_table(
            log_transactions.take(pa.array(lowest.rows)),
            {
                "after_offset": numbers(np.where(lowest.alone, -1, lowest.became_at)),
                "not_before": times(not_before),
                "not_after": times(not_after),
            },
        )
    )
    inside = (lowest.became_at >= start) & (lowest.became_at < stop)
    bounded = ~lowest.alone | (not_after >= 0)  # with a marker before it, it can only turn out shorter
    found = found.filter(pa.array(inside & (~bounded | _long_enough(found, min_held_ms))))
    return pa.concat_tables([found, marker_times.table(log_transactions)])


def without_short_holds(found: pa.Table, *, min_held_ms: int = 0) -> pa.Table:
    """The holds of one log, from the `candidates` of all its ranges.

    Rows of `LSO_HOLDS`, by first offset. `found`: rows of `LSO_HOLDS`, in any order. `min_held_ms`: as for `lso_holds`.
    """
    marker_times = _MarkerTimes.of(found)
    found = found.filter(pc.is_valid(found["first_offset"])).sort_by("first_offset")
    first, alone = integers(found["first_offset"]), pc.is_null(found["after_offset"]).to_numpy()
    before, after = milliseconds(found["not_before"]), milliseconds(found["not_after"])
    before = np.where(alone & (before < 0), marker_times.before(first), before)
    after = np.where(alone & (after < 0), marker_times.after(first), after)
    as_of = np.full(found.num_rows, marker_times.times[-1] if len(marker_times.times) else -1)
    found = hold_table(found, {"not_before": times(before), "not_after": times(after), "as_of": times(as_of)})
    found = _with_times(found)
    return found.filter(pa.array(_long_enough(found, min_held_ms)))


def _with_times(found: pa.Table) -> pa.Table:
    """Set the times that follow from the markers around each first batch."""
    alone = pc.is_null(found["after_offset"]).to_numpy()
    not_before, not_after = milliseconds(found["not_before"]), milliseconds(found["not_after"])
    end = milliseconds(found["end"])
    opened_at, opened_at_clock = _openings(found, not_before, not_after)
    held_from: Array = np.where(alone, opened_at, not_after)
    held_from = np.where(end >= 0, np.minimum(held_from, end), held_from)
    return hold_table(
        found,
        {
            "opened_at": times(opened_at),
            "opened_at_clock": labels(opened_at_clock, CLOCKS),
            "held_from": times(held_from),
            "held_to": times(end),
            "held_ms": numbers(np.where((end >= 0) & (held_from >= 0), end - held_from, -1)),
            "least_ms": numbers(np.where((end >= 0) & (not_after >= 0), np.maximum(end - not_after, 0), -1)),
        },
    )


def _openings(found: pa.Table, not_before: Array, not_after: Array) -> tuple[Array, Array]:
    """When they opened, and by whose clock: the producer's only if the markers around the first batch allow it."""
    start_ms = milliseconds(found["start"])
    by_broker = pc.is_in(found["start_clock"], pa.array(CLOCKS[BROKER:])).to_numpy()
    allowed = (not_before < 0) | (start_ms >= not_before - DIFFER_MS)
    allowed &= (not_after < 0) | (start_ms <= not_after + DIFFER_MS)
    is_plausible = (start_ms >= 0) & (by_broker | allowed)
    clock = np.where(is_plausible, np.where(by_broker, BROKER, PRODUCER), np.where(not_before >= 0, BROKER, -1))
    return np.where(is_plausible, start_ms, not_before), clock


def _long_enough(found: pa.Table, min_held_ms: int) -> Array:
    held_ms = integers(found["held_ms"])
    return (held_ms < 0) | (held_ms >= min_held_ms)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LowestOpen:
    """The transactions that were the lowest open one at some time, by first offset; -1 is unknown."""

    rows: Array  # indices in the table of transactions
    first: Array  # first offset
    alone: Array  # whether no other transaction was open when it opened
    became_at: Array  # offset of the batch or marker that made it the lowest
    times_before: Array  # time of that marker

    @staticmethod
    def of(log_transactions: pa.Table) -> _LowestOpen:
        first, marker = integers(log_transactions["first_offset"]), integers(log_transactions["marker_offset"])
        rows = np.flatnonzero(first >= 0)
        rows = rows[np.argsort(first[rows], kind="stable")]
        end = np.where(marker[rows] < 0, NEVER, marker[rows])
        before = np.concatenate(([-1], np.maximum.accumulate(end)))[: len(end)]
        lowest = np.flatnonzero(end > before)  # ends after every transaction that opened before it
        rows, before = rows[lowest], before[lowest]
        alone = first[rows] > before
        return _LowestOpen(
            rows=rows,
            first=first[rows],
            alone=alone,
            became_at=np.where(alone, first[rows], before),
            times_before=np.concatenate(([-1], milliseconds(log_transactions["end"])[rows]))[: len(rows)],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _MarkerTimes:
    """Markers with a time, in the order of the log."""

    offsets: Array
    times: Array
    rows: Array

    @staticmethod
    def of(log_transactions: pa.Table) -> _MarkerTimes:
        offsets, ends = integers(log_transactions["marker_offset"]), milliseconds(log_transactions["end"])
        rows = np.flatnonzero((offsets >= 0) & (ends >= 0))
        rows = rows[np.argsort(offsets[rows], kind="stable")]
        return _MarkerTimes(offsets=offsets[rows], times=ends[rows], rows=rows)

    def within(self, start: int, stop: int) -> _MarkerTimes:
        inside = slice(*np.searchsorted(self.offsets, (start, stop)))
        return _MarkerTimes(offsets=self.offsets[inside], times=self.times[inside], rows=self.rows[inside])

    def before(self, offsets: Array) -> Array:
        """Time of the last marker before each offset; -1 if there is none."""
        return np.concatenate(([-1], self.times))[np.searchsorted(self.offsets, offsets)]

    def after(self, offsets: Array) -> Array:
        """Time of the first marker after each offset; -1 if there is none."""
        return np.concatenate((self.times, [-1]))[np.searchsorted(self.offsets, offsets)]

    def table(self, log_transactions: pa.Table) -> pa.Table:
        """The first and the last marker as rows of `LSO_HOLDS` without first offset."""
        both = log_transactions.take(pa.array(self.rows[[0, -1]] if len(self.rows) else self.rows))
        return hold_table(both.select(["topic", "partition", "broker_id", "marker_offset", "end"]), {})


def hold_table(rows: pa.Table, new_columns: Mapping[str, pa.Array]) -> pa.Table:
    """Rows of `LSO_HOLDS` with new columns; those that the rows lack are null."""
    columns = []
    for field in SCHEMA:
        column = new_columns[field.name] if field.name in new_columns else _column(rows, field)
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    return rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
