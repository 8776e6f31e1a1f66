"""Lines that ``kafka-dump-log.sh`` prints, one at a time: rows, which match completely or not at all, and errors.

Source: ``DumpLogSegments`` in Kafka (core up to 4.0, tools since), 2.8 to 4.3. Changes:

- 3.0: record lines no longer repeat their batch, codecs are in lower case
- 3.1: ``lastTimestamp`` in snapshots
- 3.2: ``deleteHorizonMs`` in batch lines
- 3.3: ``Log starting offset`` for ``Starting offset``; snapshots of the metadata log
- 3.5: ``OptionalLong[60]`` for ``Some(60)`` in snapshots
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toolkit.formats.batches import CODECS, CONTROL, DELETE_HORIZON, HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.headers import ABORT, COMMIT, HEADER, NO_MARKER, UNREAD_MARKER, DamagedRange, LogChunk
from toolkit.formats.log_dir_files import AbortedTxn, SnapshotEntry, parse_folder_name
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord


class TextLines:
    """Lines without their line breaks, numbered from 1. `lines`: with or without line breaks."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._ahead: deque[str] = deque()
        self._last = ""  # with its line break, if it was read
        self._end = ""  # of every line, like the first
        self.number = 0  # of the line that `next` returned
        self.given_back = 0  # lines read ahead, repeated ones included
        self.exhausted = False  # whether the end was read, possibly ahead

    def __iter__(self) -> TextLines:
        return self

    def __next__(self) -> str:
        line = self._ahead.popleft() if self._ahead else self._read()
        self.number += 1
        return line

    def peek(self) -> str | None:
        """The line that `next` will return; null at the end."""
        if not self._ahead:
            try:
                self._ahead.append(self._read())
            except StopIteration:
                return None
        return self._ahead[0]

    def push_back(self, lines: list[str]) -> None:
        """Let `next` return these lines again."""
        self._ahead.extendleft(reversed(lines))
        self.number -= len(lines)
        self.given_back += len(lines)

    @property
    def cut(self) -> bool:
        """Whether this is the last line and lacks the line break that others have."""
        return bool(self._end) and self.perhaps_cut

    @property
    def perhaps_cut(self) -> bool:
        """Whether this is the last line and has no line break."""
        return self.peek() is None and not self._last.endswith("\n")

    def _read(self) -> str:
        try:
            raw = next(self._lines)
        except StopIteration:
            self.exhausted = True
            raise
        if not self.number and not self._ahead:
            raw = raw.removeprefix("\ufeff")
            self._end = "\r\n" if raw.endswith("\r\n") else "\n" if raw.endswith("\n") else ""
        self._last = raw
        return raw.removesuffix(self._end)  # no more than that: what is before it may be the end of a payload's line


INT8, INT16, INT32, INT64 = r"(-?\d{1,3})", r"(-?\d{1,5})", r"(-?\d{1,10})", r"(-?\d{1,19})"
TIME_TYPE = "(CreateTime|LogAppendTime|NoTimestampType)"
END_OF_BATCH = (
    rf"position: {INT64} {TIME_TYPE}: {INT64} size: {INT32} magic: {INT8} compresscodec: ([A-Za-z0-9]+) "
    rf"crc: {INT32} isvalid: (true|false)"
)
BATCH = re.compile(
    rf"baseOffset: {INT64} lastOffset: {INT64} count: {INT32} baseSequence: {INT32} lastSequence: -?\d{{1,10}} "
    rf"producerId: {INT64} producerEpoch: {INT16} partitionLeaderEpoch: {INT32} "
    rf"isTransactional: (true|false) isControl: (true|false) "
    rf"(?:deleteHorizonMs: OptionalLong(?:\.empty|\[{INT64}\]) )?{END_OF_BATCH}",
    re.ASCII,
)
LEGACY_BATCH = re.compile(rf"offset: {INT64} {END_OF_BATCH}", re.ASCII)

