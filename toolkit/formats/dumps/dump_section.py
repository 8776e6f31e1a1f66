"""One dump of a file: its rows, in chunks, and whether they are consecutive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.dumps.dump_lines import BatchLine
from toolkit.formats.log.headers import HEADER, DamagedRange, LogChunk
from toolkit.formats.log_dir_files import parse_folder_name
from toolkit.formats.segment_files import AbortedTxn, SnapshotEntry
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord

PART = 1 << 14  # rows of a chunk
KINDS = frozenset({"log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"})
DECODERS = {STATE_TOPIC: "--transaction-log-decoder", OFFSETS_TOPIC: "--offsets-decoder"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DumpChunk(LogChunk):
    """A chunk of the dump of one file, in the order of the text.

    Parameters
    ----------
    number
        Of the dump in the text, from 0; the chunks of a dump have the same number.
    path
        From the line ``Dumping ...``; null without one.
    topic, partition
        From the folder in that path; null if it has none.
    kind
        ``log``, ``snapshot`` (producer state), ``txnindex``, ``index``, ``timeindex``, ``checkpoint`` (a snapshot of
        the metadata log), ``records`` (of ``__transaction_state``, from a console consumer), or ``unknown``.
    headers, damage
        Batches, with positions in the file that was dumped, each after the one before; ``base_timestamp`` is printed
        by no version (-1), and a control batch whose record is not printed has ``headers.UNREAD_MARKER``. Damage,
        with **line numbers** (from 1) as positions and numbers of lines as sizes.
    events
        Records of ``__transaction_state``, with line numbers as positions; what was written before 4.1 has neither
        start time nor client version.
    offsets_log
        Records of ``__consumer_offsets``, likewise.
    snapshot
        Producers in a snapshot.
    aborted
        Entries of an index of aborted transactions, with line numbers as positions.
    """

    number: int
    path: str | None
    topic: str | None
    partition: int | None
    kind: str
    events: tuple[TransactionLogRecord, ...] = ()
    offsets_log: tuple[OffsetsLogRecord, ...] = ()
    snapshot: tuple[SnapshotEntry, ...] = ()
    aborted: tuple[AbortedTxn, ...] = ()


class DumpSection:
    """The rows of one dump that were read and not yet emitted.

    `number`: of the dump in the text. `path`: file that was dumped; null if unknown. `line`: number of its first line.
    """

    def __init__(self, number: int, *, path: str | None, line: int) -> None:
        self.number, self.path, self.line = number, path, line
        self.topic, self.partition = _partition(path)
        self.kind = _kind(path)
        self.batch: BatchLine | None = None  # the last one
        self.records = 0  # record lines of it
        self.record_offset = -1  # of the last record line of it
        self._deep = False  # whether records are printed
        self.decoded: str | None = None  # topic of the decoder that printed them
        self.may_be_decoded = self.topic is None or self.topic in DECODERS
        self.entries = 0  # of an index, skipped
        self._batches: list[BatchLine] = []
        self._damage: list[DamagedRange] = []
        self._gaps = _Gaps()
        self._undecoded: tuple[int, int] | None = None  # line of the first, and number of them
        self._events: list[TransactionLogRecord] = []
        self._offsets_log: list[OffsetsLogRecord] = []
        self._snapshot: list[SnapshotEntry] = []
        self._aborted: list[AbortedTxn] = []
        self._rows = 0  # in all of these
        self._taken_to = 0  # end of the last emitted batch
        self._yielded = False

    @property
    def end(self) -> int:
        """Byte at which the next batch must start."""
        return self.batch.position + self.batch.size if self.batch else 0

    @property
    def is_full(self) -> bool:
        """Whether there are enough rows for a chunk."""
        return self._rows >= PART

    @property
    def is_empty(self) -> bool:
        """Whether no row of it was read."""
        return not (self.kind or self._rows or self._gaps.first or self._yielded)

    def goes_on(self, batch: BatchLine) -> bool:
        """Whether a batch comes after all others."""
        return self.batch is None or (batch.position >= self.end and batch.base_offset > self.batch.last_offset)

    def expects(self, batch: BatchLine) -> bool:
        """Whether a batch directly follows the last one."""
        return batch.position == self.end and self.goes_on(batch)

    def contains(self, offset: int) -> bool:
        """Whether an offset is in the last batch; an old batch does not show its first offset."""
        batch = self.batch
        return batch is not None and (batch.base_offset <= offset or batch.magic < 2) and offset <= batch.last_offset

    def expects_record(self, offset: int) -> bool:
        """Whether an offset can be that of the next record line."""
        return offset > self.record_offset and self.contains(offset)

    def add_batch(self, batch: BatchLine, line: int) -> None:
        """Add a batch that comes after all others."""
        self._count_records(line)
        if batch.position != self.end:
            self.add_gap(line, f"bytes {self.end} to {batch.position - 1}, which are not in the text")
        if not batch.crc_ok:
            offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
            self.add_damage(
                line, f"CORRUPT_BATCH: the tool calls the batch at byte {batch.position}, {offsets}, invalid."
            )
        self.batch, self.records, self.record_offset = batch, 0, -1
        self._batches.append(batch)
        self._rows += 1

    def add_record(self, offset: int) -> None:
        """Add a record line of the last batch."""
        self._deep = True
        self.records += 1
        self.record_offset = offset

    def add_marker(self, marker: int, coordinator_epoch: int) -> None:
        """Set the type of the last batch, a control batch."""
        if self.batch and self._batches:
            self.batch = self.batch._replace(marker=marker, coordinator_epoch=coordinator_epoch)
            self._batches[-1] = self.batch

    def add_gap(self, line: int, what: str) -> None:
        """Note that lines are missing before this one."""
        self._gaps.add(line, what)

    def count_undecoded(self, line: int) -> None:
        """Add a record whose text no decoder printed."""
        first, count = self._undecoded or (line, 0)
        self._undecoded = first, count + 1

    def add_damage(self, line: int, reason: str, *, lines: int = 1) -> None:
        """Add damage: lines that could not be read, or errors of the tool."""
        self._damage.append(DamagedRange(line, lines, reason))
        self._rows += 1

    def add_event(self, record: TransactionLogRecord | OffsetsLogRecord) -> None:
        """Add a record of ``__transaction_state`` or ``__consumer_offsets``."""
        if isinstance(record, TransactionLogRecord):
            self.decoded = STATE_TOPIC
            self._events.append(record)
        else:
            self.decoded = OFFSETS_TOPIC
            self._offsets_log.append(record)
        self._rows += 1

    def add_producer(self, producer: SnapshotEntry) -> None:
        """Add a line of a snapshot."""
        self._snapshot.append(producer)
        self._rows += 1

    def add_aborted(self, aborted: AbortedTxn) -> None:
        """Add a line of an index of aborted transactions."""
        self._aborted.append(aborted)
        self._rows += 1

    def close(self, line: int) -> None:
        """Add what is known only at the end of the dump; ``line`` is its last line."""
        self._count_records(line)
        if self.kind == "log" and not (self.batch or self._damage or self._yielded):
            self.add_damage(self.line, "NOTHING_READ: No batch is in this dump: an empty segment, or a dump cut short.")
        if self.batch and self.topic in DECODERS and not self.decoded:
            what = f"NOT_DECODED: Without {DECODERS[self.topic]} the records of {self.topic} cannot be read."
            self.add_damage(self.line, what)
        elif self.decoded and self._undecoded:
            first, count = self._undecoded
            self.add_damage(first, f"MALFORMED_LINE: {count} records before the first decoded one cannot be read.")
        if self.kind in {"index", "timeindex"}:
            what = f"SKIPPED: The {self.entries} entries of this .{self.kind} file are not read from text."
            self.add_damage(self.line, what, lines=self.entries + 1)

    def take(self, *, last: bool = False) -> DumpChunk:
        """The rows since the last chunk; until the end without the last batch, whose marker may follow."""
        batches = self._batches if last else self._batches[:-1]
        if batches:
            self._taken_to = batches[-1].position + batches[-1].size
        dump = DumpChunk(
            number=self.number,
            path=self.path,
            topic=self.topic,
            partition=self.partition,
            kind=self.kind or "unknown",
            headers=np.array(batches, HEADER),
            damage=(*self._damage, *self._gaps.damage()),
            end=self._taken_to,
            events=tuple(self._events),
            offsets_log=tuple(self._offsets_log),
            snapshot=tuple(self._snapshot),
            aborted=tuple(self._aborted),
        )
        del self._batches[: len(batches)]
        everything: tuple[list[Any], ...] = (
            self._damage,
            self._events,
            self._offsets_log,
            self._snapshot,
            self._aborted,
        )
        for rows in everything:
            rows.clear()
        self._gaps, self._rows, self._yielded = _Gaps(), 0, True
        return dump

    def _count_records(self, line: int) -> None:
        if self._deep and self.batch and self.batch.record_count > self.records:
            missing = self.batch.record_count - self.records
            self.add_gap(line, f"{missing} of the {self.batch.record_count} records from {self.batch.base_offset} on")


class _Gaps:
    """Ranges of missing lines, as one row per chunk."""

    def __init__(self) -> None:
        self.first: tuple[int, str] | None = None
        self.count = self.last = 0

    def add(self, line: int, what: str) -> None:
        self.first = self.first or (line, what)
        self.count += 1
        self.last = line

    def damage(self) -> tuple[DamagedRange, ...]:
        if not self.first:
            return ()
        line, what = self.first
        more = f", and {self.count - 1} more such gaps up to line {self.last}" if self.count > 1 else ""
        return (DamagedRange(line, self.last - line + 1, f"MISSING_LINES: before this line there was {what}{more}."),)


def _partition(path: str | None) -> tuple[str | None, int | None]:
    folders = (path or "").replace("\\", "/").split("/")[-2:-1]
    found = parse_folder_name(folders[0]) if folders else None
    return (found.topic, found.partition) if found else (None, None)


def _kind(path: str | None) -> str | None:
    """The kind by the file's suffix, as the tool determines it; ``unknown`` without a path."""
    if path is None:
        return None
    suffix = path.rpartition(".")[2]
    return suffix if suffix in KINDS else "unknown"
