"""The abort of a hanging transaction on a real broker: it releases the LSO, and everything else is refused."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer

from tests.actions.rows import forged, with_txn
from tests.brokers import NEWEST, OLDER, on_cluster
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import plan_abort
from toolkit.actions.transaction import MarkerImpact
from toolkit.errors import ActionRefused, BrokerError, UsageError
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import Row
from toolkit.schema.live import Finding
from toolkit.schema.table import TableRow
from toolkit.schema.verdict import Verdict

pytestmark = pytest.mark.lab

HANGING = [
    name for name, incident in INCIDENTS.items() if incident.expected == "hanging" and incident.setup is EVERYDAY
]
ONGOING = [
    name for name, incident in INCIDENTS.items() if incident.expected == "ongoing" and incident.setup is EVERYDAY
]

R = TypeVar("R", bound=TableRow)


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


def finding(cluster: Cluster, staged: StagedIncident) -> Row:
    rows = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=1.1)
    return next(row for row in rows if row["start_offset"] == staged.start_offset)


def read_committed(kafka: Kafka, topic: str, partition: int) -> int:
    """How many records a read_committed consumer reads before it reaches the end."""
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
    count = 0
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "no response within 60 s"
            if message.error():
                return count
            count += 1
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("lab", "name"),
    [on_cluster(version, EVERYDAY, name, id=f"{version}-{name}") for version in (OLDER, NEWEST) for name in HANGING],
    indirect=["lab"],
)
def test_an_abort_marker_ends_the_hanging_transaction_and_releases_the_lso(lab: Kafka, name: str) -> None:
    """The marker carries the partition's own epoch, its coordinator epoch (or 0), and version 0."""
    with INCIDENTS[name](lab) as staged, Cluster(lab.bootstrap_servers) as cluster:
        plan = plan_abort(cluster, finding(cluster, staged))
        result = plan.execute(confirm=plan.target, recheck_after=1.1)
        moved = result.partitions[0]
        assert moved.next_start_offset == next((other.start_offset for other in _later_on_partition(staged)), None)
        before, after = result.last_stable_offset_before, result.last_stable_offset_after
        assert after is not None
        assert before is not None
        assert after > before
        assert after == (moved.high_watermark if moved.next_start_offset is None else moved.next_start_offset)
        rows = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=0)
        assert staged.start_offset not in [row["start_offset"] for row in rows]


def _later_on_partition(staged: StagedIncident) -> list[StagedIncident]:
    return [other for other in staged.also if other.partition == staged.partition and other.topic == staged.topic]


@pytest.mark.parametrize("name", ONGOING)
def test_a_live_transaction_is_refused_and_commits_completely(kafka: Kafka, cluster: Cluster, name: str) -> None:
    """The broker would accept the marker, and the commit would still return success, with half the data lost."""
    with INCIDENTS[name](kafka) as staged:
        row = finding(cluster, staged)
        with pytest.raises(ActionRefused, match="has an owner"):
            plan_abort(cluster, row)
        plan = plan_abort(cluster, forged(row))
        with pytest.raises(ActionRefused, match="not proven to be hanging"):
            plan.execute(confirm=plan.target, recheck_after=0)
    if name != "superseded_written":  # its owner aborts it, which is the remedy
        assert read_committed(kafka, staged.topic, staged.partition) == 2


