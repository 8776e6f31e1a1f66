"""Errors of Kafka transactions, each provoked on a real broker with the client that prints it.

``python -m tests.tools.provoked`` stores them as an input of the corpus, which has what ``explain`` says of each.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kafka.errors
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from kafka.admin import AbortTransactionSpec, KafkaAdminClient
from py4j.protocol import Py4JJavaError

from tests.builders import create_topics
from tests.corpus.text_calls import PROVOKED
from tests.java_gateway import JavaClients, java_clients
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.lab.clients import BlockedConsumer, TxnProducer, until, write_committed
from toolkit.lab.incidents import EVERYDAY, INCIDENTS

HERE, AWAY = 1, 2  # brokers: the second one is stopped for what needs that
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHORT_MS = 4_000  # for calls that should time out

PROPERTIES = {
    **EVERYDAY.properties,
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "1",  # every id and group has one coordinator, and can lose it
    "offsets.topic.replication.factor": "1",
    "transactional.id.expiration.ms": "20000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
TOPICS = ("fenced", "slow", "state", "sequence", "earlier", "expired", "group", "rd_fenced", "rd_state", "rd_sequence",
          "lag", "waiting")  # fmt: skip


class Provoked:
    """A cluster of two brokers, clients of it, and the texts that they printed."""

    def __init__(self, kafka: Kafka, java: JavaClients, cluster: Cluster) -> None:
        self.kafka = kafka
        self.java = java
        self.cluster = cluster
        self.texts: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.waiting: dict[str, Any] = {}
        self.hanging = INCIDENTS["late_message"](kafka)

    def run(self, provocations: Sequence[Callable[[Provoked], str]]) -> None:
        """Provoke them side by side, since they mostly wait."""
        with ThreadPoolExecutor(len(provocations)) as threads:
            running = {each.__name__: threads.submit(each, self) for each in provocations}
        self.texts |= {name: each.result() for name, each in running.items()}

    def prepare(self) -> None:
        """Transactions that are open when the second broker goes, and ids and groups that it coordinates."""
        for name in ("java", "librdkafka", "commit"):
            self.ids[name] = self.coordinated_by(AWAY, name)
        for name in ("offsets", "stuck", "skipped"):
            self.ids[name] = self.coordinated_by(HERE, name)
        self.ids["group"] = self.coordinated_by(AWAY, "group", group=True)
        for name, topic in (("commit", "waiting"), ("offsets", "waiting"), ("stuck", "stuck"),
                            ("skipped", "left")):  # fmt: skip
            self.waiting[name] = self.java.open_producer(self.ids[name], topic, max_block_ms=SHORT_MS)

    def librdkafka(self, transactional_id: str, **settings: object) -> tuple[Producer, io.StringIO]:
        """A transactional producer, and its log."""
        logger, log = _logger()
        given = {"bootstrap.servers": self.kafka.bootstrap_servers, "transactional.id": transactional_id}
        return Producer(given | settings, logger=logger), log

    def open_librdkafka(self, transactional_id: str, topic: str) -> tuple[Producer, io.StringIO]:
        """One in a transaction with one record."""
        producer, log = self.librdkafka(transactional_id)
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"value")
        producer.flush(60)
        return producer, log

    def coordinated_by(self, broker_id: int, name: str, *, group: bool = False) -> str:
        """A transactional id, or a group, whose coordinator is this broker."""
        names = [f"{name}-{number}" for number in range(60)]
        rows = (
            self.cluster.coordinator_rows(transactional_ids=[], groups=names)
            if group
            else self.cluster.coordinator_rows(transactional_ids=names, groups=[])
        )
        key: str = next(row["key"] for row in rows if row["coordinator_id"] == broker_id)
        return key

    def logged(self, text: str) -> list[str]:
        """Lines of the brokers' logs with this text, once there is one."""

        def lines() -> list[str] | None:
            logs = (self.kafka.logs(broker_id, lines=100_000) for broker_id in (HERE, AWAY))
            return [line for log in logs for line in log.splitlines() if text in line] or None

        return until(lines, awaited=f"{text!r} in a broker's log")

    def groups_tool(self, group: str) -> str:
        """What kafka-consumer-groups.sh shows."""
        arguments = ("--bootstrap-server", self.kafka.bootstrap_servers, "--describe", "--group", group)
        done = self.kafka.run_tool(GROUPS_TOOL, *arguments)
        return done.stdout + done.stderr


