"""What has to hold for every finding and every action, judged by the ghosts of the states."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from tests.exploration.explore import Run
from tests.exploration.leaders import entry_of
from tests.exploration.procedures import is_to_abort
from tests.exploration.server import names
from tests.exploration.state import Meta, Record, State
from tests.exploration.truth import (
    ABORTABLE,
    COMMITTABLE,
    OWNED,
    Fate,
    abort_harm,
    commit_harm,
    current_metas,
    fates,
    fence_harm,
    is_quiet,
    open_transactions,
)
from tests.exploration.world import World
from toolkit.schema import Row

CLOCKS_DIFFER_MS = 5_000  # up to which our code does not trust the order of times of two brokers
LIVE = {"ongoing", "long", "overdue", "prepared"}
DAMAGE = {"lost_state", "restore", "twice", "recreate"}  # which leave less than a proof
AFTER_THE_LAST_CHECK = "a marker that is written, right at the last request before it"
FENCE_AFTER_THE_LAST_CHECK = "a fence that is sent, after the last check"


class Violation(NamedTuple):
    """A property that does not hold, and how: the same way of failing has the same one."""

    rule: str
    how: str


def judge_findings(
    world: World, state: State, rows: Iterable[Row], during: Iterable[State] = ()
) -> Iterator[Violation]:
    """Whether findings are right.

    Parameters
    ----------
    state
        In which they were made, if nothing happened meanwhile.
    during
        All states in which they were made, if something did: what was right in one of them counts as right.
    """
    rows = list(rows)
    states = list(during) or [state]
    for row in rows:
        for rule, harm in _harms(world, row):
            harms = [harm(each) for each in states]
            if all(harms):
                yield Violation(rule, f"{harms[-1]}: {_short(row)}")
    if not during and is_quiet(world, state) and "hidden" not in world.rights:
        yield from _missed(world, state, rows)


def _harms(world: World, row: Row) -> Iterator[tuple[str, Callable[[State], str]]]:
    """What a finding offers or claims, each with the harm that it would do in a state."""
    if row["action"] == "fence":
        id_ = names(world).index(row["transactional_id"])
        yield "a finding to fence", lambda state: fence_harm(world, state, id_)
    if row["partition"] is None or row["producer_id"] is None or row["start_offset"] is None:
        return
    number, pid, start = row["partition"], row["producer_id"], row["start_offset"]

    def of_open(find: Callable[[State, int, int], str]) -> Callable[[State], str]:
        def harm(state: State) -> str:
            entry = entry_of(state.partitions[number], pid)
            is_open = entry is not None and entry.start == start
            return find(state, number, pid) if is_open else "nothing is open there"

        return harm

    if is_to_abort(row):
        yield "a finding to abort", of_open(abort_harm)
    if row["action"] == "complete":
        yield "a finding to complete", of_open(commit_harm if row["outcome"] == "commit" else abort_harm)
    if row["outcome"] in {"commit", "abort"} and row["verdict"] in LIVE:
        yield f"an outcome: {row['outcome']}", of_open(partial(_wrong_outcome, row["outcome"]))


def _wrong_outcome(outcome: str, state: State, number: int, pid: int) -> str:
    """What the oldest open record is, if a marker has not decided that and none will; empty if it is as claimed."""
    if any(m.pid == pid and m.state.startswith("Prepare") and number in m.partitions for _, m in current_metas(state)):
        return ""
    _, fate = fates(state, number, pid)[0]
    return "" if fate in (COMMITTABLE if outcome == "commit" else ABORTABLE) else fate.value


def _missed(world: World, state: State, rows: list[Row]) -> Iterator[Violation]:
    """Open transactions that nobody will end, and that have no such verdict."""
    found = {(row["partition"], row["producer_id"]): row for row in rows if row["start_offset"] is not None}
    for number, pid in open_transactions(state):
        fate = {each for _, each in fates(state, number, pid)}
        row = found.get((number, pid))
        if row is None:
            yield Violation("every open transaction has a finding", f"{_names(fate)}: none")
        elif (
            fate & OWNED
            or any(meta.pid == pid and number in meta.partitions for _, meta in current_metas(state))
            or (row["verdict"] == "unknown" and _may_be_unknown(world, state, number, pid))
        ):
            continue
        else:
            wanted = "stuck_ending" if fate == {Fate.COMMITTED} else "hanging"
            if row["verdict"] != wanted and len(fate) == 1:
                yield Violation(f"{_names(fate)} is {wanted}", _short(row))


def _may_be_unknown(world: World, state: State, number: int, pid: int) -> bool:
    """Whether brokers do not have enough to prove what was decided about open records."""
    found = fates(state, number, pid)
    if len({fate for _, fate in found}) > 1 or DAMAGE & set(state.spent) or _is_compacted(state):
        return True
    unclear = (_is_of_both_versions, _is_of_an_unknown_version, is_before_its_producer)
    if any(is_unclear(state, record) for record, _ in found for is_unclear in unclear):
        return True
    if world.pace_ms < CLOCKS_DIFFER_MS or abs(world.skew_ms) > CLOCKS_DIFFER_MS:
        return True
    (fate,) = {fate for _, fate in found}
    if fate == Fate.COMMITTED:
        return any(_needs_times(state, record) and not _is_older(world, state, number, record) for record, _ in found)
    return fate in {Fate.PROMISED, Fate.HELD} or any(not _is_younger(world, state, number, each) for each, _ in found)


def _is_compacted(state: State) -> bool:
    return any(c.log and len(c.log) < c.end for c in state.coordinators)


def _is_of_both_versions(state: State, record: Record) -> bool:
    """Whether its epoch is one of both versions, so that not even the leader adds each partition."""
    return len({each.version for each in state.truths if (each.pid, each.epoch) == (record.pid, record.epoch)}) > 1


def _is_of_an_unknown_version(state: State, record: Record) -> bool:
    """Whether the coordinators' log has no transaction of its epoch, and has some of version 2 of its producer."""
    metas = [each.meta for c in state.coordinators for each in c.log if each.meta and each.meta.pid == record.pid]
    begun = {meta.epoch for meta in metas if meta.state != "Empty"}
    return record.epoch not in begun and any(meta.client_version == 2 for meta in metas)


