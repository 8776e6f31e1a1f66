"""What is true in a state, by its ghosts: who owns each open record, and what was decided about it."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from tests.exploration.leaders import entry_of
from tests.exploration.state import NOBODY, Client, Meta, Record, State, open_records, written
from tests.exploration.world import World


class Fate(Enum):
    """What a coordinator will do about an open record, or has decided about it."""

    LIVE = "live"  # its transaction is Ongoing
    COMMITTING = "committing"  # decided, and its marker will be written
    ABORTING = "aborting"
    COMMITTED = "committed"  # decided, and no marker will be written
    ABORTED = "aborted"
    PROMISED = "promised"  # its client was told that it is committed; the coordinator's log has lost that
    HELD = "live for its client"  # which goes on and may commit it; the coordinator's log has lost it
    ORPHAN = "orphan"  # part of no transaction


OWNED = {Fate.LIVE, Fate.COMMITTING, Fate.ABORTING}
ABORTABLE = {Fate.ORPHAN, Fate.ABORTED}
COMMITTABLE = {Fate.COMMITTED, Fate.COMMITTING, Fate.PROMISED}


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


@lru_cache(maxsize=100_000)
def fates(state: State, number: int, pid: int) -> tuple[tuple[Record, Fate], ...]:
    """The fate of each open record of a producer on a partition, in order."""
    return tuple((record, _fate(state, number, record)) for record in open_records(state.partitions[number].log, pid))


def _fate(state: State, number: int, record: Record) -> Fate:
    for _, meta in current_metas(state) if record.ctxn != NOBODY else ():
        if meta.ctxn == record.ctxn and number in meta.partitions:
            if meta.state == "Ongoing":
                return Fate.LIVE
            if meta.state.startswith("Prepare"):
                return Fate.COMMITTING if meta.state == "PrepareCommit" else Fate.ABORTING
    truth = None if record.ctxn == NOBODY else state.truths[record.ctxn]
    if truth is not None and truth.decision and number in truth.partitions:
        return Fate.COMMITTED if truth.decision == "commit" else Fate.ABORTED
    name = written(number, record)
    if name in state.promised:
        return Fate.PROMISED
    return Fate.HELD if any(name in c.acknowledged and _may_commit(state, c) for c in state.clients) else Fate.ORPHAN


def _may_commit(state: State, client: Client) -> bool:
    """Whether its commit would return success (TransactionCoordinator.endTransaction)."""
    meta = dict(current_metas(state)).get(client.id)
    if client.phase != "open" or client.failed or meta is None or meta.fencing:
        return False
    states = {"Ongoing"} if client.version == 2 else {"Ongoing", "CompleteCommit"}
    return (meta.pid, meta.epoch) == (client.pid, client.epoch) and meta.state in states


def abort_harm(state: State, number: int, pid: int) -> str:
    """What an abort marker would do wrong; empty if nothing."""
    return _harm(state, number, pid, set(Fate) - ABORTABLE)


def commit_harm(state: State, number: int, pid: int) -> str:
    """What a COMMIT marker would do wrong; empty if nothing."""
    return _harm(state, number, pid, set(Fate) - COMMITTABLE)


def _harm(state: State, number: int, pid: int, harmed: set[Fate]) -> str:
    found = {_text(state, record, fate) for record, fate in fates(state, number, pid) if fate in harmed}
    return ", ".join(sorted(found))


def _text(state: State, record: Record, fate: Fate) -> str:
    if fate not in {Fate.PROMISED, Fate.HELD}:
        return str(fate.value)
    is_version_2 = any((t.pid, t.epoch, t.version) == (record.pid, record.epoch, 2) for t in state.truths)
    return f"{fate.value} by version {2 if is_version_2 else 1}"


def fence_harm(world: World, state: State, id_: int) -> str:
    """What the fence of an id would end, though it is within its timeout; empty if nothing."""
    meta = dict(current_metas(state)).get(id_)
    if meta is None or meta.state != "Ongoing" or meta.fencing:
        return ""
    return "live" if world.now(state) - state.truths[meta.ctxn].began <= world.timeout_ms else ""


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
