"""What was decided about open records, by the coordinator's log: case by case, and against a model."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.analysis.build import NOW, observation, partition, transaction
from tests.analysis.logged import (
    ELSEWHERE,
    HERE,
    at,
    coordinator_log,
    data,
    ended_records,
    excerpt,
    init,
    marker,
    open_transaction,
    record,
    with_logs,
)
from tests.analysis.outcome_model import (
    Expiry,
    Failover,
    LateBatch,
    NewInstance,
    OperatorAbort,
    OperatorCommit,
    OtherMarker,
    Step,
    Txn,
    World,
    after,
)
from tests.stored import compare
from tests.tiers import fuzzed
from toolkit.analysis.diagnosis.case import Case, IndexedObservation
from toolkit.analysis.diagnosis.decision import Outcome
from toolkit.analysis.diagnosis.log_excerpts import Excerpt
from toolkit.formats.batches import LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT
from toolkit.schema import Row

# A marker that is missing, and what the producer did then


BUSY: list[Step] = [Txn(here=False, gap=20) for _ in range(3)]
GOES_ON: dict[str, list[Step]] = {
    "nothing": [], "commits elsewhere": [*BUSY], "aborts elsewhere": [Txn(here=False, end="Abort", gap=20)],
    "is timed out elsewhere": [Txn(here=False, end="Abort", by_coordinator=True, gap=20)],
    "open elsewhere": [Txn(here=False, end=None, gap=20)], "a new instance": [NewInstance(gap=20)],
    "a new instance commits elsewhere": [NewInstance(gap=20), *BUSY],
    "a new instance is open elsewhere": [NewInstance(gap=20), Txn(here=False, end=None)], "expired": [Expiry(gap=20)],
    "expired after commits elsewhere": [*BUSY, Expiry(gap=20)],
    "another producer id": [Expiry(tombstone=False, gap=20)],
}  # fmt: skip


def without_marker(**more: Any) -> Txn:
    """A transaction without its marker: a broker's time shows that its records are older than its decision."""
    return Txn(marker=False, other=True, **{"lasts": 6_000, **more})


