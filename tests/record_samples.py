"""Record the samples of `toolkit.lab.samples` again: ``python -m tests.record_samples [NAME ...]``, or all of them.

Each runs on its own broker, which is shut down cleanly; the archive must give the same findings as the complete log
directory. Ids, times and so the archives differ between runs; names and expected findings do not.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from toolkit.actions.audit import AUDIT_FILE
from toolkit.actions.marker_actions import plan_abort
from toolkit.errors import LabError
from toolkit.lab import samples
from toolkit.lab.broker import Kafka
from toolkit.lab.clients import BlockedConsumer, config_of, create_topic, until, write_committed
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.lab.lab_source import BEFORE, BEHIND, stage_between
from toolkit.lab.samples import AUDIT, DUMP, INDEX, LOG_DIR, READ_ONLY, RECORDING, IncidentSample
from toolkit.schema import Row
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir
from toolkit.sources.recording.recorder import record_samples

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
    """How to produce a sample; its title and description are in the index, and a new one is written there first."""

    name: str
    expected: str  # expected verdict
    play: Callable[[Kafka, Path], ScriptResult]  # steps on the running broker, with the sample's folder
    properties: Mapping[str, str]  # settings of the broker
    dump: bool = False  # whether to keep the output of kafka-dump-log.sh, too

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
    """Applications commit and abort continuously; a late message holds the LSO, and a group, until it is aborted."""
    create_topic(kafka, TOPIC)
    stop = threading.Event()
    clients = [_Client(kafka, f"checkout-{number}", stop) for number in (1, 2, 3)]
    for client in clients:
        client.start()
    with BlockedConsumer(kafka, TOPIC, GROUP) as consumer:
        try:
            _until_done(clients, transactions * 2 // 5, consumer)
            staged = INCIDENTS["late_message"](kafka, topic=TOPIC)
            consumer.read()
            time.sleep(held_for)
            _abort(kafka, staged.start_offset)
            _until_done(clients, transactions, consumer)
        finally:
            stop.set()
            for client in clients:
                client.join()
        consumer.read()
    return ScriptResult(topic=TOPIC, partition=0, min_held_ms=10_000)


class _Client(threading.Thread):
    """An application that commits most of its transactions."""

    def __init__(self, kafka: Kafka, transactional_id: str, stop: threading.Event) -> None:
        super().__init__(name=transactional_id)
        self.done = 0
        self._stop_now = stop
        self._random = random.Random(transactional_id)
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


def _until_done(clients: Sequence[_Client], count: int, consumer: BlockedConsumer) -> None:
    """Wait, while a group reads and commits about once a second."""

    def is_done() -> bool | None:
        consumer.read()
        time.sleep(1)
        return True if sum(each.done for each in clients) >= count else None

    until(is_done, awaited=f"{count} transactions", timeout=600)


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
        BlockedConsumer(kafka, TOPIC, GROUP).close()
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


def _of_incident(incident: str, *, seconds: float = 3, dump: bool = False) -> SampleScript:
    plot = INCIDENTS[incident]
    return SampleScript(
        name=incident.replace("_", "-"),
        expected=plot.later or plot.expected,
        play=_incident(incident, seconds=seconds),
        properties=plot.properties,
        dump=dump,
    )


SCRIPTS: Mapping[str, SampleScript] = {
    script.name: script
    for script in (
        _of_incident("late_message", dump=True),
        *(
            _of_incident(each)
            for each in ("never_added", "superseded_same_partition", "head_deleted", "offsets_never_added")
        ),
        *(_of_incident(each) for each in ("several_open", "orphan", "open_young")),
        _of_incident("overdue", seconds=30),
        SampleScript(name="long-history", expected="ended", play=_long_history, properties=EVERYDAY.properties),
        SampleScript(
            name="flight-recording", expected="hanging", play=_flight_recording, properties=EVERYDAY.properties
        ),
    )
}
"""Script by the name of its sample."""


DATA = Path(samples.__file__).parent / "data"
# The lock of the stopped process.
LEFT_OUT = (".lock",)
EXPECTED_COLUMNS = (
    "verdict", "cause", "producer_id", "producer_epoch", "transactional_id", "start_offset", "last_stable_offset",
    "high_watermark", "records_held", "groups_held", "outcome", "action",
)  # fmt: skip
COMPARED_COLUMNS = (
    *EXPECTED_COLUMNS, "topic", "partition", "queue_position", "reason", "remedy", "missing", "opened_at",
    "bytes_held", "held_ms",
)  # fmt: skip


def make(script: SampleScript, known: Mapping[str, Any], into: Path) -> dict[str, Any]:
    """Run a script, write its archive, and return its row of the index, with the texts of the row that is there."""
    with tempfile.TemporaryDirectory(prefix="kafka-txn-sample-") as temporary:
        folder = Path(temporary) / "packed"
        folder.mkdir()
        os.environ[AUDIT_FILE] = str(folder / AUDIT)  # these actions do not belong into the user's own audit trail
        with Kafka(VERSION, properties=script.properties) as kafka:
            played = script.play(kafka, folder)
            kafka.stop_broker(1)
            whole = Path(shutil.copytree(kafka.log_dirs[1], Path(temporary) / "whole"))
            if script.dump:
                (folder / DUMP).write_text(_dump(kafka, f"{played.topic}-{played.partition}"), encoding="utf-8")
        shutil.copytree(whole, folder / LOG_DIR, ignore=shutil.ignore_patterns(*LEFT_OUT))
        sample = IncidentSample(
            name=script.name,
            title=known["title"],
            description=known["description"],
            origin=script.origin,
            topic=played.topic,
            partition=played.partition,
            expected={},
            at=played.at,
            min_held_ms=played.min_held_ms,
            path=folder,
        )
        if _diagnosed(LogDir(whole, consistent_copy=True).finding_rows()) != _diagnosed(
            sample.log_dir().finding_rows()
        ):
            raise LabError(f"The archive of {script.name} has other findings than the complete log directory.", do="")
        expected = _held_finding(script, sample.finding_rows())
        (into / f"{script.name}.tar.xz").write_bytes(packed(folder))
    return {
        "title": sample.title,
        "description": sample.description,
        "origin": sample.origin,
        "topic": sample.topic,
        "partition": sample.partition,
        "at": sample.at.isoformat() if sample.at else None,
        "min_held_ms": sample.min_held_ms,
        "expected": {name: expected[name] for name in EXPECTED_COLUMNS},
    }


def _diagnosed(rows: Sequence[Row]) -> list[Row]:
    return [{name: row[name] for name in COMPARED_COLUMNS} for row in rows]


def _held_finding(script: SampleScript, rows: Sequence[Row]) -> Row:
    """The row of the transaction that holds or held the LSO."""
    first = min((row for row in rows if row["start_offset"] is not None), key=lambda row: int(row["start_offset"]))
    if first["verdict"] != script.expected:
        raise LabError(f"{script.name} was to be {script.expected}, not {[row['verdict'] for row in rows]}.", do="")
    return first


def _dump(kafka: Kafka, folder: str) -> str:
    segment = kafka.log_dirs[1] / folder / f"{0:020}.log"
    done = kafka.run_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", str(segment))
    if done.returncode:
        raise LabError(f"kafka-dump-log.sh failed: {done.stderr[-600:]}", do="")
    return done.stdout.replace(str(segment.parent.parent), "/var/lib/kafka/data")


def packed(folder: Path) -> bytes:
    """A folder as a .tar.xz archive: files by name, with their times, and without owner or permissions."""
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w:xz", preset=9, format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            status = path.stat()
            member.size, member.mode = status.st_size, READ_ONLY
            member.mtime = round(status.st_mtime, 3)
            with path.open("rb") as file:
                archive.addfile(member, file)
    return into.getvalue()


def main(names: Sequence[str]) -> None:
    """Make the samples of these names, or all."""
    index = DATA / INDEX
    entries = json.loads(index.read_text(encoding="utf-8"))
    for name in names or SCRIPTS:
        entries[name] = make(SCRIPTS[name], entries[name], DATA)
        ordered = {each: entries[each] for each in sorted(entries) if each in SCRIPTS}
        index.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        size = (DATA / f"{name}.tar.xz").stat().st_size
        sys.stdout.write(f"{name}: {size:,} bytes, {entries[name]['expected']['verdict']}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