def impostor(cluster: Cluster, transactional_id: str) -> TxnProducer:
    """A second process with the producer id and epoch of the first."""
    (row,) = cluster.transaction_rows(transactional_ids=[transactional_id])
    second = TxnProducer(cluster.client, transactional_id)
    second.producer_id, second.producer_epoch = row["producer_id"], row["producer_epoch"]
    return second


def printed(call: Callable[[], object]) -> str:
    """What a client raises, as its language prints it."""
    try:
        call()
    except Py4JJavaError as error:
        return str(error)
    except KafkaException as error:
        return f"cimpl.KafkaException: {error}"
    except KafkaError as error:  # type: ignore[misc]  # an exception, too, which its stubs do not say
        return f"cimpl.KafkaError: {error}"
    raise AssertionError("it did not fail")


def java_fenced(here: Provoked) -> str:
    first = here.java.open_producer("fenced", "fenced")
    here.java.producer("fenced").initTransactions()
    return printed(first.commitTransaction)


def java_too_slow_to_commit(here: Provoked) -> str:
    producer = here.java.open_producer("slow", "slow", transaction_timeout_ms=1000)
    _until_state(here, "slow", "CompleteAbort")
    return printed(producer.commitTransaction)


def java_too_slow_to_send(here: Provoked) -> str:
    producer = here.java.open_producer("slower", "slow", transaction_timeout_ms=1000)
    _until_state(here, "slower", "CompleteAbort")
    return printed(lambda: here.java.send(producer, "slow"))


def broker_rolled_back(here: Provoked) -> str:
    """The same, in the coordinator's log."""
    return "\n".join(here.logged("transactionalId slow due"))


def java_timeout_too_large(here: Provoked) -> str:
    return printed(here.java.producer("large", transaction_timeout_ms=3_600_000).initTransactions)


def java_ended_by_another(here: Provoked) -> str:
    producer = here.java.open_producer("state", "state")
    impostor(here.cluster, "state").end(commit=False)
    return printed(producer.commitTransaction)


def java_out_of_order(here: Provoked) -> str:
    producer = here.java.open_producer("sequence", "sequence")
    _write_ahead(impostor(here.cluster, "sequence"), "sequence")
    return printed(lambda: here.java.send(producer, "sequence"))


def java_failed_earlier(here: Provoked) -> str:
    """A consequence of an error, and its first line alone, as it is often pasted."""
    producer = here.java.open_producer("earlier", "earlier")
    _write_ahead(impostor(here.cluster, "earlier"), "earlier")
    printed(lambda: here.java.send(producer, "earlier"))

    def wrapped() -> str | None:
        """None while the error itself is raised: `send` fails before the producer's state does (Sender.failBatch)."""
        text = printed(producer.commitTransaction)
        return text if "Caused by:" in text else None

    return until(wrapped, awaited="the producer's error state").partition("Caused by:")[0]


def broker_out_of_order(here: Provoked) -> str:
    """The same, in the partition leader's log."""
    return here.logged("Out of order sequence")[0]


def java_expired(here: Provoked) -> str:
    producer = here.java.producer("expired")
    producer.initTransactions()
    _until_state(here, "expired", None)
    producer.beginTransaction()
    return printed(lambda: here.java.send(producer, "expired"))


def java_unstable_offsets(here: Provoked) -> str:
    producer = here.java.producer("group", transaction_timeout_ms=600_000)
    producer.initTransactions()
    producer.beginTransaction()
    group = here.java.clients.consumer.ConsumerGroupMetadata("billing")
    producer.sendOffsetsToTransaction(here.java.offsets("group", 0), group)
    producer.commitTransaction()
    producer.beginTransaction()
    producer.sendOffsetsToTransaction(here.java.offsets("group", 0), group)
    consumer = here.java.consumer("billing", default_api_timeout_ms=2_000)
    partitions = here.java.java.java.util.HashSet()
    partitions.add(here.java.partition("group"))
    text = printed(lambda: consumer.committed(partitions))
    logged = [line for line in here.java.log.read_text().splitlines() if "unstable offsets" in line]
    return "\n".join([text, *logged])


