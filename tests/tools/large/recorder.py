"""One recorder of three brokers that are killed all the time: no sample torn, lost or there twice, none that is wrong.

A transaction hangs all the while, and others come and go: the samples have it, and call no other one hanging.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow.dataset as ds

from tests.builders import create_topics
from tests.process import COMMAND, ROOT, started
from tests.sources.recorded import files
from tests.tools.large.sitting import Sitting
from tests.workload import Worker
from toolkit import Cluster, Recording
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.schema import RECORDED
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.schema.log import PastTransaction

INTERVAL_S = 1
PATIENCE_S = 900  # on a busy machine
MOST_LOOKS = 30  # until two samples of the same leaders have followed each other
TOPICS, PARTITIONS = ("load-a", "load-b"), 3
PROPERTIES: Mapping[str, object] = {
    **EVERYDAY.properties,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transaction.state.log.num.partitions": 9,
    "min.insync.replicas": 1,
    # A restarted broker leads partitions again at once, so that each broker coordinates ids.
    "leader.imbalance.check.interval.seconds": 3,
    "leader.imbalance.per.broker.percentage": 0,
}
ENDINGS = {"commit": 60, "abort": 30, "empty": 5, "idle": 5}


class RecorderProcess:
    """``kafka-txn record`` on a cluster, killed and started again at will.

    Parameters
    ----------
    kafka
        The cluster.
    folder
        For what it prints.
    directory
        The recording; in the folder if null.
    """

    def __init__(self, kafka: Kafka, folder: Path, directory: Path | None = None) -> None:
        self.kafka, self.directory = kafka, directory or folder / "recording"
        self.starts = 0
        self._folder, self._stack = folder, ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or continue the recording."""
        command = [*COMMAND, "record", "--bootstrap-server", self.kafka.bootstrap_servers]
        command += ["--output", str(self.directory), "--interval", str(INTERVAL_S)]
        errors = self._stack.enter_context((self._folder / f"errors-{self.starts}").open("wb"))
        self.starts += 1
        self._process = self._stack.enter_context(started(command, cwd=ROOT, stderr=errors))

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def stop(self) -> int | None:
        """Ctrl-C; its exit code, or that with which it had ended before."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE_S)
        code = self._process.returncode
        self._stack.close()
        return code

    def await_sample(self, after: dt.datetime | None = None, *, is_whole: bool = True) -> None:
        """Wait for a sample that was due after a time (now, if null), of all brokers."""
        due = after or dt.datetime.now(dt.UTC)

        def is_there() -> bool | None:
            assert self._process is not None
            assert self._process.poll() is None, f"the recorder ended: {self.errors()}"
            if not (self.directory / "samples").exists():
                return None
            found = Recording(self.directory).samples(start=due)
            whole = found["error"].isna() & (found["gaps"].map(len, na_action="ignore") == 0)
            return True if (whole if is_whole else found["sampled_at"].notna()).any() else None

        until(is_there, awaited="a sample", timeout=PATIENCE_S)

    def errors(self) -> str:
        """What it has printed."""
        return "".join(path.read_text() for path in sorted(self._folder.glob("errors-*")))

    def check_files(self, sitting: Sitting) -> None:
        """Whether the recording is sound."""
        sitting.check("Traceback" not in self.errors(), f"recorder: {self.errors()[-2000:]}")
        left = [name for name in files(self.directory) if "/." in f"/{name}" and name != ".lock"]
        sitting.check(not left, f"recorder: left {left}")
        recording = Recording(self.directory)
        samples = recording.samples()
        sitting.counts["samples"] += len(samples)
        sitting.counts["samples: failed"] += int(samples["error"].notna().sum())
        sitting.check(samples["sampled_at"].is_unique, "recorder: a sample is there twice")
        known = set(samples["sampled_at"])
        for table in RECORDED:
            plain = ds.dataset(self.directory / table, format="parquet").to_table().num_rows
            rows = recording.history(table)
            sitting.check(len(rows) == plain, f"recorder: {table} has {len(rows)} rows, and {plain} read plainly")
            sitting.check(set(rows["sampled_at"]) <= known, f"recorder: rows of {table} without a sample")

    def hanging(self) -> set[str]:
        """The topics that a sample has as hanging."""
        findings = Recording(self.directory).history("findings")
        return set(findings["topic"][findings["verdict"] == "hanging"])

    def await_hanging(self, topics: set[str]) -> None:
        """Wait for samples until these hang: a second look at the same leaders is what shows it."""
        for _ in range(MOST_LOOKS):
            self.await_sample()
            if topics <= self.hanging():
                return

    def check(self, sitting: Sitting, hanging: set[str]) -> None:
        """Whether the recording is sound, and has these topics as hanging and no others."""
        self.check_files(sitting)
        findings = Recording(self.directory).history("findings")
        found = findings[findings["verdict"] == "hanging"]
        sitting.counts["samples: findings"] += len(findings)
        sitting.counts["samples: hanging, as staged"] += int(found["topic"].isin(hanging).sum())
        for topic in hanging - set(found["topic"]):
            last = findings[findings["topic"] == topic].tail(1)[["sampled_at", "verdict", "missing"]]
            sitting.check(False, f"recorder: {topic} is never hanging: {last.to_dict('records')}")
        others = records_of(found[~found["topic"].isin(hanging)], Finding)
        if others:
            with Cluster(self.kafka.bootstrap_servers) as cluster:
                history = records_of(cluster.transaction_history(), PastTransaction)
            for finding in others:
                late = is_late(finding, history)
                sitting.counts["samples: hanging, a late batch"] += late
                sitting.check(late, f"recorder: FALSE hanging: {finding}")


def is_late(finding: Finding, history: Sequence[PastTransaction]) -> bool:
    """Whether no transaction of the producer that included the partition was still to be ended.

    Partition verification is off, as a transaction is staged to hang. So a batch that waited in a broker, until its
    producer gave it up and aborted, hangs for real: its transaction has ended.
    """
    own = [
        each
        for each in history
        if each.producer_id == finding.producer_id
        and each.producer_epoch == finding.producer_epoch
        and (each.topic_partitions is None or finding.tp in each.topic_partitions)
    ]
    return bool(history) and all(each.end_time is not None and each.end_time < finding.observed_at for each in own)


def run(sitting: Sitting) -> None:
    """Kill one, two or three brokers at a time, and now and then the recorder."""
    chance = sitting.chance
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(Kafka("4.3.1", brokers=3, properties=PROPERTIES, timeout=PATIENCE_S))
        create_topics(kafka, *TOPICS, partitions=PARTITIONS, replicas=3)
        staged = stack.enter_context(INCIDENTS["never_added"](kafka))
        stack.enter_context(_load(kafka, sitting.seed))
        recorder = RecorderProcess(kafka, folder)
        stack.callback(recorder.stop)
        recorder.start()
        recorder.await_sample()
        for _ in sitting.numbers():
            begun = dt.datetime.now(dt.UTC)
            killed = chance.sample(kafka.broker_ids, chance.choices([1, 2, 3], [6, 2, 1])[0])
            print(f"{time.strftime('%H:%M:%S')} kill {killed}", flush=True)
            for broker_id in killed:
                kafka.kill(broker_id)
                sitting.counts["brokers killed"] += 1
            if chance.random() < 0.1:
                recorder.kill()
                recorder.start()
                sitting.counts["recorder killed"] += 1
            else:
                recorder.await_sample(begun, is_whole=False)
            time.sleep(chance.choice([0, 0, 1, 3]))
            start_brokers(kafka, killed)
            recorder.await_sample()
        recorder.await_hanging({staged.topic})
        sitting.check(recorder.stop() == 0, f"recorder: it ended: {recorder.errors()[-2000:]}")
        recorder.check(sitting, {staged.topic})


def start_brokers(kafka: Kafka, broker_ids: Sequence[int]) -> None:
    """At the same time: two of three have no quorum without each other."""
    with ThreadPoolExecutor(len(broker_ids)) as threads:
        list(threads.map(kafka.start_broker, broker_ids))


@contextlib.contextmanager
def _load(kafka: Kafka, seed: str) -> Iterator[None]:
    stop = threading.Event()
    partitions = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
    workers = [
        Worker(kafka, partitions, f"load-{seed}-{each}", stop, endings=ENDINGS, timeout_ms=10_000) for each in range(2)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join(PATIENCE_S)
