"""The one safe road to an abort marker, on a real broker: it frees the LSO, and refuses everything else."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from toolkit import Cluster
from toolkit.actions.abort import plan_abort
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, Staged
from toolkit.schema import Row

pytestmark = pytest.mark.lab

HANGING = [
    name for name, incident in INCIDENTS.items() if incident.expected == "hanging" and incident.setup is EVERYDAY
]
ALIVE = [name for name, incident in INCIDENTS.items() if incident.expected == "ongoing" and incident.setup is EVERYDAY]


@pytest.fixture(scope="module", params=["3.5.2", "4.3.1"])
def broker(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    with Kafka(request.param, properties=EVERYDAY.properties) as kafka:
        yield kafka


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


def finding(cluster: Cluster, staged: Staged) -> Row:
    rows = cluster.finding_rows([staged.topic], [staged.partition], looks_apart=1.1)
    return next(row for row in rows if row["start_offset"] == staged.start_offset)


def read_committed(kafka: Kafka, topic: str, partition: int) -> int:
    """How many records a read_committed consumer sees before it stands at the end."""
    from confluent_kafka import TopicPartition

    consumer = Consumer(
        {
            **kafka.client_config(),
            "group.id": "abort-tests",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    seen = 0
    try:
        while True:
            message = consumer.poll(10)
            assert message is not None, "no answer within 10 s"
            if message.error():
                return seen
            seen += 1
    finally:
        consumer.close()


@pytest.mark.parametrize("name", HANGING)
def test_p13_p14_the_marker_ends_what_hangs_and_frees_the_lso(broker: Kafka, name: str) -> None:
    """P13 and P14: the marker carries the partition's own epoch, its coordinator epoch (or 0), and version 0."""
    with INCIDENTS[name](broker) as staged, Cluster(broker.bootstrap_servers) as cluster:
        plan = plan_abort(cluster, finding(cluster, staged))
        done = plan.execute(confirm=plan.target, looks_apart=1.1)
        assert done.next_start_offset == next((other.start_offset for other in _behind(staged)), None)
        before, after = done.last_stable_offset_before, done.last_stable_offset_after
        assert after is not None
        assert before is not None
        assert after > before
        assert after == (done.high_watermark if done.next_start_offset is None else done.next_start_offset)
        rows = cluster.finding_rows([staged.topic], [staged.partition], looks_apart=0)
        assert staged.start_offset not in [row["start_offset"] for row in rows]


def _behind(staged: Staged) -> list[Staged]:
    return [other for other in staged.also if other.partition == staged.partition and other.topic == staged.topic]


@pytest.mark.parametrize("name", ALIVE)
def test_p15_a_live_transaction_is_refused_and_commits_unharmed(kafka: Kafka, cluster: Cluster, name: str) -> None:
    """P15: the broker would take the marker, and the commit would still return success, with half the data gone."""
    with INCIDENTS[name](kafka) as staged:
        row = finding(cluster, staged)
        with pytest.raises(ActionRefused, match="has an owner"):
            plan_abort(cluster, row)
        forged = plan_abort(cluster, {**row, "verdict": "hanging"})
        with pytest.raises(ActionRefused, match="not proven to be hanging"):
            forged.execute(confirm=forged.target, looks_apart=0)
    if name != "superseded_written":  # its owner aborts, which is the remedy
        assert read_committed(kafka, staged.topic, staged.partition) == 2


def test_another_confirmation_writes_nothing(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    with pytest.raises(ActionRefused, match=f"confirm with exactly {plan.target}"):
        plan.execute(confirm="orders-0@1")
    assert finding(cluster, staged)["verdict"] == "hanging"


def test_p6_what_ended_since_the_plan_is_refused(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["late_message"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    plan.execute(confirm=plan.target, looks_apart=0)
    with pytest.raises(ActionRefused, match="has no transaction open"):
        plan.execute(confirm=plan.target, looks_apart=0)


def test_what_came_back_to_life_since_the_plan_is_refused(kafka: Kafka, cluster: Cluster) -> None:
    """Its owner adds the partition after the plan was made: from then on a marker would lose half of it."""
    from toolkit.config import ClientConfig
    from toolkit.lab.producer import TxnProducer
    from toolkit.sources.wire import Wire

    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    with Wire(ClientConfig(kafka.bootstrap_servers)) as wire:
        owner = TxnProducer(wire, staged.transactional_id)
        owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
        owner.add(staged.topic, staged.partition)
        with pytest.raises(ActionRefused, match="is ongoing now"):
            plan.execute(confirm=plan.target, looks_apart=0)
        owner.end(commit=True)
    assert read_committed(kafka, staged.topic, staged.partition) == 2


def test_an_epoch_that_moved_since_the_plan_is_refused(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = replace(plan_abort(cluster, finding(cluster, staged)), producer_epoch=staged.producer_epoch + 1)
    with pytest.raises(ActionRefused, match="not proven"):
        plan.execute(confirm=plan.target, looks_apart=0)


def test_the_plan_prints_as_kafkas_own_command(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    assert plan.command == (
        f"kafka-transactions.sh --bootstrap-server {kafka.bootstrap_servers} abort --topic {staged.topic} "
        f"--partition 0 --start-offset {staged.start_offset}"
    )
    arguments = plan.command.split()[1:]
    done = kafka.run_tool("org.apache.kafka.tools.TransactionsCommand", *arguments)
    assert done.returncode == 0, done.stderr
    with pytest.raises(ActionRefused):
        plan.preflight(looks_apart=0)
