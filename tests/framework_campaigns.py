"""Frameworks that write exactly once, killed, frozen past the transaction timeout, fenced and rolled, and diagnosed.

``python -m tests.framework_campaigns streams --seed one --seconds 300`` prints what was seen. No transaction may be
called hanging, each one's owner is named, and nothing that was written is lost or there twice.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import fastavro
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.java_clients import FlinkJob, JavaClient, jars_of
from tests.rolling_upgrade import Watcher
from toolkit import Cluster
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.producer import TxnProducer
from toolkit.lab.queries import until
from toolkit.lab.server.node import free_ports
from toolkit.schema import Row

STEPS = ("kill", "freeze", "fence", "roll")
TIMEOUT_MS = 6000
PATIENCE_S = 300
PROPERTIES: Mapping[str, object] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transaction.state.log.num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "min.insync.replicas": 1,
    "leader.imbalance.check.interval.seconds": 3,
    "leader.imbalance.per.broker.percentage": 0,
}


class Application:
    """A framework's application with one process, which numbers what it writes from 0 on.

    Parameters
    ----------
    kafka
        The cluster.
    folder
        For its files.
    """

    owner: str
    """What findings say of its transactions."""
    prefix: str
    """Of its transactional ids."""
    topic: str
    """Where it writes."""
    unnamed = 0.0
    """Which part of its ids may be in findings without an owner only: nobody knows it while a coordinator is down."""
    keeps_after_timeout = True
    """Whether it writes again what a timeout has aborted."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.written = 0
        self.client: JavaClient | None = None
        self._is_started = False

    def new_client(self) -> JavaClient:
        """The next process."""
        raise NotImplementedError

    def read(self, message: Message) -> int:
        """The number in a record."""
        raise NotImplementedError

    def write_more(self) -> None:
        """Add input, about 20 times per second."""

    def tend(self) -> None:
        """Bring back what has failed while the process goes on."""

    def problems(self) -> list[str]:
        """What else is wrong at the end."""
        return []

    @property
    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return False

    def start(self) -> None:
        """Start a process."""
        self.client = self.new_client()
        self.client.__enter__()
        self._is_started = True

    def kill(self) -> None:
        """SIGKILL; nothing if it does not run."""
        if self.client is not None and self._is_started:
            self._is_started = False
            self.client.process.kill()
            self.client.process.wait(60)
            self.client.__exit__(None, None, None)

    def send_signal(self, number: int) -> None:
        """To its process."""
        assert self.client is not None
        self.client.process.send_signal(number)

    def expected(self) -> list[int]:
        """What it has to write."""
        return list(range(self.written))

    def visible(self) -> list[int]:
        """What a read_committed consumer receives of it."""
        return self.received(self.topic, self.read)

    def received(self, topic: str, read: Callable[[Message], int]) -> list[int]:
        """The numbers that a read_committed consumer receives of a topic."""
        settings = {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "reader"}
        found: list[int] = []
        with Consumer({**settings, "enable.partition.eof": True, "log_level": 0}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                found.append(read(message))
        return found

    def create(self, *topics: str) -> None:
        """Create topics with one partition on all brokers."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        count = len(self.kafka.broker_ids)
        for created in admin.create_topics([NewTopic(each, 1, count) for each in topics]).values():
            created.result()


class Streams(Application):
    """The word count of Kafka Streams: a record for each word of its input."""

    owner, prefix, topic = "Kafka Streams application word-count", "word-count-", "streams-wordcount-output"

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        super().__init__(kafka, folder)
        self.create("streams-plaintext-input", self.topic)
        self._producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        )

    def new_client(self) -> JavaClient:
        properties = {
            "application.id": "word-count",
            "group.instance.id": "one",  # the next process need not wait for the end of a session
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": "500",
            "producer.transaction.timeout.ms": str(TIMEOUT_MS),
            "auto.offset.reset": "earliest",
            "statestore.cache.max.bytes": "0",
        }
        return JavaClient(
            self.kafka, "streams", "org.apache.kafka.streams.examples.wordcount.WordCountDemo", properties
        )

    def write_more(self) -> None:
        self._producer.produce("streams-plaintext-input", value=f"w{self.written}".encode())
        self._producer.poll(0)
        self.written += 1

    def expected(self) -> list[int]:
        return self.received("streams-plaintext-input", lambda message: int((message.value() or b"")[1:]))

    def read(self, message: Message) -> int:
        return int((message.key() or b"")[1:])


class Connect(Application):
    """A worker of Kafka Connect, and its source of lines with exactly-once delivery."""

    connector_jars: str | None = None
    """The jars of its connector, if they are not Connect's own."""

    owner, prefix, topic = "Kafka Connect cluster connect-blue", "connect-", "from-file"

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        super().__init__(kafka, folder)
        self.create(self.topic)
        self._lines = folder / "lines.txt"
        self._lines.touch()
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"

    def new_client(self) -> JavaClient:
        properties = {
            "group.id": "connect-blue",
            "exactly.once.source.support": "enabled",
            "listeners": self._url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "producer.transaction.timeout.ms": str(TIMEOUT_MS),
            "connector.client.config.override.policy": "All",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            **{f"{each}.storage.topic": f"blue-{each}" for each in ("config", "offset", "status")},
            **{f"{each}.storage.replication.factor": "-1" for each in ("config", "offset", "status")},
            **{f"{each}.storage.partitions": "1" for each in ("offset", "status")},
        }
        client = JavaClient(self.kafka, "connect", "org.apache.kafka.connect.cli.ConnectDistributed", properties)
        if self.connector_jars is not None:
            client.classpath += f":{jars_of(self.connector_jars)}/*"
        return client

    def write_more(self) -> None:
        with self._lines.open("a") as lines:
            lines.write(f"{self.written}\n")
        self.written += 1

    def tend(self) -> None:
        """Create the connector, and restart tasks that were fenced, which Connect leaves failed."""
        interval = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "1000"}
        connector = {"tasks.max": "1", **interval, **self.connector()}
        path = "connectors/orders-csv"
        with suppress(OSError):  # the worker has yet to start, or to join
            try:
                status = json.loads(self._ask("GET", f"{path}/status"))
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    self._ask("PUT", f"{path}/config", connector)
                return
            if "FAILED" in {each["state"] for each in (status["connector"], *status["tasks"])}:
                self._ask("POST", f"{path}/restart?includeTasks=true&onlyFailed=true")

    def connector(self) -> Mapping[str, str]:
        """The settings of the connector."""
        file_source = "org.apache.kafka.connect.file.FileStreamSourceConnector"
        return {"connector.class": file_source, "file": str(self._lines), "topic": self.topic}

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def read(self, message: Message) -> int:
        return int(message.value() or b"")


