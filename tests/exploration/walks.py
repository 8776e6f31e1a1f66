"""Markers and fences raced by random walks of any length.

The exploration runs every schedule of a few steps; this one tries a few of the schedules of many steps.
"""

from __future__ import annotations

import gc
import random
from contextlib import suppress
from itertools import chain
from typing import Any

from tests.exploration.explore import (
    PLANNERS,
    ModelClient,
    Plan,
    Point,
    Procedure,
    Run,
    connect,
    diagnose,
    execution_of,
    fence_plans,
    running,
)
from tests.exploration.properties import is_known, judge_fences, judge_findings, judge_writes
from tests.exploration.server import Key
from tests.exploration.steps import successors
from tests.exploration.world import State, World
from tests.exploration.worlds import BEHIND, RACES, STAGED, WORLDS
from tests.tools.large.sitting import Sitting
from toolkit.errors import ToolkitError

MAX_STEPS = 25  # of the model before a plan, and before the action
SCHEDULES = 12  # of each plan
FORGED = (
    {"verdict": "hanging", "outcome": "undecided", "action": "abort"},
    {"verdict": "stuck_ending", "outcome": "commit", "action": "complete"},
)


def run(sitting: Sitting) -> None:
    """Random walks, each with the action of a finding or a fence, until the time is over."""
    worlds = (*WORLDS, *BEHIND, *STAGED, *RACES)
    was_enabled = gc.isenabled()
    gc.disable()  # a collection goes through all answers that the model keeps
    try:
        for number in sitting.numbers():
            race(sitting, random.Random(f"{sitting.seed}-{number}"), worlds, number)
    finally:
        if was_enabled:
            gc.enable()


def race(sitting: Sitting, chance: random.Random, worlds: tuple[World, ...], number: int) -> None:
    """One walk, repeated by its number: what its end offers is tried under several schedules."""
    world = chance.choice(worlds)
    steps: list[str] = []
    planned = _walk(world, world.start, chance, chance.randrange(MAX_STEPS), steps)[-1]
    with running(ModelClient(world, planned)):
        procedures: list[tuple[str, Procedure]] = [("findings", diagnose)]
    markers = [execution_of(each) for each in _plans(ModelClient(world, planned), chance)]
    procedures += [("attempts to abort or complete", each) for each in markers * SCHEDULES]
    if chance.random() < 0.1:
        fences = [execution_of(each) for each in fence_plans(ModelClient(world, planned))]
        procedures += [("attempts to fence", each) for each in fences * SCHEDULES]
    for kind, procedure in procedures:
        during = steps.copy()
        begun = _walk(world, planned, chance, chance.choice([0, 0, 1, 3, MAX_STEPS]), during)[-1]
        done, states = _run(world, begun, procedure, chance, during)
        sitting.counts[kind] += 1
        sitting.counts["markers and fences written"] += len(done.client.writes)
        if procedure is diagnose:
            violations = judge_findings(world, begun, done.result, states)
        else:
            violations = chain(judge_writes(done), judge_fences(done, planned))
        for violation in violations:
            if any(is_known(world, each, violation) for each in (begun, states[-1])):
                sitting.counts["known limits"] += 1
            else:
                sitting.wrong(f"walk {number} of {world.name}: {violation}: {', '.join(during)}")


def _plans(client: ModelClient, chance: random.Random) -> list[Any]:
    """Of what findings offer, and of what they do not: the action has to refuse that."""
    found = []
    with running(client):
        cluster = connect(client)
        for row in diagnose(client):
            if row["start_offset"] is None:
                continue
            wanted = row if row["action"] in PLANNERS and chance.random() < 0.8 else {**row, **chance.choice(FORGED)}
            with suppress(ToolkitError):
                found.append(PLANNERS[wanted["action"]](cluster, wanted))
    return found


def _walk(world: World, state: State, chance: random.Random, count: int, steps: list[str]) -> list[State]:
    """The states that it goes through."""
    states = [state]
    for _ in range(count):
        following = list(successors(world, states[-1]))
        if not following:
            break
        label, state = chance.choice(following)
        steps.append(label)
        states.append(state)
    return states


def _run(
    world: World, state: State, procedure: Procedure, chance: random.Random, steps: list[str]
) -> tuple[Run, list[State]]:
    """A procedure, with steps of the model before any of its requests; and all states that there were meanwhile.

    Those of the run are those at its requests. What was so between two of them only was so, too.
    """
    points: list[Point] = []
    states = [state]
    often = chance.choice([0.02, 0.1, 0.4])

    def before(current: State, broker: int | None, key: Key) -> State:
        if chance.random() < often:
            steps.append(f"before {key[0]}:")
            walked = _walk(world, current, chance, chance.choice([1, 1, 2, 5]), steps)
            states.extend(walked)
            current = walked[-1]
        points.append(Point(broker, key, current, 0))
        return current

    client = ModelClient(world, state, before)
    with running(client):
        result = procedure(client)
    plan: Plan = {}
    return Run(plan, points, result, client), states
