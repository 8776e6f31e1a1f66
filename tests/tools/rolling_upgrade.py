"""Three brokers rolled one by one from 3.5.2 over 3.9.2 to 4.3.1 and finalized, under load, diagnosed all the time.

``python -m tests.tools.rolling_upgrade --seed one --minutes 8`` prints what was seen in each state. No live transaction
may be called hanging; every write that a half-upgraded cluster lets hang is found, and `exposure` says that it could.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka.protocol import admin as kafka_admin

from tests.java_gateway import JavaClients, java_clients
from tests.workload import Worker
from toolkit import Cluster
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.clients import RequestRefused, until
from toolkit.lab.incidents import INCIDENTS, Stage, StagedIncident
from toolkit.schema import Row
from toolkit.sources.live.client import messages
from toolkit.sources.live.exposure import API_VERSIONS

STEPS = ("3.5.2", "3.9.2", "4.3.1")
FEATURES = {"3.9.2": ("metadata.version",), "4.3.1": ("metadata.version", "transaction.version")}
"""What is finalized, at the highest level, once every broker is of a version."""
PROPERTIES: Mapping[str, object] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transaction.state.log.num.partitions": 9,
    "min.insync.replicas": 1,
    # A restarted broker leads partitions again at once, so that each broker coordinates ids.
    "leader.imbalance.check.interval.seconds": 3,
    "leader.imbalance.per.broker.percentage": 0,
}
ENDINGS = {"commit": 60, "abort": 25, "empty": 4, "idle": 4, "fence": 5, "timeout": 2}
TOPICS = {"load-a": 3, "load-b": 3}
Key = tuple[str, int, int, int]
"""Topic, partition, producer id and start offset of an open transaction."""


class Rolling:
    """The cluster, and which version each broker runs."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.versions = dict.fromkeys(kafka.broker_ids, kafka.version)
        self.finalized: dict[str, int] = {}

    def upgrade(self, broker_id: int, version: str) -> None:
        """Shut down a broker and start it with another version, on the same data and port."""
        self.kafka.stop_broker(broker_id)
        self.kafka.version = version
        self.kafka._classpath = self.kafka.classpath
        self.kafka.start_broker(broker_id)
        self.versions[broker_id] = version

    def finalize(self, cluster: Cluster, names: Sequence[str]) -> None:
        """Finalize features at their highest level (UpdateFeatures)."""
        request = kafka_admin.UpdateFeaturesRequest
        supported = cluster.client.send_one(messages.ApiVersions(**API_VERSIONS)).supported_features
        levels = {each.name: each.max_version for each in supported}
        for name in names:
            level = levels[name]
            update = request.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
            message = request(timeout_ms=30_000, feature_updates=[update], validate_only=False, max_version=1)
            until(lambda: None if self._refused(cluster, message) else True, awaited=f"{name}={level}")  # noqa: B023
            self.finalized[name] = level

    @staticmethod
    def _refused(cluster: Cluster, message: Any) -> bool:
        try:
            controller = cluster.client.send_one(messages.Metadata(topics=[])).controller_id
            answer = cluster.client.send_one(message, broker_id=controller)
        except ToolkitError:
            return True
        codes = [answer.error_code, *(each.error_code for each in answer.results or ())]
        return any(codes)

    def __str__(self) -> str:
        features = " ".join(f"{name}={level}" for name, level in self.finalized.items()) or "as formatted"
        return f"{' '.join(self.versions.values())}, {features}"


class JavaWorker(threading.Thread):
    """An application with the Java client of 4.3.1, which takes the transaction version from the cluster's features."""

    def __init__(self, java: JavaClients, name: str, stop: threading.Event) -> None:
        super().__init__(name=name)
        self.endings: Counter[str] = Counter()
        self._java, self._stop_now, self._random = java, stop, random.Random(name)

    def run(self) -> None:
        """Work until stopped; an instance that fails is replaced."""
        while not self._stop_now.is_set():
            try:
                self._live()
            except Exception:  # noqa: BLE001 - any error of Java: brokers stop on purpose
                self.endings["failed"] += 1

    def _live(self) -> None:
        producer = self._java.producer(self.name, transaction_timeout_ms=10_000, max_block_ms=30_000)
        try:
            producer.initTransactions()
            for _ in range(self._random.randint(5, 60)):
                producer.beginTransaction()
                for _ in range(self._random.randint(1, 3)):
                    topic = self._random.choice(list(TOPICS))
                    self._java.send(producer, topic, self._random.randrange(TOPICS[topic]))
                if self._random.random() < 0.3:
                    group = self._java.clients.consumer.ConsumerGroupMetadata(f"group-{self.name}")
                    producer.sendOffsetsToTransaction(self._java.offsets("load-a", 1), group)
                ending = self._random.choices(["commit", "abort", "abandon"], [70, 25, 5])[0]
                self.endings[ending] += 1
                if ending == "abandon":
                    return  # the next instance fences it
                (producer.commitTransaction if ending == "commit" else producer.abortTransaction)()
                if self._stop_now.is_set():
                    return
        finally:
            producer.close(self._java.java.java.time.Duration.ofSeconds(0))


