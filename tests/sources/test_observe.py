"""Observing a cluster that changes, contradicts itself or does not respond: gaps and errors, never a wrong verdict."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.analysis import build
from tests.analysis.logged import coordinator_log, open_transaction, record, with_logs
from tests.formats.packed import pack_batch
from tests.sources.fake import LOADING, NOW, FakeCluster, by_topic, fetched, ids_with_error, listed_offset, producer
from toolkit.analysis.diagnosis.case import DiagnoseOptions
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.errors import BrokerError, ConnectionFailed, NotFound, UsageError
from toolkit.formats.batch_records import Record
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.schema.live import Partition
from toolkit.schema.table import EVERYTHING, Error, Selection, TopicPartition, utc_now
from toolkit.sources.live import observe as observe_module
from toolkit.sources.live import partition_log, transactions
from toolkit.sources.live.broker_client import OTHER_CLUSTER, BrokerClient
from toolkit.sources.live.cluster import Cluster, ClusterEvidence
from toolkit.sources.live.coordinators import (
    GROUP,
    TRANSACTION,
    TRANSACTIONAL_IDS,
    CoordinatorTopic,
    read_coordinators,
    visibility_of,
)
from toolkit.sources.live.group_offsets import group_ids, groups_at
from toolkit.sources.live.leaders import (
    BROKERS_DIFFER,
    ClusterMetadata,
    FetchedBatches,
    FetchPosition,
    PartitionLeader,
    read_metadata,
    read_newest_metadata,
    read_partitions,
    read_producers,
    resolve_partitions,
)
from toolkit.sources.live.observe import LiveEvidence, _all_explained, _unread, observe
from toolkit.sources.live.partition_log import LiveOffsetReader, read_offsets, search_markers
from toolkit.sources.live.transactions import (
    TransactionFilters,
    TransactionLog,
    all_ids,
    filtered_transactions,
    named_transactions,
    numbered_ids,
    read_committed,
)


def wire_to(cluster: FakeCluster) -> BrokerClient:
    return cast(BrokerClient, cluster)


def orders_of(cluster: FakeCluster) -> Partition:
    (partition,) = read_partitions(wire_to(cluster), read_metadata(wire_to(cluster), ["orders"]).partitions)
    return partition


def observation(cluster: FakeCluster) -> Observation:
    leaders = read_metadata(wire_to(cluster), ["orders"]).partitions
    cluster.sent_requests.clear()
    return observe(wire_to(cluster), leaders, selection=Selection(topics=["orders"]))


def test_partitions_are_numbers_of_topics_or_pairs() -> None:
    metadata = read_metadata(wire_to(FakeCluster()), ["orders", STATE_TOPIC])
    orders, first, second = TopicPartition("orders", 0), TopicPartition(STATE_TOPIC, 0), TopicPartition(STATE_TOPIC, 1)
    assert resolve_partitions(metadata, None, None) == [first, second, orders]
    assert resolve_partitions(metadata, [STATE_TOPIC], [1, 0]) == [first, second]
    assert resolve_partitions(metadata, None, [("orders", 0), (STATE_TOPIC, 1), ("orders", 0)]) == [second, orders]
    assert resolve_partitions(metadata, [], None) == []
    for topics, partitions in ((None, [0]), (["orders"], [("orders", 0)])):
        with pytest.raises(UsageError, match=r"^partitions are either numbers, with topics, or pairs"):
            resolve_partitions(metadata, topics, partitions)
    with pytest.raises(NotFound, match=rf"^Topic '{STATE_TOPIC}' has no partition 7: it has 0 to 1\."):
        resolve_partitions(metadata, [STATE_TOPIC], [0, 7])
    with pytest.raises(NotFound, match=r"^The cluster has no topic 'nowhere'\."):
        resolve_partitions(read_metadata(wire_to(FakeCluster()), ["orders", "nowhere"]), ["orders", "nowhere"], None)
    denied = FakeCluster(Metadata=lambda broker, request: SimpleNamespace(topics=[FakeCluster()._topic("orders", 29)]))
    with pytest.raises(BrokerError, match=r"^Topic 'orders' cannot be described: TOPIC_AUTHORIZATION_FAILED"):
        resolve_partitions(read_metadata(wire_to(denied), ["orders"]), ["orders"], None)


def test_coordinators_are_queried_between_two_reads_of_the_leader() -> None:
    """And the brokers' time before them: after them, it would be of a time at which the transaction may have ended."""
    cluster = FakeCluster()
    observed = observation(cluster)
    apis = [api for api, _ in cluster.sent_requests]
    producers, coordinators = ["DescribeProducers"], ["ListTransactions", "DescribeTransactions"]
    position = 0
    for api in ["ListOffsets", *producers, *coordinators, *producers, "ListOffsets", "Fetch"]:
        position = apis.index(api, position) + 1
    assert apis.count("DescribeQuorum") == 1
    assert apis.index("DescribeQuorum") < min(apis.index(each) for each in coordinators)
    assert (observed.brokers_time.time, observed.brokers_time.is_current) == (NOW, True)
    assert observed.coverage.gaps == []
    assert observed.coverage.proofs == [
        "all 2 brokers answered ListTransactions by producer id and open state",
        "no broker has an authorizer, so nothing is hidden",
    ]
    assert [each.state for each in observed.transactions] == ["CompleteAbort"], "only ids that matter are described"


