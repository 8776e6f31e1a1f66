"""What a broker does not answer, or answers with an error, is an error row that names it: whole rows, one for each way.

Brokers answer as real ones did when they were recorded, but for one answer that each case changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, cast
from unittest.mock import Mock

import pytest

from tests.actions.rows import RowCluster, abort_plan
from tests.corpus.answers import calls_on
from tests.corpus.calls import CommandLine
from tests.corpus.conversation import INPUTS, SUFFIX, Conversation, RequestKey
from tests.corpus.requests import decode_answer, encode_answer
from tests.corpus.wire import replaying
from tests.sources.fake import NOW, FakeCluster, by_topic, fetched, listed_offset
from tests.sources.log_files import STATE_TOPIC, after, data, marker, state_record
from tests.stored import compare
from toolkit import Cluster, LogDir, explain
from toolkit.analysis.diagnosis.decision import decide_unknown
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.log_excerpts import ExcerptStart
from toolkit.analysis.diagnosis.observation import BrokersTime
from toolkit.analysis.symptoms import NamedResources
from toolkit.cli.diagnose_commands import verdict_exit_code
from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, ConnectionFailed
from toolkit.schema import BATCHES, Row
from toolkit.schema.live import Finding, GroupLag, Partition, Transaction
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.table import EPOCH, Selection, TopicPartition
from toolkit.schema.verdict import Verdict
from toolkit.sources import offset_reader
from toolkit.sources.live import coordinator_logs, partition_log
from toolkit.sources.live.broker_client import BrokerClient, error_text
from toolkit.sources.live.coordinators import (
    GROUPS,
    TOPICS,
    TRANSACTION,
    TRANSACTIONAL_IDS,
    AclResource,
    CoordinatorTopic,
    broker_configs,
    read_coordinators,
    visibility_of,
)
from toolkit.sources.live.group_offsets import client_groups, committed_offsets, share_group_offsets, undescribed_group
from toolkit.sources.live.leaders import (
    THROTTLED,
    FetchedBatches,
    FetchPosition,
    fetch,
    offset_of,
    read_metadata,
    read_partitions,
)
from toolkit.sources.live.observe import observe
from toolkit.sources.live.partition_log import NOT_RETURNED, UNREPLICATED, batch_tables_of, read_offsets
from toolkit.sources.live.transactions import named_transactions
from toolkit.sources.offset_queries import SharePartition, lag_of_share_group
from toolkit.sources.resource_checks import ResourceChecks, check_resources
from toolkit.sources.source import SOURCE_TABLES, STREAMED, TableArguments
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources.batches_reader import BatchesReader
from toolkit.spark.datasources.reader_options import batches_options
from toolkit.views.explained_error import said_of_ids

FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS, WRITE_TXN_MARKERS = 1, 2, 3, 10, 18, 27
DESCRIBE_ACLS, DESCRIBE_QUORUM, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 29, 55, 61, 65, 66
NO_LEADER, LOADING, NOT_COORDINATOR, TOPIC_DENIED, CLUSTER_DENIED = 5, 14, 16, 29, 31

Change = Callable[[Any], object]
"""Changes an answer; false if the broker stays silent."""
Given = dict[str, Any]
"""What a row has, by column; a column without a value is left out."""


def load(name: str = "4.3.1-everyday") -> Conversation:
    return Conversation.load(INPUTS / f"{name}{SUFFIX}")


def changed(conversation: Conversation, api: int, change: Change, *, having: bytes = b"") -> Conversation:
    """The conversation with other answers of one API; only those to requests that contain some bytes."""
    for key, answers in conversation.answers.items():
        if key.api == api and having in key.body:
            conversation.answers[key] = [
                replace(each, frame=each.frame and _changed(key, each.frame, change)) for each in answers
            ]
    return conversation


def _changed(key: RequestKey, frame: bytes, change: Change) -> bytes | None:
    message = decode_answer(key.api, key.version, frame)
    return None if change(message) is False else encode_answer(message, key.version)


def silence(message: Any) -> bool:
    return False


def structs(message: Any) -> Iterator[Any]:
    """A message and all structs in it."""
    yield message
    for name in message.fields:
        value = getattr(message, name)
        for each in value if isinstance(value, list) else ():
            if hasattr(each, "fields"):
                yield from structs(each)


def failing(code: int) -> Change:
    """Every error code of the answer is this one."""

    def change(message: Any) -> None:
        for each in structs(message):
            if "error_code" in each.fields:
                each.error_code = code

    change.__name__ = f"error {code}"
    return change


@contextmanager
def cluster_of(conversation: Conversation, call: str) -> Iterator[Cluster]:
    """The cluster at the moment of a call."""
    at = conversation.moments.get(call, conversation.moments["diagnose"])
    with replaying(conversation, at=at), Cluster(conversation.facts["config"], timeout=3.0) as cluster:
        yield cluster


def rows_of(conversation: Conversation, table: str, **arguments: Any) -> list[Row]:
    with cluster_of(conversation, f"table-{table}") as cluster:
        found = cluster.read(table, TableArguments.of(**arguments))
        if table in STREAMED:
            return [row for each in found for row in each.to_pylist()]
        return [dict(row) for row in SOURCE_TABLES[table].table.ordered(found)]


TOPIC, ID = "never-added-000001", "never_added-000003"
AT_TOPIC: Given = {"topic": TOPIC, "partition": 0, "broker_id": 1}
OF_TOPIC: Given = {"topics": [TOPIC], "partitions": [0]}
OF_ID: Given = {"transactional_ids": [ID]}
DENIED = error_text(TOPIC_DENIED)
NOT_FOUND = (
    "NETWORK_EXCEPTION: The broker at 127.0.0.1:22673 did not answer {} within 3 s. Check bootstrap.servers, and that "
    "the broker is running and reachable from here"
)
UNREAD = "offsets 0 to 2 were not read"


def damage(message: Any) -> None:
    """The first batch has a magic that nobody knows."""
    partition = message.responses[0].partitions[0]
    partition.records = partition.records[:16] + b"\x09" + partition.records[17:]


def truncate(message: Any) -> None:
    """Not even the first batch is whole."""
    partition = message.responses[0].partitions[0]
    partition.records = partition.records[:30]


def spoil(message: Any) -> None:
    """One bit of the producer id of the first batch is another: its checksum is wrong."""
    for partition in message.responses[0].partitions:
        if records := bytearray(partition.records or b""):
            records[50] ^= 1
            partition.records = bytes(records)


def lose_times(message: Any) -> None:
    """The quorum has no replica, so no time of one."""
    partition = message.topics[0].partitions[0]
    partition.current_voters = partition.observers = []


def deny_partition(message: Any) -> None:
    message.topics[0].partitions[0].error_code = CLUSTER_DENIED


def hide_topics(message: Any) -> None:
    for topic in message.topics:
        topic.error_code, topic.partitions = TOPIC_DENIED, []


def deny_one(message: Any) -> None:
    """Only the log of one topic cannot be read."""
    if message.responses[0].topic == TOPIC:
        failing(TOPIC_DENIED)(message)


class Case(NamedTuple):
    """A table of a cluster, one API of which answers otherwise."""

    table: str
    arguments: Mapping[str, Any]
    api: int
    change: Change
    having: bytes = b""  # only answers to requests that contain these


CASES = [
    Case("exposure", {}, FETCH, failing(TOPIC_DENIED)),
    Case("exposure", {}, METADATA, failing(TOPIC_DENIED)),
    Case(
        "exposure", {}, API_VERSIONS, failing(CLUSTER_DENIED), b"\x12kafka-txn-toolkit"
    ),  # not of the connection itself
    Case("partitions", OF_TOPIC, LIST_OFFSETS, failing(TOPIC_DENIED)),
    Case("partitions", OF_TOPIC, LIST_OFFSETS, silence),
    Case("producers", OF_TOPIC, DESCRIBE_PRODUCERS, failing(TOPIC_DENIED)),
    Case("producers", OF_TOPIC, DESCRIBE_PRODUCERS, silence),
    Case("transactions", {}, LIST_TRANSACTIONS, failing(LOADING)),
    Case("transactions", {}, LIST_TRANSACTIONS, silence),
    Case("transactions", OF_ID, DESCRIBE_TRANSACTIONS, failing(NOT_COORDINATOR)),
    Case("transactions", OF_ID, FIND_COORDINATOR, failing(NOT_COORDINATOR)),
    Case("transactions", OF_ID, FIND_COORDINATOR, silence),
    Case("coordinators", OF_ID | {"groups": ()}, FIND_COORDINATOR, failing(TOPIC_DENIED)),
    Case("coordinators", OF_ID | {"groups": ()}, METADATA, hide_topics),
    Case("transaction_owners", {}, LIST_TRANSACTIONS, silence),
    Case("batches", OF_TOPIC, FETCH, silence),
    Case("batches", OF_TOPIC, FETCH, failing(TOPIC_DENIED)),
    Case("batches", OF_TOPIC, FETCH, damage),
    Case("log_transactions", OF_TOPIC, FETCH, truncate),
    Case("log_transactions", OF_TOPIC, FETCH, spoil),
    Case("lso_timeline", OF_TOPIC, FETCH, spoil),
    Case("transaction_log", {"partitions": [29]}, FETCH, failing(TOPIC_DENIED)),
    Case("transaction_log", {"partitions": [29]}, FETCH, spoil),
    Case("transaction_log", {"partitions": [29]}, LIST_OFFSETS, failing(TOPIC_DENIED)),
    Case("offsets_log", {"partitions": [1]}, FETCH, silence),
    Case("offsets_log", {"partitions": [1]}, FETCH, spoil),
    Case("transaction_history", OF_ID, FETCH, failing(TOPIC_DENIED)),
    Case("transaction_history", OF_ID, LIST_OFFSETS, silence),
]


def given(row: Row) -> Given:
    """What a row has, without the time of the observation."""
    return {name: value for name, value in row.items() if value is not None and name != "observed_at"}


def errors_of(rows: Iterable[Row]) -> list[Given]:
    return [given(row) for row in rows if row["error"]]


def test_an_answer_that_is_missing_or_wrong_is_an_error_row() -> None:
    """Of `transaction_history` there was none: an id whose log could not be read had no record, it said.

    The rows of `exposure` did not tell which partition of __transaction_state was not read: all were the same.
    """
    lines = list[str]()
    for case in CASES:
        failure = getattr(case.change, "__name__", case.change)
        lines.append(f"{case.table} {dict(case.arguments)}, API {case.api}: {failure}")
        conversation = changed(load(), case.api, case.change, having=case.having)
        rows = rows_of(conversation, case.table, **case.arguments)
        lines += [f"  {each}" for each in errors_of(rows)]
    compare("error_rows.txt", lines)


def test_history_of_what_cannot_be_read_or_is_not_there() -> None:
    """Without READ, kafka-txn history said that __transaction_state has no record of the id.

    Of two ids, that one is not there was a remark, and exit code 0; describe of the same ids ends with 3.
    """

    def history(conversation: Conversation, *ids: str) -> str:
        source = ["--bootstrap-server", str(conversation.facts["bootstrap_servers"])]
        options = [each for name in ids for each in ("--transactional-id", name)]
        with replaying(conversation, at=conversation.moments["diagnose"]):
            return " ".join(CommandLine(source=source)("history", *options).run().split())

    denied = history(changed(load(), FETCH, failing(TOPIC_DENIED)), ID)
    assert "no record of it" not in denied
    assert f"{DENIED}; offsets 0 to 0 were not read" in denied
    of_two = history(load(), ID, "nobody")
    assert "__transaction_state has no record of 'nobody'." in of_two
    assert "exit code 3" in of_two


def test_a_named_producer_may_be_open_on_a_partition_that_was_not_read() -> None:
    """Its row was left out, as it has no producer: `explain` said that nothing of it is open on any partition."""
    unread = decide_unknown("It could not be read.", missing=("its leader",), is_open=False).finding(observed_at=EPOCH)
    unread = replace(unread, topic="orders", partition=1, error="LEADER_NOT_AVAILABLE: no leader")
    source: Any = SimpleNamespace(records=lambda record, **_: [unread] if record is Finding else [])
    checks = check_resources(source, NamedResources(producer_ids=(7,)))
    assert [each.tp for each in checks.findings] == [("orders", 1)]
    assert verdict_exit_code(checks.findings) == 3


def test_what_a_named_id_left_open_is_found_though_its_coordinator_has_forgotten_it() -> None:
    """Its former producer id is in none of its last records, or in none at all: "nothing of it is open"."""
    hanging = decide_unknown("It hangs.", missing=(), is_open=True).finding(observed_at=EPOCH)
    hanging = replace(hanging, topic="orders", partition=1, producer_id=7, verdict=Verdict.HANGING)
    past = [PastTransaction(transactional_id=ID, kind="init", reason="", producer_id=each) for each in (9, 1, 2, 3)]
    of_producer = replace(hanging, partition=2, producer_id=9, transactional_id="another")
    rows = {Finding: [hanging, of_producer], PastTransaction: past}
    source = Mock(spec=LogDir)
    source.records.side_effect = lambda record, **_: rows.get(record, [])
    checks = check_resources(source, NamedResources(transactional_ids=(ID,)))
    assert [each.tp for each in checks.findings] == [("orders", 1), ("orders", 2)]


def test_what_else_hangs_is_no_part_of_what_is_said_of_a_named_producer() -> None:
    """Ten partitions hang, and of a live producer `explain` said "nothing hangs, 1 ongoing (92 partitions of ...)"."""
    with cluster_of(load(), "diagnose") as cluster:
        *_, total = explain("ProducerFencedException, producerId 25", cluster, recheck_after=0).lines()
    assert total.split(maxsplit=2)[2] == "nothing hangs, 1 ongoing (on the partition above only)"


def test_what_is_said_of_named_ids_and_groups() -> None:
    """Of two ids all states came first: the end of the first one stood below the other, and an error was left out.

    Brokers that do not count the lag of a share group answer without an error; its offset was "nothing committed".
    """
    past = PastTransaction(transactional_id="a", kind="transaction", ended="commit", reason="By its client.")
    unread = replace(past, transactional_id="b", ended=None, reason="It could not be read.", error="NOT_READ: no")
    lag = GroupLag(group_id="g", topic="orders", partition=0, committed_offset=7, observed_at=EPOCH)
    said = ['  "a": commit: By its client.', '  "b": transaction: It could not be read. NOT_READ: no']
    assert said_of_ids(ResourceChecks(history=(past, unread))) == said
    assert said_of_ids(ResourceChecks(group_lag=(lag,))) == ['group "g", orders-0: at offset 7, its lag is not known']


@pytest.mark.parametrize(("code", "is_incomplete"), [
    ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", True), ("TRANSACTIONAL_ID_NOT_FOUND", False),
])  # fmt: skip
def test_an_id_that_could_not_be_looked_up_is_not_checked(code: str, is_incomplete: bool) -> None:
    """Its row had the error; `explain` ended with exit code 0, as if nothing was to be done."""
    denied = Transaction(transactional_id=ID, source="DescribeTransactions", observed_at=EPOCH, error=f"{code}: no")
    source: Any = SimpleNamespace(records=lambda record, **_: [denied] if record is Transaction else [])
    checks = check_resources(source, NamedResources(transactional_ids=(ID,)))
    assert replace(checks, not_checked=()).is_incomplete == is_incomplete


def test_exposure_keeps_what_was_read_before_a_broker_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def records(client: BrokerClient, topic: CoordinatorTopic, *, newest: int) -> Iterator[TransactionLogRecord]:
        yield TransactionLogRecord(transactional_id="payments-7", client_transaction_version=1)
        raise BrokerError("The leader is gone.", code="NOT_LEADER_OR_FOLLOWER")

    monkeypatch.setattr(coordinator_logs, "transaction_log_records", records)
    rows = [row for row in rows_of(load(), "exposure") if row["subject"] == "transactional_id"]
    assert [(row["transactional_id"], (row["error"] or "").partition(":")[0]) for row in rows] == [
        ("payments-7", ""),
        (None, "NOT_LEADER_OR_FOLLOWER"),
    ]


def test_exposure_tells_that_older_records_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id whose client wrote before the newest 20,000 offsets was not exposed, as no row had it."""
    monkeypatch.setattr(coordinator_logs, "transaction_log_records", lambda *_, newest: iter(()))
    for end, error in ((20_005, []), (20_006, ["NOT_READ: of partition 3, only the newest 20,000 offsets were read"])):
        partition = replace(T_0, topic=STATE_TOPIC, partition=3, log_start_offset=5, high_watermark=end)
        monkeypatch.setattr(coordinator_logs, "_partitions", lambda *_, partition=partition: [partition])
        assert [each.error for each in coordinator_logs._records_or_error(client())] == error


