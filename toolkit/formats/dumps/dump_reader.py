"""Read the output of ``kafka-dump-log.sh`` line by line, dump by dump."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.dumps.decoded_records import NotDecoded, read_formatted_transaction
from toolkit.formats.dumps.dump_lines import (
    BatchLine,
    TextLines,
    is_detail,
    looks_like_a_row,
    malformed,
    read_aborted,
    read_batch,
    read_producer,
    read_report,
)
from toolkit.formats.dumps.dump_section import DumpChunk, DumpSection
from toolkit.formats.dumps.record_lines import BARE, RecordLines
from toolkit.schema.log import TransactionLogRecord

DUMPING = "Dumping "
STARTS = {  # of a dump, below "Dumping ..." if it is printed
    "Starting offset: ": "log",
    "Log starting offset: ": "log",
    "Snapshot end offset: ": "checkpoint",
    "KRaft bootstrap snapshot": "checkpoint",
}
ROW_STARTS = ("baseOffset: ", "| offset: ", "producerId: ", "version: ")
ABBREVIATED = ("offset: ", "producerId: ")  # of rows that people shorten before they paste them
INDEX_ENTRY = {
    "index": re.compile(r"offset: -?\d{1,19} position: \d{1,19}", re.ASCII),
    "timeindex": re.compile(r"timestamp: -?\d{1,19} offset: -?\d{1,19}", re.ASCII),
}


def read_dump(lines: Iterable[str], *, file: str | None = None) -> Iterator[DumpChunk]:
    """The dumps in a text, in chunks and in bounded memory.

    No text raises an error, and nothing is lost silently: malformed lines, lines missing between batches, errors of the
    tool, and a text that ends within a line are `DamagedRange` in `DumpChunk.damage`. Prompts, other text and payloads
    of records are skipped, even a payload that looks like a batch.

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
    return _DumpReader(lines, file).dumps()


class _DumpReader:
    def __init__(self, lines: Iterable[str], file: str | None) -> None:
        self._lines = TextLines(lines)
        self._file = file
        self._ready: list[DumpChunk] = []
        self._reported_error: tuple[int, str, int] | None = None  # line number, text, lines of details
        self._section = DumpSection(0, path=None, line=1)
        self._records = RecordLines(self._lines, self._section, file)

    def dumps(self) -> Iterator[DumpChunk]:
        line = ""
        for line in self._lines:
            if line.startswith("| "):
                self._records.read(line)
            elif line.startswith("baseOffset: "):
                self._batch(line)
            else:
                self._other(line)
            if self._section.is_full:
                self._ready.append(self._section.take())
            if self._ready:
                yield from self._ready
                self._ready.clear()
        if self._lines.cut:
            self._cut(line)
        self._begin()
        yield from self._ready

    # Dumps

    def _begin(self, path: str | None = None) -> None:
        """Emit the rows of the current dump, and begin the next one."""
        self._end_reported_error()
        section, line = self._section, self._lines.number
        section.close(line)
        if not section.is_empty:
            self._ready.append(section.take(last=True))
        self._section = DumpSection(section.number + (not section.is_empty), path=path, line=line)
        self._records = RecordLines(self._lines, self._section, self._file)

    def _begin_unless(self, *kinds: str) -> None:
        """Begin another dump if a row is of another kind than this one."""
        if self._section.kind is not None and self._section.kind not in kinds:
            self._begin()
        self._section.kind = self._section.kind or kinds[0]

    def _batch(self, line: str) -> None:
        batch = read_batch(line)
        if batch is None:
            self._damage(malformed(line, self._lines))
        else:
            self._add_batch(batch)

    def _add_batch(self, batch: BatchLine) -> None:
        self._begin_unless("log", "checkpoint", "unknown")
        if not self._section.goes_on(batch):
            self._begin()
            self._section.kind = "log"
            if batch.position:
                self._damage("OUT_OF_ORDER: This batch lies before the one above; here another dump begins.")
        self._section.add_batch(batch, self._lines.number)

    # Other lines

    def _other(self, line: str) -> None:
        if self._reported_error and is_detail(line):
            number, what, details = self._reported_error
            self._reported_error = number, what, details + 1
            return
        self._end_reported_error()
        if line.startswith(BARE):
            self._records.read_bare(line)
        elif (
            self._start(line)
            or self._formatted(line)
            or self._row(line)
            or self._index_entry(line)
            or self._report(line)
        ):
            pass
        elif looks_like_a_row(line) or (self._section.kind is not None and line.startswith(ABBREVIATED)):
            self._damage(malformed(line, self._lines))

    def _start(self, line: str) -> bool:
        if line.startswith(DUMPING):
            self._begin(line.removeprefix(DUMPING))
            return True
        for start, kind in STARTS.items():
            if line.startswith(start):
                if self._section.batch or self._section.kind not in {None, kind, "unknown"}:
                    self._begin()
                self._section.kind = kind
                return True
        return False

    def _row(self, line: str) -> bool:
        if line.startswith("producerId: ") and (producer := read_producer(line)):
            self._begin_unless("snapshot")
            self._section.add_producer(producer)
        elif line.startswith("version: ") and (aborted := read_aborted(line, self._lines.number)):
            self._begin_unless("txnindex")
            self._section.add_aborted(aborted)
        elif line.startswith("offset: ") and (batch := read_batch(line)):
            self._add_batch(batch)
        else:
            return False
        return True

    def _formatted(self, line: str) -> bool:
        """Read a record of ``__transaction_state`` as a console consumer's formatter prints it."""
        row: dict[str, Any] = {"file": self._file, "position": self._lines.number}
        try:
            fields = read_formatted_transaction(line)
        except NotDecoded as exc:
            fields = {"error": f"MALFORMED_LINE: The text of this record is damaged or of a newer Kafka: {exc}."}
        if fields is None:
            return False
        self._begin_unless("records")
        self._section.topic = STATE_TOPIC
        self._section.add_event(TransactionLogRecord.of(row | fields))
        return True

    def _index_entry(self, line: str) -> bool:
        kind = self._section.kind
        shape = INDEX_ENTRY.get(kind) if kind else None
        if shape and shape.fullmatch(line):
            self._section.entries += 1
            return True
        return False

    def _report(self, line: str) -> bool:
        what = read_report(line)
        if what is not None:
            self._reported_error = self._lines.number, what, 0
        return what is not None

    def _end_reported_error(self) -> None:
        """The tool's error with all its details is one row."""
        if self._reported_error:
            number, what, details = self._reported_error
            self._section.add_damage(number, what + (f" ({details} such)" if details else ""), lines=1 + details)
            self._reported_error = None

    def _cut(self, line: str) -> None:
        """The last line lacks the line break that the others have."""
        begun = any(start.startswith(line) for start in (*ROW_STARTS, DUMPING))
        if line and (begun or line.startswith(ROW_STARTS[1:])):
            self._damage("TORN_TAIL: The text ends here, perhaps within this line.")

    def _damage(self, reason: str) -> None:
        self._section.add_damage(self._lines.number, reason)
