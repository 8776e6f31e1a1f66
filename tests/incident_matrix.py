"""The verdict on every incident on every Kafka of the lab, and their table in docs/incidents.md.

``python -m tests.incident_matrix`` stages them all and writes the table anew; each test compares its own cells with it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from tests.staged_state import check_staged, end_staged
from toolkit import Cluster
from toolkit.analysis.diagnosis import observation, rules
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.broker import version_numbers
from toolkit.lab.clients import SteadyClient, config_of
from toolkit.lab.incidents import INCIDENTS, ClusterSetup, Incident, StagedIncident
from toolkit.schema import Row
from toolkit.sources.live import observe as live_observation

PAGE = Path(__file__).resolve().parent.parent / "docs" / "incidents.md"
BEGIN, END = "<!-- incidents: written by tests/incident_matrix.py -->", "<!-- end of incidents -->"
# 2.8 has no ListTransactions: its verdicts come from __transaction_state.
VERSIONS = ("2.8.2", "3.5.2", "3.9.2", "4.3.1")
SETUPS: Mapping[str, ClusterSetup] = {incident.setup.name: incident.setup for incident in INCIDENTS.values()}
ABSENT = "-"  # the incident does not exist on a version
LATER_ACTIONS = {"overdue": "fence"}  # by later verdict
AT_ONCE = 6  # incidents that one broker has at the same time
PATIENCE_S = 120


def exists(incident: Incident, version: str) -> bool:
    """Whether an incident can be staged on a version."""
    return version_numbers(incident.since) <= version_numbers(version)


@contextlib.contextmanager
def short_graces() -> Iterator[None]:
    """Two seconds instead of 15 and 60, so that later verdicts can be awaited."""
    soon = dt.timedelta(seconds=2)
    with (
        mock.patch.object(observation, "TIMEOUT_GRACE", soon),
        mock.patch.object(rules, "PREPARE_GRACE", soon),
        mock.patch.object(live_observation, "OLD", soon),
    ):
        yield


def observe(kafka: Kafka, setup: ClusterSetup) -> Mapping[str, str]:
    """Stage all incidents of a setup and return the cell of each: its verdicts, or why they are wrong.

    Those of one broker stand side by side, so that their waits overlap; those that stop brokers come one by one.
    """
    plays = [_Play(kafka, each) for each in INCIDENTS.values() if each.setup is setup and exists(each, kafka.version)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for together in [plays] if setup.brokers == 1 else [[each] for each in plays]:
            with contextlib.ExitStack() as stack:
                list(threads.map(_Play.at_once, together))
                for each in together:
                    stack.callback(each.close)
                with short_graces():
                    list(threads.map(_Play.later, together))
    return {each.incident.name: each.cell for each in plays}


class _Play:
    """One incident and its findings."""

    def __init__(self, kafka: Kafka, incident: Incident) -> None:
        self.kafka, self.incident = kafka, incident
        self.staged: StagedIncident | None = None
        self._client = SteadyClient(config_of(kafka))  # before brokers are stopped, so that it knows them all
        self._verdicts: list[str] = []
        self._failure = ""

    @property
    def cell(self) -> str:
        return self._failure or ", later ".join(f"`{verdict}`" for verdict in self._verdicts)

    def at_once(self) -> None:
        """Stage it, and judge it by the graces that the product has: a busy machine takes seconds for that."""
        with self._failing():
            staged = self.staged = self.incident(self.kafka)
            check_staged(self._client, staged, version=self.kafka.version)
            with self._cluster() as cluster:
                self._verdicts.append(_judge(cluster, staged, expected=staged.expected))
                for other in staged.also:
                    _judge(cluster, other, expected=other.expected)

    def later(self) -> None:
        """Judge it until time has brought the later verdict, if there is one."""
        with self._failing():
            if self.staged and self.staged.later and not self._failure:
                with self._cluster() as cluster:
                    self._verdicts.append(_await_verdict(cluster, self.staged))

    def close(self) -> None:
        """Write the markers that are missing, and see that it ends as described."""
        with self._failing(), self._client as client:
            if self.staged:
                end_staged(client, self.staged)

    def _cluster(self) -> Cluster:
        # A broker that was stopped is waited for in vain; a busy one is not.
        return Cluster(self.kafka.bootstrap_servers, timeout=10 if self.incident.brokers > 1 else 30)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (AssertionError, ToolkitError) as error:
            self._failure = self._failure or f"failed: {type(error).__name__}: {error}"


def finding_of(cluster: Cluster, staged: StagedIncident, *, long_ms: int = 900_000, recheck_after: float = 1.1) -> Row:
    """The finding of what was staged: of its producer, or of its partition where nothing is open."""
    rows = cluster.finding_rows(
        topics=[staged.topic],
        partitions=[staged.partition],
        recheck_after=recheck_after,
        max_transaction_timeout_ms=long_ms,
    )
    producer_id = None if staged.expected in {"clear", "unreplicated"} else staged.producer_id
    mine = [row for row in rows if row["producer_id"] == producer_id]
    assert len(mine) == 1, [(row["producer_id"], row["verdict"]) for row in rows]
    return mine[0]


def _judge(
    cluster: Cluster, staged: StagedIncident, *, expected: str, long_ms: int = 900_000, recheck_after: float = 1.1
) -> str:
    """The verdict on what was staged, which must also name its offset and what a person does next."""
    row = finding_of(cluster, staged, long_ms=long_ms, recheck_after=recheck_after)
    if row["producer_id"] is not None:
        assert row["start_offset"] == staged.start_offset
    assert row["reason"]
    assert row["evidence"]
    for command in ("abort", "complete"):
        assert (f"kafka-txn {command}" in row["remedy"]) == (row["action"] == command), row["remedy"]
    assert bool(row["missing"]) == (row["verdict"] == "unknown")
    action = staged.action if expected == staged.expected else LATER_ACTIONS.get(expected)
    decided = {key: row[key] for key in ("verdict", "outcome", "action")}
    because = [row[key] for key in ("reason", "missing", "cause", "error")]
    assert decided == {"verdict": expected, "outcome": staged.outcome, "action": action}, because
    return str(row["verdict"])


def _await_verdict(cluster: Cluster, staged: StagedIncident) -> str:
    """Query until the later verdict is due.

    Without DescribeQuorum (before 3.3) no clock of a broker is read, and only the recheck proves an age.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return _judge(cluster, staged, expected=staged.later, long_ms=500, recheck_after=6)
        except AssertionError:
            if time.monotonic() > deadline:
                raise