def test_a_finding_tells_that_the_log_around_it_could_not_be_read() -> None:
    """It had neither cause nor a word about why."""
    [row] = rows_of(changed(load(), FETCH, deny_one), "findings", **OF_TOPIC, recheck_after=1.0)
    assert (row["verdict"], row["producer_id"], row["start_offset"]) == ("hanging", 1, 2)
    assert (row["opened_at"], row["records_held"], row["bytes_held"]) == (None, None, None)
    [left_out] = [each["value"] for each in row["evidence"] if each["name"] == "left_out"]
    assert left_out == f"the log around it could not be read: {DENIED}"
    assert str(row["cause"]).startswith("written but never added: the coordinator wrote 1 record of producer 1 epoch 0")


def test_a_damaged_record_of_the_coordinators_may_be_of_any_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of the id was wrong: the decision was not decoded, and no commit seemed to include the records."""
    whole = state_record(0, ID, 7, "PrepareCommit", after())
    spoiled = whole.replace(ID.encode(), ID.upper().encode())
    leader = replace(T_0, topic=STATE_TOPIC, partition=3, high_watermark=1)
    monkeypatch.setattr(coordinator_logs, "_partitions", lambda *_: [leader])
    for records, has_error in ((whole, False), (spoiled, True)):
        sending(monkeypatch, records)
        topic: Any = SimpleNamespace()
        (record,) = coordinator_logs.transaction_log_records(SILENT_CLIENT, topic, having=[ID.encode()])
        assert (record.error is not None) is has_error


SILENT_CLIENT: Any = SimpleNamespace(timeout=1)
T_0 = Partition(topic="t", partition=0, leader=1, log_start_offset=0, high_watermark=3, observed_at=after())


def sending(monkeypatch: pytest.MonkeyPatch, records: bytes | Callable[[FetchPosition], bytes]) -> None:
    """A leader that sends these records, whatever is asked for."""

    def fetch_records(client: BrokerClient, positions: list[FetchPosition], **_: Any) -> list[FetchedBatches]:
        sent = [records if isinstance(records, bytes) else records(each) for each in positions]
        return [FetchedBatches(records=each, high_watermark=9) for each in sent]

    monkeypatch.setattr(partition_log, "fetch", fetch_records)
    monkeypatch.setattr(partition_log, "compacted_topics", lambda *_: {"t": False})


@pytest.mark.parametrize(
    "damage",
    ["CORRUPT_MESSAGE: the checksum of the batch at offset 1 does not match", "CORRUPT_BATCH"],
    ids=["checksum", "bytes"],
)
def test_damage_ends_what_is_known_of_a_log(monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """A leader sends its bytes unchecked: the damaged marker of another producer passed for this one's.

    Open batches of another epoch, or a marker, may be among bytes that are no batch; what came after was all there is.
    """
    spoiled = bytearray(marker(1, 7, after()))
    spoiled[50] ^= 1  # of the producer id
    is_batch = damage != "CORRUPT_BATCH"
    sending(monkeypatch, data(0, 7, after()) + (spoiled if is_batch else b"x" * len(spoiled)) + data(2, 7, after()))
    start = ExcerptStart(tp=T_0.tp, leader=T_0, offset=0, producer_ids=frozenset({6, 7}))
    excerpt = partition_log.read_excerpts(SILENT_CLIENT, [start], compacted={}, deadline=time.monotonic() + 9)[T_0.tp]
    assert (excerpt.headers["base_offset"].tolist(), excerpt.stop) == ([0], 1)
    assert str(excerpt.error).startswith(damage)
    case: Any = SimpleNamespace(producer_id=6, opened_after=None, begun_after=None)
    search = partition_log._read_markers(SILENT_CLIENT, T_0, [case], {}, deadline=time.monotonic() + 9)
    assert (search.markers, [*search.unread]) == ([], [6])
    if is_batch:  # nor does a consumer receive it: it was a marker that readers skip, and the record before committed
        reader = partition_log.LiveOffsetReader(SILENT_CLIENT, replace(T_0, last_stable_offset=3))
        ranges, errors = reader.classified_ranges(1, 2)
        assert ([each.status for each in ranges], errors) == ([None], [offset_reader.WRONG_CHECKSUM.format(1)])


def test_offsets_outside_of_a_log_have_their_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's offsets that retention had deleted were in no count of its lag."""
    sending(monkeypatch, data(2, 7, after()))
    leader = replace(T_0, log_start_offset=2, last_stable_offset=3)
    ranges, _ = partition_log.LiveOffsetReader(SILENT_CLIENT, leader).classified_ranges(0, 5)
    assert [(each.first, each.last, each.status) for each in ranges] == [
        (0, 1, "deleted"), (2, 2, "committed"), (3, 4, "beyond_high_watermark")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (failing(TOPIC_DENIED), DENIED),
        (deny_partition, error_text(CLUSTER_DENIED)),
        (lose_times, "no time of the leader was returned"),
        (silence, NOT_FOUND.format("DescribeQuorum")),
    ],
    ids=["of all", "of the partition", "no time", "silence"],
)
def test_an_unknown_time_of_the_brokers_names_the_api_and_its_error(change: Change, error: str) -> None:
    """Neither a controller's clock nor a coordinator's record."""
    conversation = changed(changed(load(), LIST_OFFSETS, failing(TOPIC_DENIED)), DESCRIBE_QUORUM, change)
    with cluster_of(conversation, "diagnose") as cluster:
        assert cluster.brokers_time() == BrokersTime(error=f"DescribeQuorum: {error}")