@dataclass(slots=True)
class Watcher:
    """Findings of the whole cluster again and again, and what they call hanging besides what was staged."""

    bootstrap_servers: str
    stop: threading.Event
    looks: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    staged: set[str] = field(default_factory=set)
    hanging: dict[Key, Row] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)
    owners: set[tuple[str, str]] = field(default_factory=set)
    """Transactional ids, and what was said of who runs them."""
    state: str = ""

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
        self.looks[self.state] += 1
        for row in rows:
            self.verdicts[row["verdict"]] += 1
            if row["transactional_id"]:
                self.owners.add((row["transactional_id"], row["owner"] or "none"))
            if row["verdict"] != "hanging":
                continue
            if row["topic"] in self.staged:
                self.found.add(row["topic"])
            else:
                self.hanging.setdefault(key_of(row), {**row, "state": self.state})


def key_of(row: Row) -> Key:
    return row["topic"], row["partition"], row["producer_id"], row["start_offset"]


@dataclass(slots=True)
class Report:
    """What was seen, state by state."""

    writes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def check(self, is_right: bool, problem: str) -> None:
        if not is_right:
            self.problems.append(problem)
            print(f"PROBLEM: {problem}", flush=True)


def stage_all(rolling: Rolling, watcher: Watcher, report: Report, numbers: Iterator[int]) -> None:
    """Try a write that hangs at each kind of leader with an id of each kind of coordinator, and compare `exposure`."""
    kinds = {version: broker for broker, version in rolling.versions.items()}
    with Cluster(rolling.kafka.bootstrap_servers, timeout=20) as cluster:
        exposed = verification_of(cluster, rolling, report)
        for (leads, leader), (owns, coordinator) in itertools.product(kinds.items(), repeat=2):
            topic = f"staged-{next(numbers)}"
            watcher.staged.add(topic)
            others = [each for each in rolling.versions if each != leader]
            staged = stage(rolling.kafka, topic, [leader, *others], coordinator)
            is_open = staged is not None
            report.writes.append(f"{rolling}: leader {leads}, coordinator {owns}: {'open' if is_open else 'refused'}")
            if staged is None:
                continue
            report.check(
                exposed[leader] is not False, f"{rolling}: broker {leader} let it hang, and exposure said it could not"
            )
            until(lambda: True if topic in watcher.found else None, awaited=f"a finding of {topic}")  # noqa: B023
            (row,) = cluster.finding_rows(topics=[topic], partitions=[0], recheck_after=0.5)
            report.check(
                (row["verdict"], row["outcome"], row["action"]) == ("hanging", "undecided", "abort"),
                f"{rolling}: {topic} is {row['verdict']}, {row['outcome']}, {row['action']}: {row['missing']}",
            )


def stage(kafka: Kafka, topic: str, replicas: Sequence[int], coordinator: int) -> StagedIncident | None:
    """`never_added` on a partition that the first replica leads; null if the leader refused the write."""
    with Stage(kafka, INCIDENTS["never_added"], topic=topic, partition=0) as on:
        on.create_topic(replicas=replicas)
        producer = on.producer(coordinator_id=coordinator)
        try:
            return on.staged(producer, producer.send(topic, 0))
        except RequestRefused as refused:
            if refused.error in {"INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"}:
                return None
            raise


def verification_of(cluster: Cluster, rolling: Rolling, report: Report) -> dict[int, bool | None]:
    """Whether `exposure` says that each broker accepts such writes; and it has to name mixed versions."""
    rows = cluster.exposure_rows()
    mixed = [row for row in rows if row["name"] == "mixed versions"]
    report.check(bool(mixed) == (len({*rolling.versions.values()}) > 1), f"{rolling}: mixed versions: {mixed}")
    if mixed:
        print(f"  exposure: {mixed[0]['name']}: {mixed[0]['value']}", flush=True)
        for broker, version in rolling.versions.items():
            release = version.rpartition(".")[0]
            parts = [part for part in mixed[0]["value"].split(", ") if part.startswith(f"{release} ")]
            releases = [row for row in rows if row["name"] == "kafka version" and row["broker_id"] == broker]
            report.check(
                bool(parts) and str(broker) in parts[0],
                f"{rolling}: broker {broker} is not in {mixed[0]['value']}: {releases}",
            )
    features = {row["name"]: row["value"] for row in rows if row["subject"] == "cluster"}
    for name, level in rolling.finalized.items():
        report.check(features[name] == str(level), f"{rolling}: {name} is {features[name]}")
    name = "transaction.partition.verification.enable"
    return {row["broker_id"]: row["exposed"] for row in rows if row["name"] == name}


