"""Rules on open transactions, and the claims that an action needs.

What is seen of a transaction, and the verdict, outcome and action that follow; ``golden/rules.txt`` has all of it.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.analysis.build import COMPLETE, NOW, ago, first_batch, observation, partition, producer, transaction, twice
from tests.analysis.logged import HERE, by_logs, data, ended_records, excerpt, facts, init, marker, record
from tests.stored import compare
from toolkit.analysis.diagnosis import rules
from toolkit.analysis.diagnosis.case import DiagnoseOptions
from toolkit.analysis.diagnosis.decision import NOT_PROVEN, PROVEN, REFUTED, Outcome, decide_ended, decide_unknown
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.observation import AsOf, BrokersTime, Observation
from toolkit.analysis.diagnosis.rules import claim_entries, claims_of, needed_override
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import COMMIT
from toolkit.schema import Row
from toolkit.schema.live import EvidenceEntry, Finding, Partition, Transaction
from toolkit.schema.log import PastTransaction
from toolkit.schema.recorded import ActionClaim
from toolkit.schema.table import EVERYTHING, Selection, TopicPartition
from toolkit.schema.verdict import Verdict

ELSEWHERE = (("payments", 2),)
TWO_PHASE = 2**31 - 1
FLINK_MS = 3_600_000
OLD_BATCH = first_batch(epoch=1)
GAP = replace(COMPLETE, gaps=("broker 2 did not answer",))
UNREAD_EPOCH = replace(producer(), producer_epoch=None)


@dataclass(frozen=True, kw_only=True)
class Looks:
    """What is seen of a transaction."""

    observations: Sequence[Observation]
    log: dict[TopicPartition, Excerpt] | None = None
    events: Sequence[Row] = ()  # records of coordinators; without any, its producer id has begun
    outcome: Outcome | None = None  # what logs show, instead of logs
    are_logs_read: bool = True
    requested: Sequence[TopicPartition] = ()

    def findings(self) -> list[Finding]:
        diagnosis = Diagnosis.of(self.observations)
        read = facts(diagnosis, self.log, *self.events) if self.are_logs_read else {}
        read = read if self.outcome is None else by_logs(diagnosis, self.outcome)
        return diagnosis.findings(requested=self.requested, read=read)


def seen(*owners: Any, **more: Any) -> Looks:
    """Two observations of a transaction at offset 100 with these owners."""
    own = {name: more.pop(name) for name in Looks.__annotations__ if name in more}
    return Looks(**{"observations": twice(observation(*owners, **more)), **own})


def from_files(*owners: Any, doubts: Sequence[str] = (), as_of: dt.datetime | None = None, **more: Any) -> Looks:
    """One observation, read from log directories."""
    proven = {} if as_of is None else {TopicPartition(STATE_TOPIC, 33): AsOf(as_of, "its newest record")}
    one = observation(*owners, **more)
    doubted = {("orders", 0, 7): tuple(doubts)} if doubts else {}
    return Looks(observations=[replace(one, from_files=True, doubts=doubted, as_of=proven)])


# Logs of the partition, and records of its coordinator


BEFORE = data(0, pid=1, records=100)
OLDER = (marker(0, COMMIT, pid=1, second=2), data(1, pid=1, records=99))  # that the log is older is proven


def here(*rows: dict[str, Any], start: int = 0, **more: Any) -> dict[TopicPartition, Excerpt]:
    """The log of the partition, read up to the high watermark, of the leader before the present one."""
    return {HERE: excerpt(*({"leader_epoch": 3, **row} for row in rows), start=start, **{"stop": 150, **more})}


def ended(end: str, *, offset: int = 1, began: float = 3, at_second: float = 11, **more: Any) -> list[Row]:
    return ended_records(end, began=began, at_second=at_second, offset=offset, **more)


def timed(offset: int, second: float) -> dict[str, Any]:
    """A broker's time in the log of the partition: the marker of another producer."""
    return marker(offset, COMMIT, pid=1, second=second)


def decided(name: str, *, end_time: dt.datetime | None) -> Outcome:
    past = PastTransaction(
        transactional_id="payments-7", kind="transaction", reason="", producer_epoch=0, end_time=end_time
    )
    return Outcome(name=name, reason="it was decided", transaction=past)


COMMITTED, ENDED = [init(), *ended("Commit")], transaction(state="CompleteCommit", on=())
EMPTY = transaction(state="Empty", on=())
LONG = transaction(start_time=ago(minutes=20), timeout_ms=FLINK_MS)
OVERDUE = transaction(start_time=ago(minutes=2))
LIVE_RECORDS = [*COMMITTED, record(9, "Ongoing", second=30, started=30, on=(HERE,))]
UNCOMMITTED: dict[str, Any] = {"log": here(BEFORE, data(100, second=31)), "events": [init(), LIVE_RECORDS[-1]]}
COMMITTED_BELOW: dict[str, Any] = {"log": here(BEFORE, data(100, second=4), timed(101, 5)), "events": LIVE_RECORDS}
LIKELY_BELOW: dict[str, Any] = {"log": here(*OLDER, data(100, second=4)), "events": LIVE_RECORDS}
COMMITTED_TWICE = [*COMMITTED, record(9, "Empty", second=20, epoch=1)]
OF_BOTH = [*COMMITTED_TWICE, *ended("Commit", offset=10, began=21, at_second=40, epoch=1)]
OPENED, NEWER = (BEFORE, data(100, second=4), timed(101, 5)), data(102, records=2, epoch=1, second=20)
OF_TWO_EPOCHS: dict[str, Any] = {"producers": [producer(epoch=2)], "first_batches": [OLD_BATCH]}
MIXED = Outcome(name="unknown", reason="both", is_partly_committed=True, is_partly_free=True)
MARKER_AFTER = EvidenceEntry(source="Fetch", observed_at=NOW, name="marker_after", value="COMMIT")
WITHOUT_DATA: dict[str, Any] = {"producers": [], "partitions": [partition(lso=150)]}
ON_TOPIC, ON_TOPICS = (
    {"partitions": [partition(topic)], "producers": [producer(topic=topic)]}
    for topic in ("__consumer_offsets", STATE_TOPIC)
)
BEGINS: dict[str, Any] = {"producers": [], "after": [producer()]}

