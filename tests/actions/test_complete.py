"""The marker that is missing, written: committed records whose marker was skipped are delivered at last (KAFKA-20734).

Two brokers of 4.3.1. Broker 1 has the coordinators; the partitions of `left`, and a group's partition of
``__consumer_offsets``, have broker 2 as their only replica. It is stopped while a transaction ends: the coordinator
skips the marker there, and the commit returns success. Records of `left` have the broker's time, and are proven to be
older than their commit; those of `events` have their client's.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.actions.rows import forged
from tests.actions.test_abort import read_committed
from tests.builders import create_topics
from tests.process import on
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import plan_abort, plan_complete
from toolkit.analysis.diagnosis.rules import claims_of, needed_override
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, coordinator, leader, until
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema.live import Finding

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("test_complete")]

HERE, AWAY = 1, 2
PARTITIONS = 8
PROPERTIES = {
    **EVERYDAY.properties,
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
}
OFFSETS = "__consumer_offsets"
OLDER_S = 7  # clocks may differ by 5 s, and offsets are appended up to 1 s after their time


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Transactions whose marker was skipped, by what became of them, and the partition of each."""

    kafka: Kafka
    producers: Mapping[str, TxnProducer]
    partitions: Mapping[str, tuple[str, int]]
    group: str


@pytest.fixture(scope="module")
def skipped() -> Iterator[Skipped]:
    """All of them in one outage."""
    with Kafka("4.3.1", brokers=2, properties=PROPERTIES) as kafka, Cluster(kafka.bootstrap_servers) as cluster:
        create(kafka, "left", AWAY, PARTITIONS, **{"message.timestamp.type": "LogAppendTime"})
        create(kafka, "events", AWAY, 1)
        create(kafka, "right", HERE, 1)
        group = until(
            lambda: next(
                (name for name in names("group") if coordinator(cluster.client, name, group=True) == AWAY), None
            ),
            awaited="a group of the broker that goes away",
        )
        producers = {name: producer_here(cluster, name) for name in ("commit", "abort", "offsets", "newer", "likely")}
        tps: dict[str, tuple[str, int]] = {}
        for number, (name, producer) in enumerate(producers.items()):
            producer.add("right", 0)
            producer.send("right", 0)
            if name == "offsets":
                (row,) = cluster.coordinator_rows(transactional_ids=[], groups=[group])
                tps[name] = (OFFSETS, row["partition"])
                producer.add_offsets(group)
                producer.commit_offset(group, "right", 0, offset=7)
            else:
                tps[name] = ("events", 0) if name == "likely" else ("left", number)
                producer.add(*tps[name])
                producer.send(*tps[name], records=2)
        written = time.monotonic()
        kafka.stop_broker(AWAY)
        until(lambda: time.monotonic() > written + OLDER_S or None, awaited="records older than clocks may differ")
        for name, producer in producers.items():
            producer.end(commit=name != "abort")
        kafka.start_broker(AWAY)
        for topic, partition in tps.values():
            leader(cluster.client, topic, partition)
        yield Skipped(kafka=kafka, producers=producers, partitions=tps, group=group)


@pytest.fixture
def cluster(skipped: Skipped) -> Iterator[Cluster]:
    with Cluster(skipped.kafka.bootstrap_servers) as connected:
        yield connected


def names(prefix: str) -> list[str]:
    return [f"{prefix}-{uuid.uuid4().hex[:6]}" for _ in range(40)]


def producer_here(cluster: Cluster, name: str, *, transaction_version: int = 1) -> TxnProducer:
    """One whose coordinator stays."""
    transactional_id = next(each for each in names(name) if coordinator(cluster.client, each) == HERE)
    return TxnProducer(cluster.client, transactional_id, transaction_version=transaction_version).init()


def create(kafka: Kafka, topic: str, broker_id: int, count: int, **config: str) -> None:
    create_topics(kafka, NewTopic(topic, count, replica_assignment=[[broker_id]] * count, config=config))


def diagnosed(cluster: Cluster, tp: tuple[str, int]) -> Finding:
    """The finding, once the coordinators have loaded: all of it is proven, or a commit is likely."""

    def found() -> Finding | None:
        rows = cluster.finding_rows(topics=[tp[0]], partitions=[tp[1]], recheck_after=0.5)
        first = Finding.of(rows[0])
        is_proven = first.verdict not in {"unknown", "clear"}
        return first if is_proven or (first.verdict == "unknown" and is_loaded(first)) else None

    return until(found, awaited="a verdict")


def is_loaded(found: Finding) -> bool:
    """Whether what is missing is only a proof that a commit includes all of the records."""
    no_owner, committed = claims_of(found, "complete")
    (_, uncommitted) = claims_of(found, "abort")
    is_likely = committed.status == uncommitted.status == "not proven"
    return no_owner.status == "proven" and (is_likely or committed.status == uncommitted.status == "refuted")