def test_a_lag_that_cannot_be_explained_or_may_lack_topics_tells_so() -> None:
    lines = list[str]()
    changes: list[tuple[int, Change]] = [(FETCH, failing(TOPIC_DENIED)), (DESCRIBE_ACLS, silence)]
    for api, change in changes:
        with cluster_of(changed(load(), api, change), "lag-table") as cluster:
            lines += [f"API {api}", *(f"  {given(row)}" for row in cluster.group_lag_rows("billing"))]
    with cluster_of(load(), "lag-table") as cluster:
        readers = cluster.offset_readers([TopicPartition(TOPIC, 0)])
        shared = {TopicPartition(TOPIC, 0): SharePartition(1, 7, None)}
        [share] = lag_of_share_group(readers, "billing", shared, level=None, max_offsets=10)
    with cluster_of(load(), "lag-unknown") as cluster:
        checks = check_resources(cluster, NamedResources(groups=("nobody",)), recheck_after=0)
    lines += ["a share group, and one that no broker has"]
    lines += [f"  {given(asdict(each))}" for each in (share, *checks.group_lag)]
    compare("lag_error_rows.txt", lines)
    assert not checks.is_incomplete
    assert replace(checks, not_checked=("Groups: no answer.",)).is_incomplete


def offsets_in_remote_storage(broker: int, request: Any) -> Any:
    first = {-2: 0, -4: 120}  # log start, local log start
    return by_topic([("orders", listed_offset(0, first.get(request.timestamp, 150), leader_epoch=4))])