LIVE, HANGING, UNPROVEN = "ongoing undecided -", "hanging undecided abort", "unknown unknown -"
COMPLETED = "stuck_ending commit complete"
SEEN: dict[str, tuple[str, Looks]] = {
    # Live
    "within its timeout": (LIVE, seen(transaction())),
    "its timeout is not known": (LIVE, seen(transaction(timeout_ms=None))),
    "its timeout is not known, and it began 81 s ago": (
        LIVE, seen(transaction(timeout_ms=None, start_time=ago(seconds=81)))),
    "its start is not known": (LIVE, seen(transaction(start_time=None))),
    "it starts in the future": (LIVE, seen(transaction(start_time=NOW + dt.timedelta(minutes=3)))),
    "for 15 min, of an hour": (LIVE, seen(transaction(start_time=ago(seconds=900), timeout_ms=FLINK_MS))),
    "for a second more": ("long undecided -", seen(transaction(start_time=ago(seconds=901), timeout_ms=FLINK_MS))),
    "past its timeout, within the grace": (LIVE, seen(transaction(start_time=ago(seconds=80)))),
    "past both": ("overdue undecided fence", seen(transaction(start_time=ago(seconds=81)))),
    "two-phase commit has no timeout": ("prepared undecided -", seen(transaction(timeout_ms=TWO_PHASE))),
    "it has written nothing here": (LIVE, seen(transaction(), **WITHOUT_DATA)),
    "it is overdue, and has nothing here to discard": ("overdue undecided fence", seen(OVERDUE, **WITHOUT_DATA)),
    # The batch may be of an earlier transaction; one that began less than 10 s ago ends soon.
    **{
        f"open for {open_for} s, its first batch is {written} s old": (LIVE, seen(
            transaction(start_time=ago(seconds=open_for)), first_batches=[first_batch(time=ago(seconds=written))]))
        for open_for, written in ((10, 11), (9.9, 11), (10, 10), (10, 9))
    },
    # Decided, and its coordinator still writes the marker
    **{
        f"{state} {seconds} s ago": (f"{verdict} {outcome} -", seen(
            transaction(state=state, last_update_time=ago(seconds=seconds))))
        for state, outcome in (("PrepareCommit", "commit"), ("PrepareAbort", "abort"), ("PrepareEpochFence", "abort"))
        for seconds, verdict in ((65, "ending"), (66, "stuck_ending"))
    },
    # Nobody will end it
    "without an owner": (HANGING, seen()),
    **{f"its id is {state}": (HANGING, seen(transaction(state=state, on=()))) for state in
       ("Empty", "CompleteCommit", "Dead")},
    "its id is CompleteAbort, with the next epoch": (
        HANGING, seen(transaction(state="CompleteAbort", on=(), epoch=1), first_batches=[first_batch()])),
    "its id is Empty, with two-phase commit": (HANGING, seen(transaction(state="Empty", on=(), timeout_ms=TWO_PHASE))),
    "Ongoing elsewhere": (HANGING, seen(transaction(on=ELSEWHERE))),
    "overdue elsewhere": (HANGING, seen(transaction(on=ELSEWHERE, start_time=ago(minutes=2)))),
    "long elsewhere": (HANGING, seen(transaction(on=ELSEWHERE, start_time=ago(minutes=20), timeout_ms=FLINK_MS))),
    "a newer epoch elsewhere": (HANGING, seen(transaction(epoch=1, on=ELSEWHERE))),
    "a newer epoch here": (HANGING, seen(transaction(epoch=1, last_update_time=ago(seconds=10)))),
    "of two epochs, and no owner": (HANGING, seen(**OF_TWO_EPOCHS)),
    "the epoch here is not known: it is not called superseded": (
        HANGING, seen(transaction(on=ELSEWHERE), producers=[UNREAD_EPOCH])),
    "on __consumer_offsets": (HANGING, seen(**ON_TOPIC)),
    "a first batch of another producer": (HANGING, seen(first_batches=[first_batch(99, base_offset=103)])),
    # A coordinator's current state says nothing about an earlier transaction, which may have been committed.
    **{
        f"without the coordinators' log: {name}": (UNPROVEN, seen(*owners, are_logs_read=False))
        for name, owners in {
            "no owner": [], "elsewhere": [transaction(on=ELSEWHERE)],
            "superseded": [transaction(epoch=1, last_update_time=ago(seconds=10))],
            **{state: [transaction(state=state, on=())] for state in
               ("Empty", "CompleteCommit", "CompleteAbort", "Dead")},
        }.items()
    },
    # An answer that proves nothing
    "PrepareCommit elsewhere": (UNPROVEN, seen(transaction(state="PrepareCommit", on=ELSEWHERE))),
    "PrepareCommit elsewhere for 5 min": (
        UNPROVEN, seen(transaction(state="PrepareCommit", on=ELSEWHERE, last_update_time=ago(minutes=5)))),
    "two-phase commit elsewhere": (UNPROVEN, seen(transaction(timeout_ms=TWO_PHASE, on=ELSEWHERE))),
    "its coordinator is fencing it": (UNPROVEN, seen(transaction(epoch=1))),
    **{
        f"a state that is not known: {name}": (UNPROVEN, seen(owner)) for name, owner in {
            "elsewhere": transaction(state="Odd", on=()), "here": transaction(state="Odd"),
            "a newer epoch": transaction(state="Odd", epoch=1),
            "two-phase commit": transaction(state="Odd", timeout_ms=TWO_PHASE), "none": transaction(state=None, on=()),
            "an error": transaction(state=None, error="X: y"),
        }.items()
    },
    "two coordinators": (UNPROVEN, seen(transaction(), transaction(state="CompleteAbort", on=(), coordinator_id=2))),
    **{
        f"two coordinators of one mind{name}": (UNPROVEN, seen(
            transaction(), transaction(coordinator_id=2), are_logs_read=not name))
        for name in ("", ", and no log was read")
    },
    "committed in part, and free": (UNPROVEN, seen(outcome=MIXED)),
    "on the coordinators' topic": (UNPROVEN, seen(**ON_TOPICS)),
    "an older epoch at the coordinator": (UNPROVEN, seen(transaction(), producers=[producer(epoch=1)])),
    # A live transaction was called hanging, with the text that its coordinator's epoch -1 had superseded it.
    **{
        f"no epoch at the coordinator, {where}, {seconds} s": (UNPROVEN, seen(
            transaction(producer_epoch=None, on=on, start_time=ago(seconds=seconds)),
            producers=[producer(epoch=32766)]))
        for where, on in (("here", (HERE,)), ("elsewhere", ELSEWHERE)) for seconds in (10, 76)
    },
    **{
        f"no epoch on the partition, logged {logged_at and 10} s ago": (
            UNPROVEN, seen(transaction(last_update_time=logged_at), producers=[UNREAD_EPOCH]))
        for logged_at in (None, ago(seconds=10))
    },
    "a producer that went on with another epoch": (UNPROVEN, seen(observations=[
        twice(observation(producers=[producer(epoch=0)]))[0], observation(producers=[producer(epoch=1)])])),
    "a broker that did not answer": (UNPROVEN, seen(coverage=GAP)),
    "a leader that moved": (UNPROVEN, seen(partitions_after=[partition(leader=2)])),
    "a leader that failed": ("unknown unknown -; unknown - -", Looks(
        observations=[observation(partitions_after=[partition(error="NOT_LEADER: x")])])),
    "another partition that could not be read": (f"{HANGING}; unknown - -", seen(
        partitions=[partition(), partition(number=1)],
        producers=[producer(), producer(start=None, partition=1, producer_id=None, error="DENIED: no")])),
    "topics that may be hidden, and nothing open": ("unknown - -", Looks(observations=[
        observation(**WITHOUT_DATA, coverage=replace(COMPLETE, topic_gaps=("DESCRIBE on Topic '*'",)))])),
    "without a broker's time": (LIVE, Looks(observations=[observation(
        transaction(start_time=ago(days=1)),
        brokers_time=BrokersTime(error="DescribeQuorum: CLUSTER_AUTHORIZATION_FAILED"))])),
    "a dead epoch below a live one": ("ongoing undecided -", Looks(observations=[observation(
        transaction(epoch=1), producers=[producer(epoch=1)],
        first_batches=[first_batch(last_offset=100, log_append_time=True)])])),
    # Below epoch 32767, a newer instance may have it; before the timeout, the fence may still be on its way. That its
    # coordinator then aborts it was advised without the proof that no commit includes it.
    **{
        f"epoch {epoch}, and {owner.producer_epoch} {owner.state} at the coordinator{where}: {outcome}": (
            expected, seen(owner, producers=[producer(epoch=epoch)],
                           outcome=Outcome(name=outcome, reason="its log shows it", are_markers_sought=True)))
        for epoch, owner, where, outcome, expected in (
            (32766, transaction(epoch=32767, start_time=ago(seconds=81)), "", "undecided", "overdue undecided -"),
            (32766, transaction(epoch=32767, start_time=ago(seconds=81)), "", "unknown", "overdue unknown -"),
            (32766, transaction(epoch=32767, start_time=ago(seconds=80)), " for 80 s", "undecided", UNPROVEN),
            (32766, transaction(epoch=32767, start_time=ago(seconds=81)), "", "commit", "unknown unknown -"),
            (32765, transaction(epoch=32766, start_time=ago(seconds=81)), "", "undecided", UNPROVEN),
            (32765, transaction(epoch=32767, start_time=ago(seconds=81)), "", "undecided", UNPROVEN),
            (32766, transaction(epoch=32767, start_time=ago(seconds=81), on=ELSEWHERE), " elsewhere", "undecided",
             HANGING),
            (32766, transaction(state="Odd", epoch=32767, start_time=ago(seconds=81)), "", "undecided", UNPROVEN),
        )
    },
    # Of files
    "a doubt about the files": (UNPROVEN, from_files(EMPTY, doubts=["proof that orders-0 is as new"])),
    "the files of all brokers": (HANGING, from_files(EMPTY)),
    # A copy may be newer than the coordinator's last record: its own time makes nothing overdue or stuck.
    **{
        f"5 min old, and the files prove {name}: {state}": (expected, from_files(transaction(
            state=state, start_time=ago(seconds=300), last_update_time=as_of and ago(seconds=300)), as_of=as_of))
        for name, as_of, state, expected in (
            ("20 s", ago(seconds=280), "Ongoing", LIVE),
            ("200 s", ago(seconds=100), "Ongoing", "overdue undecided fence"),
            ("no time", None, "Ongoing", LIVE),
            ("20 s", ago(seconds=280), "PrepareCommit", "ending commit -"),
            ("200 s", ago(seconds=100), "PrepareCommit", "stuck_ending commit -"),
            ("no time", None, "PrepareCommit", "ending commit -"),
        )
    },
    "it began while the files were copied": ("clear - -", from_files(**BEGINS)),
    "it began between two requests": ("ending - -", Looks(observations=[observation(**BEGINS)])),
    "it began at the high watermark": ("clear - -", replace(from_files(
        **BEGINS, partitions=[partition(high_watermark=100)]), requested=[HERE])),
    # The marker that the LSO waits for may be followed by what began.
    "nothing began": ("unreplicated - -", from_files(producers=[], after=[])),
    "what began is not at the LSO": ("unreplicated - -", from_files(producers=[], after=[producer(start=120)])),
    # What the log decides: with version 1, a late record that no commit includes has the same epoch.
    "a commit that a broker's time proves": (
        COMPLETED, seen(ENDED, log=here(BEFORE, data(100, second=4), timed(101, 5)), events=COMMITTED)),
    "an abort": ("hanging abort abort", seen(
        ENDED, log=here(BEFORE, data(100, second=4), timed(101, 5)), events=[init(), *ended("Abort")])),
    **{
        f"a commit without a broker's time before it: {name}": (expected, seen(ENDED, log=log, events=COMMITTED))
        for name, expected, log in (
            ("nothing after it", UNPROVEN, here(*OLDER, data(100, second=4))),
            ("a marker within the bound of 5 s", UNPROVEN, here(*OLDER, data(100, second=4), timed(101, 6))),
            ("beyond it", COMPLETED, here(*OLDER, data(100, second=4), timed(101, 5.999))),
            ("a marker before it", UNPROVEN,
             here(*OLDER[:1], data(1, pid=1, records=98), timed(99, 5), data(100, second=4))),
            ("CreateTime", UNPROVEN, here(*OLDER, data(100, second=4), data(101, pid=1, second=5))),
            # Created again since: the commit's marker was in the old one.
            ("the log is not proven to be older", UNPROVEN, here(BEFORE, data(100, second=4))),
            # A marker would decide the records that were not read, too.
            ("a log that was not read to its end", UNPROVEN,
             here(BEFORE, data(100, second=4), timed(101, 5), stop=102)),
        )
    },
    # A COMMIT marker would make its records visible too, and an ABORT marker discards those that are committed.
    **{
        f"a newer epoch behind a commit without its marker{name}": (expected, seen(
            transaction(state="CompleteAbort", on=(), epoch=1), producers=[producer(epoch=1)],
            log=here(*OPENED, NEWER, *more), events=events))
        for name, expected, more, events in (
            ("", UNPROVEN, (), COMMITTED_TWICE), (", of two commits", COMPLETED, (timed(104, 30),), OF_BOTH),
            (", and the second is not proven", UNPROVEN, (), OF_BOTH),
        )
    },
    # Version 1: the commit's marker is lost, and another broker's time shows a record younger than its decision.
    **{
        f"a commit and a record that joined it {second} s later": (UNPROVEN, seen(
            transaction(state="Empty", epoch=1, on=()),
            log=here(data(90, pid=1, records=10), data(100, second=4), timed(101, 5), timed(102, second),
                     data(103, sequence=1, second=18), start=90),
            events=[*COMMITTED, record(9, "Empty", second=40, epoch=1)]))
        for second in (17, 16)
    },
    # A live transaction over records of an earlier one: its client commits, and an abort or a fence discards them.
    "committed records below a long one": ("ongoing commit -", seen(LONG, **COMMITTED_BELOW)),
    "likely committed ones below a long one": ("long unknown -", seen(LONG, **LIKELY_BELOW)),
    "uncommitted ones below a long one": ("long undecided -", seen(LONG, **UNCOMMITTED)),
    "no log speaks against it": ("long undecided -", seen(LONG, are_logs_read=False)),
    "committed records below an overdue one": ("ongoing commit -", seen(OVERDUE, **COMMITTED_BELOW)),
    "likely committed ones below an overdue one": ("overdue unknown -", seen(OVERDUE, **LIKELY_BELOW)),
    "none below an overdue one": ("overdue undecided fence", seen(OVERDUE, **UNCOMMITTED)),
    "an overdue one, and no log was read": ("overdue unknown -", seen(OVERDUE, are_logs_read=False)),
    # Its commit published those of an abort whose marker was lost, too, as the finding said to have it commit.
    "committed and free records below it": ("ongoing unknown -", seen(LONG, outcome=MIXED)),
    "committed and aborted records below it": (
        "ongoing unknown -", seen(LONG, outcome=replace(MIXED, is_partly_aborted=True))),
    # The finding said to wait, and the commit of its client published them.
    "aborted records below it": ("long undecided -", seen(
        LONG, outcome=Outcome(name="undecided", reason="none", is_partly_aborted=True))),
    "aborted and unknown records below it": ("long unknown -", seen(
        LONG, outcome=Outcome(name="unknown", reason="both", is_partly_aborted=True))),
    # The finding said to have the client abort, which discards them, whatever was proven of them.
    **{
        f"records of a dead epoch: {name}": (f"ongoing {name} -", seen(
            transaction(epoch=2), **OF_TWO_EPOCHS, outcome=Outcome(name=name, reason="none")))
        for name in ("undecided", "unknown")
    },
    # The coordinators' log may have lost a commit, of which markers elsewhere would show. A commit needs none.
    **{
        f"{name}, and markers elsewhere: {sought or 'not read'}": (expected, seen(outcome=Outcome(
            name=name, reason="its log shows it", markers_unread=unread, are_markers_sought=bool(sought))))
        for name, found in (("undecided", HANGING), ("abort", "hanging abort abort"), ("commit", COMPLETED))
        for sought, unread, expected in (
            ("", None, COMPLETED if name == "commit" else UNPROVEN), ("sought", None, found),
            ("not all", "Broker 2 did not answer", COMPLETED if name == "commit" else UNPROVEN))
    },
    # Meanwhile: its coordinator decided after it had answered, and the marker follows.
    **{
        f"decided meanwhile: {name}": (f"ending {name} -", seen(ENDED, outcome=decided(name, end_time=None)))
        for name in ("commit", "abort")
    },
    # The partition is read before the coordinators' records, and its leader once more after them.
    **{
        f"its marker came meanwhile: {name}": (
            "ending - -", seen(ENDED, outcome=replace(decided(name, end_time=NOW), has_ended=True)))
        for name in ("commit", "abort")
    },
    "the log has its marker": ("ending - -", seen(ENDED, outcome=replace(
        decided("commit", end_time=NOW), marker_after="COMMIT marker at 9", marker_entry=MARKER_AFTER))),
    "a commit is complete, and its marker missing": (COMPLETED, seen(ENDED, outcome=decided("commit", end_time=NOW))),
}  # fmt: skip


