"""Epoch 32767, the last one, on real brokers: what a timeout whose abort could not be logged leaves, and how it ends.

The coordinator's records are rewritten to an epoch that takes weeks to reach. At 32766 the coordinator fences by epoch
32767. If it cannot log that, 3.9.2 keeps 32767 in memory, and throws at every later attempt, until it reads its log
anew; other transactions of it may not time out meanwhile.
"""

from __future__ import annotations

import struct
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.builders import configure_topic, create_topics
from tests.formats.packed import seal
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import AT_LAST_EPOCH, plan_fence
from toolkit.errors import ActionFailed
from toolkit.formats.batch_records import read_records
from toolkit.formats.coordinator_records import STATE_TOPIC, read_transaction_key
from toolkit.formats.scan import scan
from toolkit.lab import Kafka
from toolkit.lab.clients import RequestRefused, TxnProducer, until
from toolkit.lab.incidents import EVERYDAY

pytestmark = [pytest.mark.lab, pytest.mark.full]

LAST = 32767
OVERFLOW = "Cannot fence producer with epoch equal to Short.MaxValue"
PROPERTIES = {
    **EVERYDAY.properties,
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


def set_epoch(log_dir: Path, transactional_id: str, epoch: int) -> None:
    """Rewrite the epoch in every record of an id: after its version and producer id."""
    for log in log_dir.glob(f"{STATE_TOPIC}-*/*.log"):
        data = log.read_bytes()
        for row in scan(data).headers:
            batch = data[row["position"] : row["position"] + row["size"]]
            for record in read_records(batch):
                if record.value and read_transaction_key(record.key or b"") == transactional_id:
                    new = record.value[:10] + struct.pack(">h", epoch) + record.value[12:]
                    batch = seal(batch.replace(record.value, new))
            data = data[: row["position"]] + batch + data[row["position"] + len(batch) :]
        log.write_bytes(data)


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_a_fence_at_the_last_epoch(version: str, audit: Audit) -> None:
    name, topic = "payments", "orders"
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(version, brokers=2, properties=PROPERTIES))
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        create_topics(kafka, NewTopic(topic, 1, replica_assignment=[[1]]))
        with Cluster(kafka.bootstrap_servers) as cluster:
            earlier = TxnProducer(cluster.client, name).init()
            earlier.add(topic, 0)
            earlier.send(topic, 0)
            earlier.end(commit=True)
        for broker_id in (2, 1):
            kafka.stop_broker(broker_id)
        set_epoch(kafka.log_dirs[1], name, LAST - 2)
        kafka.start_broker(1)  # the other replica stays out of sync

        cluster = stack.enter_context(Cluster(kafka.bootstrap_servers))
        until(
            lambda: True if cluster.transaction_rows(transactional_ids=[name])[0]["state"] else None, awaited="loading"
        )
        producer = TxnProducer(cluster.client, name, timeout_ms=3000).init()
        assert producer.producer_epoch == LAST - 1
        producer.add(topic, 0)
        producer.send(topic, 0)
        configure_topic(admin, STATE_TOPIC, {"min.insync.replicas": "2"})
        failed = "failed to write an epoch fence transition"
        until(lambda: True if failed in kafka.logs(1, lines=500) else None, awaited="a timeout that is not logged")
        configure_topic(admin, STATE_TOPIC, {"min.insync.replicas": "1"})

        def owner() -> tuple[str | None, int | None]:
            (row,) = cluster.transaction_rows(transactional_ids=[name])
            return row["state"], row["producer_epoch"]

        if version == "4.3.1":
            until(lambda: True if owner()[0] == "CompleteAbort" else None, awaited="the next attempt")
            assert owner() == ("CompleteAbort", 0), "of another producer id"
            return
        until(lambda: True if OVERFLOW in kafka.logs(1, lines=500) else None, awaited="the next attempt")
        assert owner() == ("Ongoing", LAST)
        (found,) = until(
            lambda: rows if (rows := cluster.finding_rows())[0]["verdict"] == "overdue" else None,
            awaited="the end of the grace after its timeout",
        )
        assert found["outcome"] in {"undecided", "unknown"}, "its log was rewritten here, which may contradict a proof"
        assert found["action"] is None
        assert found["cause"] == "the coordinator could not log epoch 32767: KAFKA-20090"
        plan = plan_fence(cluster, name)
        assert plan.warnings[0] == AT_LAST_EPOCH
        with pytest.raises(
            ActionFailed, match=r"refused to fence .*UNKNOWN_SERVER_ERROR: An unexpected server error\. It"
        ):
            plan.execute(confirm=name, audit=audit, override=plan.needed_override)
        assert owner() == ("Ongoing", LAST)
        kafka.restart(1)
        until(lambda: True if owner() == ("CompleteAbort", LAST) else None, awaited="the timeout")