def test_findings_need_no_records_of_partitions_where_nothing_is_open_or_held() -> None:
    """Open, clear, held by nothing open, without an answer, and open for the coordinator only, one at a new leader."""

    def observed(*, clear_partitions: bool) -> Observation:
        cluster = FakeCluster()
        cluster.leaders |= {("orders", number): (1, 4) for number in range(1, 6)}
        cluster.ids[2] = [("other", 8, "Ongoing")]
        offsets, described_ids, moved = cluster.ListOffsets, cluster.DescribeTransactions, {0, 1}

        def list_offsets(broker: int, request: Any) -> Any:
            refused = {3, 5} if request.isolation_level in moved else {3}
            moved.discard(request.isolation_level)
            message = offsets(broker, request)
            for each in message.topics[0].partitions:
                if each.partition_index in refused:
                    each.error_code, each.offset = 6, -1
                elif each.partition_index not in {0, 2}:
                    each.offset = 150
            return message

        def describe(broker: int, request: Any) -> Any:
            answer = described_ids(broker, request)
            for each in answer.transaction_states:
                each.topics = [SimpleNamespace(topic="orders", partitions=[4, 5])] if each.producer_id == 8 else []
            return answer

        cluster.replaced |= {"ListOffsets": list_offsets, "DescribeTransactions": describe}
        leaders = read_metadata(wire_to(cluster), ["orders"]).partitions
        return observe(wire_to(cluster), leaders, selection=EVERYTHING, clear_partitions=clear_partitions)

    every, notable = observed(clear_partitions=True), observed(clear_partitions=False)
    assert sorted(each.partition for each in every.partitions) == [0, 1, 2, 3, 4, 5]
    assert sorted(each.partition for each in notable.partitions) == [0, 2, 3, 4, 5]
    assert all(each in every.partitions for each in notable.partitions)
    expected, found = (
        [(each.partition, each.verdict) for each in Diagnosis.of([one]).findings()] for one in (every, notable)
    )
    assert found == expected
    assert {partition for partition, _ in found} == {0, 2, 3, 4, 5}


def test_only_an_owner_that_has_it_open_explains_a_transaction() -> None:
    """Else the coordinators' log is read: an id may be hidden."""
    opened = [build.producer()]
    assert _all_explained(opened, [build.transaction()])
    for other in ({"state": "CompleteAbort"}, {"error": "NOT_COORDINATOR: moved"}, {"epoch": 1}, {"on": ()}):
        assert not _all_explained(opened, [build.transaction(**other)]), other


def test_without_open_transactions_nothing_is_read_again() -> None:
    """And it does not matter which software the brokers run, which costs no request."""
    ends = by_topic([("orders", listed_offset(0, 9, leader_epoch=4))])
    cluster = FakeCluster(ListOffsets=lambda broker, request: ends)
    cluster.open, cluster.cluster_id = {}, "redpanda.2d339cd9-b540-484d-80da-16cd0650e49b"
    observed = observation(cluster)
    assert (observed.partitions_after, observed.producers_after, observed.coverage.gaps) == ([], [], [])
    needless = {"DescribeAcls", "ApiVersions", "DescribeCluster", "DescribeConfigs"}
    assert needless.isdisjoint(api for api, _ in cluster.sent_requests), "there is nothing to prove"


def test_a_loading_coordinator_is_a_gap() -> None:
    """A broker answers so for all its ids while any of its partitions loads."""
    cluster = FakeCluster()
    cluster.replaced["ListTransactions"] = lambda b, r: LOADING if b == 2 else cluster.ListTransactions(b, r)
    observed = observation(cluster)
    assert observed.coverage.gaps == ["broker 2 did not answer ListTransactions: COORDINATOR_LOAD_IN_PROGRESS"]
    assert not any("listed" in proof for proof in observed.coverage.proofs)
    (failed,) = [each for each in observed.transactions if each.transactional_id is None]
    assert (failed.broker_id, failed.source) == (2, "ListTransactions")


@pytest.mark.parametrize("loading_at", [0, 1])
def test_a_leader_that_is_still_loading_is_a_gap(loading_at: int) -> None:
    """It lists without an error and without ids that still load: their live transactions were once `hanging`."""
    cluster, probed = FakeCluster(), []

    def describe(broker: int, request: Any) -> Any:
        probed.extend([broker] if broker == 2 else [])
        is_loading = broker == 2 and len(probed) == loading_at + 1
        return (ids_with_error(16) if is_loading else cluster.DescribeTransactions)(broker, request)

    cluster.replaced["DescribeTransactions"] = describe
    assert observation(cluster).coverage.gaps == [
        "broker 2 has not loaded 1 of the __transaction_state partitions that it leads: NOT_COORDINATOR"
    ]


def test_a_loading_or_unresponsive_coordinator_proves_no_permission() -> None:
    def silent(broker: int, request: Any) -> Any:
        raise ConnectionFailed("Nobody is there.", do="")

    cluster = FakeCluster(ListTransactions=lambda broker, request: LOADING, DescribeAcls=silent)
    leaders = read_metadata(wire_to(cluster), ["orders"]).partitions
    coverage = observe(wire_to(cluster), leaders, selection=EVERYTHING).coverage
    assert [gap.partition(":")[0] for gap in coverage.gaps] == [
        f"broker {n} did not answer ListTransactions" for n in (1, 2)
    ]
    assert coverage.topic_gaps == ["a proof that no Topic is hidden from this principal: Nobody is there."]
    assert coverage.proofs == []


def test_two_coordinators_of_one_id_are_a_gap() -> None:
    cluster = FakeCluster()
    cluster.ids[2].append(("payments", 7, "Ongoing"))
    assert observation(cluster).coverage.gaps == ["one coordinator for 'payments': brokers 1, 2 answer for it"]


@pytest.mark.parametrize(
    ("leaders", "gap"),
    [
        ([(2, 7), (-1, 7)], "a leader of __transaction_state partition 1: no broker answers for its ids"),
        ([(-1, 7), (1, 8)], "a leader of __transaction_state partition 1: no broker answers for its ids"),
        (
            [(2, 7), (2, 8)],
            "a stable coordinator: leadership of __transaction_state partition 1 moved during the observation",
        ),
    ],
)
def test_coordinators_that_stop_or_move_during_the_observation_are_a_gap(
    leaders: list[tuple[int, int]], gap: str
) -> None:
    cluster = FakeCluster()

    def metadata(broker: int | None, request: Any) -> Any:
        if request.topics and request.topics[0].name == STATE_TOPIC:
            cluster.leaders[STATE_TOPIC, 1] = leaders.pop(0)
        return cluster.Metadata(broker, request)

    cluster.replaced["Metadata"] = metadata
    assert observation(cluster).coverage.gaps == [gap]


