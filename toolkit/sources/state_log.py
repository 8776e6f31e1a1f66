"""``__transaction_state`` itself: what every coordinator has written down, read as a consumer.

Where it can be read whole it replaces the coordinators' answers: it is their memory. It also knows when a state last
changed, which no request tells.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.states import OPEN_STATES
from toolkit.errors import DecodeError
from toolkit.formats.records import STATE_TOPIC, TransactionState, read_transaction_key, read_transaction_value
from toolkit.schema import Row, utc
from toolkit.sources.coordinators import Places
from toolkit.sources.offsets import partition_rows
from toolkit.sources.transactions import UNKNOWN
from toolkit.sources.wire import Wire

if TYPE_CHECKING:
    from toolkit.config import ClientConfig

__all__ = ["StateLog", "read_state_log"]

RECORDS_AT_ONCE = 10_000
Newest = dict[bytes, tuple[int, bytes | None]]  # key to partition and value; no value is a tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLog:
    """The newest record of every transactional id.

    Parameters
    ----------
    rows
        Rows of ``schema.TRANSACTIONS``.
    failures
        A row without id for each partition that could not be read to its end.
    partitions
        How many partitions were read whole.
    """

    rows: list[Row]
    failures: list[Row]
    partitions: int

    @property
    def whole(self) -> bool:
        """Whether no partition is missing, so that an id that is not here exists nowhere."""
        return self.partitions > 0 and not self.failures


def read_state_log(
    wire: Wire, config: ClientConfig, places: Places, *, only: Collection[int] | None = None, timeout: float
) -> StateLog:
    """Read the topic from its start to where it ended when the reading began.

    Parameters
    ----------
    places
        ``__transaction_state`` as the metadata has it.
    only
        Partitions to read; all if null.
    timeout
        Seconds; a partition that is not read whole by then is a failure.
    """
    deadline = time.monotonic() + timeout
    if places.hidden:
        return StateLog(rows=[], failures=[_failure(None, None, places.hidden)], partitions=0)
    bases = {place: row for place, row in places.topology.partitions.items() if only is None or place[1] in only}
    spans = {row["partition"]: row for row in partition_rows(wire, bases)}
    errors = {number: row["error"] for number, row in spans.items() if row["error"]}
    # To the log end, not to the high watermark: right after an election that can lie before what was written last.
    ends = {
        number: row["log_end_offset"] or row["high_watermark"] or 0
        for number, row in spans.items()
        if number not in errors
    }
    starts = {number: spans[number]["log_start_offset"] or 0 for number in ends}
    newest = _consume(config, {n: (starts[n], end) for n, end in ends.items() if starts[n] < end}, errors, deadline)
    rows = list(_rows(newest, spans, errors))
    failures = [_failure(number, spans[number]["leader"], error) for number, error in sorted(errors.items())]
    return StateLog(rows=rows, failures=failures, partitions=len(spans) - len(failures))


def _consume(
    config: ClientConfig, spans: Mapping[int, tuple[int, int]], errors: dict[int, str], deadline: float
) -> Newest:
    """The newest value by key; partitions that fail, or are not done in time, go to `errors`."""
    newest: Newest = {}
    if not spans:
        return newest
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **config.librdkafka(),
            "group.id": "kafka-txn-toolkit",  # librdkafka asks for one; nothing is joined or committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "error",
            "error_cb": lambda _: None,  # a broker that fails shows as partitions that are not read
            "log_level": 0,
        }
    )
    left = {number: end for number, (_, end) in spans.items()}
    try:
        consumer.assign([TopicPartition(STATE_TOPIC, number, start) for number, (start, _) in spans.items()])
        while left and (seconds := deadline - time.monotonic()) > 0:
            for message in consumer.consume(RECORDS_AT_ONCE, timeout=min(0.2, seconds)):
                if message.topic() != STATE_TOPIC:
                    continue  # an error of the client as a whole, such as no right to a group that it does not need
                number, reached, error = message.partition() or 0, message.offset() or 0, message.error()
                if error is None:
                    newest[message.key() or b""] = (number, message.value())
                    reached += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    errors[number] = f"{error.name().lstrip('_')}: {config.scrub(error.str())}"
                    left.pop(number, None)
                if reached >= left.get(number, reached + 1):
                    del left[number]
    finally:
        consumer.close()
    errors.update(dict.fromkeys(left, "REQUEST_TIMED_OUT: the partition was not read to its end in time"))
    return newest


def _rows(newest: Newest, spans: Mapping[int, Row], errors: dict[int, str]) -> Iterable[Row]:
    for key, (number, value) in newest.items():
        try:
            transactional_id = read_transaction_key(key)
            state = None if value is None else read_transaction_value(value)
        except DecodeError as exc:
            errors[number] = f"CORRUPT_MESSAGE: {exc}"
            continue
        if transactional_id is not None and state is not None:
            yield _row(transactional_id, state, spans[number])


def _row(transactional_id: str, state: TransactionState, partition: Row) -> Row:
    is_open = state.state in OPEN_STATES
    return {
        **UNKNOWN,
        "transactional_id": transactional_id,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "state": state.state,
        "timeout_ms": state.timeout_ms,
        "start_time": utc(state.start_timestamp_ms) if is_open else None,
        "last_update_time": utc(state.last_update_timestamp_ms),
        "topic_partitions": [{"topic": topic, "partition": number} for topic, number in state.topic_partitions],
        "coordinator_id": partition["leader"],
        "txn_state_partition": partition["partition"],
        "source": STATE_TOPIC,
        "broker_id": partition["leader"],
        "observed_at": partition["observed_at"],
    }


def _failure(partition: int | None, leader: int | None, error: str) -> Row:
    place = {"txn_state_partition": partition, "coordinator_id": leader, "broker_id": leader}
    return {**UNKNOWN, **place, "source": STATE_TOPIC, "observed_at": dt.datetime.now(dt.UTC), "error": error}