@pytest.mark.parametrize(
    ("timeout", "replaced", "errors"),
    [
        (0.0, {"Fetch": lambda *_: fetched(None, high_watermark=102)},
         {"broker_id": 1, "error": UNREPLICATED.format(102)}),
        (0.0, {"Fetch": lambda *_: fetched(None), "ListOffsets": offsets_in_remote_storage},
         {"broker_id": 1, "error": NOT_RETURNED.format(100)}),
        (0.3, {"Fetch": lambda *_: fetched(None, error_code=NO_LEADER, high_watermark=-1)},
         {"error": "LEADER_NOT_AVAILABLE: the partition has no leader"}),
    ],
    ids=["not replicated", "remote storage", "no leader any more"],
)  # fmt: skip
def test_offsets_that_a_leader_does_not_return_are_an_error_row(
    timeout: float, replaced: Mapping[str, Any], errors: Given
) -> None:
    fake = FakeCluster(**replaced)
    client = cast(BrokerClient, fake)
    leader = read_metadata(client, ["orders"]).partitions[TopicPartition("orders", 0)]
    fake.timeout = timeout
    if "broker_id" not in errors:
        fake.leaders["orders", 0] = (-1, 5)  # it is lost while the log is read
    tables = batch_tables_of(read_offsets(client, leader, 100, 104))
    unread = (
        {"topic": "orders", "partition": 0} | errors | {"error": f"{errors['error']}; offsets 100 to 103 were not read"}
    )
    assert [given(row) for table in tables for row in table.to_pylist()] == [unread]