class NumbersConnector(Connect):
    """A connector that reads the topic ``numbers``, to which an idempotent producer writes."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        super().__init__(kafka, folder)
        self.create("numbers")
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(settings)

    def value(self) -> str:
        """The value of the next record."""
        return f"{self.written}"

    def write_more(self) -> None:
        self._producer.produce("numbers", value=self.value().encode())
        self._producer.poll(0)
        self.written += 1

    def expected(self) -> list[int]:
        return self.received("numbers", self.read)


class Mirror(NumbersConnector):
    """MirrorMaker 2, of a topic of the same cluster, in a worker with exactly-once sources.

    There Connect commits the offsets of the source in the transaction of the records, so that each record of the topic
    is mirrored once, whatever is killed. Without ``exactly.once.source.support`` a kill may mirror records twice.
    """

    topic = "source.numbers"

    def connector(self) -> Mapping[str, str]:
        servers = self.kafka.bootstrap_servers
        return {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": "source",
            "target.cluster.alias": "target",
            "source.cluster.bootstrap.servers": servers,
            "target.cluster.bootstrap.servers": servers,
            "topics": "numbers",
            "replication.factor": "2",
            "offset-syncs.topic.replication.factor": "2",
            "sync.topic.acls.enabled": "false",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        }

    def problems(self) -> list[str]:
        """It writes under producer ids of its own, not under those of the source."""
        with Cluster(self.kafka.bootstrap_servers) as cluster:
            ids = [
                {row["producer_id"] for row in cluster.producer_rows(topics=[each])} for each in ("numbers", self.topic)
            ]
        return [] if all(ids) and ids[0].isdisjoint(ids[1]) else [f"producer ids of the source and the mirror: {ids}"]


class Iceberg(NumbersConnector):
    """The sink of Apache Iceberg in a Connect worker: its tasks and its coordinator write to a control topic.

    They have new transactional ids whenever the connector starts, so nobody continues the ids of a killed one.
    """

    owner, prefix, topic = "Apache Iceberg sink", "lake-", "control-iceberg"
    connector_jars = "iceberg-1.12.0"

    def connector(self) -> Mapping[str, str]:
        servers = self.kafka.bootstrap_servers
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": "numbers",
            "consumer.override.auto.offset.reset": "earliest",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "iceberg.tables": "lake.numbers",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.catalog.type": "hadoop",
            "iceberg.catalog.warehouse": self.folder.as_uri(),
            "iceberg.control.commit.interval-ms": "500",
            "iceberg.control.commit.timeout-ms": "3000",
            "iceberg.coordinator.transactional.prefix": self.prefix,
            "iceberg.kafka.bootstrap.servers": servers,
            "iceberg.kafka.transaction.timeout.ms": str(TIMEOUT_MS),
        }

    def value(self) -> str:
        return json.dumps({"number": self.written})

    def read(self, message: Message) -> int:
        return int(json.loads(message.value() or b"")["number"])

    def visible(self) -> list[int]:
        """The numbers in the newest snapshot of its table."""
        table = self.folder / "lake" / "numbers"
        versions = sorted(table.glob("metadata/v*.metadata.json"), key=lambda each: int(each.name[1:].split(".")[0]))
        snapshots = json.loads(versions[-1].read_text())["snapshots"] if versions else []
        if not snapshots:
            return []
        files = [
            entry["data_file"]["file_path"]
            for manifest in _avro(snapshots[-1]["manifest-list"])
            for entry in _avro(manifest["manifest_path"])
            if entry["status"] != ICEBERG_DELETED
        ]
        return [number for each in files for number in pq.read_table(_local(each))["number"].to_pylist()]


ICEBERG_DELETED = 2  # status of a manifest's entry


def _avro(uri: str) -> list[Any]:
    with _local(uri).open("rb") as file:
        return list(fastavro.reader(file))


def _local(uri: str) -> Path:
    return Path(urlsplit(uri).path)


class Flink(Application):
    """A job of Flink, restored from its last completed checkpoint after a kill."""

    owner, prefix, topic = "Apache Flink", "flink-", "from-flink"
    unnamed = 0.25  # an id lives for 0.4 s, and the grid of the first ones shows nothing
    keeps_after_timeout = False  # what a checkpoint has pre-committed

    def __init__(self, kafka: Kafka, folder: Path, *, records: int) -> None:
        super().__init__(kafka, folder)
        self.create(self.topic)
        self.written = records

    def new_client(self) -> FlinkJob:
        checkpoint = self.client.last_checkpoint() if isinstance(self.client, FlinkJob) else None
        return FlinkJob(
            self.kafka,
            self.folder,
            topic=self.topic,
            prefix="flink",
            restored=checkpoint,
            records=self.written,
            rate=20,
            timeout_ms=TIMEOUT_MS,
        )

    @property
    def is_over(self) -> bool:
        return self.client is not None and self.client.process.poll() == 0

    def read(self, message: Message) -> int:
        return int(message.value() or b"")


@dataclass(slots=True)
class Campaign:
    """One application, what was done to it, and what was seen meanwhile.

    Parameters
    ----------
    kafka, application, watcher
        The cluster; what runs on it; the findings meanwhile.
    chance
        What is done, and when.
    """

    kafka: Kafka
    application: Application
    watcher: Watcher
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    steps: ClassVar[Sequence[str]] = STEPS

    def run(self, seconds: float) -> None:
        """Do one thing after another, each once it writes again: all of them, again and again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.application.is_over:
            for step in self.chance.sample(self.steps, len(self.steps)):
                if (transaction := self._open_transaction()) is None:
                    return
                self.watcher.stop.wait(self.chance.uniform(0, 1.5))
                print(f"{time.strftime('%H:%M:%S')} {step}", flush=True)
                getattr(self, f"_{step}")(transaction)
                self.done[step] += 1

    def finish(self) -> None:
        """Wait until everything is written, and every transaction has ended."""
        app = self.application
        may_lose = self.done["freeze"] and not app.keeps_after_timeout

        def is_written() -> bool | None:
            self._bring_back()
            if isinstance(app, Flink):
                return app.is_over or None
            return len(app.visible()) >= app.written or None

        until(is_written, awaited="all records")
        app.kill()
        until(lambda: None if self._transactions() else True, awaited="the end of transactions")
        found, expected = Counter(app.visible()), Counter(app.expected())
        twice, lost = sorted((found - expected).elements()), sorted((expected - found).elements())
        if twice or (lost and not may_lose):
            self.problems.append(f"{len(twice)} records too many {twice[:9]}, {len(lost)} lost {lost[:9]}")
        self.problems += [f"FALSE hanging: {json.dumps(row, default=str)}" for row in self.watcher.hanging.values()]
        self.problems += app.problems()
        self.problems += self.unnamed

    @property
    def unnamed(self) -> list[str]:
        """What is wrong with the owners of the application's ids."""
        app = self.application
        own = {each for each in self.watcher.owners if each[0].startswith(app.prefix)}
        named = {name for name, owner in own if owner.startswith(app.owner)}
        never = sorted({name for name, _ in own} - named)
        wrong = [f"{name} is of {owner}" for name, owner in own if not owner.startswith((app.owner, "none"))]
        return wrong + ([f"never named: {never}"] if len(never) > app.unnamed * len(named) else [])

    def _transactions(self) -> list[Row]:
        """Its open transactions; null if the cluster does not answer now."""
        with suppress(ToolkitError), Cluster(self.kafka.bootstrap_servers) as cluster:
            rows = cluster.transaction_rows(states=["Ongoing"])
            return [row for row in rows if (row["transactional_id"] or "").startswith(self.application.prefix)]
        return []

    def _open_transaction(self) -> Row | None:
        """One of its open transactions that holds records, once there is one; null if it has ended by itself."""
        found: list[Row] = []

        def is_open() -> bool | None:
            self._bring_back()
            found[:] = [row for row in self._transactions() if row["topic_partitions"]]
            return True if found or self.application.is_over else None

        until(is_open, awaited="an open transaction")
        return self.chance.choice(found) if found and not self.application.is_over else None

    def _bring_back(self) -> None:
        """Start it again if it has failed."""
        self.application.tend()
        client = self.application.client
        if client is not None and client.process.poll() not in {None, 0}:
            self.done["failed by itself"] += 1
            self._kill()

    def _kill(self, _: Row | None = None) -> None:
        self.application.kill()
        self.application.start()

    def _freeze(self, transaction: Row) -> None:
        """Until the coordinator has aborted its transaction."""
        self.application.send_signal(signal.SIGSTOP)
        try:
            name, start = transaction["transactional_id"], transaction["start_time"]
            until(lambda: None if (name, start) in self._starts() else True, awaited="the timeout")
        finally:
            self.application.send_signal(signal.SIGCONT)

    def _starts(self) -> set[tuple[Any, Any]]:
        return {(row["transactional_id"], row["start_time"]) for row in self._transactions()}

    def _fence(self, transaction: Row) -> None:
        with suppress(ToolkitError), Cluster(self.kafka.bootstrap_servers) as cluster:
            TxnProducer(cluster.client, transaction["transactional_id"], timeout_ms=TIMEOUT_MS).init()

    def _roll(self, _: Row) -> None:
        """Restart each broker, in any order."""
        for broker_id in self.chance.sample(self.kafka.broker_ids, len(self.kafka.broker_ids)):
            self.kafka.restart(broker_id)


