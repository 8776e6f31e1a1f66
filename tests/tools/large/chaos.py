"""Three brokers with Streams, Connect or Flink, where everything fails at random, and a recorder of it all.

Applications are killed, frozen past their timeouts and fenced, brokers killed and rolled, replicas offline while
transactions are committed, and transactions that really hang are staged in between. Findings run in a loop.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.tools.framework_campaigns.campaign import APPLICATIONS, PROPERTIES, Campaign, writing
from tests.tools.large.recorder import RecorderProcess, start_brokers
from tests.tools.large.sitting import Sitting
from tests.tools.rolling_upgrade import Watcher
from toolkit import Cluster
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, coordinator, until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.schema import Row

PATIENCE_S = 900
STALLED_S = 400  # more than a start takes on a busy machine
HANGING = ("never_added", "late_message", "late_after_commit", "superseded_elsewhere")
STEPS = ("kill", "freeze", "fence", "roll", "kill_brokers", "commit_offline", "stage")
STAGING_ERRORS = (ToolkitError, KafkaException)
FRAMEWORKS = ("streams", "flink", "connect")
Expected = tuple[str, str, str]
"""Verdict, outcome and action."""


@dataclass(slots=True)
class Chaos(Campaign):
    """A campaign with brokers that are killed and incidents that are staged.

    `staged` has what is expected of each staged partition at the end.
    """

    staged: dict[tuple[str, int], Expected] = field(default_factory=dict)

    steps: ClassVar[Sequence[str]] = STEPS
    last_open: float = field(default_factory=time.monotonic)

    def _bring_back(self) -> None:
        """Restart what runs and writes nothing, too: a demo of Streams stays when its only thread has ended."""
        Campaign._bring_back(self)
        if any(row["topic_partitions"] for row in self._transactions()) or self.application.is_over:
            self.last_open = time.monotonic()
        elif time.monotonic() - self.last_open > STALLED_S:
            self.done["stalled, restarted"] += 1
            print(f"stalled: {self.application_log()[-1500:]}", flush=True)
            self._kill()
            self.last_open = time.monotonic()

    def application_log(self) -> str:
        """What the present process has printed."""
        log = self.application.client.folder / "log" if self.application.client else None
        return log.read_text() if log and log.exists() else ""

    def _kill_brokers(self, _: Row) -> None:
        killed = self.chance.sample(self.kafka.broker_ids, self.chance.choice([1, 1, 1, 2]))
        for broker_id in killed:
            self.kafka.kill(broker_id)
            self.done["brokers killed"] += 1
        self.watcher.stop.wait(self.chance.choice([0, 1, 3]))
        start_brokers(self.kafka, killed)

    def _stage(self, _: Row) -> None:
        """A transaction that really hangs."""
        name = self.chance.choice(HANGING)
        topic = f"staged-{uuid.uuid4().hex[:6]}"
        self.watcher.staged.add(topic)
        try:
            staged = INCIDENTS[name](self.kafka, topic=topic)
        except STAGING_ERRORS as error:
            self._not_staged(error)
        else:
            self.staged[topic, staged.partition] = "hanging", "undecided", "abort"

    def _not_staged(self, error: Exception) -> None:
        """Staging has its own, shorter patience, which a busy machine may exceed."""
        self.done["not staged in time"] += 1
        print(f"not staged in time: {error}", flush=True)

    def _commit_offline(self, _: Row) -> None:
        """The only replica is down at the commit or abort, and the coordinator skips its marker (KAFKA-20734).

        The transaction has version 2, whose commit is proven.
        """
        topic = f"staged-{uuid.uuid4().hex[:6]}"
        self.watcher.staged.add(topic)
        commit = self.chance.random() < 0.6
        with Cluster(self.kafka.bootstrap_servers, timeout=20) as cluster:
            try:
                self._end_while_down(cluster, topic, commit=commit)
            except STAGING_ERRORS as error:
                self._not_staged(error)
                return
            rows = until(lambda: self._decided(cluster, topic), awaited=f"a verdict on {topic}", timeout=PATIENCE_S)
        if rows[0]["verdict"] != "clear":
            self.staged[topic, 0] = ("stuck_ending", "commit", "complete") if commit else ("hanging", "abort", "abort")
            self.done["markers skipped"] += 1

    def _end_while_down(self, cluster: Cluster, topic: str, *, commit: bool) -> None:
        name = f"offline-{uuid.uuid4().hex[:6]}"
        # After a roll, one broker may coordinate every id.
        leads = coordinator(cluster.client, name)
        away = self.chance.choice([each for each in self.kafka.broker_ids if each != leads])
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        admin.create_topics([NewTopic(topic, 1, replica_assignment=[[away]])])[topic].result()
        producer = TxnProducer(cluster.client, name, timeout_ms=60_000, transaction_version=2).init()
        producer.add(topic, 0)
        producer.send(topic, 0)
        self.kafka.stop_broker(away)
        try:
            producer.end(commit=commit)
        finally:
            self.kafka.start_broker(away)

    @staticmethod
    def _decided(cluster: Cluster, topic: str) -> list[Row] | None:
        try:
            rows = cluster.finding_rows(topics=[topic], partitions=[0], recheck_after=0.5)
        except ToolkitError:
            return None
        return None if {row["verdict"] for row in rows} & {"unknown", "ongoing", "ending"} else rows

    def check_staged(self) -> None:
        """Whether each staged transaction is found, and as what it is."""
        with Cluster(self.kafka.bootstrap_servers, timeout=20) as cluster:
            for (topic, partition), expected in self.staged.items():
                rows = cluster.finding_rows(topics=[topic], partitions=[partition], recheck_after=0.5)
                found = {(row["verdict"], row["outcome"], row["action"]) for row in rows}
                if expected not in found:
                    self.problems.append(f"{topic}-{partition} is {found}, not {expected}: {rows[0]['missing']}")
                if expected[0] == "hanging" and topic not in self.watcher.found:
                    self.problems.append(f"{topic} was never found hanging")


def run(sitting: Sitting, *frameworks: str) -> None:
    """One framework after another, each for a part of the time; all if none is named."""
    names = frameworks or sitting.chance.sample(FRAMEWORKS, len(FRAMEWORKS))
    for number in sitting.numbers():
        name = names[number % len(names)]
        seconds = min(sitting.seconds_left, max(60.0, sitting.seconds / 3))
        print(f"{name} for {seconds:.0f} s", flush=True)
        with _campaign(name, f"{sitting.seed}-{number}", seconds, sitting) as campaign:
            campaign.run(seconds)


@contextmanager
def _campaign(framework: str, seed: str, seconds: float, sitting: Sitting) -> Iterator[Chaos]:
    properties: Mapping[str, object] = {**EVERYDAY.properties, **PROPERTIES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(Kafka("4.3.1", brokers=3, properties=properties, timeout=PATIENCE_S))
        application = APPLICATIONS[framework](kafka, folder, seconds)
        stop = threading.Event()
        watcher = Watcher(kafka.bootstrap_servers, stop)
        campaign = Chaos(kafka, application, watcher, random.Random(seed))
        recorder = RecorderProcess(kafka, folder)
        recorder.start()
        stack.callback(recorder.stop)
        recorder.await_sample()
        stack.callback(application.kill)
        thread = threading.Thread(target=watcher.run, name="watcher")
        thread.start()
        stack.callback(thread.join, PATIENCE_S)
        stack.callback(stop.set)
        try:
            with writing(application):
                yield campaign
            campaign.finish()
        except ToolkitError as error:
            campaign.problems.append(f"{error} {campaign.application_log()[-3000:]}")
        campaign.check_staged()
        hanging = {topic for (topic, _), expected in campaign.staged.items() if expected[0] == "hanging"}
        recorder.await_hanging(hanging)
        sitting.check(recorder.stop() == 0, f"{framework}: the recorder ended: {recorder.errors()[-2000:]}")
        recorder.check(sitting, hanging)
    for problem in campaign.problems:
        sitting.check(False, f"{framework}, seed {seed}: {problem}")
    sitting.counts[f"{framework}: runs"] += 1
    sitting.counts[f"{framework}: records"] += application.written
    sitting.counts["looks"] += sum(watcher.looks.values())
    sitting.counts["staged, found"] += len(campaign.staged)
    for step, count in campaign.done.items():
        sitting.counts[step] += count
    print(f"{framework}: {json.dumps(dict(watcher.verdicts))}, errors {dict(watcher.errors)}", flush=True)
