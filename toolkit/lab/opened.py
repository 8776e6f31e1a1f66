"""`open_source`: what a notebook asks, by one word: the embedded lab, a recorded sample, a cluster, or files."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from toolkit.actions.audit import Audit
from toolkit.actions.cluster import Cluster
from toolkit.config import ClientConfig
from toolkit.errors import NotFound, UsageError
from toolkit.formats.records import STATE_TOPIC
from toolkit.lab.ask import until
from toolkit.lab.between import stage_between
from toolkit.lab.broker import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.lab.recorded import record
from toolkit.lab.samples import Sample, load
from toolkit.lab.staging import Setup, Staged
from toolkit.sources.coordinators import Places
from toolkit.sources.loaded import not_loaded
from toolkit.sources.logdir import LogDir
from toolkit.sources.recording import Recording
from toolkit.sources.recording.folder import is_recording
from toolkit.sources.topology import read_topology

__all__ = ["Opened", "open_source"]

LAB, SAMPLE = "lab", "sample:"
ADDRESSES = re.compile(r"[^/\s,]+:\d+(,\s*[^/\s,]+:\d+)*")
GROUP = "billing"
STAGED: Mapping[str, str] = MappingProxyType({"orders": "late_message"})
TELLING = ("partition", "producer_id", "producer_epoch", "transactional_id", "start_offset")


class Opened:
    """What `open_source` opened.

    Parameters
    ----------
    source
        What findings and all other tables are asked of.
    audit
        Where actions are written down: the user's own for a cluster, else one that comes with the source.
    expected
        Topic to what is right about it, where that is known: ``partition``, ``verdict``, ``start_offset`` and other
        columns of ``schema.FINDINGS``. Empty for a cluster and files of the user's own. Of the lab it is right at once;
        what becomes `long` or `overdue` in time has that as ``staged[topic].later``.
    staged
        Topic to the incident that was staged on it; of the lab only.
    kafka
        The lab's Kafka; null for every other source.
    sample
        The recorded sample; null for every other source.
    group
        A read_committed group that waits; of the lab and samples only.
    asked
        What its findings have to be asked with, ``source.findings(**asked)``, for `expected` to be right: ``at`` of a
        recorded sample, ``min_held_ms`` of one that is over.
    """

    def __init__(
        self,
        source: Cluster | LogDir | Recording,
        *,
        audit: Audit,
        expected: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        staged: Mapping[str, Staged] = MappingProxyType({}),
        kafka: Kafka | None = None,
        sample: Sample | None = None,
        folder: Path | None = None,
    ) -> None:
        self.source, self.audit, self.expected, self.staged = source, audit, expected, staged
        self.kafka, self.sample = kafka, sample
        self.group = GROUP if kafka or sample else None
        told = {"at": sample.at, "min_held_ms": sample.min_held_ms} if sample else {}
        self.asked: Mapping[str, Any] = {name: value for name, value in told.items() if value is not None}
        self._folder = folder
        self._resources = ExitStack()

    def __enter__(self) -> Opened:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Opened {self.source!r}>"

    @property
    def cluster(self) -> Cluster:
        """The running cluster.

        Raises
        ------
        UsageError
            If files were opened.
        """
        if not isinstance(self.source, Cluster):
            raise UsageError(
                f"{self.source!r} holds no running cluster.", do='Open "lab", or the bootstrap servers of a cluster.'
            )
        return self.source

    def log_dir(self) -> LogDir:
        """The log directory; of the lab a copy, for which its brokers are stopped in good order for a moment.

        Raises
        ------
        UsageError
            If there is none: a cluster shows no files.
        """
        if isinstance(self.source, LogDir):
            return self.source
        if self.sample:
            return self.sample.log_dir()
        if self.kafka is None:
            raise UsageError(
                f"{self.source!r} has no files to read.",
                do="Open a log directory that was copied off a broker (cp -p, rsync -a) by its path.",
            )
        return LogDir(*(self._copied(number) for number in self.kafka.broker_ids), at_rest=True)

    def recording(self, *, samples: int = 3, interval_ms: int = 1000) -> Recording:
        """The recording; of the lab and of a cluster one that is made now.

        Parameters
        ----------
        samples, interval_ms
            How many looks to record, and how far apart; ignored where there is a recording already.

        Raises
        ------
        UsageError
            If files were opened.
        """
        if isinstance(self.source, Recording):
            return self.source
        recorded = self.sample.recording() if self.sample else None
        if recorded:
            return recorded
        folder = self._temporary() / "recording"
        connect = partial(Cluster, self.cluster.config, timeout=self.cluster.timeout)
        record(connect, folder, samples=samples, interval_ms=interval_ms)
        return Recording(folder)

    def sources(self) -> list[LogDir | Recording | Cluster]:
        """Everything that tells of the incident: a log directory, a recording, both; else the running cluster.

        Of the lab its log directory as it is now, and the recording if one was made.
        """
        if self.kafka:
            made = self._temporary() / "recording"
            return [self.log_dir(), *([Recording(made)] if is_recording(made) else [])]
        if self.sample:
            recorded = self.sample.recording()
            return [self.sample.log_dir(), *([recorded] if recorded else [])]
        return [self.source]

    def close(self) -> None:
        """Close connections, stop the lab's Kafka, and delete what was temporary."""
        self._resources.close()

    def _keep(self, resources: ExitStack) -> Opened:
        """Own what has to be closed, at the end of the interpreter at the latest."""
        self._resources.push(resources.pop_all())
        atexit.register(self.close)
        self._resources.callback(atexit.unregister, self.close)
        return self

    def _copied(self, broker_id: int) -> Path:
        assert self.kafka
        target = self._temporary() / f"broker-{broker_id}"
        shutil.rmtree(target, ignore_errors=True)
        self.kafka.stop_broker(broker_id)
        try:
            shutil.copytree(self.kafka.log_dirs[broker_id], target, copy_function=shutil.copy2)
        finally:
            self.kafka.start_broker(broker_id)
            wire = self.cluster.wire
            until(
                lambda: None if not_loaded(wire, Places(STATE_TOPIC, read_topology(wire, [STATE_TOPIC]))) else True,
                awaited="the coordinators to load __transaction_state again",
            )
        return target

    def _temporary(self) -> Path:
        if self._folder is None:
            self._folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="kafka-txn-")))
        return self._folder


