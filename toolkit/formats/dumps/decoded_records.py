"""Records as the decoders of ``kafka-dump-log.sh`` print them: ``__transaction_state`` or ``__consumer_offsets``.

Sources: ``TransactionLog.formatRecordKeyAndValue`` (2.8 to 4.0), ``GroupMetadataManager.formatRecordKeyAndValue`` (2.8
to 3.7); ``DumpLogSegments.OffsetsMessageParser`` (3.8 on) and ``TransactionLogMessageParser`` (4.1 on), which print the
JSON of the messages' own converters.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import Any

from toolkit.formats.coordinator.offsets_log_records import GROUP_EPOCH_KINDS, KINDS, OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, STATES
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
