"""What is known not to hold, each with the reason why the protocol does not let our code do better."""

from __future__ import annotations

from collections import Counter

from tests.exploration.properties import (
    AFTER_THE_LAST_CHECK,
    FENCE_AFTER_THE_LAST_CHECK,
    Violation,
    is_before_its_producer,
)
from tests.exploration.state import NOBODY, Record, State, open_records
from tests.exploration.truth import open_transactions
from tests.exploration.world import World

KNOWN_LIMITS = {
    "begun again before the marker": (
        "Transaction version 1: between the last check and the marker, the producer adds the partition again "
        "and writes with the same epoch; the marker then ends that transaction too. WriteTxnMarkers has no "
        "condition but the epoch."
    ),
    "a former leader and stale metadata": (
        "The metadata and a former leader that has not learned of the election agree on what has ended since. "
        "No harm follows: the marker goes to the former leader, which cannot commit it."
    ),
    "two decisions without a marker": (
        "A commit and an abort that both include the partition lack their markers: which of them wrote the "
        "records is unknown."
    ),
    "committed in a torn transaction": (
        "A delayed EndTxn has ended the next transaction too early (transaction version 1). What its client "
        "writes afterwards, and commits, was never committed by the coordinator; nothing but the client "
        "knows."
    ),
    "lost records of the coordinators' log": (
        "With the tail that an election or a restore cut off, the coordinators' log has lost the record that added the "
        "partition or began the transaction, and its offsets do not show it. A client of version 1 goes on, and its "
        "commit returns success without the partition, as if it had never added it. Only a COMMIT marker on another "
        "partition that no decision explains tells these apart. With version 2 it takes the loss of the marker, and of "
        "all records that show the producer's version."
    ),
    "begun again before the fence": (
        "Between the last check and InitProducerId, the producer ends its transaction and begins the next "
        "one, which the fence aborts: InitProducerId takes no epoch as a condition while a transaction is "
        "open."
    ),
}
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
    if violation.how.startswith("nothing is open there") and "stale" in world.rare:
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
