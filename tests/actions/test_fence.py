"""Fencing the owner of an id on a real broker: its transactions are aborted everywhere, and its producer is fenced."""

import datetime as dt
from collections.abc import Iterator

import pytest

from tests.actions.test_abort import read_committed
from tests.brokers import NEWEST, on_cluster
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import FENCE, FENCED, LOST, plan_fence
from toolkit.actions.marker_actions import plan_abort
from toolkit.analysis.diagnosis.decision import MEANINGS, IdEvidence, decide_id
from toolkit.analysis.diagnosis.observation import BrokersTime, TransactionAge
from toolkit.config import ClientConfig
from toolkit.errors import ActionFailed, ActionRefused, BrokerError, NotFound
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.lab import Kafka
from toolkit.lab.clients import RequestRefused, TxnProducer
from toolkit.lab.incidents import INCIDENTS, TWO_PHASE, StagedIncident
from toolkit.schema import Row
from toolkit.schema.live import Transaction
from toolkit.sources.live.broker_client import BrokerClient

pytestmark = pytest.mark.lab

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
LONG_MS = 1  # an older transaction is `long`


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def staged(kafka: Kafka) -> StagedIncident:
    """An open transaction whose owner does not end it."""
    return INCIDENTS["open_young"](kafka)


def owner_of(client: BrokerClient, staged: StagedIncident) -> TxnProducer:
    owner = TxnProducer(client, staged.transactional_id)
    owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
    return owner


@pytest.mark.parametrize("long_ms", [0, LONG_MS])
def test_a_long_transaction_counts_as_alive(cluster: Cluster, staged: StagedIncident, long_ms: int) -> None:
    """No option allows fencing a transaction within its own timeout, except an override that names its verdict."""
    plan = plan_fence(cluster, staged.transactional_id, max_transaction_timeout_ms=long_ms)
    assert (plan.verdict, plan.needed_override) == ("long", "long")
    assert plan.refusal == MEANINGS["long"]
    for other, why in (
        (None, "is long now"),
        ("ongoing", "is not what is not proven now: long"),
        ("idle", "not proven"),
    ):
        with pytest.raises(ActionRefused, match=why):
            plan.execute(confirm=plan.target, override=other)
    assert plan.preflight(override="long")["state"] == "Ongoing"
    staged.close()


def test_a_long_transaction_is_fenced_only_with_override(
    kafka: Kafka, cluster: Cluster, staged: StagedIncident, audit: Audit
) -> None:
    plan = plan_fence(cluster, staged.transactional_id, max_transaction_timeout_ms=LONG_MS)
    assert list(plan.topic_partitions) == [(staged.topic, staged.partition)]
    assert plan.warnings == (LOST, FENCED)
    result = plan.execute(confirm=staged.transactional_id, override="long")
    assert result.still_open == []
    now = result.owner
    assert now is not None
    assert now.state in {"Empty", "CompleteAbort"}
    assert (now.producer_id, now.producer_epoch) != (staged.producer_id, staged.producer_epoch)
    assert (
        cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=0)[0]["verdict"]
        == "clear"
    )
    with (
        BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client,
        pytest.raises(RequestRefused, match=r"FENCED|INVALID_PRODUCER"),
    ):
        owner_of(client, staged).end(commit=True)
    assert read_committed(kafka, staged.topic, staged.partition) == 1
    intent, outcome = audit.rows()
    assert (intent["action"], intent["target"], intent["verdict"]) == ("fence", staged.transactional_id, "long")
    assert outcome["response"] == f"NONE: producer_id={now.producer_id}, producer_epoch={now.producer_epoch}"


def test_a_live_owner_is_fenced_only_with_override(cluster: Cluster, staged: StagedIncident, audit: Audit) -> None:
    plan = plan_fence(cluster, staged.transactional_id)
    assert plan.verdict == "ongoing"
    with pytest.raises(ActionRefused, match="is ongoing now: it is within its own timeout"):
        plan.execute(confirm=plan.target)
    for other in ("long", "decided", "overdue"):
        with pytest.raises(ActionRefused, match=f"{other}' is not what is not proven now: ongoing"):
            plan.execute(confirm=plan.target, override=other)
    with pytest.raises(ActionRefused, match="does not name"):
        plan.execute(confirm="payments")
    with pytest.raises(BrokerError, match="is still owned by producer"):
        plan.verify()
    plan.execute(confirm=plan.target, override="ongoing")
    assert [row["step"] for row in audit.rows()] == ["refused"] * 5 + ["intent", "outcome"]
    assert audit.rows()[-1]["override"] == "ongoing"