RECORD_START = re.compile(r"\| offset: (\d{1,19}) (?:CreateTime|LogAppendTime|NoTimestampType|isValid): ", re.ASCII)
END_OF_METADATA = (
    r"(?: sequence: -?\d{1,10} headerKeys: (\[)| isValid: (?:true|false) crc: \d{1,10}\}?"
    r"| crc: \d{1,10} isvalid: (?:true|false)|(?= key: | payload: |$))"
)
RECORD = re.compile(
    rf"\| offset: {INT64} (?:CreateTime|LogAppendTime|NoTimestampType): {INT64} keySize: {INT32} valueSize: {INT32}"
    + END_OF_METADATA,
    re.ASCII,
)
RECORD_BEFORE_3_0 = re.compile(
    rf"\| offset: {INT64} isValid: (?:true|false) crc: (?:null|\d{{1,10}}) keySize: {INT32} valueSize: {INT32} "
    rf"(?:CreateTime|LogAppendTime|NoTimestampType): {INT64} baseOffset: -?\d{{1,19}} lastOffset: -?\d{{1,19}} "
    r"baseSequence: -?\d{1,10} lastSequence: -?\d{1,10} producerEpoch: -?\d{1,5} partitionLeaderEpoch: -?\d{1,10} "
    r"batchSize: \d{1,10} magic: \d{1,3} compressType: [A-Za-z0-9]+ position: \d{1,19}" + END_OF_METADATA,
    re.ASCII,
)
END_MARKER = re.compile(rf"\] endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: {INT32}", re.ASCII)
OTHER_CONTROL = re.compile(rf"\] controlType: [A-Z_]+\({INT16}\)", re.ASCII)
METADATA_CONTROL = re.compile(r"\] (LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters):? \{.*\}")
METADATA_TYPES = {"LeaderChange": 2, "SnapshotHeader": 3, "SnapshotFooter": 4, "KRaftVersion": 5, "KRaftVoters": 6}

PRODUCER = re.compile(
    rf"producerId: {INT64} producerEpoch: {INT16} coordinatorEpoch: {INT32} "
    rf"currentTxnFirstOffset: (?:None|OptionalLong\.empty|Some\((\d{{1,19}})\)|OptionalLong\[(\d{{1,19}})\])"
    rf"(?: lastTimestamp: {INT64})?"
    rf"(?: firstSequence: -?\d{{1,10}} lastSequence: {INT32} lastOffset: {INT64} offsetDelta: {INT32} "
    rf"timestamp: {INT64})? ?",
    re.ASCII,
)
ABORTED = re.compile(
    rf"version: {INT16} producerId: {INT64} firstOffset: {INT64} lastOffset: {INT64} lastStableOffset: {INT64}",
    re.ASCII,
)

ROW_STARTS = ("baseOffset: ", "| offset: ")
ROW_PARTS = (
    " partitionLeaderEpoch: ",
    " compresscodec: ",
    " keySize: ",
    " currentTxnFirstOffset: ",
    " lastStableOffset: ",
)

CODEC_OF = {name: code for code, name in enumerate(CODECS)}
BITS_16, BITS_32, BITS_64 = 2**15, 2**31, 2**63