def test_committed_records_without_a_marker_are_delivered(skipped: Skipped, cluster: Cluster, audit: Audit) -> None:
    """0 records before, 2 after; and no abort, by any override."""
    tp = skipped.partitions["commit"]
    found = diagnosed(cluster, tp)
    assert (found.verdict, found.outcome, found.action) == ("stuck_ending", "commit", "complete")
    assert read_committed(skipped.kafka, *tp) == 0
    with pytest.raises(ActionRefused, match="is never aborted"):
        plan_abort(cluster, found)
    wrong = plan_abort(cluster, forged(found))
    for override in (None, "unknown", "no commit includes offsets 0 to 1 of left-0"):
        with pytest.raises(ActionRefused, match=r"is never aborted.*: its records were committed"):
            wrong.check(override=override, recheck_after=0)
    plan = plan_complete(cluster, found)
    assert plan.refusal is None
    assert (plan.impact.records, plan.impact.first_offset, plan.impact.last_offset) == (2, 0, 1)
    assert (plan.impact.last_stable_offset, plan.impact.next_stable_offset) == (0, 2)
    with pytest.raises(ActionRefused, match=f"confirm with exactly {plan.target}"):
        plan.execute(confirm="orders-0@1")
    done = plan.execute(confirm=plan.target, recheck_after=0.5)
    assert (plan.outcome, done.records_checked, done.records_delivered) == ("commit", 2, 2)
    assert read_committed(skipped.kafka, *tp) == 2
    refused, intent, outcome = audit.rows()
    assert (refused["step"], refused["action"]) == ("refused", "complete")
    assert (intent["outcome"], intent["verdict"]) == ("commit", "stuck_ending")
    assert "transaction_result=True" in intent["request"]
    assert (outcome["response"], outcome["last_stable_offset_after"]) == ("NONE", 3)
    with pytest.raises(ActionRefused, match="has no transaction open"):
        plan.execute(confirm=plan.target, recheck_after=0)


def test_aborted_records_without_a_marker_get_their_abort_marker(skipped: Skipped, cluster: Cluster) -> None:
    tp = skipped.partitions["abort"]
    found = diagnosed(cluster, tp)
    assert (found.verdict, found.outcome, found.action) == ("hanging", "abort", "abort")
    plan = plan_complete(cluster, found)
    done = plan.execute(confirm=plan.target, recheck_after=0)
    assert (plan.outcome, done.records_checked, done.records_delivered) == ("abort", 2, 0)
    assert done.last_stable_offset_after == 3
    assert read_committed(skipped.kafka, *tp) == 0


def test_committed_offsets_without_a_marker_become_the_groups(skipped: Skipped, cluster: Cluster) -> None:
    tp = skipped.partitions["offsets"]
    plan = plan_complete(cluster, diagnosed(cluster, tp))
    (commit,) = plan.impact.offset_commits
    assert (commit.group_id, commit.topic, commit.partition, commit.offset) == (skipped.group, "right", 0, 7)
    with pytest.raises(KafkaException):  # UNSTABLE_OFFSET_COMMIT, again and again
        committed(skipped, timeout=1)
    done = plan.execute(confirm=plan.target, override=plan.needed_override, recheck_after=0)
    assert (done.offset_commits, done.unread_groups) == ((commit,), ())
    assert committed(skipped) == 7


def committed(skipped: Skipped, *, timeout: float = 30) -> int:
    """The group's offset, as a consumer that asks for stable offsets gets it."""
    consumer = Consumer({**skipped.kafka.client_config(), "group.id": skipped.group})
    try:
        (found,) = consumer.committed([TopicPartition("right", 0)], timeout=timeout)
    finally:
        consumer.close()
    return int(found.offset)


def test_a_commit_that_is_likely_is_completed_by_what_an_operator_asserts(
    skipped: Skipped, cluster: Cluster, audit: Audit
) -> None:
    """Version 1, CreateTime: a record that no commit includes could have joined them."""
    tp = skipped.partitions["likely"]
    found = diagnosed(cluster, tp)
    assert (found.verdict, found.outcome, found.action) == ("unknown", "unknown", None)
    where = ["--topic", tp[0], "--partition", str(tp[1]), "--start-offset", "0", "--recheck-after", "0"]
    trail = ["--audit-file", str(audit.path)]
    dry = on(skipped.kafka, "complete", *where)
    assert dry.returncode == 5, dry.stderr
    claim = needed_override(found, "complete")
    assert claim is not None
    assert claim.startswith("records of offsets 0 to 1 are ")
    shown = " ".join(dry.stdout.split())
    assert "It is likely, and not proven, that it was decided to commit the transaction." in shown
    assert f"An override has to repeat, word for word: {claim}" in shown
    assert "--override" not in shown
    sure = ["--confirm", "events-0@0", *trail]
    for override in ([], ["--override", "unknown"], ["--override", needed_override(found, "abort") or ""]):
        refused = on(skipped.kafka, "complete", *where, *sure, *override)
        assert refused.returncode == 5, refused.stdout
    assert read_committed(skipped.kafka, *tp) == 0
    done = on(skipped.kafka, "complete", *where, *sure, "--override", claim)
    assert done.returncode == 0, done.stderr
    assert "A read_committed consumer received 2 of 2 records of it." in done.stdout
    assert [(row["step"], row["override"]) for row in audit.rows()][-2:] == [("intent", claim), ("outcome", claim)]
    assert read_committed(skipped.kafka, *tp) == 2


def test_a_newer_epoch_that_has_not_written_yet_is_unharmed(skipped: Skipped, cluster: Cluster) -> None:
    """It has the partition in its transaction. If it aborted first, its marker would discard the committed records."""
    tp = skipped.partitions["newer"]
    newer = skipped.producers["newer"].init()
    newer.add(*tp)
    plan = plan_complete(cluster, diagnosed(cluster, tp))
    done = plan.execute(confirm=plan.target, recheck_after=0)
    assert (done.records_checked, done.records_delivered) == (2, 2)
    newer.send(*tp)
    newer.end(commit=False)
    assert read_committed(skipped.kafka, *tp) == 2
