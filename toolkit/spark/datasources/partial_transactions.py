"""The table ``partial_transactions``: partial transactions of ranges of logs, as rows for Spark.

Each task folds the range that it reads into these rows; `log_fold.fold` merges the rows of all tasks, in any order,
with the log's state.

Rows of structured arrays are packed into binary columns, so that one row in Spark contains many. Spark puts 10,000 rows
into one Arrow batch, regardless of their size (its limit in bytes is newer than 4.0). So a packed row is small:
`ROWS_PER_PACK`.
"""

from __future__ import annotations

import builtins  # `bytes` is a column
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from toolkit.analysis.history.resume_state import COUNTED, RangeSummary
from toolkit.analysis.log.log_transactions import EMPTY, LOG_TRANSACTION, LogTransactions, PartialTransactions
from toolkit.analysis.log.lost_offsets import at_missing_offsets
from toolkit.analysis.log.record_counts import RunningTotals
from toolkit.formats.columns import labels
from toolkit.formats.log.headers import Array, LogChunk, take_rows
from toolkit.formats.log_dir_files import segment_base_offset
from toolkit.schema.record import Int32, Int64, TableRow, Unit, declares
from toolkit.sources.log_tables import LogFold, LogId, ReadError
from toolkit.spark.arrow_types import struct_type

ROWS_PER_PACK = 64
"""Maximum number of rows in one packed row of about 5 to 7 KB."""