def test_an_id_that_expired_after_the_listing_is_dead() -> None:
    """TRANSACTIONAL_ID_NOT_FOUND is its coordinator's answer, not a failure."""
    observed = observation(FakeCluster(DescribeTransactions=ids_with_error(105)))
    (txn,) = observed.transactions
    assert (txn.state, txn.producer_id, txn.error) == ("Dead", 7, None)
    assert observed.coverage.gaps == []


@pytest.mark.parametrize(("knows", "state", "error"), [(True, "CompleteAbort", ""), (False, "Dead", "NOT_COORDINATOR")])
def test_a_coordinator_that_moved_after_the_listing_is_found_again(knows: bool, state: str, error: str) -> None:
    """If the new one does not have the id, the error of the old one is kept."""
    cluster = FakeCluster()

    def describe(broker: int, request: Any) -> Any:
        if broker == 1 and "payments" in request.transactional_ids:
            cluster.ids[2], cluster.ids[1] = cluster.ids[2] + cluster.ids[1], []
            return ids_with_error(16)(broker, request)
        return (cluster.DescribeTransactions if knows else ids_with_error(105))(broker, request)

    cluster.replaced["DescribeTransactions"] = describe
    (txn,) = observation(cluster).transactions
    assert (txn.coordinator_id, txn.state, (txn.error or "").partition(":")[0]) == (2, state, error)


def test_an_id_without_a_coordinator_in_the_response_is_described_by_any_broker() -> None:
    cluster = FakeCluster(
        FindCoordinator=lambda broker, request: SimpleNamespace(coordinators=[]),
        DescribeTransactions=ids_with_error(16),
    )
    (txn,) = named_transactions(wire_to(cluster), ["payments"])
    assert [broker for api, broker in cluster.sent_requests if api == "DescribeTransactions"] == [None]
    assert (txn.transactional_id, txn.producer_id) == ("payments", None)
    assert (txn.error or "").startswith("NOT_COORDINATOR: ")


def test_a_failed_description_is_an_error_of_the_id() -> None:
    def describe(broker: int, request: Any) -> Any:
        raise BrokerError("Broker 1 at one:9092 did not answer.", code="REQUEST_TIMED_OUT")

    (txn,) = observation(FakeCluster(DescribeTransactions=describe)).transactions
    assert (txn.transactional_id, txn.producer_id, txn.state) == ("payments", 7, "CompleteAbort")
    assert txn.error == "REQUEST_TIMED_OUT: Broker 1 at one:9092 did not answer"


def test_a_leader_that_moved_is_queried_once_more() -> None:
    cluster = FakeCluster()
    leaders = read_metadata(wire_to(cluster), ["orders"]).partitions
    for moved in ((1, 9), (2, 5)):  # the leader reports a newer epoch, and another leader is found
        cluster.leaders["orders", 0] = moved
        (found,) = read_partitions(wire_to(cluster), leaders)
        assert (found.leader, found.leader_epoch, found.high_watermark, found.error) == (*moved, 150, None)

    cluster.replaced["Metadata"] = lambda broker, request: SimpleNamespace(topics=[])
    cluster.leaders["orders", 0] = (1, 6)
    (found,) = read_partitions(wire_to(cluster), {TopicPartition("orders", 0): found})
    assert (found.error or "").startswith("NOT_LEADER_OR_FOLLOWER: ")
    assert (found.last_stable_offset, found.high_watermark) == (None, None)


def test_an_unreported_log_end_is_null() -> None:
    cluster = FakeCluster()

    def offsets(broker: int, request: Any) -> Any:
        message = cluster.ListOffsets(broker, request)
        if request.replica_id == -2:
            message.topics[0].partitions[0].error_code = 42
        return message

    cluster.replaced["ListOffsets"] = offsets
    found = orders_of(cluster)
    assert (found.high_watermark, found.log_end_offset, found.error) == (150, None, None)


def test_impossible_responses_are_unknown() -> None:
    """Redpanda answered with coordinator epoch -1 and a nonsense time (redpanda#11949)."""
    cluster = FakeCluster()
    odd = producer(7, epoch=70_000, start=5, last_sequence=-1, last_timestamp=2**62, coordinator_epoch=-1)
    cluster.open["orders", 0] = [odd]
    (found,) = read_producers(wire_to(cluster), read_metadata(wire_to(cluster), ["orders"]).partitions)
    unknown = (found.producer_epoch, found.last_sequence, found.last_timestamp, found.coordinator_epoch)
    assert unknown == (None, None, None, None)
    assert (found.producer_id, found.current_txn_start_offset) == (7, 5)


def test_who_only_reads_creates_no_coordinators_topic() -> None:
    """FindCoordinator has it created: `describe`, `coordinator` and an agent's `explain` changed the cluster."""
    cluster = FakeCluster(DescribeConfigs=lambda broker, request: SimpleNamespace(results=()))
    cluster.leaders = {("orders", 0): (1, 4)}
    (described_id,) = named_transactions(wire_to(cluster), ["payments"])
    found = read_coordinators(wire_to(cluster), ["payments"], TRANSACTION)
    found += read_coordinators(wire_to(cluster), ["billing"], GROUP)
    errors = [described_id.error, *(each.error for each in found)]
    for topic, error in zip((STATE_TOPIC, STATE_TOPIC, OFFSETS_TOPIC), errors, strict=True):
        assert (error or "").startswith(f"COORDINATOR_NOT_AVAILABLE: {topic} does not exist")
    assert "FindCoordinator" not in dict(cluster.sent_requests)


def test_an_incomplete_listing_of_ids_is_a_gap() -> None:
    cluster = FakeCluster()
    assert all_ids(wire_to(cluster)) == ["payments", "other"]
    cluster.replaced["ListTransactions"] = lambda broker, request: LOADING
    with pytest.raises(
        BrokerError, match=r"^The transactional ids of broker 1 \(ListTransactions\) cannot be listed: "
    ) as no:
        all_ids(wire_to(cluster))
    assert no.value.code == "COORDINATOR_LOAD_IN_PROGRESS"
    with pytest.raises(UsageError, match=r"^'\[' is not a regular expression"):
        TransactionFilters(pattern="[")


