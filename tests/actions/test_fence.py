"""Fencing the owner of an id on a real broker: its transactions are aborted everywhere, and its producer is fenced.

Whom a fence may end, and by which words, is on prepared rows: `test_coordinator_guards`, `test_refusals`.
"""

import pytest
from confluent_kafka.admin import AdminClient

from tests.actions.test_abort import read_committed
from tests.brokers import NEWEST, on_cluster
from tests.builders import create_topics
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import FENCED, LOST, plan_fence
from toolkit.actions.marker_actions import plan_abort
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import RequestRefused, TxnProducer, until
from toolkit.lab.incidents import INCIDENTS, TWO_PHASE

pytestmark = pytest.mark.lab

LONG_MS = 1  # an older transaction is `long`


def test_a_long_transaction_is_fenced_only_with_override(kafka: Kafka, cluster: Cluster, audit: Audit) -> None:
    staged = INCIDENTS["open_young"](kafka)  # its owner does not end it
    plan = plan_fence(cluster, staged.transactional_id, max_transaction_timeout_ms=LONG_MS)
    assert list(plan.topic_partitions) == [(staged.topic, staged.partition)]
    assert plan.warnings == (LOST, FENCED)
    with pytest.raises(ActionRefused, match="is long now"):
        plan.execute(confirm=plan.target)
    result = plan.execute(confirm=staged.transactional_id, override="long")
    assert result.still_open == []
    now = result.owner
    assert now is not None
    assert now.state in {"Empty", "CompleteAbort"}
    assert (now.producer_id, now.producer_epoch) != (staged.producer_id, staged.producer_epoch)
    (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=0)
    assert row["verdict"] == "clear"
    owner = TxnProducer(cluster.client, staged.transactional_id)
    owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
    with pytest.raises(RequestRefused, match=r"FENCED|INVALID_PRODUCER"):
        owner.end(commit=True)
    assert read_committed(kafka, staged.topic, staged.partition) == 1
    _, intent, outcome = audit.rows()
    assert (intent["action"], intent["target"], intent["verdict"]) == ("fence", staged.transactional_id, "long")
    assert outcome["response"] == f"NONE: producer_id={now.producer_id}, producer_epoch={now.producer_epoch}"


def test_a_deleted_topic_hides_nothing_of_the_others(cluster: Cluster, kafka: Kafka) -> None:
    """Nothing was read then of the transaction, so that words could override a fence of committed records."""
    create_topics(kafka, "kept", "deleted")
    producer = TxnProducer(cluster.client, "of-a-deleted-topic").init()
    producer.add("kept", 0)
    producer.add("deleted", 0)
    producer.send("kept", 0)
    producer.send("deleted", 0)
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    admin.delete_topics(["deleted"])["deleted"].result(60)
    until(lambda: "deleted" not in admin.list_topics(timeout=10).topics or None, awaited="the topic to be gone")
    plan = plan_fence(cluster, "of-a-deleted-topic")
    claims = {each.claim: each.status for each in plan.ruling.claims}
    assert claims["no commit includes offset 0 of kept-0"] == "proven"
    assert plan.needed_override == "ongoing, and no commit includes what is open under of-a-deleted-topic"
    assert plan.execute(confirm=plan.target, override=plan.needed_override).still_open == []


def test_an_abandoned_id_is_fenced(cluster: Cluster, kafka: Kafka) -> None:
    """Its late batch still hangs, as the coordinator does not own it: only an abort marker ends it."""
    staged = INCIDENTS["late_message"](kafka)
    plan = plan_fence(cluster, staged.transactional_id)
    result = plan.execute(confirm=plan.target, override="idle")
    assert result.owner is not None
    assert result.owner.producer_epoch != staged.producer_epoch
    rows = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=0.2)
    assert rows[0]["verdict"] == "hanging"
    abort = plan_abort(cluster, rows[0])
    abort.execute(confirm=abort.target, recheck_after=0)


@pytest.mark.parametrize("lab", [on_cluster(NEWEST, TWO_PHASE, id="two-phase")], indirect=True)
def test_a_prepared_transaction_is_fenced_only_with_override(lab: Kafka) -> None:
    with Cluster(lab.bootstrap_servers) as cluster:
        staged = INCIDENTS["prepared"](lab)
        plan = plan_fence(cluster, staged.transactional_id)
        with pytest.raises(ActionRefused, match="is prepared now: it is part of a two-phase commit"):
            plan.execute(confirm=plan.target)
        assert plan.execute(confirm=plan.target, override="prepared").still_open == []


def test_the_plan_prints_the_command_of_kafka_transactions_sh(kafka: Kafka, cluster: Cluster) -> None:
    plan = plan_fence(cluster, INCIDENTS["open_young"](kafka).transactional_id)
    completed = kafka.run_tool("org.apache.kafka.tools.TransactionsCommand", *(plan.command or ())[1:])
    assert completed.returncode == 0, completed.stderr
    with pytest.raises(ActionRefused, match="changed since it was planned"):
        plan.check()
