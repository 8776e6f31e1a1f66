"""Read the output of ``kafka-dump-log.sh`` line by line, dump by dump.

Keys and payloads are printed unchanged, with their line breaks, and a payload can look like the next batch line. The
sizes in a record line state how many bytes its text has, unless a decoder printed something else, the bytes were not
UTF-8 or the text was damaged later; and the next line must fit the lines before. Lines are skipped only if both agree.

Source: ``DumpLogSegments`` in Kafka (core up to 4.0, tools since), 2.8 to 4.3. Changes: in 3.0 record lines no longer
repeat their batch, and codecs are in lower case; 3.1 has ``lastTimestamp`` in snapshots; 3.2 ``deleteHorizonMs`` of
batches; 3.3 ``Log starting offset`` for ``Starting offset``, and snapshots of the metadata log; 3.5 in snapshots
``OptionalLong[60]`` for ``Some(60)``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import numpy as np

from toolkit.formats.batches import CODECS, CONTROL, DELETE_HORIZON, HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.dumps.decoded_text import DECODED, clean, read_decoded, read_formatted
from toolkit.formats.headers import HEADER, NO_MARKER, UNREAD_MARKER, DamagedRange, HeaderField, Headers, concatenate
from toolkit.formats.log_dir_files import AbortedTxn, SnapshotEntry, parse_folder_name
from toolkit.schema.log import TransactionLogRecord

NUMBER = re.compile(r"<(\w*):(\d+)>")


class LineForm:
    """The form of a line, a regular expression in which ``<name:32>`` is a number of so many bits, with its sign."""

    def __init__(self, text: str) -> None:
        self._bits = [(name, int(bits) - 1) for name, bits in NUMBER.findall(text) if name]
        for name, bits in NUMBER.findall(text):
            digits = rf"-?\d{{1,{len(str(1 << int(bits) - 1))}}}"
            text = text.replace(f"<{name}:{bits}>", f"(?P<{name}>{digits})" if name else digits)
        self._form = re.compile(text, re.ASCII | re.DOTALL)

    def read(self, line: str) -> dict[str, Any] | None:
        """What a line has by name; null if its form is another one, or a number has more bits."""
        found = self._form.fullmatch(line)
        if found is None:
            return None
        fields: dict[str, Any] = found.groupdict()
        for name, bits in self._bits:
            if (digits := fields[name]) is not None:
                fields[name] = number = int(digits)
                if number.bit_length() > bits:
                    return None
        return fields


TIME = "(?P<time_type>CreateTime|LogAppendTime|NoTimestampType): <timestamp:64>"
END_OF_BATCH = (
    rf"position: <position:64> {TIME} size: <size:32> magic: <magic:8> "
    r"compresscodec: (?P<codec>[A-Za-z0-9]+) crc: <crc:33> isvalid: (?P<valid>true|false)"
)
BATCH = LineForm(
    r"baseOffset: <base_offset:64> lastOffset: <last_offset:64> count: <record_count:32> "
    r"baseSequence: <base_sequence:32> lastSequence: <:32> producerId: <producer_id:64> "
    r"producerEpoch: <producer_epoch:16> partitionLeaderEpoch: <leader_epoch:32> "
    r"isTransactional: (?P<transactional>true|false) isControl: (?P<control>true|false) "
    rf"(?:deleteHorizonMs: OptionalLong(?:\.empty|\[<base_timestamp:64>\]) )?{END_OF_BATCH}"
)
# of magic 0 or 1: its offset is that of its last message; that of the first is unknown
LEGACY_BATCH = LineForm(f"offset: <last_offset:64> {END_OF_BATCH}")
RECORD_TIME = TIME.replace("?P<time_type>", "?:")
RECORD_START = re.compile(r"\| offset: (\d{1,19}) (?:CreateTime|LogAppendTime|NoTimestampType|isValid): ", re.ASCII)
END_OF_RECORD = (
    r"(?: sequence: <:32> headerKeys: (?P<keys>\[)| isValid: (?:true|false) crc: \d{1,10}\}?"
    r"| crc: \d{1,10} isvalid: (?:true|false)|(?= key: | payload: |$))(?P<rest>.*)"
)
RECORD = LineForm(rf"\| offset: <offset:64> {RECORD_TIME} keySize: <key:32> valueSize: <value:32>{END_OF_RECORD}")
RECORD_BEFORE_3_0 = LineForm(
    r"\| offset: <offset:64> isValid: (?:true|false) crc: (?:null|\d{1,10}) keySize: <key:32> "
    rf"valueSize: <value:32> {RECORD_TIME} baseOffset: <:64> lastOffset: <:64> baseSequence: <:32> "
    r"lastSequence: <:32> producerEpoch: <:16> partitionLeaderEpoch: <:32> batchSize: \d{1,10} magic: \d{1,3} "
    rf"compressType: [A-Za-z0-9]+ position: \d{{1,19}}{END_OF_RECORD}"
)
END_OF_KEYS = re.compile(r".*?\](?= key: | payload: |\Z)", re.DOTALL)  # of headers, which may contain anything
MARKER = LineForm(
    r"\] (?:endTxnMarker: (?P<end>COMMIT|ABORT) coordinatorEpoch: <epoch:32>|controlType: [A-Z_]+\(<type:16>\)"
    r"|(?P<metadata>LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters):? \{.*\})"
)
CONTROL_TYPES = ["ABORT", "COMMIT", "LeaderChange", "SnapshotHeader", "SnapshotFooter", "KRaftVersion", "KRaftVoters"]
PRODUCER = LineForm(
    r"producerId: <producer_id:64> producerEpoch: <producer_epoch:16> coordinatorEpoch: <coordinator_epoch:32> "
    r"currentTxnFirstOffset: (?:None|OptionalLong\.empty|Some\((?=\d+\))<current_txn_start_offset:64>\)"
    r"|OptionalLong\[(?=\d+\])<first_since_3_5:64>\])(?: lastTimestamp: <last_timestamp:64>)?"
    r"(?: firstSequence: <:32> lastSequence: <last_sequence:32> lastOffset: <last_offset:64> "
    r"offsetDelta: <offset_delta:32> timestamp: <timestamp:64>)? ?"
)
ABORTED = LineForm("version: <v:16> producerId: <p:64> firstOffset: <f:64> lastOffset: <l:64> lastStableOffset: <s:64>")
INDEX_ENTRY = LineForm("(?:offset: <:64> position|timestamp: <:64> offset): <:64>")
DUMPING = "Dumping "
LOG_STARTS = ("Starting offset: ", "Log starting offset: ")  # of a dump, below "Dumping ..." if it is printed
STARTS = (*LOG_STARTS, "Snapshot end offset: ", "KRaft bootstrap snapshot")
BATCH_STARTS = ("baseOffset: ", "offset: ")
ROW_STARTS = ("baseOffset: ", "| offset: ", "producerId: ", "version: ")
SHORTENED = (*ROW_STARTS[:2], "offset: ", "producerId: ")  # rows that people shorten before they paste them
ROW_PARTS = re.compile(" (?:partitionLeaderEpoch|compresscodec|keySize|currentTxnFirstOffset|lastStableOffset): ")
TOOL_FAILED = "TOOL_FAILED: the dump may end before its file does:"
SAYS = "kafka-dump-log.sh reports:"
REPORTS = {  # an error, by the first words of a line
    re.compile(r"Found \d+ invalid bytes at the end of \S"): f"TORN_TAIL: {SAYS}",
    re.compile(r"Mismatches in :|Found (?:out of order timestamp|timestamp mismatch) in :"): f"INDEX_MISMATCH: {SAYS}",
    re.compile(r"The following indexed offsets are not found in the log\."): f"INDEX_MISMATCH: {SAYS}",
    re.compile(r"Non-consecutive offsets in \S"): f"OFFSET_GAPS: normal after compaction; {SAYS}",
    re.compile(r"Ignoring unknown file \S"): f"SKIPPED: {SAYS}",
    re.compile(r"Snapshot (?:contained an unknown|is corrupt|failed schema)"): f"CORRUPT_SNAPSHOT: {SAYS}",
    re.compile(r'Exception in thread "main" \S|(?:Error: )?Could not \S'): TOOL_FAILED,
}
FIELDS: tuple[HeaderField, ...] = get_args(HeaderField)
CODEC_OF = {name: code for code, name in enumerate(CODECS)}
KINDS = frozenset({"log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"})
PART = 1 << 14  # batches that are kept as objects, which are large
LONGEST = 16 << 20  # bytes of a text; a message is 1 MiB at most by default
LONGEST_QUOTE = 400  # characters of a quoted line
IN_VAIN = 100_000  # lines to search for the end of a text, in addition to those read
TORN_LINE = "MISSING_LINES: The text ends within a line"
MALFORMED_LINE = "MALFORMED_LINE: This should be a row of a dump, and is none"
NOT_DECODED = f"NOT_DECODED: Without --transaction-log-decoder the records of {STATE_TOPIC} cannot be read."
Batch = dict[HeaderField, int]


class RecordLine(NamedTuple):
    """The metadata of a record line, and the text of key and payload after it."""

    offset: int
    timestamp: int  # ms
    printed_size: int  # bytes of key and payload as the default decoders print them
    rest: str  # what follows the metadata, with the bracket that ends the keys of headers
    text: str | None  # from the key on; null if the line ends within the keys of headers, or is that of a marker


def _read_batch(line: str) -> Batch | None:
    found = BATCH.read(line) or LEGACY_BATCH.read(line)
    if found is None:
        return None
    is_control = found.get("control") == "true"
    found["base_offset"] = found.get("base_offset", found["last_offset"])
    found["max_timestamp"] = found["timestamp"]
    found["attributes"] = (
        CODEC_OF.get(found["codec"].lower(), -1)
        | (found["time_type"] == "LogAppendTime" and LOG_APPEND_TIME)
        | (found.get("transactional") == "true" and TRANSACTIONAL)
        | (is_control and CONTROL)
        | (found.get("base_timestamp") is not None and DELETE_HORIZON)
    )
    found["marker"] = UNREAD_MARKER if is_control and found["record_count"] else NO_MARKER
    found["crc_ok"] = found["valid"] == "true"
    batch: Batch = {name: -1 if found.get(name) is None else found[name] for name in FIELDS}
    smallest, records = (HEADER_SIZE, batch["record_count"]) if batch["magic"] == 2 else (1, 0)
    is_possible = (
        batch["magic"] in {0, 1, 2}
        and batch["attributes"] >= 0
        and 0 <= batch["position"] < 2**63 - batch["size"]
        and smallest <= batch["size"]
        and 0 <= records <= batch["last_offset"] - batch["base_offset"] + 1
        and 0 <= batch["base_offset"] <= batch["last_offset"]
        and batch["crc"] >= 0
    )
    return batch if is_possible else None


def _read_record(line: str) -> RecordLine | None:
    found = RECORD.read(line) or RECORD_BEFORE_3_0.read(line)
    if found is None or found["offset"] < 0:
        return None
    rest, keys = found["rest"], END_OF_KEYS.match(found["rest"])
    text = rest if found["keys"] is None else None if keys is None else rest[keys.end() :]
    key, value = found["key"], found["value"]  # sizes in bytes, -1 for null
    printed_size = (len(" key: ") + key if key >= 0 else 0) + (len(" payload: ") + value if value >= 0 else 0)
    return RecordLine(found["offset"], found["timestamp"], printed_size, rest, text)


def _read_marker(rest: str) -> tuple[int, int] | None:
    """Type and coordinator epoch (-1 for none) of a control record; null if its line does not show it."""
    if not (found := MARKER.read(rest)):
        return None
    name, epoch = found["end"] or found["metadata"], found["epoch"]
    return found["type"] if name is None else CONTROL_TYPES.index(name), -1 if epoch is None else epoch


def _read_producer(line: str) -> SnapshotEntry | None:
    found = PRODUCER.read(line)
    if found is None or found["producer_id"] < 0:
        return None
    known: dict[str, Any] = {name: None if number is None or number < 0 else number for name, number in found.items()}
    first, time = known.pop("first_since_3_5"), known.pop("timestamp")
    known["producer_epoch"], known["offset_delta"] = found["producer_epoch"], known["offset_delta"] or 0
    known["last_timestamp"] = time if known["last_timestamp"] is None else known["last_timestamp"]
    known["current_txn_start_offset"] = first if first is not None else known["current_txn_start_offset"]
    return SnapshotEntry(**known)


def _read_aborted(line: str, number: int) -> AbortedTxn | None:
    txn = AbortedTxn(number, *found.values()) if (found := ABORTED.read(line)) else None
    return txn if txn and min(txn) >= 0 and txn.first_offset <= txn.last_offset else None


@dataclass(kw_only=True, eq=False)
class Dump:
    """The dump of one file."""

    path: str | None  # from the line ``Dumping ...``; null without one
    line: int  # number of its first line
    topic: str | None = None  # topic, partition: from the folder in that path; null if it has none
    partition: int | None = None
    # ``log``, ``snapshot`` (producer state), ``txnindex``, ``index``, ``timeindex``, ``checkpoint`` (a snapshot of the
    # metadata log), ``records`` (of ``__transaction_state``, from a console consumer), or ``unknown``
    kind: str = ""
    # batches, with positions in the file that was dumped, each after the one before; ``base_timestamp`` is printed by
    # no version (-1), and a control batch whose record is not printed has ``headers.UNREAD_MARKER``
    headers: Headers = field(default_factory=lambda: concatenate(()))
    # of these, positions are **line numbers** (from 1), and sizes numbers of lines
    damage: list[DamagedRange] = field(default_factory=list)
    events: list[TransactionLogRecord] = field(default_factory=list)  # records of ``__transaction_state``
    aborted: list[AbortedTxn] = field(default_factory=list)  # entries of a transaction index
    snapshot: list[SnapshotEntry] = field(default_factory=list)  # producers in a snapshot
    batch: Batch | None = None  # the last one
    records: int = 0  # record lines of it
    record_offset: int = -1  # of the last record line of it
    are_records_printed: bool = False
    has_skipped: bool = False  # whether it has records without metadata
    undecoded: list[int] = field(default_factory=list)  # lines of records whose text no decoder printed
    _batches: list[Batch] = field(default_factory=list)
    gaps: list[tuple[int, str]] = field(default_factory=list)  # lines before which others are missing, and which

    def __post_init__(self) -> None:
        if self.path is not None:
            suffix = self.path.rpartition(".")[2]
            self.kind = suffix if suffix in KINDS else "unknown"
        folders = (self.path or "").replace("\\", "/").split("/")[-2:-1]
        if folders and (found := parse_folder_name(folders[0])):
            self.topic, self.partition = found.topic, found.partition

    @property
    def end(self) -> int:
        """Byte at which the next batch must start."""
        return self.batch["position"] + self.batch["size"] if self.batch else 0

    def goes_on(self, batch: Batch) -> bool:
        """Whether a batch comes after all others."""
        return not self.batch or (batch["position"] >= self.end and batch["base_offset"] > self.batch["last_offset"])

    def expects_record(self, offset: int) -> bool:
        """Whether an offset can be that of the next record line; an old batch does not show its first offset."""
        if self.batch is None:
            return False
        first = self.batch["base_offset"] if self.batch["magic"] == 2 else 0
        return max(first, self.record_offset + 1) <= offset <= self.batch["last_offset"]

    def add_batch(self, batch: Batch, line: int) -> None:
        """Add a batch that comes after all others."""
        self._count_records(line)
        position, first, last = batch["position"], batch["base_offset"], batch["last_offset"]
        if position != self.end:
            self.gaps.append((line, f"bytes {self.end} to {position - 1}, which are not in the text"))
        if not batch["crc_ok"]:
            what = f"CORRUPT_BATCH: the tool calls the batch at byte {position}, offsets {first} to {last}, invalid."
            self.add_damage(line, what)
        if len(self._batches) >= PART:
            self._pack()
        self._batches.append(batch)
        self.batch, self.records, self.record_offset = batch, 0, -1

    def add_damage(self, line: int, reason: str) -> None:
        """Add a line that could not be read, or an error of the tool."""
        self.damage.append(DamagedRange(line, 1, reason))

    def close(self, line: int) -> Dump | None:
        """With what is known only at its end, in the line before this one; null if no row of it was read."""
        self._count_records(line)
        if self.kind in {"log", "unknown"} and not (self.batch or self.damage):
            self.add_damage(self.line, "NOTHING_READ: No batch is in this dump: an empty segment, or a dump cut short.")
        if self.batch and self.topic == STATE_TOPIC and not self.events:
            self.add_damage(self.line, NOT_DECODED)
        elif self.events and self.undecoded:
            what = f"MALFORMED_LINE: {len(self.undecoded)} records before the first decoded one cannot be read."
            self.add_damage(self.undecoded[0], what)
        if self.kind in {"index", "timeindex"}:
            self.add_damage(self.line, f"SKIPPED: The entries of this .{self.kind} file are not read from text.")
        if self.gaps:
            (first, missing), (last, _) = self.gaps[0], self.gaps[-1]
            more = f", and {len(self.gaps) - 1} more such gaps up to line {last}" if len(self.gaps) > 1 else ""
            reason = f"MISSING_LINES: before this line there was {missing}{more}."
            self.damage.append(DamagedRange(first, last - first + 1, reason))
        self._pack()
        is_empty = not (self.kind or self.damage)
        self.kind = self.kind or "unknown"
        return None if is_empty else self

    def _pack(self) -> None:
        rows = [tuple(each.values()) for each in self._batches]
        self.headers, self._batches = concatenate((self.headers, np.array(rows, HEADER))), []

    def _count_records(self, line: int) -> None:
        if self.are_records_printed and self.batch and self.batch["record_count"] > self.records:
            count, first = self.batch["record_count"], self.batch["base_offset"]
            self.gaps.append((line, f"{count - self.records} of the {count} records from {first} on"))


def read_dump(lines: Iterable[str], *, file: str | None = None) -> Iterator[Dump]:
    """The dumps in a text.

    No text raises an error, and nothing is lost silently: malformed lines, lines missing between batches, errors of the
    tool, and a text that ends within a line are `Dump.damage`. Prompts, other text and payloads of records are skipped,
    even a payload that looks like a batch. Within one dump, offsets and positions of batches only rise: if they do not
    (two dumps with nothing between them, shuffled lines), another dump begins, without a path.

    `lines`: of one or more dumps, with or without the line ``Dumping ...``, their error output, or a terminal's log.
        Open a file with ``newline="\\n"``, which keeps line breaks within payloads, and with ``errors="replace"``.
    `file`: its name, for the rows.
    """
    return _DumpReader(lines, file).dumps()


class _DumpReader:
    def __init__(self, lines: Iterable[str], file: str | None) -> None:
        self._lines = iter(lines)
        self._ahead: deque[str] = deque()  # lines that were read and not taken, without their line breaks
        self._last_line = ""  # that was read, with its line break
        self._line_end: str | None = None  # of every line, like the first
        self._number = 0  # of the line that was taken last, from 1
        self._file = file
        self._dump = Dump(path=None, line=1)
        self._closed: list[Dump] = []
        self._misfits = self._in_vain = 0  # texts whose end was not found, and the lines that were searched for it

    def _peek(self, skip: int = 0) -> str | None:
        """The line behind the next `skip` ones; null at the end."""
        while len(self._ahead) <= skip and (line := next(self._lines, None)) is not None:
            if self._line_end is None:
                line = line.removeprefix("\ufeff")
                self._line_end = "\r\n" if line.endswith("\r\n") else "\n" if line.endswith("\n") else ""
            self._last_line = line
            self._ahead.append(line.removesuffix(self._line_end))  # no more: a payload's line may end in the rest
        return self._ahead[skip] if skip < len(self._ahead) else None

    def _take(self) -> str | None:
        """The next line, which is then passed; null at the end."""
        if (line := self._peek()) is not None:
            self._ahead.popleft()
            self._number += 1
        return line

    def _is_cut(self) -> bool:
        """Whether no line is left, and the last is without a line break."""
        return self._peek() is None and not self._last_line.endswith("\n")

    def dumps(self) -> Iterator[Dump]:
        line = ""
        for line in iter(self._take, None):
            self._read(line)
            yield from self._closed
            self._closed.clear()
        is_begun = line.startswith(ROW_STARTS[1:]) or any(start.startswith(line) for start in (*ROW_STARTS, DUMPING))
        if line and self._line_end and self._is_cut() and is_begun:
            self._damage("TORN_TAIL: The text ends here, perhaps within this line.")
        self._begin()
        yield from self._closed

    def _read(self, line: str) -> None:
        """Read a line that is not within the text of a record."""
        if line.startswith(DUMPING):
            self._begin(line.removeprefix(DUMPING))
        elif line.startswith(("| key: ", "| payload: ")) and self._dump.batch:
            if not self._dump.has_skipped:
                self._damage("SKIPPED: Records that --skip-record-metadata printed are not read.")
            self._dump.has_skipped = True
        elif line.startswith("| offset: ") and (record := _read_record(line)):
            self._record(line, record)
        elif line.startswith(BATCH_STARTS) and (batch := _read_batch(line)):
            self._batch(batch)
        elif line.startswith("producerId: ") and (producer := _read_producer(line)):
            self._of_kind("snapshot").snapshot.append(producer)
        elif line.startswith("version: ") and (aborted := _read_aborted(line, self._number)):
            self._of_kind("txnindex").aborted.append(aborted)
        elif line.startswith(STARTS):
            kind = "log" if line.startswith(LOG_STARTS) else "checkpoint"
            if self._dump.batch or self._dump.kind not in {"", kind, "unknown"}:
                self._begin()
            self._dump.kind = kind
        elif formatted := read_formatted(line):
            dump = self._of_kind("records")
            dump.topic = STATE_TOPIC
            row = {"file": self._file, "position": self._number} | formatted
            dump.events.append(TransactionLogRecord.of(row))
        elif error := next((error for words, error in REPORTS.items() if words.match(line)), None):
            self._damage(f"{error} {clean(line[:LONGEST_QUOTE])}")
        elif self._dump.kind in {"index", "timeindex"} and INDEX_ENTRY.read(line) is not None:
            pass
        elif ROW_PARTS.search(line) or line.startswith(SHORTENED if self._dump.kind else ROW_STARTS[:2]):
            self._malformed(line)

    def _begin(self, path: str | None = None) -> None:
        """Emit the current dump, and begin the next one."""
        if dump := self._dump.close(self._number):
            self._closed.append(dump)
        self._dump = Dump(path=path, line=self._number)

    def _of_kind(self, *kinds: str) -> Dump:
        """The current dump; another one if a row is of another kind than this one."""
        if self._dump.kind and self._dump.kind not in kinds:
            self._begin()
        self._dump.kind = self._dump.kind or kinds[0]
        return self._dump

    def _batch(self, batch: Batch) -> None:
        dump = self._of_kind("log", "checkpoint", "unknown")
        if not dump.goes_on(batch):
            self._begin()
            dump = self._of_kind("log")
            if batch["position"]:
                self._damage("OUT_OF_ORDER: This batch lies before the one above; here another dump begins.")
        dump.add_batch(batch, self._number)

    def _record(self, line: str, record: RecordLine) -> None:
        dump, batch = self._dump, self._dump.batch
        if not dump.expects_record(record.offset):
            dump.gaps.append((self._number, f"the batch line of the record at offset {record.offset}"))
            batch = None
        elif batch:
            dump.are_records_printed, dump.record_offset, dump.records = True, record.offset, dump.records + 1
        is_control = batch and batch["attributes"] & CONTROL
        if batch and is_control and (marker := _read_marker(record.rest)):
            batch["marker"], batch["coordinator_epoch"] = marker
        elif is_control or record.text is None:
            self._malformed(line)
        elif record.text and not self._decoded(record, batch):
            self._pass_over(record)

    def _decoded(self, record: RecordLine, batch: Batch | None) -> bool:
        """Add a record of ``__transaction_state`` if a decoder printed it; whether it did."""
        dump, text = self._dump, (record.text or "").removeprefix(" ")
        if not text or dump.topic not in {STATE_TOPIC, None}:
            return False
        least, most = _byte_sizes(record.text or "")
        is_imitated = dump.topic is None and least <= record.printed_size <= most
        if is_imitated or not (DECODED.match(text) or dump.events):
            dump.undecoded.append(self._number)
            return False
        row = {"offset": record.offset, "file": self._file, "position": self._number}
        row |= {"txn_state_partition": dump.partition} | read_decoded(text, record.timestamp)
        if batch and batch["leader_epoch"] >= 0:
            row["leader_epoch"] = batch["leader_epoch"]
        dump.events.append(TransactionLogRecord.of(row))
        return True

    def _pass_over(self, record: RecordLine) -> None:
        """Consume the further lines of a record's text, if the next row follows where it ends by its size."""
        size, number = record.printed_size, self._number
        least, most = _byte_sizes(record.text or "")
        if least >= size or self._in_vain > IN_VAIN + number:
            return
        count = 0
        while least <= min(size, LONGEST):
            following = self._peek(count)
            if least <= size <= most and (following is None or self._comes_next(following, is_sure=least == size)):
                for _ in range(count):
                    self._take()
                return
            if following is None:
                break
            count += 1
            fewest, greatest = _byte_sizes(following)
            least, most = least + 1 + fewest, most + 1 + greatest
        self._in_vain += count
        self._misfits += 1
        if self._misfits == 1 and self._peek(count) is None:
            following = self._peek()
            if following is None or not self._comes_next(following, is_sure=False):
                self._damage("TORN_TAIL: The text ends, perhaps within this record.")

    def _comes_next(self, line: str, *, is_sure: bool) -> bool:
        """Whether a line can follow the text of the last record, or the text is known to end before it."""
        if found := RECORD_START.match(line):
            return self._dump.expects_record(int(found[1]))
        if line.startswith(BATCH_STARTS) and (batch := _read_batch(line)):
            return batch["position"] == self._dump.end and self._dump.goes_on(batch)
        return is_sure or line.startswith(DUMPING)

    def _malformed(self, line: str) -> None:
        """Report a line that should be a row of a dump."""
        what = TORN_LINE if self._is_cut() else MALFORMED_LINE
        self._damage(f"{what}: {clean(line[:LONGEST_QUOTE])}")

    def _damage(self, reason: str) -> None:
        self._dump.add_damage(self._number, reason)


def _byte_sizes(text: str) -> tuple[int, int]:
    """Minimum and maximum bytes of a printed text.

    Invalid UTF-8 is U+FFFD, for up to three bytes; what the terminal's encoding lacks is ``?``, for up to four.
    """
    marks = text.count("?")
    if text.isascii():
        return len(text), len(text) + 3 * marks
    size = len(text.encode("utf-8", "replace"))
    return size - 2 * text.count("\ufffd"), size + 3 * marks
