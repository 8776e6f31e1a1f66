"""The small worlds that are explored, each with what is rare in it."""

from __future__ import annotations

from dataclasses import replace

from tests.exploration.world import World

__all__ = ["SMALL", "WORLDS", "world_of"]

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
    World(name="brokers that do not answer", rare={"late": 1, "silent": 1}, transactions=1),
    World(name="two-phase commit", rare={"tick": 1, "late": 1}, timeout_ms=TWO_PHASE_COMMIT, transactions=1),
    World(name="long transactions", rare={"tick": 1}, timeout_ms=HOUR_MS, transactions=1),
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
    World(name="coordinators that move, version 2", version=2, rare={"failover": 1, "stale": 1, "late": 1}, transactions=1),
)
SMALL = tuple(replace(world, records=2) for world in WORLDS)
"""The same with fewer records."""


def world_of(name: str) -> World:
    """The world of this name."""
    return next(world for world in WORLDS if world.name == name)