def open_source(
    source: str,
    *,
    staged: Mapping[str, str] = STAGED,
    version: str = "4.3.1",
    command_config: str = "",
    at_rest: bool = False,
) -> Opened:
    """Open what is to be asked.

    Parameters
    ----------
    source
        ``lab``: a real Kafka on this machine, with incidents staged. ``sample:late-message``: a recorded sample
        (`toolkit.lab.samples.names`). ``host:9092,...``: a cluster. Else the path of a log directory, of a text of
        kafka-dump-log.sh, or of a recording.
    staged
        For the lab: topic to the name of an incident (`toolkit.lab.incidents.INCIDENTS`).
    version
        For the lab: version of Kafka.
    command_config
        For a cluster: path of its client properties, as of ``--command-config``.
    at_rest
        For a log directory: as of `toolkit.LogDir`.

    Returns
    -------
    Opened
        A context manager; closed at the end of the interpreter at the latest.

    Raises
    ------
    NotFound
        If there is no such sample or path.
    UsageError
        If incidents need clusters that differ.
    LabError
        If the lab does not start.
    """
    if source == LAB:
        return _lab(staged, version)
    if source.startswith(SAMPLE):
        return _sample(load(source.removeprefix(SAMPLE)))
    if ADDRESSES.fullmatch(source):
        return _cluster(source, command_config)
    path = Path(source).expanduser()
    if not path.exists():
        raise NotFound(
            f"There is nothing at {source!r}.",
            do='Say "lab", "sample:NAME", host:port of a broker, or the path of a log directory or recording.',
        )
    return Opened(Recording(path) if is_recording(path) else LogDir(path, at_rest=at_rest), audit=Audit())


def _lab(names: Mapping[str, str], version: str) -> Opened:
    setup = _setup([INCIDENTS[name].setup for name in names.values()])
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="kafka-txn-")))
        kafka = resources.enter_context(Kafka(version, brokers=setup.brokers, properties=setup.properties))
        staged = {topic: _staged(kafka, topic, name) for topic, name in names.items()}
        cluster = resources.enter_context(Cluster(kafka.bootstrap_servers))
        return Opened(
            cluster,
            audit=Audit(folder / "audit.jsonl"),  # this Kafka is gone soon, and so is what was done to it
            expected={topic: _expected(each) for topic, each in staged.items()},
            staged=staged,
            kafka=kafka,
            folder=folder,
        )._keep(resources)


def _setup(setups: list[Setup]) -> Setup:
    """The one cluster for all: every incident of the everyday one can be staged on the others, too."""
    special = list({setup.name: setup for setup in setups if setup is not EVERYDAY}.values())
    if len(special) > 1:
        raise UsageError(
            f"These incidents need clusters of their own: {', '.join(setup.name for setup in special)}.",
            do="Stage them one by one.",
        )
    return special[0] if special else EVERYDAY


def _staged(kafka: Kafka, topic: str, name: str) -> Staged:
    if INCIDENTS[name].brokers > 1:
        return INCIDENTS[name](kafka, topic=topic)  # it lays out its topic's replicas itself
    return stage_between(kafka, name, topic=topic, group=GROUP)


def _expected(staged: Staged) -> dict[str, Any]:
    return {**{name: getattr(staged, name) for name in TELLING}, "verdict": staged.expected}


def _sample(sample: Sample) -> Opened:
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="kafka-txn-")))
        return Opened(
            sample.recording() or sample.log_dir(),
            audit=sample.audit() or Audit(folder / "audit.jsonl"),
            expected={sample.topic: {"partition": sample.partition, **sample.expected}},
            sample=sample,
            folder=folder,
        )._keep(resources)


def _cluster(bootstrap_servers: str, command_config: str) -> Opened:
    config = (
        ClientConfig.from_properties(command_config, bootstrap_servers=bootstrap_servers)
        if command_config
        else ClientConfig(bootstrap_servers)
    )
    with ExitStack() as resources:
        cluster = resources.enter_context(Cluster(config))
        return Opened(cluster, audit=Audit())._keep(resources)
