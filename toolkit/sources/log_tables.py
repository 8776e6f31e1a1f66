"""From the parts of a partition's log, wherever they were read, to the tables of what a log holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from toolkit.analysis.lso import lso_steps, lso_table
from toolkit.analysis.spans import EMPTY, Piece, Spans, finish, merge, piece, span_table
from toolkit.analysis.statistics import NO_TRANSACTIONS, Statistics, statistics
from toolkit.formats.header_table import damage_rows, header_table
from toolkit.formats.headers import Scanned
from toolkit.schema import BATCHES, SPANS, Table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Part", "Where", "batch_tables", "clip", "lso_timeline_table", "part_statistics", "span_tables", "to_frame"]

ROWS_AT_ONCE = 1 << 16


class Part(NamedTuple):
    """A stretch of one partition's log, and the file it was read from; null where a broker sent it."""

    scanned: Scanned
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Whose log it is: the columns that stand on every row."""

    topic: str | None
    partition: int | None
    broker_id: int | None = None

    @property
    def columns(self) -> dict[str, Any]:
        return {"topic": self.topic, "partition": self.partition, "broker_id": self.broker_id}


def clip(parts: Iterable[Part], *, start: int | None = None, stop: int | None = None) -> Iterator[Part]:
    """The batches that hold an offset of ``start <= offset < stop``; a null bound is none.

    Damage stays, unless a batch behind it shows that it lies before the start, or one before it that it lies behind
    the stop. Where the start lies behind the stop, there is nothing.
    """
    if start is not None and stop is not None and start > stop:
        return
    for part in parts:
        headers, damage = part.scanned.headers, part.scanned.damage
        kept = np.ones(len(headers), np.bool_)
        if start is not None:
            kept &= headers["last_offset"] >= start
            before = headers["position"][headers["base_offset"] <= start]
            damage = tuple(each for each in damage if not (before > each.position).any())
        if stop is not None:
            kept &= headers["base_offset"] < stop
            behind = headers["position"][headers["last_offset"] + 1 >= stop]
            damage = tuple(each for each in damage if not (behind < each.position).any())
        whole = bool(kept.all()) and len(damage) == len(part.scanned.damage)
        yield (
            part
            if whole
            else part._replace(scanned=Scanned(headers=headers[kept], damage=damage, end=part.scanned.end))
        )


def batch_tables(parts: Iterable[Part], where: Where, *, producer_id: int | None = None) -> Iterator[pa.Table]:
    """Batches, and a row for every stretch that is none, as tables of ``schema.BATCHES``: one for each part.

    Parameters
    ----------
    parts
        Of one partition, in the order of its log.
    where
        Whose.
    producer_id
        Only its batches, and what could not be read.
    """
    for scanned, file in parts:
        headers = scanned.headers
        if producer_id is not None:
            headers = headers[headers["producer_id"] == producer_id]
        if len(headers):
            yield header_table(headers, **where.columns, file=file)
        if scanned.damage:
            yield BATCHES.arrow(damage_rows(scanned.damage, **where.columns, file=file))


def span_tables(
    parts: Iterable[Part], where: Where, *, before: Piece = EMPTY, producer_id: int | None = None
) -> Iterator[pa.Table]:
    """Transactions as tables of ``schema.SPANS``, those that ended first; then those that are open, and the damage.

    Parameters
    ----------
    parts, where, producer_id
        As for `batch_tables`.
    before
        What is known of the log before the first part: `toolkit.analysis.spans.begin`; by default nothing.
    """
    reading = _Reading(before)
    for part in parts:
        reading.add(part)
        if reading.closed_rows >= ROWS_AT_ONCE:
            yield _span_table(reading.take_closed(), reading, where, producer_id)
    yield _span_table(reading.finish(), reading, where, producer_id)
    if reading.failures:
        yield SPANS.arrow([where.columns | failure for failure in reading.failures])


def part_statistics(parts: Iterable[Part], *, before: Piece = EMPTY) -> tuple[Statistics, list[str]]:
    """Figures of the transactions in a log as it streams by, and what could not be read of it.

    Parameters
    ----------
    parts, before
        As for `span_tables`.
    """
    reading = _Reading(before)
    found = NO_TRANSACTIONS
    for part in parts:
        reading.add(part)
        if reading.closed_rows >= ROWS_AT_ONCE:
            found += statistics(reading.take_closed())
    return found + statistics(reading.finish()), [failure["error"] for failure in reading.failures]


def lso_timeline_table(
    parts: Iterable[Part], where: Where, *, before: Piece = EMPTY, log_end_offset: int | None = None
) -> pa.Table:
    """Every step of the LSO as ``schema.LSO_TIMELINE``; stretches that could not be read are passed over.

    Parameters
    ----------
    parts, where, before
        As for `span_tables`.
    log_end_offset
        Where the parts end, for a log without batches; by default the offset after the last batch.
    """
    reading = _Reading(before)
    for part in parts:
        reading.add(part)
    end = reading.log_end_offset if log_end_offset is None else max(log_end_offset, reading.log_end_offset)
    return lso_table(lso_steps(reading.finish(), log_end_offset=end, end_time=reading.end_time), **where.columns)


def to_frame(tables: Iterable[pa.Table], table: Table) -> pd.DataFrame:
    """Tables of one kind as a pandas DataFrame in the order that is declared."""
    import pandas as pd

    whole = pa.concat_tables([table.arrow_schema.empty_table(), *tables])
    frame: pd.DataFrame = whole.sort_by([(name, "ascending") for name in table.sort]).to_pandas(
        types_mapper=pd.ArrowDtype
    )
    return frame


def _span_table(spans: Spans, reading: _Reading, where: Where, producer_id: int | None) -> pa.Table:
    if producer_id is not None:
        spans = spans[spans["producer_id"] == producer_id]
    return span_table(spans, **where.columns, files=tuple(reading.files) or (None,))


@dataclass(slots=True)
class _Reading:
    """A log as it streams by: its transactions, the files they are in, and what could not be read."""

    piece: Piece
    files: dict[str | None, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    log_end_offset: int = 0
    end_time: int = -1

    def add(self, part: Part) -> None:
        headers, file = part.scanned.headers, part.file
        file_id = self.files.setdefault(file, len(self.files))
        self.piece = merge(self.piece, piece(headers, file_id=file_id))
        self.failures += [
            {"file": file, "position": each.position, "error": each.reason} for each in part.scanned.damage
        ]
        if len(headers):
            self.log_end_offset = int(headers["last_offset"][-1]) + 1
            self.end_time = int(headers["max_timestamp"][-1])

    @property
    def closed_rows(self) -> int:
        return sum(map(len, self.piece.closed))

    def take_closed(self) -> Spans:
        closed, self.piece = self.piece.take_closed()
        return closed

    def finish(self) -> Spans:
        return finish(self.piece)