def is_before_its_producer(state: State, record: Record) -> bool:
    """Whether its CreateTime is from before its producer, as if the coordinators' log were an older copy."""
    records = (each for coordinator in state.coordinators for each in coordinator.log)
    first = next((each.time for each in records if each.meta is not None and each.meta.pid == record.pid), None)
    return first is not None and record.time + CLOCKS_DIFFER_MS < first


def _needs_times(state: State, record: Record) -> bool:
    """Whether the epoch of a record is not of one transaction alone."""
    of_epoch = [truth for truth in state.truths if (truth.pid, truth.epoch) == (record.pid, record.epoch)]
    return len(of_epoch) > 1 or any(truth.version == 1 for truth in of_epoch)


def _is_older(world: World, state: State, number: int, record: Record) -> bool:
    """Whether a broker's time at or after a record shows that it is older than the commit that includes it."""
    log = state.partitions[number].log
    after = [each.time for each in log[log.index(record) :] if each.kind != "data" or world.append_time]
    return bool(after) and after[0] + CLOCKS_DIFFER_MS < _decided_at(state, record.ctxn)


def _is_younger(world: World, state: State, number: int, record: Record) -> bool:
    """Whether a broker's time at or before a record shows that it is younger than the end of each commit without a
    marker that includes the partition, where epochs do not tell.
    """
    log = state.partitions[number].log
    before = [each.time for each in log[: log.index(record) + 1] if each.kind != "data" or world.append_time]
    return all(
        bool(before) and before[-1] - CLOCKS_DIFFER_MS > _ended_at(state, ctxn)
        for ctxn, truth in enumerate(state.truths)
        if truth.decision == "commit"
        and (truth.pid, truth.epoch) == (record.pid, record.epoch)
        and number in truth.partitions
        and not any(each.ctxn == ctxn and each.kind == "commit" for each in log)
    )


def _decided_at(state: State, ctxn: int) -> int:
    """When a transaction was decided, by its coordinator's clock."""
    return next(meta.updated for meta in _metas(state, ctxn) if meta.state.startswith("Prepare"))


def _ended_at(state: State, ctxn: int) -> float:
    """When it had its markers, by its coordinator's clock."""
    return next((meta.updated for meta in _metas(state, ctxn) if meta.state.startswith("Complete")), math.inf)


def _metas(state: State, ctxn: int) -> Iterator[Meta]:
    records = (record.meta for coordinator in state.coordinators for record in coordinator.log)
    return (meta for meta in records if meta is not None and meta.ctxn == ctxn)


def judge_writes(done: Run) -> Iterator[Violation]:
    """Whether what was written was right in the state in which it was written."""
    written = [index for index, point in enumerate(done.points) if point.key[0] == "WriteTxnMarkers"]
    for (kind, fields, before, _), index in zip(done.client.writes, written, strict=False):
        if kind != "WriteTxnMarkers":
            continue
        find_harm = commit_harm if fields["commit"] else abort_harm
        if harm := find_harm(before, fields["partition"], fields["pid"]):
            word = "COMMIT" if fields["commit"] else "ABORT"
            is_late = index > 0 and not find_harm(done.points[index - 1].state, fields["partition"], fields["pid"])
            yield Violation(AFTER_THE_LAST_CHECK if is_late else f"a marker that is written: {word}", harm)


def judge_fences(done: Run, planned: State) -> Iterator[Violation]:
    """Whether a fence ended the transaction that was planned, or none."""
    sent = [index for index, point in enumerate(done.points) if point.key[0] == "InitProducerId"]
    for (kind, fields, before, after), index in zip(done.client.writes, sent, strict=False):
        if kind != "InitProducerId":
            continue
        ended = _ongoing(before, fields["id"])
        if harm := fence_harm(done.client.world, planned, fields["id"]):
            yield Violation("a fence that is planned", harm)
        if ended is None or before == after or ended == _ongoing(planned, fields["id"]):
            continue
        checks = [point.state for point in done.points[:index] if point.key[0] == "DescribeTransactions"]
        is_late = bool(checks) and _ongoing(checks[-1], fields["id"]) != ended
        yield Violation(FENCE_AFTER_THE_LAST_CHECK if is_late else "a fence", "another transaction than was planned")


def _ongoing(state: State, id_: int) -> int | None:
    """The transaction that is open under an id."""
    meta = dict(current_metas(state)).get(id_)
    return meta.ctxn if meta is not None and meta.state == "Ongoing" else None


def _names(fate: Iterable[Fate]) -> str:
    return " and ".join(sorted(each.value for each in fate))


def _short(row: Row) -> str:
    missing = f" ({row['missing'][0]})" if row["missing"] else ""
    return f"{row['verdict']}, {row.get('outcome')}, {row['reason'][:70]}{missing[:80]}"