def test_with_unreachable_coordinators_groups_are_unknown() -> None:
    loading = SimpleNamespace(error_code=14, groups=[])
    cluster = FakeCluster(ListGroups=lambda broker, request: loading)
    with pytest.raises(BrokerError, match=r"^Broker 1 did not list its groups: COORDINATOR_LOAD_IN_PROGRESS"):
        group_ids(wire_to(cluster), [1, 2])
    assert groups_at(wire_to(cluster), [1, 2], [FetchPosition(TopicPartition("orders", 0), 100, 1)]) is None


def test_without_an_owner_nothing_hangs_where_the_broker_is_not_apache_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redpanda's partition aborts by itself what its coordinator has lost; an abort marker there is not Kafka's."""
    monkeypatch.setattr(FakeCluster, "cluster_id", "redpanda.2d339cd9-b540-484d-80da-16cd0650e49b")
    (row,) = Diagnosis.of([observation(FakeCluster())]).findings()
    assert (row.verdict, row.action) == ("unknown", None)
    (missing,) = row.missing
    assert missing.startswith("a coordinator of Apache Kafka: brokers 1, 2 run Redpanda (its cluster id is redpanda.")
    assert missing.endswith("aborts it: only if its owner confirms that it was not committed.")


def test_one_broker_of_another_kind_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    real = FakeCluster.apis
    monkeypatch.setattr(FakeCluster, "apis", lambda self, broker: {18: (0, 4)} if broker == 2 else real(self, broker))
    (gap,) = observation(FakeCluster()).coverage.gaps
    assert gap.startswith(
        "a coordinator of Apache Kafka: broker 2 runs software that this version of kafka-txn does not"
    )


def test_a_start_far_ahead_of_the_controllers_clock_ends_all_trust() -> None:
    cluster = FakeCluster()
    cluster.ids[1] = [("payments", 7, "Ongoing")]
    cluster.now -= dt.timedelta(minutes=1)
    assert "is 1 min ahead of the clock of controller 1" in observation(cluster).brokers_time.text


def test_without_a_controllers_time_the_newest_record_counts() -> None:
    def list_offsets(broker: int, request: Any) -> Any:
        answer = cluster.ListOffsets(broker, request)
        for each in answer.topics[0].partitions if request.timestamp == -3 else ():
            each.timestamp = int(NOW.timestamp() * 1000)
        return answer

    denied = SimpleNamespace(error_code=31, topics=[])
    cluster = FakeCluster(ListOffsets=list_offsets, DescribeQuorum=lambda broker, request: denied)
    found = observation(cluster).brokers_time
    assert (found.time, found.is_current, found.error) == (NOW, False, None)
    assert found.source.startswith("the newest record of __transaction_state-")
    del cluster.replaced["DescribeQuorum"]
    cluster.now -= dt.timedelta(seconds=6)
    found = observation(cluster).brokers_time
    assert (found.time, found.is_contradicted) == (None, True)
    cluster.now += dt.timedelta(seconds=1)
    assert observation(cluster).brokers_time.is_current


def batch(offset: int, key: bytes, value: bytes | None) -> bytes:
    return pack_batch([Record(offset, 1_795_277_560_901, key, value)])


def leader(broker_id: int) -> PartitionLeader:
    return PartitionLeader(STATE_TOPIC, 0, broker_id, 5, (1, 2), (1, 2), utc_now(), None)


@pytest.fixture
def responses(monkeypatch: pytest.MonkeyPatch) -> list[FetchedBatches]:
    """What leaders answer, in this order."""
    answers: list[FetchedBatches] = []
    monkeypatch.setattr(transactions, "fetch", lambda client, positions, **options: [answers.pop(0)])
    monkeypatch.setattr(transactions, "PAUSE_S", 0)
    return answers


def read(stop: int, *, seconds: float = 60) -> tuple[dict[bytes, tuple[int, bytes | None]], dict[int, str]]:
    errors: dict[int, str] = {}
    client: Any = SimpleNamespace()
    leaders = {TopicPartition(STATE_TOPIC, 0): leader(1)}
    newest = transactions._newest_records(client, leaders, {0: (0, stop)}, errors, time.monotonic() + seconds)
    return newest, errors


@pytest.mark.parametrize(
    ("answers", "stop", "newest"),
    [
        (
            [FetchedBatches(batch(0, b"one", b"a") + batch(1, b"two", b"b"), high_watermark=4),
             FetchedBatches(batch(2, b"one", b"c") + batch(3, b"two", None), high_watermark=4)],
            4, {b"one": (0, b"c"), b"two": (0, None)},
        ),
        ([FetchedBatches(batch(0, b"one", b"a"), high_watermark=9), FetchedBatches(high_watermark=9)], 9,
         {b"one": (0, b"a")}),
        ([FetchedBatches(high_watermark=0), FetchedBatches(batch(0, b"one", b"a"), high_watermark=1)], 1,
         {b"one": (0, b"a")}),
    ],
    ids=["the last of two", "before compacted offsets", "once the high watermark is there"],
)  # fmt: skip
def test_the_newest_value_of_each_key(
    responses: list[FetchedBatches], answers: list[FetchedBatches], stop: int, newest: object
) -> None:
    responses += answers
    assert read(stop) == (newest, {})
    assert responses == []


def test_a_leader_that_moved_is_looked_up(responses: list[FetchedBatches], monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = [
        ConnectionFailed("No broker answers.", do=""),
        SimpleNamespace(at=lambda tps: dict.fromkeys(tps, leader(2))),
    ]

    def metadata(client: object, topics: object) -> Any:
        found = looked_up.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(transactions, "read_metadata", metadata)
    moved = FetchedBatches(error="NOT_LEADER_OR_FOLLOWER: moved")
    responses += [moved, moved, FetchedBatches(batch(0, b"one", b"a"), high_watermark=1)]
    assert read(1) == ({b"one": (0, b"a")}, {})
    assert looked_up == []


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (FetchedBatches(error="TOPIC_AUTHORIZATION_FAILED: no"), "TOPIC_AUTHORIZATION_FAILED"),
        (FetchedBatches(error="OFFSET_OUT_OF_RANGE: gone"), "OFFSET_OUT_OF_RANGE"),
        (FetchedBatches(batch(0, b"one", b"a")[:-1] + b"x", high_watermark=1), "CORRUPT_MESSAGE"),
        (FetchedBatches(batch(0, b"one", b"a")[:40], high_watermark=1), "CORRUPT_MESSAGE"),
        (FetchedBatches(b"no batch" * 20, high_watermark=1), "CORRUPT_MESSAGE"),
        (None, "REQUEST_TIMED_OUT"),
    ],
    ids=["no right", "deleted", "a wrong checksum", "no whole batch", "no batch", "no time"],
)
def test_what_cannot_be_read_is_an_error(
    responses: list[FetchedBatches], response: FetchedBatches | None, code: str
) -> None:
    responses += [response] if response else []
    _, errors = read(1, seconds=60 if response else 0)
    assert {number: text.partition(":")[0] for number, text in errors.items()} == {0: code}


def test_ids_of_a_partition_that_moves_while_they_are_listed_may_be_missing() -> None:
    """The old coordinator lists them no more, and the new one not yet: `list` had none of them, with exit code 0."""
    cluster = FakeCluster()

    def moves(broker: int, request: Any) -> Any:
        answer = cluster.ListTransactions(broker, request)
        cluster.leaders[STATE_TOPIC, 0], cluster.ids[1] = (2, 8), []
        return answer if broker == 2 else SimpleNamespace(error_code=0, API_VERSION=2, transaction_states=[])

    cluster.replaced = {"ListTransactions": moves}
    found = filtered_transactions(wire_to(cluster), TransactionFilters())
    assert [each.transactional_id for each in found] == ["other", None]
    assert (found[-1].txn_state_partition, str(found[-1].error).partition(":")[0]) == (0, "NOT_COORDINATOR")
    cluster.leaders[STATE_TOPIC, 0] = (1, 7)
    with pytest.raises(BrokerError, match="moved while ids were listed: some may be missing"):
        all_ids(wire_to(cluster))


def test_ids_of_a_flink_sink_are_not_all_if_some_may_be_hidden() -> None:
    """The one that is missing could be that of subtask 0, by which an owner is told from another one."""
    cluster = FakeCluster()
    cluster.ids[1] = [("sink-1-4", 7, "Ongoing"), ("sink-0-4", 9, "Ongoing")]
    among = {"sink-1-4", "other"}
    assert numbered_ids(wire_to(cluster), among) == ["sink-1-4", "sink-0-4", "other"]
    cluster.replaced["DescribeAcls"] = lambda broker, request: SimpleNamespace(error_code=31, resources=[])
    assert numbered_ids(wire_to(cluster), among) == []


def test_what_holds_a_record_is_not_known_if_its_leader_does_not_show_the_producers() -> None:
    """`No transaction is open, so it waits for replication`, said `why` of brokers before 2.8."""

    def too_old(broker: int, request: Any) -> Any:
        raise BrokerError("Broker 1 does not support DescribeProducers.", code="UNSUPPORTED_VERSION")

    answer = fetched(pack_batch([Record(120, 1000, None, b"v")]))
    cluster = FakeCluster(
        DescribeProducers=too_old,
        Fetch=lambda broker, request: answer,
        DescribeConfigs=lambda broker, request: SimpleNamespace(results=[]),
    )
    found = LiveOffsetReader(wire_to(cluster), orders_of(cluster)).visibility(120)
    assert (found.status, found.read_committed) == ("non_transactional", False)
    assert found.reason.endswith("the LSO is 100, and what holds it is not known.")
    assert str(found.error).startswith("UNSUPPORTED_VERSION")


class Message(SimpleNamespace):
    """A message of librdkafka, or its end of the partition."""

    def topic(self) -> str:
        return "orders"

    def offset(self) -> int:
        return int(self.at)

    def error(self) -> Any:
        return SimpleNamespace(code=lambda: -191) if self.is_end else None


def test_an_end_before_the_range_is_not_the_end_of_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader had a lower LSO for a moment: records that were not looked at counted as not delivered."""
    looks = [[Message(at=100, is_end=False), Message(at=101, is_end=True)], [], [Message(at=101, is_end=False)]]
    consumer = SimpleNamespace(
        assign=lambda partitions: None, consume=lambda count, timeout: looks.pop(0) if looks else [], close=lambda: None
    )
    monkeypatch.setattr(transactions, "_consumer", lambda config: consumer)
    config: Any = None
    assert read_committed(config, "orders", 0, 100, 102, timeout=5).offsets == [100, 101]
    looks[:] = [[Message(at=100, is_end=True)]]
    unread = read_committed(config, "orders", 0, 100, 102, timeout=0.05)
    assert (unread.offsets, unread.reached) == ([], 100)
    looks[:] = [[Message(at=105, is_end=True)]]
    assert read_committed(config, "orders", 0, 100, 102, timeout=5).reached == 102, "they were aborted"


