"""An application of each framework, disturbed at random while findings run in a loop.

No transaction may be called hanging, each one's owner is named, and nothing that was written is lost or there twice.
``python -m tests.tools.frameworks streams --seed one --seconds 300`` prints what was seen.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from tests.builders import create_topics, received
from tests.java_clients import FlinkJob, JavaClient
from toolkit import Cluster
from toolkit.analysis.transaction_owners import owner_clause
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import TxnProducer, until
from toolkit.schema import Row
from toolkit.schema.live import IdOwner

TIMEOUT_MS = 6000  # of transactions


class Application:
    """A framework's application with one process, disturbed for some seconds; it numbers what it writes from 0 on."""

    owner: str
    """What findings say of its transactions."""
    prefix: str
    """Of its transactional ids."""
    topic: str
    """Where it writes."""
    keeps_after_timeout = True
    """Whether it writes again what a timeout has aborted."""

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
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

    def end_input(self) -> None:
        """Write the rest of an input of its own at once."""

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
        return [read(each) for each in received(self.kafka, [(topic, 0)])]

    def create(self, *topics: str) -> None:
        """Create topics with one partition on all brokers."""
        create_topics(self.kafka, *topics, replicas=len(self.kafka.broker_ids))


class Mirror(Application):
    """MirrorMaker 2, of a topic of the same cluster, in a worker of Kafka Connect with exactly-once sources.

    There Connect commits the offsets of the source in the transaction of the records, so that each record of the topic
    is mirrored once, whatever is killed. Without ``exactly.once.source.support`` a kill may mirror records twice.
    """

    owner, prefix, topic = "Kafka Connect cluster connect-blue", "connect-", "source.numbers"

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
        super().__init__(kafka, folder, seconds)
        self.create("numbers", self.topic)
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(settings)
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
        return JavaClient(self.kafka, "connect", "org.apache.kafka.connect.cli.ConnectDistributed", properties)

    def write_more(self) -> None:
        self._producer.produce("numbers", value=f"{self.written}".encode())
        self._producer.poll(0)
        self.written += 1

    def tend(self) -> None:
        """Create the connector, and restart tasks that were fenced, which Connect leaves failed.

        Each one by itself: a restart of all is a record of the config topic, and a leader whose id was fenced can write
        none until it rejoins, which a single worker never does ("Cannot produce to config topic without claiming write
        privileges first", seed four).
        """
        path = "connectors/orders-csv"
        with suppress(OSError):  # the worker has yet to start, or to join
            try:
                status = json.loads(self._ask("GET", f"{path}/status"))
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    self._ask("PUT", f"{path}/config", self._connector())
                return
            if status["connector"]["state"] == "FAILED":
                self._ask("POST", f"{path}/restart")
            for task in status["tasks"]:
                if task["state"] == "FAILED":
                    self._ask("POST", f"{path}/tasks/{task['id']}/restart")

    def _connector(self) -> Mapping[str, str]:
        servers = self.kafka.bootstrap_servers
        return {
            "tasks.max": "1", "transaction.boundary": "interval", "transaction.boundary.interval.ms": "1000",
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": "source", "target.cluster.alias": "target",
            "source.cluster.bootstrap.servers": servers, "target.cluster.bootstrap.servers": servers,
            "topics": "numbers", "replication.factor": "2", "offset-syncs.topic.replication.factor": "2",
            "sync.topic.acls.enabled": "false",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        }  # fmt: skip

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def read(self, message: Message) -> int:
        return int(message.value() or b"")

    def expected(self) -> list[int]:
        return self.received("numbers", self.read)

    def problems(self) -> list[str]:
        """It writes under producer ids of its own, not under those of the source."""
        with Cluster(self.kafka.bootstrap_servers) as cluster:
            ids = [
                {row["producer_id"] for row in cluster.producer_rows(topics=[each])} for each in ("numbers", self.topic)
            ]
        return [] if all(ids) and ids[0].isdisjoint(ids[1]) else [f"producer ids of the source and the mirror: {ids}"]


RECORDS_PER_S = 20
SLOW_S = 900  # up to which a round of all steps takes longer than wanted


