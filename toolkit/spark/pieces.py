"""The table ``pieces``: parts of logs folded into what merges (`toolkit.analysis.spans.Piece`), as rows for Spark.

Whoever reads a log in parts, in any number of tasks, gives these rows; `toolkit.spark.spans.merged_spans` makes the
transactions of the whole log from them, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from toolkit.analysis.ordering import run_starts, taken
from toolkit.analysis.spans import EMPTY, Piece, Spans, merge, piece
from toolkit.formats.columns import labels
from toolkit.sources.log_tables import Part, Where
from toolkit.spark.packing import pack, pack_starts

__all__ = [
    "ANCHOR",
    "BEGIN",
    "CLOSED",
    "DAMAGE",
    "EDGES",
    "END",
    "GROUP",
    "HEADERS",
    "IN_ORDER",
    "OF_LOG",
    "PIECES",
    "PIECES_SCHEMA",
    "PLACE",
    "SECTIONS",
    "TOUCHING",
    "log_name",
    "piece_batches",
    "piece_rows",
    "span_rows",
    "together",
]

PIECES = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("log", StringType()),  # which log of the partition: `log_name`
        StructField("slot", LongType()),  # what is worked on together; -1 for what is of the whole log
        StructField("kind", StringType()),  # one of those below
        StructField("first_offset", LongType()),  # where it begins
        StructField("broker_id", IntegerType()),
        StructField("file", StringType()),  # that all in it was read from
        StructField("packed", BinaryType()),  # rows of one kind of array, see `toolkit.spark.packing`
        StructField("log_end_offset", LongType()),
        StructField("end_time", LongType()),  # of the last batch, in ms
        StructField("position", LongType()),  # where in that it begins
        StructField("error", StringType()),
    ]
)
"""Spark's schema of the table."""

PIECES_SCHEMA: pa.Schema = to_arrow_schema(PIECES)
"""The same for Arrow."""

# The kinds. Sorted by kind and place, the rows of a log come in the order in which they are needed.
ANCHOR = "anchor"  # nothing of the log is missing between this offset and the first batch at or after it
BEGIN = "begin"  # what is open before this offset (spans); a null offset: it is in the edges already, or there is none
CLOSED = "closed"  # transactions that begin and end in a part (spans)
DAMAGE = "damage"  # what could not be read: position, error
EDGES = "edges"  # transactions that may continue on either side of a part (spans)
END = "end"  # where a part ends: log_end_offset, end_time
HEADERS = "headers"  # batches that are not folded yet (headers)
SECTIONS = "sections"  # sections of the log that a transaction begins or ends in (whole numbers)
TOUCHING = "touching"  # transactions that touch a section (spans)

OF_LOG = -1
GROUP = ["topic", "partition", "log", "slot"]
IN_ORDER = ["kind", "file", "position", "first_offset"]
PLACE = ["topic", "partition", "broker_id", "file"]
SPANS_AT_ONCE = 1 << 16


def log_name(file: str | None, broker_id: int | None) -> str | None:
    """Which log of a partition a file belongs to: its folder on its broker. Null for what a broker sent."""
    if file is None:
        return None
    folder = file[: max(file.rfind("/"), file.rfind("\\")) + 1]
    return f"{'' if broker_id is None else broker_id}:{folder}"