class CutOff(FakeCluster):
    """Broker 1 led orders-0 until controllers lost it; it answers on, and only broker 2 knows that it leads now."""

    def Metadata(self, broker: int | None, request: Any) -> Any:  # noqa: N802
        leaders = self.leaders
        self.leaders = leaders | ({("orders", 0): (2, 5)} if broker == 2 else {})
        answer = super().Metadata(broker, request)
        self.leaders = leaders
        return answer

    def ListOffsets(self, broker: int, request: Any) -> Any:  # noqa: N802
        if broker == 1:
            return super().ListOffsets(broker, request)
        offsets = [(topic, each) for topic, numbers in request.partitions.items() for each in numbers]
        return by_topic((topic, listed_offset(number, 150, leader_epoch=5)) for topic, number in offsets)

    def DescribeProducers(self, broker: int, request: Any) -> Any:  # noqa: N802
        self.open = {("orders", 0): [producer(7, start=100)] if broker == 1 else []}
        return super().DescribeProducers(broker, request)


def test_a_leader_that_controllers_have_lost_keeps_nothing_open() -> None:
    """Its followers have the marker; by its metadata it was the leader in every observation."""
    cluster, tp = CutOff(), TopicPartition("orders", 0)
    assert Diagnosis.of([observation(cluster)]).to_recheck() == [tp]
    (row,) = diagnosed_twice(cluster).findings(requested=[tp])
    assert (row.verdict, row.last_stable_offset) == ("clear", 150)