class Flink(Application):
    """A job of Flink, restored from its last completed checkpoint after a kill."""

    owner, prefix, topic = "Apache Flink", "flink-", "from-flink"
    keeps_after_timeout = False  # what a checkpoint has pre-committed

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
        super().__init__(kafka, folder, seconds)
        self.create(self.topic)
        self.written = RECORDS_PER_S * 2 * int(seconds + SLOW_S)  # more than it writes meanwhile

    def new_client(self) -> FlinkJob:
        checkpoint = self.client.last_checkpoint() if isinstance(self.client, FlinkJob) else None
        return FlinkJob(
            self.kafka,
            self.folder,
            topic=self.topic,
            prefix="flink",
            restored=checkpoint,
            records=self.written,
            rate=RECORDS_PER_S,
            timeout_ms=TIMEOUT_MS,
        )

    def end_input(self) -> None:
        """It writes the rest at once, and ends."""
        assert isinstance(self.client, FlinkJob)
        self.client.unpaced.touch()

    @property
    def is_over(self) -> bool:
        return self.client is not None and self.client.process.poll() == 0

    def read(self, message: Message) -> int:
        return int(message.value() or b"")


class Streams(Application):
    """The word count of Kafka Streams: a record for each word of its input."""

    owner, prefix, topic = "Kafka Streams application word-count", "word-count-", "streams-wordcount-output"

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
        super().__init__(kafka, folder, seconds)
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


STEPS = ("kill", "freeze", "fence", "roll", "kill_broker")
PATIENCE_S = 900  # on a busy machine, for steps that take seconds
PROPERTIES: Mapping[str, object] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200, "transaction.state.log.num.partitions": 4,
    "offsets.topic.num.partitions": 4, "min.insync.replicas": 1, "leader.imbalance.check.interval.seconds": 3,
    "leader.imbalance.per.broker.percentage": 0,
}  # fmt: skip
APPLICATIONS: Mapping[str, type[Application]] = {"streams": Streams, "mirror": Mirror, "flink": Flink}


@dataclass(slots=True)
class Watcher:
    """Findings of the whole cluster again and again, and what they call hanging."""

    bootstrap_servers: str
    stop: threading.Event
    looks: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    hanging: list[Row] = field(default_factory=list)
    owners: set[tuple[str, str]] = field(default_factory=set)
    """Transactional ids, and what was said of who runs them."""

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                with Cluster(self.bootstrap_servers, timeout=10) as cluster:
                    while not self.stop.is_set():
                        self.look(cluster)
            except ToolkitError as error:
                self.errors[type(error).__name__] += 1
                self.stop.wait(0.2)

    def look(self, cluster: Cluster) -> None:
        rows = cluster.finding_rows(recheck_after=0.5)
        self.looks += 1
        for row in rows:
            self.verdicts[row["verdict"]] += 1
            if row["transactional_id"]:
                self.owners.add((row["transactional_id"], row["owner"] or "none"))
            if row["verdict"] == "hanging":
                self.hanging.append(row)


