"""Who held the LSO of partitions in files from when to when, beside who holds it where they end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from toolkit.analysis.amounts import amounts
from toolkit.analysis.holders import by_producer, held_findings, stretch
from toolkit.analysis.holds import SPAN_COLUMNS, holds
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.log import Log
from toolkit.sources.logdir.look import Looked
from toolkit.sources.logdir.tables import Section, history_rows, span_tables

__all__ = ["with_holds"]


def with_holds(contents: Contents, looked: Looked, answers: Iterable[Row], *, min_held_ms: int) -> Iterator[Row]:
    """Rows of ``schema.FINDINGS``: of now, and of what has ended and held the LSO for at least so long.

    Parameters
    ----------
    contents
        All that was found.
    looked
        What the answers were judged by; of each partition the replica that counts is read whole.
    answers
        The findings of now.
    min_held_ms
        As `toolkit.analysis.holders.held_findings` takes it.
    """
    told: defaultdict[tuple[str | None, int | None], list[Row]] = defaultdict(list)
    for row in answers:
        told[row["topic"], row["partition"]].append(row)
    found = {
        place: _holds(contents, replicas[0].state.log, told[place], min_held_ms=min_held_ms)
        for place, replicas in looked.replicas.items()
    }
    histories = _histories(contents) if any(found.values()) else {}
    for place in sorted(told.keys() | found.keys(), key=str):
        rows = found.get(place, ())  # type: ignore[arg-type]
        yield from held_findings(rows, histories=histories, answers=told[place], min_held_ms=min_held_ms)


def _holds(contents: Contents, log: Log, answers: Sequence[Row], *, min_held_ms: int) -> list[Row]:
    """Rows of `toolkit.analysis.holds.HOLDS`, with what was counted behind them."""
    read = span_tables(contents, [log], Section(), producer_id=None)
    spans = pa.concat_tables(table.select(SPAN_COLUMNS) for table in read)
    found = holds(spans, min_held_ms=min_held_ms).to_pylist()
    return [{**hold, **_counted(log, hold, answers)} for hold in found]


def _counted(log: Log, hold: Row, answers: Sequence[Row]) -> Mapping[str, int | None]:
    """Where the log ends, and what waits behind a transaction; the log is read from there on once more."""
    is_open = hold["marker_offset"] is None
    end = _log_end(log, hold["first_offset"]) if is_open else None
    now: Row = next((row for row in answers if row["last_stable_offset"] is not None), {})
    bounds = {"lso": now.get("last_stable_offset"), "high_watermark": now.get("high_watermark")}
    section = stretch({**hold, "log_end_offset": end}, **bounds)
    if section is None:
        return {"log_end_offset": end}
    parts = [amounts(part.scanned.headers, *section) for part in log.parts(start=section[0], stop=section[1])]
    records, size = np.sum([(0, 0), *parts], axis=0).tolist()
    return {"log_end_offset": end, "records_held": records, "bytes_held": size}


def _log_end(log: Log, start: int) -> int:
    """Offset after the last batch."""
    ends = [
        int(part.scanned.headers["last_offset"][-1]) + 1 for part in log.parts(start=start) if len(part.scanned.headers)
    ]
    return max(ends, default=start)


def _histories(contents: Contents) -> Mapping[int, Sequence[Row]]:
    return by_producer(history_rows(contents, contents.of_topic(STATE_TOPIC), Section()))
