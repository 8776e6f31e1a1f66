"""Every incident on every Kafka of the lab gets its verdict, which is the one in docs/incidents.md."""

import pytest

from tests.brokers import NEWEST, OLDER, on_cluster
from tests.incident_matrix import ABSENT, SETUPS, VERSIONS, cells_in_page, exists, observe, table, table_in_page
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS, ClusterSetup

CASES = [
    on_cluster(version, setup, setup, id=f"{version}-{setup.name}")
    for version in VERSIONS
    for setup in SETUPS.values()
    if any(each.setup is setup and exists(each, version) for each in INCIDENTS.values())
]


@pytest.mark.lab
@pytest.mark.parametrize(("lab", "setup"), CASES, indirect=["lab"])
def test_every_incident_gets_its_verdict(lab: Kafka, setup: ClusterSetup) -> None:
    found = observe(lab, setup)
    cells = cells_in_page()
    wrong = {name: cell for name, cell in found.items() if cell != cells[name, lab.version]}
    assert not wrong, "\n".join(f"{name}: {cell}" for name, cell in wrong.items())


def test_the_table_in_the_docs_has_every_incident_and_version() -> None:
    cells = cells_in_page()
    assert table(lambda incident, version: cells[incident.name, version]) == table_in_page()
    absent = {key for key, cell in cells.items() if cell == ABSENT}
    assert absent == {(name, version) for name, version in cells if not exists(INCIDENTS[name], version)}
    assert {OLDER, NEWEST} <= set(VERSIONS)
