"""Read the output of ``kafka-dump-log.sh`` line by line, dump by dump: records, markers, and what decoders print.

Keys and payloads are printed unchanged, with their line breaks, and a payload can look like the next batch line. The
sizes in a record line state how many bytes its text has, unless a decoder printed something else, the bytes were not
UTF-8 or the text was damaged later; and the next line must fit the lines before. Lines are skipped only if both agree.

Sources: ``TransactionLog.formatRecordKeyAndValue`` (2.8 to 4.0), ``GroupMetadataManager.formatRecordKeyAndValue`` (2.8
to 3.7); ``DumpLogSegments.OffsetsMessageParser`` (3.8 on) and ``TransactionLogMessageParser`` (4.1 on), which print the
JSON of the messages' own converters.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolkit.formats.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.coordinator_records import GROUP_EPOCH_KINDS, KINDS, OFFSETS_TOPIC, STATE_TOPIC, STATES
from toolkit.formats.dumps.dump_lines import (
    BatchLine,
    DumpChunk,
    DumpSection,
    RecordLine,
    TextLines,
    is_detail,
    looks_like_a_row,
    malformed,
    read_aborted,
    read_batch,
    read_marker,
    read_producer,
    read_record,
    read_report,
    record_offset,
)
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord
from toolkit.schema.table import LAST_TIME, utc

TRANSACTION = "key: transaction_metadata::transactionalId="
OFFSET, GROUP = "key: offset_commit::group=", "key: group_metadata::group="
JSON_TRANSACTION = re.compile(r'key: \{"type":"0","data":\{"transactionalId":')
JSON_GROUP = re.compile(r'key: \{"type":"\d{1,5}","data":\{"group(?:Id)?":')
NO_RECORD = re.compile(
    r"key: (unknown::version=-?\d{1,5}|Unknown record type -?\d{1,5} at offset .*|Error at offset .*)", re.DOTALL
)
PAYLOAD = " payload: "
DELETED = "<DELETE>"

STATE = re.compile(
    r"producerId:(-?\d{1,19}),producerEpoch:(-?\d{1,5}),state=(\w{1,30}),partitions=\[([^\]]*)\],"
    r"txnLastUpdateTimestamp=(-?\d{1,19}),txnTimeoutMs=(-?\d{1,10})",
    re.ASCII,
)
FORMATTED = re.compile(r"(.{0,249})::TransactionMetadata\(transactionalId=.{0,249}?, producerId=")
FORMATTED_JSON = re.compile(r'\{"key":\{"(?:type|version)":"?0"?,"data":\{"transactionalId":')
FORMATTED_FIELD = re.compile(r"\b(\w+)=(?:\w*\(([^()]*)\)|([^,()]*))")
PARTITION = re.compile(r"([A-Za-z0-9._-]{1,249})-(\d{1,10})", re.ASCII)
COMMIT = re.compile(
    r"(.*?),partition=([A-Za-z0-9._-]{1,249})-(\d{1,10}) payload: (?:(<DELETE>)|offset=(-?\d{1,19})(?:,metadata=.*)?)",
    re.ASCII | re.DOTALL,
)
MEMBER = re.compile(r"([^=,{}\[\]]+)=(?:\[[^\[\]]*\](?::[0-9A-F]+)?|[0-9A-F]*)(?:,|$)")
STATE_OF = {name.lower(): name for name in STATES}

DECODER = json.JSONDecoder()
DecodedFields = dict[str, Any]


class NotDecoded(ValueError):
    """The text is not what the decoder prints; the message states why."""


def decoded_topic(text: str, *, otherwise: str | None = None) -> str | None:
    """The topic whose decoder printed this text of a record, from ``key:`` on; else another answer."""
    if text.startswith(TRANSACTION) or JSON_TRANSACTION.match(text):
        return STATE_TOPIC
    return OFFSETS_TOPIC if text.startswith((OFFSET, GROUP)) or JSON_GROUP.match(text) else otherwise


def read_transaction_event(text: str) -> DecodedFields:
    """Columns of ``schema.TRANSACTION_LOG`` from a record's text.

    `text`: from ``key:`` on. Raises NotDecoded if it is not what a decoder prints.
    """
    if JSON_TRANSACTION.match(text):
        key, value = _json_pair(text)
        found: DecodedFields = {"transactional_id": _text(_data(key), "transactionalId"), "tombstone": value is None}
        return found if value is None else found | _json_state(value)
    if not text.startswith(TRANSACTION):
        raise NotDecoded(_why_not(text))
    transactional_id, payload, state = text.removeprefix(TRANSACTION).rpartition(PAYLOAD)
    if not payload:
        raise NotDecoded("there is no payload")
    found = {"transactional_id": _clean(transactional_id), "tombstone": state == DELETED}
    return found if state == DELETED else found | _state(state)


def read_formatted_transaction(line: str) -> DecodedFields | None:
    """Columns of ``schema.TRANSACTION_LOG`` from a line of the console consumer's ``TransactionLogMessageFormatter``.

    Null for any other line. Raises NotDecoded if the line is damaged.
    """
    if FORMATTED_JSON.match(line):
        found, _ = _json(line, 0)
        value = found.get("value")
        state = {} if value is None else _json_state(value)
        return {"transactional_id": _text(_data(found["key"]), "transactionalId"), "tombstone": value is None} | state
    if not (start := FORMATTED.match(line)):
        return None
    fields = {name: one or several for name, several, one in FORMATTED_FIELD.findall(line, start.end(1))}
    try:
        return {
            "transactional_id": _clean(start[1]),
            "tombstone": False,
            "producer_id": _known(_number(int(fields["producerId"]), 64)),
            "producer_epoch": _known(_number(int(fields["producerEpoch"]), 16)),
            "state": _state_name(fields["state"]),
            "timeout_ms": _number(int(fields["txnTimeoutMs"]), 32),
            "topic_partitions": [_partition(each) for each in fields["topicPartitions"].split(", ") if each],
            "start_time": read_time(int(fields["txnStartTimestamp"])),
            "last_update_time": read_time(int(fields["txnLastUpdateTimestamp"])),
        }
    except (KeyError, ValueError):
        raise NotDecoded("a field is missing or damaged") from None


def _state(value: str) -> DecodedFields:
    found = STATE.fullmatch(value)
    if not found:
        raise NotDecoded("the payload is no transaction state")
    producer_id, epoch, state, partitions, updated, timeout = found.groups()
    return {
        "producer_id": _known(_number(int(producer_id), 64)),
        "producer_epoch": _known(_number(int(epoch), 16)),
        "state": _state_name(state),
        "timeout_ms": _number(int(timeout), 32),
        "topic_partitions": [_partition(each) for each in partitions.split(",") if each],
        "last_update_time": read_time(int(updated)),
    }


def _json_state(value: DecodedFields) -> DecodedFields:
    data = _data(value)
    version = _version(value)
    return {
        "producer_id": _known(_integer(data, "producerId", 64)),
        "producer_epoch": _known(_integer(data, "producerEpoch", 16)),
        "previous_producer_id": _known(_integer(data, "previousProducerId", 64, default=-1)),
        "next_producer_id": _known(_integer(data, "nextProducerId", 64, default=-1)),
        "next_producer_epoch": _known(_integer(data, "nextProducerEpoch", 16, default=-1)),
        "state": _status(data.get("transactionStatus")),
        "timeout_ms": _integer(data, "transactionTimeoutMs", 32),
        "topic_partitions": _json_partitions(data.get("transactionPartitions")),
        "start_time": read_time(_integer(data, "transactionStartTimestampMs", 64)),
        "last_update_time": read_time(_integer(data, "transactionLastUpdateTimestampMs", 64)),
        "client_transaction_version": _integer(data, "clientTransactionVersion", 16, default=0) if version else None,
        "value_version": version,
    }


def _status(status: object) -> str:
    """The state by its number, or by its name, as some versions print it."""
    if isinstance(status, str):
        return _state_name(status)
    number = _number(status, 8, "transactionStatus")
    if not 0 <= number < len(STATES):
        raise NotDecoded(f"transaction status {number} is not known")
    return STATES[number]


def _json_partitions(topics: object) -> list[DecodedFields]:
    if topics is None:
        return []
    if not isinstance(topics, list) or not all(isinstance(each, dict) for each in topics):
        raise NotDecoded("transactionPartitions is no list of topics")
    return [
        {"topic": _text(each, "topic"), "partition": _number(number, 32)}
        for each in topics
        for number in _list(each, "partitionIds")
    ]


def read_offsets_log(text: str) -> DecodedFields:
    """Columns of ``schema.OFFSETS_LOG`` from a record's text, without the users' own metadata.

    `text`: from ``key:`` on. Raises NotDecoded if it is not what a decoder prints.
    """
    if JSON_GROUP.match(text):
        return _json_offsets_log(*_json_pair(text))
    if text.startswith(OFFSET):
        return _offset_commit(text.removeprefix(OFFSET))
    if not text.startswith(GROUP):
        raise NotDecoded(_why_not(text))
    group, _, value = text.removeprefix(GROUP).partition(PAYLOAD)
    found = {"kind": "group_metadata", "group_id": _clean(group), "tombstone": value == DELETED}
    return found if value == DELETED else found | _group(value)


def _offset_commit(text: str) -> DecodedFields:
    found = COMMIT.fullmatch(text)
    if not found:
        raise NotDecoded("this is no committed offset")
    group, topic, partition, deleted, offset = found.groups()
    return {
        "kind": "offset_commit",
        "group_id": _clean(group),
        "topic": topic,
        "partition": _number(int(partition), 32),
        "committed_offset": None if offset is None else _number(int(offset), 64),
        "tombstone": deleted is not None,
    }


def _group(value: str) -> DecodedFields:
    data, end = _json(value, 0)
    if end != len(value):
        raise NotDecoded("something follows the payload")
    members = _text(data, "assignment").removeprefix("{").removesuffix("}")
    return {
        "generation": _integer(data, "generationId", 32),
        "protocol_type": _text(data, "protocolType"),
        "protocol": _text_or_null(data, "protocol"),
        "member_ids": _members(members),
    }


def _members(assignment: str) -> list[str] | None:
    """Member ids of ``a=[orders-0, orders-1],b=[]``; null if an id contains the separators."""
    ids, at = [], 0
    while at < len(assignment):
        found = MEMBER.match(assignment, at)
        if not found:
            return None
        ids.append(_clean(found[1]))
        at = found.end()
    return ids


def _json_offsets_log(key: DecodedFields, value: DecodedFields | None) -> DecodedFields:
    kind = KINDS.get(int(_text(key, "type")))
    if kind is None:
        raise NotDecoded(f"key type {_text(key, 'type')} is of a newer Kafka")
    data = _data(key)
    member = _text_or_null(data, "memberId")
    found: DecodedFields = {
        "kind": kind,
        "group_id": _text(data, "group" if "group" in data else "groupId"),
        "topic": _text(data, "topic") if kind == "offset_commit" else None,
        "partition": _integer(data, "partition", 32) if kind == "offset_commit" else None,
        "member_ids": None if member is None else [member],
        "tombstone": value is None,
    }
    if value is None:
        return found
    if kind == "offset_commit":
        return found | _json_offset_commit(_data(value))
    if kind == "group_metadata":
        return found | _json_group(_data(value))
    return found | ({"generation": _integer(_data(value), "epoch", 32)} if kind in GROUP_EPOCH_KINDS else {})


def _json_offset_commit(data: DecodedFields) -> DecodedFields:
    return {
        "committed_offset": _integer(data, "offset", 64),
        "committed_leader_epoch": _known(_integer(data, "leaderEpoch", 32, default=-1)),
        "commit_timestamp": read_time(_integer(data, "commitTimestamp", 64)),
        "expire_timestamp": read_time(_integer(data, "expireTimestamp", 64, default=-1)),
    }


def _json_group(data: DecodedFields) -> DecodedFields:
    members = _list(data, "members")
    if not all(isinstance(each, dict) for each in members):
        raise NotDecoded("members is no list of members")
    return {
        "generation": _integer(data, "generation", 32),
        "protocol_type": _text(data, "protocolType"),
        "protocol": _text_or_null(data, "protocol"),
        "leader_member_id": _text_or_null(data, "leader"),
        "member_ids": [_text(each, "memberId") for each in members],
    }


# JSON


def _json_pair(text: str) -> tuple[DecodedFields, DecodedFields | None]:
    """The objects of key and payload; null for a payload that deletes the key."""
    key, end = _json(text, len("key: "))
    if not text.startswith(PAYLOAD, end):
        raise NotDecoded("there is no payload")
    start = end + len(PAYLOAD)
    if text[start:] == DELETED:
        return key, None
    value, end = _json(text, start)
    if end != len(text):
        raise NotDecoded("something follows the payload")
    return key, value


def _json(text: str, at: int) -> tuple[DecodedFields, int]:
    try:
        found, end = DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise NotDecoded("the JSON is damaged") from None
    if not isinstance(found, dict):
        raise NotDecoded("the JSON is no object")
    return found, end


def _data(found: Mapping[str, object]) -> DecodedFields:
    data = found.get("data")
    if not isinstance(data, dict):
        raise NotDecoded("the JSON has no data")
    return data


def _version(value: Mapping[str, object]) -> int:
    version = str(value.get("version"))  # a number by the console consumer's formatter
    if version not in {"0", "1"}:
        raise NotDecoded(f"value version {version} is of a newer Kafka")
    return int(version)


def _list(data: Mapping[str, object], name: str) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list):
        raise NotDecoded(f"{name} is no list")
    return found


def _text(data: Mapping[str, object], name: str) -> str:
    found = data.get(name)
    if not isinstance(found, str):
        raise NotDecoded(f"{name} is no text")
    return _clean(found)


def _text_or_null(data: Mapping[str, object], name: str) -> str | None:
    return None if data.get(name) is None else _text(data, name)


def _integer(data: Mapping[str, object], name: str, bits: int, *, default: int | None = None) -> int:
    return _number(data.get(name, default), bits, name)


# Values


def _number(found: object, bits: int, name: str = "a number") -> int:
    if type(found) is not int or not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
        raise NotDecoded(f"{name} is no number of {bits} bits")
    return found


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _state_name(text: str) -> str:
    name = STATE_OF.get(text.replace("_", "").lower())
    if name is None:
        raise NotDecoded("the state is not known")
    return name


def _partition(text: str) -> DecodedFields:
    found = PARTITION.fullmatch(text)
    if not found:
        raise NotDecoded("a partition is none")
    return {"topic": found[1], "partition": _number(int(found[2]), 32)}


def read_time(milliseconds: int) -> dt.datetime | None:
    if milliseconds > LAST_TIME:
        raise NotDecoded("a time is after the year 9999")
    return utc(milliseconds)


def _clean(text: str) -> str:
    """Remove lone surrogates, which a damaged text can have and a table cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _why_not(text: str) -> str:
    found = NO_RECORD.match(text)
    return f"the tool could not read it: {_clean(found[1][:200])}" if found else "no decoder prints this"


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


LONGEST = 16 << 20  # bytes; a message is 1 MiB at most by default
UNKNOWN_LONGEST = 1 << 16  # if the size is unknown
KEY = " key: "
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
