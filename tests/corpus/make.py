"""Record the conversations again: ``python -m tests.corpus.make [NAME ...]``, or all of them.

Each is staged on its own cluster of the lab. Ids, names and times are new, so that all answers on it change, too.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from unittest import mock

from tests.acls import (
    CLUSTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    PREFIXED,
    READ,
    SECRETS,
    TOPIC,
    TRANSACTIONAL_ID,
    Acls,
    Right,
)
from tests.acls import GROUP as GROUP_RESOURCE
from tests.corpus.cluster_calls import cluster_calls
from tests.corpus.conversation import FILES_SUFFIX, INPUTS, SUFFIX, Conversation
from tests.corpus.wire import counted_probes, recording
from tests.formats.flink_bytes import write_checkpoint
from toolkit import Cluster
from toolkit.lab import Kafka, clients, incidents
from toolkit.lab.broker import version_numbers
from toolkit.lab.clients import BlockedConsumer, SteadyClient, config_of, leader, until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, NEGLECTFUL, TWO_PHASE, UNCLEAN, ClusterSetup, StagedIncident
from toolkit.schema.checkpoint import Committable
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.logdir.log_dir_copy import copy_log_dir

VERSIONS = ("2.8.2", "3.5.2", "3.9.2", "4.3.1")
RICH = {"4.3.1-everyday", "3.5.2-everyday"}
COPIED = {*(f"{version}-everyday" for version in VERSIONS), "4.3.1-lost-marker", "3.5.2-lost-marker"}
GROUP = "billing"
IDS = 20_000  # that a coordinator takes seconds to load

Prepare = Callable[[Kafka, Sequence[StagedIncident]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster, what is staged on it, and what is done to it then."""

    version: str
    setup: ClusterSetup
    incidents: Sequence[str]
    prepare: Prepare = lambda kafka, staged: None
    rights: Sequence[Right] | None = None  # of the principal that asks; null without an authorizer
    has_checkpoint: bool = False  # whether a checkpoint of Flink is to commit the first of its transactions
    later_s: float = 0.0  # how long later verdicts take


def scenarios() -> Mapping[str, Scenario]:
    """All of them, by name."""
    found = {}
    for version in VERSIONS:
        for setup in (EVERYDAY, NEGLECTFUL, TWO_PHASE):
            if names := _names(version, setup):
                later_s = 30.0 if setup is NEGLECTFUL else 0.0
                found[f"{version}-{setup.name}"] = Scenario(
                    version=version, setup=setup, incidents=names, later_s=later_s
                )
        for name, incident in INCIDENTS.items():
            if incident.brokers > 1 and name in _names(version, incident.setup):
                found[f"{version}-{name.replace('_', '-')}"] = Scenario(
                    version=version, setup=incident.setup, incidents=[name], later_s=70.0 if incident.later else 0.0
                )
        healthy = ["marker_only", "fenced_by_timeout"]
        found[f"{version}-healthy"] = Scenario(version=version, setup=EVERYDAY, incidents=healthy)
    of = partial(Scenario, version="4.3.1", incidents=["never_added", "open_young"])
    return found | {
        "4.3.1-broker-down": of(setup=UNCLEAN, incidents=["never_added"], prepare=partial(_lose, Kafka.kill)),
        "4.3.1-broker-silent": of(setup=UNCLEAN, incidents=["never_added"], prepare=partial(_lose, Kafka.pause)),
        "4.3.1-loading": of(setup=ONE_COORDINATOR, prepare=_load_slowly),
        "4.3.1-no-rights": of(setup=EVERYDAY, rights=[]),
        "4.3.1-rights-on-topics": of(setup=EVERYDAY, rights=ON_TOPICS),
        "4.3.1-flink": of(setup=EVERYDAY, incidents=["open_young", "open_long"], has_checkpoint=True),
        "4.3.1-rights-to-read": of(setup=EVERYDAY, rights=TO_READ),
    }


ONE_COORDINATOR = ClusterSetup(
    name="one coordinator",
    brokers=1,
    properties={
        **EVERYDAY.properties,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.load.buffer.size": "1",  # a batch at a time
    },
)
FEW_COORDINATORS = {"transaction.state.log.num.partitions": "4"}  # of a broker that is lost, each has an error
ON_TOPICS: Sequence[Right] = [(TOPIC, "*", LITERAL, DESCRIBE), (TOPIC, "never-added", PREFIXED, READ)]
TO_READ: Sequence[Right] = [
    (TOPIC, "*", LITERAL, READ),
    (GROUP_RESOURCE, "*", LITERAL, DESCRIBE),
    (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE),
    (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE),
    (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE_CONFIGS),
]
"""What all answers need; a marker needs more."""


def _names(version: str, setup: ClusterSetup) -> list[str]:
    return [
        name
        for name, each in INCIDENTS.items()
        if each.setup is setup and version_numbers(each.since) <= version_numbers(version)
    ]


def _lose(how: Callable[[Kafka, int], None], kafka: Kafka, staged: Sequence[StagedIncident]) -> None:
    """Lose a broker that leads no partition with something open."""
    with SteadyClient(config_of(kafka)) as client:
        leaders = {leader(client, each.topic, each.partition) for each in staged}
        lost = next(each for each in (3, 2) if each not in leaders)
        how(kafka, lost)
        if how is Kafka.kill:
            until(lambda: lost not in _live(client) or None, awaited="the broker to be fenced")


def _live(client: BrokerClient) -> set[int]:
    return {each.node_id for each in client.send_one(broker_client.Metadata(topics=[]), broker_id=1).brokers}


