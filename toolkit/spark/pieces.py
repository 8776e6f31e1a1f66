"""The table ``pieces``: sections of logs, folded by the tasks that read them, as rows for Spark.

Whoever reads a log in parts, in any number of tasks, gives these rows; `toolkit.spark.log_fold.fold` merges them, with
what is remembered of each log, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from toolkit.analysis.log_state import COUNTED, Section
from toolkit.analysis.ordering import run_starts, taken
from toolkit.analysis.spans import EMPTY, SPAN, Piece, Spans, merge, piece
from toolkit.formats.columns import labels
from toolkit.schema import Row
from toolkit.sources.log_tables import Part, Where
from toolkit.sources.logdir.totals import RunningTotals
from toolkit.spark.packing import pack, pack_starts, unpack

if TYPE_CHECKING:
    from toolkit.spark.ingest_plan import LogPlan

__all__ = [
    "DAMAGE",
    "LOST",
    "PIECES",
    "PIECES_SCHEMA",
    "REACH",
    "REMEMBERED",
    "REMEMBERED_COLUMNS",
    "STOP",
    "TAIL",
    "TRUNCATED",
    "log_name",
    "piece_batches",
    "piece_rows",
    "remembered_pieces",
    "section_of",
]

PIECES = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("log", StringType()),  # which log of the partition: `log_name`
        StructField("broker_id", IntegerType()),
        StructField("section", LongType()),  # sections of a log are merged in this order
        StructField("kind", StringType()),  # one of those below
        StructField("file", StringType()),  # that all in it was read from
        StructField("packed", BinaryType()),  # rows of one kind of array, see `toolkit.spark.packing`
        StructField("log_end_offset", LongType()),
        StructField("end_time", LongType()),  # of the last batch, in ms
        StructField("leader_epoch", IntegerType()),
        StructField("records", LongType()),
        StructField("bytes", LongType()),
        StructField("position", LongType()),  # of damage in its file
        StructField("error", StringType()),
    ]
)
"""Spark's schema of the table."""

PIECES_SCHEMA: pa.Schema = to_arrow_schema(PIECES)
"""The same for Arrow."""

BEGIN = "begin"  # what was open before the log is known, and among the edges
CLOSED = "closed"  # transactions that begin and end in the section (`SPAN`)
COUNTS = "counts"  # records and bytes before batches (`COUNTED`)
DAMAGE = "damage"  # what could not be read, and is followed by a batch: position, error
EDGES = "edges"  # transactions that may continue on either side (`SPAN`)
END = "end"  # its last batch, and how much is in it
TAIL = "tail"  # as damage, behind the section's last batch
REACH = "reach"  # where the log ends, its newest segment being empty
STOP = "stop"  # what comes after this section could not be read now
REMEMBERED = "remembered"  # a log that goes on where it was read up to (`LogState`)
LOST = "lost"  # one that goes on behind offsets that were deleted unread, as error says (`LogState`)
TRUNCATED = "truncated"  # one that is read again, for it is another from log_end_offset on (`LogState`)

REMEMBERED_COLUMNS = ("log", "topic", "partition", "broker_id", "remembered")
SPANS_AT_ONCE = 1 << 16


def log_name(file: str | None, broker_id: int | None) -> str | None:
    """Which log of a partition a file belongs to: its folder on its broker. Null for what a broker sent."""
    if file is None:
        return None
    folder = file[: max(file.rfind("/"), file.rfind("\\")) + 1]
    return f"{'' if broker_id is None else broker_id}:{folder}"