FIRST, SECOND = twice(observation())
ABORTED, PREPARED = transaction(state="CompleteAbort", on=()), twice(
    observation(transaction(state="PrepareCommit")), apart=61)  # fmt: skip
LOADING = replace(COMPLETE, gaps=("broker 2 did not answer ListTransactions: COORDINATOR_LOAD_IN_PROGRESS",))
UNAVAILABLE = partition(lso=None, hw=None, error="NOT_LEADER_OR_FOLLOWER: not yet")
MOVED = observation(producers=[producer(start=120)], partitions=[partition(lso=120)])
FREE, BATCH, PAID = [partition(lso=150)], first_batch(), TopicPartition("paid", 1)
BATCH_AGAIN = replace(BATCH, base_timestamp=ago(minutes=1))
FINE = transaction(8, transactional_id="fine", on=(("orders", 1),))
TWO: dict[str, Any] = {"partitions": [partition(), partition(number=1)],
                       "producers": [producer(), producer(8, partition=1)]}  # fmt: skip
UNREAD = observation(partitions=[UNAVAILABLE], partitions_after=[UNAVAILABLE], producers=[])
OF_BROKER = first_batch(last_offset=100, log_append_time=True)


def of(*observations: Observation, **more: Any) -> Looks:
    return Looks(observations=observations, **more)