@pytest.mark.parametrize(("patience", "most"), [(9, 6), (-1, 2)], ids=["in time", "too late"])
def test_a_search_of_many_offsets_ends_in_time(monkeypatch: pytest.MonkeyPatch, patience: int, most: int) -> None:
    """Of a thousand partitions, 200,000 offsets of each would have been read for one transaction."""
    monkeypatch.setattr(partition_log, "MAX_OFFSETS", 2)
    monkeypatch.setattr(partition_log, "MOST_OFFSETS", 6)
    monkeypatch.setattr(partition_log, "search_from", lambda cases: 0)
    sending(monkeypatch, lambda position: data(position.offset, 7, after()))
    case: Any = SimpleNamespace(producer_id=6, opened_after=None, begun_after=after(), open_parts=[])
    leader, deadline = replace(T_0, high_watermark=9), time.monotonic() + patience
    search = partition_log._read_markers(SILENT_CLIENT, leader, [case], {}, deadline=deadline)
    assert search.unread == {6: f"more than {most} offsets of t-0 would have to be read"}


def test_a_task_of_spark_that_cannot_read_its_range_returns_an_error_row() -> None:
    config = ClientConfig(load().facts["config"])
    options = batches_options({"subscribe": TOPIC, "timeout": "3"})
    reader, at = BatchesReader(options, config, struct_type(BATCHES)), load().moments["table-batches"]

    def read(task: Any) -> list[Given]:
        return [given(row) for batch in reader.read(task) for row in batch.to_pylist() if row["error"]]

    place = {"topic": TOPIC, "partition": 0}
    with replaying(load(), at=at):
        [task] = reader.partitions()
    with replaying(changed(load(), METADATA, silence), at=at):
        assert read(task) == [place | {"error": f"{NOT_FOUND.format('Metadata')}; {UNREAD}"}]
    with replaying(changed(load(), LIST_OFFSETS, failing(TOPIC_DENIED)), at=at):
        [task, _] = reader.partitions()
        assert read(task) == [AT_TOPIC | {"error": DENIED}]


