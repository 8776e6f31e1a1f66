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
from typing import NamedTuple

import numpy as np

from toolkit.formats.batches import CODECS, CONTROL, DELETE_HORIZON, HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, HEADER, NO_MARKER, UNREAD_MARKER
from toolkit.formats.log_dir_files import AbortedTxn, SnapshotEntry

INT8, INT16, INT32, INT64 = r"(-?\d{1,3})", r"(-?\d{1,5})", r"(-?\d{1,10})", r"(-?\d{1,19})"
END_OF_BATCH = (  # the groups have the names of `BatchLine`
    r"position: (?P<position>-?\d{1,19}) (?P<time_type>CreateTime|LogAppendTime|NoTimestampType): "
    r"(?P<max_timestamp>-?\d{1,19}) size: (?P<size>-?\d{1,10}) magic: (?P<magic>-?\d{1,3}) "
    r"compresscodec: (?P<codec>[A-Za-z0-9]+) crc: (?P<crc>-?\d{1,10}) isvalid: (?P<valid>true|false)"
)
BATCH = re.compile(
    r"baseOffset: (?P<base_offset>-?\d{1,19}) lastOffset: (?P<last_offset>-?\d{1,19}) "
    r"count: (?P<record_count>-?\d{1,10}) baseSequence: (?P<base_sequence>-?\d{1,10}) lastSequence: -?\d{1,10} "
    r"producerId: (?P<producer_id>-?\d{1,19}) producerEpoch: (?P<producer_epoch>-?\d{1,5}) "
    r"partitionLeaderEpoch: (?P<leader_epoch>-?\d{1,10}) isTransactional: (?P<transactional>true|false) "
    r"isControl: (?P<control>true|false) "
    rf"(?:deleteHorizonMs: OptionalLong(?:\.empty|\[(?P<base_timestamp>-?\d{{1,19}})\]) )?{END_OF_BATCH}",
    re.ASCII,
)
# of magic 0 or 1: its offset is that of its last message; that of the first is unknown
LEGACY_BATCH = re.compile(rf"offset: (?P<last_offset>-?\d{{1,19}}) {END_OF_BATCH}", re.ASCII)
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
ROW_STARTS = ("baseOffset: ", "| offset: ", "producerId: ", "version: ")
ROW_PARTS = (
    *(" partitionLeaderEpoch: ", " compresscodec: ", " keySize: "),
    *(" currentTxnFirstOffset: ", " lastStableOffset: "),
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
    """The metadata of a record line, and the text of key and payload after it."""

    offset: int
    timestamp: int  # ms
    key_size: int  # bytes, -1 for null
    value_size: int
    rest: str  # what follows the metadata, with the bracket that ends the keys of headers
    text: str | None  # from the key on; null if the line ends within the keys of headers, or is that of a marker

    @property
    def printed_size(self) -> int:
        """Bytes of key and payload as the default decoders print them."""
        key = len(" key: ") + self.key_size if self.key_size >= 0 else 0
        return key + (len(" payload: ") + self.value_size if self.value_size >= 0 else 0)


def read_batch(line: str) -> BatchLine | None:
    """The batch in a line; null if its form or its numbers are not those of a batch."""
    found = BATCH.fullmatch(line) or LEGACY_BATCH.fullmatch(line)
    if found is None:
        return None
    text = found.groupdict()
    fields = {name: int(text.get(name) or -1) for name in BatchLine._fields}
    is_control = text.get("control") == "true"
    fields |= {
        "base_offset": int(text.get("base_offset") or text["last_offset"]),
        "attributes": CODEC_OF.get(text["codec"].lower(), -BITS_16)
        | (text["time_type"] == "LogAppendTime" and LOG_APPEND_TIME)
        | (text.get("transactional") == "true" and TRANSACTIONAL)
        | (is_control and CONTROL)
        | (text.get("base_timestamp") is not None and DELETE_HORIZON),
        "marker": UNREAD_MARKER if is_control and text["record_count"] != "0" else NO_MARKER,
        "crc_ok": int(text["valid"] == "true"),
    }
    batch = BatchLine(**fields)
    return batch if _is_possible(batch) else None


def _is_possible(batch: BatchLine) -> bool:
    """Whether the numbers fit their types and each other."""
    try:
        np.array([batch], HEADER)
    except OverflowError:
        return False
    smallest, records = (HEADER_SIZE, batch.record_count) if batch.magic == 2 else (1, 0)
    return (
        batch.magic in {0, 1, 2}
        and batch.attributes >= 0
        and 0 <= batch.position < BITS_64 - batch.size
        and smallest <= batch.size < BITS_32
        and 0 <= records <= batch.last_offset - batch.base_offset + 1
        and 0 <= batch.base_offset <= batch.last_offset
        and batch.crc >= 0
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
    rest = line[found.end() :]
    text = rest if keys is None else _after_keys(rest)
    record = RecordLine(int(offset), int(timestamp), int(key_size), int(value_size), rest, text)
    return record if 0 <= record.offset < BITS_64 else None


def _after_keys(rest: str) -> str | None:
    """What follows the keys of headers; null if they do not end on the line."""
    if rest == "]" or rest.startswith(("] key: ", "] payload: ")):
        return rest[1:]
    starts = [at for at in (rest.find("] key: "), rest.find("] payload: ")) if at >= 0]
    if starts:
        return rest[min(starts) + 1 :]
    return "" if rest.endswith("]") else None


def read_marker(record: RecordLine) -> tuple[int, int] | None:
    """Type and coordinator epoch (-1 for none) of a control record; null if the line does not show it."""
    if found := END_MARKER.fullmatch(record.rest):
        epoch = int(found[2])
        return (COMMIT if found[1] == "COMMIT" else ABORT, epoch) if -BITS_32 <= epoch < BITS_32 else None
    if found := OTHER_CONTROL.fullmatch(record.rest):
        return (int(found[1]), -1) if -BITS_16 <= int(found[1]) < BITS_16 else None
    found = METADATA_CONTROL.fullmatch(record.rest)
    return (METADATA_TYPES[found[1]], -1) if found else None


def read_producer(line: str) -> SnapshotEntry | None:
    """The producer in a line of a snapshot; null if its form or its numbers are not those of a producer."""
    found = PRODUCER.fullmatch(line)
    if not found:
        return None
    producer_id, _, coordinator_epoch, first, first_since_3_5, newest, sequence, last, delta, newest_before_3_1 = (
        None if each is None or int(each) < 0 else int(each) for each in found.groups()
    )
    state = SnapshotEntry(
        producer_id=-1 if producer_id is None else producer_id,
        producer_epoch=int(found[2]),
        last_sequence=sequence,
        last_offset=last,
        offset_delta=delta or 0,
        last_timestamp=newest_before_3_1 if newest is None else newest,
        coordinator_epoch=coordinator_epoch,
        current_txn_first_offset=first_since_3_5 if first is None else first,
    )
    medium = max(sequence or 0, state.offset_delta, coordinator_epoch or 0, 2**16 * abs(state.producer_epoch))
    large = max(state.producer_id, last or 0, state.last_timestamp or 0, state.current_txn_first_offset or 0)
    return state if state.producer_id >= 0 and medium < BITS_32 and large < BITS_64 else None


def read_aborted(line: str, number: int) -> AbortedTxn | None:
    """The aborted transaction in a line, with the line's number as its position."""
    found = ABORTED.fullmatch(line)
    if not found:
        return None
    txn = AbortedTxn(number, *(int(field) for field in found.groups()))
    return txn if min(txn) >= 0 and txn.first_offset <= txn.last_offset and max(txn) < BITS_64 else None


def looks_like_a_row(line: str) -> bool:
    """Whether a line without a known form was meant to have one."""
    return line.startswith(ROW_STARTS[:2]) or any(part in line for part in ROW_PARTS)


INDEX = "INDEX_MISMATCH: kafka-dump-log.sh reports: "
FAILED = "TOOL_FAILED: the dump may end before its file does: "
REPORTS = (  # first words of a line, and the error
    (re.compile(r"Found \d+ invalid bytes at the end of \S"), "TORN_TAIL: kafka-dump-log.sh reports: "),
    (re.compile(r"Mismatches in :|Found timestamp mismatch in :|Found out of order timestamp in :"), INDEX),
    (re.compile(r"The following indexed offsets are not found in the log\."), INDEX),
    (re.compile(r"Non-consecutive offsets in \S"), "OFFSET_GAPS: normal after compaction; kafka-dump-log.sh reports: "),
    (re.compile(r"Ignoring unknown file \S"), "SKIPPED: kafka-dump-log.sh reports: "),
    (re.compile(r'Exception in thread "main" \S|(?:Error: )?Could not \S'), FAILED),
    (
        re.compile(r"Snapshot (?:contained an unknown|is corrupt|failed schema)"),
        "CORRUPT_SNAPSHOT: kafka-dump-log.sh reports: ",
    ),
)
LONGEST_QUOTE = 400  # characters of a quoted line


def read_report(line: str) -> str | None:
    """The error in a line; null for any other line."""
    return next((text + quoted(line) for shape, text in REPORTS if shape.match(line)), None)


def quoted(line: str) -> str:
    """The beginning of a line, for an error."""
    return line[:LONGEST_QUOTE].encode("utf-8", "replace").decode()
