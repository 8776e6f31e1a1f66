"""The embedded Kafka with staged incidents, and recorded samples, as sources."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolkit.actions.audit import Audit
from toolkit.errors import UsageError
from toolkit.lab.broker import Kafka
from toolkit.lab.clients import BlockedConsumer, await_coordinators, config_of, create_topic, write_committed
from toolkit.lab.connected_source import ConnectedSource
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.lab.samples import IncidentSample
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir

GROUP = "billing"
BEFORE, BEHIND = 12, 20  # committed records before and after the open transaction
STAGED: Mapping[str, str] = MappingProxyType({"orders": "late_message"})
COLUMNS = ("partition", "producer_id", "producer_epoch", "transactional_id", "start_offset")


def _copies(kafka: Kafka, cluster: Cluster, folder: Path) -> LogDir:
    """A copy of the log directories, for which the brokers are briefly shut down one by one."""
    copies = []
    for broker_id in kafka.broker_ids:
        copies.append(folder / f"broker-{broker_id}")
        shutil.rmtree(copies[-1], ignore_errors=True)
        kafka.stop_broker(broker_id)
        try:
            shutil.copytree(kafka.log_dirs[broker_id], copies[-1], copy_function=shutil.copy2)
        finally:
            kafka.start_broker(broker_id)
            await_coordinators(cluster.client)
    return LogDir(*copies, consistent_copy=True)


_open: dict[tuple[object, ...], ConnectedSource] = {}  # of this process, by version and incidents


def open_lab(names: Mapping[str, str], version: str) -> ConnectedSource:
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
        source = ConnectedSource(
            cluster,
            audit=Audit(folder / "audit.jsonl"),  # deleted with this Kafka
            expected={
                topic: {**{name: getattr(each, name) for name in COLUMNS}, "verdict": each.expected}
                for topic, each in staged.items()
            },
            group=GROUP,
            folder=folder,
            files=partial(_copies, kafka, cluster, folder),
        )
        source.kafka, source.staged = kafka, staged
        source.confirmations = {
            topic: f"{topic}-{each.partition}@{each.start_offset}" for topic, each in staged.items()
        }
        _open[key] = source
        resources.callback(_open.pop, key)
        source.own(resources)
        return source


def open_sample(sample: IncidentSample) -> ConnectedSource:
    """Open a recorded sample: its recording if it has one, else its log directory."""
    selection = {"at": sample.at, "min_held_ms": sample.min_held_ms}
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="kafka-txn-")))
        source = ConnectedSource(
            sample.recording() or sample.log_dir(),
            audit=sample.audit() or Audit(folder / "audit.jsonl"),
            expected={sample.topic: {"partition": sample.partition, **sample.expected}},
            group=GROUP,
            selection={name: value for name, value in selection.items() if value is not None},
            folder=folder,
            files=sample.log_dir,
        )
        source.sample = sample
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
        BlockedConsumer(kafka, topic, group).close()
        staged = INCIDENTS[name](kafka, topic=topic, **options)
        write_committed(cluster, topic, 0, records=BEHIND)
    return staged