def by_leader(epoch: int) -> Observation:
    return replace(SECOND, partitions=[partition(leader_epoch=epoch)], partitions_after=[partition(leader_epoch=epoch)])


def held(after: Partition | None = None, *, lso: int | None = 100, **more: Any) -> Looks:
    """One look at a partition without an open transaction, of which a finding is wanted."""
    looks: dict[str, Any] = {} if after is None else {"partitions_after": [after]}
    return of(observation(producers=[], partitions=[partition(lso=lso, **more)], **looks), requested=[HERE])


def not_read(owner: Transaction, options: dict[str, Any]) -> Looks:
    """One look that has nothing of what its coordinator has open elsewhere."""
    one = replace(observation(owner, **WITHOUT_DATA), **{"selection": EVERYTHING, **options})
    return of(one, are_logs_read=False)


SEEN |= {
    "one observation": (HANGING, of(SECOND)),
    "a gap in the first observation": (UNPROVEN, of(replace(FIRST, coverage=LOADING), SECOND)),
    "a gap in the second one": (UNPROVEN, of(FIRST, replace(SECOND, coverage=LOADING))),
    "only in the last one": (UNPROVEN, of(replace(FIRST, producers=[], producers_after=[]), SECOND)),
    "observations that contradict": (
        UNPROVEN, of(twice(observation(transaction()))[0], twice(observation(ABORTED))[1])),
    **{
        f"the producer's clock at {clock}, {what}": (
            expected, seen(*owners, producers=[producer(last_timestamp=clock)]))
        for clock in (ago(days=7), NOW + dt.timedelta(minutes=50), None)
        for what, owners, expected in (("live", [transaction()], LIVE), ("no owner", [], HANGING))
    },
    # In the first observation another transaction of the same producer was open at another offset.
    "the producer's next transaction": (
        UNPROVEN, of(replace(twice(MOVED)[0], producers=[producer()], producers_after=[producer()]), MOVED)),
    "a follower's response": (UNPROVEN, seen(producers=[producer(broker_id=2)])),
    "a leader that changed": (UNPROVEN, seen(partitions_after=[partition(leader_epoch=5)])),
    # The same offset of another log: truncated by a new leader, and grown past its former end; of a topic that was
    # deleted and created again; and that again, of brokers before 2.8 or of a recording.
    "a leader that changed between them": (UNPROVEN, of(FIRST, by_leader(5))),
    "a topic that was created again between them": (
        UNPROVEN, of(*(replace(each, topic_ids={"orders": name}) for each, name in ((FIRST, "old"), (SECOND, "new"))))),
    "another batch at its start offset": (UNPROVEN, of(
        *(replace(each, first_batches=[one]) for each, one in ((FIRST, BATCH), (SECOND, BATCH_AGAIN))))),
    "its first batch and topic id were read once": (
        HANGING, of(FIRST, replace(SECOND, topic_ids={"orders": "new"}, first_batches=[BATCH]))),
    "a coordinator with an older epoch, ended": (UNPROVEN, seen(ABORTED, producers=[producer(epoch=3)])),
    "a coordinator with an older epoch, live": (UNPROVEN, seen(transaction(), producers=[producer(epoch=3)])),
    "decided a minute ago": ("stuck_ending commit -", of(*PREPARED)),
    "but ongoing a minute ago": (
        "ending commit -", of(replace(PREPARED[0], transactions=[transaction()]), PREPARED[1])),
    "version 2 ends with the next epoch": (
        "ending commit -", of(observation(transaction(state="PrepareCommit", epoch=1)))),
    "it ends between two requests": (
        "", of(observation(ENDED, after=[producer(start=None)], partitions_after=FREE))),
    "and its producer goes on": (
        "ending - -", of(observation(ENDED, after=[producer(start=130)], partitions_after=[partition(lso=130)]))),
    "nothing is open, and all is clear": ("", of(observation(**WITHOUT_DATA))),
    "a partition that could not be read at first": (
        "", of(observation(partitions=[UNAVAILABLE], partitions_after=FREE, producers=[], after=[]))),
    "and with an open transaction then": ("unknown - -", of(observation(
        partitions=[UNAVAILABLE], partitions_after=[partition()], producers=[], after=[producer()]))),
    "above the LSO": (
        f"{LIVE}; ending - -", of(observation(transaction(), producers=[producer(start=120)]))),
    "above the LSO, in files, which do not move": (
        f"{LIVE}; unreplicated - -", from_files(transaction(), producers=[producer(start=120)])),
    # Several of a partition, and several partitions
    "as they will hold the LSO": (f"{HANGING}; {LIVE}; {HANGING}", seen(
        transaction(8, transactional_id="healthy"),
        producers=[producer(9, start=140), producer(7, start=100), producer(8, start=120)])),
    "a second observation of fewer partitions keeps the other findings": (f"{HANGING}; {LIVE}", of(
        observation(FINE, **TWO), replace(observation(), observed_at=NOW + dt.timedelta(seconds=5)))),
    # Whose clock counts when it opened, and whether it expires
    "by its coordinator": (LIVE, seen(transaction(), first_batches=[OF_BROKER])),
    "by its coordinator, past its timeout": ("overdue undecided fence", seen(OVERDUE, first_batches=[OF_BROKER])),
    "by the leader": (HANGING, seen(first_batches=[OF_BROKER])),
    "the coordinator's transaction is another one": (
        HANGING, seen(transaction(on=ELSEWHERE), first_batches=[OF_BROKER])),
    "the coordinator does not know its start": (LIVE, seen(transaction(start_time=None), first_batches=[OF_BROKER])),
    "the coordinator does not know its timeout": (LIVE, seen(transaction(timeout_ms=None), first_batches=[OF_BROKER])),
    # An LSO is held only if it was before and after: in between, a transaction has ended, or the high watermark has
    # moved on with the LSO behind it.
    "behind the high watermark, twice": ("unreplicated - -", held(partition(isr=[1]), isr=[1])),
    "behind it in the first look only": ("clear - -", held(partition(lso=150), isr=[1])),
    "behind it in the second look only": ("clear - -", held(partition(lso=150, hw=160), lso=150)),
    "it moves on": ("ending - -", held(partition(lso=120), isr=[1])),
    # A leader moved in the first look: `clear, nothing was held when it was first read`, or no finding.
    "a look that failed, and one": ("unreplicated - -", of(UNREAD, observation(producers=[]))),
    "a look that failed after it, too": ("unknown - -", of(UNREAD, observation(producers=[]), UNREAD)),
    "it was not held before": ("", of(
        observation(partitions=FREE, partitions_after=[], producers=[]), UNREAD, observation(producers=[]))),
    "below the LSO": (LIVE, of(observation(transaction(), producers=[producer(start=90)]))),
    "an LSO that could not be read is not explained by what is open": (
        "ongoing undecided -; unknown - -", of(observation(transaction(), partitions=[UNAVAILABLE]))),
    **{
        f"offsets from LSO {lso} to high watermark {hw}": (expected, held(lso=lso, hw=hw))
        for lso, hw, expected in ((100, 150, "unreplicated - -"), (150, 150, "clear - -"),
                                  (None, 150, "clear - -"), (100, None, "clear - -"))
    },
    # What a coordinator has open on a partition that was not read was dropped in silence. One that is not selected, or
    # does not exist any more, is not missing.
    **{
        f"a partition that was not read: {name}": (expected, not_read(owner, options))
        for name, expected, owner, options in (
            ("ongoing", "unknown - -", transaction(on=[PAID]), {}),
            ("decided", "unknown - -", transaction(on=[PAID], state="PrepareCommit"), {}),
            ("ended, of which the log keeps no partitions", "", transaction(on=[PAID], state="CompleteCommit"), {}),
            ("Ongoing without a partition holds nothing", "", transaction(on=[]), {}),
            ("not selected", "", transaction(on=[PAID]), {"selection": Selection(topics=["orders"])}),
            ("selected", "unknown - -", transaction(on=[PAID]), {"selection": Selection(topics=["paid"])}),
            ("deleted", "", transaction(on=[PAID]), {"absent": {PAID: None}}),
            ("hidden", "unknown - -", transaction(on=[PAID]), {"absent": {PAID: "TOPIC_AUTHORIZATION_FAILED"}}))
    },
    # The partition's row alone did not say whose transaction is open there.
    "a leader that does not answer, and an owner": (
        "unknown - -", of(observation(transaction(), partitions=[UNAVAILABLE], producers=[]), are_logs_read=False)),
    "a leader that does not answer": (
        "unknown - -", of(observation(partitions=[UNAVAILABLE], producers=[]), are_logs_read=False)),
}  # fmt: skip


