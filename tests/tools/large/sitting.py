"""One bounded run of a campaign."""

from __future__ import annotations

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

    def wrong(self, problem: str) -> None:
        """Note what is wrong."""
        self.problems.append(problem)
        print(f"PROBLEM: {problem}", flush=True)
