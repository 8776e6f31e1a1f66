"""Records of ``__transaction_state`` as kafka-dump-log.sh or a console consumer prints them.

Sources: ``TransactionLog.formatRecordKeyAndValue`` (2.8 to 4.0); ``DumpLogSegments.TransactionLogMessageParser`` (4.1
on), which prints the JSON of the messages' own converters; ``TransactionLogMessageFormatter`` of the console consumer.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

from toolkit.formats.coordinator_records import STATES
from toolkit.schema import TRANSACTION_LOG
from toolkit.schema.table import LAST_TIME, STRING, utc

TRANSACTION = "key: transaction_metadata::transactionalId="
DECODED = re.compile(rf'{TRANSACTION}|key: \{{"type":"0","data":\{{"transactionalId":')
NO_RECORD = re.compile(r"(?s)key: (unknown::version=-?\d{1,5}|(?:Unknown record type -?\d{1,5}|Error) at offset .*)")
PAYLOAD = " payload: "
DELETED = "<DELETE>"
STATE = re.compile(
    r"producerId:(?P<producer_id>-?\d{1,19}),producerEpoch:(?P<producer_epoch>-?\d{1,5}),state=(\w{1,30}),"
    r"partitions=\[([^\]]*)\],txnLastUpdateTimestamp=(?P<last_update_time>-?\d{1,19}),"
    r"txnTimeoutMs=(?P<timeout_ms>-?\d{1,10})",
    re.ASCII,
)
FORMATTED = re.compile(r"(.{0,249})::TransactionMetadata\(transactionalId=.{0,249}?, producerId=")
FORMATTED_JSON = re.compile(r'\{"key":\{"(?:type|version)":"?0"?,"data":\{"transactionalId":')
FORMATTED_FIELD = re.compile(r"\b(\w+)=(?:\w*\(([^()]*)\)|([^,()]*))")
PARTITION = re.compile(r"([A-Za-z0-9._-]{1,249})-(\d{1,10})", re.ASCII)
STATE_OF: dict[object, str] = {name.lower(): name for name in STATES} | dict(enumerate(STATES))
BITS = {"int16": 15, "int32": 31, "int64": 63}
DECODER = json.JSONDecoder()
WRONG = (ValueError, LookupError, TypeError, AttributeError)  # what reading a damaged text raises
Fields = dict[str, Any]


def read_decoded(text: str, milliseconds: int) -> Fields:
    """Columns of ``schema.TRANSACTION_LOG`` from a record's text; of one that no decoder prints, an `error`.

    `text`: from ``key:`` on. `milliseconds`: time of the record.
    """
    fields: Fields = {}
    try:
        fields["timestamp"] = _time(milliseconds)
        return fields | _checked(_transaction(text))
    except WRONG as error:
        found = NO_RECORD.match(text)
        return fields | _failed(ValueError(f"the tool could not read it: {clean(found[1][:200])}") if found else error)


def read_formatted(line: str) -> Fields | None:
    """Columns of ``schema.TRANSACTION_LOG`` from a line of the console consumer's formatter; null for another line."""
    try:
        if FORMATTED_JSON.match(line):
            found, _ = _json(line, 0)
            return _checked(_json_transaction(found["key"], found.get("value")))
        if not (start := FORMATTED.match(line)):
            return None
        fields = {name: one or several for name, several, one in FORMATTED_FIELD.findall(line, start.end(1))}
        state = _state(
            producer_id=int(fields["producerId"]),
            producer_epoch=int(fields["producerEpoch"]),
            state=fields["state"],
            timeout_ms=int(fields["txnTimeoutMs"]),
            topic_partitions=_partitions(fields["topicPartitions"]),
            start_time=int(fields["txnStartTimestamp"]),
            last_update_time=int(fields["txnLastUpdateTimestamp"]),
        )
        return _checked({"transactional_id": start[1], "tombstone": False} | state)
    except WRONG as error:
        return _failed(error)


def _failed(error: Exception) -> Fields:
    why = error if type(error) is ValueError else "a field is missing or damaged"
    return {"error": f"MALFORMED_LINE: The text of this record is damaged or of a newer Kafka: {why}."}


