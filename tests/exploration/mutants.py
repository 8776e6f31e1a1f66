"""Our code with one of its guards switched off: the exploration has to find what the guard is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.exploration.campaign import Report, explore_actions, explore_races, explore_states
from tests.exploration.worlds import world_of
from toolkit.actions import abort
from toolkit.analysis.diagnosis import decision
from toolkit.analysis.diagnosis.evidence import diagnosis_context, outcome_proof
from toolkit.analysis.diagnosis.open_transactions import IndexedObservation
from toolkit.analysis.diagnosis.outcome import UNDECIDED, Outcome
from toolkit.sources.live import observe
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.state.authorization import Visibility

__all__ = ["MUTANTS", "Mutant", "hunt"]

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A guard that is switched off.

    Parameters
    ----------
    guard
        What it guards against.
    patch
        Switches it off.
    world
        Where its absence shows.
    how
        ``states``, ``races`` or ``actions``: how that world is explored.
    steps, limit, of_each
        Bounds.
    """

    guard: str
    patch: Patch
    world: str
    how: str = "states"
    steps: int = 1
    limit: int = 3000
    of_each: int | None = None


def hunt(mutant: Mutant) -> Report:
    """Explore a mutant until a property does not hold."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        world = world_of(mutant.world)
        if mutant.how == "states":
            return explore_states(world, limit=mutant.limit, first_only=True)
        explore = explore_races if mutant.how == "races" else explore_actions
        return explore(world, steps=mutant.steps, limit=mutant.limit, of_each=mutant.of_each, first_only=True)


def _without_rule(*names: str) -> Patch:
    """Without rules of the tables."""

    def patch(p: pytest.MonkeyPatch) -> None:
        for table in ("OWNED_RULES", "DISOWNED_RULES"):
            rules = tuple(rule for rule in getattr(decision, table) if rule.name not in names)
            p.setattr(decision, table, rules)

    known = {rule.name for rule in (*decision.OWNED_RULES, *decision.DISOWNED_RULES)}
    assert set(names) <= known, set(names) - known
    return patch


def _without_doubts(word: str) -> Patch:
    """Without the doubts that have a word in them."""
    doubts = decision._doubts

    def patch(p: pytest.MonkeyPatch) -> None:
        rules = tuple(
            replace(rule, applies=lambda e: bool(fewer(e)), needs=fewer) if rule.needs is doubts else rule
            for rule in decision.DISOWNED_RULES
        )
        p.setattr(decision, "DISOWNED_RULES", rules)

    def fewer(e: Any) -> tuple[str, ...]:
        return tuple(doubt for doubt in doubts(e) if word not in doubt)

    return patch


def _first_look_only(p: pytest.MonkeyPatch) -> None:
    """What the leader showed before the coordinators answered is taken for what is open."""

    def opened(self: IndexedObservation) -> Iterator[Any]:
        for producers in self._open_before.values():
            for row in producers.values():
                yield self._txn(row)

    p.setattr(IndexedObservation, "_open_on_leaders", opened)


def _last_look_only(p: pytest.MonkeyPatch) -> None:
    """What the leader shows after the coordinators answered is taken for what was open before."""

    def opened(self: IndexedObservation) -> Iterator[Any]:
        for producers in self._open_after.values():
            for row in producers.values():
                yield self._txn(row)

    p.setattr(IndexedObservation, "_open_on_leaders", opened)


def _no_recheck(p: pytest.MonkeyPatch) -> None:
    findings = Cluster._findings
    p.setattr(Cluster, "_findings", lambda self, **given: findings(self, **given | {"recheck_after": 0.0}))


def _no_preflight(p: pytest.MonkeyPatch) -> None:
    p.setattr(abort.AbortPlan, "preflight", lambda self, **_: self.finding)


def _undecided(p: pytest.MonkeyPatch) -> None:
    outcome = Outcome(name=UNDECIDED, reason="the log is not asked")
    p.setattr(diagnosis_context, "find_outcome", lambda *_: outcome)


def _nothing(target: Any, name: str, value: Any) -> Patch:
    return lambda p: p.setattr(target, name, lambda *_, **__: value)


MUTANTS = (
    Mutant(guard="outcome by the coordinators' log", patch=_undecided, world="a lost COMMIT"),
    Mutant(guard="complete is only for commits", patch=_without_rule("committed without its marker"), world="a lost COMMIT"),
    Mutant(
        guard="the log reaches back",
        patch=lambda p: p.setattr(outcome_proof._Proof, "_why_complete", lambda self: "it is"),
        world="a lost COMMIT, then compact",
    ),
    Mutant(
        guard="an outcome that is not proven is unknown",
        patch=_without_rule("outcome not proven"),
        world="a lost COMMIT, then compact",
    ),
    Mutant(
        guard="records under a live transaction",
        patch=_without_rule("live", "overdue", "long", "live, over committed records", "live, of two epochs"),
        world="late batches",
    ),
    Mutant(guard="a fence may be in progress", patch=_without_rule("a fence may be in progress"), world="late batches and timeouts"),
    Mutant(guard="PrepareCommit", patch=_without_rule("PrepareCommit", "PrepareCommit for long", "ending elsewhere"), world="late batches"),
    Mutant(guard="gaps of the coordinators", patch=_without_doubts("broker"), world="brokers that do not answer"),
    Mutant(
        guard="load probe",
        patch=_nothing(observe, "loading_coordinators", []),
        world="coordinators that move",
    ),
    Mutant(
        guard="rights",
        patch=_nothing(observe, "transactional_ids_are_visible", Visibility(["all"], [])),
        world="hidden ids, the log is read",
    ),
    Mutant(
        guard="prepared by two-phase commit",
        patch=_without_rule("prepared", "live", "long", "overdue", "prepared elsewhere"),
        world="two-phase commit",
    ),
    Mutant(guard="second look at the leader", patch=_first_look_only, world="late batches", how="races"),
    Mutant(guard="first look at the leader", patch=_last_look_only, world="late batches", how="races"),
    Mutant(guard="fresh check before the marker", patch=_no_preflight, world="a late batch", how="actions", steps=2),
    Mutant(
        guard="the coordinator is asked once more",
        patch=_nothing(abort.AbortPlan, "_check_owner", None),
        world="a partition that was never added",
        how="actions",
        steps=2,
    ),
)
"""Each has to be caught."""

SINGLE_LOOKS: Mapping[str, Patch] = {"first": _first_look_only, "last": _last_look_only}
NO_RECHECK = _no_recheck
