"""A short run of each campaign, and the table of all runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import NEWEST, on_cluster
from tests.tiers import amount, seed
from tests.tools.large import chaos, disks, model_races, mutations, recorder, skipped_races, walks
from tests.tools.large.broker_races import Race
from tests.tools.large.figures import table, table_in_page
from tests.tools.large.sitting import Sitting
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.lab import Kafka
from toolkit.lab.incidents import REPLICATED

MOUNTS = pytest.mark.skipif(not disks.can_mount(), reason="needs the right to mount")


def test_the_table_has_the_sums_of_all_runs() -> None:
    assert table_in_page() == table()


@pytest.fixture
def sitting() -> Sitting:
    return Sitting(seed=seed() or "one", seconds=amount(3, full=10))


@pytest.mark.longer
def test_damaged_bytes(sitting: Sitting) -> None:
    mutations.run(sitting)
    assert not sitting.problems, "\n".join(sitting.problems)


@pytest.mark.longer
def test_walks_of_the_model(sitting: Sitting) -> None:
    model_races.run(sitting, sitting.seconds)
    assert not sitting.problems, "\n".join(sitting.problems)


@MOUNTS
def test_an_audit_trail_on_a_full_or_read_only_disk(sitting: Sitting) -> None:
    disks.audit_trail(sitting)
    assert not sitting.problems, "\n".join(sitting.problems)


@MOUNTS
@pytest.mark.full
def test_a_recording_on_a_full_or_read_only_disk(sitting: Sitting) -> None:
    disks.recording(sitting)
    assert not sitting.problems, "\n".join(sitting.problems)


@MOUNTS
@pytest.mark.full
@pytest.mark.lab
def test_a_live_recorder_on_a_full_or_read_only_disk(sitting: Sitting, kafka: Kafka) -> None:
    disks.live_recorder(sitting, kafka, faults=2)
    assert not sitting.problems, "\n".join(sitting.problems)


@MOUNTS
@pytest.mark.full
@pytest.mark.lab
def test_aborts_on_a_full_disk(sitting: Sitting, kafka: Kafka) -> None:
    with Cluster(kafka.bootstrap_servers) as cluster:
        disks.aborts(sitting, kafka, cluster)
    assert not sitting.problems, "\n".join(sitting.problems)


@pytest.mark.full
@pytest.mark.parametrize("lab", [on_cluster(NEWEST, REPLICATED, id="replicated")], indirect=True)
def test_skipped_markers_are_completed_under_load(lab: Kafka, tmp_path: Path) -> None:
    name = f"race-{seed() or 'one'}"
    race = Race(topic=name, seed=name, count=10)
    skipped_races.run_race(lab, race, Audit(tmp_path / "audit.jsonl"))
    assert race.unfinished


@pytest.mark.lab
@pytest.mark.full
@pytest.mark.xdist_group("campaign of streams")
def test_streams_among_brokers_that_are_killed(sitting: Sitting) -> None:
    """Each step once; the other frameworks are in tests/test_framework_campaigns.py."""
    sitting.seconds = 1
    chaos.run(sitting, "streams")
    assert not sitting.problems, "\n".join(sitting.problems)
    assert set(chaos.STEPS) <= set(sitting.counts)


@pytest.mark.lab
@pytest.mark.full
@pytest.mark.xdist_group("recorder under kills")
def test_a_recorder_of_brokers_that_are_killed(sitting: Sitting) -> None:
    recorder.run(sitting)
    assert not sitting.problems, "\n".join(sitting.problems)


@pytest.mark.lab
@pytest.mark.full
@pytest.mark.parametrize("version", ["4.3.1", "3.5.2"])
def test_random_walks_lose_and_publish_nothing(sitting: Sitting, version: str) -> None:
    """What is offered in a round or two is judged by the truth of every record."""
    walks.run_cluster(sitting, version, 0, range(2))
    assert not sitting.problems, "\n".join(sitting.problems)
    assert sitting.counts["rounds"]