def test_a_coordinator_that_restarts_in_a_rotation_of_the_producer_id() -> None:
    """KAFKA-20310: 4.2.1 logs PrepareCommit without the producer id that the client already has.

    4.3.1 logs it; there PrepareCommit is not met in every run: it may skip a marker while it restarts (KAFKA-20734).
    """
    name, topic = "payments", "orders"
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka("4.2.1", brokers=2, properties=PROPERTIES))
        both = NewTopic(topic, 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
        create_topics(kafka, both)
        with Cluster(kafka.bootstrap_servers) as cluster:
            TxnProducer(cluster.client, name).init()
        for broker_id in (2, 1):
            kafka.stop_broker(broker_id)
        set_epoch(kafka.log_dirs[1], name, LAST - 2)
        kafka.start_broker(1)
        kafka.start_broker(2)

        cluster = stack.enter_context(Cluster(kafka.bootstrap_servers))

        def await_replicas(*replicas: int) -> None:
            until(
                lambda: True if sorted(cluster.partition_rows(topics=[topic])[0]["isr"]) == [*replicas] else None,
                awaited=f"replicas {replicas} in sync",
            )

        def await_state(state: str) -> None:
            until(
                lambda: True if cluster.transaction_rows(transactional_ids=[name])[0]["state"] == state else None,
                awaited=state,
            )

        await_state("Empty")
        await_replicas(1, 2)
        producer = TxnProducer(cluster.client, name, transaction_version=2).init()
        before = producer.producer_id
        assert producer.producer_epoch == LAST - 1
        producer.send(topic, 0)
        kafka.stop_broker(2)
        await_replicas(1)
        producer.decide(commit=True)  # its marker waits for the other replica
        assert (producer.producer_id != before, producer.producer_epoch) == (True, 0)
        kafka.restart(1)
        await_state("PrepareCommit")
        [finding] = [row for row in cluster.finding_rows(topics=[topic]) if row["transactional_id"] == name]
        assert (finding["verdict"], finding["outcome"]) == ("ending", "commit")
        kafka.start_broker(2)
        await_state("CompleteCommit")
        await_replicas(1, 2)
        [prepared] = [row for row in cluster.transaction_log_rows() if row["state"] == "PrepareCommit"]
        last = cluster.transaction_history_rows(transactional_ids=[name])[-1]
        assert prepared["next_producer_id"] is None
        assert last["reason"].endswith("is lost (KAFKA-20310): it has to be restarted.")
        with pytest.raises(RequestRefused, match="INVALID_PRODUCER_ID_MAPPING"):
            producer.send(topic, 0)
        restarted = TxnProducer(cluster.client, name, transaction_version=2).init()
        restarted.send(topic, 0)
        restarted.end(commit=True)
        assert {row["outcome"] for row in cluster.log_transaction_rows(topics=[topic])} == {"commit"}
        assert {row["verdict"] for row in cluster.finding_rows()} <= {"clear"}
