"""MirrorMaker and Flink as they run, disturbed at random: see `tests.tools.framework_campaigns`.

Streams is in tests/tools/large/test_large.py, on brokers that are killed.
"""

from __future__ import annotations

import shutil

import pytest

from tests.tiers import amount, seed
from tests.tools.framework_campaigns.campaign import run

pytestmark = [pytest.mark.lab, pytest.mark.full]

FLINK = pytest.mark.skipif(shutil.which("javac") is None, reason="FlinkJob.java needs a JDK")


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("mirror", marks=pytest.mark.xdist_group("campaign of mirror")),  # a source of Connect
        pytest.param("flink", marks=[FLINK, pytest.mark.xdist_group("campaign of flink")]),
    ],
)
def test_a_disturbed_framework_is_never_hanging_and_has_an_owner(framework: str) -> None:
    campaign = run(framework, seed() or "one", amount(30, full=30))
    assert not campaign.problems, "\n".join(campaign.problems)
    assert campaign.watcher.looks.total() > 10
    assert {*campaign.done} >= {"kill", "freeze", "fence", "roll"}