def decision_of(found: Finding) -> str:
    return f"{found.verdict} {found.outcome or '-'} {found.action or '-'}"


SHOWN = {"brokers_time", "proven_until", "marker_after"}  # of the evidence, beside the claims


def lines_of(name: str) -> Iterator[str]:
    """The findings of a case, and what is read for them."""
    yield f"# {name}"
    for each in SEEN[name][1].findings():
        yield f"{each.topic}-{each.partition} {decision_of(each)}: {each.cause}"
        said = [each.reason, *each.remedy.splitlines(), *(f"missing: {missing}" for missing in each.missing)]
        said += [" | ".join(map(str, (each.opened_at, each.opened_at_clock, each.expires_at, each.brokers_time)))]
        place = f"place {each.queue_position}, from {each.start_offset} on"
        said += [f"{place}, {each.offsets_held} offsets held; error: {each.error}"]
        said += [f"{e.name}: {e.value}" for e in each.evidence if e.source == "claims" or e.name in SHOWN]
        overrides = {action: needed_override(each, action) for action in ("abort", "complete")}
        yield from (f"    {line}" for line in said)
        yield from (f"    to {action}, assert: {claim}" for action, claim in overrides.items() if claim)
    diagnosis = Diagnosis.of(SEEN[name][1].observations)
    again = [f"{topic}-{number}" for topic, number in diagnosis.to_recheck()]
    yield f"reads {len(diagnosis.to_read())} logs; looks again at {', '.join(again) or 'nothing'}"


