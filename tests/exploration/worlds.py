"""The small worlds that are explored, each with what is rare in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.exploration.world import World

BEGIN = ("a new instance of id 0", "client 0 p0 added", "client 0 p0 produced")
COMMITTED = (*BEGIN, "client 0 commits", "id 0 COMMIT marker p0 is written", "id 0 completes")
ABORTED = (*BEGIN, "client 0 aborts", "id 0 ABORT marker p0 is written", "id 0 completes")
LOST_COMMIT, LOST_ABORT = (*COMMITTED, "p0 loses its newest record"), (*ABORTED, "p0 loses its newest record")
SKIPPED_COMMIT = (*BEGIN, "client 0 commits", "p0 is offline", "id 0 COMMIT marker p0 is skipped", "id 0 completes")
SKIPPED_ABORT = (*BEGIN, "client 0 aborts", "p0 is offline", "id 0 ABORT marker p0 is skipped", "id 0 completes")
LATE = (
    *BEGIN[:2],
    "client 0 p0 Produce is delayed",
    "client 0 aborts",
    "id 0 ABORT marker p0 is written",
    "id 0 completes",
    "the delayed produce arrives",
)
LATE_AFTER_COMMIT = (
    *BEGIN,
    "client 0 p0 Produce is delayed",
    "client 0 commits",
    "id 0 COMMIT marker p0 is written",
    "id 0 completes",
    "the delayed produce arrives",
)
NEVER_ADDED = (*BEGIN[:2], "client 0 p1 produced")
TWO_COMMITS = (*COMMITTED, *(step for step in COMMITTED if step != "a new instance of id 0"))
LOST_SECOND = (*TWO_COMMITS, "p0 loses its newest record")


def version_2(steps: tuple[str, ...]) -> tuple[str, ...]:
    """The same steps of a client that adds no partitions."""
    return tuple(step for step in steps if not step.endswith(" added"))


TWO_PHASE_COMMIT = 2**31 - 1
HOUR_MS = 3_600_000

WORLDS = (
    World(name="late batches", rare={"late": 1}),
    World(name="late batches, hasty clients", rare={"late": 1, "hasty": 1}),
    World(name="late batches of old clients", rare={"late": 1}, bumps=False),
    World(name="late batches, verified", rare={"late": 1}, verification=True),
    World(name="late batches and new instances", rare={"late": 1}, instances=2),
    World(name="late batches and timeouts", rare={"late": 1, "tick": 1}, transactions=1),
    World(name="late batches and expired ids", rare={"late": 1, "expire": 1}, instances=2, transactions=1),
    World(name="late batches and rotated producer ids", rare={"late": 1}, instances=2, max_epoch=0),
    World(name="late EndTxn", rare={"late_end": 1}),
    World(name="late markers", rare={"late_marker": 1}),
    World(name="partitions that are never added", rare={"stray": 1}),
    World(name="skipped markers", rare={"offline": 1}),
    World(name="skipped markers and new instances", rare={"offline": 1}, instances=2),
    World(name="skipped markers and expired ids", rare={"offline": 1, "expire": 1}, instances=2, transactions=1),
    World(name="lost markers", rare={"unclean": 1}),
    World(name="lost markers and a compacted log", rare={"unclean": 1, "compact": 1}),
    World(name="lost markers and two producers", rare={"unclean": 1}, ids=2, state_partitions=2, instances=2),
    World(name="markers that are not replicated", rare={"lag": 1}, transactions=1),
    World(name="coordinators that move", rare={"late": 1, "failover": 1}, transactions=1),
    World(name="coordinators that move unnoticed", rare={"late": 1, "failover": 1, "stale": 1}, transactions=1),
    World(name="coordinators that lose records", rare={"failover": 1, "lost_state": 1}, transactions=1),
    World(name="leaders that move unnoticed", rare={"move": 1, "stale": 1}, transactions=1),
    World(name="brokers that do not answer", rare={"late": 1, "silent": 1}, transactions=1, first_coordinator=2),
    World(name="two-phase commit", rare={"tick": 1, "late": 1}, timeout_ms=TWO_PHASE_COMMIT, transactions=1),
    World(name="long transactions", rare={"tick": 1}, timeout_ms=HOUR_MS, pace_ms=1, transactions=1),
    World(name="an authorizer that allows all", rare={"late": 1}, rights="full", transactions=1),
    World(name="hidden ids", rare={"late": 1}, rights="hidden", transactions=1),
    World(name="hidden ids, the log is read", rare={"late": 1}, rights="reads_log", transactions=1),
    World(name="an id that is hidden", rare={"late": 1}, rights="partly_hidden", transactions=1),
    World(name="late batches, version 2", version=2, rare={"late": 1}, instances=2),
    World(name="late EndTxn, version 2", version=2, rare={"late_end": 1}),
    World(name="skipped markers, version 2", version=2, rare={"offline": 1}, instances=2),
    World(name="lost markers, version 2", version=2, rare={"unclean": 1}, transactions=3),
    World(name="rotated producer ids, version 2", version=2, rare={"offline": 1}, max_epoch=0),
    World(name="timeouts, version 2", version=2, rare={"tick": 1, "offline": 1}, transactions=1),
    World(
        name="coordinators that move, version 2", version=2, rare={"failover": 1, "stale": 1, "late": 1}, transactions=1
    ),
)

INCIDENTS = {
    "a lost COMMIT": (LOST_COMMIT, {"unclean": 1}),
    "a lost ABORT": (LOST_ABORT, {"unclean": 1}),
    "a skipped COMMIT": (SKIPPED_COMMIT, {"offline": 1}),
    "a skipped ABORT": (SKIPPED_ABORT, {"offline": 1}),
    "a lost second COMMIT": (LOST_SECOND, {"unclean": 1}),
    "a late batch": (LATE, {"late": 1}),
    "a late batch after a COMMIT": (LATE_AFTER_COMMIT, {"late": 1, "hasty": 1}),
    "a partition that was never added": (NEVER_ADDED, {"stray": 1}),
}
CLOCKS = {"": {}, ", at once": {"pace_ms": 1}, ", a clock ahead": {"pace_ms": 1, "skew_ms": 4_000}}
CLOCKS |= {", a clock behind": {"pace_ms": 1, "skew_ms": -4_000}, ", slow and a clock ahead": {"skew_ms": 4_000}}


def _behind() -> Iterator[World]:
    """Worlds behind each incident: what the producer, a new instance or the coordinators' log do then."""
    for name, (steps, rare) in INCIDENTS.items():
        transactions = 2 + (name == "a lost second COMMIT")
        for clock, fields in CLOCKS.items():
            bounds: dict[str, Any] = {"transactions": transactions, "records": 4, **fields}
            yield World(name=f"{name}{clock}", after=steps, rare=rare, **bounds)
        for more in ({"expire": 1}, {"compact": 1}, {"failover": 1, "stale": 1}, {"tick": 1}):
            bounds = {"transactions": 2 if "expire" not in more else transactions - 1, "records": 4, "instances": 2}
            yield World(name=f"{name}, then {' '.join(more)}", after=steps, rare=rare | more, **bounds)
        if "added" in name or "late" in name:
            continue  # the leader refuses it
        bounds = {"version": 2, "transactions": 2 + transactions, "records": 4}
        yield World(name=f"{name}, version 2", after=version_2(steps), rare=rare, **bounds)
        for more in ({"expire": 1}, {"compact": 1}):
            name_2 = f"{name}, version 2, then {' '.join(more)}"
            yield World(name=name_2, after=version_2(steps), rare=rare | more, instances=2, **bounds)


