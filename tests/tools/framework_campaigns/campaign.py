"""One application, disturbed at random while findings run in a loop.

No transaction may be called hanging, each one's owner is named, and nothing that was written is lost or there twice.
"""

from __future__ import annotations

import json
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.tools.framework_campaigns.application import TIMEOUT_MS, Application
from tests.tools.framework_campaigns.connect import Connect, Mirror
from tests.tools.framework_campaigns.flink import Flink
from tests.tools.framework_campaigns.iceberg import Iceberg
from tests.tools.framework_campaigns.streams import Streams
from tests.tools.rolling_upgrade import Watcher
from toolkit import Cluster
from toolkit.analysis.coordinator.transaction_owners import owner_clause
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until
from toolkit.schema import Row
from toolkit.schema.live import IdOwner

STEPS = ("kill", "freeze", "fence", "roll")
PATIENCE_S = 900  # on a busy machine, for steps that take seconds
PROPERTIES: Mapping[str, object] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transaction.state.log.num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "min.insync.replicas": 1,
    "leader.imbalance.check.interval.seconds": 3,
    "leader.imbalance.per.broker.percentage": 0,
}
APPLICATIONS: Mapping[str, type[Application]] = {
    "streams": Streams,
    "connect": Connect,
    "mirror": Mirror,
    "iceberg": Iceberg,
    "flink": Flink,
}


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
        """Do one thing after another, each once it writes again: all of them, and again as long as there is time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.application.is_over:
            for step in self.chance.sample(self.steps, len(self.steps)):
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
        self.problems += [f"FALSE hanging: {json.dumps(row, default=str)}" for row in self.watcher.hanging.values()]
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
            until(lambda: None if (name, start) in self._starts() else True, awaited="the timeout", timeout=PATIENCE_S)
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
        application.end_input()
