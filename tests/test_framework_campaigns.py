"""MirrorMaker, a source of Connect, disturbed at random: see `tests.framework_campaigns`.

Streams and Flink are in tests/large/test_large.py, on brokers that are killed.
"""

from __future__ import annotations

import pytest

from tests.framework_campaigns.campaign import run
from tests.tiers import amount, seed

pytestmark = [pytest.mark.lab, pytest.mark.full]


def test_mirror_maker_disturbed_is_never_hanging_and_has_an_owner() -> None:
    campaign = run("mirror", seed() or "one", amount(30, full=30))
    assert not campaign.problems, "\n".join(campaign.problems)
    assert campaign.watcher.looks.total() > 10
    assert {*campaign.done} >= {"kill", "freeze", "fence", "roll"}
