"""Who held the LSO of partitions in files from when to when, beside who holds it where they end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from toolkit.analysis.coordinator import histories
from toolkit.analysis.holders import by_producer, held_findings, stretch
from toolkit.analysis.holds import SPAN_COLUMNS, holds
from toolkit.analysis.spans import span_table
from toolkit.schema import Row
from toolkit.sources.logdir.coordinator_side import CoordinatorSide
from toolkit.sources.logdir.look import Looked
from toolkit.sources.logdir.state import State

__all__ = ["with_holds"]


def with_holds(looked: Looked, answers: Iterable[Row], *, min_held_ms: int) -> Iterator[Row]:
    """Rows of ``schema.FINDINGS``: of now, and of what has ended and held the LSO for at least so long.

    Parameters
    ----------
    looked
        What the answers were judged by, with the replica that counts of each partition read whole.
    answers
        The findings of now.
    min_held_ms
        As `toolkit.analysis.holders.held_findings` takes it.
    """
    by_place: defaultdict[tuple[str | None, int | None], list[Row]] = defaultdict(list)
    for row in answers:
        by_place[row["topic"], row["partition"]].append(row)
    found = {
        place: _holds(replicas[0].state, by_place[place], min_held_ms=min_held_ms)
        for place, replicas in looked.replicas.items()
    }
    past = _histories(looked.side, {row["producer_id"] for rows in found.values() for row in rows})
    for place in sorted(by_place.keys() | found.keys(), key=str):
        rows = found.get(place, ())  # type: ignore[arg-type]
        yield from held_findings(rows, histories=past, answers=by_place[place], min_held_ms=min_held_ms)


def _holds(state: State, answers: Sequence[Row], *, min_held_ms: int) -> list[Row]:
    """Rows of `toolkit.analysis.holds.HOLDS`, with what was counted behind them."""
    window = state.window
    spans = span_table(window.spans, **state.log.where.columns, files=window.files).select(SPAN_COLUMNS)
    now: Row = next((row for row in answers if row["last_stable_offset"] is not None), {})
    bounds = {"lso": now.get("last_stable_offset"), "high_watermark": now.get("high_watermark")}
    rows = []
    for hold in holds(spans, min_held_ms=min_held_ms).to_pylist():
        hold["log_end_offset"] = window.log_end_offset if hold["marker_offset"] is None else None
        section = stretch(hold, **bounds)
        counted = None if section is None else window.totals.between(*section)
        hold["records_held"], hold["bytes_held"] = (None, None) if counted is None else counted
        rows.append(hold)
    return rows


def _histories(side: CoordinatorSide, producer_ids: Collection[int]) -> Mapping[int, Sequence[Row]]:
    """Of every id that had one of these producer ids."""
    indexes = [partition.read.state.window.records for partition in side.partitions.values()]
    return by_producer(histories(row for index in indexes for row in index.records(index.ids_of(producer_ids))))