class BatchLine(NamedTuple):
    """A batch line: the fields of ``headers.HEADER`` in its order."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    crc: int
    base_sequence: int
    record_count: int
    leader_epoch: int
    coordinator_epoch: int
    attributes: int
    producer_epoch: int
    marker: int
    magic: int
    crc_ok: int


class RecordLine(NamedTuple):
    """The metadata of a record line, and what follows it."""

    offset: int
    timestamp: int  # ms
    key_size: int  # bytes, -1 for null
    value_size: int
    keys: bool  # whether header keys follow, after their opening bracket
    rest: str


def read_batch(line: str) -> BatchLine | None:
    """The batch in a line; null if its form or its numbers are not those of a batch."""
    found = BATCH.fullmatch(line)
    if not found:
        return _read_legacy_batch(line)
    (base, last, count, sequence, pid, epoch, leader_epoch, transactional, control, horizon) = found.groups()[:10]
    position, time_type, newest, size, magic, codec, crc, valid = found.groups()[10:]
    batch = BatchLine(
        position=int(position),
        size=int(size),
        base_offset=int(base),
        last_offset=int(last),
        base_timestamp=-1 if horizon is None else int(horizon),
        max_timestamp=int(newest),
        producer_id=int(pid),
        crc=int(crc),
        base_sequence=int(sequence),
        record_count=int(count),
        leader_epoch=int(leader_epoch),
        coordinator_epoch=-1,
        attributes=CODEC_OF.get(codec.lower(), -BITS_16)
        | (time_type == "LogAppendTime" and LOG_APPEND_TIME)
        | (transactional == "true" and TRANSACTIONAL)
        | (control == "true" and CONTROL)
        | (horizon is not None and DELETE_HORIZON),
        producer_epoch=int(epoch),
        marker=UNREAD_MARKER if control == "true" and count != "0" else NO_MARKER,
        magic=int(magic),
        crc_ok=int(valid == "true"),
    )
    return batch if _is_possible(batch) else None


def _read_legacy_batch(line: str) -> BatchLine | None:
    """A batch of magic 0 or 1: its offset is that of its last message; that of the first is unknown."""
    found = LEGACY_BATCH.fullmatch(line)
    if not found:
        return None
    offset, position, time_type, newest, size, magic, codec, crc, valid = found.groups()
    batch = BatchLine(
        position=int(position),
        size=int(size),
        base_offset=int(offset),
        last_offset=int(offset),
        base_timestamp=-1,
        max_timestamp=int(newest),
        producer_id=-1,
        crc=int(crc),
        base_sequence=-1,
        record_count=-1,
        leader_epoch=-1,
        coordinator_epoch=-1,
        attributes=CODEC_OF.get(codec.lower(), -BITS_16) | (time_type == "LogAppendTime" and LOG_APPEND_TIME),
        producer_epoch=-1,
        marker=NO_MARKER,
        magic=int(magic),
        crc_ok=int(valid == "true"),
    )
    return batch if _is_possible(batch) else None


def _is_possible(batch: BatchLine) -> bool:
    """Whether the numbers fit their types and each other."""
    log_transaction = batch.last_offset - batch.base_offset + 1
    smallest, records = (HEADER_SIZE, batch.record_count) if batch.magic == 2 else (1, 0)
    return (
        batch.magic in {0, 1, 2}
        and batch.attributes >= 0
        and 0 <= batch.position < BITS_64 - batch.size
        and smallest <= batch.size < BITS_32
        and 0 <= records <= log_transaction
        and 0 <= batch.base_offset <= batch.last_offset < BITS_64
        and 0 <= batch.crc < 2 * BITS_32
        and -BITS_16 <= batch.producer_epoch < BITS_16
        and min(batch.base_sequence, batch.leader_epoch) >= -BITS_32
        and max(batch.base_sequence, batch.leader_epoch) < BITS_32
        and min(batch.base_timestamp, batch.max_timestamp, batch.producer_id) >= -BITS_64
        and max(batch.base_timestamp, batch.max_timestamp, batch.producer_id) < BITS_64
    )


def record_offset(line: str) -> int | None:
    """The offset of the record at the start of a line; null for any other line."""
    found = RECORD_START.match(line)
    return int(found[1]) if found else None


def read_record(line: str) -> RecordLine | None:
    """The record at the start of a line; null for any other line."""
    found = RECORD.match(line)
    if found:
        offset, timestamp, key_size, value_size, keys = found.groups()
    else:
        found = RECORD_BEFORE_3_0.match(line)
        if not found:
            return None
        offset, key_size, value_size, timestamp, keys = found.groups()
    record = RecordLine(
        int(offset), int(timestamp), int(key_size), int(value_size), keys is not None, line[found.end() :]
    )
    return record if 0 <= record.offset < BITS_64 else None


def read_marker(record: RecordLine) -> tuple[int, int] | None:
    """Type and coordinator epoch (-1 for none) of a control record; null if the line does not show it."""
    found = END_MARKER.fullmatch(record.rest)
    if found:
        epoch = int(found[2])
        return (COMMIT if found[1] == "COMMIT" else ABORT, epoch) if -BITS_32 <= epoch < BITS_32 else None
    found = OTHER_CONTROL.fullmatch(record.rest)
    if found:
        return (int(found[1]), -1) if -BITS_16 <= int(found[1]) < BITS_16 else None
    found = METADATA_CONTROL.fullmatch(record.rest)
    return (METADATA_TYPES[found[1]], -1) if found else None


def read_producer(line: str) -> SnapshotEntry | None:
    """The producer in a line of a snapshot; null if its form or its numbers are not those of a producer."""
    found = PRODUCER.fullmatch(line)
    if not found:
        return None
    pid, epoch, coordinator_epoch, first, first_since_3_5, newest, sequence, last, delta, newest_before_3_1 = (
        None if field is None else int(field) for field in found.groups()
    )
    state = SnapshotEntry(
        producer_id=pid or 0,
        producer_epoch=epoch or 0,
        last_sequence=_known(sequence),
        last_offset=_known(last),
        offset_delta=delta or 0,
        last_timestamp=_known(newest_before_3_1 if newest is None else newest),
        coordinator_epoch=_known(coordinator_epoch),
        current_txn_first_offset=first_since_3_5 if first is None else first,
    )
    small = -BITS_16 <= state.producer_epoch < BITS_16
    medium = max(state.last_sequence or 0, state.offset_delta, state.coordinator_epoch or 0) < BITS_32
    large = state.producer_id, state.last_offset or 0, state.last_timestamp or 0, state.current_txn_first_offset or 0
    return (
        state if small and medium and min(state.producer_id, state.offset_delta) >= 0 and max(large) < BITS_64 else None
    )


def read_aborted(line: str, number: int) -> AbortedTxn | None:
    """The aborted transaction in a line, with the line's number as its position."""
    found = ABORTED.fullmatch(line)
    if not found:
        return None
    txn = AbortedTxn(number, *(int(field) for field in found.groups()))
    return txn if min(txn) >= 0 and txn.first_offset <= txn.last_offset and max(txn) < BITS_64 else None


