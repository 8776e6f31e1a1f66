"""A short run of each campaign."""

from __future__ import annotations

import pytest

from tests.tiers import amount, seed
from tests.tools.large import disks, recorder, walks
from tests.tools.large.sitting import Sitting
from toolkit import Cluster
from toolkit.lab import Kafka

MOUNTS = pytest.mark.skipif(not disks.can_mount(), reason="needs the right to mount")


@pytest.fixture
def sitting() -> Sitting:
    return Sitting(seed=seed() or "one", seconds=amount(3, full=10))


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