def _transaction(text: str) -> Fields:
    if not DECODED.match(text):
        raise ValueError("no decoder prints this")
    if not text.startswith(TRANSACTION):
        key, end = _json(text, len("key: "))
        start = end + len(PAYLOAD)
        if text[end:start] != PAYLOAD:
            raise ValueError("there is no payload")
        value, end = (None, len(text)) if text[start:] == DELETED else _json(text, start)
        if end != len(text):
            raise ValueError("something follows the payload")
        return _json_transaction(key, value)
    transactional_id, payload, state = text.removeprefix(TRANSACTION).rpartition(PAYLOAD)
    if not payload:
        raise ValueError("there is no payload")
    found: Fields = {"transactional_id": transactional_id, "tombstone": state == DELETED}
    if state == DELETED:
        return found
    if not (parts := STATE.fullmatch(state)):
        raise ValueError("the payload is no transaction state")
    numbers = {column: int(digits) for column, digits in parts.groupdict().items()}
    return found | _state(state=parts[3], topic_partitions=_partitions(parts[4]), **numbers)


def _json_transaction(key: Fields, value: Fields | None) -> Fields:
    found: Fields = {"transactional_id": key["data"]["transactionalId"], "tombstone": value is None}
    if value is None:
        return found
    data, version = value["data"], str(value["version"])  # a number by the console consumer's formatter
    if version not in {"0", "1"}:
        raise ValueError(f"value version {version} is of a newer Kafka")
    partitions = [
        {"topic": each["topic"], "partition": number}
        for each in data.get("transactionPartitions") or []
        for number in each["partitionIds"]
    ]
    return found | _state(
        producer_id=data["producerId"],
        producer_epoch=data["producerEpoch"],
        state=data["transactionStatus"],
        timeout_ms=data["transactionTimeoutMs"],
        topic_partitions=partitions,
        start_time=data["transactionStartTimestampMs"],
        last_update_time=data["transactionLastUpdateTimestampMs"],
        previous_producer_id=data.get("previousProducerId"),
        next_producer_id=data.get("nextProducerId"),
        next_producer_epoch=data.get("nextProducerEpoch"),
        client_transaction_version=data.get("clientTransactionVersion", 0) if version == "1" else None,
        value_version=int(version),
    )


def _state(*, state: object, last_update_time: int, start_time: int = -1, timeout_ms: int, **others: Any) -> Fields:
    """With the name of the state, which some versions print as a number, and without -1, which means none."""
    name = STATE_OF.get(state if type(state) is int else str(state).replace("_", "").lower())
    if name is None:
        raise ValueError("the state is not known")
    known = {key: None if type(value) is int and value < 0 else value for key, value in others.items()}
    times = {"start_time": _time(start_time), "last_update_time": _time(last_update_time)}
    return {"state": name, "timeout_ms": timeout_ms, **times, **known}


def _json(text: str, at: int) -> tuple[Fields, int]:
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise ValueError("the JSON is damaged") from None


def _partitions(text: str) -> list[Fields]:
    found = [PARTITION.fullmatch(each.strip()) for each in text.split(",") if each]
    if not all(found):
        raise ValueError("a partition is none")
    return [{"topic": each[1], "partition": int(each[2])} for each in found if each]


def _time(milliseconds: int) -> dt.datetime | None:
    if milliseconds > LAST_TIME:
        raise ValueError("a time is after the year 9999")
    return utc(milliseconds)


def clean(text: str) -> str:
    """Without lone surrogates, which a damaged text can have and a table cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _checked(found: Fields) -> Fields:
    """The fields, if each has the type of its column. Raises TypeError, ValueError."""
    for column in TRANSACTION_LOG.columns:
        value = found.get(column.name)
        if value is None:
            continue
        if column.type == STRING:
            found[column.name] = clean(str.__str__(value))
        elif isinstance(column.type, str) and column.type in BITS:
            _fit(value, BITS[column.type])
        elif column.name == "topic_partitions":
            for each in value:
                each["topic"] = clean(str.__str__(each["topic"]))
                _fit(each["partition"], BITS["int32"])
    return found


def _fit(value: object, bits: int) -> None:
    if type(value) is not int or not -(1 << bits) <= value < 1 << bits:
        raise ValueError(f"a number has more than {bits + 1} bits, or is none")