def test_the_finding_of_each_rule() -> None:
    compare("rules.txt", [line for name in SEEN for line in lines_of(name)])


@pytest.mark.parametrize("name", SEEN)
def test_the_verdict_of_each_rule(name: str) -> None:
    expected, case = SEEN[name]
    found = case.findings()
    assert "; ".join(map(decision_of, found)) == expected
    for each in found:
        assert ("abort --topic" in each.remedy) == (each.action == "abort")
        assert ("kafka-txn fence --" in each.remedy) == (each.action == "fence")


def test_of_an_id_like_those_of_flink_a_checkpoint_may_commit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "may_be_flinks", lambda name: True)
    (row,) = seen(LONG, **LIKELY_BELOW).findings()
    assert "offset 100 of orders-0, and that no checkpoint of Flink is to commit it: both abort" in row.remedy


def test_markers_elsewhere_are_read_where_they_can_contradict_an_action() -> None:
    """A marker, or the fence of what is overdue."""
    (evidence,) = Diagnosis.of(twice(observation())).to_read()
    outcomes = {name: Outcome(name=name, reason="") for name in ("undecided", "unknown", "commit")}
    likely = Outcome(name="unknown", reason="", commit_claim="they are older than the commit")
    for outcome in (*outcomes.values(), likely):
        assert replace(evidence, known_outcome=outcome).needs_markers
    options = DiagnoseOptions(is_sample=True)
    single = replace(evidence, observations=evidence.observations[:1], options=options)
    assert not replace(single, known_outcome=outcomes["unknown"]).needs_markers
    for age, is_overdue in ((dt.timedelta(days=1), True), (dt.timedelta(seconds=1), False)):
        (owned,) = Diagnosis.of(twice(observation(transaction(start_time=NOW - age)))).opened.values()
        assert replace(owned[0], known_outcome=outcomes["undecided"]).needs_markers == is_overdue


