"""Read the output of ``kafka-dump-log.sh`` line by line, dump by dump.

Keys and payloads are printed unchanged, with their line breaks, and a payload can look like the next batch line. The
sizes in a record line state how many bytes its text has, unless a decoder printed something else, the bytes were not
UTF-8 or the text was damaged later; and the next line must fit the lines before. Lines are skipped only if both agree.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from toolkit.formats.batches import CONTROL
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.dumps.decoded_text import is_decoded, read_decoded, read_formatted
from toolkit.formats.dumps.dump_lines import (
    ROW_STARTS,
    BatchLine,
    RecordLine,
    looks_like_a_row,
    quoted,
    read_aborted,
    read_batch,
    read_marker,
    read_producer,
    read_record,
    read_report,
    record_offset,
)
from toolkit.formats.headers import HEADER, DamagedRange, Headers, concatenate
from toolkit.formats.log_dir_files import AbortedTxn, SnapshotEntry, parse_folder_name
from toolkit.schema.log import TransactionLogRecord

PART = 1 << 14  # batches that are kept as tuples, which are large
KINDS = frozenset({"log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"})
DUMPING = "Dumping "
STARTS = {  # of a dump, below "Dumping ..." if it is printed
    "Starting offset: ": "log",
    "Log starting offset: ": "log",
    "Snapshot end offset: ": "checkpoint",
    "KRaft bootstrap snapshot": "checkpoint",
}
ABBREVIATED = ("offset: ", "producerId: ")  # of rows that people shorten before they paste them
WITHOUT_METADATA = ("| key: ", "| payload: ")
INDEX_ENTRY = re.compile(r"(?:offset: -?\d{1,19} position|timestamp: -?\d{1,19} offset): -?\d{1,19}", re.ASCII)
LONGEST = 16 << 20  # bytes of a text; a message is 1 MiB at most by default
IN_VAIN = 100_000  # lines to search for the end of a text, in addition to those read


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
    # with **line numbers** (from 1) as positions and numbers of lines as sizes
    damage: list[DamagedRange] = field(default_factory=list)
    # records of ``__transaction_state``, with line numbers as positions
    events: list[TransactionLogRecord] = field(default_factory=list)
    snapshot: list[SnapshotEntry] = field(default_factory=list)  # producers in a snapshot
    aborted: list[AbortedTxn] = field(
        default_factory=list
    )  # entries of a transaction index, likewise with line numbers
    batch: BatchLine | None = None  # the last one
    records: int = 0  # record lines of it
    record_offset: int = -1  # of the last record line of it
    has_skipped: bool = False  # whether it has records without metadata
    _are_records_printed: bool = False
    _batches: list[BatchLine] = field(default_factory=list)
    _gaps: list[DamagedRange] = field(default_factory=list)  # missing lines, as one range
    _gap_count: int = 0
    _undecoded: list[int] = field(default_factory=list)  # lines of records whose text no decoder printed

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
        return self.batch.position + self.batch.size if self.batch else 0

    def goes_on(self, batch: BatchLine) -> bool:
        """Whether a batch comes after all others."""
        return self.batch is None or (batch.position >= self.end and batch.base_offset > self.batch.last_offset)

    def expects_record(self, offset: int) -> bool:
        """Whether an offset can be that of the next record line; an old batch does not show its first offset."""
        batch = self.batch
        if batch is None or offset <= self.record_offset:
            return False
        return (batch.base_offset <= offset or batch.magic < 2) and offset <= batch.last_offset

    def add_batch(self, batch: BatchLine, line: int) -> None:
        """Add a batch that comes after all others."""
        self._count_records(line)
        if batch.position != self.end:
            self.add_gap(line, f"bytes {self.end} to {batch.position - 1}, which are not in the text")
        if not batch.crc_ok:
            offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
            what = f"CORRUPT_BATCH: the tool calls the batch at byte {batch.position}, {offsets}, invalid."
            self.add_damage(line, what)
        if len(self._batches) >= PART:
            self._pack()
        self._batches.append(batch)
        self.batch, self.records, self.record_offset = batch, 0, -1

    def add_record(self, offset: int) -> None:
        """Add a record line of the last batch."""
        self._are_records_printed, self.record_offset = True, offset
        self.records += 1

    def add_marker(self, marker: int, coordinator_epoch: int) -> None:
        """Set the type of the last batch, a control batch."""
        if self.batch:
            self._batches[-1] = self.batch = self.batch._replace(marker=marker, coordinator_epoch=coordinator_epoch)

    def add_gap(self, line: int, what: str) -> None:
        """Note that lines are missing before this one."""
        self._gap_count += 1
        first = (
            self._gaps[0] if self._gaps else DamagedRange(line, 1, f"MISSING_LINES: before this line there was {what}")
        )
        self._gaps = [first._replace(size=line - first.position + 1)]

    def add_damage(self, line: int, reason: str) -> None:
        """Add a line that could not be read, or an error of the tool."""
        self.damage.append(DamagedRange(line, 1, reason))

    def add_undecoded(self, line: int) -> None:
        """Note a record whose text no decoder printed."""
        self._undecoded.append(line)

    def close(self, line: int) -> Dump | None:
        """With what is known only at its end, in the line before this one; null if no row of it was read."""
        self._count_records(line)
        if self.kind == "log" and not (self.batch or self.damage):
            self.add_damage(self.line, "NOTHING_READ: No batch is in this dump: an empty segment, or a dump cut short.")
        if self.batch and self.topic == STATE_TOPIC and not self.events:
            what = f"NOT_DECODED: Without --transaction-log-decoder the records of {STATE_TOPIC} cannot be read."
            self.add_damage(self.line, what)
        elif self.events and self._undecoded:
            what = f"MALFORMED_LINE: {len(self._undecoded)} records before the first decoded one cannot be read."
            self.add_damage(self._undecoded[0], what)
        if self.kind in {"index", "timeindex"}:
            self.add_damage(self.line, f"SKIPPED: The entries of this .{self.kind} file are not read from text.")
        for gap in self._gaps:
            last = gap.position + gap.size - 1
            more = f", and {self._gap_count - 1} more such gaps up to line {last}" if self._gap_count > 1 else ""
            self.damage.append(gap._replace(reason=f"{gap.reason}{more}."))
        self._pack()
        is_empty = not (self.kind or self.damage)
        self.kind = self.kind or "unknown"
        return None if is_empty else self

    def _pack(self) -> None:
        self.headers = concatenate((self.headers, np.array(self._batches, HEADER)))
        self._batches = []

    def _count_records(self, line: int) -> None:
        if self._are_records_printed and self.batch and self.batch.record_count > self.records:
            missing = self.batch.record_count - self.records
            self.add_gap(line, f"{missing} of the {self.batch.record_count} records from {self.batch.base_offset} on")


def read_dump(lines: Iterable[str], *, file: str | None = None) -> Iterator[Dump]:
    """The dumps in a text.

    No text raises an error, and nothing is lost silently: malformed lines, lines missing between batches, errors of the
    tool, and a text that ends within a line are `Dump.damage`. Prompts, other text and payloads of records are skipped,
    even a payload that looks like a batch.

    Parameters
    ----------
    lines
        Of one or more dumps, their error output, or a terminal's log. Open a file with ``newline="\\n"``, which keeps
        line breaks within payloads, and with ``errors="replace"``.
    file
        Name of the text, for the rows.

    Returns
    -------
    iterator of Dump
        Within one dump, offsets and positions of batches only rise. If they do not (two dumps with nothing between
        them, shuffled lines), another dump begins, without a path.
    """
    reader = _DumpReader(lines, file)
    yield from reader.dumps()


class _TextLines:
    """Lines without their line breaks, numbered from 1. `lines`: with or without line breaks."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._ahead: deque[str] = deque()
        self._last = ""  # with its line break
        self._end = ""  # of every line, like the first
        self.number = 0  # of the line that `next` returned

    def __iter__(self) -> _TextLines:
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

    @property
    def is_cut(self) -> bool:
        """Whether this is the last line, and without a line break."""
        return self.peek() is None and not self._last.endswith("\n")

    @property
    def have_ends(self) -> bool:
        """Whether the first line has a line break."""
        return bool(self._end)

    def _read(self) -> str:
        raw = next(self._lines)
        if not self.number and not self._ahead:
            raw = raw.removeprefix("\ufeff")
            self._end = "\r\n" if raw.endswith("\r\n") else "\n" if raw.endswith("\n") else ""
        self._last = raw
        return raw.removesuffix(self._end)  # no more than that: what is before it may be the end of a payload's line