def _load_slowly(kafka: Kafka, staged: Sequence[StagedIncident]) -> None:
    """Restart the coordinator of many ids."""
    with BrokerClient(config_of(kafka)) as client:
        for first in range(0, IDS, 1000):
            client.send(  # some have to wait for a block of producer ids, and are left out
                [
                    (1, broker_client.InitProducerId(transactional_id=f"many-{number}", transaction_timeout_ms=60_000,
                                                producer_id=-1, producer_epoch=-1, max_version=4))
                    for number in range(first, first + 1000)
                ]
            )  # fmt: skip
    kafka.restart(1)


@contextlib.contextmanager
def counted_names(*, of_flink: bool) -> Iterator[None]:
    """Topics and ids of staged incidents have short names that count, or end as those of Flink's checkpoint 5."""
    numbers = count(1)

    def short() -> object:
        return mock.Mock(hex="0-5" if of_flink else f"{next(numbers):06x}")

    with contextlib.ExitStack() as stack:
        for module in (incidents, clients):
            stack.enter_context(mock.patch.object(module, "uuid", mock.Mock(uuid4=short), create=True))
        yield


def facts_of(staged: StagedIncident, label: str) -> Iterator[dict[str, object]]:
    """What was staged, as JSON; with the other transactions of the incident."""
    names = [each.name for each in dataclasses.fields(StagedIncident) if each.name not in {"also", "_closing", "what"}]
    yield {name: getattr(staged, name) for name in names} | {"label": label}
    for number, other in enumerate(staged.also, 2):
        yield from facts_of(other, f"{label}-{number}")


def _checkpoint_of(staged: StagedIncident) -> str:
    own = Committable(staged.transactional_id, staged.producer_id, staged.producer_epoch, 5)
    with tempfile.TemporaryDirectory() as folder:
        path = write_checkpoint(Path(folder), 5, [own], prefix="open_young")
        return base64.b64encode((path / "_metadata").read_bytes()).decode()


def files_of(name: str) -> Path:
    """The archive of the files of a scenario's brokers."""
    return INPUTS / f"{name}{FILES_SUFFIX}"


def copy_files(kafka: Kafka, archive: Path) -> None:
    """Copy the log directories of running brokers, and their own logs."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive, "w:xz", preset=9) as tar:
        for broker_id, log_dir in kafka.log_dirs.items():
            copy_log_dir(log_dir, Path(folder, f"log-dir-{broker_id}"))
            tar.add(Path(folder, f"log-dir-{broker_id}"), arcname=f"log-dir-{broker_id}")
        for broker_id, log in kafka.broker_logs.items():
            tar.add(log, arcname=f"server-{broker_id}.log")


def make(name: str, scenario: Scenario) -> Conversation:
    """Stage, ask everything, and keep what was answered."""
    setup = scenario.setup
    properties = {**setup.properties, **(FEW_COORDINATORS if setup.brokers > 1 else {})}
    users, super_users = ({}, []) if scenario.rights is None else (SECRETS, ["admin"])
    with (
        Kafka(
            scenario.version, brokers=setup.brokers, properties=properties, users=users, super_users=super_users
        ) as kafka,
        contextlib.ExitStack() as stack,
    ):
        with counted_names(of_flink=scenario.has_checkpoint):
            staged = [INCIDENTS[each](kafka) for each in scenario.incidents]
        if setup is EVERYDAY:
            stack.enter_context(BlockedConsumer(kafka, staged[0].topic, GROUP))
        if scenario.rights:
            with Cluster(kafka.client_config("admin")) as admin:
                Acls(admin).allow(*scenario.rights)
        scenario.prepare(kafka, staged)
        facts = {
            "version": scenario.version,
            "config": kafka.client_config(None if scenario.rights is None else "watcher"),
            "bootstrap_servers": kafka.bootstrap_servers,
            "timeout_s": 30.0 if setup.brokers == 1 else 3.0,
            "group": GROUP,
            "staged": [fact for each in staged for fact in facts_of(each, each.name.replace("_", "-"))],
            "is_rich": name in RICH,
            "has_many_ids": scenario.prepare is _load_slowly,
            "later": ["--recheck-after", "20s", "--max-transaction-timeout", "1s"] if scenario.later_s else [],
        }
        if scenario.has_checkpoint:
            facts["checkpoint"] = _checkpoint_of(staged[0])
        conversation = Conversation(
            made={
                "command": f"python -m tests.corpus.make {name}",
                "kafka": scenario.version,
                "brokers": setup.brokers,
                "properties": properties,
                "incidents": list(scenario.incidents),
                "rights": scenario.rights,
            },
            facts=facts,
            started_ms=int(time.time() * 1000),
        )
        began = time.monotonic()
        with recording(conversation) as recorder:
            for call in cluster_calls(facts):
                if call.name == "diagnose-later":
                    time.sleep(max(0.0, scenario.later_s - (time.monotonic() - began)))
                if call.name.endswith("-done") and name in COPIED and not files_of(name).exists():
                    copy_files(kafka, files_of(name))
                conversation.moments[call.name] = recorder.now
                with counted_probes():
                    text = call.run()
                print(f"{recorder.now:7.1f} s  {call.name}: {text.splitlines()[1]}", flush=True)
    return conversation


def main() -> None:
    """Record what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(scenarios())}")
    names = parser.parse_args().names or list(scenarios())
    for name in names:
        files_of(name).unlink(missing_ok=True)
        try:
            conversation = make(name, scenarios()[name])
        except Exception:  # noqa: BLE001 - the others can be recorded all the same
            traceback.print_exc()
            continue
        conversation.save(INPUTS / f"{name}{SUFFIX}")
        print(name, (INPUTS / f"{name}{SUFFIX}").stat().st_size)


if __name__ == "__main__":
    main()
