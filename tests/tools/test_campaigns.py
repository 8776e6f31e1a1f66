"""A short run of each campaign: `tests.tools.frameworks`, `tests.tools.large`."""

from __future__ import annotations

import shutil

import pytest

from tests.tiers import amount, seed
from tests.tools.frameworks import APPLICATIONS, STEPS, run
from tests.tools.large import walks
from tests.tools.large.sitting import Sitting

pytestmark = [pytest.mark.lab, pytest.mark.full]

FLINK = pytest.mark.skipif(shutil.which("javac") is None, reason="FlinkJob.java needs a JDK")


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param(
            name, marks=[pytest.mark.xdist_group(f"campaign of {name}"), *([FLINK] if name == "flink" else [])]
        )
        for name in APPLICATIONS
    ],
)
def test_a_disturbed_framework_is_never_hanging_and_has_an_owner(framework: str) -> None:
    campaign = run(framework, seed() or "one", amount(30, full=30))
    assert not campaign.problems, "\n".join(campaign.problems)
    assert campaign.watcher.looks > 10
    assert {*campaign.done} >= {*STEPS}


@pytest.mark.parametrize("version", ["4.3.1", "3.5.2"])
def test_random_walks_lose_and_publish_nothing(version: str) -> None:
    """What is offered in a round or two is judged by the truth of every record."""
    sitting = Sitting(seed=seed() or "one", seconds=amount(3, full=10))
    walks.run_cluster(sitting, version, 0, range(2))
    assert not sitting.problems, "\n".join(sitting.problems)
    assert sitting.counts["rounds"]
