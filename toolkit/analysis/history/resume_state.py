"""The state of one log between two reads: open transactions, LSO holds, counts.

A log is added in consecutive ranges. Wherever it is split, and however old the state is, the transactions, LSO steps
and LSO holds are those of a single read: a range only needs the transactions that are open where it begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.history.hold_findings import candidates, hold_table, without_short_holds
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    LOG_TRANSACTION,
    OPEN,
    LogTransactions,
    PartialTransactions,
    log_transaction_table,
    lose_open,
    lso_steps,
    merge,
)
from toolkit.errors import UsageError
from toolkit.formats.headers import Array, from_ipc, integers, numbers, take_rows, to_ipc
from toolkit.schema import LOG_TRANSACTIONS, Row
from toolkit.schema.recorded import LOG_TRANSACTION_COLUMNS, LSO_HOLDS

COUNTED = np.dtype([("offset", "i8"), ("records", "i8"), ("bytes", "i8")])
"""Data records and bytes of a `RangeSummary` before one of its batches."""

NEVER = np.iinfo(np.int64).max
NO_HOLDS: pa.Table = LSO_HOLDS.arrow_schema.empty_table()
NO_TRANSACTIONS: pa.Table = LOG_TRANSACTIONS.arrow_schema.empty_table()
NUMBERS = ("log_end_offset", "end_time", "leader_epoch", "is_damaged", "_steps_from", "_records", "_bytes")
"""Attributes of a `LogState` that are stored as they are."""

VERSION = 1  # changes with `LogState.to_bytes`, `LOG_TRANSACTION`, `COUNTED` and `LSO_HOLDS`


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeSummary:
    """Summary of consecutive batches of a log."""

    closed: LogTransactions  # transactions that begin and end in the range; ``file`` is an index in `files`
    # transactions that may continue on either side, as in `toolkit.analysis.log.log_transactions.PartialTransactions`
    edges: LogTransactions
    is_settled: bool = False  # whether it begins the log, and `edges` include the transactions that were open before it
    files: tuple[str | None, ...] = (None,)  # files that its batches were read from
    # array of `COUNTED`, by offset: at the first batch and at the marker of each transaction
    counts: Array = field(default_factory=lambda: np.empty(0, COUNTED))
    # records, bytes: totals of its batches
    records: int = 0
    bytes: int = 0
    # log_end_offset, end_time, leader_epoch: of its last batch; null if it has none
    log_end_offset: int | None = None
    end_time: int | None = None
    leader_epoch: int | None = None


class RangeRows(NamedTuple):
    """Rows of ``schema.LOG_TRANSACTIONS``, and an array of `toolkit.analysis.log.log_transactions.LSO_STEP`."""

    log_transactions: pa.Table
    steps: Array


@dataclass(slots=True, kw_only=True, eq=False)
class LogState:
    """The state of one log up to the end of the last range read."""

    topic: str | None
    partition: int | None
    broker_id: int | None
    min_held_ms: int = 0  # shorter holds of the LSO are dropped when they end
    log_end_offset: int | None = None  # offset after the last batch; null before the first range
    end_time: int = -1  # time of that batch in ms; -1 if unknown
    leader_epoch: int = -1  # the highest of its batches; -1 if unknown
    is_damaged: bool = False  # whether a part of the log could not be read, other than a torn end
    _steps_from: int | None = None  # an earlier read returned the LSO steps before this offset
    _partial: PartialTransactions = EMPTY
    _files: dict[str | None, int] = field(default_factory=dict)
    _records: int = 0
    _bytes: int = 0
    _before: dict[int, tuple[int, int]] = field(default_factory=dict)  # records and bytes before open transactions
    _open_holds: dict[tuple[int, int], Row] = field(
        default_factory=dict
    )  # candidates that are open, by producer and offset
    _holds: list[pa.Table] = field(default_factory=list)  # those that have ended, and markers

    def add(self, summary: RangeSummary) -> RangeRows:
        """Add the next range and return the rows that later ones do not change."""
        start = self.log_end_offset
        edges = self._renumbered(summary.edges, summary.files)
        merged = merge(self._partial, PartialTransactions(edges=edges, settled=summary.is_settled))
        closed, self._partial = merged.take_closed()
        # An ended transaction that may have begun before the log stays an edge: it shows that its producer is not new.
        edges = self._partial.edges
        first_ends = edges[edges["marker_offset"] >= (0 if start is None else start)]
        ended = np.concatenate((self._renumbered(summary.closed, summary.files), closed, first_ends))
        touching: LogTransactions = np.concatenate((ended, self._open))
        table = self._table(touching)
        self._add_holds(table, len(ended), start=start or 0, counts=summary.counts)
        steps = lso_steps(touching, log_end_offset=None, start=self._steps_from if start is None else start)
        self._records += summary.records
        self._bytes += summary.bytes
        if summary.log_end_offset is not None:
            self.log_end_offset = max(summary.log_end_offset, self.log_end_offset or 0)
            self.end_time = -1 if summary.end_time is None else summary.end_time
            self.leader_epoch = max(self.leader_epoch, -1 if summary.leader_epoch is None else summary.leader_epoch)
        elif start is None and len(touching):
            self._steps_from = int(touching["first_offset"].max()) + 1
        return RangeRows(table.slice(0, len(ended)), steps)

    def open_rows(self) -> RangeRows:
        """The transactions open at the log end, and the LSO there."""
        end = self.log_end_offset
        steps = lso_steps(self._open, log_end_offset=end, end_time=self.end_time, start=NEVER if end is None else end)
        return RangeRows(self._table(self._open), steps)

    @property
    def is_held(self) -> bool:
        """Whether `lso_holds` has a row."""
        return bool(self._settled().num_rows)

    def lso_holds(self) -> pa.Table:
        """Past and present holds of the LSO with the records they blocked: rows of `LSO_HOLDS`."""
        rows = []
        for row in self._settled().to_pylist():
            if row["marker_offset"] is None:
                row["log_end_offset"] = self.log_end_offset
                before = None if row["truncated"] else self._before.get(row["first_offset"])
                if before is not None:
                    row["records_held"], row["bytes_held"] = self._records - before[0], self._bytes - before[1]
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=LSO_HOLDS.arrow_schema)

    def lose(self, *, is_deleted: bool) -> pa.Table:
        """Drop the open transactions, which may have ended at offsets that were not read, and return their rows.

        `is_deleted`: whether the log now begins after these offsets: the next range starts a new log.
        """
        rows = self._table(lose_open(self._open))
        if is_deleted:
            self._restart(self.log_end_offset)
        else:
            self._partial, self._before, self._open_holds = EMPTY, {}, {}
        return rows

    def truncate(self, offset: int) -> None:
        """Drop the open transactions and the holds from an offset on, to read the log again from its start."""
        self._restart(offset)
        self.is_damaged = False
        self._holds = [each.filter(pc.less(each["marker_offset"], offset)) for each in self._holds]

    def to_bytes(self) -> bytes:
        """The state, serialized."""
        used, codes = np.unique(self._partial.edges["file"], return_inverse=True)
        edges = self._partial.edges.copy()
        edges["file"] = codes.reshape(-1)
        names = list(self._files)
        held_marks = pa.concat_tables([NO_HOLDS, *self._holds])
        held_marks = held_marks.filter(pc.is_null(held_marks["first_offset"])).sort_by(
            [("marker_offset", "descending")]
        )
        row = {
            "version": VERSION,
            **{name.lstrip("_"): getattr(self, name) for name in NUMBERS},
            "is_settled": self._partial.settled,
            "edges": edges.tobytes(),
            "files": [names[number] for number in used.tolist()],
            "before": np.array([(at, *both) for at, both in self._before.items()], COUNTED).tobytes(),
            "holds": to_ipc(pa.concat_tables([self._settled(), held_marks.slice(0, 1)])),
        }
        return to_ipc(pa.Table.from_pylist([row]))

    @classmethod
    def from_bytes(
        cls, data: bytes, *, topic: str | None, partition: int | None, broker_id: int | None, min_held_ms: int = 0
    ) -> LogState:
        """The state that `to_bytes` wrote. Raises UsageError if another release wrote it with another schema."""
        (row,) = from_ipc(data).to_pylist()
        if row["version"] != VERSION:
            raise UsageError(
                "Another release of this package wrote these tables; this release cannot continue them.",
                do="Write into a new directory.",
            )
        state = cls(topic=topic, partition=partition, broker_id=broker_id, min_held_ms=min_held_ms)
        for name in NUMBERS:
            setattr(state, name, row[name.lstrip("_")])
        state._partial = PartialTransactions(
            edges=np.frombuffer(row["edges"], LOG_TRANSACTION), settled=row["is_settled"]
        )
        state._files = {name: number for number, name in enumerate(row["files"])}
        state._before = {at: (records, size) for at, records, size in np.frombuffer(row["before"], COUNTED).tolist()}
        state._keep(from_ipc(row["holds"]))
        return state

    @property
    def _open(self) -> LogTransactions:
        edges: LogTransactions = self._partial.edges
        is_open = edges["outcome"] == OPEN
        return take_rows(edges, np.flatnonzero(is_open))

    def _restart(self, offset: int | None) -> None:
        if self.log_end_offset is not None:
            self._steps_from = offset
        elif self._steps_from is not None and offset is not None:
            self._steps_from = min(offset, self._steps_from)
        self.log_end_offset, self.end_time, self.leader_epoch = None, -1, -1
        self._partial, self._files, self._before, self._open_holds = EMPTY, {}, {}, {}

    def _renumbered(self, log_transactions: LogTransactions, files: tuple[str | None, ...]) -> LogTransactions:
        """Transactions with the file numbers of this state."""
        numbers = np.array([self._files.setdefault(name, len(self._files)) for name in files], np.int32)
        log_transactions = log_transactions.copy()
        log_transactions["file"] = numbers[log_transactions["file"]]
        return log_transactions

    def _table(self, log_transactions: LogTransactions) -> pa.Table:
        if not len(log_transactions):
            return NO_TRANSACTIONS
        log_columns = {"topic": self.topic, "partition": self.partition, "broker_id": self.broker_id}
        return log_transaction_table(log_transactions, **log_columns, files=tuple(self._files) or (None,))

    def _settled(self) -> pa.Table:
        if not self._open_holds and all(each["first_offset"].null_count == len(each) for each in self._holds):
            return NO_HOLDS  # of most logs; by far cheaper
        now = {(row["producer_id"], row["first_offset"]): row for row in self._of_held(self._table(self._open))}
        held = [{**row, **now.get(key, {})} for key, row in self._open_holds.items()]
        held = pa.Table.from_pylist(held, schema=LSO_HOLDS.arrow_schema)
        return without_short_holds(pa.concat_tables([held, *self._holds]), min_held_ms=self.min_held_ms)

    def _keep(self, found: pa.Table) -> None:
        """Keep candidates: the open ones by transaction, all others as tables."""
        is_open = pc.and_(pc.is_valid(found["first_offset"]), pc.is_null(found["marker_offset"]))
        for row in found.filter(is_open).to_pylist():
            self._open_holds[row["producer_id"], row["first_offset"]] = row
        rest = found.filter(pc.invert(is_open))
        if rest.num_rows:
            self._holds.append(rest)

    def _add_holds(self, table: pa.Table, ended: int, *, start: int, counts: Array) -> None:
        """Add the candidates of a range, and the ends of earlier candidates."""
        known = set(self._open_holds)  # a second range also begins at 0 if the first one had no batch
        closed = pa.Table.from_pylist(list(self._closed(table.slice(0, ended))), schema=LSO_HOLDS.arrow_schema)
        found = candidates(table.select(LOG_TRANSACTION_COLUMNS), start=start, min_held_ms=self.min_held_ms)
        has_ended = pc.and_(pc.is_valid(found["first_offset"]), pc.is_valid(found["marker_offset"]))
        self._keep(found.filter(pc.invert(has_ended)))
        new = found.filter(has_ended)
        keys = zip(integers(new["producer_id"]).tolist(), integers(new["first_offset"]).tolist(), strict=True)
        closed = pa.concat_tables([closed, new.filter(pa.array([key not in known for key in keys], pa.bool_()))])
        counted = self._counted(counts)
        if closed.num_rows:
            self._holds.append(_with_records(closed, counted))
        still_open = counted[np.isin(counted["offset"], self._open["first_offset"])]
        self._before = {at: (records, size) for at, records, size in still_open.tolist()}

    def _closed(self, ended: pa.Table) -> Iterable[dict[str, Any]]:
        """Candidates of earlier ranges that have ended in this one, with their ends."""
        for row in self._of_held(ended):
            candidate = self._open_holds.pop((row["producer_id"], row["first_offset"]), None)
            if candidate is not None:
                yield {**candidate, **row}

    def _of_held(self, log_transactions: pa.Table) -> list[Row]:
        """Rows of transactions that may be open candidates, with the columns that holds use."""
        first_open = np.isin(integers(log_transactions["first_offset"]), [first for _, first in self._open_holds])
        rows: list[Row] = (
            log_transactions.filter(pa.array(first_open)).select(LOG_TRANSACTION_COLUMNS).to_pylist()
            if first_open.any()
            else []
        )
        return rows

    def _counted(self, counts: Array) -> Array:
        """Array of `COUNTED`, by offset: of the log, and not of a range."""
        counts = counts.copy()
        counts["records"] += self._records
        counts["bytes"] += self._bytes
        counted = np.concatenate((np.array([(at, *both) for at, both in self._before.items()], COUNTED), counts))
        counted = take_rows(counted, np.argsort(counted["offset"], kind="stable"))
        return counted[np.append(counted["offset"][1:] != counted["offset"][:-1], True)] if len(counted) else counted


def _with_records(holds: pa.Table, counted: Array) -> pa.Table:
    """Ended holds, with the records and bytes between their first offset and their marker."""
    first, last = integers(holds["first_offset"]), integers(holds["marker_offset"])
    is_known = np.isin(first, counted["offset"]) & np.isin(last, counted["offset"])
    is_known &= integers(holds["truncated"], null=0) == 0
    held = {name: np.full(holds.num_rows, -1, np.int64) for name in ("records", "bytes")}
    before, after = (counted[np.searchsorted(counted["offset"], at[is_known])] for at in (first, last))
    for name, amount in held.items():
        amount[is_known] = after[name] - before[name]
    return hold_table(holds, {f"{name}_held": numbers(amount) for name, amount in held.items()})
