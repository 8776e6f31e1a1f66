"""The abort of a hanging transaction on a real broker: it releases the LSO, and everything else is refused.

What is refused, and by which words it is overridden, is on prepared rows: `test_guards`, `test_refusals`.
"""

import shlex
import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.actions.rows import forged
from tests.brokers import NEWEST, OLDER, on_cluster
from tests.builders import received
from toolkit import Cluster
from toolkit.actions.marker_actions import plan_abort, planned_with_impact
from toolkit.actions.transaction import MarkerImpact, save_records
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, write_committed
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import SAVED_RECORDS, Row
from toolkit.schema.live import Finding

pytestmark = pytest.mark.lab

HANGING = [
    name for name, incident in INCIDENTS.items() if incident.expected == "hanging" and incident.setup is EVERYDAY
]
ONGOING = [
    name for name, incident in INCIDENTS.items() if incident.expected == "ongoing" and incident.setup is EVERYDAY
]


def finding(cluster: Cluster, staged: StagedIncident) -> Row:
    rows = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=0.2)
    return next(row for row in rows if row["start_offset"] == staged.start_offset)


def read_committed(kafka: Kafka, topic: str, partition: int) -> int:
    """How many records a read_committed consumer reads before it reaches the end."""
    return len(received(kafka, [(topic, partition)]))


@pytest.mark.parametrize(
    ("lab", "name"),
    [on_cluster(version, EVERYDAY, name, id=f"{version}-{name}") for version in (OLDER, NEWEST) for name in HANGING],
    indirect=["lab"],
)
def test_an_abort_marker_ends_the_hanging_transaction_and_releases_the_lso(lab: Kafka, name: str) -> None:
    """The marker carries the partition's own epoch, its coordinator epoch (or 0), and version 0."""
    with INCIDENTS[name](lab) as staged, Cluster(lab.bootstrap_servers) as cluster:
        plan = plan_abort(cluster, finding(cluster, staged))
        result = plan.execute(confirm=plan.target, recheck_after=0.2)
        moved = result.partitions[0]
        later = [each for each in staged.also if (each.topic, each.partition) == (staged.topic, staged.partition)]
        assert moved.next_start_offset == next((other.start_offset for other in later), None)
        before, after = result.last_stable_offset_before, result.last_stable_offset_after
        assert after is not None
        assert before is not None
        assert after > before
        assert after == (moved.high_watermark if moved.next_start_offset is None else moved.next_start_offset)
        rows = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=0)
        assert staged.start_offset not in [row["start_offset"] for row in rows]


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


def test_a_transaction_that_resumed_after_the_plan_is_refused(kafka: Kafka, cluster: Cluster) -> None:
    """Its owner adds the partition after the plan was made: a marker would then lose half of the transaction."""
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    owner = TxnProducer(cluster.client, staged.transactional_id)
    owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
    owner.add(staged.topic, staged.partition)
    with pytest.raises(ActionRefused, match="is ongoing now"):
        plan.execute(confirm=plan.target, recheck_after=0)
    owner.end(commit=True)
    assert read_committed(kafka, staged.topic, staged.partition) == 2


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
        plan.check(recheck_after=0)


def test_the_impact_counts_dropped_and_released_records(kafka: Kafka, cluster: Cluster) -> None:
    """Behind the hanging transaction are committed and aborted ones, records without transaction, and an open one."""
    staged = INCIDENTS["never_added"](kafka)
    visible_before = read_committed(kafka, staged.topic, staged.partition)
    write_committed(cluster.client, staged.topic, staged.partition, records=3)
    other = TxnProducer(cluster.client, f"{staged.transactional_id}-other").init()
    for commit in (False, None):
        other.add(staged.topic, staged.partition)
        start = other.send(staged.topic, staged.partition, records=5)
        if commit is not None:
            other.end(commit=commit)
    write_committed(cluster.client, staged.topic, staged.partition, records=7)
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


# What it discards is saved first


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_all_of_a_transaction_is_saved_and_nothing_else(
    kafka: Kafka, cluster: Cluster, tmp_path: Path, codec: str
) -> None:
    """Keys, values and headers of each kind; other producers write before, between and after."""
    staged = INCIDENTS["never_added"](kafka)
    topic = staged.topic
    producer = Producer(
        {**kafka.client_config(), "transactional.id": f"saved-{uuid.uuid4().hex[:6]}", "compression.type": codec}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    expected = []
    for number in range(3):
        write_committed(cluster.client, topic, 0)
        headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x00\xff"), ("empty", None), ("trace", b"twice")]
        headers = headers[: number + 1]
        value = None if number == 1 else b"\x80value" * 1000
        producer.produce(topic, value, b"key" if number else None, 0, headers=headers, timestamp=1_000 + number)
        producer.flush(30)
        expected.append(
            (b"key" if number else None, value, [{"key": k, "value": v} for k, v in headers], 1_000 + number)
        )
    write_committed(cluster.client, topic, 0)
    rows = cluster.finding_rows(topics=[topic], partitions=[0], recheck_after=0)
    live = max(map(Finding.of, rows), key=lambda each: each.start_offset or -1)
    txn = planned_with_impact(cluster, live)
    saved = save_records(cluster, txn, tmp_path / "records" / "orders.parquet")
    table = pq.read_table(saved.path)
    assert table.schema.equals(SAVED_RECORDS.arrow_schema)
    rows = table.to_pylist()
    found = [(r["key"], r["value"], r["headers"], round(r["timestamp"].timestamp() * 1000)) for r in rows]
    assert found == expected
    assert (saved.records, {r["producer_id"] for r in rows}) == (3, {txn.producer_id})
    assert saved.path.stat().st_mode & 0o777 == 0o600
    assert saved.path.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in saved.path.parent.iterdir()] == ["orders.parquet"]
    producer.abort_transaction(30)


def test_all_offsets_of_groups_are_planned_and_saved(kafka: Kafka, cluster: Cluster) -> None:
    """Each batch of a group coordinator has sequence number 0: the first one was taken for the last, and an abort
    discarded the others without a copy.
    """
    staged = INCIDENTS["offsets_never_added"](kafka)
    producer = TxnProducer(cluster.client, staged.transactional_id)
    producer.producer_id, producer.producer_epoch = staged.producer_id, staged.producer_epoch
    for offset in (5, 6):
        producer.commit_offset(staged.group, staged.topic, staged.partition, offset=offset)
    plan = plan_abort(cluster, finding(cluster, staged))
    assert [(each.group_id, each.offset) for each in plan.impact.offset_commits] == [
        (staged.group, 6),
        (staged.group, 0),
    ]
    done = plan.execute(confirm=plan.target, recheck_after=0)
    assert done.records_file is not None
    rows = pq.read_table(done.records_file).to_pylist()
    assert [(row["group_id"], row["committed_offset"]) for row in rows] == [(staged.group, each) for each in (0, 5, 6)]
    assert all(row["committed_topic"] for row in rows)
