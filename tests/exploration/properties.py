"""What is true in a state, by its ghosts: who owns each open record, and what was decided about it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import lru_cache, partial
from typing import NamedTuple

from tests.exploration.explore import Run, is_to_abort
from tests.exploration.server import names
from tests.exploration.steps import entry_of
from tests.exploration.world import NOBODY, Client, Meta, Record, State, World, open_records, written
from toolkit.schema import Row


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


CLOCKS_DIFFER_MS = 5_000  # up to which our code does not trust the order of times of two brokers
LIVE = {"ongoing", "long", "overdue", "prepared"}
DAMAGE = {"lost_state", "restore", "twice", "recreate"}  # which leave less than a proof
AFTER_THE_LAST_CHECK = "a marker that is written, right at the last request before it"
FENCE_AFTER_THE_LAST_CHECK = "a fence that is sent, after the last check"


class Violation(NamedTuple):
    """A property that does not hold, and how: the same way of failing has the same one."""

    rule: str
    how: str


NOTHING_OPEN = "nothing is open there"


def judge_findings(
    world: World, state: State, rows: Iterable[Row], during: Iterable[State] = ()
) -> Iterator[Violation]:
    """Whether findings are right in a state, or in one of those that there were while they were made."""
    rows = list(rows)
    states = list(during) or [state]
    for row in rows:
        for rule, harm in _harms(world, row):
            harms = [harm(each) for each in states]
            if all(harms):
                where_open = [each for each in harms if each != NOTHING_OPEN]
                yield Violation(rule, f"{[*harms, *where_open][-1]}: {_short(row)}")
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
            return find(state, number, pid) if is_open else NOTHING_OPEN

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


KNOWN_LIMITS = {
    "begun again before the marker":
        "Transaction version 1: between the last check and the marker, the producer adds the partition again and "
        "writes with the same epoch; the marker then ends that transaction too. WriteTxnMarkers has no condition but "
        "the epoch.",
    "a former leader and stale metadata":
        "The metadata and a former leader that has not learned of the election agree on what has ended since. No "
        "harm follows: the marker goes to the former leader, which cannot commit it.",
    "two decisions without a marker":
        "A commit and an abort that both include the partition lack their markers: which of them wrote the records "
        "is unknown.",
    "committed in a torn transaction":
        "A delayed EndTxn has ended the next transaction too early (transaction version 1). What its client writes "
        "afterwards, and commits, was never committed by the coordinator; nothing but the client knows.",
    "lost records of the coordinators' log":
        "With the tail that an election or a restore cut off, the coordinators' log has lost the record that added "
        "the partition or began the transaction, and its offsets do not show it. A client of version 1 goes on, and "
        "its commit returns success without the partition, as if it had never added it. Only a COMMIT marker on "
        "another partition that no decision explains tells these apart. With version 2 it takes the loss of the "
        "marker, and of all records that show the producer's version.",
    "begun again before the fence":
        "Between the last check and InitProducerId, the producer ends its transaction and begins the next one, which "
        "the fence aborts: InitProducerId takes no epoch as a condition while a transaction is open.",
}  # fmt: skip
"""Name to reason."""


def is_known(world: World, state: State, violation: Violation) -> bool:
    """Whether it is one of `KNOWN_LIMITS`."""
    return name_of(world, state, violation) is not None


def name_of(world: World, state: State, violation: Violation) -> str | None:
    """The known limit, if it is one."""
    if (
        violation.rule == AFTER_THE_LAST_CHECK
        and set(violation.how.split(", ")) <= {"live", "committing", "aborting", "live for its client by version 1"}
        and world.version == 1
    ):
        return "begun again before the marker"
    if violation.how.startswith(NOTHING_OPEN) and "stale" in world.rare:
        return "a former leader and stale metadata"
    if violation.rule == FENCE_AFTER_THE_LAST_CHECK:
        return "begun again before the fence"
    if (
        violation.rule in {"committed is stuck_ending", "aborted is hanging"}
        and "which of these wrote" in violation.how
    ):
        return "two decisions without a marker"
    harms = set(violation.how.partition(":")[0].split(", "))
    lost = LOST_BY_VERSION_1 | {"promised by version 2"} if _hides_version_2(state) else LOST_BY_VERSION_1
    if harms <= lost and {"lost_state", "restore"} & set(state.spent) and not _is_contradicted(state):
        return "lost records of the coordinators' log"
    if harms <= LOST_BY_VERSION_1 and "late_end" in world.rare:
        return "committed in a torn transaction"
    return None


LOST_BY_VERSION_1 = {"promised by version 1", "live for its client by version 1"}


def _hides_version_2(state: State) -> bool:
    """Whether something is open of a producer of which the coordinators' log has no record of version 2."""
    records = (each.meta for coordinator in state.coordinators for each in coordinator.log)
    shown = {meta.pid for meta in records if meta is not None and meta.client_version == 2}
    return any(pid not in shown for _, pid in open_transactions(state))


def _has_marker_twice(state: State, number: int) -> bool:
    """Whether a producer has more markers of one kind and epoch, without data between them, than were decided.

    A transaction without records on the partition has its marker right behind that of the one before it.
    """
    records = {(each.offset, each.meta) for coordinator in state.coordinators for each in coordinator.log}
    decided = Counter((each.pid, each.state, each.epoch) for _, each in records if each and number in each.partitions)
    last: dict[int, tuple[Record, int]] = {}
    for record in state.partitions[number].log:
        before, count = last.get(record.pid, (None, 0))
        is_again = before is not None and (record.kind, record.epoch) == (before.kind, before.epoch)
        count = count + 1 if is_again else 1
        if record.kind != "data" and 1 < count > decided[record.pid, f"Prepare{record.kind.title()}", record.epoch]:
            return True
        last[record.pid] = record, count
    return False


def _is_contradicted(state: State) -> bool:
    """Whether a partition has the COMMIT marker of a transaction that the coordinators' log does not have, or a marker
    more often than decided, or an epoch that is not in the log, or an open record from before its producer.
    """
    newest: dict[int, int] = {}
    for meta in (each.meta for coordinator in state.coordinators for each in coordinator.log):
        if meta is not None:
            newest[meta.pid] = max(meta.epoch, newest.get(meta.pid, -1))
    written = (record for partition in state.partitions for record in partition.log)
    if any(record.epoch > newest.get(record.pid, record.epoch) for record in written):
        return True
    if any(_has_marker_twice(state, number) for number in range(len(state.partitions))):
        return True
    markers = (record for partition in state.partitions for record in partition.log if record.kind == "commit")
    return any(each.ctxn != NOBODY and state.truths[each.ctxn].decision != "commit" for each in markers) or any(
        is_before_its_producer(state, record)
        for number, pid in open_transactions(state)
        for record in open_records(state.partitions[number].log, pid)
    )