def test_nor_does_it_in_the_samples_of_a_recorder() -> None:
    """A recorder has no second look: two samples of what the cut-off broker showed were `hanging`, and an alert."""
    cluster, tp = CutOff(), TopicPartition("orders", 0)
    client = wire_to(cluster)
    leaders = read_metadata(client, ["orders"]).at([tp])
    connected: Any = SimpleNamespace(
        client=client, _of_leaders=lambda _, read: read(leaders), _check_clock=lambda _: None
    )
    found = Cluster.observe(connected, topics=["orders"])
    assert [each.broker_id for each in found.partitions_after] == [2]
    assert Diagnosis.of([found, found], DiagnoseOptions(is_sample=True)).opened == {}


def diagnosed_twice(cluster: FakeCluster) -> Diagnosis:
    first, tp = observation(cluster), TopicPartition("orders", 0)
    evidence: Any = SimpleNamespace(client=wire_to(cluster), _first=first)
    return Diagnosis.of([ClusterEvidence.observe_again(evidence, [tp])], earlier=Diagnosis.of([first]).indexed)


def test_a_broker_of_another_cluster_ends_the_second_look() -> None:
    """A name that leads to another cluster now: its broker knows no id, and the transaction of a live one hung."""
    cluster = FakeCluster()
    assert diagnosed_twice(cluster).observations[-1].coverage.gaps == []

    def metadata(broker: int | None, request: Any) -> Any:
        if broker == 2:
            raise BrokerError("A broker of cluster B answered for cluster A.", code=OTHER_CLUSTER)
        return cluster.Metadata(broker, request)

    cluster.replaced["Metadata"] = metadata
    with pytest.raises(BrokerError, match="A broker of cluster B answered for cluster A"):
        diagnosed_twice(cluster)


@pytest.mark.parametrize("code", [-1, 999])
def test_an_error_that_is_no_answer_shows_neither_a_loaded_partition_nor_a_right(code: int) -> None:
    """Each error that was not listed counted as `loaded`, and as `may be seen`: so nobody owned a live transaction."""
    cluster = FakeCluster()

    def describe(broker: int, request: Any) -> Any:
        answer = cluster.DescribeTransactions(broker, request)
        for each in answer.transaction_states if broker == 2 else ():
            each.error_code = code if "probe" in each.transactional_id else each.error_code
        return answer

    cluster.replaced["DescribeTransactions"] = describe
    name = "UNKNOWN_SERVER_ERROR" if code < 0 else f"ERROR_{code}"
    assert observation(cluster).coverage.gaps == [
        f"broker 2 did not show whether it has loaded 1 of the __transaction_state partitions that it leads: {name}"
    ]

    no_acls = SimpleNamespace(error_code=0, resources=[])
    cluster = FakeCluster(DescribeTransactions=ids_with_error(-1), DescribeAcls=lambda broker, request: no_acls)
    (gap,) = visibility_of(TRANSACTIONAL_IDS, wire_to(cluster), [1, 2]).gaps
    assert gap.startswith("DESCRIBE on TransactionalId '*' for this principal")


def test_a_leader_without_this_listener_is_not_down() -> None:
    """A broker of another listener leads it: `the partition has no leader: broker 2 is offline`."""
    cluster = FakeCluster()
    cluster.leaders["orders", 0] = (-1, 4)
    answer = cluster.Metadata(None, SimpleNamespace(topics=None))
    for each in answer.topics[-1].partitions:
        each.error_code, each.offline_replicas = 72, [2]
    cluster.replaced["Metadata"] = lambda broker, request: answer
    error = str(read_metadata(wire_to(cluster)).partitions[TopicPartition("orders", 0)].error)
    assert error.startswith("LISTENER_NOT_FOUND: There is no listener on the leader broker")


def test_a_topic_that_is_created_again_while_it_is_read_does_not_go_on_in_its_place() -> None:
    """Leader epochs begin again at 0: the rest of the rows were those of the new topic."""
    cluster, asked = FakeCluster(), list[int]()

    def fetch(broker: int, request: Any) -> Any:
        asked.append(request.topics[0].partitions[0].current_leader_epoch)
        return fetched(pack_batch([Record(120, 1000, None, b"v")]), error_code=75 if asked[-1] else 0)

    cluster.replaced["Fetch"], cluster.timeout = fetch, 0.3
    partition = orders_of(cluster)
    cluster.leaders["orders", 0] = (1, 0)
    (chunk,) = read_offsets(wire_to(cluster), partition, 120, 150).chunks
    assert (len(chunk.headers), {*asked}) == (0, {4})
    assert chunk.damage[0].reason.startswith("UNKNOWN_LEADER_EPOCH: ")
    assert chunk.damage[0].reason.endswith("; offsets 120 to 149 were not read")