def pack_starts(run_starts: Array, rows: int) -> Array:
    """Start indices of packed rows, none of which is too large or belongs to two runs.

    `run_starts`: start indices of the runs, beginning with 0; empty without rows.
    `rows`: total number of rows.
    """
    lengths = np.diff(np.append(run_starts, rows))
    packs = -(-lengths // ROWS_PER_PACK)
    first_pack = np.cumsum(packs) - packs
    number = np.arange(packs.sum()) - np.repeat(first_pack, packs)
    return np.asarray(np.repeat(run_starts, packs) + number * ROWS_PER_PACK, np.int64)


def pack(rows: Array, starts: Array) -> pa.Array:
    """Rows of a structured array as a binary column; each value has the rows from one start to the next."""
    offsets = (np.append(starts, len(rows)) * rows.dtype.itemsize).astype(np.int32)
    data = np.ascontiguousarray(rows).view(np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def unpack(column: pa.Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """The rows in a binary column, and the number of rows in each value; 0 in a null."""
    column = column.cast(pa.binary()).fill_null(b"")
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    if len(column) == 0 or data is None:
        return np.zeros(0, dtype), np.zeros(len(column), np.int64)
    return np.frombuffer(data[offsets[0] : offsets[-1]], dtype), np.diff(offsets).astype(np.int64) // dtype.itemsize


def runs(batches: Iterable[pa.RecordBatch], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Split the rows where one of some columns changes; a run may continue in the next batch."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        ends = [pc.run_end_encode(batch.column(name)).run_ends.to_numpy() for name in by]
        start = 0
        for end in np.unique(np.concatenate(ends)).tolist():
            yield batch.slice(start, end - start)
            start = end


def whole_runs(batches: Iterable[pa.RecordBatch], by: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of each run in one table; only one run is in memory at a time."""
    parts: list[pa.RecordBatch] = []
    key: list[Any] = []
    for run in runs(batches, by):
        found = [run.column(name)[0].as_py() for name in by]
        if parts and found != key:
            yield pa.Table.from_batches(parts)
            parts = []
        key = found
        parts.append(run)
    if parts:
        yield pa.Table.from_batches(parts)


@declares("partial_transactions", row="what one of the kinds below says of a range of a log, or packed transactions")
@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRecord(TableRow):
    """A row of the table."""

    topic: Annotated[str | None, "Topic."] = None
    partition: Annotated[Int32 | None, "Partition."] = None
    log: Annotated[str, "Name of the log, as in `log_identity`."]
    broker_id: Annotated[Int32 | None, "Broker that the range is from."] = None
    range_order: Annotated[Int64, "Order of the range in its log."] = 0
    part: Annotated[Int32, "Order of the part in its range: parts are divided by missing offsets."] = 0
    kind: Annotated[str, "One of the kinds below."]
    file: Annotated[str | None, "File of all the packed rows."] = None
    packed: Annotated[builtins.bytes | None, "Rows of a structured array, as by `pack`; of a state, `LogState`."] = None
    log_end_offset: Annotated[Int64 | None, "Offset after the last batch."] = None
    end_time: Annotated[Int64 | None, "Time of the last batch.", Unit("ms")] = None
    leader_epoch: Annotated[Int32 | None, "Highest leader epoch."] = None
    records: Annotated[Int64 | None, "Data records."] = None
    bytes: Annotated[Int64 | None, "Size of the batches.", Unit("bytes")] = None
    first_offset: Annotated[Int64 | None, "Offset of the segment or, within one, of the first batch."] = None
    is_after_damage: Annotated[bool | None, "Whether unreadable data is directly before that batch."] = None
    cleaned: Annotated[Int64, "Offset up to which the log was cleaned; -1 for never or unknown."] = -1
    position: Annotated[Int64 | None, "Position of damage in its file.", Unit("bytes")] = None
    error: Annotated[str | None, "What could not be read."] = None

    @property
    def read_error(self) -> ReadError:
        """What could not be read."""
        return ReadError(self.file, self.position, self.error or "")


PARTIAL_TRANSACTIONS_SCHEMA = StructType(
    [StructField(each.name, each.dataType) for each in struct_type(PartialRecord.table)]
)
"""Spark's schema of the table."""

PARTIAL_TRANSACTIONS_ARROW: pa.Schema = to_arrow_schema(PARTIAL_TRANSACTIONS_SCHEMA)
"""`PARTIAL_TRANSACTIONS_SCHEMA` for Arrow."""

BEGIN = "begin"  # the range begins the log; its edges include the transactions open before it
CLOSED = "closed"  # transactions that begin and end in the range (`LOG_TRANSACTION`)
COUNTS = "counts"  # records and bytes before batches (`COUNTED`)
DAMAGE = "damage"  # unreadable data before the last batch: position, error
EDGES = "edges"  # transactions that may continue on either side (`LOG_TRANSACTION`)
END = "end"  # the first and the last batch of the range, and its totals
START = "start"  # the range begins a segment
MISSING = "missing"  # offsets are missing before the part: error, null if damage says so
TAIL = "tail"  # unreadable data after the last batch
UNREAD_START = "unread_start"  # the range ends in a segment of which it has no batch: the segment's base offset
REACH = "reach"  # the end of the log, if its newest segment is empty
STOP = "stop"  # this range could not be read whole: the next run reads the log from its start on
REMEMBERED = "remembered"  # the log continues at the end of the last read (`LogState`)
LOST = "lost"  # the log continues after offsets deleted before they were read, see error (`LogState`)
TRUNCATED = "truncated"  # the log changed from log_end_offset on, and is read again (`LogState`)

PACKED = (CLOSED, COUNTS, EDGES)  # kinds of which there may be many rows
REMEMBERED_COLUMNS = ("log", "topic", "partition", "broker_id", "remembered")
LOG_TRANSACTIONS_AT_ONCE = 1 << 16


def partial_transaction_batches(
    parts: Iterable[LogChunk],
    where: LogId,
    *,
    log: str,
    range_order: int = 0,
    before: PartialTransactions = EMPTY,
    log_end_offset: int | None = None,
    cleaned: int = -1,
    is_within_file: bool = False,
) -> Iterator[pa.RecordBatch]:
    """A range of one log as rows of the table, in bounded memory.

    `parts`: consecutive chunks of one log, in order: the complete log, or the range of one task. No batch may be in
        two.
    `where`: topic, partition and broker.
    `log`: a unique name of the log, the same in every task.
    `range_order`: order of the range among the ranges of the log.
    `before`: for the first range of the log, the transactions known to be open before it
        (`toolkit.analysis.log.log_transactions.begin`), or `EMPTY` if unknown. For other ranges, `EMPTY`.
    `log_end_offset`: end of the log, if its newest segment may be empty.
    `cleaned`: offset up to which the log was cleaned, as in `toolkit.analysis.log.lost_offsets.missing_between`.
    `is_within_file`: whether the range begins within a file.
    """
    of_part = PartialRecord(**where.columns, log=log, range_order=range_order, kind=START)
    unread_start: int | None = None
    fold, first = LogFold(partial=before, totals=RunningTotals()), _FirstBatch(is_within_file=is_within_file)
    for chunk in at_missing_offsets(parts, is_within_file=is_within_file, cleaned=cleaned):
        begins_range = not fold.files and not of_part.part and not is_within_file
        if begins_range or (first.is_awaited and len(fold.files) == 1 and chunk.file not in fold.files):
            base_offset = segment_base_offset(chunk.file)
            if base_offset is not None:
                yield record_batch(replace(of_part, first_offset=base_offset, cleaned=cleaned))
        if chunk.missing is not None:
            fold.files.setdefault(chunk.file, len(fold.files))  # of transactions of which no batch was read
            yield from _part_rows(fold, of_part, first)
            of_part = replace(of_part, part=of_part.part + 1)
            fold, first = LogFold(totals=RunningTotals()), _FirstBatch(is_within_file=False)
            found, error = chunk.missing.found, chunk.missing.error
            yield record_batch(replace(of_part, kind=MISSING, first_offset=found, error=error))
            unread_start = None
        if len(chunk.headers):
            unread_start = None
        elif fold.files and chunk.file not in fold.files:
            unread_start = segment_base_offset(chunk.file)
        first.add(chunk)
        fold.add(replace(chunk, missing=None))
        if fold.closed_rows >= LOG_TRANSACTIONS_AT_ONCE:
            yield _log_transaction_rows(fold.take_closed(), replace(of_part, kind=CLOSED), files=fold.file_names)
    yield from _part_rows(fold, of_part, first)
    if unread_start is not None:
        yield record_batch(replace(of_part, kind=UNREAD_START, first_offset=unread_start, cleaned=cleaned))
    if log_end_offset is not None:
        yield record_batch(replace(of_part, kind=REACH, log_end_offset=log_end_offset, cleaned=cleaned))


@dataclass(slots=True, kw_only=True)
class _FirstBatch:
    """The first batch of a range that begins within a file: its offset, and whether damage is directly before it."""

    is_within_file: bool
    first_offset: int | None = None
    is_after_damage: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether nothing of that file was read: a run that continues at its end reads no more of it."""
        return self.is_within_file and self.first_offset is None and not self.is_after_damage

    def add(self, chunk: LogChunk) -> None:
        headers, damage = chunk.headers, chunk.damage
        if not self.is_within_file or self.first_offset is not None:
            return
        if len(headers):
            self.first_offset = int(headers["base_offset"][0])
            damage = tuple(each for each in damage if each.position < headers["position"][0])
        self.is_after_damage |= bool(damage)


def _part_rows(fold: LogFold, of_part: PartialRecord, first: _FirstBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a part of a range."""
    closed = fold.take_closed()
    if len(closed):
        yield _log_transaction_rows(closed, replace(of_part, kind=CLOSED), files=fold.file_names)
    if others := list(_other_rows(fold, of_part, first)):
        yield record_batch(*others)
    if len(fold.partial.edges):
        yield _log_transaction_rows(fold.partial.edges, replace(of_part, kind=EDGES), files=fold.file_names)
    if fold.totals is not None and len(samples := fold.totals.samples):
        counts = np.ascontiguousarray(samples).view(COUNTED).reshape(-1)
        packed = pack(counts, pack_starts(np.zeros(1, np.int64), len(counts)))
        yield _packed_rows(replace(of_part, kind=COUNTS), packed, pa.nulls(len(packed), pa.string()))


def _other_rows(fold: LogFold, of_part: PartialRecord, first: _FirstBatch) -> Iterator[PartialRecord]:
    """Where the range begins and ends, and its damage."""
    if fold.partial.settled:
        yield replace(of_part, kind=BEGIN)
    for number, (file, position, error) in enumerate(fold.damage):
        kind = DAMAGE if number < fold.damage_inside else TAIL
        yield replace(of_part, kind=kind, file=file, position=position, error=error)
    if fold.log_end_offset and fold.totals is not None:
        records, size = fold.totals.total
        yield replace(
            of_part,
            kind=END,
            first_offset=first.first_offset,
            is_after_damage=first.is_after_damage,
            log_end_offset=fold.log_end_offset,
            end_time=fold.end_time,
            leader_epoch=fold.highest_epoch,
            records=records,
            bytes=size,
        )


def range_summary(rows: pa.Table, *, end: PartialRecord | None, is_settled: bool) -> RangeSummary:
    """The summary of a range, from its rows in any order. `end`, `is_settled`: its `END`; whether it has `BEGIN`."""
    by_kind = {kind: rows.filter(pc.equal(rows["kind"], kind)) for kind in PACKED}
    files: dict[str | None, int] = {None: 0}
    (closed, edges) = (_log_transactions_in(by_kind[kind], files) for kind in (CLOSED, EDGES))
    counts = unpack(by_kind[COUNTS]["packed"].combine_chunks(), COUNTED)[0]
    end = end or PartialRecord(log="", kind=END)
    return RangeSummary(
        closed=closed,
        edges=edges,
        is_settled=is_settled,
        files=tuple(files),
        counts=np.sort(counts, order="offset"),
        records=end.records or 0,
        bytes=end.bytes or 0,
        log_end_offset=end.log_end_offset,
        end_time=end.end_time,
        leader_epoch=end.leader_epoch,
    )


def record_batch(*rows: PartialRecord) -> pa.RecordBatch:
    """Rows of the table as Arrow data."""
    columns = zip(PartialRecord.columns(rows), PARTIAL_TRANSACTIONS_ARROW.types, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, type_) for values, type_ in columns], schema=PARTIAL_TRANSACTIONS_ARROW
    )


def _packed_rows(row: PartialRecord, packed: pa.Array, files: pa.Array) -> pa.RecordBatch:
    """A row for each packed value and its file."""
    names = PARTIAL_TRANSACTIONS_ARROW.names
    repeated = pa.Table.from_batches([record_batch(row)]).take(pa.array(np.zeros(len(packed), np.int64)))
    for name, values in (("file", files), ("packed", packed)):
        repeated = repeated.set_column(names.index(name), PARTIAL_TRANSACTIONS_ARROW.field(name), values)
    return repeated.to_batches()[0]


def _log_transaction_rows(
    log_transactions: LogTransactions, row: PartialRecord, *, files: Sequence[str | None]
) -> pa.RecordBatch:
    """Transactions packed into rows, each with transactions of one file."""
    log_transactions = take_rows(log_transactions, np.argsort(log_transactions["file"], kind="stable"))
    starts = pack_starts(np.append(0, np.flatnonzero(np.diff(log_transactions["file"])) + 1), len(log_transactions))
    return _packed_rows(row, pack(log_transactions, starts), labels(log_transactions["file"][starts], files))


def _log_transactions_in(rows: pa.Table, files: dict[str | None, int]) -> LogTransactions:
    """The transactions in packed rows; those of a producer in log order, as only its last one has no marker."""
    unpacked, counts = unpack(rows["packed"].combine_chunks(), LOG_TRANSACTION)
    numbers = [files.setdefault(file, len(files)) for file in rows["file"].to_pylist()]
    log_transactions: LogTransactions = unpacked.copy()
    log_transactions["file"] = np.repeat(np.array(numbers, np.int32), counts)
    return take_rows(log_transactions, np.argsort(log_transactions["marker_offset"] < 0, kind="stable"))
