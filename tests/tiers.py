"""Two tiers: what ``pytest`` runs, and what only ``pytest -m full`` does.

A test marked ``full`` belongs to the second one. A test marked ``longer`` belongs to both, and does more in the second;
so does every test of hypothesis.
"""

from __future__ import annotations

import os
import re
from typing import Any

from hypothesis import settings

TIER = "KAFKA_TXN_TEST_TIER"  # in the environment, so that processes of a test know it too
AMOUNT, SEED = "KAFKA_TXN_TEST_AMOUNT", "KAFKA_TXN_TEST_SEED"


def set_tier(markers: str) -> None:
    """Set the tier that a ``-m`` expression selects, before test modules are imported."""
    os.environ[TIER] = "full" if re.search(r"(?<!not )\bfull\b", markers) else "first"
    # Results are tested, not the speed of this machine.
    settings.register_profile(TIER, deadline=None, max_examples=int(amount(50, full=100)))
    settings.load_profile(TIER)


def is_full() -> bool:
    """Whether the second tier runs."""
    return os.environ.get(TIER) == "full"


def amount(first: float, *, full: float) -> float:
    """How many seconds or how often, by tier; ``KAFKA_TXN_TEST_AMOUNT=10`` makes it ten times as much."""
    return (full if is_full() else first) * float(os.environ.get(AMOUNT, "1"))


def seed() -> str | None:
    """The value of ``KAFKA_TXN_TEST_SEED``, to repeat a random test."""
    return os.environ.get(SEED)


def fuzzed(first: int, **options: Any) -> settings:
    """A hypothesis test with so many examples, and twice as many in the full tier.

    A tenth of the first number finds what mutation testing plants; ten times as many took minutes of the full tier.
    """
    return settings(max_examples=max(1, int(amount(first, full=2 * first))), **options)