@pytest.mark.parametrize(("end", "lost"), [(121, False), (120, True)])
def test_a_log_that_a_new_leader_has_truncated_does_not_go_on_in_its_place(end: int, lost: bool) -> None:
    """It had grown past its former end: the rest of the rows were other records, and what was lost was no error."""
    cluster = FakeCluster()

    def fetch(broker: int, request: Any) -> Any:
        (part,) = request.topics[0].partitions
        has_moved = broker == 1 and part.fetch_offset > 120
        if has_moved:
            cluster.leaders["orders", 0] = (2, 5)
        sent = bytearray(pack_batch([Record(part.fetch_offset, 1000, None, b"v")]))
        sent[12:16] = (3 + broker).to_bytes(4, "big")  # its leader epoch
        return fetched(bytes(sent), error_code=74 if has_moved else 0)

    def ended(broker: int, request: Any) -> Any:
        (part,) = request.topics[0].partitions
        assert (broker, part.current_leader_epoch, part.leader_epoch) == (2, 5, 4)
        answer = SimpleNamespace(partition=0, error_code=0, leader_epoch=4, end_offset=end)
        return SimpleNamespace(topics=[SimpleNamespace(topic="orders", partitions=[answer])])

    cluster.replaced.update(Fetch=fetch, OffsetForLeaderEpoch=ended)
    partition = orders_of(cluster)
    first, *others = read_offsets(wire_to(cluster), partition, 120, 123).chunks
    assert first.headers["base_offset"].tolist() == [120]
    rest = [offset for each in others for offset in each.headers["base_offset"].tolist()]
    assert rest == ([] if lost else [121, 122])
    errors = [each.reason for chunk in others for each in chunk.damage]
    assert errors == (
        ["OFFSET_OUT_OF_RANGE: a new leader has truncated the log, at offset 120 or before, of what was read up to "
         "leader epoch 4; offsets 121 to 122 were not read"] if lost else []
    )  # fmt: skip
    cluster.leaders["orders", 0] = (1, 4)
    # Between what is read with read_committed and the rest, nothing compared them.
    slices = [*LiveOffsetReader(wire_to(cluster), replace(partition, last_stable_offset=121)).slices(120, 123)]
    assert [offset for each in slices for offset in each.batches["base_offset"].tolist()] == [120, *rest]
    assert [error for each in slices for error in each.errors] == errors


def test_of_brokers_that_differ_the_newest_leader_is_believed() -> None:
    """Epoch 0 was none, so a broker that knew no leader was; and a topic that it did not know was not found."""
    cluster = FakeCluster()

    def metadata(broker: int | None, request: Any) -> Any:
        cluster.leaders["orders", 0] = (-1, -1) if broker == 1 else (2, 0)
        answer = cluster.Metadata(broker, request)
        if broker == 1:
            answer.topics = [cluster._topic("new", 3), *(each for each in answer.topics if each.name != "new")]
        return answer

    cluster.replaced["Metadata"] = metadata
    cluster.leaders["new", 0] = (2, 0)
    found = read_newest_metadata(wire_to(cluster), ["new", "orders"])
    leaders = {tp.topic: (each.leader, each.leader_epoch) for tp, each in found.partitions.items()}
    assert (leaders, found.errors) == ({"new": (2, 0), "orders": (2, 0)}, {})


def test_a_topic_that_is_created_again_is_another_one_with_the_same_offsets() -> None:
    """Its leader epochs are the same, too: by their offsets two observations were of one transaction."""
    cluster, ids = FakeCluster(), [uuid.UUID(int=number) for number in (1, 1, 1, 2)]

    def metadata(broker: int | None, request: Any) -> Any:
        answer = cluster.Metadata(broker, request)
        for each in answer.topics:
            each.topic_id = ids.pop(0) if each.name == "orders" else None
        return answer

    cluster.replaced["Metadata"] = metadata
    one, other = observation(cluster), observation(cluster)
    assert [each.error for each in one.partitions_after] == [None]
    assert one.topic_ids["orders"] != other.topic_ids["orders"]
    again = "INCONSISTENT_TOPIC_ID: its topic was deleted and created again meanwhile"
    assert [each.error for each in other.partitions_after] == [again]


def test_ids_and_groups_of_brokers_that_differ_are_in_doubt() -> None:
    """A coordinator that no controller reaches answered as before, and so did the table."""
    cluster = FakeCluster(ListGroups=lambda broker, request: SimpleNamespace(error_code=0, groups=[]))
    cluster.is_split = True
    *_, last = filtered_transactions(wire_to(cluster), TransactionFilters())
    (named,) = named_transactions(wire_to(cluster), ["payments"])
    assert [named.state, named.error, last.error] == ["CompleteAbort", BROKERS_DIFFER, BROKERS_DIFFER]
    with pytest.raises(BrokerError, match=r"^The groups cannot be read: the brokers name different brokers"):
        group_ids(wire_to(cluster), [1, 2])


def test_ids_of_a_coordinator_that_has_not_begun_to_load_are_missing_from_a_list() -> None:
    """It lists none of them, without an error: a list by state or producer id was empty, as if there were none."""
    cluster = FakeCluster()
    cluster.ids[2] = []
    cluster.replaced["DescribeTransactions"] = lambda broker, request: (
        ids_with_error(16) if broker == 2 else cluster.DescribeTransactions
    )(broker, request)
    found = filtered_transactions(wire_to(cluster), TransactionFilters(producer_ids=[8]))
    (row,) = [each for each in found if each.producer_id != 7]  # this client does not filter
    assert row.error == (
        "NOT_COORDINATOR: ids may be missing: broker 2 has not loaded 1 of the __transaction_state partitions "
        "that it leads"
    )


def test_a_silent_broker_has_one_row_in_a_list() -> None:
    """A second one said COORDINATOR_LOAD_IN_PROGRESS of it, which nobody had answered."""

    def silent(broker: int, request: Any) -> Any:
        if broker == 2:
            raise BrokerError("It did not answer.", code="REQUEST_TIMED_OUT")
        return getattr(cluster, str(request.name).removesuffix("Request"))(broker, request)

    cluster = FakeCluster(ListTransactions=silent, DescribeTransactions=silent)
    rows = [each for each in filtered_transactions(wire_to(cluster), TransactionFilters()) if each.error]
    assert [(each.broker_id, Error.of(each.error).code) for each in rows] == [(2, "REQUEST_TIMED_OUT")]