@contextmanager
def load(kafka: Kafka, folder: Path, seed: str, stop: threading.Event) -> Iterator[list[Any]]:
    """Applications of both transaction versions, until the block ends."""
    with java_clients(kafka, folder, version="4.3.1") as java:
        partitions = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
        workers: list[Any] = [
            Worker(kafka, partitions, f"librdkafka-{seed}-{each}", stop, endings=ENDINGS, timeout_ms=5000)
            for each in range(3)
        ]
        workers += [JavaWorker(java, f"java-{seed}-{each}", stop) for each in range(3)]
        for worker in workers:
            worker.start()
        try:
            yield workers
        finally:
            stop.set()
            for worker in workers:
                worker.join(120)


def create_topics(cluster: Cluster) -> None:
    new = messages.CreateTopics.CreatableTopic
    topics = [
        new(name=name, num_partitions=count, replication_factor=3, assignments=[], configs=[])
        for name, count in TOPICS.items()
    ]
    request = messages.CreateTopics(topics=topics, timeout_ms=10_000, validate_only=False, max_version=4)
    controller = cluster.client.send_one(messages.Metadata(topics=[])).controller_id
    cluster.client.send_one(request, broker_id=controller)


def run(seed: str, minutes: float) -> Report:
    """Roll the cluster through all states; each lasts for an equal part of the time at least."""
    report, chance, numbers = Report(), random.Random(seed), itertools.count()
    states = 1 + (len(STEPS) - 1) * 4
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(Kafka(STEPS[0], brokers=3, properties=PROPERTIES, timeout=240))
        rolling, stop, stop_load = Rolling(kafka), threading.Event(), threading.Event()
        with Cluster(kafka.bootstrap_servers) as cluster:
            create_topics(cluster)
        watcher = Watcher(kafka.bootstrap_servers, stop)
        thread = threading.Thread(target=watcher.run, name="watcher")
        workers = stack.enter_context(load(kafka, folder, seed, stop_load))
        thread.start()
        stack.callback(thread.join, 120)
        stack.callback(stop.set)

        def dwell() -> None:
            watcher.state = str(rolling)
            print(f"{time.strftime('%H:%M:%S')} {rolling}", flush=True)
            stage_all(rolling, watcher, report, numbers)
            stop.wait(minutes * 60 / states)

        dwell()
        for version in STEPS[1:]:
            for broker_id in chance.sample(kafka.broker_ids, len(kafka.broker_ids)):
                watcher.state = f"broker {broker_id} to {version}"
                rolling.upgrade(broker_id, version)
                dwell()
            with Cluster(kafka.bootstrap_servers) as cluster:
                rolling.finalize(cluster, FEATURES[version])
            dwell()
        stop_load.set()
        for worker in workers:
            worker.join(120)
        remaining = settle(kafka, watcher)
        with Cluster(kafka.bootstrap_servers) as cluster:
            for topic in sorted(watcher.found):
                (row,) = cluster.finding_rows(topics=[topic], partitions=[0], recheck_after=0.5)
                report.check(row["verdict"] == "hanging", f"at the end {topic} is {row['verdict']}: {row['missing']}")
        stop.set()
        thread.join(120)
        endings = {
            kind: dict(sum((each.endings for each in workers if kind in each.name), Counter[str]()))
            for kind in ("librdkafka", "java")
        }
    for key, row in watcher.hanging.items():
        if key in remaining:
            report.check(row["outcome"] != "commit", f"{key}: hangs by itself, decided as commit")
            print(f"hangs by itself, since {row['state']}: {json.dumps(row, default=str)[:3000]}")
        else:
            report.check(False, f"FALSE hanging in {row['state']}: {json.dumps(row, default=str)[:3000]}")
    print("\n".join(sorted({*report.writes})))
    print(f"transactions {endings}")
    print(f"looks {sum(watcher.looks.values())}, in {len(watcher.looks)} states; verdicts {dict(watcher.verdicts)}")
    print(f"staged {len(watcher.staged)}, found {len(watcher.found)}; errors of looks {dict(watcher.errors)}")
    print(f"hanging besides {len(watcher.hanging)}, of these open to the end {len(remaining & watcher.hanging.keys())}")
    return report


def settle(kafka: Kafka, watcher: Watcher) -> set[Key]:
    """Wait for the timeouts of what was left open; what is open on the load's topics then."""
    open_now: set[Key] = set()

    def is_over() -> bool | None:
        with Cluster(kafka.bootstrap_servers) as cluster:
            rows = cluster.finding_rows(recheck_after=0.5)
        open_now.clear()
        open_now.update(key_of(row) for row in rows if row["topic"] not in watcher.staged and row["producer_id"])
        return True if not open_now - watcher.hanging.keys() else None

    try:
        until(is_over, awaited="the timeouts of the load")
    except Exception:  # noqa: BLE001 - reported with what is open
        traceback.print_exc()
    return set(open_now)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="one")
    parser.add_argument("--minutes", type=float, default=8)
    arguments = parser.parse_args()
    report = run(arguments.seed, arguments.minutes)
    print(f"{len(report.problems)} problems")
    raise SystemExit(bool(report.problems))


if __name__ == "__main__":
    main()
