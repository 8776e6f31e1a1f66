"""What is true in a state, by its ghosts: who owns open records, and what was decided about them."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from tests.exploration.leaders import entry_of
from tests.exploration.state import NOBODY, Meta, Record, State, open_records, written
from tests.exploration.world import World


class Fate(Enum):
    """What a coordinator will do about an open record, or has decided about it."""

    LIVE = "live"  # its transaction is Ongoing
    COMMITTING = "committing"  # decided, and its marker will be written
    ABORTING = "aborting"
    COMMITTED = "committed"  # decided, and no marker will be written
    ABORTED = "aborted"
    ORPHAN = "orphan"  # part of no transaction that a coordinator knows


OWNED = {Fate.LIVE, Fate.COMMITTING, Fate.ABORTING}


@lru_cache(maxsize=100_000)
def current_metas(state: State) -> tuple[tuple[int, Meta], ...]:
    """What each coordinator has, or will have once it has loaded."""
    found: dict[int, Meta] = {}
    for coordinator in state.coordinators:
        if coordinator.phase == "loaded":
            found |= dict(coordinator.cache)
        else:
            newest = {record.id: record.meta for record in coordinator.log}
            found |= {id_: meta for id_, meta in newest.items() if meta is not None}
    return tuple(found.items())


def open_transactions(state: State) -> list[tuple[int, int]]:
    """(partition, producer id) of everything that is open."""
    return [
        (number, pid)
        for number, partition in enumerate(state.partitions)
        for pid in sorted({record.pid for record in partition.log})
        if (entry := entry_of(partition, pid)) is not None and entry.start >= 0
    ]


def fates(state: State, number: int, pid: int) -> dict[Record, Fate]:
    """The fate of each open record of a producer on a partition."""
    return {record: _fate(state, number, record) for record in open_records(state.partitions[number].log, pid)}


def _fate(state: State, number: int, record: Record) -> Fate:
    if record.ctxn == NOBODY:
        return Fate.ORPHAN
    for _, meta in current_metas(state):
        if meta.ctxn == record.ctxn and number in meta.partitions:
            if meta.state == "Ongoing":
                return Fate.LIVE
            if meta.state.startswith("Prepare"):
                return Fate.COMMITTING if meta.state == "PrepareCommit" else Fate.ABORTING
    truth = state.truths[record.ctxn]
    if truth.decision and number in truth.partitions:
        return Fate.COMMITTED if truth.decision == "commit" else Fate.ABORTED
    return Fate.ORPHAN


def abort_harm(state: State, number: int, pid: int) -> str:
    """What an abort marker would do wrong; empty if nothing."""
    found = fates(state, number, pid)
    for fate in (Fate.COMMITTED, Fate.COMMITTING, Fate.LIVE, Fate.ABORTING):
        if fate in found.values():
            return str(fate.value)
    if any(written(number, record) in state.promised - state.lost for record in found):
        return "promised"
    return ""


def commit_harm(state: State, number: int, pid: int) -> str:
    """What a COMMIT marker would do wrong; empty if nothing."""
    found = set(fates(state, number, pid).values()) - {Fate.COMMITTED, Fate.COMMITTING}
    return ", ".join(sorted(fate.value for fate in found))


def is_quiet(world: World, state: State) -> bool:
    """Whether no coordinator, leader or broker will change anything by itself, and all answer."""
    if state.silent or any(coordinator.phase != "loaded" or coordinator.former for coordinator in state.coordinators):
        return False
    if any(p.leader == NOBODY or p.former or p.high_watermark < len(p.log) for p in state.partitions):
        return False
    if state.known != state.leaders:
        return False
    return not any(
        meta.fencing or (meta.state.startswith("Prepare") and not meta.given_up) for _, meta in current_metas(state)
    )