def piece_batches(
    parts: Iterable[Part],
    where: Where,
    *,
    log: str,
    section: int = 0,
    before: Piece = EMPTY,
    log_end_offset: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """A section of one log as rows of the table, in bounded memory.

    Parameters
    ----------
    parts
        Consecutive parts of one log, in its order: all of it, or what one task reads of it. No batch may come twice.
    where
        Whose log it is.
    log
        A name that tells this log from all others, the same in every task.
    section
        Where it stands among the sections of the log.
    before
        For the section that begins the log: what is known of what was before it
        (`toolkit.analysis.spans.begin`, or `EMPTY` for nothing). `EMPTY` for every other one.
    log_end_offset
        Where the log ends, for one whose newest segment is empty.
    """
    reading = _Reading(now=before)
    place = {**where.columns, "log": log, "section": section}
    for part in parts:
        reading.add(part)
        if reading.closed_rows >= SPANS_AT_ONCE:
            yield from reading.take_closed(place)
    yield from reading.take_closed(place)
    yield from reading.rest(place, log_end_offset)


@dataclass(slots=True)
class _Reading:
    """What one task has read of a section so far."""

    now: Piece
    end: dict[str, int] = field(default_factory=dict)
    leader_epoch: int = -1
    totals: RunningTotals = field(default_factory=RunningTotals)
    files: dict[str | None, int] = field(default_factory=dict)
    damage: list[dict[str, Any]] = field(default_factory=list)
    tail: list[dict[str, Any]] = field(default_factory=list)

    def add(self, part: Part) -> None:
        headers, file = part.scanned.headers, part.file
        found = piece(headers, file_id=self.files.setdefault(file, len(self.files)))
        self.now = merge(self.now, found)
        last = headers["position"][-1] if len(headers) else -1
        if len(headers):
            self.damage, self.tail = self.damage + self.tail, []
        for each in part.scanned.damage:
            found_in = self.damage if each.position < last else self.tail
            found_in.append({"file": file, "position": each.position, "error": each.reason})
        if len(headers):
            spans = (*found.closed, found.edges)
            bounds = [each[name] for each in spans for name in ("first_offset", "marker_offset")]
            self.totals.add(headers, np.concatenate(bounds))
            self.leader_epoch = max(self.leader_epoch, int(headers["leader_epoch"].max()))
            self.end = {
                "log_end_offset": int(headers["last_offset"][-1]) + 1,
                "end_time": int(headers["max_timestamp"][-1]),
            }

    @property
    def closed_rows(self) -> int:
        return sum(map(len, self.now.closed))

    def take_closed(self, place: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        closed, self.now = self.now.take_closed()
        if len(closed):
            yield _span_rows(closed, {**place, "kind": CLOSED}, files=list(self.files) or [None])

    def rest(self, place: dict[str, Any], log_end_offset: int | None) -> Iterator[pa.RecordBatch]:
        files = list(self.files) or [None]
        known = [place | {"kind": BEGIN}] if self.now.settled else []
        for kind, rows in ((DAMAGE, self.damage), (TAIL, self.tail)):
            known += [place | {"kind": kind} | each for each in rows]
        if self.end:
            records, size = self.totals.total
            known.append(
                place | self.end | {"kind": END, "records": records, "bytes": size, "leader_epoch": self.leader_epoch}
            )
        if log_end_offset is not None:
            known.append(place | {"kind": REACH, "log_end_offset": log_end_offset})
        if known:
            yield pa.RecordBatch.from_pylist(known, schema=PIECES_SCHEMA)
        if len(self.now.edges):
            yield _span_rows(self.now.edges, place | {"kind": EDGES}, files=files)
        samples = self.totals.samples
        if len(samples):
            counts = np.ascontiguousarray(samples).view(COUNTED).reshape(-1)
            packed = pack(counts, pack_starts(np.zeros(1, np.int64), len(counts)))
            yield piece_rows({**place, "kind": COUNTS, "packed": packed}, rows=len(packed))


def section_of(rows: pa.Table) -> Section:
    """The section that is in the rows of one, in any order."""
    by_kind = {kind: rows.filter(pa.compute.equal(rows["kind"], kind)) for kind in (BEGIN, CLOSED, COUNTS, EDGES, END)}
    files: dict[str | None, int] = {None: 0}
    (closed, edges) = (_spans_in(by_kind[kind], files) for kind in (CLOSED, EDGES))
    counts = unpack(by_kind[COUNTS]["packed"].combine_chunks(), COUNTED)[0]
    end: Row = next(iter(by_kind[END].to_pylist()), {})
    return Section(
        closed=closed,
        edges=edges,
        is_settled=by_kind[BEGIN].num_rows > 0,
        files=tuple(files),
        counts=np.sort(counts, order="offset"),
        records=end.get("records", 0),
        bytes=end.get("bytes", 0),
        log_end_offset=end.get("log_end_offset"),
        end_time=end.get("end_time"),
        leader_epoch=end.get("leader_epoch"),
    )


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


def _span_rows(spans: Spans, place: Mapping[str, Any], *, files: Sequence[str | None]) -> pa.RecordBatch:
    """Spans packed into rows, those of one file together."""
    spans = taken(spans, np.argsort(spans["file"], kind="stable"))
    starts = pack_starts(run_starts(changes=spans["file"][1:] != spans["file"][:-1]), len(spans))
    columns = {"file": labels(spans["file"][starts], files), "packed": pack(spans, starts)}
    return piece_rows({**place, **columns}, rows=len(starts))


def _spans_in(rows: pa.Table, files: dict[str | None, int]) -> Spans:
    """The spans in packed rows, those of a producer in the order of the log: only the last has no marker."""
    spans, counts = unpack(rows["packed"].combine_chunks(), SPAN)
    numbers = [files.setdefault(file, len(files)) for file in rows["file"].to_pylist()]
    spans = spans.copy()
    spans["file"] = np.repeat(np.array(numbers, np.int32), counts)
    return taken(spans, np.argsort(spans["marker_offset"] < 0, kind="stable"))


def remembered_pieces(states: pa.Table, plans: Mapping[str, LogPlan]) -> pa.Table:
    """What is remembered of logs, as rows of the table before those of their new sections.

    Parameters
    ----------
    states
        Rows of `toolkit.spark.stage.STATE`, with at least the columns `REMEMBERED_COLUMNS`.
    plans
        How each log is read on, by log.
    """
    rows = []
    for state in states.to_pylist():
        plan = plans[state["log"]]
        columns = {"kind": plan.remembered, "section": -1, "log_end_offset": plan.offset, "error": plan.error}
        rows.append(piece_rows({**state, **columns, "packed": state["remembered"]}, rows=1))
    return pa.Table.from_batches(rows, PIECES_SCHEMA)
