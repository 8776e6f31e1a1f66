"""The embedded Kafka with staged incidents, and recorded samples, as sources."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolkit.actions.audit import Audit
from toolkit.errors import UsageError
from toolkit.lab.broker import Kafka
from toolkit.lab.clients import await_coordinators, blocked_consumer, config_of, create_topic, write_committed
from toolkit.lab.connected_source import ConnectedSource
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.lab.samples import IncidentSample
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir
from toolkit.sources.recording import Recording
from toolkit.sources.recording.recording import is_recording

GROUP = "billing"
BEFORE, BEHIND = 12, 20  # committed records before and after the open transaction
STAGED: Mapping[str, str] = MappingProxyType({"orders": "late_message"})
COLUMNS = ("partition", "producer_id", "producer_epoch", "transactional_id", "start_offset")


class LabSource(ConnectedSource):
    """The embedded Kafka.

    `cluster`: a connection to it.
    `staged`: incident by topic. `expected` is its verdict now; one that becomes `long` or `overdue` in time has that as
        ``staged[topic].later``.
    `kafka`: the Kafka.
    `folder`: folder for temporary files.
    """

    def __init__(self, cluster: Cluster, *, kafka: Kafka, staged: Mapping[str, StagedIncident], folder: Path) -> None:
        super().__init__(
            cluster,
            audit=Audit(folder / "audit.jsonl"),  # deleted with this Kafka
            expected={
                topic: {**{name: getattr(each, name) for name in COLUMNS}, "verdict": each.expected}
                for topic, each in staged.items()
            },
            group=GROUP,
            folder=folder,
        )
        self.kafka: Kafka = kafka
        self.staged = staged
        self.confirmations = {topic: f"{topic}-{each.partition}@{each.start_offset}" for topic, each in staged.items()}

    def log_dir(self) -> LogDir:
        """A copy of the log directories, for which the brokers are briefly shut down one by one."""
        return LogDir(*(self._copied(number) for number in self.kafka.broker_ids), consistent_copy=True)

    def sources(self) -> list[LogDir | Recording | Cluster]:
        """The log directories, and the recording if there is one."""
        recording = self.temporary() / "recording"
        return [self.log_dir(), *([Recording(recording)] if is_recording(recording) else [])]

    def _copied(self, broker_id: int) -> Path:
        target = self.temporary() / f"broker-{broker_id}"
        shutil.rmtree(target, ignore_errors=True)
        self.kafka.stop_broker(broker_id)
        try:
            shutil.copytree(self.kafka.log_dirs[broker_id], target, copy_function=shutil.copy2)
        finally:
            self.kafka.start_broker(broker_id)
            await_coordinators(self.cluster.client)
        return target


class SampleSource(ConnectedSource):
    """A recorded sample: its recording if it has one, else its log directory."""

    def __init__(self, sample: IncidentSample, *, folder: Path) -> None:
        selection = {"at": sample.at, "min_held_ms": sample.min_held_ms}
        super().__init__(
            sample.recording() or sample.log_dir(),
            audit=sample.audit() or Audit(folder / "audit.jsonl"),
            expected={sample.topic: {"partition": sample.partition, **sample.expected}},
            group=GROUP,
            selection={name: value for name, value in selection.items() if value is not None},
            folder=folder,
        )
        self.sample: IncidentSample = sample

    def log_dir(self) -> LogDir:
        """The sample's log directory."""
        return self.sample.log_dir()

    def sources(self) -> list[LogDir | Recording | Cluster]:
        """The sample's log directory, and its recording if it has one."""
        recording = self.sample.recording()
        return [self.sample.log_dir(), *([recording] if recording else [])]


_open: dict[tuple[object, ...], LabSource] = {}  # of this process, by version and incidents


def open_lab(names: Mapping[str, str], version: str) -> LabSource:
    """Start a Kafka and stage incidents; the one that is open already if these are its incidents.

    A cell of a notebook that runs twice does not start two.

    Raises UsageError if the incidents need different clusters.
    Raises LabError if the lab does not start.
    `names`: topic to the name of an incident (`toolkit.lab.incidents.INCIDENTS`).
    `version`: Kafka version.
    """
    key = (version, *sorted(names.items()))
    if key in _open:
        return _open[key]
    special = {setup.name: setup for name in names.values() if (setup := INCIDENTS[name].setup) is not EVERYDAY}
    if len(special) > 1:
        raise UsageError(
            f"These incidents need clusters of their own: {', '.join(special)}.", do="Stage them one by one."
        )
    setup = next(iter(special.values()), EVERYDAY)  # those of the default cluster can be staged on any other
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="kafka-txn-")))
        kafka = resources.enter_context(Kafka(version, brokers=setup.brokers, properties=setup.properties))
        staged = {
            topic: stage_between(kafka, name, topic=topic, group=GROUP)
            if INCIDENTS[name].brokers == 1
            else INCIDENTS[name](kafka, topic=topic)  # it places the replicas of its topic itself
            for topic, name in names.items()
        }
        cluster = resources.enter_context(Cluster(kafka.bootstrap_servers))
        source = LabSource(cluster, kafka=kafka, staged=staged, folder=folder)
        _open[key] = source
        resources.callback(_open.pop, key)
        source.own(resources)
        return source


def open_sample(sample: IncidentSample) -> SampleSource:
    """Open a recorded sample."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="kafka-txn-")))
        source = SampleSource(sample, folder=folder)
        source.own(resources)
        return source


def stage_between(kafka: Kafka, name: str, *, topic: str, group: str) -> StagedIncident:
    """Stage an incident on partition 0 of a new topic, between records that a read_committed group reads.

    Raises LabError as for the incident.
    `kafka`: the cluster.
    `name`: incident of one broker.
    `topic`: new topic with two partitions.
    `group`: group that reads and commits before the incident.
    """
    options: dict[str, Any] = {"group": group} if name == "offsets_never_added" else {}
    create_topic(kafka, topic)
    with BrokerClient(config_of(kafka)) as cluster:
        write_committed(cluster, topic, 0, records=BEFORE)
        blocked_consumer(kafka, topic, group).close()
        staged = INCIDENTS[name](kafka, topic=topic, **options)
        write_committed(cluster, topic, 0, records=BEHIND)
    return staged
