"""What a principal may not see, and what a dead or silent broker alone knows, is a gap and never nothing.

Each right alone, with each incident, is in `tests.actions.test_rights`; what commands answer without, in the corpus.
"""

import logging
import os
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.acls import (
    ALL,
    CLUSTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    PREFIXED,
    READ,
    SECRETS,
    TOPIC,
    TRANSACTIONAL_ID,
    Acls,
)
from tests.builders import commit_offset, create_topics
from tests.sources.test_partition_log import fetched_chunks
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.errors import AuthenticationFailed
from toolkit.formats.coordinator_records import OFFSETS_TOPIC
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, coordinator, until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import Row
from toolkit.schema.live import Finding
from toolkit.sources.live import broker_client, partition_log
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinators import CoordinatorTopic
from toolkit.sources.live.group_offsets import groups_with_offsets

pytestmark = pytest.mark.lab

STATE_LOG = (TOPIC, "__transaction_state", LITERAL, READ)
DATA = [(TOPIC, "guarded", PREFIXED, READ)]
SEE_STATE_TOPIC = (TOPIC, "__transaction_state", LITERAL, DESCRIBE)
ACLS_AND_AUTHORIZER = [
    (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE),
    (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE_CONFIGS),
]
OR_THE_LOG = "; or READ on Topic '__transaction_state'"


