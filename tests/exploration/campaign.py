"""Explore worlds, and report: states, runs, verdicts and rules with a witness of each, and what does not hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

from tests.exploration.explore import (
    ModelClient,
    Procedure,
    Run,
    Trace,
    diagnose,
    execution_of,
    fence_plans,
    plans,
    reached,
    run,
    schedules,
    trace_of,
)
from tests.exploration.properties import Violation, is_known, judge_fences, judge_findings, judge_writes
from tests.exploration.server import everything
from tests.exploration.world import State, World
from toolkit.analysis.diagnosis.decision import Rule
from toolkit.schema import Row


@dataclass(kw_only=True)
class Report:
    """What was explored."""

    name: str
    # states, runs: number of states of the model, and of runs of our code
    states: int = 0
    runs: int = 0
    seconds: float = 0.0  # of processor
    is_complete: bool = True
    # findings by verdict, outcome and action
    verdicts: Counter[tuple[str | None, ...]] = field(default_factory=Counter)
    witnesses: dict[str, list[str]] = field(default_factory=dict)  # the first trace to each verdict and each rule
    # violations, known: the shortest trace to each property that does not hold, and to each that is known not to
    violations: dict[Violation, list[str]] = field(default_factory=dict)
    known: dict[Violation, list[str]] = field(default_factory=dict)

    def add(self, world: World, state: State, found: Iterable[Violation], trace: Callable[[], list[str]]) -> None:
        """Add what does not hold."""
        for violation in found:
            into = self.known if is_known(world, state, violation) else self.violations
            steps = trace()
            if violation not in into or len(steps) < len(into[violation]):
                into[violation] = steps


def merged(reports: Iterable[Report], name: str) -> Report:
    """The sum of reports."""
    total = Report(name=name)
    for each in reports:
        total.states += each.states
        total.runs += each.runs
        total.seconds += each.seconds
        total.verdicts += each.verdicts
        total.witnesses = {**each.witnesses, **total.witnesses}
        total.violations = {**each.violations, **total.violations}
        total.known = {**each.known, **total.known}
    return total


@contextmanager
def rules_recorded() -> Iterator[list[str]]:
    """The names of the rules that decide, in order."""
    names: list[str] = []

    def recording(decision: Any) -> Any:
        def recorded(rule: Any, evidence: Any) -> Any:
            names.append(rule.name)
            return decision(rule, evidence)

        return recorded

    with mock.patch.object(Rule, "decision", recording(Rule.decision)):
        yield names


def explore_states(world: World, *, limit: int | None = None, first_only: bool = False) -> Report:
    """Diagnose in every state, with nothing happening meanwhile."""
    report, begun = Report(name=world.name), time.process_time()
    found: dict[object, list[Row]] = {}
    for _, state, trace in reached(world, depth=99, limit=limit):
        report.states += 1
        key = everything(state)
        if key not in found:
            with rules_recorded() as names:
                found[key] = run(world, state, diagnose).result
            for name in {f"rule: {name}" for name in names} | {f"verdict: {r['verdict']}" for r in found[key]}:
                report.witnesses.setdefault(name, trace.of(state))
        for row in found[key]:
            report.verdicts[row["verdict"], row["outcome"], row["action"]] += 1
        report.add(world, state, judge_findings(world, state, found[key]), partial(trace.of, state))
        if first_only and report.violations:
            break
    report.runs, report.seconds = len(found), time.process_time() - begun
    report.is_complete = limit is None or report.states < limit
    return report


def _explore(
    world: World,
    *,
    steps: int,
    limit: int,
    first_only: bool = False,
    of_each: int | None = None,
    procedures: Callable[[World, State], list[Procedure]],
    judged: Callable[[World, State, Run], Iterable[Violation]],
) -> Report:
    report, begun = Report(name=world.name), time.process_time()
    seen: set[object] = set()
    for _, state, trace in reached(world, depth=99, limit=limit):
        key = everything(state)
        if key in seen:
            continue
        seen.add(key)
        report.states += 1
        for procedure in procedures(world, state):
            runs = schedules(world, state, procedure, steps=steps, limit=of_each)
            while (found := _next(runs)) is not None:
                done, names = found
                report.runs += 1
                for name in names:
                    report.witnesses.setdefault(f"rule: {name}", trace_of(trace.of(state), done.plan))
                if isinstance(done.result, str):
                    report.verdicts[(done.result.partition(":")[0],)] += 1
                report.add(world, state, judged(world, state, done), partial(_steps_of, trace, state, done))
                if first_only and report.violations:
                    report.seconds = time.process_time() - begun
                    return report
    report.seconds = time.process_time() - begun
    return report


def _judge_action(world: World, state: State, done: Run) -> Iterator[Violation]:
    yield from judge_writes(done)
    if not done.plan and done.result != "done":
        yield Violation("what a finding offers is done", done.result)


explore_races = partial(
    _explore,
    procedures=lambda world, state: [diagnose],
    judged=lambda world, state, done: judge_findings(world, state, done.result, done.states),
)
"""Diagnose in every state, with every schedule of so many steps of the model between our requests."""
explore_fences = partial(
    _explore,
    procedures=lambda world, state: [execution_of(plan) for plan in fence_plans(ModelClient(world, state))],
    judged=lambda world, state, done: judge_fences(done, state),
)
"""Plan every fence that is safe, and execute it while so many steps of the model happen."""
explore_actions = partial(
    _explore,
    procedures=lambda world, state: [execution_of(plan) for plan in plans(ModelClient(world, state))],
    judged=_judge_action,
)
"""Plan every action that a finding offers, and execute it while so many steps of the model happen."""


def _steps_of(trace: Trace, state: State, done: Run) -> list[str]:
    return trace_of(trace.of(state), done.plan)


def _next(runs: Iterator[Run]) -> tuple[Run, list[str]] | None:
    """The next run, and the rules that decided in it."""
    with rules_recorded() as names:
        done = next(runs, None)
    return None if done is None else (done, names)
