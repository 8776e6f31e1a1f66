"""Pieces of logs merged into transactions, as they stream by in the order of each log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.analysis.ordering import run_starts
from toolkit.analysis.spans import EMPTY, SPAN, Piece, Spans, begin, finish, merge, span_table
from toolkit.formats.columns import arrow_table
from toolkit.schema import SPANS
from toolkit.spark.packing import ROWS_PER_PACK, Gathered, runs, unpack
from toolkit.spark.pieces import ANCHOR, BEGIN, CLOSED, DAMAGE, EDGES, PIECES_SCHEMA, PLACE
from toolkit.spark.types import spark_table

__all__ = ["merged"]

Array = npt.NDArray[Any]

LOG = ("topic", "partition", "log")
NO_PLACES = pa.schema([PIECES_SCHEMA.field(name) for name in PLACE]).empty_table()
PACKS_AT_ONCE = 1 << 10
SPANS_AT_ONCE = PACKS_AT_ONCE * ROWS_PER_PACK


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Transactions, and what could not be read.

    Memory is bounded by what is open at the same time in one log; where nothing is known of what was before it, by the
    number of its producers.

    Parameters
    ----------
    batches
        Rows of `toolkit.spark.pieces.PIECES`, sorted by log, slot, kind and offset.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        Rows of ``schema.SPANS``, as Spark has them.
    """
    found, log = Gathered(), _Log()
    for run in runs(batches, (*LOG, "slot", "kind")):
        name = tuple(run.column(each)[0].as_py() for each in LOG)
        if name != log.name:
            found.add(*log.finish())
            log = _Log(name)
        for start in range(0, run.num_rows, PACKS_AT_ONCE):
            rows = run.slice(start, PACKS_AT_ONCE)
            kind = run.column("kind")[0].as_py()
            if kind == DAMAGE:
                yield _failures(rows)
            elif kind == CLOSED:
                found.add(*_numbered(rows), pa.Table.from_batches([rows.select(PLACE)]))
            elif kind == ANCHOR:
                log.add_anchors(rows)
            elif kind == BEGIN:
                log.add_opened(rows)
            elif kind == EDGES:
                found.add(*log.add_edges(rows))
            if found.count >= SPANS_AT_ONCE:
                yield from _span_rows(found)
    found.add(*log.finish())
    yield from _span_rows(found)


def _span_rows(found: Gathered) -> Iterator[pa.RecordBatch]:
    if found.count:
        spans, codes, places = found.take()
        spans["file"] = codes
        columns = {name: places.column(name).take(pa.array(codes)) for name in ("topic", "partition", "broker_id")}
        yield from spark_table(span_table(spans, **columns, files=places.column("file").to_pylist())).to_batches()


def _failures(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name: rows.column(name) for name in (*PLACE, "position", "error")}
    return spark_table(arrow_table(SPANS, columns, rows=rows.num_rows)).to_batches()[0]


def _numbered(rows: pa.RecordBatch) -> tuple[Spans, Array]:
    """The spans in packed rows, and in which row each was."""
    spans, counts = unpack(rows.column("packed"), SPAN)
    return spans, np.repeat(np.arange(rows.num_rows), counts)


@dataclass(slots=True, eq=False)
class _Log:
    """One log, its rows added in their order.

    Parameters
    ----------
    name
        Topic, partition and log; none for no log.
    """

    name: tuple[Any, ...] = ()
    now: Piece | None = None  # what is not finished; null before the first edges
    anchors: list[int] = field(default_factory=list)
    opened: dict[int | None, Spans] = field(default_factory=dict)  # what is known of the log before an offset
    places: list[pa.RecordBatch] = field(default_factory=list)  # where spans were read; first where the log begins
    place_rows: int = 0

    def add_anchors(self, rows: pa.RecordBatch) -> None:
        self._add_first_place(rows)
        self.anchors += rows.column("first_offset").to_pylist()

    def add_opened(self, rows: pa.RecordBatch) -> None:
        for row in range(rows.num_rows):
            offset = rows.column("first_offset")[row].as_py()
            if offset is None:
                self._add_first_place(rows)
            spans, _ = unpack(rows.column("packed").slice(row, 1), SPAN)
            self.opened[offset] = np.concatenate((self.opened.get(offset, spans[:0]), spans))

    def add_edges(self, rows: pa.RecordBatch) -> tuple[Spans, Array, pa.Table]:
        """What is finished then, and where each was read."""
        self._add_first_place(rows)
        if self.now is None:
            self.now = self._begin(rows.column("first_offset")[0].as_py())
        spans, numbers = _numbered(rows)
        spans = spans.copy()
        spans["file"] = self.place_rows + numbers
        packs = np.split(spans, run_starts(changes=numbers[1:] != numbers[:-1])[1:])
        self._add_places(rows)
        self.now = merge(self.now, *(Piece(edges=edges) for edges in packs))
        closed, self.now = self.now.take_closed()
        return self._placed(closed)

    def finish(self) -> tuple[Spans, Array, pa.Table]:
        """The rest."""
        return self._placed(finish(self._begin(None) if self.now is None else self.now))

    def _begin(self, first: int | None) -> Piece:
        """What is known of the log before its first edge (null: it has none).

        A snapshot counts where nothing is missing between it and that: at the beginning of the first segment, or right
        there.
        """
        if None in self.opened:
            return begin()  # what was open is in the edges
        anchor = min(self.anchors, default=None)
        known = [anchor] if anchor is not None and (first is None or anchor <= first) else []
        for offset in (*known, first):
            if offset == 0:
                return begin()
            if offset is not None and offset in self.opened:
                return Piece(edges=self.opened[offset], settled=True)
        return EMPTY

    def _add_first_place(self, rows: pa.RecordBatch) -> None:
        if not self.places:
            self._add_places(rows.slice(0, 1))

    def _add_places(self, rows: pa.RecordBatch) -> None:
        self.places.append(rows.select(PLACE))
        self.place_rows += rows.num_rows

    def _placed(self, spans: Spans) -> tuple[Spans, Array, pa.Table]:
        used, codes = np.unique(spans["file"], return_inverse=True)
        places = pa.Table.from_batches(self.places, NO_PLACES.schema) if len(used) else NO_PLACES
        return spans, codes, places.take(pa.array(used))