def piece_batches(
    parts: Iterable[Part], where: Where, *, log: str | None, before: Piece = EMPTY, log_end_offset: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Parts of one log as rows of the table, in bounded memory.

    Parameters
    ----------
    parts
        Consecutive stretches of one log, in its order: all of it, or what one task reads of it. Tasks may read it in
        any order, but no batch may come twice.
    where
        Whose log it is.
    log
        A name that tells this log from others of the same partition, the same in every task: the folder on its broker.
        Null where a broker sent it.
    before
        For the task that has the beginning of the log: what is known of what was before it
        (`toolkit.analysis.spans.begin`, or `EMPTY` for nothing). `EMPTY` for every other task.
    log_end_offset
        Where the log ends, for one whose newest segment is empty.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        With the columns of `PIECES_SCHEMA`.
    """
    reading = _Reading(now=before, log_end_offset=log_end_offset)
    place = {"topic": where.topic, "partition": where.partition, "log": log, "broker_id": where.broker_id}
    for part in parts:
        reading.add(part)
        if reading.closed_rows >= SPANS_AT_ONCE:
            yield from reading.take_closed(place)
        yield from reading.take_damage(place)
    yield from reading.take_closed(place)
    yield from reading.rest(place)


@dataclass(slots=True)
class _Reading:
    """What one task has read so far."""

    now: Piece
    log_end_offset: int | None
    end_time: int | None = None
    first_offset: int | None = None
    slot: int = 0
    files: dict[str | None, int] = field(default_factory=dict)
    damage: list[dict[str, Any]] = field(default_factory=list)

    def add(self, part: Part) -> None:
        headers, file = part.scanned.headers, part.file
        file_id = self.files.setdefault(file, len(self.files))
        self.now = merge(self.now, piece(headers, file_id=file_id))
        self.damage += [{"file": file, "position": each.position, "error": each.reason} for each in part.scanned.damage]
        if len(headers):
            if self.first_offset is None:
                self.first_offset = self.slot = int(headers["base_offset"][0])
            self.log_end_offset = max(int(headers["last_offset"][-1]) + 1, self.log_end_offset or 0)
            self.end_time = int(headers["max_timestamp"][-1])

    @property
    def closed_rows(self) -> int:
        return sum(map(len, self.now.closed))

    def take_closed(self, place: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        closed, self.now = self.now.take_closed()
        if len(closed):
            yield span_rows(closed, {**place, "slot": self.slot, "kind": CLOSED}, files=list(self.files))

    def take_damage(self, place: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        if self.damage:
            yield _rows([{**place, "slot": self.slot, "kind": DAMAGE, **each} for each in self.damage])
            self.damage = []

    def rest(self, place: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        of_log = {**place, "slot": OF_LOG}
        files = list(self.files) or [None]
        known = [of_log | {"kind": BEGIN, "file": files[0]}] if self.now.settled else []
        if self.log_end_offset is not None:
            end = {"log_end_offset": self.log_end_offset, "end_time": self.end_time}
            known.append(of_log | {"kind": END, "first_offset": self.first_offset} | end)
        if known:
            yield _rows(known)
        if len(self.now.edges):
            yield span_rows(self.now.edges, of_log | {"kind": EDGES}, files=files)


def span_rows(spans: Spans, place: Mapping[str, Any], *, files: Sequence[str | None]) -> pa.RecordBatch:
    """Spans packed into rows, in the order of the log, those of one file together.

    Parameters
    ----------
    spans
        Structured array of `SPAN`.
    place
        Values of the other columns, the same on every row.
    files
        The file of each ``file_id``.
    """
    begin = np.where(spans["first_offset"] < 0, spans["marker_offset"], spans["first_offset"])
    order = np.lexsort((begin, spans["position"], spans["file"]))
    spans = taken(spans, order)
    starts = pack_starts(run_starts(changes=spans["file"][1:] != spans["file"][:-1]), len(spans))
    columns = {
        "first_offset": pa.array(begin[order][starts]),
        "file": labels(spans["file"][starts], files),
        "position": pa.array(spans["position"][starts]),
        "packed": pack(spans, starts),
    }
    return piece_rows({**place, **columns}, rows=len(starts))


def together(pieces: DataFrame) -> DataFrame:
    """What is worked on together comes in one partition and in order, as in a grouped map; but it streams by.

    The order of a log in files is that of its files, which are named after their offsets, and of the bytes in them:
    what a damaged batch says of its offset may be any number.
    """
    return pieces.repartition(*GROUP).sortWithinPartitions(*GROUP, *IN_ORDER)


def piece_rows(columns: Mapping[str, Any], *, rows: int) -> pa.RecordBatch:
    """Rows of the table: of each column an Arrow array, or one value for every row; null where it is missing."""
    arrays = []
    for column in PIECES_SCHEMA:
        given = columns.get(column.name)
        if isinstance(given, pa.Array):
            arrays.append(given.cast(column.type))
        else:
            arrays.append(pa.repeat(pa.scalar(given, column.type), rows))
    return pa.RecordBatch.from_arrays(arrays, schema=PIECES_SCHEMA)


def _rows(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=PIECES_SCHEMA)
