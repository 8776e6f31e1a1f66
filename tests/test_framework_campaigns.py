"""Frameworks as they run, disturbed at random: see `tests.tools.frameworks`."""

from __future__ import annotations

import shutil

import pytest

from tests.tiers import amount, seed
from tests.tools.frameworks import APPLICATIONS, STEPS, run

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