def test_partitions_that_one_observation_does_not_decide() -> None:
    held = observation(producers=[], partitions=[partition()])
    assert Diagnosis.of([held]).to_recheck() == [HERE]
    unread = observation(producers=[], partitions=[partition(lso=None, hw=None, error="X: y")])
    assert Diagnosis.of([unread]).to_recheck() == [HERE]
    assert Diagnosis.of([observation(producers=[], partitions=[partition(lso=150)])]).to_recheck() == []
    both = observation(
        transaction(8, transactional_id="fine", on=(("orders", 1),)),
        partitions=[partition(), partition(number=1)],
        producers=[producer(), producer(8, partition=1)],
    )
    assert Diagnosis.of([both]).to_recheck() == [HERE]


def test_evidence_that_is_missing_altogether() -> None:
    found = decide_unknown("No coordinator was asked.", missing=("answers",))
    assert (found.verdict, found.outcome, found.missing, found.action) == ("unknown", "unknown", ("answers",), None)
    assert decide_unknown("No sample.", missing=("answers",), is_open=False).outcome is None
    ended = decide_ended("Its marker is there.")
    assert (ended.verdict, ended.outcome, ended.reason, ended.missing) == ("ended", None, "Its marker is there.", ())
    assert ended.remedy == "None: it has ended."


