"""Scripts that produce the samples on a lab broker, and their descriptions."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from toolkit.actions.abort import plan_abort
from toolkit.lab.consumer import blocked_consumer
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.lab.producer import write_committed
from toolkit.lab.queries import config_of, until
from toolkit.lab.samples.incident_sample import RECORDING
from toolkit.lab.server.broker import Kafka
from toolkit.lab.staged_traffic import BEFORE, BEHIND, create_topic, stage_between
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.recording.sampling.fixed_recording import record_samples

TOPIC, GROUP = "orders", "billing"
VERSION = "4.3.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptResult:
    """The partition of a script's incident, and the arguments that show it; fields as in `IncidentSample`."""

    topic: str
    partition: int
    at: dt.datetime | None = None
    min_held_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleScript:
    """How to produce a sample.

    Parameters
    ----------
    name, title, description
        As in `IncidentSample`.
    expected
        Expected verdict.
    properties
        Settings of the broker.
    play
        Steps on the running broker, with the sample's folder.
    dump
        Whether to keep the output of kafka-dump-log.sh, too.
    """

    name: str
    title: str
    description: str
    expected: str
    play: Callable[[Kafka, Path], ScriptResult]
    properties: Mapping[str, str]
    dump: bool = False

    @property
    def origin(self) -> str:
        """How it is made, as a sentence."""
        changed = ", ".join(f"{key}={value}" for key, value in self.properties.items())
        return f"Staged on Kafka {VERSION} with one broker ({changed}), which was then shut down cleanly."


def _incident(name: str, *, seconds: float = 3) -> Callable[[Kafka, Path], ScriptResult]:
    """Stage an incident between committed records that a group reads up to the LSO."""

    def play(kafka: Kafka, folder: Path) -> ScriptResult:
        staged = stage_between(kafka, name, topic=TOPIC, group=GROUP)
        time.sleep(seconds)
        return ScriptResult(topic=staged.topic, partition=staged.partition)

    return play


