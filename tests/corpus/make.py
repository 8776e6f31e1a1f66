"""Record the conversations again: ``python -m tests.corpus.make [NAME ...]``, or all of them.

Each is staged on its own cluster of the lab. Ids, names and times are new, so that all answers on it change, too.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from unittest import mock

from tests.corpus.clocks import numbered_uuids
from tests.corpus.cluster_calls import cluster_calls
from tests.corpus.conversation import INPUTS, SUFFIX, Conversation
from tests.corpus.wire import counted_probes, recording
from toolkit.lab import Kafka, staging
from toolkit.lab.consumer import blocked_consumer
from toolkit.lab.incidents import (
    EVERYDAY,
    INCIDENTS,
    NEGLECTFUL,
    TWO_PHASE,
    ClusterSetup,
    StagedIncident,
    hanging,
    owned,
)
from toolkit.lab.server.broker import version_numbers

VERSIONS = ("2.8.2", "3.5.2", "3.9.2", "4.3.1")
RICH = {"4.3.1-everyday", "3.5.2-everyday"}
GROUP = "billing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster, and what is staged on it."""

    version: str
    setup: ClusterSetup
    incidents: Sequence[str]
    later_s: float = 0.0  # how long later verdicts take


def scenarios() -> Mapping[str, Scenario]:
    """All of them, by name."""
    found = {}
    for version in VERSIONS:
        for setup in (EVERYDAY, NEGLECTFUL, TWO_PHASE):
            names = _names(version, setup)
            if names:
                later_s = 30.0 if setup is NEGLECTFUL else 0.0
                found[f"{version}-{setup.name}"] = Scenario(
                    version=version, setup=setup, incidents=names, later_s=later_s
                )
        for name, incident in INCIDENTS.items():
            if incident.brokers > 1 and name in _names(version, incident.setup):
                found[f"{version}-{name.replace('_', '-')}"] = Scenario(
                    version=version, setup=incident.setup, incidents=[name], later_s=70.0 if incident.later else 0.0
                )
    return found


def _names(version: str, setup: ClusterSetup) -> list[str]:
    return [
        name
        for name, each in INCIDENTS.items()
        if each.setup is setup and version_numbers(each.since) <= version_numbers(version)
    ]


@contextlib.contextmanager
def counted_names() -> Iterator[None]:
    """Topics and ids of staged incidents have short names that count."""
    named = numbered_uuids()
    with contextlib.ExitStack() as stack:
        for module in (staging, hanging, owned):
            if hasattr(module, "uuid"):
                stack.enter_context(
                    mock.patch.object(module, "uuid", mock.Mock(uuid4=lambda: _Short(named().int >> 96)))
                )
        yield


class _Short:
    def __init__(self, number: int) -> None:
        self.hex = f"{number:06x}"


def facts_of(staged: StagedIncident, label: str) -> Iterator[dict[str, object]]:
    """What was staged, as JSON; with the other transactions of the incident."""
    names = [each.name for each in dataclasses.fields(StagedIncident) if each.name not in {"also", "_closing", "what"}]
    yield {name: getattr(staged, name) for name in names} | {"label": label}
    for number, other in enumerate(staged.also, 2):
        yield from facts_of(other, f"{label}-{number}")


def make(name: str, scenario: Scenario) -> Conversation:
    """Stage, ask everything, and keep what was answered."""
    setup = scenario.setup
    with (
        Kafka(scenario.version, brokers=setup.brokers, properties=setup.properties) as kafka,
        contextlib.ExitStack() as stack,
    ):
        with counted_names():
            staged = [INCIDENTS[each](kafka) for each in scenario.incidents]
        for each in staged:
            stack.callback(each.close)
        if setup.brokers == 1:
            stack.enter_context(blocked_consumer(kafka, staged[0].topic, GROUP))
        facts = {
            "version": scenario.version,
            "config": kafka.client_config(),
            "bootstrap_servers": kafka.bootstrap_servers,
            "timeout_s": 30.0 if setup.brokers == 1 else 3.0,
            "group": GROUP,
            "staged": [fact for each in staged for fact in facts_of(each, each.name.replace("_", "-"))],
            "is_rich": name in RICH,
            "is_changed": True,
            "later": [],
        }
        if scenario.later_s:
            facts["later"] = ["--recheck-after", "6s", "--max-transaction-timeout", "1s"]
        conversation = Conversation(
            made={
                "command": f"python -m tests.corpus.make {name}",
                "kafka": scenario.version,
                "brokers": setup.brokers,
                "properties": setup.properties,
                "incidents": list(scenario.incidents),
            },
            facts=facts,
            started_ms=int(time.time() * 1000),
        )
        began = time.monotonic()
        with recording(conversation) as recorder:
            for call in cluster_calls(facts):
                if call.name == "diagnose-later":
                    time.sleep(max(0.0, scenario.later_s - (time.monotonic() - began)))
                conversation.moments[call.name] = recorder.now
                with counted_probes():
                    text = call.run()
                print(f"{recorder.now:7.1f} s  {call.name}: {text.splitlines()[1] if call.covers else ''}", flush=True)
    return conversation


def main() -> None:
    """Record what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(scenarios())}")
    names = parser.parse_args().names or list(scenarios())
    for name in names:
        try:
            conversation = make(name, scenarios()[name])
        except Exception:  # noqa: BLE001 - the others can be recorded all the same
            traceback.print_exc()
            continue
        conversation.save(INPUTS / f"{name}{SUFFIX}")
        print(name, (INPUTS / f"{name}{SUFFIX}").stat().st_size)


if __name__ == "__main__":
    main()