class _DumpReader:
    def __init__(self, lines: Iterable[str], file: str | None) -> None:
        self._lines = _TextLines(lines)
        self._file = file
        self._dump = Dump(path=None, line=1)
        self._closed: list[Dump] = []
        self._misfits = self._in_vain = 0  # texts whose end was not found, and the lines that were searched for it

    def dumps(self) -> Iterator[Dump]:
        line = ""
        for line in self._lines:
            self._read(line)
            yield from self._closed
            self._closed.clear()
        is_begun = line.startswith(ROW_STARTS[1:]) or any(start.startswith(line) for start in (*ROW_STARTS, DUMPING))
        if line and self._lines.have_ends and self._lines.is_cut and is_begun:
            self._damage("TORN_TAIL: The text ends here, perhaps within this line.")
        self._begin()
        yield from self._closed

    def _read(self, line: str) -> None:
        """Read a line that is not within the text of a record."""
        if line.startswith(DUMPING):
            self._begin(line.removeprefix(DUMPING))
        elif line.startswith(WITHOUT_METADATA) and self._dump.batch:
            if not self._dump.has_skipped:
                self._damage("SKIPPED: Records that --skip-record-metadata printed are not read.")
            self._dump.has_skipped = True
        elif line.startswith("| offset: ") and (record := read_record(line)):
            self._record(line, record)
        elif line.startswith(("baseOffset: ", "offset: ")) and (batch := read_batch(line)):
            self._batch(batch)
        elif line.startswith("producerId: ") and (producer := read_producer(line)):
            self._of_kind("snapshot").snapshot.append(producer)
        elif line.startswith("version: ") and (aborted := read_aborted(line, self._lines.number)):
            self._of_kind("txnindex").aborted.append(aborted)
        elif kind := next((kind for start, kind in STARTS.items() if line.startswith(start)), None):
            if self._dump.batch or self._dump.kind not in {"", kind, "unknown"}:
                self._begin()
            self._dump.kind = kind
        elif formatted := read_formatted(line):
            dump = self._of_kind("records")
            dump.topic = STATE_TOPIC
            row = {"file": self._file, "position": self._lines.number} | formatted
            dump.events.append(TransactionLogRecord.of(row))
        elif error := read_report(line):
            self._damage(error)
        elif INDEX_ENTRY.fullmatch(line) and self._dump.kind in {"index", "timeindex"}:
            pass
        elif looks_like_a_row(line) or (self._dump.kind and line.startswith(ABBREVIATED)):
            self._malformed(line)

    def _begin(self, path: str | None = None) -> None:
        """Emit the current dump, and begin the next one."""
        line = self._lines.number
        if dump := self._dump.close(line):
            self._closed.append(dump)
        self._dump = Dump(path=path, line=line)

    def _of_kind(self, *kinds: str) -> Dump:
        """The current dump; another one if a row is of another kind than this one."""
        if self._dump.kind and self._dump.kind not in kinds:
            self._begin()
        self._dump.kind = self._dump.kind or kinds[0]
        return self._dump

    def _batch(self, batch: BatchLine) -> None:
        dump = self._of_kind("log", "checkpoint", "unknown")
        if not dump.goes_on(batch):
            self._begin()
            dump = self._of_kind("log")
            if batch.position:
                self._damage("OUT_OF_ORDER: This batch lies before the one above; here another dump begins.")
        dump.add_batch(batch, self._lines.number)

    def _record(self, line: str, record: RecordLine) -> None:
        dump, batch = self._dump, self._dump.batch
        is_expected = dump.expects_record(record.offset)
        if is_expected:
            dump.add_record(record.offset)
        else:
            dump.add_gap(self._lines.number, f"the batch line of the record at offset {record.offset}")
        if is_expected and batch and batch.attributes & CONTROL:
            if (marker := read_marker(record)) is None:
                self._malformed(line)
            else:
                dump.add_marker(*marker)
        elif record.text is None:
            self._malformed(line)
        elif record.text and not self._decoded(record, batch if is_expected else None):
            self._pass_over(record)

    def _decoded(self, record: RecordLine, batch: BatchLine | None) -> bool:
        """Add a record of ``__transaction_state`` if a decoder printed it; whether it did."""
        dump, text = self._dump, (record.text or "").removeprefix(" ")
        if not text or dump.topic not in {STATE_TOPIC, None}:
            return False
        least, most = byte_sizes(record.text or "")
        is_imitated = dump.topic is None and least <= record.printed_size <= most
        if is_imitated or not (is_decoded(text) or dump.events):
            dump.add_undecoded(self._lines.number)
            return False
        row = {"offset": record.offset, "file": self._file, "position": self._lines.number}
        row |= {"txn_state_partition": dump.partition} | read_decoded(text, record.timestamp)
        if batch and batch.leader_epoch >= 0:
            row["leader_epoch"] = batch.leader_epoch
        dump.events.append(TransactionLogRecord.of(row))
        return True

    def _pass_over(self, record: RecordLine) -> None:
        """Consume the further lines of a record's text, if the next row follows where it ends by its size."""
        size, number = record.printed_size, self._lines.number
        least, most = byte_sizes(record.text or "")
        if least >= size or self._in_vain > IN_VAIN + number:
            return
        further: list[str] = []
        while least <= min(size, LONGEST):
            following = self._lines.peek()
            if least <= size <= most and (following is None or self._comes_next(following, is_sure=least == size)):
                return
            if following is None:
                break
            further.append(next(self._lines))
            fewest, greatest = byte_sizes(further[-1])
            least, most = least + 1 + fewest, most + 1 + greatest
        is_end = self._lines.peek() is None
        self._lines.push_back(further)
        self._in_vain += len(further)
        self._misfits += 1
        following = self._lines.peek()
        if is_end and self._misfits == 1 and (following is None or not self._comes_next(following, is_sure=False)):
            self._dump.add_damage(number, "TORN_TAIL: The text ends, perhaps within this record.")

    def _comes_next(self, line: str, *, is_sure: bool) -> bool:
        """Whether a line can follow the text of the last record, or the text is known to end before it."""
        offset = record_offset(line)
        if offset is not None:
            return self._dump.expects_record(offset)
        if line.startswith(("baseOffset: ", "offset: ")) and (batch := read_batch(line)):
            return batch.position == self._dump.end and self._dump.goes_on(batch)
        return is_sure or line.startswith(DUMPING)

    def _malformed(self, line: str) -> None:
        """Report a line that should be a row of a dump."""
        if self._lines.is_cut:
            self._damage(f"TORN_TAIL: The text ends within a line: {quoted(line)}")
        else:
            self._damage(f"MALFORMED_LINE: This should be a row of a dump, and is none: {quoted(line)}")

    def _damage(self, reason: str) -> None:
        self._dump.add_damage(self._lines.number, reason)


def byte_sizes(text: str) -> tuple[int, int]:
    """Minimum and maximum bytes of a printed text.

    Invalid UTF-8 is printed as U+FFFD, for up to three bytes; a character that the terminal's encoding lacks as a
    question mark, for up to four.
    """
    marks = text.count("?")
    if text.isascii():
        return len(text), len(text) + 3 * marks
    size = len(text.encode("utf-8", "replace"))
    return size - 2 * text.count("\ufffd"), size + 3 * marks
