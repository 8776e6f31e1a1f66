"""Our code with one of its guards switched off: the exploration has to find what the guard is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.exploration import explore
from tests.exploration.campaign import Report, explore_actions, explore_races, explore_states
from tests.exploration.explore import time_of
from tests.exploration.worlds import world_of
from toolkit.actions import marker_actions
from toolkit.analysis.diagnosis import log_excerpts, markers, outcome_proof, rules
from toolkit.analysis.diagnosis.case import Case, IndexedObservation
from toolkit.analysis.diagnosis.decision import UNDECIDED, Outcome
from toolkit.analysis.diagnosis.observation import BrokersTime
from toolkit.analysis.transaction_history import CoordinatorLog
from toolkit.formats.batches import TRANSACTIONAL
from toolkit.sources.live import observe
from toolkit.sources.live.coordinators import Visibility

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A guard that is switched off."""

    guard: str  # what it guards against
    patch: Patch  # switches it off
    world: str  # where its absence shows
    how: str = "states"  # ``states``, ``races`` or ``actions``: how that world is explored
    # steps, limit, of_each: bounds
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
            p.setattr(rules, table, tuple(rule for rule in getattr(rules, table) if rule.name not in names))

    known = {rule.name for rule in (*rules.OWNED_RULES, *rules.DISOWNED_RULES)}
    assert set(names) <= known, set(names) - known
    return patch


def _without_doubts(word: str) -> Patch:
    """Without the doubts that have a word in them."""
    doubts = rules.doubts

    def patch(p: pytest.MonkeyPatch) -> None:
        changed = tuple(
            replace(rule, applies=lambda e: bool(fewer(e)), needs=fewer) if rule.needs is doubts else rule
            for rule in rules.DISOWNED_RULES
        )
        p.setattr(rules, "DISOWNED_RULES", changed)

    def fewer(e: Any) -> tuple[str, ...]:
        return tuple(doubt for doubt in doubts(e) if word not in doubt)

    return patch


def _first_look_only(p: pytest.MonkeyPatch) -> None:
    """What the leader showed before the coordinators answered is taken for what is open."""

    def opened(self: IndexedObservation) -> Iterator[Any]:
        for producers in self._open_before.values():
            for row in producers.values():
                yield self._case(row)

    p.setattr(IndexedObservation, "_open_on_leaders", opened)


def _undecided(p: pytest.MonkeyPatch) -> None:
    outcome = Outcome(name=UNDECIDED, reason="the log is not asked")
    p.setattr(outcome_proof, "find_outcome", lambda *_: outcome)


def _impure_epochs(p: pytest.MonkeyPatch) -> None:
    """An epoch is taken for one of version 2 if one of its transactions is."""

    def epochs(self: Any) -> frozenset[int]:
        return frozenset(e.producer_epoch for e in self.transactions if (e.client_transaction_version or 0) >= 2)

    p.setattr(outcome_proof._Proof, "_epochs_of_version_2", property(epochs))


def _machines_time(p: pytest.MonkeyPatch) -> None:
    def read(client: Any, *_: Any) -> BrokersTime:
        return BrokersTime(time=time_of(client.world, client.state), source="this machine", is_current=True)

    p.setattr(observe, "read_brokers_time", read)


def _first_part_only(p: pytest.MonkeyPatch) -> None:
    p.setattr(outcome_proof._Proof, "parts", property(lambda self: self.case.open_parts[:1]))


def _nothing(target: Any, name: str, value: Any) -> Patch:
    return lambda p: p.setattr(target, name, lambda *_, **__: value)


DECIDED_MEANWHILE = (
    "it has ended meanwhile",
    "its commit is decided and the marker on the way",
    "its abort is decided and the marker on the way",
)
IN_ONE_EPOCH = "K1: version 2 aborted in the epoch of a commit that its log has lost"
MARKER_CAME = ("its marker came meanwhile", "the log has its marker, the producer state has not", *DECIDED_MEANWHILE)
ENDING = ("Prepare", "ending elsewhere", "a state that this version")
"""Names of the rules on what is being ended begin so."""


def _all(*patches: Patch) -> Patch:
    """Several guards, of which each alone suffices."""

    def patch(p: pytest.MonkeyPatch) -> None:
        for each in patches:
            each(p)

    return patch