def test_a_list_of_aborts_stops_at_the_one_that_a_broker_refuses() -> None:
    [call] = [each for each in calls_on("4.3.1-everyday")[0] if each.name == "abort-list-done"]
    conversation = changed(load(), WRITE_TXN_MARKERS, failing(CLUSTER_DENIED))
    with replaying(conversation, at=conversation.moments[call.name]):
        answer = call.run()
    assert "exit code 6" in answer
    stopped = (
        "0 of 2 transactions aborted; stopped at __consumer_offsets-1@0.\nNot tried: late-after-commit-000007-0@4."
    )
    assert stopped in answer
    assert f"the ABORT marker for __consumer_offsets-1@0 with an error: {error_text(CLUSTER_DENIED)}." in answer


INCOMPLETE = "INCOMPLETE_RESPONSE: the response to "


def client(**replaced: Callable[..., Any]) -> BrokerClient:
    return cast(BrokerClient, FakeCluster(**replaced))


def empty() -> Callable[..., Any]:
    """An API that answers, with nothing of what it was asked for."""
    lists = ("topics", "transaction_states", "coordinators", "markers", "responses", "partitions", "results", "groups")
    return lambda broker, request: SimpleNamespace(**dict.fromkeys(lists, ()), error_code=0, throttle_time_ms=0)


