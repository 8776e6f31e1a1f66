"""What is read of a live partition's log, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.analysis.spans import EMPTY, begin
from toolkit.errors import BrokerError
from toolkit.formats.headers import Headers, Scanned, joined
from toolkit.schema import BATCHES, LSO_TIMELINE, SPANS, Row
from toolkit.sources.live_log import Section, Stretch
from toolkit.sources.log_tables import Part, Where, batch_tables, lso_timeline_table, span_tables, to_frame

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["batch_frame", "lso_timeline_frame", "section_batches", "section_parts", "span_frame"]

ROWS_AT_ONCE = 1 << 16


def batch_frame(section: Section, *, producer_id: int | None = None) -> pd.DataFrame:
    """Every batch, or a producer's, as ``schema.BATCHES``; and a row for whatever could not be read."""
    return to_frame(section_batches(section, producer_id=producer_id), BATCHES)


def section_batches(section: Section, *, producer_id: int | None = None) -> Iterator[pa.Table]:
    """The same rows as tables, in the order of the log; what could not be read comes last."""
    failures: list[Row] = []
    for broker_id, headers in _joined(section, failures):
        where = replace(_where(section), broker_id=broker_id)
        yield from batch_tables([Part(Scanned(headers=headers, end=0))], where, producer_id=producer_id)
    if failures:
        yield BATCHES.arrow(failures)


def span_frame(section: Section, *, producer_id: int | None = None) -> pd.DataFrame:
    """Every transaction, or a producer's, as ``schema.SPANS``; and a row for whatever could not be read."""
    failures: list[Row] = []
    before = begin() if section.start == 0 else EMPTY
    parts = section_parts(section, failures)
    tables = list(span_tables(parts, _where(section), before=before, producer_id=producer_id))
    return to_frame([*tables, SPANS.arrow(failures)], SPANS)


def lso_timeline_frame(section: Section) -> pd.DataFrame:
    """Every step of the LSO as ``schema.LSO_TIMELINE``.

    Raises
    ------
    BrokerError
        If a part of the section could not be read: a timeline with a hole in it would be wrong after the hole.
    """
    failures: list[Row] = []
    before = begin() if section.start == 0 else EMPTY
    end = max(section.start, section.stop)
    table = lso_timeline_table(section_parts(section, failures), _where(section), before=before, log_end_offset=end)
    if failures:
        code, _, text = failures[0]["error"].partition(": ")
        raise BrokerError(f"{section.place[0]}-{section.place[1]} could not be read: {text.rstrip('.')}.", code=code)
    return to_frame([table], LSO_TIMELINE)


def _joined(section: Section, failures: list[Row]) -> Iterator[tuple[int | None, Headers]]:
    """The headers that one broker sent, many at once: a table of few rows costs as much as one of many."""
    broker_id, parts, rows = section.broker_id, list[Headers](), 0
    for stretch in section.stretches:
        if stretch.broker_id != broker_id or rows >= ROWS_AT_ONCE:
            yield broker_id, joined(parts)
            broker_id, parts, rows = stretch.broker_id, [], 0
        parts.append(_headers(stretch))
        rows += len(stretch.scanned.headers)
        failures += _failures(section, stretch)
    yield broker_id, joined(parts)


def section_parts(section: Section, failures: list[Row]) -> Iterator[Part]:
    """The batches as they come; a row for whatever could not be read is added to `failures`."""
    for stretch in section.stretches:
        yield Part(replace(stretch.scanned, headers=_headers(stretch), damage=()))
        failures += _failures(section, stretch)


def _headers(stretch: Stretch) -> Headers:
    """Headers without positions, which mean nothing in an answer."""
    headers = stretch.scanned.headers.copy()
    headers["position"] = -1
    return headers


def _failures(section: Section, stretch: Stretch) -> list[Row]:
    errors = [damage.reason for damage in stretch.scanned.damage] + ([stretch.error] if stretch.error else [])
    return [{**_where(section).columns, "broker_id": stretch.broker_id, "error": error} for error in errors]


def _where(section: Section) -> Where:
    return Where(topic=section.place[0], partition=section.place[1], broker_id=section.broker_id)
