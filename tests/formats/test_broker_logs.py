"""Brokers' own logs: every layout, rotated and damaged files, the wording of each event; real ones in test_outcomes."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.brokers import NEWEST, OLDER, on_cluster
from toolkit.errors import LabError, NotFound, UsageError
from toolkit.formats import broker_logs
from toolkit.formats.broker_log_lines import LINES, OF_ITSELF, line_events
from toolkit.formats.broker_logs import broker_log_events, broker_log_files, time_zone_of, without_repeats
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY
from toolkit.lab.producer import TxnProducer
from toolkit.lab.queries import config_of
from toolkit.schema.metadata import EVENTS, ClusterEvent
from toolkit.sources.live.client.broker_client import BrokerClient

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


WRITTEN = sorted((Path(__file__).parent / "data" / "broker-logs").glob("*.log"))


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_what_log4j_writes(path: Path) -> None:
    """Each layout of log4j, with an exception, and with settings, which are left out."""
    found = list(broker_log_events(path, time_zone=time_zone_of("Europe/Berlin")))
    assert [each.event for each in found] == ["transaction_timed_out", "out_of_order_sequence", "coordinator_elected"]
    assert {each.broker_id for each in found} == {2}
    for each in found:
        assert each.timestamp is not None
        assert (each.timestamp.date(), each.timestamp.hour) == (dt.date(2026, 11, 25), 18)
    assert [each.transactional_id for each in found] == ["payments-7", None, None]
    assert (found[1].topic, found[1].partition, found[1].producer_id) == ("orders", 0, 4000)
    assert "partition orders-0 IllegalStateException: Out of order sequence number for" in (found[1].text or "")


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


S, C = "Sending pay-1's transaction marker", "[Transaction Marker Request Completion Handler 1]: "
LEADER = "starts at leader epoch 3 from offset 10 with partition epoch 7"
WORDINGS: Sequence[tuple[str, dict[str, Any]]] = [
    (OF_COORDINATOR, {"event": "transaction_timed_out", "transactional_id": "payments-7"}),
    (
        "Rollback of ongoing transaction for transactionalId a b failed due to error NOT_ENOUGH_REPLICAS",
        {"event": "timeout_abort_failed", "transactional_id": "a b"},
    ),
    (
        "Initialized transactionalId pay-1 with producerId 4000 and producer epoch 5 on partition "
        "__transaction_state-3",
        {"event": "producer_initialized", "transactional_id": "pay-1", "producer_id": 4000, "producer_epoch": 5},
    ),
    (
        "Returning COORDINATOR_NOT_AVAILABLE error code to client for pay-1's InitProducerId request",
        {"event": "producer_init_refused", "transactional_id": "pay-1"},
    ),
    (
        "Aborting sending of transaction markers and returning NOT_COORDINATOR error to client for "
        "pay-1's EndTransaction "
        "request of COMMIT, since appending x to transaction log with coordinator epoch 1 failed",
        {"event": "transaction_end_failed", "transactional_id": "pay-1"},
    ),
    (
        "The coordinator failed to write an epoch fence transition for producer pay-1 to the "
        "transaction log with error "
        "NOT_ENOUGH_REPLICAS. The epoch was increased to 7 but not returned to the client",
        {"event": "epoch_fence_failed", "transactional_id": "pay-1", "producer_epoch": 7},
    ),
    (
        "[TransactionCoordinator id=1] The coordinator failed to write an epoch fence transition for producer pay-1 to "
        "the transaction log with error COORDINATOR_NOT_AVAILABLE",
        {"event": "epoch_fence_failed", "transactional_id": "pay-1"},
    ),
    (
        "Expected producer epoch 3 does not match current producer epoch 5 or previous producer epoch 4",
        {"event": "producer_fenced", "producer_epoch": 3},
    ),
    (
        "[Transaction Marker Channel Manager 1]: Couldn't find leader endpoint for partitions Set(a.b_c-d-12) while "
        "trying to send transaction markers for pay-1, these partitions are likely deleted already and hence can be "
        "skipped",
        {"event": "marker_skipped", "transactional_id": "pay-1", "topic": "a.b_c-d", "partition": 12},
    ),
    (
        f"{C}{S} from partition orders-0 has failed with  UNSUPPORTED_FOR_MESSAGE_FORMAT. This partition "
        "will be removed",
        {"event": "marker_skipped", "transactional_id": "pay-1", "topic": "orders", "partition": 0},
    ),
    (
        f"{C}{S} for partition orders-0 has failed with error "
        "org.apache.kafka.common.errors.NotLeaderOrFollowerException, retrying with current coordinator epoch 4",
        {"event": "marker_retried", "transactional_id": "pay-1", "topic": "orders", "partition": 0},
    ),
    (
        f"{C}{S} for partition orders-0 has permanently failed with error "
        "TransactionCoordinatorFencedException with the "
        "current coordinator epoch 4; cancel sending any more transaction markers TxnMarkerEntry{} to the brokers",
        {"event": "marker_refused", "transactional_id": "pay-1", "topic": "orders", "partition": 0},
    ),
    (
        "Error processing append operation on partition orders-0\norg.apache.kafka.common.errors."
        "TransactionCoordinatorFencedException: Invalid coordinator epoch for producerId 4000 at offset 9 in partition "
        "orders-0: 1 (zombie), 2 (current)",
        {"event": "marker_refused", "producer_id": 4000, "topic": "orders", "partition": 0},
    ),
    (
        f"{C}I am no longer the coordinator for pay-1; cancel sending transaction markers X to the brokers",
        {"event": "markers_cancelled", "transactional_id": "pay-1"},
    ),
    (
        f"{C}I am loading the transaction partition that contains pay-1 which means the current markers have to be "
        "obsoleted; cancel sending transaction markers X to the brokers",
        {"event": "markers_cancelled", "transactional_id": "pay-1"},
    ),
    (
        f"{C}Transaction coordinator epoch for pay-1 has changed from 1 to 2; cancel sending transaction markers X",
        {"event": "markers_cancelled", "transactional_id": "pay-1"},
    ),
    (
        "The cached metadata has changed to X (old coordinator epoch is 1) since preparing to send "
        "markers; cancel sending "
        "markers to its partition leaders",
        {"event": "markers_cancelled", "transactional_id": None},
    ),
    *(
        (
            f"Closing socket for 127.0.0.1:28996-127.0.0.1:47352-0 because of error\norg.apache.X: {text}",
            {"event": "marker_request_failed", "affected_broker": 1},
        )
        for text in (
            "Received request for api with key 27 (WriteTxnMarkers) and unsupported version 2",
            "Received request api key WRITE_TXN_MARKERS with version 2 which is not enabled",
            "Error getting request for apiKey: WRITE_TXN_MARKERS, apiVersion: 2, connectionId: 127.0.0.1:25399",
        )
    ),
    (
        "[TransactionCoordinator id=1] Elected as the txn coordinator for partition 7 at epoch 4",
        {"event": "coordinator_elected", "topic": "__transaction_state", "partition": 7, "leader_epoch": 4},
    ),
    *(
        (
            f"[TransactionCoordinator id=1] Resigned as the txn coordinator for partition 7 at epoch {epoch}",
            {"event": "coordinator_resigned", "topic": "__transaction_state", "partition": 7, "leader_epoch": number},
        )
        for epoch, number in (("Some(4)", 4), ("OptionalInt[4]", 4), ("None", None), ("OptionalInt.empty", None))
    ),
    (
        "[Transaction State Manager 1]: Loading transaction metadata from __transaction_state-3 at epoch 4",
        {"event": "coordinator_loading", "topic": "__transaction_state", "partition": 3, "leader_epoch": 4},
    ),
    (
        "[Transaction State Manager 1]: Completed loading transaction metadata from "
        "__transaction_state-3 for coordinator "
        "epoch 4",
        {"event": "coordinator_loaded", "topic": "__transaction_state", "partition": 3, "leader_epoch": 4},
    ),
    (
        "[Transaction State Manager 1]: Error loading transactions from transaction log __transaction_state-3\nX: y",
        {"event": "coordinator_load_failed", "topic": "__transaction_state", "partition": 3},
    ),
    (
        "Attempted to load transaction metadata from __transaction_state-3, but found no log",
        {"event": "coordinator_load_failed", "topic": "__transaction_state", "partition": 3},
    ),
    (
        "X\nE: Invalid sequence number for new epoch of producer 4000at offset 9 in partition orders-0: "
        "6 (request epoch), 1",
        {"event": "out_of_order_sequence", "producer_id": 4000, "producer_epoch": 6, "topic": "orders"},
    ),
    (
        "X\nE: Invalid sequence number for producer 4000 at offset 9 in partition orders-0: 5 (incoming "
        "seq. number). Expected",
        {"event": "out_of_order_sequence", "producer_id": 4000, "producer_epoch": None, "topic": "orders"},
    ),
    (
        "X\nE: Epoch of producer 4000 at offset 9 in orders-0 is 4, which is smaller than the last seen epoch 5",
        {"event": "invalid_producer_epoch", "producer_id": 4000, "producer_epoch": 4, "topic": "orders"},
    ),
    (
        "X\nE: Epoch of producer 4000 at offset 9 in orders-0 is 4, which is smaller than or equal to "
        "the last seen epoch 5 "
        "(TV2)",
        {"event": "invalid_producer_epoch", "producer_id": 4000, "producer_epoch": 4, "topic": "orders"},
    ),
    (
        "Error processing append operation on partition orders-0\nE: Epoch of producer 4000 is 4, which "
        "is smaller than the "
        "last seen epoch 5",
        {"event": "invalid_producer_epoch", "producer_id": 4000, "producer_epoch": 4, "topic": "orders"},
    ),
    (
        "X\nE: Expected transactional write from producer 4000 at offset 9 in partition orders-0",
        {"event": "invalid_txn_state", "producer_id": 4000, "topic": "orders", "partition": 0},
    ),
    (
        "Error processing append operation on partition orders-0\nE: Unable to verify the partition has "
        "been added to the "
        "transaction. Underlying error: NOT_COORDINATOR",
        {"event": "verification_failed", "topic": "orders", "partition": 0},
    ),
    (
        "Error processing append operation on partition kMcJGL9vR5C-12WHd9nuwA:orders-0\nE: Partition was not added to "
        "the transaction",
        {"event": "verification_failed", "topic": "orders", "partition": 0},
    ),
    ("X\nE: Partition was not added to the transaction", {"event": "verification_failed", "topic": None}),
    (
        "AddPartitionsToTxnRequest failed for node 3 with a network exception.",
        {"event": "verification_failed", "affected_broker": 3},
    ),
    (
        "Failed to remove expired transactionalId: pay-1 from cache. Tombstone append error code: NOT_LEADER",
        {"event": "id_not_removed", "transactional_id": "pay-1"},
    ),
    (
        "Unexpected exception thrown when cleaning log Log(dir=/data/orders-0). Marking its partition (orders-0) as "
        "uncleanable",
        {"event": "partition_uncleanable", "topic": "orders", "partition": 0},
    ),
    ("[kafka-log-cleaner-thread-0]: Error due to\njava.lang.IllegalStateException: x", {"event": "cleaner_died"}),
    (
        "Triggering unclean leader election for offline partition orders-0.",
        {"event": "unclean_election", "topic": "orders", "partition": 0},
    ),
    (
        "[QuorumController id=1] UNCLEAN partition change for orders-0 with topic ID abc: isr: [2] -> "
        "[3], leader: -1 -> 3, "
        "leaderRecoveryState: RECOVERED -> RECOVERING, leaderEpoch: 4 -> 5, partitionEpoch: 5 -> 6",
        {"event": "unclean_election", "topic": "orders", "partition": 0, "leader": 3, "leader_epoch": 5},
    ),
    (
        "[Broker id=3] The topic partition orders-0 was marked as RECOVERING. Marking the topic "
        "partition as RECOVERED.",
        {"event": "unclean_election", "topic": "orders", "partition": 0},
    ),
    (f"[Broker id=3] Leader orders-0 {LEADER}", {"event": "leader_changed", "leader": 3, "leader_epoch": 3}),
    (
        f"[Broker id=3] Leader orders-0 with topic id Some(abc) {LEADER}, ISR [3], Previous leader Some(2)",
        {"event": "leader_changed", "topic": "orders", "leader": 3, "leader_epoch": 3},
    ),
    (
        f"[Broker id=3] Follower orders-0 {LEADER} and high watermark 9. Current leader is 2. Previous "
        "leader epoch was 1.",
        {"event": "leader_changed", "topic": "orders", "leader": 2, "leader_epoch": 3},
    ),
    (
        f"[Broker id=3] Follower orders-0 {LEADER}. Current leader is -1. Previous leader epoch was 1.",
        {"event": "no_leader", "topic": "orders", "leader": None, "leader_epoch": 3},
    ),
    (
        "[Broker id=3] Follower orders-0 starts at leader epoch 3 from offset 9 with high watermark 9. Previous leader",
        {"event": "leader_changed", "topic": "orders", "leader": None, "leader_epoch": 3},
    ),
    (
        "[Controller id=1 epoch=1] Changed partition orders-0 from OfflinePartition to OnlinePartition with state "
        "LeaderAndIsr(leader=2, leaderEpoch=4, isr=List(2), zkVersion=3)",
        {"event": "leader_changed", "topic": "orders", "leader": 2, "leader_epoch": 4},
    ),
    (
        "[Partition orders-0 broker=2] Shrinking ISR from 2,3 to 2. Leader: (highWatermark: 1, endOffset: 2).",
        {"event": "isr_changed", "topic": "orders", "partition": 0},
    ),
    (
        "[ReplicaFetcher replicaId=2, leaderId=3, fetcherId=0] Truncating orders-0 to offset 5 below high watermark 7",
        {"event": "log_truncated", "topic": "orders", "partition": 0},
    ),
    *(
        (f"{prefix}{text}", {"event": "log_truncated", "topic": "orders", "partition": 0})
        for prefix, text in (
            ("[Log partition=orders-0, dir=/data] ", "Truncating to offset 5"),
            ("[UnifiedLog partition=orders-0, dir=/data] ", "Truncating to offset 5"),
            ("[UnifiedLog partition=orders-0, dir=/data] ", "Truncate and start at offset 5, logStartOffset: 5"),
            ("[LogLoader partition=orders-0, dir=/data] ", "Corruption found in segment 0, truncating to offset 5"),
        )
    ),
    (
        "Recovering 12 logs from /data since no clean shutdown file was found",
        {"event": "unclean_shutdown", "affected_broker": 1},
    ),
    ("Attempting recovery for all logs in /data since no clean shutdown file was found", {"event": "unclean_shutdown"}),
    (
        "[LogLoader partition=orders-0, dir=/data] Recovering unflushed segment 0. 0/1 recovered for orders-0.",
        {"event": "log_recovered", "topic": "orders", "partition": 0},
    ),
    ("[ReplicaManager broker=1] Stopping serving replicas in dir /data", {"event": "log_dir_failed"}),
    ("[KafkaRaftServer nodeId=1] Kafka Server started", {"event": "broker_started", "affected_broker": 1}),
    ("[BrokerServer id=1] shutting down", {"event": "broker_stopping", "affected_broker": 1}),
    ("[BrokerServer id=1] shut down completed", {"event": "broker_stopped", "affected_broker": 1}),
    (
        "[QuorumController id=1] Fencing broker 3 at epoch 12 because its session has timed out.",
        {"event": "broker_fenced", "affected_broker": 3},
    ),
    ("[Controller id=1] Broker failure callback for 3", {"event": "broker_fenced", "affected_broker": 3}),
    (
        "[BrokerLifecycleManager id=1] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
        {"event": "broker_unfenced", "affected_broker": 1},
    ),
    (
        "[BrokerLifecycleManager id=1] Successfully registered broker 1 with broker epoch 15",
        {"event": "broker_registered", "affected_broker": 1},
    ),
]
"""Messages of Kafka 2.8 to 4.4, with what each names."""


@pytest.mark.parametrize(("message", "columns"), WORDINGS)
def test_each_wording(message: str, columns: dict[str, Any]) -> None:
    broker_id = 3 if "[Broker id=3]" in message else 1
    (event,) = line_events(message, ClusterEvent(broker_id=broker_id))
    assert {name: getattr(event, name) for name in columns} == columns


@pytest.mark.parametrize(
    "message",
    [
        "[UnifiedLog partition=orders-0, dir=/data] Truncating to 5 has no effect as the largest offset "
        "in the log is 4",
        "Skipping recovery of 12 logs from /data since clean shutdown file was found",
        "Detected invalid coordinator epoch for producerId 4000 at offset 9 in partition orders-0: 1 is older than",
        "Rollback of ongoing transaction for transactionalId a has been cancelled due to error NOT_COORDINATOR",
        "Exception while processing request from 127.0.0.1:1\nX: request api key WRITE_TXN_MARKERS with version 2",
        "[TransactionCoordinator id=1] Starting up.",
    ],
)
def test_what_looks_like_an_event(message: str) -> None:
    assert list(line_events(message, ClusterEvent())) == []


def test_every_event_is_declared_and_has_a_wording() -> None:
    assert {line.event for line in LINES} <= {*EVENTS}
    assert {line.event for line in LINES} == {columns["event"] for _, columns in WORDINGS}


def test_a_marker_that_is_skipped_on_several_partitions() -> None:
    message = (
        "Couldn't find leader endpoint for partitions HashSet(orders-0, a-b-1) while trying to send "
        "transaction markers "
        "for pay-1, these partitions are likely deleted already and hence can be skipped"
    )
    assert [(each.topic, each.partition) for each in line_events(message, ClusterEvent())] == [
        ("orders", 0),
        ("a-b", 1),
    ]


class SkippingProducer(TxnProducer):
    """A producer that can leave out sequence numbers."""

    def skip(self, topic: str, partition: int) -> None:
        self._sequences[topic, partition] += 5


@pytest.mark.parametrize(
    "lab", [on_cluster(version, EVERYDAY, id=version) for version in (OLDER, NEWEST)], indirect=True
)
def test_refused_batches_are_lines_of_a_real_broker(lab: Kafka) -> None:
    """A sequence number that is missing, and an epoch that is too old, as verification is off; and who fenced it."""
    topic = f"refused-{uuid.uuid4().hex[:6]}"
    admin = AdminClient({**lab.client_config(), "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    with BrokerClient(config_of(lab)) as client:
        producer = SkippingProducer(client, topic)
        producer.init()
        producer.add(topic, 0)
        producer.send(topic, 0)
        producer.skip(topic, 0)
        with pytest.raises(LabError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            producer.send(topic, 0)
        newer = TxnProducer(client, topic).init()
        with pytest.raises(LabError, match="INVALID_PRODUCER_EPOCH"):
            producer.send(topic, 0)
    found = [each for each in broker_log_events(lab.broker_logs[1]) if topic in (each.topic, each.transactional_id)]
    refused = {
        each.event: (each.broker_id, each.topic, each.partition, each.producer_id, each.producer_epoch)
        for each in found
        if each.event in ("out_of_order_sequence", "invalid_producer_epoch")
    }
    where = (1, topic, 0, producer.producer_id)
    assert refused == {
        "out_of_order_sequence": (*where, None),
        "invalid_producer_epoch": (*where, producer.producer_epoch),
    }
    epochs = [each.producer_epoch for each in found if each.event == "producer_initialized"]
    assert epochs == [producer.producer_epoch, newer.producer_epoch]
    assert all(each.timestamp is not None and each.error is None for each in found)