def missing_of(cluster: BrokerClient) -> list[str]:
    observation = observe(
        cluster, read_metadata(cluster, ["orders"]).partitions, selection=Selection(topics=["orders"])
    )
    rows = Diagnosis.of([observation]).findings()
    assert {row.verdict for row in rows} == {"unknown"}
    return [each for row in rows for each in row.missing or ()]


@pytest.mark.parametrize("api", ["ListOffsets", "DescribeProducers"])
def test_a_partition_that_a_response_leaves_out_is_unknown(api: str) -> None:
    """It counted as clear, also where a transaction was open."""
    held, clear = FakeCluster(**{api: empty()}), FakeCluster(ListOffsets=ended)
    clear.open, clear.replaced[api] = {}, empty()
    for cluster in (held, clear):
        missing = missing_of(cast(BrokerClient, cluster))
        assert any(each.startswith(f"{INCOMPLETE}{api} does not have ") for each in missing)


def ended(broker: int, request: Any) -> Any:
    """A log without an open transaction."""
    return by_topic([("orders", listed_offset(0, 9, leader_epoch=4))])


def test_an_owner_that_is_not_described_and_a_coordinator_that_may_not_have_loaded_are_unknown() -> None:
    """The first was a traceback, the second a coordinator that has loaded."""
    assert any(f"{INCOMPLETE}DescribeTransactions" in each for each in missing_of(client(DescribeTransactions=empty())))
    without_owner = FakeCluster(DescribeTransactions=empty())
    without_owner.ids = {1: [], 2: []}
    missing = missing_of(cast(BrokerClient, without_owner))
    assert any("did not show whether it has loaded 1 of the __transaction_state partitions" in each for each in missing)
    (row,) = named_transactions(client(DescribeTransactions=empty()), ["payments"])
    assert (row.error or "").startswith(f"{INCOMPLETE}DescribeTransactions does not have this id")


def test_a_coordinator_that_is_not_found_has_an_error() -> None:
    (row,) = read_coordinators(client(FindCoordinator=empty()), ["payments"], TRANSACTION)
    assert (row.error or "").startswith(f"{INCOMPLETE}FindCoordinator does not have this transaction")
    assert row.leader is not None
    assert row.agrees is None


def test_a_topic_or_partition_without_metadata_has_an_error() -> None:
    """``__transaction_state`` passed for a topic that is not created yet, so that no coordinator owns anything."""
    errors = read_metadata(client(Metadata=empty()), ["orders"]).errors
    assert errors == {"orders": f"{INCOMPLETE}Metadata does not have it"}
    whole = FakeCluster()
    del whole.leaders["__transaction_state", 0]
    found = read_metadata(cast(BrokerClient, whole), ["__transaction_state"]).partitions
    assert [(each.partition, each.error is None) for each in sorted(found.values())] == [(0, False), (1, True)]
    assert any("__transaction_state" in each for each in missing_of(cast(BrokerClient, whole)))


def test_a_fetch_without_the_partition_is_an_error() -> None:
    position = FetchPosition(TopicPartition("orders", 0), 0, 1)
    (fetched,) = fetch(client(Fetch=empty()), [position], max_bytes=1)
    assert (fetched.error or "").startswith(f"{INCOMPLETE}Fetch")


