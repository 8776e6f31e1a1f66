"""The small worlds that are explored, each with what is rare in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.exploration.world import World

BEGIN = ("a new instance of id 0", "client 0 p0 added", "client 0 p0 produced")
NEXT = BEGIN[1:]


def marked(decision: str, *partitions: int) -> tuple[str, ...]:
    """The markers of id 0, and its completion."""
    return (*(f"id 0 {decision} marker p{number} is written" for number in partitions), "id 0 completes")


def skipped(decision: str) -> tuple[str, ...]:
    """The end of a transaction whose marker is skipped; its partition comes back after it."""
    return ("p0 is offline", f"id 0 {decision} marker p0 is skipped", "id 0 completes", "p0 is online")


COMMITS, ABORTS = ("client 0 commits", *marked("COMMIT", 0)), ("client 0 aborts", *marked("ABORT", 0))
COMMITTED, ABORTED = (*BEGIN, *COMMITS), (*BEGIN, *ABORTS)
LOST_COMMIT, LOST_ABORT = (*COMMITTED, "p0 loses its newest record"), (*ABORTED, "p0 loses its newest record")
SKIPPED, SKIPPED_TOO = ("client 0 commits", *skipped("COMMIT")), ("client 0 aborts", *skipped("ABORT"))
LATE = (*BEGIN[:2], "client 0 p0 Produce is delayed", *ABORTS, "the delayed produce arrives")
LATE_AFTER_COMMIT = (*BEGIN, "client 0 p0 Produce is delayed", *COMMITS, "the delayed produce arrives")
PROVEN_COMMIT = (*BEGIN, "another producer's marker p0", *COMMITS, "p0 loses its newest record")
NEVER_ADDED = (*BEGIN[:2], "client 0 p1 produced")
LOST_SECOND = (*COMMITTED, *NEXT, *COMMITS, "p0 loses its newest record")


def version_2(steps: tuple[str, ...]) -> tuple[str, ...]:
    """The same steps of a client that adds no partitions."""
    return tuple(step for step in steps if not step.endswith(" added"))


def reloaded(step: str) -> tuple[str, ...]:
    """What happens to the coordinator and its log, and that it has loaded again."""
    return (f"coordinator 0 {step}", "coordinator 0 loads", "coordinator 0 has loaded")


ON_P1 = ("client 0 p1 added", "client 0 p1 produced")
ON_BOTH = (*BEGIN, *ON_P1)
TWO_PHASE_COMMIT = 2**31 - 1
HOUR_MS, TEN_YEARS_MS = 3_600_000, 10 * 365 * 86_400_000

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
    World(name="late InitProducerId", rare={"late": 1, "late_init": 1, "unclean": 1, "compact": 1}, transactions=3),
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
    World(name="coordinators that move, version 2", version=2, rare={"failover": 1, "stale": 1, "late": 1},
        transactions=1),
    World(name="zombies", rare={"zombie": 1, "unclean": 1}, tail=2),
    World(name="zombies, verified", rare={"zombie": 1, "unclean": 1}, tail=2, verification=True),
    World(name="zombies among others, LogAppendTime", rare={"zombie": 1, "unclean": 1, "other": 1}, append_time=True),
    World(name="an instance that changes its version", rare={"switch": 2, "unclean": 1}, tail=3, verification=True),
    World(name="version 2, then 1", version=2, rare={"switch": 2, "unclean": 1}, tail=3, verification=True),
    World(name="an upgrade", rare={"upgrade": 1, "unclean": 1, "zombie": 1}, instances=2, verification=True),
    World(name="a downgrade", version=2, rare={"upgrade": 1, "unclean": 1, "zombie": 1}, instances=2),
    World(name="topics that are created again", rare={"recreate": 1, "zombie": 1, "other": 1}),
    World(name="topics that are created again, version 2", version=2, rare={"recreate": 1}, event_ms=(-55_000, 0)),
    World(name="restored coordinators", rare={"restore": 1, "twice": 1}, ids=2, instances=2),
    World(name="restored coordinators, version 2", version=2, rare={"restore": 1, "twice": 1}, ids=2, instances=2),
)  # fmt: skip

INCIDENTS = {
    "a lost COMMIT": (LOST_COMMIT, {"unclean": 1}), "a lost ABORT": (LOST_ABORT, {"unclean": 1}),
    "a skipped COMMIT": ((*BEGIN, *SKIPPED[:-1]), {"offline": 1}),
    "a skipped ABORT": ((*BEGIN, *SKIPPED_TOO[:-1]), {"offline": 1}),
    "a lost second COMMIT": (LOST_SECOND, {"unclean": 1}), "a late batch": (LATE, {"late": 1}),
    "a late batch after a COMMIT": (LATE_AFTER_COMMIT, {"late": 1, "hasty": 1}),
    "a partition that was never added": (NEVER_ADDED, {"stray": 1}),
}  # fmt: skip
CLOCKS: dict[str, dict[str, Any]] = {
    "": {},
    ", at once": {"pace_ms": 1},
    ", a clock ahead": {"pace_ms": 1, "skew_ms": 4_000},
}
CLOCKS |= {", a clock behind": {"pace_ms": 1, "skew_ms": -4_000}, ", slow and a clock ahead": {"skew_ms": 4_000}}
CLOCKS |= {", a coordinator ahead": {"pace_ms": 1_000, "skew_ms": 4_000, "first_coordinator": 2}}
CLOCKS |= {", a coordinator behind": {"pace_ms": 1_000, "skew_ms": -4_000, "first_coordinator": 2}}
CLOCKS |= {", event times": {"event_ms": (-TEN_YEARS_MS, TEN_YEARS_MS)}}
CLOCKS |= {", LogAppendTime": {"append_time": True, "skew_ms": 4_000, "first_coordinator": 2}}


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


DAMAGED = {
    "live": BEGIN,
    "live on two partitions": ON_BOTH,
    "committed on two partitions": (*ON_BOTH, "client 0 commits", *marked("COMMIT", 0, 1),
        "p0 loses its newest record"),
    "never added": NEVER_ADDED,
    "a lost COMMIT": LOST_COMMIT,
    "a lost ABORT": LOST_ABORT,
}  # fmt: skip
DAMAGE: dict[str, dict[str, Any]] = {
    "zombies": {"rare": {"zombie": 1, "other": 1}},
    "zombies, verified": {"rare": {"zombie": 2}, "verification": True},
    "lost tails": {"rare": {"unclean": 2, "zombie": 1}, "tail": 3},
    "lost records of coordinators": {"rare": {"failover": 1, "lost_state": 1}, "tail": 3},
    "a restored coordinator": {"rare": {"restore": 1}},
    "ids given out twice": {"rare": {"restore": 1, "twice": 1}, "ids": 2, "instances": 2},
    "a topic created again": {"rare": {"recreate": 1, "zombie": 1}, "event_ms": (-55_000, -55_000)},
    "an upgrade": {"rare": {"upgrade": 1, "compact": 1}, "instances": 2},
    "a changed version": {"rare": {"switch": 2, "unclean": 2}, "tail": 3},
}


def _damaged() -> Iterator[World]:
    """Worlds behind incidents in which logs lose records, versions change, and zombies write."""
    for name, steps in DAMAGED.items():
        for damage, fields in DAMAGE.items():
            for version in (1, 2):
                if "zombies" in damage and (version == 2 or ("never" in name and "verified" in damage)):
                    continue  # the leader adds the partition, or refuses it
                if "never" in name and version == 2:
                    continue
                after = steps if version == 1 else version_2(steps)
                rare = {"stray": int("never" in name), "unclean": int("lost" in name or "committed" in name)}
                rare |= {kind: count + rare.get(kind, 0) for kind, count in fields["rare"].items()}
                bounds: dict[str, Any] = {**fields, "rare": rare, "version": version, "after": after, "records": 6}
                yield World(name=f"{name}, then {damage}, version {version}", transactions=3, **bounds)


MOVED = ("a new instance of id 0", *(f"coordinator 0 {step}" for step in ("moves", "loads", "has loaded")))
FORMER = (
    World(name="two coordinators", after=(*MOVED, "client 0 p0 added", "client 0 p0 produced"),
        rare={"failover": 1, "stale": 1}),
    World(name="a former coordinator alone",
        after=(*MOVED, "a new instance of id 0", "client 1 p0 added", "client 1 p0 produced",
            "broker 2 does not answer"), rare={"failover": 1, "stale": 1, "silent": 1}, instances=2),
    World(name="a newer epoch behind a lost COMMIT",
        after=(*LOST_COMMIT, "a new instance of id 0", "client 1 p1 added", "client 1 p0 produced"),
        rare={"unclean": 1, "stray": 1}, instances=2),
)  # fmt: skip
KINDS = (
    World(name="K1: another version's commits are no proof",
        after=(*(*ON_BOTH, "client 0 commits", *marked("COMMIT", 0, 1), "p0 loses its newest record", *ON_P1),
            *("a new instance of id 0 fences", "id 0 PrepareAbort of the fence is logged", *marked("ABORT", 1)),
            "a new instance of id 0 with version 2",
            *("client 1 p1 produced", "client 1 commits", *marked("COMMIT", 1)) * 2, "coordinator 0 log is compacted"),
        rare={"unclean": 1, "upgrade": 1, "compact": 1}, instances=2, transactions=5, records=9),
    World(name="K1: an epoch of both versions, compacted",
        after=(*(*LOST_ABORT, "client 0 changes to version 2", "client 0 p1 produced", "client 0 commits"),
            *(*marked("COMMIT", 1), "coordinator 0 log is compacted")),
        rare={"unclean": 1, "switch": 1, "compact": 1}, transactions=3),
    World(name="K1: version 2 aborted in the epoch of a commit that its log has lost",
        after=(*(BEGIN[0], "another producer's marker p0", *COMMITTED[1:], "p0 loses its newest 2 records"),
            *("client 0 changes to version 2", "client 0 p0 produced", *ABORTS), "p0 loses its newest record"),
        rare={"unclean": 2, "switch": 1, "other": 1}, tail=2, event_ms=(-55_000, -55_000), transactions=3),
    World(name="K1: an epoch of both versions",
        after=(*ABORTED, *("client 0 changes to version 2", "client 0 p0 produced", *COMMITS),
            "p0 loses its newest 3 records"), rare={"unclean": 1, "switch": 1}, tail=3, transactions=3),
    World(name="K1: an epoch of both versions, its commit first",
        after=(*COMMITTED, *("client 0 changes to version 2", "client 0 p0 produced", *ABORTS),
            "p0 loses its newest 3 records"), rare={"unclean": 1, "switch": 1}, tail=3, transactions=3),
    World(name="K1: versions 2, 1, 2", version=2,
        after=(*("a new instance of id 0", "client 0 p0 produced", *COMMITS),
            *("client 0 changes to version 1", *NEXT, *ABORTS),
            *("client 0 changes to version 2", "client 0 p0 produced", *COMMITS), "p0 loses its newest 3 records"),
        rare={"unclean": 1, "switch": 2}, tail=3, transactions=4, records=7),
    World(name="K1: an InitProducerId repeated after a commit, compacted",
        after=(*(*BEGIN[:2], "client 0 p0 Produce is delayed", *ABORTS),
            "client 0 raises its epoch, and its first InitProducerId is delayed",
            *(*NEXT, *COMMITS, "p0 loses its newest record", "the delayed init arrives"),
            "coordinator 0 log is compacted"), rare={"late": 1, "late_init": 1, "unclean": 1, "compact": 1},
        event_ms=(TEN_YEARS_MS, TEN_YEARS_MS), transactions=3),
    World(name="K2: a zombie joins a commit", after=(*LOST_COMMIT, "a zombie of client 0 writes p0"),
        rare={"unclean": 1, "zombie": 1}, verification=True, transactions=3),
    World(name="K2: a zombie joins a commit that a broker's time proves",
        after=(*PROVEN_COMMIT, "a zombie of client 0 writes p0"), rare={"unclean": 1, "zombie": 1, "other": 1},
        verification=True, transactions=3),
    World(name="K2: a commit and an abort under one marker, version 2", version=2,
        after=("a new instance of id 0", "client 0 p0 produced", *SKIPPED, "client 0 p0 produced", *SKIPPED_TOO),
        rare={"offline": 2}, transactions=3),
    World(name="K2: overdue over a commit that lacks its marker", after=(*LOST_COMMIT, *NEXT, "time passes"),
        rare={"unclean": 1, "tick": 1}, transactions=3),
    World(name="K3: a partition that cannot be read",
        after=(*(*ON_BOTH, "client 0 aborts", *marked("ABORT", 0, 1)),
            *("p0 loses its newest record", "p1 is offline")), rare={"unclean": 1, "offline": 1}),
    World(name="K2: an aborted record joins a commit",
        after=(*LOST_COMMIT, "client 0 p1 added", "client 0 p0 produced", "client 0 aborts", *marked("ABORT", 1)),
        rare={"unclean": 1, "stray": 1}, verification=True, transactions=3),
    World(name="K2: a zombie after a commit that its log has lost",
        after=(*COMMITTED, "p0 loses its newest 2 records", "another producer's marker p0",
            "a zombie of client 0 writes p0"), rare={"unclean": 1, "other": 1, "zombie": 1}, tail=2, transactions=2),
    World(name="K2: a zombie with an event time before a commit that its log has lost",
        after=(*(BEGIN[0], "another producer's marker p0", *COMMITTED[1:], "p0 loses its newest 2 records"),
            "a zombie of client 0 writes p0", "p0 moves"),
        rare={"unclean": 1, "other": 1, "zombie": 1, "move": 1}, tail=2, event_ms=(-45_000, 0)),
    World(name="K2: a zombie of version 2 after a commit whose topic was created again", version=2,
        after=(*version_2(COMMITTED), "p0 is created again", "a zombie of client 0 writes p0"),
        rare={"recreate": 1, "zombie of version 2": 1}, transactions=2),
    World(name="K2: a live record with an event time before an earlier commit",
        after=(*COMMITTED, "p0 is created again", *NEXT), rare={"recreate": 1}, event_ms=(-55_000, -55_000),
        transactions=3),
    World(name="K2: an aborted record with an event time before an earlier commit",
        after=(*COMMITTED, "p0 is created again", *NEXT, *ABORTS, "p0 loses its newest record"),
        rare={"recreate": 1, "unclean": 1}, event_ms=(-55_000, -55_000), transactions=3),
    *(World(name=f"K3: the coordinators' log has lost the record that added p1, version {version}", version=version,
            after=steps if version == 1 else version_2(steps), rare={"failover": 1, "lost_state": 1})
        for version in (1, 2) for steps in [(*ON_BOTH, *reloaded("moves and loses its newest record"))]),
    *(World(name=f"K3: a commit returned success, without p1, version {version}", version=version,
            after=steps if version == 1 else version_2(steps), rare={"failover": 1, "lost_state": 1})
        for version in (1, 2) for steps in [(*ON_BOTH, *reloaded("moves and loses its newest record"), *COMMITS)]),
    World(name="K3: a commit returned success by an earlier one",
        after=(*COMMITTED, *NEXT, *reloaded("moves and loses its newest record"), "client 0 commits"),
        rare={"failover": 1, "lost_state": 1}),
    World(name="K3: the end of a commit is lost, and what came after it",
        after=(*(*COMMITTED, "client 0 p0 added", *ON_P1),
            *(*reloaded("is restored without its newest 3 records"), *marked("COMMIT", 0))), rare={"restore": 1}),
    World(name="K3: version 2, a commit is lost with all that came after it", version=2,
        after=(*(*version_2(LOST_COMMIT), "client 0 p1 produced"),
            *reloaded("is restored without its newest 4 records")), rare={"restore": 1, "unclean": 1}),
    *(World(name=f"K3: a COMMIT marker on p1 that no decision explains, version {version}", version=version,
            after=steps if version == 1 else version_2(steps), rare={"restore": 1}) for version in (1, 2)
        for steps in [(*(*ON_BOTH, "client 0 commits", "id 0 COMMIT marker p1 is written"),
                *reloaded("is restored without its newest 3 records"))]),
    World(name="K3: a COMMIT marker on p1, whose leader has forgotten the producer", forgets=True,
        after=(*(*ON_BOTH, "client 0 commits", *marked("COMMIT", 0, 1)),
            *(*NEXT, *ON_P1, "client 0 commits", "id 0 COMMIT marker p1 is written"),
            *reloaded("is restored without its newest 3 records")), rare={"restore": 1}, transactions=3, records=6),
    World(name="K3: an id given out twice",
        after=(*LOST_COMMIT, "id 0 expires", "producer ids are given out again", "a new instance of id 1"),
        rare={"unclean": 1, "expire": 1, "twice": 1}, event_ms=(TEN_YEARS_MS, TEN_YEARS_MS), ids=2, instances=2),
    World(name="K3: an id given out twice after a restore",
        after=(*(*LOST_COMMIT, *reloaded("is restored without its newest 4 records")),
            *("producer ids are given out again", "a new instance of id 1")),
        rare={"unclean": 1, "restore": 1, "twice": 1}, ids=2, instances=2),
    *(World(name=f"K4: our machine's clock is {text}", after=BEGIN, operator_ms=ahead, timeout_ms=600_000)
        for text, ahead in (("ahead", HOUR_MS), ("behind", -HOUR_MS), ("years ahead", TEN_YEARS_MS))),
    *(World(name=f"K5: a coordinator's clock {skew_ms / 1000:+.0f} s apart, {pace_ms} ms between its records",
            after=(*COMMITTED, *COMMITTED[1:] * 3, "p0 loses its newest record"), rare={"unclean": 1},
            pace_ms=pace_ms, skew_ms=skew_ms, first_coordinator=2, transactions=5, records=10)
        for seconds, paces in ((6, (300, 900)), (12, (1_700, 2_000)), (60, (10_000,)))
        for skew_ms in (1_000 * seconds, -1_000 * seconds) for pace_ms in paces),
)  # fmt: skip
"""The kinds of losses of November 2026, by their numbers in issue 38."""
PROVABLE = {
    World(name="a commit that a broker's time proves", after=PROVEN_COMMIT, rare={"unclean": 1, "other": 1}):
        ("stuck_ending", "complete"),
    World(name="a commit that LogAppendTime proves", after=LOST_COMMIT, rare={"unclean": 1}, append_time=True):
        ("stuck_ending", "complete"),
    World(name="a zombie that is younger than an earlier commit whose marker is gone",
        after=(*COMMITTED, "p0 is created again", "another producer's marker p0", "a zombie of client 0 writes p0"),
        rare={"recreate": 1, "other": 1, "zombie": 1}, transactions=2): ("hanging", "abort"),
    World(name="two commits without their markers, version 2", version=2,
        after=("a new instance of id 0", *("client 0 p0 produced", *SKIPPED) * 2), rare={"offline": 2},
        transactions=3): ("stuck_ending", "complete"),
    World(name="a commit and an abort without their markers, version 2", version=2,
        after=("a new instance of id 0", "client 0 p0 produced", *SKIPPED, "client 0 p0 produced", *SKIPPED_TOO,
            "p0 loses its newest record"), rare={"offline": 2, "unclean": 1}, transactions=3):
        ("stuck_ending", "complete"),
}  # fmt: skip
"""Worlds whose first state has a proof, with the verdict and the action that it allows: `unknown` would be false."""
RACES = (
    World(name="a live transaction", after=BEGIN),
    World(name="a commit that is being written", after=(*BEGIN, "client 0 commits")),
    World(name="an abort that is being written", after=(*BEGIN, "client 0 aborts")),
    World(name="a fence that is being written", after=(*BEGIN, "a new instance of id 0 fences"), instances=2),
    World(name="a coordinator that moves", after=BEGIN, rare={"failover": 1, "stale": 1}),
    World(name="an overdue transaction", after=(*BEGIN, "time passes"), rare={"tick": 1}),
    World(name="a marker that is replicated late", after=(*BEGIN, "client 0 commits"), rare={"lag": 1}),
    World(name="a dead epoch under a live transaction",
        after=(*LATE, "client 0 raises its epoch", "client 0 p0 added"), rare={"late": 1}),
    World(name="a live transaction, version 2", after=version_2(BEGIN), version=2),
    World(name="a commit that is being written, version 2", after=(*version_2(BEGIN), "client 0 commits"), version=2),
)  # fmt: skip
BEHIND = (*_behind(), *_damaged())
STAGED = (*FORMER, *KINDS, *PROVABLE)
SMALL = tuple(replace(world, records=2) for world in WORLDS)
"""The same with fewer records."""


def world_of(name: str) -> World:
    """The world of this name."""
    return next(world for world in (*WORLDS, *BEHIND, *STAGED, *RACES) if world.name == name)