def librdkafka_fenced(here: Provoked) -> str:
    first, log = here.open_librdkafka("rd_fenced", "rd_fenced")
    here.open_librdkafka("rd_fenced", "rd_fenced")
    return printed(lambda: first.commit_transaction(60)) + _polled(first, log)


def librdkafka_timeout_too_large(here: Provoked) -> str:
    producer, log = here.librdkafka("rd_large", **{"transaction.timeout.ms": 3_600_000})
    return printed(lambda: producer.init_transactions(60)) + _polled(producer, log)


def librdkafka_ended_by_another(here: Provoked) -> str:
    producer, log = here.open_librdkafka("rd_state", "rd_state")
    impostor(here.cluster, "rd_state").end(commit=True)
    return printed(lambda: producer.abort_transaction(60)) + _polled(producer, log)


def librdkafka_out_of_order(here: Provoked) -> str:
    producer, log = here.open_librdkafka("rd_sequence", "rd_sequence")
    _write_ahead(impostor(here.cluster, "rd_sequence"), "rd_sequence")
    producer.produce("rd_sequence", b"value")
    return printed(lambda: producer.flush(60)) + _polled(producer, log)


def librdkafka_unstable_offsets(here: Provoked) -> str:
    producer, _ = here.librdkafka("rd_group", **{"transaction.timeout.ms": 600_000})
    logger, log = _logger()
    given = {"bootstrap.servers": here.kafka.bootstrap_servers, "group.id": "rd_billing"}
    consumer = Consumer({**given, "debug": "cgrp,topic"}, logger=logger)
    producer.init_transactions(60)
    producer.begin_transaction()
    offsets = [TopicPartition("group", 0, 1)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
    text = printed(lambda: consumer.committed(offsets, timeout=2))
    return "\n".join([text, *(line for line in _polled(consumer, log).splitlines() if "UNSTABLE" in line)])


def kafka_python_fenced_coordinator(here: Provoked) -> str:
    """Its default coordinator epoch is -1, which a partition with a marker of that producer refuses."""
    staged = INCIDENTS["late_after_commit"](here.kafka)
    admin = KafkaAdminClient(bootstrap_servers=here.kafka.bootstrap_servers)
    partition = kafka.TopicPartition(staged.topic, 0)
    try:
        admin.abort_transaction(AbortTransactionSpec(partition, staged.producer_id, staged.producer_epoch))
    except kafka.errors.KafkaError as error:
        return str(error)
    finally:
        admin.close()
    raise AssertionError("it did not fail")


def tool_lag_of_one(here: Provoked) -> str:
    write_committed(here.cluster.client, "lag", 0)
    with BlockedConsumer(here.kafka, "lag", "up-to-date"):
        pass
    return here.groups_tool("up-to-date")


def tool_lag(here: Provoked) -> str:
    with BlockedConsumer(here.kafka, here.hanging.topic, "blocked"):
        pass
    return here.groups_tool("blocked")


def java_init_timeout(here: Provoked) -> str:
    return printed(here.java.producer(here.ids["java"], max_block_ms=SHORT_MS).initTransactions)


def java_commit_timeout(here: Provoked) -> str:
    return printed(here.waiting["commit"].commitTransaction)


def java_offsets_timeout(here: Provoked) -> str:
    group = here.java.clients.consumer.ConsumerGroupMetadata(here.ids["group"])
    offsets = here.java.offsets("waiting", 0)
    return printed(lambda: here.waiting["offsets"].sendOffsetsToTransaction(offsets, group))


def broker_skipped_marker(here: Provoked) -> str:
    """The commit succeeds, and leaves a transaction open that hangs once the partition has a leader again."""
    here.waiting["skipped"].commitTransaction()
    return here.logged("Couldn't find leader endpoint")[0]


def librdkafka_no_answer(here: Provoked) -> str:
    producer, _ = here.librdkafka(here.ids["librdkafka"])
    return printed(lambda: producer.init_transactions(SHORT_MS / 1000))


def librdkafka_concurrent(here: Provoked) -> str:
    producer, log = here.librdkafka(here.ids["stuck"], debug="eos")
    return printed(lambda: producer.init_transactions(SHORT_MS / 1000)) + _polled(producer, log)


FIRST = (
    java_fenced, java_too_slow_to_commit, java_too_slow_to_send, broker_rolled_back, java_timeout_too_large,
    java_ended_by_another, java_out_of_order, java_failed_earlier, broker_out_of_order, java_expired,
    java_unstable_offsets, librdkafka_fenced, librdkafka_timeout_too_large, librdkafka_ended_by_another,
    librdkafka_out_of_order, librdkafka_unstable_offsets, kafka_python_fenced_coordinator, tool_lag_of_one, tool_lag,
)  # fmt: skip
THEN = (
    broker_skipped_marker, java_init_timeout, java_commit_timeout, java_offsets_timeout, librdkafka_no_answer,
    librdkafka_concurrent,
)  # fmt: skip
"""Those that need a broker to be away."""


@contextlib.contextmanager
def provoked(folder: Path) -> Iterator[Provoked]:
    """All texts of `FIRST` and `THEN`; both brokers run again."""
    with (
        Kafka("4.3.1", brokers=2, properties=PROPERTIES) as kafka,
        java_clients(kafka, folder) as java,
        Cluster(kafka.bootstrap_servers) as cluster,
    ):
        create_on_each(kafka, TOPICS)
        here = Provoked(kafka, java, cluster)
        here.run(FIRST)
        here.prepare()
        kafka.stop_broker(AWAY)
        until(lambda: True if _in_sync(here) == [HERE] else None, awaited="the ISR to shrink")
        here.waiting["stuck"].commitTransaction()
        here.run(THEN)
        kafka.start_broker(AWAY)
        yield here


def create_on_each(kafka: Kafka, names: Sequence[str]) -> None:
    """Topics of one partition on the first broker; if there are two, one on the other, and one that needs both."""
    topics = [NewTopic(name, 1, replica_assignment=[[HERE]]) for name in names]
    if AWAY in kafka.broker_ids:
        topics.append(NewTopic("left", 1, replica_assignment=[[AWAY]]))
        topics.append(NewTopic("stuck", 1, replica_assignment=[[HERE, AWAY]], config={"min.insync.replicas": "2"}))
    create_topics(kafka, *topics)


def _in_sync(here: Provoked) -> list[int]:
    (row,) = here.cluster.partition_rows(topics=["stuck"])
    return list(row["isr"])


def _logger() -> tuple[logging.Logger, io.StringIO]:
    log = io.StringIO()
    logger = logging.Logger("librdkafka", level=logging.DEBUG)
    logger.addHandler(logging.StreamHandler(log))
    return logger, log


def _polled(client: Any, log: io.StringIO) -> str:
    """What a client has logged: it hands its log over when it is polled, and may raise its error again."""
    with contextlib.suppress(KafkaException):
        client.poll(0)
    return "\n" + log.getvalue()


def _write_ahead(second: TxnProducer, topic: str) -> None:
    second._sequences[topic, 0] = 1
    second.send(topic, 0, records=9)


def _until_state(here: Provoked, transactional_id: str, state: str | None) -> None:
    """Wait for a state of an id; null for the coordinator to forget it."""

    def reached() -> bool | None:
        (row,) = here.cluster.transaction_rows(transactional_ids=[transactional_id])
        return True if row["state"] == state else None

    until(reached, awaited=f"{transactional_id} to be {state}")


def main() -> None:
    """Provoke them all, and a batch that its leader cannot verify, as brokers answer clients from 3.8 on (KIP-890)."""
    with tempfile.TemporaryDirectory() as folder, provoked(Path(folder)) as here:
        texts = here.texts
    verifying = {**PROPERTIES, "transaction.partition.verification.enable": "true"}
    with (
        tempfile.TemporaryDirectory() as folder,
        Kafka("4.3.1", properties=verifying) as kafka,
        java_clients(kafka, Path(folder), version="3.9.2") as java,
        Cluster(kafka.bootstrap_servers) as cluster,
    ):
        create_on_each(kafka, ["orders"])
        producer = java.open_producer("late", "orders")
        impostor(cluster, "late").end(commit=False)
        texts["java_unverified"] = printed(lambda: java.send(producer, "orders"))
    PROVOKED.write_text(json.dumps(texts, indent=1) + "\n")


if __name__ == "__main__":
    main()
