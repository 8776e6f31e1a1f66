"""Brokers' own logs: every layout, rotated and damaged files, the wording of each event; real ones in test_outcomes."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from toolkit.errors import NotFound, UsageError
from toolkit.formats import broker_logs
from toolkit.formats.broker_logs import (
    LINES,
    OF_ITSELF,
    broker_log_events,
    broker_log_files,
    time_zone_of,
    without_repeats,
)
from toolkit.schema.log import EVENTS, ClusterEvent

TIMED_OUT = "Completed rollback of ongoing transaction for transactionalId payments-7 due to timeout"
OF_COORDINATOR = f"[TransactionCoordinator id=2] {TIMED_OUT}"
LOGGER = "kafka.coordinator.transaction.TransactionCoordinator"
LINE = f"[2026-11-25 18:00:00,123] INFO {OF_COORDINATOR} ({LOGGER})\n".encode()
OTHER = b"[2026-11-25 18:00:00,100] INFO [GroupCoordinator 2]: Stabilized group g generation 1 (kafka.Group)\n"
TIME = dt.datetime(2026, 11, 25, 18, 0, 0, 123_000, dt.UTC)
MILLISECONDS = 1_795_629_600_123  # of TIME


def events_of(path: Path, data: bytes, **options: Any) -> list[ClusterEvent]:
    path.write_bytes(data)
    return list(broker_log_events(path, **options))


@pytest.mark.parametrize(
    "line",
    [
        LINE.decode(),
        f"[2026-11-25 18:00:00,123] INFO {OF_COORDINATOR} ({LOGGER}) [transaction-abort-0]\n",
        f"2026-11-25 18:00:00,123 INFO {OF_COORDINATOR} ({LOGGER}) [transaction-abort-0]\n",
        f"2026-11-25T18:00:00.123Z [transaction-abort-0] INFO {LOGGER} - {OF_COORDINATOR}\n",
        f"[2026-11-25 20:00:00.123+0200] INFO {OF_COORDINATOR} ({LOGGER})\n",
        f"2026-11-25 18:00:00.123 +00:00 INFO  [transaction-abort-0] {LOGGER}:678 - {OF_COORDINATOR}\n",
        f"2026-11-25T18:00:01.000000001Z stdout F [2026-11-25 18:00:00,123] INFO {OF_COORDINATOR} ({LOGGER})\n",
        f"Nov 25 19:00:00 host kafka[12]: [2026-11-25 18:00:00,123] INFO {OF_COORDINATOR} ({LOGGER})\n",
        json.dumps({"log": LINE.decode(), "stream": "stdout", "time": "2026-11-25T18:00:09Z"}) + "\n",
        json.dumps({"@timestamp": "2026-11-25T18:00:00.123Z", "log.level": "INFO", "message": OF_COORDINATOR}) + "\n",
        json.dumps({"timeMillis": MILLISECONDS, "loggerName": LOGGER, "message": OF_COORDINATOR}) + "\n",
        json.dumps({"timestamp": MILLISECONDS / 1000, "short_message": OF_COORDINATOR, "level": 6}) + "\n",
        json.dumps(
            {"instant": {"epochSecond": MILLISECONDS // 1000, "nanoOfSecond": 123_000_000}, "message": OF_COORDINATOR},
            indent=2,
        )
        + "\n",
    ],
)
def test_each_layout(line: str, tmp_path: Path) -> None:
    (event,) = events_of(tmp_path / "server.log", line.encode())
    assert (event.event, event.timestamp, event.text) == ("transaction_timed_out", TIME, OF_COORDINATOR)
    assert (event.transactional_id, event.broker_id, event.position) == ("payments-7", 2, 0)


def test_pretty_json_of_several_entries(tmp_path: Path) -> None:
    """As JsonLayout writes it by default, with an exception; one of them in an array, with commas."""
    message = "[ReplicaManager broker=2] Error processing append operation on partition orders-0"
    name = "org.apache.kafka.common.errors.OutOfOrderSequenceException"
    text = "Out of order sequence number for producer 4000 at offset 33 in partition orders-0: 5 (incoming seq. number)"
    entries = [
        {"timeMillis": MILLISECONDS, "message": message, "thrown": {"name": name, "message": text}},
        {"timeMillis": MILLISECONDS, "message": "Stabilized group g"},
        {"timeMillis": MILLISECONDS, "message": OF_COORDINATOR},
    ]
    data = ",\n".join(json.dumps(each, indent=2) for each in entries)
    found = events_of(tmp_path / "server.log", f"[{data}\n]\n".encode())
    assert [each.event for each in found] == ["out_of_order_sequence", "transaction_timed_out"]
    assert (found[0].topic, found[0].partition, found[0].producer_id) == ("orders", 0, 4000)
    assert found[0].text == f"{message} OutOfOrderSequenceException: {text}"


def test_an_exception_belongs_to_its_line(tmp_path: Path) -> None:
    """Also with CRLF, and where a line of the exception has a time of its own."""
    data = OTHER + (
        b"[2026-11-25 18:00:01,000] ERROR [ReplicaManager broker=2] Error processing append operation on partition "
        b"orders-0 (kafka.server.ReplicaManager)\r\n"
        b"org.apache.kafka.common.errors.InvalidTxnStateException: Record was not part of an ongoing transaction\r\n"
        b"\tat kafka.Partition.append(Partition.scala:1)\r\n"
    )
    (event,) = events_of(tmp_path / "server.log", data + LINE.replace(b"INFO", b"DEBUG").replace(b"due", b"no"))
    assert (event.event, event.topic, event.partition, event.position) == ("invalid_txn_state", "orders", 0, len(OTHER))
    assert (event.text or "").endswith("InvalidTxnStateException: Record was not part of an ongoing transaction")


def test_times_without_a_zone_are_in_that_of_the_broker(tmp_path: Path) -> None:
    (event,) = events_of(tmp_path / "server.log", LINE, time_zone=time_zone_of("Europe/Berlin"))
    assert event.timestamp == TIME - dt.timedelta(hours=1)
    (event,) = events_of(tmp_path / "server.log", LINE, time_zone=time_zone_of("+05:30"))
    assert event.timestamp == TIME - dt.timedelta(hours=5, minutes=30)
    with pytest.raises(UsageError, match="is not a time zone"):
        time_zone_of("Nowhere/Else")


def test_rotated_and_packed_files_are_found(tmp_path: Path) -> None:
    names = ["server.log", "server.log.2026-11-25-10", "server.log.1", "controller.log.gz", "state-change.log"]
    names += ["log-cleaner.log.2", "kafkaServer.out", "server-2026-11-25-1.log.gz"]
    folder = tmp_path / "broker-3" / "logs"
    folder.mkdir(parents=True)
    for name in [*names, "server.properties", "kafkaServer-gc.log", "kafka-authorizer.log", "000.log", "gc.log"]:
        (folder / name).write_bytes(gzip.compress(LINE) if name.endswith("gz") else LINE)
    assert sorted(path.name for path in broker_log_files(tmp_path)) == sorted(names)
    assert [each.event for path in broker_log_files(tmp_path) for each in broker_log_events(path)] == [
        "transaction_timed_out"
    ] * len(names)
    assert broker_log_files(folder / "gc.log") == [folder / "gc.log"]
    with pytest.raises(NotFound, match="does not exist"):
        broker_log_files(tmp_path / "no")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="has no broker's log"):
        broker_log_files(tmp_path / "empty")


@pytest.mark.parametrize(
    ("folder", "line", "broker_id"),
    [
        ("kafka-3", "Kafka Server started", 3),
        ("kafka_2.13-4.3.1", "Kafka Server started", None),
        ("pytest-5", "Kafka Server started", None),
        ("7", "Kafka Server started", 7),
        ("kafka-3", "[BrokerServer id=2] shutting down", 2),
        ("logs", "[KafkaServer id=12] started", 12),
        ("logs", "[Partition orders-0 broker=4] Shrinking ISR from 4,5 to 4. Leader: (highWatermark: 1)", 4),
        ("logs", "[Broker id=6] Leader orders-0 with topic id Some(a) starts at leader epoch 1 from offset 0", 6),
        ("logs", "[Transaction Marker Channel Manager 8]: I am no longer the coordinator for a; cancel sending x", 8),
    ],
)
def test_which_broker_wrote(folder: str, line: str, broker_id: int | None, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    data = f"[2026-11-25 18:00:00,123] INFO {line} (kafka.server.X)\n".encode()
    (event,) = events_of(tmp_path / folder / "server.log", data)
    assert event.broker_id == broker_id
    if event.event in OF_ITSELF:
        assert event.affected_broker == broker_id


def test_the_settings_of_a_broker_are_never_a_row(tmp_path: Path) -> None:
    secret = "hunter2 due to timeout, as the txn coordinator"
    data = (
        f"[2026-11-25 18:00:00,123] INFO KafkaConfig values: sasl.jaas.config = {TIMED_OUT} {secret}\n"
        f"\tssl.keystore.password = {secret}\n\tnode.id = 5\n\tlisteners = Kafka Server started {secret}\n"
    ).encode()
    found = events_of(tmp_path / "server.log", data + LINE)
    assert [each.event for each in found] == ["transaction_timed_out"]
    assert "hunter2" not in repr(found)
    whole = json.dumps({"message": f"KafkaConfig values: \n\tpassword = {TIMED_OUT} {secret}", "timeMillis": 1})
    assert events_of(tmp_path / "server.log", whole.encode()) == []
    rest = f"\tssl.key.password = {TIMED_OUT} {secret}\n"
    assert events_of(tmp_path / "server.log", rest.encode() + OTHER) == []
    assert events_of(tmp_path / "server.log", json.dumps({"log": rest}).encode()) == []


def test_a_line_that_is_not_whole(tmp_path: Path) -> None:
    """The last line has no end, the first one no beginning, and bytes are no UTF-8."""
    first, last = b"p for a due to timeout (kafka.X)\n", LINE.rstrip()[:-3].replace(b"payments", b"pay\xff\xfe")
    found = events_of(tmp_path / "server.log", TIMED_OUT.encode() + b"\n" + first + OTHER + last)
    assert [each.timestamp for each in found] == [None, TIME]
    assert [each.transactional_id for each in found] == ["payments-7", "pay\ufffd\ufffd-7"]
    assert [each.error for each in found] == [None, None]
    (torn,) = events_of(tmp_path / "server.log", b'{"timeMillis": 1, "message": "' + TIMED_OUT.encode())
    assert (torn.error or "").startswith("BAD_JSON")
    assert torn.text is None


def test_repeated_lines_are_one_event(tmp_path: Path) -> None:
    """4.3.1 logged 100,000 times in 8 s that it retries a marker."""
    retried = "Sending {}'s transaction marker for partition two-0 has failed with error NotEnoughReplicas, retrying"
    path = tmp_path / "server.log"
    seconds = [(0, "a"), (1, "b"), (5, "a"), (14, "a"), (40, "a"), (41, "b")]
    lines = [f"[2026-11-25 10:00:{at:02},000] INFO {retried.format(name)} (kafka.X)" for at, name in seconds]
    path.write_text("\n".join([*lines, f"{retried.format('a')}"]))
    found = [
        (each.transactional_id, each.line_count, *(time and time.second for time in (each.timestamp, each.ended_at)))
        for each in without_repeats(broker_log_events(path))
    ]
    assert found == [("a", 3, 0, 14), ("b", None, 1, 1), ("a", None, 40, 40), ("b", None, 41, 41)]


def test_what_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    missing = list(broker_log_events(tmp_path / "server.log"))
    assert [each.error for each in missing] == ["UNREADABLE: No such file or directory."]
    packed = gzip.compress(LINE + OTHER * 5000 + LINE)
    found = events_of(tmp_path / "server.log.gz", packed[: len(packed) - 40])
    assert found[0].event == "transaction_timed_out"
    assert (found[-1].error or "").startswith("UNREADABLE: ")
    found = events_of(tmp_path / "server.log.gz", packed + b"garbage")
    assert [each.event for each in found[:2]] == ["transaction_timed_out"] * 2
    assert (found[2].error or "").startswith("UNREADABLE: ")
    damaged = events_of(tmp_path / "server.log.gz", packed[:30] + b"\xff" * 8 + packed[38:])
    assert (damaged[-1].error or "").startswith("UNREADABLE: ")
    (*found, unknown) = events_of(tmp_path / "server.log", f"INFO {OF_COORDINATOR}\n".encode() * 3)
    assert (unknown.error or "").startswith("UNKNOWN_LAYOUT: ")
    assert [(each.event, each.timestamp) for each in found] == [("transaction_timed_out", None)] * 3
    assert events_of(tmp_path / "server.log", b"") == []
    assert events_of(tmp_path / "server.log", OTHER) == []


def test_entries_at_the_ends_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of a block, an entry is whole, and an endless one is cut."""
    exception = b"[2026-11-25 18:00:01,000] ERROR Error processing append operation on partition orders-0 (kafka.X)\n"
    exception += (
        b"org.apache.kafka.common.errors.InvalidTxnStateException: Record was not part of an ongoing transaction\n"
    )
    data = (LINE + OTHER + exception + OTHER) * 20
    whole = events_of(tmp_path / "server.log", data)
    assert len(whole) == 40
    for size in (1, 100, 300, 501, 1000):
        monkeypatch.setattr(broker_logs, "BLOCK", size)
        assert events_of(tmp_path / "server.log", data) == whole
    monkeypatch.setattr(broker_logs, "MAX_ENTRY", 200)
    found = events_of(tmp_path / "server.log", OTHER + b"x" * 5000 + b"\n" + b"y\n" * 500 + LINE)
    assert [(each.event, each.timestamp) for each in found] == [("transaction_timed_out", TIME)]


def test_every_event_is_declared_and_has_a_wording() -> None:
    """Of each of Kafka 2.8 to 4.4, and what only looks like one; what they are is stored in the corpus."""
    wordings = broker_log_events(Path(__file__).parent / "data" / "broker-log-wordings" / "server.log")
    assert {line.event for line in LINES} == {each.event for each in wordings} <= {*EVENTS}
