"""One bounded run of a campaign, and the file of the results of all runs."""

from __future__ import annotations

import datetime as dt
import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.process import ROOT

RESULTS = Path(__file__).with_name("results.jsonl")


@dataclass(kw_only=True)
class Sitting:
    """What a run has done and found so far.

    Parameters
    ----------
    seed
        Chooses what is done, and when.
    seconds
        Until when a new step begins.
    """

    seed: str
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """Until it is over."""
        return self.began + self.seconds - time.monotonic()

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

    def line(self, campaign: str) -> Mapping[str, Any]:
        """Its line of the results."""
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=60
        ).stdout.strip()
        return {
            "campaign": campaign,
            "date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
            "commit": commit,
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.began),
            "counts": dict(sorted(self.counts.items())),
            "problems": self.problems,
        }


def results() -> Sequence[Mapping[str, Any]]:
    """The lines of all runs."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def append(line: Mapping[str, Any]) -> None:
    """Add a line."""
    with RESULTS.open("a") as file:
        file.write(f"{json.dumps(line)}\n")
