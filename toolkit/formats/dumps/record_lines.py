"""Record lines of a dump: markers, the rows of the decoders, and skipped texts.

Keys and payloads are printed unchanged, with their line breaks, and a payload can look like the next batch line. The
sizes in a record line state how many bytes its text has, unless a decoder printed something else, the bytes were not
UTF-8 or the text was damaged later; and the next line must fit the lines before. Lines are skipped only if both agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.dumps.decoded_records import (
    NotDecoded,
    decoded_topic,
    read_offsets_log,
    read_time,
    read_transaction_event,
)
from toolkit.formats.dumps.dump_lines import (
    BatchLine,
    RecordLine,
    TextLines,
    looks_like_a_row,
    malformed,
    read_batch,
    read_marker,
    read_record,
    record_offset,
)
from toolkit.formats.dumps.dump_section import DumpSection
from toolkit.formats.log.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """Location of a record."""

    partition: int | None  # partition of its topic
    # offset, timestamp: of the record; null if only its text was printed
    offset: int | None
    timestamp: int | None
    batch: BatchLine | None  # its batch; null if that line is missing
    # file, line: in the text
    file: str | None
    line: int


def transaction_log_record(text: str, position: RecordPosition) -> TransactionLogRecord:
    """A record of ``__transaction_state``, with ``error`` if the text cannot be read."""
    row: dict[str, Any] = {"txn_state_partition": position.partition}
    if position.batch:
        row["leader_epoch"] = _known(position.batch.leader_epoch)
    return TransactionLogRecord.of(_filled(row, text, position, read_transaction_event))


def offsets_log_record(text: str, position: RecordPosition) -> OffsetsLogRecord:
    """A record of ``__consumer_offsets``, with ``error`` if the text cannot be read."""
    row: dict[str, Any] = {"group_partition": position.partition}
    if batch := position.batch:
        row["is_transactional"] = bool(batch.attributes & TRANSACTIONAL)
        row["producer_id"], row["producer_epoch"] = _known(batch.producer_id), _known(batch.producer_epoch)
    return OffsetsLogRecord.of(_filled(row, text, position, read_offsets_log))


def _filled(row: dict[str, Any], text: str, position: RecordPosition, read: Any) -> dict[str, Any]:
    row |= {"offset": position.offset, "file": position.file, "position": position.line}
    try:
        row["timestamp"] = None if position.timestamp is None else read_time(position.timestamp)
        row |= read(text)
    except NotDecoded as exc:
        row["error"] = f"MALFORMED_LINE: The text of this record is damaged or of a newer Kafka: {exc}."
    return row


def _known(number: int) -> int | None:
    return None if number < 0 else number


LONGEST = 16 << 20  # bytes; a message is 1 MiB at most by default
UNKNOWN_LONGEST = 1 << 16  # if the size is unknown
KEY, PAYLOAD = " key: ", " payload: "
BARE = ("| key: ", "| payload: ", " payload: ")  # without metadata; the last one up to 3.7, where there is no key


def text_of(record: RecordLine) -> str | None:
    """The part of key and payload on the line; null if the line ends within the keys of headers."""
    rest = record.rest
    if not record.keys:
        return rest
    if rest == "]" or rest.startswith(("] key: ", "] payload: ")):
        return rest[1:]
    starts = [at for at in (rest.find("]" + KEY), rest.find("]" + PAYLOAD)) if at >= 0]
    if starts:
        return rest[min(starts) + 1 :]
    return "" if rest.endswith("]") else None


def printed_size(record: RecordLine) -> int:
    """Bytes of key and payload as the default decoders print them."""
    key = len(KEY) + record.key_size if record.key_size >= 0 else 0
    return key + (len(PAYLOAD) + record.value_size if record.value_size >= 0 else 0)


def byte_sizes(text: str) -> tuple[int, int]:
    """Minimum and maximum bytes of a printed text.

    Invalid UTF-8 is printed as U+FFFD, for up to three bytes; a character that the terminal's encoding lacks as a
    question mark, for up to four.
    """
    marks = text.count("?")
    if text.isascii():
        return len(text), len(text) + 3 * marks
    size = len(text.encode("utf-8", "replace"))
    replaced = text.count("\ufffd")
    return size - 2 * replaced, size + 3 * marks


def pass_over(
    lines: TextLines, text: str, *, size: int | None, comes_next: Callable[[str, bool], bool]
) -> list[str] | None:
    """The further lines of a record's text, consumed from ``lines``; null, and none consumed, if its end is not found.

    `lines`: the lines after the first line of the text.
    `text`: the text on its first line.
    `size`: bytes of the whole text, if they are known.
    `comes_next`: whether a line can follow a record whose text ends exactly (or only possibly) before it.
    """
    further: list[str] = []
    rows = False  # whether the consumed lines look like rows: then only the very next batch proves that they are not
    least, most = byte_sizes(text)
    longest = UNKNOWN_LONGEST if size is None else min(size, LONGEST)
    while least <= longest:
        following = lines.peek()
        if size is None:
            ends = following is not None and (comes_next(following, False) or (not rows and following.startswith(BARE)))
        else:
            ends = least <= size <= most and (following is None or comes_next(following, least == size))
        if ends:
            return further
        line = next(lines, None)
        if line is None:
            break
        further.append(line)
        rows = rows or looks_like_a_row(line)
        fewest, greatest = byte_sizes(line)
        least, most = least + 1 + fewest, most + 1 + greatest
    lines.push_back(further)
    return None


KEY_LINES = 20  # that the keys of a record's headers may take
IN_VAIN = 100_000  # lines to search for the end of a text, in addition to those read


class RecordLines:
    """Read the record lines of one dump.

    `lines`: the lines of the dump; further lines of a text are consumed from it.
    `section`: the dump to add them to.
    """

    def __init__(self, lines: TextLines, section: DumpSection, file: str | None) -> None:
        self._lines, self._section, self._file = lines, section, file
        self._misfits = 0

    def read(self, line: str) -> None:
        """Read a line that begins with a bar."""
        record = read_record(line)
        if record is None:
            self._read_other(line)
            return
        section = self._section
        expected = section.expects_record(record.offset)
        if expected:
            section.add_record(record.offset)
        else:
            section.add_gap(self._lines.number, f"the batch line of the record at offset {record.offset}")
        text = text_of(record)
        if expected and section.batch and section.batch.attributes & CONTROL:
            self._read_marker(line, record)
        elif text is None:
            self._read_open_keys(line, record)
        elif text and not (len(text) == printed_size(record) and text.isascii()):
            self._read_text(
                text, printed_size(record), self._position(record.offset, record.timestamp, expected=expected)
            )

    def read_bare(self, line: str) -> None:
        """Read a line of --skip-record-metadata; its offset is known only if the batch still has all its records."""
        batch = self._section.batch
        if not batch:
            return
        dense = batch.record_count == batch.last_offset - batch.base_offset + 1
        offset = batch.base_offset + self._section.records if dense else None
        one_time = batch.record_count == 1 or batch.attributes & LOG_APPEND_TIME
        self._section.records += 1
        position = self._position(offset, batch.max_timestamp if one_time else None, expected=True)
        self._read_text(line.removeprefix("|"), None, position)

    def _read_other(self, line: str) -> None:
        if line.startswith(BARE):
            self.read_bare(line)
        elif looks_like_a_row(line):
            self._section.add_damage(self._lines.number, malformed(line, self._lines))

    def _read_marker(self, line: str, record: RecordLine) -> None:
        marker = read_marker(record)
        if marker is None:
            self._section.add_damage(self._lines.number, malformed(line, self._lines))
        else:
            self._section.add_marker(*marker)

    def _read_open_keys(self, line: str, record: RecordLine) -> None:
        """Read a line that ends within the keys of headers, or within a marker whose batch is missing."""
        number = self._lines.number
        if record.rest.startswith("] ") or not self._pass_over_keys(record):
            self._section.add_damage(number, malformed(line, self._lines))

    def _pass_over_keys(self, record: RecordLine) -> bool:
        """Consume further lines of header keys and the text after them; false if their end is not found."""
        if self._comes_next(self._lines.peek() or "", False):
            return False
        key_lines: list[str] = []
        text, size = None, printed_size(record)
        while text is None and len(key_lines) < KEY_LINES and self._lines.peek() is not None:
            key_lines.append(next(self._lines))
            text = text_of(record._replace(rest="\n".join([record.rest, *key_lines])))
        if text:
            ends = byte_sizes(text)[0] <= size and self._further_lines(text, size) is not None
        else:
            ends = text is not None and self._are_keys_alone(key_lines)
        if not ends:
            self._lines.push_back(key_lines)
        return ends

    def _are_keys_alone(self, key_lines: list[str]) -> bool:
        """Whether lines can be header keys without a text after them."""
        following = self._lines.peek()
        ends = following is None or self._comes_next(following, False)
        return ends and not any(looks_like_a_row(line) or line.startswith("Dumping ") for line in key_lines)

    def _position(self, offset: int | None, timestamp: int | None, *, expected: bool) -> RecordPosition:
        batch: BatchLine | None = self._section.batch if expected else None
        return RecordPosition(self._section.partition, offset, timestamp, batch, self._file, self._lines.number)

    def _read_text(self, text: str, size: int | None, position: RecordPosition) -> None:
        """Read a text of so many bytes, of which the line has the first."""
        if not (self._section.may_be_decoded and self._read_event(text.removeprefix(" "), size, position)):
            self._pass_over(text, size)

    def _read_event(self, text: str, size: int | None, position: RecordPosition) -> bool:
        """Add a row if a decoder printed the text; whether it did."""
        section = self._section
        topic = decoded_topic(text, otherwise=section.decoded)
        least, most = byte_sizes(text)
        imitated = section.topic is None and size is not None and least <= size - 1 <= most
        if topic is None or imitated or section.topic not in {topic, None}:
            section.count_undecoded(self._lines.number)
            return False
        read = transaction_log_record if topic == STATE_TOPIC else offsets_log_record
        record: TransactionLogRecord | OffsetsLogRecord = read(text, position)
        if record.error and (more := self._further_lines(text, None)):
            whole = read("\n".join([text, *more]), position)
            if whole.error or any(map(looks_like_a_row, more)):
                self._lines.push_back(more)
            else:
                record = whole
        section.add_event(record)
        return True

    def _pass_over(self, text: str, size: int | None) -> None:
        """Consume the further lines of a text; if its end is not found, it ends on its line."""
        line = self._lines.number
        key_lines = self._further_lines(text, size)
        if key_lines and size is None and any(map(looks_like_a_row, key_lines)):
            what = f"PASSED_OVER: {len(key_lines)} lines after this one are taken for the text of a record."
            self._section.add_damage(line, what, lines=len(key_lines) + 1)

    def _further_lines(self, text: str, size: int | None) -> list[str] | None:
        """The consumed lines of a text; null if its end is not found."""
        if size is not None and byte_sizes(text)[0] >= size:
            return []
        if self._lines.given_back > IN_VAIN + self._lines.number:
            return None
        line = self._lines.number
        key_lines = pass_over(self._lines, text, size=size, comes_next=self._comes_next)
        if key_lines is None:
            self._misfits += 1
            if size is not None and self._misfits == 1 and self._ends_within():
                self._section.add_damage(line, "TORN_TAIL: The text ends, perhaps within this record.")
        return key_lines

    def _ends_within(self) -> bool:
        """Whether the text may continue to the end."""
        following = self._lines.peek()
        return self._lines.exhausted and (following is None or not self._comes_next(following, False))

    def _comes_next(self, line: str, surely: bool) -> bool:
        """Whether a line can follow the text of the last record; certain if that is known to end before it."""
        offset = record_offset(line)
        if offset is not None:
            return self._section.expects_record(offset)
        if line.startswith(("baseOffset: ", "offset: ")) and (batch := read_batch(line)):
            return self._section.expects(batch)
        return surely or line.startswith("Dumping ")