@pytest.mark.parametrize("goes_on", GOES_ON.values(), ids=GOES_ON)
@pytest.mark.parametrize("before", [[], [Txn(), Txn(gap=10_000)]], ids=["first", "third"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("end", ["Commit", "Abort"])
def test_what_was_decided_without_a_marker_stays_decided(
    end: str, version: int, before: list[Step], goes_on: list[Step]
) -> None:
    """Whatever the coordinator does then, its current state says nothing about these records."""
    world = after(*before, without_marker(end=end, gap=10_000), *goes_on, version=version)
    found = world.outcome()
    assert (found.name, found.missing) == (end.lower(), ())
    assert found.transaction is not None
    assert found.transaction.producer_epoch == (0 if version == 1 else len(before))
    assert f"was {end.lower()}ed at" in found.reason.replace("committed", "commited")
    names = {(entry.source, entry.name) for entry in found.evidence}
    assert names == {("__transaction_state", "outcome_record")}
    assert len(found.evidence) == 3


VERSION_2: dict[str, Any] = {"client_transaction_version": 2}
COMPLETE_COMMIT = transaction(state="CompleteCommit", on=())
COMPLETED: list[Step] = [Txn(marker=False), OperatorCommit(gap=10_000)]
IRREGULAR = [Txn(gap=gap, lasts=7) for gap in (7_100, 6_300, 9_900)]
ONE_CLOCK: dict[str, Any] = {"is_one_clock": True}


def repeated_init(*batches: dict[str, Any]) -> tuple[Case, Excerpt, list[Row]]:
    """InitProducerId has returned the epoch again."""
    log = excerpt(*batches, start=batches[0]["base_offset"])
    return open_transaction(start=100, epoch=1), log, [record(20, "Empty", second=10, epoch=1)]


WORLDS: dict[str, tuple[str, World, dict[str, Any]]] = {  # the outcome; what happened; and what is left or known of it
    # A record of the same epoch that no commit includes can join them: `complete` published it.
    **{
        f"version {version}, {lasts} ms before its commit{', and a marker' * other}{', one clock' * len(known)}": (
            "commit" if version == 2 or (other and lasts > bound) else "unknown",
            after(OtherMarker(), Txn(
                marker=False, refused=bool(known), other=other, lasts=lasts, gap=10_000), version=version), known)
        for version in (1, 2) for other in (True, False) for lasts in (1, 4_999, 5_001, 60_000)
        for bound, known in ((5_000, {}), (1_000, ONE_CLOCK)) if version == 1 or not known
    },
    # By its times the commit, which lacks its marker, was complete before its own record: that was to be aborted.
    "one clock that was set back tells no order": (
        "unknown", after(Txn(gap=10_000), OtherMarker(), Txn(marker=False, set_back=4_000)), ONE_CLOCK),
    # Its clock was behind: records of an abort, written after a commit whose marker was skipped, looked older than it.
    **{
        f"the present leader's clock alone shows that they are older{', which coordinates the id, too' * len(known)}": (
            expected, after(OtherMarker(), without_marker(gap=10_000, refused=True)), known)
        for expected, known in (("unknown", {}), ("commit", ONE_CLOCK))
    },
    # Version 1, and a leader that thinks a transaction is open, which does not verify: `complete` published it.
    **{
        f"a record that no commit includes joins those of a commit, {lasts} ms, one clock: {bool(known)}": (
            "unknown", after(OtherMarker(), Txn(marker=False, other=lasts > 1, lasts=lasts, gap=10_000),
                             LateBatch(gap=100)), known)
        for lasts in (1, 60_000) for known in ({}, ONE_CLOCK)
    },
    "it is proven to have joined them": (
        "unknown", after(OtherMarker(), without_marker(gap=10_000), OtherMarker(gap=6_000), LateBatch()), {}),
    # The marker of the commit is deleted. Another producer's marker, younger than it, is before the record.
    "a record that was written 8 s after a commit is not of it": (
        "undecided", after(Txn(), OtherMarker(gap=8_000), LateBatch()), {"first_batch": 2}),
    "after 4 s it may be": ("unknown", after(Txn(), OtherMarker(gap=4_000), LateBatch()), {"first_batch": 2}),
    # Each has an epoch of its own, so one COMMIT marker is right for both. It was offered, and always refused.
    "two commits of version 2": ("commit", after(Txn(), Txn(marker=False), Txn(marker=False), version=2), {}),
    # A broker's time far before one that it follows: clocks are further apart than the bound.
    **{
        f"clocks that {'contradict prove nothing' if apart else 'agree'}": (expected, after(
            Txn(gap=20_000), without_marker(gap=20_000),
            *([Failover(of_partition=True, clock=-20_000)] if apart else []), OtherMarker(gap=1_000)), {})
        for apart, expected in ((True, "unknown"), (False, "commit"))
    },
    # A commit without its marker counted as closed, and its records as hanging.
    **{
        f"a clock {apart} ms apart makes a marker pass for that of the next commit, from batch {first} on": (
            "unknown", after(*[Txn(gap=abs(apart) - 4, lasts=1) for _ in range(4)],
                             Txn(gap=abs(apart) - 4, marker=False), leader_clock=apart), {"first_batch": first})
        for bound in (6_000, 12_000, 60_000) for apart in (bound, -bound) for first in (0, 4)
    },
    "only one difference explains irregular ones": ("undecided", after(*IRREGULAR, LateBatch(gap=10)), {}),
    # Which of them wrote the records? An abort marker might discard committed ones, a COMMIT marker reveal others.
    "a commit and an abort": ("unknown", after(Txn(marker=False), Txn(end="Abort", marker=False)), {}),
    "an abort and a commit": ("unknown", after(Txn(end="Abort", marker=False), Txn(marker=False)), {}),
    "two commits": ("commit", after(OtherMarker(), without_marker(gap=10_000), without_marker()), {}),
    # Markers of operators, and of coordinators that took over: before or after the commit, as far as the clocks tell
    "an operator's abort before a late batch": (
        "unknown", after(Txn(marker=False), OperatorAbort(gap=900), LateBatch(), coordinator_clock=2_500), {}),
    "an operator's abort before a commit": (
        "unknown", after(LateBatch(), OperatorAbort(), Txn(gap=900, marker=False), leader_clock=2_500), {}),
    # It was called `hanging`: within the clocks' difference, the COMMIT marker by hand fitted the next commit only.
    **{
        f"{lost_before} ms after it was completed, {name}": (expected, after(
            Txn(marker=False), OperatorCommit(gap=lost_before), step), known)
        for lost_before in (2_000, 60_000) for name, expected, step, known in (
            ("the next commit", "unknown", Txn(gap=900, marker=False), {}),
            ("the next commit, one clock", "commit", without_marker(gap=900, refused=True), ONE_CLOCK),
            ("the next commit, later", "unknown", Txn(gap=6_000, marker=False), {}),
            ("a late batch", "undecided" if lost_before == 2_000 else "unknown", LateBatch(gap=1), {}))
    },
    # It was called `hanging`: each marker fitted the commit after its own, by clocks that differ by 900 ms.
    "a marker by hand shows nothing about the clocks": (
        "unknown", after(*COMPLETED, Txn(gap=900), Txn(gap=900, marker=False)), {}),
    "nor beside an abort by hand": (
        "unknown", after(*COMPLETED, LateBatch(), OperatorAbort(), Txn(marker=False)), {}),
    # It was called `hanging`: by the clocks of then, the marker by hand was younger than the next commit.
    **{
        f"the marker before one by hand is by another clock: another {name}": ("unknown", after(
            Txn(lasts=5), since, Txn(marker=False, gap=10_000), OperatorCommit(gap=20_000),
            Txn(gap=900, marker=False), leader_clock=leader_clock), {})
        for name, since, leader_clock in (("leader", Failover(of_partition=True), -4_000),
                                          ("coordinator", Failover(clock=-4_000), 0))
    },
    # The partition's leader coordinates the id now, but another broker did when the records were written.
    "one clock needs the broker that wrote the records": (
        "unknown", after(Txn(), Txn(gap=500, marker=False), Failover(clock=500), leader_clock=500), ONE_CLOCK),
    # Before the first record that is left, there may have been another decision without a marker.
    **{
        f"a log that does not reach back before a {end}": (
            "unknown", after(Txn(end=other, marker=False), Txn(end=end, marker=False)), {"first_record": 4})
        for end, other in (("Commit", "Abort"), ("Abort", "Commit"))
    },
    # The only record left is CompleteCommit. It has no partitions: with version 1 it may be of a transaction elsewhere.
    "only CompleteCommit is left, version 1": (
        "unknown", after(Txn(gap=10_000), Txn(gap=10_000, marker=False)), {"compacted": 99}),
    "the batch is younger than the only decision": (
        "undecided", after(OtherMarker(), Txn(gap=10_000, here=False), OtherMarker(gap=6_000), LateBatch()),
        {"compacted": 4}),
    "another transaction may have had the epoch": (
        "unknown", after(Txn(gap=10_000), Txn(gap=10_000, marker=False), version=2), {"compacted": 99}),
    "each transaction of version 2 has its own": (
        "commit", after(Txn(gap=10_000), Txn(gap=10_000, marker=False), version=2), {"compacted": 3}),
    "its marker is there": (
        "undecided", after(Txn(gap=10_000, lasts=20), LateBatch(gap=1)), {"compacted": 99, **ONE_CLOCK}),
    "or that of a transaction before it": (
        "unknown", after(Txn(gap=10_000, lasts=20), LateBatch(gap=1)), {"compacted": 99}),
    "a long one": ("undecided", after(Txn(gap=10_000, lasts=20_000), LateBatch(gap=1)), {"compacted": 99}),
    # What the outcome rests on
    "the producer id": ("undecided", after(Txn(), LateBatch()), {}),
    "the transaction of a marker": ("undecided", after(Txn(lasts=10_000), LateBatch()), {"first_record": 1}),
    "a newer instance": ("undecided", after(NewInstance(), LateBatch()), {}),
    "its InitProducerId may be a repeated one": ("unknown", after(NewInstance(), LateBatch()), {"first_record": 1}),
    "the epoch of version 2": ("commit", after(Txn(), Txn(marker=False), version=2), {"first_record": 3}),
    "records from before it": (
        "undecided", after(Txn(here=False), OtherMarker(gap=6_000), LateBatch()), {"first_record": 1}),
    "within the bound": ("unknown", after(Txn(here=False), OtherMarker(gap=4_000), LateBatch()), {"first_record": 1}),
    # Version 2: no marker of the first can be there, as the leader would have refused its records afterwards.
    "of records of two epochs the first one counts": ("undecided", after(
        Txn(), Txn(end="Abort", by_coordinator=True, marker=False, gap=4_000), Txn(end=None), version=2,
        leader_clock=2_500), {"first_batch": 2}),
    # A coordinator that took over decides again; without a start time, it may have been decided long before.
    "a decision is known to the millisecond with its Prepare record": ("commit", after(
        Txn(here=False, gap=60), Txn(gap=4_000, lasts=20, delay=1_000), without_marker(gap=4_000)), {"first_batch": 1}),
    # The log begins when the epoch of the records was already over, or has just begun.
    "its first record has the next epoch": (
        "unknown", after(Txn(end="Abort", marker=False), version=2), {"first_record": 2}),
    "its first transaction is the one after these records": (
        "unknown", after(Txn(marker=False), Txn(here=False), version=2), {"first_record": 4}),
    "its first record has the epoch before": (
        "undecided", after(Txn(here=False), Txn(end=None, gap=4_000), version=2), {"first_record": 1}),
    "each end of version 2 begins an epoch": (
        "undecided", after(Txn(here=False), Txn(end=None, gap=4_000), version=2), {"first_record": 2, "compacted": 3}),
    "no transaction of it is left": (
        "unknown", after(NewInstance(), LateBatch(), NewInstance(), Expiry(tombstone=False, gap=6_000)),
        {"first_record": 2}),
    "the marker may be of a transaction before the log": (
        "unknown", after(Txn(end="Abort", delay=4_000), LateBatch(gap=1_000)), {"first_record": 1}),
    "InitProducerId may be repeated after a commit of its epoch": ("unknown", after(
        Txn(lasts=60), NewInstance(), Txn(here=False, gap=6_000, lasts=4_000), LateBatch(gap=6_000)), {"compacted": 5}),
}  # fmt: skip


def lines_of(name: str, found: Outcome) -> Iterator[str]:
    """An outcome, whole."""
    yield f"# {name}: {found.name}"
    yield f"{found.offsets}: {found.reason}"
    yield from (f"    missing: {each}" for each in found.missing)
    yield from (f"    {each.claim}: {each.status}" for each in (found.no_commit, found.all_committed))
    yield f"    by {', '.join(each.name or '' for each in found.evidence) or 'nothing'}"


def test_the_outcome_of_a_story() -> None:
    lines = []
    for name, (expected, world, known) in WORLDS.items():
        left = {**known, "compacted": min(known["compacted"], len(world.records))} if "compacted" in known else known
        found = world.outcome(**left)
        assert found.name == expected, name
        check(world, found.name)
        lines += [*lines_of(name, found), f"    in truth: {', '.join(sorted(world.of_open_records))}"]
    compare("outcomes_of_stories.txt", lines)


# Logs that do not reach back, or were not read


def find(one: Case, log: Excerpt | None, *events: Row, **more: Any) -> Outcome:
    coordinators = coordinator_log(events, **more)
    if log is not None:  # which was read up to its end
        one = replace(one, leader=replace(one.leader, high_watermark=log.stop))
    return with_logs(one, log, coordinators).outcome


def raised(rows: list[Row], epoch: int = 1, **more: Any) -> list[Row]:
    """The records of a transaction of version 2, whose end raises the epoch."""
    return [{**rows[0], **VERSION_2}, *({**each, **VERSION_2, "producer_epoch": epoch, **more} for each in rows[1:])]


def with_epoch(epoch: int) -> Case:
    return open_transaction(transaction(state="CompleteCommit", epoch=epoch, on=()))


SEEN = marker(101, COMMIT, pid=1, second=5)  # shows that the open batch is older than the decision
COMMIT_11 = [init(), *ended_records("Commit", began=9, at_second=11)]
ABORT_2 = ended_records("Abort", began=1, at_second=2)
COMMIT_4 = raised(ended_records("Commit", began=3, at_second=4, offset=4, on=(ELSEWHERE,)))
WITH_PARTITION = raised(ended_records("Commit", began=3, at_second=4))
BUSY_RECORDS = [init(), *ended_records("Commit", began=0, at_second=1), *ended_records("Commit", began=9, at_second=11)]
BEFORE_IT = (marker(90, COMMIT, pid=1, second=2), data(91, pid=1, records=8, second=3))
WITH_MARKER = (data(90, second=0.5), marker(91, COMMIT, second=1.05))
DELETED = open_transaction(COMPLETE_COMMIT, start=80, leader=partition(log_start_offset=90, leader_epoch=5))
LATE_OF_4 = excerpt(
    data(98, epoch=4, second=0.5), marker(99, COMMIT, epoch=5, second=1), data(100, epoch=4, second=9)
)  # fmt: skip
OF_4 = ended_records("Commit", began=0, at_second=1, epoch=4)
SECOND_REFUSED = [
    {**each, "leader_epoch": 0} for each in (init(), *ended_records("Commit", began=0, at_second=1),
                                             *ended_records("Commit", began=1.2, at_second=1.3)[:-1])
]  # fmt: skip
TERMS = [{**init(), "leader_epoch": 3},
         *({**each, "leader_epoch": 5} for each in ended_records("Commit", began=0, at_second=1))]  # fmt: skip
ROTATED = [
    record(1, "Ongoing", second=9, started=9, on=(HERE,), epoch=32_766, **VERSION_2),
    record(2, "PrepareCommit", second=11, started=9, on=(HERE,), epoch=32_767, **VERSION_2),
    record(3, "CompleteCommit", second=11, started=9, pid=8, previous_producer_id=7, **VERSION_2),
]
OF_ID_8 = record(1, "Empty", second=20, pid=8, previous_producer_id=7)
OF_NEXT_ID = ended_records("Commit", began=21, at_second=22, offset=2, pid=8)
ONE, PLAIN, OF_100 = open_transaction(COMPLETE_COMMIT), open_transaction(), excerpt(data(100), start=100)
MOVED = open_transaction(COMPLETE_COMMIT, leader=partition(leader_epoch=5))  # a leader after that of the batches
AT_3, NOT_REACHED = excerpt(data(100, second=3.5), start=100), excerpt(data(95, pid=1, records=5), start=95)
LATE_12 = excerpt(data(95, pid=1, records=5), data(100, second=12), start=95)
BY_BOTH = [init(), record(0, "Empty", second=-1, transactional_id="other")]
APPENDED = TRANSACTIONAL | LOG_APPEND_TIME
LOGS: dict[str, tuple[str, tuple[Case, Excerpt | None, Sequence[Row]], dict[str, Any]]] = {
    # A zombie wrote it, the marker made it visible, and the partition lost the marker: it was hanging, to abort.
    **{
        f"a record between a commit and its marker, complete at {completed}": (expected, (
            ONE, excerpt(marker(99, COMMIT, pid=1, second=9), data(100, second=9.5), start=99),
            [init(), *ended_records("Commit", began=1, at_second=2)[:2],
             *([record(3, "CompleteCommit", second=completed, started=1)] if completed else [])]), {})
        for completed, expected in ((2.1, "undecided"), (9, "unknown"), (None, "unknown"))
    },
    # By a leader's clock that was a minute ahead the records were younger than their commit: they hung, to abort.
    "after a time of an earlier leader": ("unknown", (
        ONE, excerpt(marker(99, COMMIT, pid=1, second=9, leader_epoch=3), data(100, second=9.5), start=99),
        [init(), *ended_records("Commit", began=1, at_second=2)[:2],
         record(3, "CompleteCommit", second=2.1, started=1)]), {}),
    # A client that goes from version 1 to 2 within an epoch: its aborted record was called committed.
    "an abort of version 1, a commit of version 2": (
        "unknown", (with_epoch(1), excerpt(data(100, second=1.5), start=100), [init(), *ABORT_2, *COMMIT_4]), {}),
    "with the partition": ("unknown", (with_epoch(1), excerpt(data(100, second=1.5), start=100), [
        init(), *ABORT_2, *({**each, "topic_partitions": ABORT_2[0]["topic_partitions"]} for each in COMMIT_4)]), {}),
    "compacted: whether an abort of epoch 0 was before it": (
        "unknown", (with_epoch(1), excerpt(data(100, second=1.5), start=100), COMMIT_4[2:]), {}),
    "the start is compacted": (
        "unknown", (with_epoch(1), excerpt(data(100, second=1.5), start=100), COMMIT_4[1:]), {}),
    # The coordinators' log has lost the record that added it. It was hanging, and the abort lost the commit.
    "version 2 adds a partition before its first record": ("unknown", (with_epoch(1), AT_3, [init(), *COMMIT_4]), {}),
    "while it is open": ("unknown", (with_epoch(1), AT_3, [init(), COMMIT_4[0]]), {}),
    "of the next epoch": ("unknown", (
        open_transaction(*with_epoch(1).owners, epoch=1), excerpt(data(100, epoch=1, second=5), start=100),
        [init(), *COMMIT_4]), {}),
    "restored; a new instance of version 2 goes on": ("unknown", (with_epoch(1), AT_3, [
        init(), init(epoch=1),
        *ended_records("Abort", began=6, at_second=7, epoch=1, on=(ELSEWHERE,), **VERSION_2)]), {}),
    "never added, by version 1": (
        "undecided", (ONE, AT_3, [init(), *ended_records("Commit", began=3, at_second=4, on=(ELSEWHERE,))]), {}),
    # Restored from a backup, or the id was given out twice.
    "batches that are older than their producer id": (
        "unknown", (ONE, excerpt(data(98, second=-60), marker(99, COMMIT, second=-50), data(100, second=5)), [init()]),
        {}),
    **{
        f"an open batch before a broker's time of {second} s": (
            expected, (ONE, excerpt(data(100, second=5), marker(101, COMMIT, pid=1, second=second), start=100),
                       [init()]), {})
        for second, expected in ((-6.001, "unknown"), (-6, "undecided"))
    },
    # It was called `hanging`: the partition refused the COMMIT marker of the second transaction. Somebody had written a
    # COMMIT marker with a higher coordinator epoch before it.
    **{
        f"a marker of coordinator epoch {epoch}": (expected, (ONE, excerpt(
            data(97, second=0.5), marker(98, COMMIT, second=1.01, coordinator_epoch=0),
            marker(99, COMMIT, second=1.2, coordinator_epoch=epoch), data(100, second=1.25)), SECOND_REFUSED), {})
        for epoch, expected in ((0, "undecided"), (1, "unknown"))
    },
    # Older coordinators wrote markers whose records the cleaner has removed.
    **{
        f"coordinators of epochs 3 and 5 and a marker of {epoch}": (expected, (ONE, excerpt(
            data(98, second=0.5), marker(99, COMMIT, second=1.01, coordinator_epoch=epoch), data(100, second=1.25)),
            TERMS), {})
        for epoch, expected in ((2, "undecided"), (4, "unknown"), (5, "undecided"))
    },
    # The leader has forgotten the producer, and takes its old epoch. It was called committed, to be completed.
    "a late batch behind the own marker of version 2 is in no commit": ("undecided", (
        open_transaction(transaction(state="CompleteCommit", epoch=5, on=()), epoch=4), LATE_OF_4,
        [init(epoch=4), OF_4[0], *raised(OF_4, 5)[1:]]), {}),
    # Seen on 4.3.1: the topic was created again, and a batch of the commit's epoch came later: `complete` would have
    # published it.
    **{
        f"a commit of version 2 at 4 s, {name}": (expected, (
            with_epoch(1), excerpt(*batches, start=batches[0]["base_offset"]), [init(), *WITH_PARTITION]), {})
        for name, expected, *batches in (
            ("a record at 5 s", "commit", data(100, second=5)), ("at 5.1 s", "unknown", data(100, second=5.1)),
            ("one at 3.5 and one at 9 s", "unknown", data(100, second=3.5), data(101, second=9)),
            ("one behind a marker at 9 s", "commit", marker(99, COMMIT, pid=1, second=9), data(100, second=3.5)),
            ("one behind a marker at 10 s", "unknown", marker(99, COMMIT, pid=1, second=10), data(100, second=3.5)))
    },
    # Seen on 4.3.1: after the commit, which compaction removed; an abort discarded committed records. A record that a
    # broker's time shows to be younger is of no transaction before it; CreateTime, which may be that of an event to
    # come, shows nothing.
    **{f"a repeated InitProducerId at 10, and a record at {second} by its client": ("unknown", repeated_init(
        data(100, epoch=1, second=second)), {}) for second in (5, 600)},
    **{
        f"a repeated InitProducerId at 10, and {name} {second}": (expected, repeated_init(*batches), {})
        for second, expected in ((14, "unknown"), (16, "undecided")) for name, batches in (
            ("LogAppendTime", [data(100, epoch=1, second=second, attributes=APPENDED)]),
            ("a marker before it at", [marker(99, COMMIT, pid=8, second=second), data(100, epoch=1, second=second)]))
    },
    # It decides again: the time of the decision is later than the marker that the one before it wrote.
    "the only record left may be of a coordinator that took over": ("unknown", (
        ONE, excerpt(data(98, second=10), marker(99, COMMIT, second=10.2), data(100, second=10.4), start=98),
        [record(9, "CompleteCommit", second=17, started=10, leader_epoch=4)]), {}),
    "an excerpt that does not reach back": ("unknown", (ONE, LATE_12, COMMIT_11), {}),
    **{
        f"{text}, {name}": (expected, (one, log, records), {})
        for text, log in (("no log", None), ("it ends before the start", NOT_REACHED))
        for name, expected, one, records in (
            ("a commit", "unknown", ONE, COMMIT_11), ("nothing was decided at all", "undecided", PLAIN, [init()]),
            ("at most aborted", "undecided", ONE, [init(), *ended_records("Abort", began=9, at_second=11)]))
    },
    # The start offset is below the log start, with the markers before it.
    "a deleted head": ("unknown", (DELETED, excerpt(
        marker(90, COMMIT, pid=1, second=10), data(91, second=10.1), log_start_offset=90), COMMIT_11), {}),
    "a marker of the commit is not before the log start": ("commit", (DELETED, excerpt(
        marker(90, COMMIT, pid=1, second=3), data(91, second=4), marker(92, COMMIT, pid=1, second=5),
        log_start_offset=90), COMMIT_11), {}),
    # Batches that the cleaner removed may have been the marker.
    "a whole log": (
        "commit", (MOVED, excerpt(*BEFORE_IT, data(99, pid=1, second=9), data(100, second=12), SEEN), COMMIT_11), {}),
    "a batch is removed": ("unknown", (MOVED, excerpt(*BEFORE_IT, data(100, second=12), SEEN), COMMIT_11), {}),
    "a whole log since a marker": ("commit", (
        MOVED, excerpt(*WITH_MARKER, data(92, pid=1, records=8), data(100, second=12), SEEN), BUSY_RECORDS), {}),
    "a batch since it is removed": ("unknown", (
        MOVED, excerpt(*WITH_MARKER, data(93, pid=1, records=7), data(100, second=12), SEEN), BUSY_RECORDS), {}),
    "it was before the marker": ("undecided", (ONE, excerpt(
        data(92), marker(98, COMMIT, second=12), data(99, pid=1, second=13), data(100, second=14)), COMMIT_11), {}),
    "records that could not be read": (
        "unknown", (ONE, excerpt(data(98), marker(99, ABORT), data(100, sequence=1)), [init()]),
        {"unread": ["__transaction_state could not be read (TOPIC_AUTHORIZATION_FAILED)"]}),
    "an unreadable record of the id is in the way": ("unknown", (ONE, OF_100, [
        init(), {**record(4, None, second=20), "error": "CORRUPT: bad.", "tombstone": False}]), {}),
    "no records of the producer id": ("unknown", (PLAIN, OF_100, []), {}),
    "none is left since then": (
        "unknown", (PLAIN, OF_100, []), {"since": {33: NOW, 34: NOW + dt.timedelta(seconds=1)}}),
    "two ids have the producer id": ("unknown", (PLAIN, OF_100, BY_BOTH), {}),
    "it was given out twice": ("unknown", (open_transaction(transaction(state="Empty", on=())), OF_100, BY_BOTH), {}),
    "records of another one": ("unknown", (ONE, OF_100, [record(0, "Empty", second=-1, pid=8)]), {}),
    # With transaction version 2 the last commit gives the client its next producer id, in CompleteCommit.
    **{
        f"a producer id at the end of its epochs, {len(records)} records": (expected, (
            open_transaction(epoch=32_766), excerpt(data(100, epoch=32_766, second=10), start=100), records), {})
        for expected, records in (("commit", [record(0, "Empty", second=8, epoch=32_766), *ROTATED]),
                                  ("unknown", ROTATED[2:]))
    },
    "the next producer id: version 2 adds a partition before it writes": ("unknown", (
        open_transaction(transaction(8, state="CompleteCommit", on=()), pid=8), excerpt(data(100, pid=8), start=100),
        ROTATED[2:]), {}),
    # Without the epoch of the leader, any transaction can have written them.
    "no epoch": ("commit", (replace(MOVED, producer=replace(MOVED.producer, producer_epoch=None)), excerpt(
        marker(0, COMMIT, pid=1, second=1), data(1, pid=1, records=99, second=1), data(100, second=10), SEEN, start=0),
        COMMIT_11), {}),
    # The id goes on with another producer id, and the log of this one does not reach back.
    "transactions of the id's next producer id decide nothing": ("undecided", (PLAIN, excerpt(
        data(0, pid=1, records=100, second=1), data(100, second=10), start=0), [init(), OF_ID_8, *OF_NEXT_ID]), {}),
    "before epoch 3, this producer may have committed it": ("unknown", (PLAIN, excerpt(data(100, second=10)), [
        record(0, "Empty", second=15, epoch=3), OF_ID_8,
        *({**each, **VERSION_2, "topic_partitions": each["topic_partitions"] and [
            {"topic": "payments", "partition": 3}]} for each in OF_NEXT_ID)]), {}),
    # After epoch 32,766 it returns epoch 0 of the next id again, perhaps after a commit that compaction removed.
    **{
        f"a repeated InitProducerId does not begin the next producer id, after {previous}": (expected, (
            open_transaction(transaction(8, state="Empty", on=()), pid=8),
            excerpt(data(100, pid=8, second=10), start=100),
            [record(5, "Empty", second=12, pid=8, previous_producer_id=previous)]), {})
        for previous, expected in ((7, "unknown"), (8, "undecided"), (None, "undecided"))
    },
    "without a start time": ("undecided", (
        ONE, excerpt(data(90, second=0), marker(91, COMMIT, second=10.5), data(100, second=12)),
        [init(), record(3, "CompleteCommit", second=11.1, last_update_time=at(11))]), {}),
    # Log directories of two brokers have each record twice.
    **{
        f"{count} copies of the coordinators' log are one": ("commit", (MOVED, excerpt(
            *WITH_MARKER, data(92, pid=1, records=8), data(100, second=10), SEEN),
            [{**row, "broker_id": 3 + copy} for copy in range(count) for row in BUSY_RECORDS]), {})
        for count in (1, 2)
    },
}  # fmt: skip


def test_the_outcome_by_logs() -> None:
    lines: list[str] = []
    for name, (expected, (one, log, records), more) in LOGS.items():
        found = find(one, log, *records, **more)
        assert found.name == expected, name
        lines += lines_of(name, found)
    compare("outcomes_by_logs.txt", lines)
    without_data = observation(transaction(), producers=[], partitions=[partition(lso=150)])
    ((txn,),) = IndexedObservation(without_data).cases.values()
    assert find(txn, None).reason == "it has written nothing here yet"
    not_read = with_logs(ONE, OF_100).outcome
    assert not_read.missing[0].startswith("the coordinators' log, which was not read")


def by_one_clock(world: World, *, coordinator: tuple[int, int] = (1, 3), **leader: Any) -> str:
    """The outcome, if the coordinator is this broker in this term, and the partition's leader has these fields."""
    one = world.open_transaction()
    one = replace(one, leader=replace(one.leader, **leader))
    coordinators = coordinator_log(world.records, leaders={33: coordinator})
    return with_logs(one, excerpt(*world.batches, start=0), coordinators).outcome.name


def test_one_clock_is_that_of_one_broker_which_wrote_the_marker_and_all_records() -> None:
    """Half a second between two commits: only times of one clock tell of which of them the marker is."""
    world = after(Txn(gap=10_000), without_marker(gap=500, lasts=1_100, refused=True))
    assert by_one_clock(world) == "commit"
    assert by_one_clock(world, leader=2) == "unknown", "another broker leads the partition"
    assert by_one_clock(world, leader_epoch=5) == "unknown", "the marker is from before it led the partition"
    assert by_one_clock(world, coordinator=(1, 4)) == "unknown", "the records are from before it was the coordinator"
    moved = after(Txn(gap=10_000), Failover(), without_marker(gap=500, lasts=1_100, refused=True))
    assert by_one_clock(moved, coordinator=(1, 4)) == "unknown", "some of them are"


def test_records_without_a_term_are_not_of_one_coordinator() -> None:
    """The text of kafka-dump-log.sh may not have the leader epochs: each record can be by another clock."""
    world = after(Txn(gap=4_000, delay=1_000), Txn(gap=500, lasts=4_000, delay=20), LateBatch(gap=1_000))
    assert world.outcome().name == "undecided"
    world.records = [{**row, "leader_epoch": None} for row in world.records]
    assert world.outcome().name == "unknown"


def test_records_long_before_the_marker_are_not_compared() -> None:
    """Whoever was the coordinator then."""
    for gap, expected in ((250_000, "commit"), (150_000, "unknown")):
        world = after(Txn(), Failover(), Txn(gap=gap), without_marker(gap=500, lasts=1_100, refused=True))
        assert by_one_clock(world, coordinator=(1, 4)) == expected


# Against a model


gaps = st.one_of(st.integers(1, 60), st.integers(1, 12_000))
short = st.integers(1, 20)
clocks = st.one_of(st.just(0), st.integers(-2_500, 2_500))  # of three brokers, so that two differ by 5 s at most
healthy = st.builds(
    Txn, end=st.sampled_from(["Commit", "Abort"]), here=st.sampled_from([True, True, False]), gap=gaps,
    lasts=st.one_of(short, gaps), delay=st.one_of(short, gaps),
)  # fmt: skip
faulty = st.builds(
    Txn,
    end=st.sampled_from(["Commit", "Abort"]),
    here=st.sampled_from([True, True, True, False]),
    writes=st.sampled_from([True, True, False]),
    by_coordinator=st.booleans(),
    marker=st.booleans(),
    refused=st.booleans(),
    other=st.booleans(),
    twice=st.booleans(),
    gap=gaps,
    lasts=st.one_of(short, gaps),
    delay=st.one_of(short, gaps),
)
others = st.one_of(
    st.builds(LateBatch, gap=gaps),
    st.builds(OperatorAbort, gap=gaps),
    st.builds(OperatorCommit, gap=st.integers(10_000, 20_000)),
    st.builds(NewInstance, gap=gaps),
    st.builds(OtherMarker, gap=gaps),
    st.builds(Failover, of_partition=st.booleans(), clock=clocks, gap=gaps),
)
steps = st.lists(st.one_of(healthy, healthy, faulty, others), max_size=10)
open_at_end = st.builds(Txn, end=st.none(), here=st.booleans(), writes=st.booleans(), gap=gaps)
expiry = st.builds(Expiry, tombstone=st.booleans(), gap=gaps)
last_steps = st.lists(st.one_of(faulty, st.builds(LateBatch, gap=gaps), open_at_end, expiry), min_size=1, max_size=3)


def check(world: World, name: str) -> None:
    """An answer is right, or `unknown`."""
    truth = world.of_open_records
    if name in {"undecided", "abort"}:
        assert "commit" not in truth, f"{name}: committed records would be lost"
    if name == "commit":
        assert "commit" in world.decisions, "nothing was committed without a marker"
        assert truth == {"commit"}, "records that no commit includes would become visible"
    if name == "abort":
        assert "abort" in world.decisions


@fuzzed(300)
@given(steps, last_steps, st.sampled_from([1, 1, 1, 2]), clocks, clocks, st.data())
def test_the_outcome_is_right_or_unknown(
    first: list[Step], last: list[Step], version: int, leader: int, coordinator: int, data: st.DataObject
) -> None:
    world = after(*first, *last, version=version, leader_clock=leader, coordinator_clock=coordinator)
    assume(world.open)
    records, batches = len(world.records), len(world.batches)
    name = world.outcome(
        compacted=data.draw(st.integers(0, records)),
        first_record=data.draw(st.one_of(st.just(0), st.integers(0, records - 1))),
        first_batch=data.draw(st.one_of(st.just(0), st.integers(0, batches - 1))),
        cleaned=data.draw(st.one_of(st.just(()), st.sets(st.integers(0, batches - 1)))),
        is_one_clock=world.is_one_clock and data.draw(st.booleans()),
    ).name
    check(world, name)


@fuzzed(100)
@given(steps, last_steps, st.sampled_from([1, 1, 1, 2]))
def test_with_all_records_and_one_clock_the_outcome_is_known(first: list[Step], last: list[Step], version: int) -> None:
    steps_of_one = [
        replace(step, refused=True) if isinstance(step, Txn) else step
        for step in (*first, *last)
        if not isinstance(step, Failover)
    ]
    world = after(OtherMarker(), OtherMarker(gap=10_000), *steps_of_one, version=version)  # an old log
    assume(world.open)
    name = world.outcome(is_one_clock=True).name
    check(world, name)
    has_no_time = version == 1 and "commit" in world.decisions  # between the records and the decision
    is_mixed = "commit" in world.decisions and len(world.of_open_records) > 1
    assert name != "unknown" or len(world.decisions) > 1 or has_no_time or is_mixed
