"""What is read of a live partition's log, as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from toolkit.analysis.lso import lso_steps, lso_table
from toolkit.analysis.spans import Piece, Spans, finish, merge, piece, span_table
from toolkit.errors import BrokerError
from toolkit.formats.header_table import damage_rows, header_table
from toolkit.formats.headers import Headers
from toolkit.schema import BATCHES, SPANS
from toolkit.sources.live_log import Section, Stretch

__all__ = ["batch_table", "lso_timeline_table", "spans_table"]


def batch_table(section: Section) -> pa.Table:
    """Every batch as ``schema.BATCHES``, in the order of the log; then a row for whatever could not be read."""
    tables, failures = [], []
    for each in section.stretches:
        where = _where(section, each.broker_id)
        tables.append(header_table(_without_positions(each), **where))
        failures += [{**row, "position": None} for row in damage_rows(each.scanned.damage, **where)]
        failures += [{**where, "error": each.error}] if each.error else []
    return pa.concat_tables([*tables, BATCHES.arrow(failures)])


def spans_table(section: Section) -> pa.Table:
    """Every transaction as ``schema.SPANS``, with a row for whatever could not be read."""
    read = _read(section)
    where = _where(section, read.broker_id)
    failures = SPANS.arrow([{**where, "error": error} for error in read.errors])
    return pa.concat_tables([span_table(read.spans, **where), failures])


def lso_timeline_table(section: Section) -> pa.Table:
    """Every step of the LSO as ``schema.LSO_TIMELINE``.

    Raises
    ------
    BrokerError
        If a part of the section could not be read: a timeline with a hole in it would be wrong after the hole.
    """
    read = _read(section)
    if read.errors:
        code, _, text = read.errors[0].partition(": ")
        raise BrokerError(f"{section.place[0]}-{section.place[1]} could not be read: {text.rstrip('.')}.", code=code)
    steps = lso_steps(read.spans, log_end_offset=max(section.start, section.stop), end_time=read.end_time)
    return lso_table(steps, **_where(section, read.broker_id))


def _where(section: Section, broker_id: int | None) -> dict[str, Any]:
    return {"topic": section.place[0], "partition": section.place[1], "broker_id": broker_id}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Read:
    """What a section told of its transactions, who told it last, and what is missing."""

    spans: Spans
    broker_id: int | None
    end_time: int
    errors: list[str]


def _read(section: Section) -> _Read:
    pieces: list[Piece] = []
    errors: list[str] = []
    broker_id, end_time = None, -1
    for each in section.stretches:
        headers = _without_positions(each)
        pieces.append(piece(headers))
        errors += [damage.reason for damage in each.scanned.damage] + ([each.error] if each.error else [])
        broker_id = each.broker_id
        end_time = int(headers["max_timestamp"][-1]) if len(headers) else end_time
    spans = finish(merge(*pieces), from_start=section.start == 0)
    return _Read(spans=spans, broker_id=broker_id, end_time=end_time, errors=errors)


def _without_positions(stretch: Stretch) -> Headers:
    """Headers whose position is not known: in an answer it means nothing."""
    headers = stretch.scanned.headers.copy()
    headers["position"] = -1
    return headers
