"""Every state of small worlds, and our requests interleaved with their steps: no wrong verdict, no wrong marker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.exploration import walks
from tests.exploration.campaign import Report, explore_actions, explore_fences, explore_races, explore_states, merged
from tests.exploration.explore import controlled, diagnose, run
from tests.exploration.mutants import MUTANTS, Mutant, hunt
from tests.exploration.world import World
from tests.exploration.worlds import BEHIND, KINDS, PROVABLE, RACES, SMALL, STAGED, WORLDS, world_of
from tests.tiers import amount, seed
from tests.tools.large.sitting import Sitting
from toolkit.analysis.diagnosis.decision import PARTITION_RULES
from toolkit.analysis.diagnosis.rules import DISOWNED_RULES, OWNED_RULES

VERDICTS = {
    "clear", "ending", "hanging", "long", "ongoing", "overdue", "prepared", "stuck_ending", "unknown", "unreplicated",
}  # fmt: skip
"""All but ended: only recordings see that."""
UNREACHED = {
    "on the coordinators' topic": "no producer of the model writes there",
    "prepared elsewhere": "no world prepares two transactions",
    "a state that this version does not know": "the model knows no others",
    "recorded otherwise": "only recordings have it",
    "the log has another producer's batch": "the model's producer state follows from its log",
    "the log has its marker, the producer state has not": "the same", "it has ended": "only recordings see that",
    "began during the copy": "the model has no files; tests/sources/test_log_dir_copy.py has one",
    "an older copy of its coordinator's log": "the same; tests/sources/test_logdir_consistency.py",
    "an epoch is missing": "all answers of the model have one",
    "not described": "no right hides one id alone from DescribeTransactions",
    "PrepareEpochFence": "a coordinator never logs or shows it", "PrepareEpochFence for long": "the same",
    "it has ended meanwhile": "more than three steps between two requests; tests/analysis/test_rules.py has it",
    "its commit is decided and the marker on the way": "the same",
    "its abort is decided and the marker on the way": "the same",
    "overdue, fenced by the last epoch": "no world has so many epochs; tests/actions/test_last_epoch.py has it",
    "overdue, fenced by the last epoch, perhaps over committed records": "the same; tests/analysis/test_rules.py",
    "pre-committed by a checkpoint of Flink, over aborted records": "the same",
    "pre-committed by a checkpoint of Flink": "the model has no checkpoint; tests/actions/test_commit.py has one",
    "to be committed by a checkpoint of Flink": "the same; tests/analysis/test_flink_checkpoint_rules.py",
}  # fmt: skip
"""Rules that no state of the model reaches, and why."""

MEANWHILE = ("a marker that is replicated late", "a dead epoch under a live transaction")


@pytest.fixture(autouse=True)
def _controlled() -> Iterator[None]:
    with controlled():
        yield


def check(report: Report) -> None:
    """Nothing is violated but known limits."""
    assert not report.violations, "\n".join(
        f"{violation.rule}: {violation.how}\n    " + "\n    ".join(trace)
        for violation, trace in report.violations.items()
    )


@pytest.fixture(scope="module")
def explored() -> Report:
    """The first states of every world."""
    with controlled():
        small = [explore_states(world, limit=30) for world in SMALL]
        behind = [explore_states(world, limit=5) for world in BEHIND]
        staged = [explore_states(world, limit=12) for world in (*STAGED, *RACES)]
        return merged([*small, *behind, *staged], "all worlds")


def test_no_state_has_a_wrong_finding(explored: Report) -> None:
    check(explored)
    assert explored.states > 2_500
    assert explored.runs > 2_000


def test_each_verdict_is_reached(explored: Report) -> None:
    reached = {name.removeprefix("verdict: ") for name in explored.witnesses if name.startswith("verdict: ")}
    assert reached == VERDICTS


def test_each_rule_is_reached(explored: Report) -> None:
    rules = {rule.name for rule in (*OWNED_RULES, *DISOWNED_RULES)} | {rule.name for rule in PARTITION_RULES}
    races = (explore_races(world_of(name), steps=2, limit=1, of_each=250) for name in MEANWHILE)
    witnesses = merged([explored, *races], "with races").witnesses
    reached = {name.removeprefix("rule: ") for name in witnesses if name.startswith("rule: ")}
    assert rules - reached - UNREACHED.keys() == set()


@pytest.mark.longer
@pytest.mark.parametrize("world", RACES, ids=lambda world: world.name)
def test_nothing_that_happens_between_our_requests_makes_a_wrong_finding(world: World) -> None:
    check(explore_races(world, steps=int(amount(1, full=2)), limit=1, of_each=int(amount(200, full=600))))


@pytest.mark.parametrize("world", PROVABLE, ids=lambda world: world.name)
def test_what_is_proven_is_not_unknown(world: World) -> None:
    rows = run(world, world.start, diagnose).result
    (found,) = [(row["verdict"], row["action"]) for row in rows if row["start_offset"] is not None]
    assert found == PROVABLE[world]


def test_a_lost_record_of_the_coordinators_log_is_known_for_version_1_only() -> None:
    """A known limit is found: no partition shows what the log has lost."""
    name = "K3: a commit returned success, without p1, version"
    first, second = (explore_states(world_of(f"{name} {version}"), limit=15) for version in (1, 2))
    check(merged([first, second], name))
    assert {each.how.partition(":")[0] for each in first.known} == {"promised by version 1"}
    assert not second.known


WRITTEN = (
    "a late batch", "a partition that was never added", "a lost ABORT", "a lost COMMIT, version 2",
    "a commit that a broker's time proves", "a zombie that is younger than an earlier commit whose marker is gone",
    "two commits without their markers, version 2",
)  # fmt: skip


@pytest.mark.longer
@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_that_happens_between_our_requests_makes_a_wrong_marker(name: str) -> None:
    limit, of_each = int(amount(2, full=4)), int(amount(80, full=200))
    check(explore_actions(world_of(name), steps=2, limit=limit, of_each=of_each))


def test_a_fence_ends_what_was_planned() -> None:
    """A known limit is found: a producer that goes on right before InitProducerId."""
    report = explore_fences(world_of("an overdue transaction"), steps=3, limit=1, of_each=1200)
    check(report)
    assert report.verdicts["done",]


@pytest.mark.parametrize("world", [each for each in KINDS if "K4" in each.name], ids=lambda world: world.name)
def test_no_fence_is_planned_for_a_transaction_within_its_timeout(world: World) -> None:
    check(explore_fences(world, steps=1, limit=15, of_each=50))


def test_a_producer_of_version_1_can_begin_again_right_before_the_marker() -> None:
    """A known limit: WriteTxnMarkers has no condition but the epoch, which stays the same."""
    report = explore_actions(world_of("a partition that was never added"), steps=2, limit=2, of_each=200)
    check(report)
    (trace,) = report.known.values()
    assert "p1 added" in trace[-1]
    assert trace[-1].endswith("p1 produced")


@pytest.mark.longer
def test_random_walks_end_in_no_wrong_marker() -> None:
    sitting = Sitting(seed=seed() or "one", seconds=amount(3, full=5))
    walks.run(sitting)
    assert not sitting.problems, "\n".join(sitting.problems)
    assert sitting.counts["attempts to abort or complete"]


@pytest.mark.full
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_larger_worlds(world: World) -> None:
    check(explore_states(replace(world, records=4), limit=int(amount(0, full=200))))


@pytest.mark.full
@pytest.mark.parametrize("worlds", [BEHIND, STAGED], ids=["behind", "staged"])
def test_more_states_behind_incidents(worlds: Sequence[World]) -> None:
    check(merged((explore_states(each, limit=int(amount(0, full=8))) for each in worlds), "behind incidents"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guard)
def test_without_a_guard_something_is_wrong(mutant: Mutant) -> None:
    assert hunt(mutant).violations
