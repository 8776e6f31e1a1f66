"""Every incident on every Kafka of the lab gets its verdict; the table in README.md is what this run saw."""

import datetime as dt
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit import Cluster
from toolkit.analysis import verdicts
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS, Incident, Setup, Staged
from toolkit.schema import Row
from toolkit.sources import look

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- incidents: written by tests/test_incident_matrix.py -->", "<!-- end of incidents -->"
# 2.8 has no ListTransactions: its verdicts come from __transaction_state (DOMAIN.md P24).
VERSIONS = ("2.8.2", "3.5.2", "3.9.2", "4.3.1")
SETUPS = {incident.setup.name: incident.setup for incident in INCIDENTS.values()}

seen: dict[str, dict[str, str]] = defaultdict(dict)

pytestmark = pytest.mark.lab


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def on_stage(setup: Setup, version: str) -> list[Incident]:
    """The incidents that share a setup and exist on a version."""
    return [i for i in INCIDENTS.values() if i.setup is setup and number(i.since) <= number(version)]


def one(rows: list[Row], staged: Staged) -> Row:
    """The row of what was staged: of its producer, or of its partition where nothing is open."""
    producer_id = None if staged.expected in {"clear", "unreplicated"} else staged.producer_id
    mine = [row for row in rows if row["producer_id"] == producer_id]
    assert len(mine) == 1, [(row["producer_id"], row["verdict"]) for row in rows]
    return mine[0]


def judge(cluster: Cluster, staged: Staged, *, expected: str, long_ms: int = 900_000) -> str:
    """The verdict on what was staged, which must also name its offset and tell what a person does next."""
    rows = cluster.finding_rows([staged.topic], [staged.partition], looks_apart=1.1, max_transaction_timeout_ms=long_ms)
    row = one(rows, staged)
    if row["producer_id"] is not None:
        assert row["start_offset"] == staged.start_offset
    assert row["reason"]
    assert row["evidence"]
    assert (row["verdict"] == "hanging") == ("kafka-txn abort" in row["remedy"])
    assert bool(row["missing"]) == (row["verdict"] == "unknown")
    assert row["verdict"] == expected, row
    return str(row["verdict"])


def until_judged(cluster: Cluster, staged: Staged) -> str:
    """Ask until time has brought the later verdict."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return judge(cluster, staged, expected=staged.later, long_ms=500)
        except AssertionError:
            if time.monotonic() > deadline:
                raise


@pytest.fixture
def quick_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds instead of 15 and 60, so that what comes later can be waited for."""
    soon = dt.timedelta(seconds=2)
    monkeypatch.setattr(verdicts, "TIMEOUT_GRACE", soon)
    monkeypatch.setattr(verdicts, "PREPARE_GRACE", soon)
    monkeypatch.setattr(look, "OLD", soon)


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_incident_gets_its_verdict(version: str, setup: Setup, quick_graces: None) -> None:
    incidents = on_stage(setup, version)
    if not incidents:
        return
    problems = {}
    with Kafka(version, brokers=setup.brokers, properties=setup.properties) as kafka:
        for incident in incidents:
            try:
                seen[incident.name][version] = play(kafka, incident)
            except (AssertionError, ToolkitError) as error:
                problems[incident.name] = error
                seen[incident.name][version] = "failed"
    assert not problems, "\n".join(f"{name}: {type(error).__name__}: {error}" for name, error in problems.items())


def play(kafka: Kafka, incident: Incident) -> str:
    with incident(kafka) as staged, Cluster(kafka.bootstrap_servers, timeout=5) as cluster:
        told = [judge(cluster, staged, expected=staged.expected)]
        for other in staged.also:
            judge(cluster, other, expected=other.expected)
        if staged.later:
            told.append(until_judged(cluster, staged))
    return ", later ".join(f"`{verdict}`" for verdict in told)


def table() -> Iterator[str]:
    yield "| incident | what was staged | " + " | ".join(VERSIONS) + " |"
    yield "| --- | --- |" + " --- |" * len(VERSIONS)
    for name, incident in INCIDENTS.items():
        cells = [seen[name].get(version, "-") for version in VERSIONS]
        yield f"| `{name}` | {incident.what} | " + " | ".join(cells) + " |"


def test_the_table_in_the_readme_is_what_was_seen(request: pytest.FixtureRequest) -> None:
    ran = {item.name for item in request.session.items}
    if len([name for name in ran if name.startswith("test_every_incident")]) < len(SETUPS) * len(VERSIONS):
        return  # a part of the matrix says nothing of the whole
    text = README.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    written = "\n".join((before.rstrip(), "", BEGIN, "", *table(), "", END)) + after
    README.write_text(written)
    assert written == text, "README.md had another table; it now has this run's: look at it and commit it"