def looks_like_a_row(line: str) -> bool:
    """Whether a line without a known form was meant to have one."""
    return line.startswith(ROW_STARTS) or any(part in line for part in ROW_PARTS)


def _known(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


INDEX = "INDEX_MISMATCH: kafka-dump-log.sh reports: "
REPORTS = (  # first words of a line, and the error
    (re.compile(r"Found \d+ invalid bytes at the end of \S"), "TORN_TAIL: kafka-dump-log.sh reports: "),
    (re.compile(r"Mismatches in :"), INDEX),
    (re.compile(r"Found timestamp mismatch in :"), INDEX),
    (re.compile(r"Found out of order timestamp in :"), INDEX),
    (re.compile(r"The following indexed offsets are not found in the log\."), INDEX),
    (re.compile(r"Non-consecutive offsets in \S"), "OFFSET_GAPS: normal after compaction; kafka-dump-log.sh reports: "),
    (re.compile(r"Ignoring unknown file \S"), "SKIPPED: kafka-dump-log.sh reports: "),
    (re.compile(r'Exception in thread "main" \S'), "TOOL_FAILED: the dump may end before its file does: "),
    (re.compile(r"(?:Error: )?Could not \S"), "TOOL_FAILED: the dump may end before its file does: "),
    (
        re.compile(r"Snapshot (?:contained an unknown|is corrupt|failed schema)"),
        "CORRUPT_SNAPSHOT: kafka-dump-log.sh reports: ",
    ),
)
DETAIL = re.compile(
    r"  Index (?:offset|timestamp): -?\d+, .*|Indexed offset: -?\d+, found log offset: .*|  -?\d+ is followed by -?\d+"
)
LONGEST_QUOTE = 400  # characters of a quoted line


def read_report(line: str) -> str | None:
    """The error in a line; null for any other line."""
    for shape, text in REPORTS:
        if shape.match(line):
            return text + _quoted(line)
    return None


def is_detail(line: str) -> bool:
    """Whether a line belongs to the error before it."""
    return DETAIL.fullmatch(line) is not None


def malformed(line: str, lines: TextLines) -> str:
    """The error for a line that should be a row of a dump."""
    start = _quoted(line)
    if lines.perhaps_cut:
        return f"TORN_TAIL: The text ends within a line: {start}"
    return f"MALFORMED_LINE: This should be a row of a dump, and is none: {start}"


def _quoted(line: str) -> str:
    return line[:LONGEST_QUOTE].encode("utf-8", "replace").decode()


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