def run(framework: str, seed: str, seconds: float) -> Campaign:
    """One campaign: what was done, seen and wrong."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(Kafka("4.3.1", brokers=2, properties=PROPERTIES, timeout=240))
        application: Application = (
            Flink(kafka, folder, records=int(15 * seconds))
            if framework == "flink"
            else {"streams": Streams, "connect": Connect, "mirror": Mirror, "iceberg": Iceberg}[framework](
                kafka, folder
            )
        )
        stop = threading.Event()
        watcher = Watcher(kafka.bootstrap_servers, stop)
        campaign = Campaign(kafka, application, watcher, random.Random(seed))
        stack.callback(application.kill)
        thread = threading.Thread(target=watcher.run, name="watcher")
        thread.start()
        stack.callback(thread.join, 120)
        stack.callback(stop.set)
        with writing(application):
            campaign.run(seconds)
        campaign.finish()
    print(f"{framework}, seed {seed}: done {dict(campaign.done)}; {application.written} records")
    print(f"looks {sum(watcher.looks.values())}; verdicts {dict(watcher.verdicts)}; errors {dict(watcher.errors)}")
    print(f"owners {dict(Counter(owner for _, owner in watcher.owners))}")
    print("\n".join(campaign.problems) or "no problem")
    return campaign


@contextmanager
def writing(application: Application) -> Iterator[None]:
    """It runs from then on, and its input grows until the block ends."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            application.write_more()

    writer = threading.Thread(target=write, name="writer")
    application.start()
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join(120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=["streams", "connect", "mirror", "flink", "iceberg"])
    parser.add_argument("--seed", default="one")
    parser.add_argument("--seconds", type=float, default=300)
    arguments = parser.parse_args()
    sys.exit(bool(run(arguments.framework, arguments.seed, arguments.seconds).problems))


if __name__ == "__main__":
    main()
