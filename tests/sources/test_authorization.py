"""What a principal may not see is a gap, and each of the three roads to a proof is taken."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

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
    Right,
)
from toolkit import Cluster
from toolkit.errors import AuthenticationFailed, BrokerError
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.schema import Row

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
    acls.allow(*DATA, SEE_STATE_TOPIC, *ACLS_AND_AUTHORIZER, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    acls.deny((TRANSACTIONAL_ID, alive.transactional_id, LITERAL, DESCRIBE))
    row = finding_of(watcher, alive)
    assert row["verdict"] == "unknown"
    assert row["missing"] == [
        f"DESCRIBE on TransactionalId '{alive.transactional_id}' (or on '*') for this principal" + OR_THE_LOG
    ]


def test_a_denied_prefix_is_found_even_without_such_ids(watcher: Cluster, hanging: StagedIncident, acls: Acls) -> None:
    acls.allow(*DATA, SEE_STATE_TOPIC, *ACLS_AND_AUTHORIZER, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    acls.deny((TRANSACTIONAL_ID, "secret-", PREFIXED, DESCRIBE))
    assert finding_of(watcher, hanging)["missing"] == [
        "DESCRIBE on TransactionalId prefix 'secret-' (or on '*') for this principal" + OR_THE_LOG
    ]


def test_permissions_proven_by_acls(watcher: Cluster, hanging: StagedIncident, acls: Acls) -> None:
    """They prove that no id is hidden; what was decided about its earlier transactions is in the log only."""
    acls.allow(*DATA, SEE_STATE_TOPIC, *ACLS_AND_AUTHORIZER, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    row = finding_of(watcher, hanging)
    assert (row["verdict"], row["outcome"], row["action"]) == ("unknown", "unknown", None)
    (missing,) = row["missing"]
    assert missing.startswith("__transaction_state could not be read (TOPIC_AUTHORIZATION_FAILED): whether a commit ")
    acls.allow(STATE_LOG)
    row = finding_of(watcher, hanging)
    assert (row["verdict"], row["outcome"], row["missing"]) == ("hanging", "undecided", [])
    assert "the ACLs hide no TransactionalId from this principal (1 probes)" in proofs(row)


@pytest.mark.parametrize("cluster_rights", [[], ACLS_AND_AUTHORIZER[:1]], ids=["no ACLs", "no authorizer class"])
def test_visible_ids_are_no_proof_without_the_acls(
    watcher: Cluster, hanging: StagedIncident, acls: Acls, cluster_rights: list[Right]
) -> None:
    acls.allow(*DATA, SEE_STATE_TOPIC, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE), *cluster_rights)
    (missing,) = finding_of(watcher, hanging)["missing"]
    assert missing.startswith("a proof that no TransactionalId is hidden from this principal: DESCRIBE")
    assert missing.endswith(OR_THE_LOG)


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


def test_a_denied_read_is_an_error_row(watcher: Cluster, hanging: StagedIncident, acls: Acls) -> None:
    with pytest.raises(
        BrokerError, match=r"^Topic 'guarded-hanging' cannot be described: TOPIC_AUTHORIZATION_FAILED"
    ) as no:
        watcher.partitions(topics=[hanging.topic])
    assert no.value.code == "TOPIC_AUTHORIZATION_FAILED"
    acls.allow((TOPIC, hanging.topic, LITERAL, DESCRIBE))
    rows = watcher.producer_rows(topics=[hanging.topic])
    assert {row["error"].partition(":")[0] for row in rows} == {"TOPIC_AUTHORIZATION_FAILED"}
    assert {row["producer_id"] for row in rows} == {None}
    assert finding_of(watcher, hanging)["verdict"] == "unknown"
    (found,) = watcher.transaction_rows(transactional_ids=["payments-7"])
    assert found["error"].startswith("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")


def test_a_login_is_in_no_log_record(guarded: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG kafka-python logs every message that it sends, as text and as bytes."""
    with caplog.at_level(logging.DEBUG), Cluster(guarded.client_config("watcher")) as cluster:
        cluster.client.versions(1)
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