@pytest.fixture
def watcher(guarded: Kafka) -> Iterator[Cluster]:
    with Cluster(guarded.client_config("watcher")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def hanging(guarded: Kafka, admin: Cluster) -> StagedIncident:
    return INCIDENTS["never_added"](guarded.client_config("admin"), topic="guarded-hanging")


@pytest.fixture(scope="module")
def alive(guarded: Kafka, admin: Cluster) -> Iterator[StagedIncident]:
    with INCIDENTS["open_young"](guarded.client_config("admin"), topic="guarded-alive") as staged:
        yield staged


def finding_of(cluster: Cluster, staged: StagedIncident) -> Row:
    (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[0], recheck_after=0.1)
    return row


def proofs(row: Row) -> list[str]:
    return [each["value"] for each in row["evidence"] if each["name"] == "proof"]


def test_a_super_user_is_proven_by_the_acls(admin: Cluster, hanging: StagedIncident, acls: Acls) -> None:
    acls.deny((TRANSACTIONAL_ID, "payments-7", LITERAL, DESCRIBE), (TRANSACTIONAL_ID, "billing-", PREFIXED, ALL))
    row = finding_of(admin, hanging)
    assert row["verdict"] == "hanging"
    assert "the ACLs hide no TransactionalId from this principal (3 probes)" in proofs(row)


def test_a_live_transaction_with_a_hidden_id_is_never_hanging(
    watcher: Cluster, alive: StagedIncident, acls: Acls
) -> None:
    """A denied prefix is found even without such ids."""
    acls.allow(*DATA, SEE_STATE_TOPIC, *ACLS_AND_AUTHORIZER, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    acls.deny(
        (TRANSACTIONAL_ID, alive.transactional_id, LITERAL, DESCRIBE), (TRANSACTIONAL_ID, "secret-", PREFIXED, DESCRIBE)
    )
    row = finding_of(watcher, alive)
    assert row["verdict"] == "unknown"
    assert row["missing"] == [
        f"DESCRIBE on TransactionalId {each} (or on '*') for this principal" + OR_THE_LOG
        for each in (f"'{alive.transactional_id}'", "prefix 'secret-'")
    ]


def test_the_transaction_log_is_not_read_if_owners_explain_all(
    watcher: Cluster, alive: StagedIncident, acls: Acls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("read")

    monkeypatch.setattr("toolkit.sources.live.observe.read_state_log", never)
    acls.allow(*DATA, STATE_LOG, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    assert finding_of(watcher, alive)["verdict"] == "ongoing"


def test_hidden_topics_are_a_gap_only_for_the_whole_cluster(
    watcher: Cluster, alive: StagedIncident, acls: Acls
) -> None:
    acls.allow(*DATA, SEE_STATE_TOPIC, *ACLS_AND_AUTHORIZER, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    assert watcher.observe().coverage.topic_gaps == ["DESCRIBE on Topic '*' for this principal"]
    assert watcher.observe(topics=[alive.topic]).coverage.topic_gaps == ()
    acls.allow((TOPIC, "*", LITERAL, DESCRIBE))
    assert watcher.observe().coverage.topic_gaps == []
    acls.deny((TOPIC, "x" * 249, LITERAL, DESCRIBE), (TOPIC, "y" * 249, PREFIXED, DESCRIBE))
    assert [gap[:27] for gap in watcher.observe().coverage.topic_gaps] == [
        "DESCRIBE on Topic 'xxxxxxxx", "DESCRIBE on Topic prefix 'y",
    ]  # fmt: skip


def test_a_topic_that_may_be_hidden_may_have_a_marker(
    guarded: Kafka, watcher: Cluster, admin: Cluster, acls: Acls
) -> None:
    """Its id committed on a topic that this principal may not see: what is there was taken for nothing."""
    for topic in ("guarded-torn", "elsewhere"):  # two partitions each: partition 1 is left alone
        INCIDENTS["never_added"](guarded.client_config("admin"), topic=topic)
    producer = TxnProducer(admin.client, "torn").init()
    producer.add("elsewhere", 1)
    producer.send("elsewhere", 1)
    producer.end(commit=True)
    producer.send("guarded-torn", 1)
    acls.allow(*DATA, STATE_LOG)
    (row,) = watcher.finding_rows(topics=["guarded-torn"], partitions=[1], recheck_after=0.1)
    assert (row["verdict"], row["action"]) == ("unknown", None)
    assert "elsewhere-1 could not be read (its topic is deleted or hidden; missing: " in row["missing"][0]
    acls.allow((TOPIC, "elsewhere", LITERAL, READ))
    (row,) = watcher.finding_rows(topics=["guarded-torn"], partitions=[1], recheck_after=0.1)
    assert (row["verdict"], row["missing"]) == ("hanging", [])


def test_a_hidden_transaction_state_topic_is_a_gap(watcher: Cluster, hanging: StagedIncident, acls: Acls) -> None:
    """Without it an offline partition of it, and every id in there, would go unnoticed."""
    acls.allow(*DATA, *ACLS_AND_AUTHORIZER, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    assert finding_of(watcher, hanging)["missing"] == [
        "DESCRIBE on Topic '__transaction_state', to see that each of its partitions has a leader"
    ]


def test_a_login_is_in_no_log_record(guarded: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG kafka-python logs every message that it sends, as text and as bytes."""
    with caplog.at_level(logging.DEBUG), Cluster(guarded.client_config("watcher")) as cluster:
        cluster.partition_rows()
    texts = [record.getMessage() for record in caplog.records if record.name.startswith("kafka.")]
    assert any("ApiVersionsRequest" in text for text in texts)
    assert [text for text in texts if SECRETS["watcher"] in text] == []


def test_a_wrong_password_is_sent_once_and_never_shown(guarded: Kafka) -> None:
    config = guarded.client_config("watcher") | {"sasl.password": "wrong-secret-4"}
    with pytest.raises(AuthenticationFailed, match=r"refused the client: .*Authentication failed") as refused:
        Cluster(config)
    assert guarded.bootstrap_servers in str(refused.value)
    assert "secret" not in str(refused.value)
    with Cluster(guarded.client_config("nobody")) as cluster:
        assert "secret" not in repr(cluster) + repr(cluster.config) + repr(vars(cluster))


LOST = 3


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    properties = {
        **EVERYDAY.properties,
        "transaction.state.log.replication.factor": "1",  # every id has one coordinator, and can lose it
        "transaction.state.log.num.partitions": "9",
        "offsets.topic.replication.factor": "1",
    }
    with Kafka("4.3.1", brokers=3, properties=properties) as kafka:
        yield kafka


def partitions(cluster: BrokerClient, topic: str, broker_id: int) -> list[int]:
    """Those with a leader, as one broker knows by now."""
    request = broker_client.Metadata(
        topics=[broker_client.Metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (found,) = cluster.send_one(request, broker_id=broker_id).topics
    return [each.partition_index for each in found.partitions if each.leader_id >= 0]


def is_led(cluster: BrokerClient, topic: str) -> bool | None:
    return True if partitions(cluster, topic, 1) else None


@pytest.fixture(scope="module")
def spread(three: Kafka) -> Kafka:
    """With a topic of which each broker leads a partition; something hangs on two of them."""
    create_topics(three, NewTopic("spread", 3, replica_assignment=[[1], [2], [3]]))
    with BrokerClient(ClientConfig(three.bootstrap_servers)) as connected:
        until(
            lambda: True if all(len(partitions(connected, "spread", broker)) == 3 for broker in (1, 2, 3)) else None,
            awaited="the leaders of spread",
        )
        producer = TxnProducer(connected, "spread-producer").init()
        for partition in (0, 1):
            producer.send("spread", partition)
    return three


@pytest.fixture(autouse=True)
def all_run(three: Kafka) -> Iterator[None]:
    """Who was killed is back for the next test."""
    yield
    three.start_broker(LOST)


def complete(cluster: Cluster) -> bool:
    return not cluster.observe(topics=["spread"]).coverage.gaps


def test_an_unresponsive_broker_delays_only_its_own_requests(spread: Kafka) -> None:
    with Cluster(spread.bootstrap_servers, timeout=5) as cluster:
        assert sorted(cluster.client.brokers) == [1, 2, 3]
        process = spread._process(LOST).pid
        os.kill(process, signal.SIGSTOP)
        try:
            answers = cluster.client.send([(broker, broker_client.ListTransactions()) for broker in (1, 2, LOST)])
            assert [answer.error is None for answer in answers] == [True, True, False]
            assert max(answers[0].observed_at, answers[1].observed_at) < answers[2].observed_at
            text = str(answers[2].error_text)
            assert text.startswith("REQUEST_TIMED_OUT: Broker 3 at 127.0.0.1:")
            assert text.endswith(" did not answer ListTransactions in time")
            (again,) = cluster.client.send([(LOST, broker_client.ListTransactions())])
            assert again.error is answers[2].error, "a broker that timed out is not waited for at every step"
            assert not complete(cluster)
            rows = cluster.finding_rows(topics=["spread"], partitions=[0, 1], recheck_after=0.1)
            assert {row["verdict"] for row in rows} == {"unknown"}
        finally:
            os.kill(process, signal.SIGCONT)
        until(lambda: True if complete(cluster) else None, awaited="a retry of broker 3")


def test_reading_a_log_continues_on_the_new_leader(three: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch by batch, while the leader dies; offsets that no other replica has are reported as missing."""
    monkeypatch.setattr(partition_log, "FETCH_BYTES", 1)
    with Cluster(three.bootstrap_servers) as cluster, Cluster(three.bootstrap_servers, timeout=1) as hasty:
        producer = TxnProducer(cluster.client, "moving-producer").init()
        for topic, replicas in (("moving", [LOST, 1]), ("alone", [LOST])):
            create_topics(three, NewTopic(topic, 1, replica_assignment=[replicas]))
            until(partial(is_led, cluster.client, topic), awaited=f"the leader of {topic}")
            for _ in range(6):
                producer.send(topic, 0)
        moving, alone = fetched_chunks(cluster, "moving"), fetched_chunks(hasty, "alone")
        read, lost = [next(moving)], [next(alone)]
        three.kill(LOST)
        read += moving
        lost += alone
    assert [piece.damage for piece in read] == [()] * 6
    assert [int(piece.headers["base_offset"][0]) for piece in read] == list(range(6))
    assert [read[0].broker_id, read[-1].broker_id] == [LOST, 1]
    known = sum(len(piece.headers) for piece in lost)
    assert [piece.damage for piece in lost[:-1]] == [()] * known
    assert lost[-1].damage[0].reason.endswith(f"; offsets {known} to 5 were not read")


def test_groups_of_a_partition_without_leader_are_missing(spread: Kafka) -> None:
    """`lag` had 10 of 20 groups, with exit code 0; a held LSO had no group that waits for it."""
    with BrokerClient(ClientConfig(spread.bootstrap_servers)) as connected:
        for group in (groups := [f"group-{number}" for number in range(12)]):
            commit_offset(spread, group, "spread", 0)
        coordinators = {group: coordinator(connected, group, group=True) for group in groups}
    assert LOST in coordinators.values()
    spread.kill(LOST)
    with Cluster(spread.bootstrap_servers) as cluster:

        def without_leader() -> tuple[list[str], Sequence[str]] | None:
            known = CoordinatorTopic.read(cluster.client, OFFSETS_TOPIC).leaderless
            return groups_with_offsets(cluster.client) if known else None  # fails if this broker's metadata is older

        listed, missing = until(without_leader, awaited="metadata without that leader")
        assert {*groups} - {*listed} == {group for group, broker_id in coordinators.items() if broker_id == LOST}
        (gap,) = missing
        assert gap.startswith("a leader of __consumer_offsets partitions ")
        assert gap.endswith(": no broker lists their groups")
        (finding,) = cluster.records(Finding, topics="spread", partitions=[1])
        assert finding.groups_held is None