OFFSETS, OLDER_THAN_IT = "offset 100 of orders-0", "records of offset 100 are older than the commit of 10:02:11"
OUTCOMES = {
    "undecided": Outcome(name="undecided", reason="", offsets=OFFSETS),
    "abort": Outcome(name="abort", reason="", offsets=OFFSETS),
    "commit": Outcome(name="commit", reason="", offsets=OFFSETS),
    "unknown": Outcome(name="unknown", reason="", offsets=OFFSETS),
    "a commit is likely": Outcome(name="unknown", reason="", offsets=OFFSETS, commit_claim=OLDER_THAN_IT),
    "committed, and free": Outcome(name="unknown", reason="", offsets=OFFSETS, is_partly_committed=True,
        is_partly_free=True),
    "committed, and likely": Outcome(name="unknown", reason="", offsets=OFFSETS, is_partly_committed=True,
        commit_claim=OLDER_THAN_IT),
    "free, and likely": Outcome(name="unknown", reason="", offsets=OFFSETS, is_partly_free=True,
        commit_claim=OLDER_THAN_IT),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "no_commit", "all_committed", "words"),
    [
        ("undecided", PROVEN, REFUTED, f"a commit includes {OFFSETS}"),
        ("abort", PROVEN, REFUTED, f"a commit includes {OFFSETS}"),
        ("commit", REFUTED, PROVEN, f"a commit includes {OFFSETS}"),
        ("unknown", NOT_PROVEN, REFUTED, f"a commit includes {OFFSETS}"),
        ("a commit is likely", NOT_PROVEN, NOT_PROVEN, OLDER_THAN_IT),
        ("committed, and free", REFUTED, REFUTED, f"a commit includes {OFFSETS}"),
        ("committed, and likely", REFUTED, NOT_PROVEN, OLDER_THAN_IT),
        ("free, and likely", NOT_PROVEN, REFUTED, f"a commit includes {OFFSETS}"),
    ],
)
def test_the_claims_of_an_outcome(name: str, no_commit: str, all_committed: str, words: str) -> None:
    outcome = OUTCOMES[name]
    assert outcome.no_commit == ActionClaim(claim=f"no commit includes {OFFSETS}", status=no_commit)
    assert outcome.all_committed == ActionClaim(claim=words, status=all_committed)


def test_no_outcome_proves_both_claims_or_leaves_a_commit_out() -> None:
    for each in OUTCOMES.values():
        statuses = {each.no_commit.status, each.all_committed.status}
        assert statuses != {PROVEN}
        assert (each.name == "commit") == (each.all_committed.status == PROVEN)


@pytest.mark.parametrize(
    "owner",
    [
        OVERDUE,
        LONG,
        transaction(timeout_ms=TWO_PHASE),
        transaction(state="PrepareCommit", last_update_time=ago(minutes=5)),
    ],
    ids=["overdue", "long", "prepared", "being ended"],
)  # fmt: skip
def test_of_what_has_an_owner_no_claim_can_be_asserted(owner: Transaction) -> None:
    """No marker is written; a recording keeps what was known of its records, by its own partition alone."""
    (evidence,) = Diagnosis.of(twice(observation(owner))).to_read()
    for outcome in OUTCOMES.values():
        found = {each.name: each.value for each in claim_entries(replace(evidence, known_outcome=outcome))}
        assert found["claim_not_owned"] == f"no live transaction owns {OFFSETS}: refuted"
        assert found["claim_no_commit"] == f"{outcome.no_commit.claim}: {outcome.no_commit.status}"
        assert found["claim_all_committed"] == f"{outcome.all_committed.claim}: {outcome.all_committed.status}"
    assert list(claim_entries(evidence)) == [], "nothing is known of its records if no log was read"


def test_a_transaction_that_has_written_nothing_here_has_no_claims() -> None:
    ((evidence,),) = Diagnosis.of(twice(observation(OVERDUE, **WITHOUT_DATA))).opened.values()
    assert evidence.start is None
    assert list(claim_entries(evidence)) == []
    assert list(claim_entries(replace(evidence, known_outcome=OUTCOMES["undecided"]))) == []


def finding(*values: tuple[str, str], verdict: Verdict = Verdict.UNKNOWN) -> Finding:
    (row,) = seen().findings()
    entry = row.evidence[0]
    return replace(row, verdict=verdict, evidence=tuple(replace(entry, name=name, value=v) for name, v in values))


def test_each_action_needs_its_claims() -> None:
    found = finding(
        ("claim_all_committed", "records of offset 4: 5 and more: not proven"),
        ("claim_no_commit", "no commit includes offset 4: refuted"),
        ("claim_not_owned", "no live transaction owns offset 4: proven"),
        ("outcome", "commit: proven"),
    )
    owned = ActionClaim(claim="no live transaction owns offset 4", status=PROVEN)
    assert claims_of(found, "abort") == [owned, ActionClaim(claim="no commit includes offset 4", status=REFUTED)]
    assert claims_of(found, "complete") == [
        owned,
        ActionClaim(claim="records of offset 4: 5 and more", status=NOT_PROVEN),
    ]
    assert claims_of(finding(), "abort") == []
    assert claims_of(finding(("claim_no_commit", "x: not proven")), "complete") == []


@pytest.mark.parametrize(
    ("not_owned", "no_commit", "needed"),
    [
        (PROVEN, NOT_PROVEN, "b"),
        (NOT_PROVEN, PROVEN, "a"),
        (NOT_PROVEN, NOT_PROVEN, "a, and b"),
        (PROVEN, PROVEN, None),
        (NOT_PROVEN, REFUTED, None),
        (REFUTED, NOT_PROVEN, None),
        (REFUTED, REFUTED, None),
    ],
)
def test_what_an_operator_has_to_assert(not_owned: str, no_commit: str, needed: str | None) -> None:
    claims = ("claim_not_owned", f"a: {not_owned}"), ("claim_no_commit", f"b: {no_commit}")
    assert needed_override(finding(*claims), "abort") == needed
    for verdict in (Verdict.HANGING, Verdict.STUCK_ENDING, Verdict.ONGOING, Verdict.ENDING):
        assert needed_override(finding(*claims, verdict=verdict), "abort") is None


def test_without_claims_nothing_may_be_overridden() -> None:
    """Of a finding without a transaction, or of one whose logs were not read."""
    assert needed_override(finding(), "abort") is None
    assert needed_override(finding(("claim_no_commit", "b: not proven")), "complete") is None