MUTANTS = (
    Mutant(guard="outcome by the coordinators' log", patch=_undecided, world="a lost COMMIT"),
    Mutant(guard="complete is only for commits", patch=_without_rule("committed without its marker"),
        world="a commit that a broker's time proves"),
    Mutant(guard="the log reaches back",
        patch=lambda p: p.setattr(outcome_proof._Proof, "_why_complete", lambda self: "it is"),
        world="a lost COMMIT, then compact"),
    Mutant(guard="an InitProducerId may be repeated",
        patch=lambda p: p.setattr(Case, "may_precede_epoch_record", False),
        world="K1: an InitProducerId repeated after a commit, compacted"),
    Mutant(guard="an outcome that is not proven is unknown", patch=_without_rule("outcome not proven"),
        world="a lost COMMIT, then compact"),
    Mutant(guard="records under a live transaction",
        patch=_without_rule("live", "overdue", "long", "live, over committed records", "live, of two epochs"),
        world="late batches"),
    Mutant(guard="a fence may be in progress", patch=_without_rule("a fence may be in progress"),
        world="late batches and timeouts"),
    Mutant(guard="PrepareCommit",
        patch=_without_rule(*(rule.name for rule in rules.OWNED_RULES if rule.name.startswith(ENDING)),
            *DECIDED_MEANWHILE), world="late batches"),
    Mutant(guard="gaps of the coordinators, and their log", patch=_all(_without_doubts("broker"), _undecided),
        world="brokers that do not answer"),
    Mutant(guard="load probe", patch=_nothing(observe, "loading_coordinators", []), world="coordinators that move"),
    Mutant(guard="rights", patch=_nothing(observe, "visibility_of", Visibility(["all"], [])),
        world="hidden ids, the log is read"),
    Mutant(guard="prepared by two-phase commit",
        patch=_without_rule("prepared", "live", "long", "overdue", "prepared elsewhere"), world="two-phase commit"),
    Mutant(guard="second look at the leader, the recheck, and the marker in the log",
        patch=_all(_first_look_only, lambda p: p.setattr(explore, "SOON", 0.0), _without_rule(*MARKER_CAME)),
        world="an abort that is being written", how="races", steps=2, limit=1),
    Mutant(guard="fresh checks before the marker",
        patch=_all(lambda p: p.setattr(marker_actions.Abort, "fresh_plans", lambda self, plans, recheck_after: plans),
            _nothing(marker_actions.Abort, "guard", None)), world="a partition that was never added", how="actions",
        steps=2, limit=1),
    Mutant(guard="an epoch of both versions", patch=_impure_epochs, world=IN_ONE_EPOCH),
    Mutant(guard="older than the decision", patch=_nothing(outcome_proof._Proof, "_is_older", True),
        world="K2: a zombie joins a commit that a broker's time proves"),
    Mutant(guard="younger than the decision", patch=_nothing(outcome_proof._Proof, "_is_younger", True),
        world="a lost COMMIT"),
    Mutant(guard="younger than a commit of version 2",
        patch=_nothing(outcome_proof._Proof, "_is_written_later", False),
        world="K2: a zombie of version 2 after a commit whose topic was created again"),
    Mutant(guard="every open batch", patch=_first_part_only,
        world="K2: a zombie joins a commit that a broker's time proves"),
    # The times of a client are taken for a broker's.
    Mutant(guard="no CreateTime", patch=lambda p: p.setattr(log_excerpts, "LOG_APPEND_TIME", TRANSACTIONAL),
        world="K2: a zombie with an event time before a commit that its log has lost"),
    Mutant(guard="markers elsewhere that no decision explains", patch=_nothing(markers, "unexplained_marker", None),
        world="K3: a COMMIT marker on p1 that no decision explains, version 1"),
    Mutant(guard="markers where a leader has forgotten the producer",
        patch=lambda p: p.setattr(Case, "recorded_partitions", frozenset()),
        world="K3: a COMMIT marker on p1, whose leader has forgotten the producer"),
    Mutant(guard="a transaction that was ended twice", patch=_nothing(markers, "lost_end", None),
        world="K3: the end of a commit is lost, and what came after it"),
    Mutant(guard="epochs that the coordinators' log does not have",
        patch=lambda p: p.setattr(Case, "highest_epoch", None),
        world="K3: version 2, a commit is lost with all that came after it"),
    Mutant(guard="version 2 data that was never added",
        patch=_nothing(outcome_proof._Proof, "_is_never_added", False),
        world="K3: the coordinators' log has lost the record that added p1, version 2"),
    Mutant(guard="clocks beyond the bound",
        patch=lambda p: p.setattr(markers.ClosedTransactions, "beyond_bound", frozenset()),
        world="K5: a coordinator's clock -6 s apart, 900 ms between its records"),
    Mutant(guard="records older than their producer", patch=_nothing(outcome_proof._Proof, "_contradiction", None),
        world="K3: an id given out twice after a restore"),
    Mutant(guard="ids given out twice", patch=_nothing(CoordinatorLog, "other_ids", ()),
        world="K3: an id given out twice"),
    Mutant(guard="brokers' time", patch=_machines_time, world="K4: our machine's clock is ahead"),
    Mutant(guard="doubled ids",
        patch=_all(_nothing(observe, "_duplicate_ids", []), _without_rule("several coordinators")),
        world="coordinators that move unnoticed"),
)  # fmt: skip
"""Each has to be caught."""