def test_a_broker_that_limits_the_bytes_of_a_client_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is empty then, so most of a log was unread, and no records could be saved, under any small quota."""
    throttled = SimpleNamespace(error_code=0, responses=(), throttle_time_ms=900)
    answers = [throttled, throttled, fetched(None, high_watermark=102)]
    position = FetchPosition(TopicPartition("orders", 0), 0, 1)
    (found,) = fetch(client(Fetch=lambda *_: answers.pop(0)), [position], max_bytes=1)
    assert (found.error, found.high_watermark, answers) == (None, 102, [])
    monkeypatch.setattr(FakeCluster, "timeout", 0.0)
    (found,) = fetch(client(Fetch=lambda *_: throttled), [position], max_bytes=1)
    assert found.error == THROTTLED


def test_a_broker_that_limits_a_client_for_longer_than_its_timeout_is_not_asked_again() -> None:
    """Of 1 byte a second, each fetch waited for 30 s and failed by its own pause; a look took two minutes."""
    for_minutes = SimpleNamespace(error_code=0, responses=(), throttle_time_ms=164_000)
    answers, position = [for_minutes], FetchPosition(TopicPartition("orders", 0), 0, 1)
    (fetched,) = fetch(client(Fetch=lambda *_: answers.pop()), [position], max_bytes=1)
    assert (fetched.error, answers) == (THROTTLED, [])


def test_a_marker_without_a_response_of_its_own_may_be_written() -> None:
    plan = abort_plan(RowCluster())
    progress = plan.action.progress(plan, None)
    silent: Any = SimpleNamespace(client=client(WriteTxnMarkers=empty()))
    assert plan.action.send(replace(plan, cluster=silent), progress).startswith("INCOMPLETE_RESPONSE")
    assert progress.effect == "uncertain"


@pytest.mark.parametrize(
    ("resource", "api"), [(TRANSACTIONAL_IDS, "DescribeTransactions"), (TOPICS, "Metadata"), (GROUPS, "DescribeGroups")]
)
def test_a_probe_without_an_answer_proves_no_visibility(resource: AclResource, api: str) -> None:
    """That no transactional id is hidden is what `hanging` without an owner rests on."""
    acls = {"DescribeAcls": lambda broker, request: SimpleNamespace(error_code=0, resources=[])}
    visibility = visibility_of(resource, client(**acls, **{api: empty()}), [1, 2])
    assert not visibility.proofs
    assert len(visibility.gaps) == 1


def test_settings_offsets_and_groups_that_a_response_leaves_out_are_errors() -> None:
    """The first was no row, the others were tracebacks."""
    (config,) = broker_configs(client(DescribeConfigs=empty()), [1], ["some.key"])
    assert (config.error or "").startswith(f"{INCOMPLETE}DescribeConfigs")
    (partition,) = read_partitions(client(), read_metadata(client(), ["orders"]).partitions)
    with pytest.raises(BrokerError, match="does not have this partition") as failed:
        offset_of(client(ListOffsets=empty()), NOW, partition)
    assert failed.value.code == "INCOMPLETE_RESPONSE"
    brokers = FakeCluster(DescribeGroups=empty())
    brokers.leaders["__consumer_offsets", 0] = (1, 0)
    brokers.ids[1].append(("billing", 1, ""))
    error = undescribed_group(cast(BrokerClient, brokers), "billing")
    assert (error or "").startswith(f"{INCOMPLETE}DescribeGroups does not have this group")


def test_a_group_that_cannot_be_looked_up_has_the_error_of_the_lookup() -> None:
    """Its coordinator was not found, or does not answer: neither says that there is no such group."""

    def lost(broker: int | None, request: Any) -> NoReturn:
        raise ConnectionFailed("Broker 1 closed the connection.", do="Try again.")

    for answer, error in ((empty(), f"{INCOMPLETE}FindCoordinator does not have this group"), (lost, "NETWORK_EXC")):
        brokers = FakeCluster(FindCoordinator=answer)
        brokers.leaders["__consumer_offsets", 0] = (1, 0)
        assert (undescribed_group(cast(BrokerClient, brokers), "billing") or "").startswith(error)
    with pytest.raises(ConnectionFailed, match="closed the connection"):
        committed_offsets(client(OffsetFetch=lost), "billing", 1)


def test_share_offsets_and_members_that_a_response_leaves_out_are_errors() -> None:
    """The one was a traceback, the other a group without members: nobody runs, it seemed, and no error said more."""
    silent = client(DescribeShareGroupOffsets=lambda broker, request: SimpleNamespace(groups=[]))
    with pytest.raises(BrokerError, match="DescribeShareGroupOffsets does not have this group"):
        share_group_offsets(silent, "shared", 1)
    listed = SimpleNamespace(error_code=0, groups=[SimpleNamespace(group_id="billing", protocol_type="consumer")])
    apis = {"ListGroups": lambda broker, request: listed, "DescribeGroups": empty()}
    (group,), error = client_groups(client(**apis), ["billing-0_0"])
    assert (group.group_id, group.members, group.is_described) == ("billing", [], False)
    assert (error or "").startswith(f"{INCOMPLETE}DescribeGroups")


def test_a_broker_that_does_not_list_its_groups_is_an_error_of_the_owners() -> None:
    refused = SimpleNamespace(error_code=31, groups=[])
    groups, error = client_groups(client(ListGroups=lambda broker, request: refused), ["billing-0_0"])
    assert groups == []
    assert (error or "").startswith("CLUSTER_AUTHORIZATION_FAILED")