def test_a_wrong_confirmation_writes_nothing(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    with pytest.raises(ActionRefused, match=f"confirm with exactly {plan.target}"):
        plan.execute(confirm="orders-0@1")
    assert finding(cluster, staged)["verdict"] == "hanging"


def test_a_transaction_that_ended_after_the_plan_is_refused(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["late_message"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    plan.execute(confirm=plan.target, recheck_after=0)
    with pytest.raises(ActionRefused, match="has no transaction open"):
        plan.execute(confirm=plan.target, recheck_after=0)


def test_a_transaction_that_resumed_after_the_plan_is_refused(kafka: Kafka, cluster: Cluster) -> None:
    """Its owner adds the partition after the plan was made: a marker would then lose half of the transaction."""
    from toolkit.config import ClientConfig
    from toolkit.lab.clients import TxnProducer
    from toolkit.sources.live.broker_client import BrokerClient

    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        owner = TxnProducer(client, staged.transactional_id)
        owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
        owner.add(staged.topic, staged.partition)
        with pytest.raises(ActionRefused, match="is ongoing now"):
            plan.execute(confirm=plan.target, recheck_after=0)
        owner.end(commit=True)
    assert read_committed(kafka, staged.topic, staged.partition) == 2


def test_a_new_epoch_after_the_plan_is_refused(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = with_txn(plan_abort(cluster, finding(cluster, staged)), producer_epoch=staged.producer_epoch + 1)
    with pytest.raises(ActionRefused, match="changed since it was planned: its epoch is"):
        plan.execute(confirm=plan.target, recheck_after=0)


def test_the_plan_prints_the_command_of_kafka_transactions_sh(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    assert shlex.join(plan.command or ()) == (
        f"kafka-transactions.sh --bootstrap-server {kafka.bootstrap_servers} abort --topic {staged.topic} "
        f"--partition 0 --start-offset {staged.start_offset}"
    )
    arguments = (plan.command or ())[1:]
    completed = kafka.run_tool("org.apache.kafka.tools.TransactionsCommand", *arguments)
    assert completed.returncode == 0, completed.stderr
    with pytest.raises(ActionRefused):
        plan.preflight(recheck_after=0)


def test_every_step_is_in_the_audit_trail(kafka: Kafka, cluster: Cluster, audit: Audit) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    with pytest.raises(ActionRefused, match="confirm with exactly"):
        plan.execute(confirm="orders-0@1")
    result = plan.execute(confirm=plan.target, recheck_after=0)
    refused, intent, outcome = audit.rows()
    assert (refused["step"], refused["target"], refused["verdict"]) == ("refused", plan.target, None)
    assert (intent["step"], intent["verdict"], intent["response"]) == ("intent", "hanging", None)
    assert intent["request"].startswith(f"WriteTxnMarkers to broker 1: producer_id={staged.producer_id}, ")
    assert {"coverage", "DescribeProducers"} <= {entry["source"] for entry in intent["evidence"]}
    assert (outcome["step"], outcome["response"], outcome["error"]) == ("outcome", "NONE", None)
    assert outcome["last_stable_offset_before"] == staged.start_offset
    assert outcome["last_stable_offset_after"] == result.last_stable_offset_after
    assert plan.verify().partitions[0].next_start_offset is None


@pytest.mark.parametrize("path", ["/dev/full", "/proc/none/audit.jsonl"])
def test_without_an_audit_trail_nothing_is_aborted(kafka: Kafka, cluster: Cluster, path: str) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    with pytest.raises(ActionRefused, match=r"Nothing was (sent|written)"):
        plan.execute(confirm=plan.target, audit=Audit(path), recheck_after=0)
    assert finding(cluster, staged)["verdict"] == "hanging"
    with pytest.raises(BrokerError, match="is still open"):
        plan.verify()


def test_the_impact_counts_dropped_and_released_records(kafka: Kafka, cluster: Cluster) -> None:
    """Behind the hanging transaction are committed and aborted ones, records without transaction, and an open one."""
    from toolkit.config import ClientConfig
    from toolkit.lab.clients import TxnProducer, write_committed
    from toolkit.sources.live.broker_client import BrokerClient

    staged = INCIDENTS["never_added"](kafka)
    visible_before = read_committed(kafka, staged.topic, staged.partition)
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        write_committed(client, staged.topic, staged.partition, records=3)
        other = TxnProducer(client, f"{staged.transactional_id}-other").init()
        for commit in (False, None):
            other.add(staged.topic, staged.partition)
            start = other.send(staged.topic, staged.partition, records=5)
            if commit is not None:
                other.end(commit=commit)
        write_committed(client, staged.topic, staged.partition, records=7)
        plan = plan_abort(cluster, finding(cluster, staged))
        impact = plan.impact
        released = impact.records_released
        assert released is not None
        assert impact == MarkerImpact(
            records=1,
            size=impact.size,
            first_offset=staged.start_offset,
            last_offset=staged.start_offset,
            records_released=released,
            groups=(),
            last_stable_offset=staged.start_offset,
            next_stable_offset=start,
            next_start_offset=start,
            next_producer_id=other.producer_id,
        )
        plan.execute(confirm=plan.target, recheck_after=0)
        assert read_committed(kafka, staged.topic, staged.partition) == visible_before + released
        other.end(commit=True)


def test_the_impact_does_not_count_unread_records(
    kafka: Kafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkit.config import ClientConfig
    from toolkit.lab.clients import write_committed
    from toolkit.sources.live.broker_client import BrokerClient

    staged = INCIDENTS["never_added"](kafka)
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        write_committed(client, staged.topic, staged.partition)
    monkeypatch.setattr("toolkit.actions.transaction.MAX_IMPACT_BYTES", 1)
    monkeypatch.setattr("toolkit.sources.live.partition_log.FETCH_BYTES", 1)  # a broker returns one batch
    impact = plan_abort(cluster, finding(cluster, staged)).impact
    assert (impact.records, impact.records_released) == (None, None)
    first, end = staged.start_offset, impact.next_stable_offset
    assert re.fullmatch(
        rf"The log was read from offset {first} to {first + 1} \(\d+ bytes\) and not to {end}\.", impact.unread
    )


def test_a_row_of_a_data_frame_is_accepted_as_a_finding(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["never_added"](kafka)
    frame = cluster.findings(topics=[staged.topic], partitions=[staged.partition], recheck_after=1.1)
    plan = plan_abort(cluster, frame.iloc[0])
    assert plan == plan_abort(cluster, frame.head(1)) == plan_abort(cluster, finding(cluster, staged))
    with pytest.raises(UsageError, match="One finding is needed, not 2"):
        plan_abort(cluster, frame.iloc[[0, 0]])


def test_a_transaction_with_new_records_is_refused(kafka: Kafka, cluster: Cluster, audit: Audit) -> None:
    """New records of a zombie may be the start of a live transaction."""
    from toolkit.config import ClientConfig
    from toolkit.lab.clients import TxnProducer
    from toolkit.sources.live.broker_client import BrokerClient

    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        zombie = TxnProducer(client, staged.transactional_id)
        zombie.producer_id, zombie.producer_epoch = staged.producer_id, staged.producer_epoch
        zombie._sequences[staged.topic, staged.partition] = (plan.transaction.last_sequence or 0) + 1
        zombie.send(staged.topic, staged.partition)
    with pytest.raises(ActionRefused, match="last_sequence is 1, and was 0"):
        plan.execute(confirm=plan.target, recheck_after=0)
    assert [row["step"] for row in audit.rows()] == ["refused"]


def test_an_unknown_verdict_is_overridden_only_by_what_is_not_proven(
    kafka: Kafka, cluster: Cluster, audit: Audit
) -> None:
    """The missing evidence is simulated; all requests go to a real broker."""
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(ClusterWithGap(kafka.bootstrap_servers), with_gap(finding(cluster, staged)))
    claim = f"no live transaction owns offset {staged.start_offset} of {staged.topic}-{staged.partition}"
    assert (plan.refusal, plan.needed_override) == ("the answer of broker 2", claim)
    with pytest.raises(ActionRefused, match="not proven to be hanging: the answer of broker 2"):
        plan.execute(confirm=plan.target, recheck_after=0)
    others = ("unknown", claim.replace("no live transaction owns", "no commit includes"))
    for other in others:
        with pytest.raises(ActionRefused, match=f"is not what is not proven now: {claim}"):
            plan.execute(confirm=plan.target, override=other, recheck_after=0)
    plan.execute(confirm=plan.target, override=claim, recheck_after=0)
    plan.cluster.close()
    assert [(row["step"], row["override"]) for row in audit.rows()] == [
        ("refused", None),
        *(("refused", other) for other in others),
        ("intent", claim),
        ("outcome", claim),
    ]


GAP = {"verdict": "unknown", "outcome": "unknown", "action": None, "missing": ["the answer of broker 2"]}


def with_gap(row: Row) -> Row:
    """The finding without the response of one broker, which may have a live transaction."""

    def unproven(entry: Row) -> Row:
        is_owner = entry["name"] == "claim_not_owned"
        return {**entry, "value": entry["value"].replace(": proven", ": not proven")} if is_owner else entry

    return {**row, **GAP, "evidence": [unproven(each) for each in row["evidence"]]}


class ClusterWithGap(Cluster):
    """A cluster whose findings lack the response of one broker."""

    def records(self, record: type[R], **arguments: Any) -> list[R]:
        found = super().records(record, **arguments)
        return [record.of(with_gap(each.row())) for each in found] if record is Finding else found


def test_a_live_or_decided_transaction_is_never_overridden(kafka: Kafka, cluster: Cluster) -> None:
    with INCIDENTS["open_young"](kafka) as staged:
        row = finding(cluster, staged)
        claim = f"no live transaction owns offset {staged.start_offset} of {staged.topic}-{staged.partition}"
        unknown = replace(forged(row), verdict=Verdict.UNKNOWN, outcome="unknown", action=None)
        entries = [
            replace(each, value=f"{claim}: not proven") if each.name == "claim_not_owned" else each
            for each in unknown.evidence
        ]
        plan = plan_abort(cluster, replace(unknown, evidence=tuple(entries)))
        assert plan.needed_override == claim
        with pytest.raises(ActionRefused, match="is ongoing now, not proven to be hanging, which cannot be overridden"):
            plan.execute(confirm=plan.target, override=claim, recheck_after=0)
    assert read_committed(kafka, staged.topic, staged.partition) == 2