MOVED = ("a new instance of id 0", *(f"coordinator 0 {step}" for step in ("moves", "loads", "has loaded")))
STAGED = (
    World(
        name="two coordinators",
        after=(*MOVED, "client 0 p0 added", "client 0 p0 produced"),
        rare={"failover": 1, "stale": 1},
    ),
    World(
        name="a former coordinator alone",
        after=(
            *MOVED,
            "a new instance of id 0",
            "client 1 p0 added",
            "client 1 p0 produced",
            "broker 2 does not answer",
        ),
        rare={"failover": 1, "stale": 1, "silent": 1},
        instances=2,
    ),
    World(
        name="a newer epoch behind a lost COMMIT",
        after=(*LOST_COMMIT, "a new instance of id 0", "client 1 p1 added", "client 1 p0 produced"),
        rare={"unclean": 1, "stray": 1},
        instances=2,
    ),
)
RACES = (
    World(name="a live transaction", after=BEGIN),
    World(name="a commit that is being written", after=(*BEGIN, "client 0 commits")),
    World(name="an abort that is being written", after=(*BEGIN, "client 0 aborts")),
    World(name="a fence that is being written", after=(*BEGIN, "a new instance of id 0 fences"), instances=2),
    World(name="a coordinator that moves", after=BEGIN, rare={"failover": 1, "stale": 1}),
    World(name="an overdue transaction", after=(*BEGIN, "time passes"), rare={"tick": 1}),
    World(name="a marker that is replicated late", after=(*BEGIN, "client 0 commits"), rare={"lag": 1}),
    World(
        name="a dead epoch under a live transaction",
        after=(*LATE, "client 0 raises its epoch", "client 0 p0 added"),
        rare={"late": 1},
    ),
    World(name="a live transaction, version 2", after=version_2(BEGIN), version=2),
    World(name="a commit that is being written, version 2", after=(*version_2(BEGIN), "client 0 commits"), version=2),
)
BEHIND = tuple(_behind())
SMALL = tuple(replace(world, records=2) for world in WORLDS)
"""The same with fewer records."""


def world_of(name: str) -> World:
    """The world of this name."""
    return next(world for world in (*WORLDS, *BEHIND, *STAGED, *RACES) if world.name == name)
