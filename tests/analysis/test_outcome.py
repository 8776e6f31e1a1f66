"""What was decided about open records, by the coordinator's log: case by case, and against a model."""

import datetime as dt
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


@pytest.mark.parametrize("lasts", [1, 4_999, 5_001, 60_000])
@pytest.mark.parametrize("other", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_is_proven_by_a_brokers_time_between_the_records_and_the_decision(
    version: int, other: bool, lasts: int
) -> None:
    """A record of the same epoch that no commit includes can join them: `complete` published it."""
    world = after(OtherMarker(), Txn(marker=False, other=other, lasts=lasts, gap=10_000), version=version)
    found = world.outcome()
    if version == 2 or (other and lasts > 5_000):
        assert (found.name, found.all_committed.status, found.no_commit.status) == ("commit", "proven", "refuted")
        return
    assert (found.name, found.all_committed.status, found.no_commit.status) == ("unknown", "not proven", "not proven")
    assert "a commit is likely; the client's log, or its checkpoint, shows" in found.missing[0]
    decided = "2026-11-21 11:51:10 UTC" if lasts > 60 else "2026-11-21 11:50:10 UTC"
    when = found.all_committed.claim.rpartition(" of ")[2]
    assert found.all_committed.claim == f"records of offset 1 are older than the commit of {when}"
    assert found.no_commit.claim == "no commit includes offset 1 of orders-0"
    assert (when == decided) or 60 <= lasts < 60_000
    assert world.outcome(is_one_clock=True).name == ("commit" if other and lasts > 1_000 else "unknown")


def test_one_clock_that_was_set_back_tells_no_order() -> None:
    """By its times the commit, which lacks its marker, was complete before its own record: that was to be aborted."""
    world = after(Txn(gap=10_000), OtherMarker(), Txn(marker=False, set_back=4_000))
    assert world.of_open_records == {"commit"}
    assert world.outcome(is_one_clock=True).name == "unknown"


@pytest.mark.parametrize("lasts", [1, 60_000])
def test_a_record_that_no_commit_includes_joins_those_of_a_commit(lasts: int) -> None:
    """Version 1, and a leader that thinks a transaction is open, which does not verify: `complete` published it."""
    world = after(OtherMarker(), Txn(marker=False, other=lasts > 1, lasts=lasts, gap=10_000), LateBatch(gap=100))
    assert world.of_open_records == {"commit", "undecided"}
    assert world.outcome().name == "unknown"
    assert world.outcome(is_one_clock=True).name == "unknown"
    seen = after(OtherMarker(), without_marker(gap=10_000), OtherMarker(gap=6_000), LateBatch()).outcome()
    assert (seen.name, seen.no_commit.status, seen.all_committed.status) == ("unknown", "refuted", "refuted")
    assert seen.missing == (
        'one decision for all of them: offset 1 (epoch 0): the transaction of "payments-7" in __transaction_state-33 '
        "with epoch 0 was committed at 2026-11-21 11:50:16 UTC; offset 4 (epoch 0): no decision includes them",
    )


def test_a_record_that_was_written_after_a_commit_is_not_of_it() -> None:
    """The marker of the commit is deleted. Another producer's marker, 8 s younger than it, is before the record."""
    world = after(Txn(), OtherMarker(gap=8_000), LateBatch())
    assert world.outcome(first_batch=2).name == "undecided"
    near = after(Txn(), OtherMarker(gap=4_000), LateBatch())
    assert near.outcome(first_batch=2).name == "unknown"


@pytest.mark.parametrize(("completed", "expected"), [(2.1, "undecided"), (9, "unknown"), (None, "unknown")])
def test_a_record_between_a_commit_and_its_marker_may_be_of_it(completed: float | None, expected: str) -> None:
    """A zombie wrote it, the marker made it visible, and the partition lost the marker: it was hanging, to abort."""
    decided = ended_records("Commit", began=1, at_second=2)
    decided[2:] = [] if completed is None else [record(3, "CompleteCommit", second=completed, started=1)]
    log = excerpt(marker(99, COMMIT, pid=1, second=9), data(100, second=9.5), start=99)
    assert find(open_transaction(COMPLETE_COMMIT), log, init(), *decided).name == expected


def test_two_commits_of_version_2_without_their_markers_are_committed() -> None:
    """Each has an epoch of its own, so one COMMIT marker is right for both. It was offered, and always refused."""
    world = after(Txn(), Txn(marker=False), Txn(marker=False), version=2)
    found = world.outcome()
    assert (found.name, world.of_open_records, found.offsets) == ("commit", {"commit"}, "offsets 2 to 3 of orders-0")
    assert len(found.evidence) == 6


def test_a_client_that_goes_from_version_1_to_2_within_an_epoch() -> None:
    """Its aborted record was called committed: the epoch is of two transactions."""
    version_2 = {"client_transaction_version": 2}
    aborted = ended_records("Abort", began=1, at_second=2, offset=1)
    committed = ended_records("Commit", began=3, at_second=4, offset=4, on=(ELSEWHERE,), **version_2)
    committed[1:] = [{**each, "producer_epoch": 1} for each in committed[1:]]
    log = excerpt(data(100, second=1.5), start=100)
    one = open_transaction(transaction(state="CompleteCommit", epoch=1, on=()))
    found = find(one, log, init(), *aborted, *committed)
    assert found.name == "unknown", "no broker adds a partition whose leader thinks that a transaction is open"
    assert "that added orders-0 with epoch 0" in found.missing[0]
    here = ({**each, "topic_partitions": aborted[0]["topic_partitions"]} for each in committed)
    assert find(one, log, init(), *aborted, *here).name == "unknown"
    assert find(one, log, committed[2]).name == "unknown", "compacted: whether an abort of epoch 0 was before it"
    assert find(one, log, *committed[1:]).name == "unknown"


def test_version_2_adds_a_partition_before_its_first_record() -> None:
    """The coordinators' log has lost the record that added it. It was hanging, and the abort lost the commit."""
    version_2 = {"client_transaction_version": 2}
    committed = ended_records("Commit", began=3, at_second=4, on=(ELSEWHERE,), **version_2)
    committed[1:] = [{**each, "producer_epoch": 1} for each in committed[1:]]
    log = excerpt(data(100, second=3.5), start=100)
    one = open_transaction(transaction(state="CompleteCommit", epoch=1, on=()))
    for records in ([init(), *committed], [init(), committed[0]]):
        found = find(one, log, *records)
        assert found.name == "unknown"
        assert "that added orders-0 with epoch 0" in found.missing[0]
    next_epoch = excerpt(data(100, epoch=1, second=5), start=100)
    assert "with epoch 1" in find(open_transaction(one.owners[0], epoch=1), next_epoch, init(), *committed).reason
    lost = [init(), init(epoch=1), *ended_records("Abort", began=6, at_second=7, epoch=1, on=(ELSEWHERE,), **version_2)]
    assert "which transaction version" in find(one, log, *lost).reason, "restored; a new instance of version 2 goes on"
    version_1 = [init(), *ended_records("Commit", began=3, at_second=4, on=(ELSEWHERE,))]
    assert find(open_transaction(COMPLETE_COMMIT), log, *version_1).name == "undecided", "never added"


def test_batches_that_are_older_than_their_producer_id_contradict_the_log() -> None:
    """Restored from a backup, or the id was given out twice."""
    log = excerpt(data(98, second=-60), marker(99, COMMIT, second=-50), data(100, second=5))
    found = find(open_transaction(COMPLETE_COMMIT), log, init())
    assert (found.name, "from before 2026-11-21 11:49:59 UTC" in found.missing[0]) == ("unknown", True)
    for second, expected in ((-6.001, "unknown"), (-6, "undecided")):
        seen = excerpt(data(100, second=5), marker(101, COMMIT, pid=1, second=second), start=100)
        assert find(open_transaction(COMPLETE_COMMIT), seen, init()).name == expected


def test_clocks_that_contradict_prove_nothing() -> None:
    """A broker's time far before one that it follows: clocks are further apart than the bound."""
    steps: list[Step] = [Txn(gap=20_000), without_marker(gap=20_000), OtherMarker(gap=1_000)]
    assert after(*steps).outcome().name == "commit"
    world = after(*steps[:2], Failover(of_partition=True, clock=-20_000), *steps[2:])
    assert world.outcome().name == "unknown"


@pytest.mark.parametrize("apart", [6_000, 12_000, 60_000])
def test_clocks_further_apart_than_the_bound_make_a_marker_pass_for_that_of_the_next_commit(apart: int) -> None:
    """A commit without its marker counted as closed, and its records as hanging."""
    for sign in (1, -1):
        regular = [Txn(gap=apart - 4, lasts=1) for _ in range(4)]
        lost = after(*regular, Txn(gap=apart - 4, marker=False), leader_clock=sign * apart)
        assert (lost.outcome().name, lost.of_open_records) == ("unknown", {"commit"})
        assert lost.outcome(first_batch=4).name == "unknown"
    irregular = [Txn(gap=gap, lasts=7) for gap in (7_100, 6_300, 9_900)]
    assert after(*irregular, LateBatch(gap=10)).outcome().name == "undecided", "only one difference explains these"


def test_of_a_commit_and_an_abort_without_a_marker_nothing_is_known() -> None:
    """Which of them wrote the records? An abort marker might discard committed ones, a COMMIT marker reveal others."""
    for first, second in (("Commit", "Abort"), ("Abort", "Commit")):
        found = after(Txn(end=first, marker=False), Txn(end=second, marker=False)).outcome()
        assert found.name == "unknown"
        assert found.missing[0].startswith("which of these wrote offsets 0 to 1, as their markers may be missing here")
    assert after(OtherMarker(), without_marker(gap=10_000), without_marker()).outcome().name == "commit"


# Healthy, or never decided


def test_a_transaction_without_data_here_is_undecided() -> None:
    one = observation(transaction(), producers=[], partitions=[partition(lso=150)])
    ((txn,),) = IndexedObservation(one).cases.values()
    found = find(txn, None)
    assert (found.name, found.reason) == ("undecided", "it has written nothing here yet")


# Markers of operators and of coordinators that took over


def test_an_operators_marker_proves_nothing_about_clocks() -> None:
    """It may be from before or after the commit, as far as the clocks tell."""
    world = after(Txn(marker=False), OperatorAbort(gap=900), LateBatch(), coordinator_clock=2_500)
    assert (world.outcome().name, world.of_open_records) == ("unknown", {"undecided"})
    world = after(LateBatch(), OperatorAbort(), Txn(gap=900, marker=False), leader_clock=2_500)
    assert (world.outcome().name, world.of_open_records) == ("unknown", {"commit"})


@pytest.mark.parametrize("lost_before", [2_000, 60_000])
def test_a_marker_that_was_completed_is_not_that_of_the_next_commit(lost_before: int) -> None:
    """It was called `hanging`: within the clocks' difference, the COMMIT marker by hand fitted the next commit only."""
    completed: list[Step] = [Txn(marker=False), OperatorCommit(gap=lost_before)]
    soon = after(*completed, Txn(gap=900, marker=False))
    assert (soon.outcome().name, soon.of_open_records) == ("unknown", {"commit"})
    assert after(*completed, without_marker(gap=900)).outcome(is_one_clock=True).name == "commit"
    for step in (Txn(gap=6_000, marker=False), LateBatch(gap=1)):
        world = after(*completed, step)
        assert {world.outcome().name} <= {*world.of_open_records, "unknown"}


def test_a_marker_by_hand_shows_nothing_about_the_clocks() -> None:
    """It was called `hanging`: each marker fitted the commit after its own, by clocks that differ by 900 ms."""
    world = after(Txn(marker=False), OperatorCommit(gap=10_000), Txn(gap=900), Txn(gap=900, marker=False))
    assert (world.outcome().name, world.of_open_records) == ("unknown", {"commit"})
    aborted: list[Step] = [LateBatch(), OperatorAbort()]
    world = after(Txn(marker=False), OperatorCommit(gap=10_000), *aborted, Txn(marker=False))
    assert (world.outcome().name, world.of_open_records) == ("unknown", {"commit"})


@pytest.mark.parametrize(
    ("since", "leader_clock"),
    [(Failover(of_partition=True), -4_000), (Failover(clock=-4_000), 0)],
    ids=["another leader", "another coordinator"],
)
def test_the_marker_before_one_by_hand_is_by_another_clock(since: Failover, leader_clock: int) -> None:
    """It was called `hanging`: by the clocks of then, the marker by hand was younger than the next commit."""
    completed: list[Step] = [Txn(lasts=5), since, Txn(marker=False, gap=10_000), OperatorCommit(gap=20_000)]
    world = after(*completed, Txn(gap=900, marker=False), leader_clock=leader_clock)
    assert (world.outcome().name, world.of_open_records) == ("unknown", {"commit"})


def test_a_marker_of_another_coordinator_epoch_is_by_hand() -> None:
    """It was called `hanging`: the partition refused the COMMIT marker of the second transaction.

    Somebody had written a COMMIT marker with a higher coordinator epoch before it.
    """
    first, second = ended_records("Commit", began=0, at_second=1), ended_records("Commit", began=1.2, at_second=1.3)
    records = [{**each, "leader_epoch": 0} for each in (init(), *first, *second[:-1])]

    def log(coordinator_epoch: int) -> Excerpt:
        return excerpt(
            data(97, second=0.5), marker(98, COMMIT, second=1.01, coordinator_epoch=0),
            marker(99, COMMIT, second=1.2, coordinator_epoch=coordinator_epoch), data(100, second=1.25),
        )  # fmt: skip

    assert find(open_transaction(COMPLETE_COMMIT), log(0), *records).name == "undecided"
    assert find(open_transaction(COMPLETE_COMMIT), log(1), *records).name == "unknown"


@pytest.mark.parametrize(("coordinator_epoch", "expected"), [(2, "undecided"), (4, "unknown"), (5, "undecided")])
def test_a_marker_is_by_hand_if_no_coordinator_since_the_first_record_has_its_epoch(
    coordinator_epoch: int, expected: str
) -> None:
    """Older coordinators wrote markers whose records the cleaner has removed."""
    ended = ended_records("Commit", began=0, at_second=1)
    records = [{**init(), "leader_epoch": 3}, *({**each, "leader_epoch": 5} for each in ended)]
    end = marker(99, COMMIT, second=1.01, coordinator_epoch=coordinator_epoch)
    log = excerpt(data(98, second=0.5), end, data(100, second=1.25))
    assert find(open_transaction(COMPLETE_COMMIT), log, *records).name == expected


def test_one_clock_needs_the_broker_that_wrote_the_records() -> None:
    """The partition's leader coordinates the id now, but another broker did when the records were written."""
    world = after(Txn(), Txn(gap=500, marker=False), Failover(clock=500), leader_clock=500)
    assert world.is_one_clock
    assert world.outcome(is_one_clock=True).name in {"unknown", "commit"}
    assert world.outcome(is_one_clock=True).name == world.outcome().name


# Logs that do not reach back, or were not read


def find(one: Case, log: Excerpt | None, *events: Row, **more: Any) -> Outcome:
    coordinators = coordinator_log(events, **more)
    if log is not None:  # which was read up to its end
        one = replace(one, leader=replace(one.leader, high_watermark=log.stop))
    return with_logs(one, log, coordinators).outcome


COMPLETE_COMMIT = transaction(state="CompleteCommit", on=())
SINCE = 'records of "payments-7" in __transaction_state-33 from before'


def test_a_late_batch_behind_the_own_marker_of_version_2_is_in_no_commit() -> None:
    """The leader has forgotten the producer, and takes its old epoch. It was called committed, to be completed."""
    late = excerpt(data(98, epoch=4, second=0.5), marker(99, COMMIT, epoch=5, second=1), data(100, epoch=4, second=9))
    records = [init(epoch=4), *ended_records("Commit", began=0, at_second=1, epoch=4)]
    records[2:] = [{**each, "producer_epoch": 5, "client_transaction_version": 2} for each in records[2:]]
    owner = transaction(state="CompleteCommit", epoch=5, on=())
    assert find(open_transaction(owner, epoch=4), late, *records).name == "undecided"


@pytest.mark.parametrize("end", ["Commit", "Abort"])
def test_a_decision_counts_only_if_the_log_reaches_back(end: str) -> None:
    """Before the first record that is left, there may have been another decision without a marker."""
    other = "Abort" if end == "Commit" else "Commit"
    world = after(Txn(end=other, marker=False), Txn(end=end, marker=False))
    found = world.outcome(first_record=4)
    assert found.name == "unknown"
    assert found.missing[0].startswith(SINCE)
    assert world.of_open_records == {"commit", "abort"}


@pytest.mark.parametrize(
    ("second", "clock", "expected"),
    [
        (5, "producer", "unknown"),
        (600, "producer", "unknown"),
        (14, "broker", "unknown"),
        (16, "broker", "undecided"),
        (14, "marker before", "unknown"),
        (16, "marker before", "undecided"),
    ],
)
def test_a_repeated_init_producer_id_hides_a_commit(second: int, clock: str, expected: str) -> None:
    """It returned the epoch again, after the commit, which compaction removed: an abort discarded committed records.

    Seen on 4.3.1. A record that a broker's time shows to be younger is of no transaction before it; CreateTime, which
    may be that of an event to come, shows nothing.
    """
    repeated = record(20, "Empty", second=10, epoch=1)
    attributes = TRANSACTIONAL | LOG_APPEND_TIME if clock == "broker" else TRANSACTIONAL
    before = [marker(99, COMMIT, pid=8, second=second)] if clock == "marker before" else []
    batches = [*before, data(100, epoch=1, second=second, attributes=attributes)]
    log = excerpt(*batches, start=batches[0]["base_offset"])
    assert find(open_transaction(start=100, epoch=1), log, repeated).name == expected


def test_the_only_record_left_is_complete_commit() -> None:
    """It has no partitions: with transaction version 1 it may be of a transaction without this partition."""
    world = after(Txn(gap=10_000), Txn(gap=10_000, marker=False), version=1)
    assert world.outcome(compacted=len(world.records)).name == "unknown"
    found = after(OtherMarker(), Txn(gap=10_000, here=False), OtherMarker(gap=6_000), LateBatch()).outcome(compacted=4)
    assert found.name == "undecided", "the batch is younger than the only decision"
    world = after(Txn(gap=10_000), Txn(gap=10_000, marker=False), version=2)
    assert world.outcome(compacted=len(world.records)).name == "unknown", "another transaction may have had the epoch"
    assert world.outcome(compacted=3).name == "commit", "each transaction has its own epoch"
    late = after(Txn(gap=10_000, lasts=20), LateBatch(gap=1))
    assert late.outcome(compacted=len(late.records), is_one_clock=True).name == "undecided", "its marker is there"
    assert late.outcome(compacted=len(late.records)).name == "unknown", "or that of a transaction before it"
    long = after(Txn(gap=10_000, lasts=20_000), LateBatch(gap=1))
    assert long.outcome(compacted=len(long.records)).name == "undecided"


def test_the_only_record_left_may_be_of_a_coordinator_that_took_over() -> None:
    """It decides again: the time of the decision is later than the marker that the one before it wrote."""
    log = excerpt(data(98, second=10), marker(99, COMMIT, second=10.2), data(100, second=10.4), start=98)
    complete = record(9, "CompleteCommit", second=17, started=10, leader_epoch=4)
    assert find(open_transaction(COMPLETE_COMMIT), log, complete).name == "unknown"


def test_an_excerpt_of_the_partition_that_does_not_reach_back() -> None:
    records = [init(), *ended_records("Commit", began=9, at_second=11)]
    late = excerpt(data(95, pid=1, records=5), data(100, second=12), start=95)
    found = find(open_transaction(COMPLETE_COMMIT), late, *records)
    assert found.name == "unknown"
    assert found.missing[0].startswith("the log of orders-0 from before offset 100, with its markers")
    for log in (None, excerpt(data(95, pid=1, records=5), start=95)):
        assert find(open_transaction(COMPLETE_COMMIT), log, *records).name == "unknown", "it ends before the start"
        assert find(open_transaction(), log, init()).name == "undecided", "nothing was decided at all"
        aborted = [init(), *ended_records("Abort", began=9, at_second=11)]
        assert find(open_transaction(COMPLETE_COMMIT), log, *aborted).name == "undecided", "at most aborted"


def test_a_deleted_head() -> None:
    """The start offset is below the log start, with the markers before it."""
    records = [init(), *ended_records("Commit", began=9, at_second=11)]
    one = open_transaction(COMPLETE_COMMIT, start=80, leader=partition(log_start_offset=90))
    rest = excerpt(marker(90, COMMIT, pid=1, second=10), data(91, second=10.1), log_start_offset=90)
    assert find(one, rest, *records).name == "unknown"
    seen = marker(92, COMMIT, pid=1, second=5)
    earlier = excerpt(marker(90, COMMIT, pid=1, second=3), data(91, second=4), seen, log_start_offset=90)
    assert find(one, earlier, *records).name == "commit", "a marker of the commit is not before the log start"


def test_batches_that_the_cleaner_removed_may_have_been_the_marker() -> None:
    records = [init(), *ended_records("Commit", began=9, at_second=11)]
    before = (marker(90, COMMIT, pid=1, second=2), data(91, pid=1, records=8, second=3))
    seen = marker(101, COMMIT, pid=1, second=5)
    whole = excerpt(*before, data(99, pid=1, second=9), data(100, second=12), seen)
    assert find(open_transaction(COMPLETE_COMMIT), whole, *records).name == "commit"
    removed = excerpt(*before, data(100, second=12), seen)
    assert find(open_transaction(COMPLETE_COMMIT), removed, *records).name == "unknown"
    busy = [init(), *ended_records("Commit", began=0, at_second=1), *ended_records("Commit", began=9, at_second=11)]
    with_marker = (data(90, second=0.5), marker(91, COMMIT, second=1.05))
    lost = excerpt(*with_marker, data(92, pid=1, records=8), data(100, second=12), seen)
    assert find(open_transaction(COMPLETE_COMMIT), lost, *busy).name == "commit"
    removed = excerpt(*with_marker, data(93, pid=1, records=7), data(100, second=12), seen)
    assert find(open_transaction(COMPLETE_COMMIT), removed, *busy).name == "unknown"
    since_marker = excerpt(data(92), marker(98, COMMIT, second=12), data(99, pid=1, second=13), data(100, second=14))
    assert find(open_transaction(COMPLETE_COMMIT), since_marker, *records).name == "undecided", (
        "it was before the marker"
    )


def test_records_that_could_not_be_read() -> None:
    log = excerpt(data(98), marker(99, ABORT), data(100, sequence=1))
    unread = ["__transaction_state could not be read (TOPIC_AUTHORIZATION_FAILED)"]
    found = find(open_transaction(COMPLETE_COMMIT), log, init(), unread=unread)
    assert (found.name, found.missing) == (
        "unknown",
        (f"{unread[0]}: whether a commit includes these records of orders-0",),
    )
    not_read = with_logs(open_transaction(COMPLETE_COMMIT), log).outcome
    assert not_read.missing[0].startswith("the coordinators' log, which was not read")


def test_an_unreadable_record_of_the_id_is_in_the_way() -> None:
    damaged = {**record(4, None, second=20), "error": "CORRUPT: bad.", "tombstone": False}
    found = find(open_transaction(COMPLETE_COMMIT), excerpt(data(100), start=100), init(), damaged)
    assert found.name == "unknown"
    assert found.missing[0].startswith("__transaction_state could not be read (CORRUPT): whether")


def test_a_producer_id_without_records_or_with_two_ids() -> None:
    log = excerpt(data(100), start=100)
    found = find(open_transaction(), log)
    assert (found.name, found.missing[0].startswith("records of producer 7 in __transaction_state (none is left)")) == (
        "unknown",
        True,
    )
    since = {33: NOW, 34: NOW + dt.timedelta(seconds=1)}
    assert "(none is left since 2026-11-21 12:00:00 UTC)" in find(open_transaction(), log, since=since).reason
    other = record(0, "Empty", second=-1, transactional_id="other")
    found = find(open_transaction(), log, init(), other)
    assert (found.name, "2 ids have it" in found.missing[0]) == ("unknown", True)
    of_another = record(0, "Empty", second=-1, pid=8)
    assert "(none is left)" in find(open_transaction(COMPLETE_COMMIT), log, of_another).reason
    owned = find(open_transaction(transaction(state="Empty", on=())), log, init(), other)
    assert (owned.name, '"other" had, too' in owned.missing[0]) == ("unknown", True), "it was given out twice"


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_producer_id_at_the_end_of_its_epochs(is_whole: bool) -> None:
    """With transaction version 2 the last commit gives the client its next producer id, in CompleteCommit."""
    version_2 = {"client_transaction_version": 2}
    records = [
        record(0, "Ongoing", second=9, started=9, on=(HERE,), epoch=32_766, **version_2),
        record(1, "PrepareCommit", second=11, started=9, on=(HERE,), epoch=32_767, **version_2),
        record(2, "CompleteCommit", second=11, started=9, pid=8, previous_producer_id=7, **version_2),
    ]
    one = open_transaction(epoch=32_766)
    log = excerpt(data(100, epoch=32_766, second=10), start=100)
    begin = [record(0, "Empty", second=8, epoch=32_766)]
    records = [*begin, *({**each, "offset": (each["offset"] or 0) + 1} for each in records)]
    found = find(one, log, *records[0 if is_whole else 3 :])
    assert found.name == ("commit" if is_whole else "unknown")
    next_one = open_transaction(transaction(8, state="CompleteCommit", on=()), pid=8)
    found = find(next_one, excerpt(data(100, pid=8), start=100), *records[3:])
    assert "that added orders-0 with epoch 0" in found.missing[0], "version 2 adds a partition before it writes"


def test_the_outcome_names_what_it_rests_on() -> None:
    world = after(Txn(), LateBatch())
    found = world.outcome()
    assert found.reason == (
        'no commit with this partition lacks its marker here, as the records of "payments-7" in '
        "__transaction_state-33 from 2026-11-21 11:50:00 UTC on begin with its producer id"
    )
    assert [entry.name for entry in found.evidence] == ["outcome_from"]
    long = after(Txn(lasts=10_000), LateBatch())
    assert "include the transaction whose marker is at offset 1" in long.outcome(first_record=1).reason
    newer = after(NewInstance(), LateBatch())
    assert newer.client_epoch == 1
    assert "begin with its producer id" in newer.outcome().reason
    assert newer.outcome(first_record=1).name == "unknown", "its InitProducerId may be a repeated one"
    on_version_2 = after(Txn(), Txn(marker=False), version=2)
    assert "epoch 1 was committed" in on_version_2.outcome(first_record=3).reason
    busy = after(Txn(here=False), OtherMarker(gap=6_000), LateBatch())
    assert "begin before offset 1 was written" in busy.outcome(first_record=1).reason
    assert after(Txn(here=False), OtherMarker(gap=4_000), LateBatch()).outcome(first_record=1).name == "unknown"


# One guard of the proof each


def test_without_the_epoch_of_the_leader_any_transaction_can_have_written_them() -> None:
    records = [init(), *ended_records("Commit", began=9, at_second=11)]
    one = open_transaction(COMPLETE_COMMIT, epoch=None)
    assert one.epoch == -1
    before, seen = marker(0, COMMIT, pid=1, second=1), marker(101, COMMIT, pid=1, second=5)
    log = excerpt(before, data(1, pid=1, records=99, second=1), data(100, second=10), seen, start=0)
    assert find(one, log, *records).name == "commit"


def test_of_records_of_two_epochs_the_first_one_counts() -> None:
    """Version 2: no marker of the first can be there, as the leader would have refused its records afterwards."""
    steps: list[Step] = [Txn(), Txn(end="Abort", by_coordinator=True, marker=False, gap=4_000), Txn(end=None)]
    world = after(*steps, version=2, leader_clock=2_500)
    assert world.of_open_records == {"abort", "undecided"}
    assert world.outcome(first_batch=2).name == "undecided", "no commit includes any of them"


def test_transactions_of_the_ids_next_producer_id_decide_nothing() -> None:
    """The id goes on with another producer id, and the log of this one does not reach back."""
    late = excerpt(data(0, pid=1, records=100, second=1), data(100, second=10), start=0)
    version_2 = {"client_transaction_version": 2}
    goes_on = record(1, "Empty", second=20, pid=8, previous_producer_id=7)
    here = ended_records("Commit", began=21, at_second=22, offset=2, pid=8)
    assert find(open_transaction(), late, init(), goes_on, *here).name == "undecided"
    elsewhere = ended_records("Commit", began=21, at_second=22, offset=2, pid=8, on=(ELSEWHERE,), **version_2)
    third = record(0, "Empty", second=15, epoch=3)
    found = find(open_transaction(), excerpt(data(100, second=10)), third, goes_on, *elsewhere)
    assert found.name == "unknown", "before epoch 3, this producer may have committed it"


def test_a_repeated_init_producer_id_does_not_begin_the_next_producer_id() -> None:
    """After epoch 32,766 it returns epoch 0 of the next id again, perhaps after a commit that compaction removed."""
    one = open_transaction(transaction(8, state="Empty", on=()), pid=8)
    log = excerpt(data(100, pid=8, second=10), start=100)
    for previous, expected in ((7, "unknown"), (8, "undecided"), (None, "undecided")):
        begun = record(5, "Empty", second=12, pid=8, previous_producer_id=previous)
        assert find(one, log, begun).name == expected


def test_of_a_transaction_without_its_prepare_record_the_decision_is_not_known_to_the_millisecond() -> None:
    """A coordinator that took over decides again; and without a start time, it may have been decided long before."""
    steps: list[Step] = [Txn(here=False, gap=60), Txn(gap=4_000, lasts=20, delay=1_000), without_marker(gap=4_000)]
    assert after(*steps).outcome(first_batch=1).name == "commit"
    complete = record(3, "CompleteCommit", second=11.1, last_update_time=at(11))
    log = excerpt(data(90, second=0), marker(91, COMMIT, second=10.5), data(100, second=12))
    assert find(open_transaction(COMPLETE_COMMIT), log, init(), complete).name == "undecided"


def test_two_copies_of_the_coordinators_log_are_one() -> None:
    """Log directories of two brokers have each record twice."""
    records = [init(), *ended_records("Commit", began=0, at_second=1)]
    records += ended_records("Commit", began=9, at_second=11, offset=4)
    log = excerpt(
        data(90, second=0.5), marker(91, COMMIT, second=1.05), data(92, pid=1, records=8), data(100, second=10),
        marker(101, COMMIT, pid=1, second=5),
    )  # fmt: skip
    assert find(open_transaction(COMPLETE_COMMIT), log, *records).name == "commit"
    copy = [{**row, "broker_id": 4} for row in records]
    assert find(open_transaction(COMPLETE_COMMIT), log, *records, *copy).name == "commit"


def by_one_clock(world: World, *, coordinator: tuple[int, int] = (1, 3), **leader: Any) -> str:
    """The outcome, if the coordinator is this broker in this term, and the partition's leader has these fields."""
    one = world.open_transaction()
    one = replace(one, leader=replace(one.leader, **leader))
    coordinators = coordinator_log(world.records, leaders={33: coordinator})
    return with_logs(one, excerpt(*world.batches, start=0), coordinators).outcome.name


def test_one_clock_is_that_of_one_broker_which_wrote_the_marker_and_all_records() -> None:
    """Half a second between two commits: only times of one clock tell of which of them the marker is."""
    world = after(Txn(gap=10_000), without_marker(gap=500, lasts=1_100))
    assert by_one_clock(world) == "commit"
    assert by_one_clock(world, leader=2) == "unknown", "another broker leads the partition"
    assert by_one_clock(world, leader_epoch=5) == "unknown", "the marker is from before it led the partition"
    assert by_one_clock(world, coordinator=(1, 4)) == "unknown", "the records are from before it was the coordinator"
    moved = after(Txn(gap=10_000), Failover(), without_marker(gap=500, lasts=1_100))
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
        world = after(Txn(), Failover(), Txn(gap=gap), without_marker(gap=500, lasts=1_100))
        assert by_one_clock(world, coordinator=(1, 4)) == expected


def test_the_log_begins_when_the_epoch_of_the_records_was_already_over_or_has_just_begun() -> None:
    lost = after(Txn(end="Abort", marker=False), version=2)
    assert lost.outcome(first_record=2).name == "unknown", "its first record has the next epoch"
    committed = after(Txn(marker=False), Txn(here=False), version=2)
    assert committed.outcome(first_record=4).name == "unknown", "its first transaction is the one after these records"
    live = after(Txn(here=False), Txn(end=None, gap=4_000), version=2)
    assert live.outcome(first_record=1).name == "undecided", "its first record has the epoch before"
    assert live.outcome(first_record=2, compacted=3).name == "undecided", "each end of version 2 begins an epoch"
    expired = after(NewInstance(), LateBatch(), NewInstance(), Expiry(tombstone=False, gap=6_000))
    assert expired.outcome(first_record=2).name == "unknown", "no transaction of it is left"
    slow = after(Txn(end="Abort", delay=4_000), LateBatch(gap=1_000))
    assert slow.outcome(first_record=1).name == "unknown", "the marker may be of a transaction before the log"
    again = after(Txn(lasts=60), NewInstance(), Txn(here=False, gap=6_000, lasts=4_000), LateBatch(gap=6_000))
    assert again.outcome(compacted=5).name == "unknown", "InitProducerId may be repeated after a commit of its epoch"


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
    steps_before = [step for step in first if not isinstance(step, Failover)]
    world = after(OtherMarker(), OtherMarker(gap=10_000), *steps_before, *last, version=version)  # an old log
    assume(world.open)
    name = world.outcome(is_one_clock=True).name
    check(world, name)
    has_no_time = version == 1 and "commit" in world.decisions  # between the records and the decision
    is_mixed = "commit" in world.decisions and len(world.of_open_records) > 1
    assert name != "unknown" or len(world.decisions) > 1 or has_no_time or is_mixed
