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
from typing import NamedTuple

from toolkit.formats.log.batches import CODECS, CONTROL, DELETE_HORIZON, HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.log.headers import ABORT, COMMIT, NO_MARKER, UNREAD_MARKER
from toolkit.formats.segment_files import AbortedTxn, SnapshotEntry


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