@dataclass(slots=True)
class Campaign:
    """One application, what was done to it, and what was seen meanwhile."""

    # kafka, application, watcher: the cluster; what runs on it; the findings meanwhile
    kafka: Kafka
    application: Application
    watcher: Watcher
    chance: random.Random  # what is done, and when
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    last_open: float = field(default_factory=time.monotonic)
    stalled_s: float = 60  # without a transaction, until it is started again; twice as long each time, for its start

    def run(self, seconds: float) -> None:
        """Do one thing after another, each once it writes again: all of them, and again as long as there is time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.application.is_over:
            for step in self.chance.sample(STEPS, len(STEPS)):
                if step in self.done and time.monotonic() >= end:
                    break
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

        until(is_written, awaited="all records", timeout=PATIENCE_S)
        until(self._all_named, awaited="the owner of each id", timeout=PATIENCE_S)
        app.kill()
        until(lambda: None if self._transactions() else True, awaited="the end of transactions", timeout=PATIENCE_S)
        found, expected = Counter(app.visible()), Counter(app.expected())
        twice, lost = sorted((found - expected).elements()), sorted((expected - found).elements())
        if twice or (lost and not may_lose):
            self.problems.append(f"{len(twice)} records too many {twice[:9]}, {len(lost)} lost {lost[:9]}")
        self.problems += [f"FALSE hanging: {json.dumps(row, default=str)}" for row in self.watcher.hanging]
        self.problems += app.problems()
        self.problems += self._named_wrongly()

    def _all_named(self) -> bool | None:
        """Whether each id has an owner in a finding, or has one now: while a coordinator is down, nobody knows it."""
        if missing := self._never_named():
            with suppress(ToolkitError), Cluster(self.kafka.bootstrap_servers) as cluster:
                owners = map(IdOwner.of, cluster.transaction_owner_rows(transactional_ids=sorted(missing)))
                self.watcher.owners |= {(each.transactional_id or "", owner_clause(each) or "none") for each in owners}
        return None if self._never_named() else True

    def _never_named(self) -> set[str]:
        seen = {each[0] for each in self.watcher.owners if each[0].startswith(self.application.prefix)}
        return seen - {name for name, owner in self.watcher.owners if owner.startswith(self.application.owner)}

    def _named_wrongly(self) -> list[str]:
        app = self.application
        own = [each for each in self.watcher.owners if each[0].startswith(app.prefix)]
        return [f"{name} is of {owner}" for name, owner in own if not owner.startswith((app.owner, "none"))]

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

        until(is_open, awaited="an open transaction", timeout=PATIENCE_S)
        return self.chance.choice(found) if found and not self.application.is_over else None

    def _bring_back(self) -> None:
        """Start it again if it has failed, or writes nothing: a Streams demo stays when its only thread has ended."""
        self.application.tend()
        client = self.application.client
        has_failed = client is not None and client.process.poll() not in {None, 0}
        if self.application.is_over or any(row["topic_partitions"] for row in self._transactions()):
            self.last_open = time.monotonic()
        if has_failed or time.monotonic() - self.last_open > self.stalled_s:
            self.done["failed by itself" if has_failed else "stalled"] += 1
            self.stalled_s *= 2
            self._kill()
            self.last_open = time.monotonic()

    def _kill(self, _: Row | None = None) -> None:
        self.application.kill()
        self.application.start()

    def _freeze(self, transaction: Row) -> None:
        """Until the coordinator has aborted its transaction."""
        self.application.send_signal(signal.SIGSTOP)
        try:
            name, start = transaction["transactional_id"], transaction["start_time"]
            until(lambda: None if (name, start) in self._starts() else True, awaited="the timeout", timeout=PATIENCE_S)
        finally:
            self.application.send_signal(signal.SIGCONT)

    def _starts(self) -> set[tuple[Any, Any]]:
        return {(row["transactional_id"], row["start_time"]) for row in self._transactions()}

    def _fence(self, transaction: Row) -> None:
        with suppress(ToolkitError), Cluster(self.kafka.bootstrap_servers) as cluster:
            TxnProducer(cluster.client, transaction["transactional_id"], timeout_ms=TIMEOUT_MS).init()

    def _kill_broker(self, _: Row) -> None:
        broker_id = self.chance.choice(self.kafka.broker_ids)
        self.kafka.kill(broker_id)
        self.watcher.stop.wait(self.chance.choice([0, 1, 3]))
        self.kafka.start_broker(broker_id)

    def _roll(self, _: Row) -> None:
        """Restart each broker, in any order."""
        for broker_id in self.chance.sample(self.kafka.broker_ids, len(self.kafka.broker_ids)):
            self.kafka.restart(broker_id)


def run(framework: str, seed: str, seconds: float) -> Campaign:
    """One campaign: what was done, seen and wrong."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(Kafka("4.3.1", brokers=2, properties=PROPERTIES, timeout=240))
        application = APPLICATIONS[framework](kafka, folder, seconds)
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
    print(f"looks {watcher.looks}; verdicts {dict(watcher.verdicts)}; errors {dict(watcher.errors)}")
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
        application.end_input()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=[*APPLICATIONS])
    parser.add_argument("--seed", default="one")
    parser.add_argument("--seconds", type=float, default=300)
    arguments = parser.parse_args()
    sys.exit(bool(run(arguments.framework, arguments.seed, arguments.seconds).problems))


if __name__ == "__main__":
    main()
