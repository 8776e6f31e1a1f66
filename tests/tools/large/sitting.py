"""One bounded run of a campaign."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Sitting:
    """What a run has done and found so far."""

    seed: str  # chooses what is done, and when
    seconds: float  # until when a new step begins
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() > self.began + self.seconds

    def numbers(self) -> Iterator[int]:
        """0, 1, 2, ..., until its time is over or something is wrong; at least one."""
        number = 0
        while not number or not (self.is_over or self.problems):
            yield number
            number += 1

    def check(self, is_right: bool, problem: str) -> None:
        """Note what is wrong."""
        if not is_right:
            self.problems.append(problem)
            print(f"PROBLEM: {problem}", flush=True)