def _long_history(kafka: Kafka, folder: Path, *, transactions: int = 2_000, held_for: float = 25) -> ScriptResult:
    """Applications commit and abort continuously; a late message holds the LSO until it is aborted."""
    create_topic(kafka, TOPIC)
    stop = threading.Event()
    clients = [_Client(kafka, f"checkout-{number}", stop) for number in (1, 2, 3)]
    for client in clients:
        client.start()
    try:
        _until_done(clients, transactions * 2 // 5)
        staged = INCIDENTS["late_message"](kafka, topic=TOPIC)
        time.sleep(held_for)
        _abort(kafka, staged.start_offset)
        _until_done(clients, transactions)
    finally:
        stop.set()
        for client in clients:
            client.join()
    return ScriptResult(topic=TOPIC, partition=0, min_held_ms=10_000)


class _Client(threading.Thread):
    """An application that commits most of its transactions."""

    def __init__(self, kafka: Kafka, transactional_id: str, stop: threading.Event) -> None:
        super().__init__(name=transactional_id)
        self.done = 0
        self._stop_now = stop
        self._random = random.Random(transactional_id)  # noqa: S311 - it has to be repeatable, not secret
        self._config = kafka.client_config() | {
            "transactional.id": transactional_id,
            "linger.ms": "0",
            "log_level": "0",
        }

    def run(self) -> None:
        """Work until stopped."""
        producer = Producer(self._config)
        producer.init_transactions(20)
        while not self._stop_now.wait(self._random.uniform(0.02, 0.2)):
            producer.begin_transaction()
            for _ in range(self._random.randint(1, 5)):
                producer.produce(TOPIC, b"order", partition=0)
            producer.flush(20)
            self._stop_now.wait(self._random.choice([0, 0, 0, 0.05, 0.3]))
            if self._random.random() < 0.1:
                producer.abort_transaction(20)
            else:
                producer.commit_transaction(20)
            self.done += 1


def _until_done(clients: Sequence[_Client], count: int) -> None:
    awaited = f"{count} transactions"
    until(lambda: True if sum(each.done for each in clients) >= count else None, awaited=awaited, timeout=600)


def _abort(kafka: Kafka, start_offset: int) -> None:
    with Cluster(kafka.bootstrap_servers) as cluster:
        rows = cluster.finding_rows(topics=[TOPIC], partitions=[0], recheck_after=1)
        (row,) = (row for row in rows if row["start_offset"] == start_offset)
        plan = plan_abort(cluster, row)
        plan.execute(confirm=plan.target, recheck_after=1)


def _flight_recording(kafka: Kafka, folder: Path) -> ScriptResult:
    """The recorder runs before, while and after a transaction hangs."""
    create_topic(kafka, TOPIC)
    with BrokerClient(config_of(kafka)) as cluster:
        write_committed(cluster, TOPIC, 0, records=BEFORE)
        blocked_consumer(kafka, TOPIC, GROUP).close()
        stop = threading.Event()
        connect = partial(Cluster, kafka.bootstrap_servers, timeout=5)
        recorder = threading.Thread(target=partial(record_samples, connect, folder / RECORDING, stop=stop))
        recorder.start()
        try:
            time.sleep(5)
            staged = INCIDENTS["late_message"](kafka, topic=TOPIC)
            write_committed(cluster, TOPIC, 0, records=BEHIND)
            time.sleep(9)
            held_until = dt.datetime.now(dt.UTC).replace(microsecond=0)
            time.sleep(1)
            _abort(kafka, staged.start_offset)
            time.sleep(5)
        finally:
            stop.set()
            recorder.join()
    return ScriptResult(topic=TOPIC, partition=0, at=held_until)


def _of_incident(
    incident: str, title: str, description: str, *, seconds: float = 3, dump: bool = False
) -> SampleScript:
    plot = INCIDENTS[incident]
    return SampleScript(
        name=incident.replace("_", "-"),
        title=title,
        description=description,
        expected=plot.later or plot.expected,
        play=_incident(incident, seconds=seconds),
        properties=plot.properties,
        dump=dump,
    )


SCRIPTS: Mapping[str, SampleScript] = {
    script.name: script
    for script in (
        _of_incident(
            "late_message",
            "A batch arrived after its transaction was aborted",
            "The abort marker overtook a batch that was still in flight. The broker took the late batch for the "
            "beginning of another transaction, which the coordinator does not know: nobody will ever end it, and 20 "
            "committed records wait behind it.",
            dump=True,
        ),
        _of_incident(
            "never_added",
            "A producer wrote to a partition that it never added to its transaction",
            "The client has a producer id and wrote, but never sent AddPartitionsToTxn. No coordinator will send a "
            "marker to this partition.",
        ),
        _of_incident(
            "superseded_same_partition",
            "The next instance of a producer is about to publish what its dead one left open",
            "A producer wrote and died; its successor, one epoch later, has added the same partition and written "
            "nothing there yet. Its commit would make the dead epoch's records visible to read_committed.",
        ),
        _of_incident(
            "head_deleted",
            "A transaction hangs whose first records are deleted",
            "Retention, here DeleteRecords, deleted the first records of a hanging transaction. That does not end "
            "it: the LSO stays where it is.",
        ),
        _of_incident(
            "offsets_never_added",
            "A group's offset was committed without adding the group to the transaction",
            "It shows on the group's partition of __consumer_offsets, not on the topic that the group reads: the "
            "group's offsets stand still.",
        ),
        _of_incident(
            "several_open",
            "Two hanging transactions with a healthy one between them",
            "Ending the first one moves the LSO to the healthy one, and not to the end: what follows one abort has to "
            "be known before it.",
        ),
        _of_incident(
            "orphan",
            "The transactional id of an open transaction has expired",
            "The transaction was open for longer than transactional.id.expiration.ms (3 s here, a week by default). "
            "No coordinator has a state for it any more.",
        ),
        _of_incident(
            "open_young",
            "Healthy: a transaction is open and will be committed",
            "It holds the LSO as every open transaction does. An abort marker would lose half of it.",
        ),
        _of_incident(
            "overdue",
            "A transaction is open past its own timeout",
            "Its coordinator owns it but does not abort it. Write no abort marker: check the coordinator.",
            seconds=30,
        ),
        SampleScript(
            name="long-history",
            title="Two thousand transactions, and one that hung for half a minute in the middle",
            description="Three applications commit and abort continuously. A late message holds the LSO until an "
            "operator writes an abort marker; then consumers continue. Nothing is open at the end.",
            expected="ended",
            play=_long_history,
            properties=EVERYDAY.properties,
        ),
        SampleScript(
            name="flight-recording",
            title="A flight recording: a transaction hangs, and an operator aborts it",
            description="One sample per second: normal traffic, a late message that holds the LSO, the abort marker, "
            "and normal traffic again. Meanwhile the group billing makes no progress.",
            expected="hanging",
            play=_flight_recording,
            properties=EVERYDAY.properties,
        ),
    )
}
"""Script by the name of its sample."""