def test_a_transaction_that_ended_or_began_after_the_plan_is_refused(
    kafka: Kafka, cluster: Cluster, staged: StagedIncident
) -> None:
    plan = plan_fence(cluster, staged.transactional_id, max_transaction_timeout_ms=LONG_MS)
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        owner_of(client, staged).end(commit=True)
        with pytest.raises(ActionRefused, match="its state is CompleteCommit, and was Ongoing"):
            plan.execute(confirm=plan.target, override="long")
        idle = plan_fence(cluster, staged.transactional_id)
        assert (idle.verdict, len(idle.warnings)) == ("idle", 1)
        owner_of(client, staged).init()
        with pytest.raises(ActionRefused, match="changed since it was planned: its producer_epoch"):
            idle.execute(confirm=idle.target, override="idle")
    assert read_committed(kafka, staged.topic, staged.partition) == 2


def test_an_abandoned_id_is_fenced(cluster: Cluster, kafka: Kafka) -> None:
    """Its late batch still hangs, as the coordinator does not own it: only an abort marker ends it."""
    staged = INCIDENTS["late_message"](kafka)
    plan = plan_fence(cluster, staged.transactional_id)
    result = plan.execute(confirm=plan.target, override="idle")
    assert result.owner is not None
    assert result.owner.producer_epoch != staged.producer_epoch
    rows = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=1.1)
    assert rows[0]["verdict"] == "hanging"
    abort = plan_abort(cluster, rows[0])
    abort.execute(confirm=abort.target, recheck_after=0)


def test_without_an_audit_trail_nothing_is_fenced(cluster: Cluster, staged: StagedIncident) -> None:
    plan = plan_fence(cluster, staged.transactional_id)
    with pytest.raises(ActionRefused, match="Nothing was sent"):
        plan.execute(confirm=plan.target, audit=Audit("/dev/full"), override="ongoing")
    assert plan.preflight(override="ongoing")["state"] == "Ongoing"
    staged.close()


def test_an_unknown_transactional_id_is_not_found(cluster: Cluster) -> None:
    with pytest.raises(NotFound, match="There is no transactional id 'nobody'"):
        plan_fence(cluster, "nobody")


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "ongoing"),
        ({"start_time": NOW - dt.timedelta(seconds=21)}, "ongoing"),
        ({"start_time": NOW - dt.timedelta(seconds=22)}, "overdue"),
        ({"timeout_ms": 3_600_000, "start_time": NOW - dt.timedelta(seconds=901)}, "long"),
        ({"timeout_ms": 2**31 - 1, "start_time": NOW - dt.timedelta(days=30)}, "prepared"),
        ({"start_time": None}, "ongoing"),
        ({"state": "PrepareCommit"}, "decided"),
        ({"state": "PrepareAbort"}, "decided"),
        ({"state": "PrepareEpochFence"}, "decided"),
        ({"state": "CompleteAbort"}, "idle"),
    ],
)
def test_the_verdict_of_each_transaction_state(changed: Row, verdict: str) -> None:
    owner = {"state": "Ongoing", "timeout_ms": 1_000, "start_time": NOW, "observed_at": NOW, "source": STATE_TOPIC}
    txn = Transaction.of({**owner, **changed})
    age = TransactionAge.of(txn.start_time, BrokersTime(time=txn.observed_at, is_current=True))
    long_after = dt.timedelta(minutes=15)
    known = IdEvidence(owner=txn, findings=(), age=age, long_after=long_after, is_checkpointed=False, is_hidden=False)
    assert decide_id(known).verdict == verdict


@pytest.mark.parametrize("lab", [on_cluster(NEWEST, TWO_PHASE, id="two-phase")], indirect=True)
def test_a_prepared_transaction_is_fenced_only_with_override(lab: Kafka) -> None:
    with Cluster(lab.bootstrap_servers) as cluster:
        staged = INCIDENTS["prepared"](lab)
        plan = plan_fence(cluster, staged.transactional_id)
        with pytest.raises(ActionRefused, match="is prepared now: it is part of a two-phase commit"):
            plan.execute(confirm=plan.target)
        assert plan.execute(confirm=plan.target, override="prepared").still_open == []


def test_the_plan_prints_the_command_of_kafka_transactions_sh(
    kafka: Kafka, cluster: Cluster, staged: StagedIncident
) -> None:
    plan = plan_fence(cluster, staged.transactional_id)
    completed = kafka.run_tool("org.apache.kafka.tools.TransactionsCommand", *(plan.command or ())[1:])
    assert completed.returncode == 0, completed.stderr
    with pytest.raises(ActionRefused, match="changed since it was planned"):
        plan.preflight()


def test_without_permission_nothing_is_fenced(
    cluster: Cluster, staged: StagedIncident, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced response of the broker: the session's broker has no authorizer."""
    denied = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: no"
    monkeypatch.setattr(type(FENCE), "answer_of", lambda *_: denied)
    plan = plan_fence(cluster, staged.transactional_id)
    match = r"refused to fence .*Nothing was sent.*WRITE on the transactional id"
    with pytest.raises(ActionFailed, match=match) as raised:
        plan.execute(confirm=plan.target, override="ongoing")
    assert raised.value.effect == "nothing"
    assert Audit().rows()[-1]["response"] == denied
    staged.close()