def test_a_coordinators_topic_that_is_gone_afterwards_has_no_leaders() -> None:
    topics = read_metadata(wire_to(FakeCluster()), [STATE_TOPIC])
    before, after = (CoordinatorTopic(STATE_TOPIC, each) for each in (topics, replace(topics, partitions={})))
    leaderless = ["a leader of __transaction_state partitions 0, 1: no broker answers for its ids"]
    assert (before.gaps_until(before), before.gaps_until(after)) == ([], leaderless)


def test_groups_are_unknown_where_the_log_before_the_lso_cannot_be_read() -> None:
    """With DESCRIBE and without READ, no group waited: one that has read all but a marker was taken for one behind.

    Neither did one behind more aborted records than one answer holds.
    """
    orders = TopicPartition("orders", 0)
    offset = SimpleNamespace(partition_index=0, error_code=0, committed_offset=99)
    topics = [SimpleNamespace(name="orders", partitions=[offset])]
    cluster = FakeCluster(
        ListGroups=lambda broker, request: SimpleNamespace(
            error_code=0, groups=[SimpleNamespace(group_id="app", protocol_type="streams")]
        ),
        OffsetFetch=lambda broker, request: SimpleNamespace(
            error_code=0, groups=[SimpleNamespace(group_id="app", error_code=0, topics=topics)]
        ),
    )
    held = [FetchPosition(orders, 100, 1)]
    assert groups_at(wire_to(cluster), [1, 2], held) == {}, "the fetch fails"
    offset.committed_offset = 0
    assert groups_at(wire_to(cluster), [1, 2], [FetchPosition(orders, 0, 1)]) == {orders: ["app"]}
    offset.committed_offset = 99
    aborted = SimpleNamespace(producer_id=9, first_offset=99)
    data = [Record(each, 1_795_277_560_901, None, b"aborted") for each in (98, 99)]
    cluster.replaced["Fetch"] = lambda *_: fetched(records, aborted=[aborted])
    records = pack_batch(data[1:], producer_id=9)
    assert groups_at(wire_to(cluster), [1, 2], held) == {orders: ["app"]}
    offset.committed_offset, aborted.first_offset = 98, 98
    records = pack_batch(data[:1], producer_id=9)
    assert groups_at(wire_to(cluster), [1, 2], held) == {}, "the answer ends before the LSO"
    records = pack_batch(data[:1], producer_id=8)
    assert groups_at(wire_to(cluster), [1, 2], held) == {orders: []}, "it has records to read"
    offset.committed_offset = 100
    assert groups_at(wire_to(cluster), [1, 2], held) == {orders: ["app"]}, "groups of KIP-1071 commit offsets, too"
    offset.committed_offset = 3000
    assert groups_at(wire_to(cluster), [1, 2], held) == {orders: []}


def test_the_first_batch_of_each_partition_is_read_before_another_one_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 in all, only 67 partitions had theirs by name: a live transaction over committed records was simply live,
    on the next one, and its remedy was a restart, which discards them.
    """
    read: list[tuple[int, int]] = []

    def fetched(client: object, positions: list[FetchPosition], *, max_bytes: int) -> list[FetchedBatches]:
        read.extend((each.tp.partition, each.offset) for each in positions)
        return [FetchedBatches()] * len(positions)

    monkeypatch.setattr(observe_module, "fetch", fetched)
    monkeypatch.setattr(observe_module, "MAX_FIRST_BATCHES", 4)
    opened = [build.producer(pid, start=100 + pid, partition=number) for number in range(3) for pid in range(2)]
    observe_module._first_batches(wire_to(FakeCluster()), opened, per_partition=3)
    assert read == [(0, 100), (0, 101), (1, 100), (2, 100)]


def test_markers_are_sought_on_all_partitions_of_a_large_cluster() -> None:
    """Of more than 5,000 only topics that records name: not that of the commit which the coordinators' log has lost."""
    cluster = FakeCluster()
    cluster.leaders |= {("many", number): (1, 4) for number in range(5_001)} | {("payments", 0): (1, 4)}
    cluster.ids[1] = [("payments-7", 7, "Empty")]
    cluster.open = {("payments", 0): [producer(7, epoch=3)], ("many", 7): [producer(8, epoch=9)]}
    log = coordinator_log([record(1, "Empty", second=0, topic_partitions=None)])
    found = search_markers(wire_to(cluster), [with_logs(open_transaction(), coordinators=log)])
    assert [(each.topic, each.producer_epoch) for each in found.ahead.values()] == [("payments", 3)]


def test_a_coordinators_topic_has_its_own_error_and_no_others() -> None:
    read = ClusterMetadata(partitions={}, errors={STATE_TOPIC: "TOPIC_AUTHORIZATION_FAILED: no", "orders": "GONE: no"})
    assert CoordinatorTopic.of(STATE_TOPIC, read).metadata.errors == {STATE_TOPIC: "TOPIC_AUTHORIZATION_FAILED: no"}


def test_without_the_coordinators_topic_that_is_missing() -> None:
    """A finding that was `unknown` for it named nothing."""
    nothing = TransactionLog(transactions=[], failures=[], partitions=0)
    assert _unread(nothing) == ["__transaction_state: the metadata does not show it"]


def test_the_log_of_every_transaction_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of the first 50 partitions, ten at a time, and 64 KiB of each other one."""
    reads: list[tuple[int, int | None]] = []

    def read_excerpts(client: object, starts: Any, *, max_bytes: int | None = None, **_: object) -> dict[Any, object]:
        reads.append((len(starts), max_bytes))
        return {each.tp: None for each in starts}

    monkeypatch.setattr(partition_log, "read_excerpts", read_excerpts)
    monkeypatch.setattr(observe_module, "compacted_topics", lambda *_: {})
    leader = build.partition()
    starts: Any = [SimpleNamespace(tp=TopicPartition("orders", number), leader=leader) for number in range(151)]
    evidence: Any = SimpleNamespace(client=None)
    assert {*LiveEvidence.excerpts(evidence, starts)} == {each.tp for each in starts}
    assert reads == [(10, None)] * 5 + [(100, 1 << 16), (1, 1 << 16)]