def table(cell: Callable[[Incident, str], str]) -> str:
    """The table of docs/incidents.md, with a cell for each incident and version."""
    lines = ["| incident | what was staged | " + " | ".join(VERSIONS) + " |"]
    lines += ["| --- | --- |" + " --- |" * len(VERSIONS)]
    for name, incident in INCIDENTS.items():
        lines += [f"| `{name}` | {incident.what} | " + " | ".join(cell(incident, each) for each in VERSIONS) + " |"]
    return "\n".join(lines)


def table_in_page() -> str:
    """The table as docs/incidents.md has it."""
    return PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()


def cells_in_page() -> Mapping[tuple[str, str], str]:
    """Its cells, by incident and version."""
    rows = [re.split(r" *\| *", line.strip("| ")) for line in table_in_page().splitlines()[2:]]
    return {(row[0].strip("`"), version): cell for row in rows for version, cell in zip(VERSIONS, row[2:], strict=True)}


def main() -> None:
    """Stage everything everywhere, and write the table."""
    found: dict[tuple[str, str], str] = {}
    for version in VERSIONS:
        for setup in SETUPS.values():
            with Kafka(version, brokers=setup.brokers, properties=setup.properties) as kafka:
                found |= {(name, version): cell for name, cell in observe(kafka, setup).items()}
            print(f"{version} {setup.name}")
    before, after = PAGE.read_text().split(BEGIN)[0], PAGE.read_text().split(END)[1]
    rows = table(lambda incident, version: found.get((incident.name, version), ABSENT))
    PAGE.write_text(f"{before}{BEGIN}\n\n{rows}\n\n{END}{after}")


if __name__ == "__main__":
    main()
