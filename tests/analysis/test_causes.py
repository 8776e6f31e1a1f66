"""Root causes of a held transaction, since when it holds, its impact, and what an abort changes."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import NOW, columns, first_batch, observation, only, partition, transaction, twice
from tests.analysis.logged import (
    ELSEWHERE,
    HERE,
    at,
    coordinator_log,
    data,
    ended_records,
    excerpt,
    headers,
    init,
    marker,
    open_transaction,
    record,
    with_logs,
)
from tests.analysis.logged import explained as explained_diagnosis
from tests.stored import compare
from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.causes import (
    CHECKS,
    DISOWNED,
    _events_around,
    abort_effects,
    cause,
    explain,
    held_back,
    held_since,
    opening_time,
)
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ProducerBatches, producer_batches
from toolkit.analysis.diagnosis.markers import MarkerSearch, other_markers
from toolkit.formats.headers import ABORT, COMMIT
from toolkit.schema import Row
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.log import FROM_BROKER_LOG, FROM_METADATA, ClusterEvent
from toolkit.schema.verdict import Verdict


def context(one: Case, log: Excerpt | None, *events: Row, unread: Sequence[str] = ()) -> Case:
    return with_logs(one, log, coordinator_log(events, unread=unread), marker_search=MarkerSearch())


LATE_BATCHES = (data(98), marker(99, ABORT), data(100, sequence=1))
COMPLETE_ABORT = transaction(state="CompleteAbort", on=())


def of_version_2(rows: Sequence[Row]) -> list[Row]:
    """The records of an instance and of its first transaction."""
    return [
        {**row, "producer_epoch": int(number > 1), "client_transaction_version": 2} for number, row in enumerate(rows)
    ]


EMPTY, COMMITTED, SUPERSEDED = (
    transaction(state="Empty", on=()), transaction(state="CompleteCommit", on=()),
    transaction(epoch=1, on=(ELSEWHERE,)),
)  # fmt: skip
ABORTED_4, COMMITTED_4 = (
    [rows[0], *({**row, "producer_epoch": 5, "client_transaction_version": 2} for row in rows[1:])]
    for rows in (ended_records(end, began=0, at_second=1, epoch=4) for end in ("Abort", "Commit"))
)
OF_5 = open_transaction(transaction(state="CompleteCommit", epoch=5, on=()), epoch=5)
LATE_OF_4 = excerpt(data(98, epoch=4), marker(99, COMMIT, epoch=5), data(100, epoch=4, sequence=1))
COMMIT_AT_1 = ended_records("Commit", began=0, at_second=1)
COMMIT_BY_TIMES = [init(), *ended_records("Commit", began=3, at_second=11)]
COMMIT_RECORDS = of_version_2(COMMIT_BY_TIMES)  # proven whoever led since
OF_TERMS: list[Row] = [
    {**COMMIT_RECORDS[0], "leader_epoch": 1},
    *({**row, "leader_epoch": 2} for row in COMMIT_RECORDS[1:]),
]
OPEN_BATCHES = (
    marker(90, COMMIT, pid=1, second=2),
    data(91, pid=1, records=9, second=3),
    data(100, second=4),
    marker(101, COMMIT, pid=1, second=5),  # the open batch is older than the decision, by more than clocks differ
    data(102, pid=1, records=48, second=12),
)
OPEN, ALONE = excerpt(*OPEN_BATCHES), excerpt(data(100))
BEFORE = (marker(0, COMMIT, pid=1, second=1), data(1, pid=1, records=99, second=2))


def ended(**more: Any) -> Case:
    """What its coordinator has committed."""
    return open_transaction(COMMITTED, **more)


WITHOUT_MARKER = context(ended(), OPEN, *COMMIT_RECORDS)


def logged(event: str, second: float, text: str, **more: Any) -> ClusterEvent:
    columns = {"topic": HERE.topic, "partition": HERE.partition, "broker_id": 3, "source": FROM_BROKER_LOG, **more}
    return ClusterEvent(event=event, timestamp=at(second), text=text, **columns)


def with_lines(context: Case, *lines: ClusterEvent) -> Case:
    return replace(context, cluster_log=lines)


def led(event: str, second: float, leader_epoch: int | None, text: str) -> ClusterEvent:
    return logged(event, second, text, leader_epoch=leader_epoch, source=FROM_METADATA)


def of_releases(one: Case, *releases: str) -> Case:
    coverage = replace(one.observation.coverage, releases=releases)
    return replace(one, observation=replace(one.observation, coverage=coverage))


# Lines of brokers' own logs, and what the metadata log says of the partition's leaders
SKIPPED = logged("marker_skipped", 11.1, "Couldn't find leader endpoint", transactional_id="payments-7")
UNCLEANLY = logged("unclean_election", 12, "UNCLEAN partition change", leader=2, leader_epoch=5)
TRUNCATED = logged("log_truncated", 13, "Truncating to offset 101", broker_id=2)
REFUSED = logged("marker_refused", 11.1, "Invalid coordinator epoch", transactional_id=None)
NOBODY = led("no_leader", 10.5, 5, "nobody leads now")
OTHER = led("leader_changed", 10.8, 6, "broker 2 leads")
UNREAD = ["__transaction_state could not be read (TOPIC_AUTHORIZATION_FAILED)"]
NEXT_EPOCH = replace(COMMITTED, producer_epoch=1)
OF_OFFSETS = open_transaction(COMPLETE_ABORT, leader=partition("__consumer_offsets"), topic="__consumer_offsets")
# While a transaction was open for long, a marker of an earlier one may have been skipped.
LONG_OPEN = context(ended(), OPEN, *of_version_2([init(), *ended_records("Commit", began=9, at_second=900)]))
LEADER_0 = context(
    ended(leader=partition(leader_epoch=0)), excerpt(*(each | {"leader_epoch": 0} for each in OPEN_BATCHES)),
    *COMMIT_RECORDS,
)  # fmt: skip
FOUND_ELSEWHERE = with_logs(
    open_transaction(epoch=4), excerpt(data(100, epoch=4, second=10)),
    marker_search=MarkerSearch(markers=list(other_markers(ELSEWHERE, excerpt(
        data(96, epoch=3), marker(97, COMMIT, epoch=4), data(98, epoch=4), marker(99, COMMIT, epoch=5)), 7))),
)  # fmt: skip
CAUSES: dict[str, Case] = {  # of what no coordinator owns
    "late after an abort": context(
        open_transaction(COMPLETE_ABORT), excerpt(*LATE_BATCHES), init(),
        *ended_records("Abort", began=0, at_second=1)),
    "late after a commit": context(
        ended(), excerpt(data(98), marker(99, COMMIT), data(100, sequence=1)), init(), *COMMIT_AT_1),
    "late, without records": context(open_transaction(COMPLETE_ABORT), excerpt(*LATE_BATCHES)),
    "late, without records, of an id that has begun nothing": context(
        open_transaction(EMPTY), excerpt(*LATE_BATCHES)),
    "never added after a manual abort: no transaction of the epoch had the partition": context(
        open_transaction(EMPTY), excerpt(*LATE_BATCHES), init()),
    # A delayed end of version 2 has the epoch of its transaction, so it tears no later one apart.
    "late after version 2": context(OF_5, LATE_OF_4, init(epoch=4), *COMMITTED_4),
    "late, and the version is not known": context(OF_5, LATE_OF_4),
    "late, and does not continue it": context(ended(), excerpt(marker(99, COMMIT), data(100, sequence=40))),
    "a new epoch of version 2 is not late": context(
        OF_5, excerpt(data(98, epoch=4), marker(99, ABORT, epoch=5), data(100, epoch=5)), init(epoch=4), *ABORTED_4),
    "the epoch of the data before it is": context(
        OF_5, excerpt(data(98, epoch=4), marker(99, ABORT, epoch=5), data(100, epoch=4, sequence=1)), init(epoch=4),
        *ABORTED_4),
    "a sequence number wraps to 0": context(
        open_transaction(COMPLETE_ABORT), excerpt(data(98, sequence=2**31 - 1), marker(99, ABORT), data(100))),
    "the marker of another producer": context(
        open_transaction(COMPLETE_ABORT), excerpt(data(98), marker(99, ABORT, pid=8), data(100, sequence=1))),
    "during a later transaction without the partition": context(
        ended(), excerpt(data(98), marker(99, COMMIT, second=1), data(100, sequence=1, second=2.5)), *COMMIT_AT_1,
        *ended_records("Commit", began=2, at_second=3, on=(ELSEWHERE,), offset=4)),
    "during a live one": context(
        open_transaction(transaction(on=(ELSEWHERE,))),
        excerpt(data(98), marker(99, COMMIT, second=1), data(100, sequence=1, second=2.5)), *COMMIT_AT_1),
    "compaction may have removed the record with the partition": context(
        ended(), ALONE, *ended_records("Commit", began=2, at_second=3, on=(ELSEWHERE,))[-1:]),
    "an epoch without a transaction": context(open_transaction(EMPTY), ALONE),
    "transactions of another epoch are no evidence": context(
        open_transaction(transaction(state="Empty", epoch=1, on=()), epoch=1),
        excerpt(data(90), marker(91, COMMIT), data(100, epoch=1)), *COMMIT_AT_1,
        record(5, "Empty", second=2, epoch=1)),
    "a superseded epoch, and how it opened": context(open_transaction(SUPERSEDED), ALONE, init()),
    "no record proves how it opened": context(open_transaction(SUPERSEDED), ALONE),
    "it includes the partition": context(open_transaction(transaction()), ALONE),
    "its id has expired": context(open_transaction(), ALONE, init(), record(1, None, second=9)),
    "its id has another producer id": context(
        open_transaction(), excerpt(*LATE_BATCHES), *ended_records("Abort", began=0, at_second=1),
        record(9, "Empty", second=5, pid=8, previous_producer_id=7)),
    "no owner and no records": context(open_transaction(), ALONE),
    "an unread log": context(open_transaction(COMPLETE_ABORT), None),
    "a log that could not be read": context(
        open_transaction(COMPLETE_ABORT), excerpt(start=100, error="TOPIC_AUTHORIZATION_FAILED: no")),
    "a slow leader sent what is before it alone": context(
        open_transaction(COMPLETE_ABORT), excerpt(data(98), marker(99, ABORT), start=98, stop=100)),
    # Missing markers
    "another leader": context(
        ended(), excerpt(*OPEN_BATCHES[:4], data(102, pid=1, records=48, second=12, leader_epoch=5)),
        *COMMIT_RECORDS),
    "the first batch of a later leader shows its epoch": context(
        ended(),
        excerpt(*OPEN_BATCHES, data(150, pid=1, second=13, leader_epoch=5), data(151, pid=1, leader_epoch=6)),
        *COMMIT_RECORDS),
    **{
        f"a leader with {leader}": context(ended(leader=partition(**leader)), OPEN, *COMMIT_RECORDS)
        for leader in ({"leader_epoch": 6}, {"leader_epoch": 6, "replicas": None}, {"leader_epoch": 6, "replicas": [1]},
                       {"leader_epoch": 4})
    },
    "no leader": context(
        ended(leader=partition(leader_epoch=None)), excerpt(*(each | {"leader_epoch": 0} for each in OPEN_BATCHES)),
        *COMMIT_RECORDS),
    **{
        f"coordinator epoch {known} is known, and 2 wrote": context(ended(coordinator_epoch=known), OPEN, *OF_TERMS)
        for known in (2, None)
    },
    "a newer coordinator epoch is known": context(ended(coordinator_epoch=3), OPEN, *OF_TERMS),
    "compaction": context(ended(), excerpt(*OPEN_BATCHES, is_compacted=True), *COMMIT_RECORDS),
    "no known reason": context(ended(), OPEN, *COMMIT_RECORDS),
    # The batch may be late: only a read from before its end can decide.
    "a marker before the excerpt": context(
        ended(), excerpt(marker(90, COMMIT, pid=1, second=20), data(100, second=21)), *COMMIT_RECORDS),
    "it may be younger": context(ended(), excerpt(*BEFORE, data(100, second=21), start=0, stop=150), *COMMIT_BY_TIMES),
    "it is older": context(
        ended(leader=partition(leader_epoch=5)), excerpt(
            *BEFORE, data(100, second=21), marker(101, COMMIT, pid=1, second=5), start=0, stop=150),
        *COMMIT_BY_TIMES),
    "its topic may be created again": context(
        ended(), excerpt(data(0, pid=1, records=100, second=1), data(100, second=21), start=0, stop=150),
        *COMMIT_BY_TIMES),
    # The next sequence number is unknown without its predecessors.
    "late, and its predecessors are not read": context(
        open_transaction(COMPLETE_ABORT), excerpt(marker(99, ABORT), data(100, sequence=40))),
    "unread records prove no absence": context(open_transaction(COMPLETE_ABORT), ALONE, init(), unread=UNREAD),
    "never added, and the last records": context(
        ended(), ALONE, init(), *ended_records("Commit", began=0, at_second=1, on=(ELSEWHERE,))),
    # Its epoch is its own, and its marker would have ended it.
    "a commit of version 2 is proven without the log of the partition": context(
        open_transaction(NEXT_EPOCH, first_batches=[first_batch(epoch=0)]), None, *COMMIT_RECORDS),
    "not if the epoch of its first batch is not known": context(open_transaction(NEXT_EPOCH), None, *COMMIT_RECORDS),
    # KAFKA-20734: from 4.3.0 on; or it is not known which releases they are.
    **{
        f"a marker of releases {releases}, {name}": of_releases(one, *releases)
        for releases in ((), ("4.3.1",), ("4.3", "4.4"), ("4.2.1", "4.3.0"), ("4.2.2",), ("3.5", "3.6"))
        for name, one in {
            "another leader": context(ended(leader=partition(leader_epoch=6)), OPEN, *COMMIT_RECORDS),
            "the only replica": context(ended(leader=partition(leader_epoch=6, replicas=[1])), OPEN, *COMMIT_RECORDS),
            "nobody led": with_lines(WITHOUT_MARKER, NOBODY)}.items()
    },
    **{
        f"offsets of groups {groups}": with_logs(OF_OFFSETS, excerpt(*LATE_BATCHES, groups={7: groups}))
        for groups in (["billing", "orders"], ["billing"], [])
    },
    "offsets of groups, without a log": OF_OFFSETS,
    **{
        f"a missing marker and lines of brokers: {[each.event for each in lines]}": with_lines(WITHOUT_MARKER, *lines)
        for lines in ([SKIPPED], [UNCLEANLY], [TRUNCATED], [UNCLEANLY, TRUNCATED], [UNCLEANLY, SKIPPED], [REFUSED])
    },
    **{
        f"nobody led when it was decided: {name}": with_lines(WITHOUT_MARKER, *lines)
        for name, lines in {
            "before the decision": [NOBODY], "with it": [replace(NOBODY, timestamp=at(11))],
            "after another leader": [
                replace(OTHER, timestamp=at(10.2), leader_epoch=5), replace(NOBODY, leader_epoch=6)],
            "an unclean election later": [
                NOBODY, led("unclean_election", 12, 6, "broker 2 leads, by an unclean election")],
            "other events later": [NOBODY, led("isr_changed", 10.8, 5, "in sync: nobody")]}.items()
    },
    **{
        f"a leader that could write it is no reason: {name}": with_lines(WITHOUT_MARKER, *lines)
        for name, lines in {
            "after the decision": [replace(NOBODY, timestamp=at(11.5))], "a leader again": [NOBODY, OTHER],
            "before it opened": [replace(NOBODY, leader_epoch=4)],
            "another leader later": [replace(OTHER, timestamp=at(12))],
            "the coordinator's": [replace(NOBODY, topic="__transaction_state", partition=33)]}.items()
    },
    "an unclean election loses the marker whoever led before": with_lines(
        WITHOUT_MARKER, replace(OTHER, timestamp=at(12)),
        led("unclean_election", 13, 7, "broker 1 leads, by an unclean election")),
    "an outcome by a marker elsewhere has no time, so nobody knows who led then": with_lines(FOUND_ELSEWHERE, NOBODY),
    "an event without a leader epoch is not after the first leader": with_lines(
        LEADER_0, replace(NOBODY, leader_epoch=None)),
    "a line within the bound of clocks": with_lines(
        LONG_OPEN, replace(SKIPPED, timestamp=at(900) - CLOCKS_DIFFER)),
    "a line of before": with_lines(
        LONG_OPEN, replace(SKIPPED, timestamp=at(900) - CLOCKS_DIFFER - dt.timedelta(seconds=1))),
}  # fmt: skip


def prepared(*records: Row, lines: Sequence[ClusterEvent] = (), **more: Any) -> Case:
    """What its coordinator has decided to commit."""
    log = excerpt(*OPEN_BATCHES) if lines else None
    return with_lines(context(open_transaction(transaction(state="PrepareCommit"), **more), log, *records), *lines)


def of_id(name: str, timeout_ms: int) -> Case:
    return context(open_transaction(transaction(transactional_id=name, timeout_ms=timeout_ms)), None)


DECIDED = record(1, "PrepareCommit", second=10.5, started=10, on=(HERE,))
OF_VERDICTS: dict[str, tuple[str, Case]] = {
    "two epochs in one transaction": ("ongoing", context(open_transaction(transaction()), excerpt(
        data(100), data(101, pid=1), data(102, epoch=1), data(103, epoch=1, sequence=1)))),
    "an id of Flink with its timeout": ("long", of_id("sink-0-7", 3_600_000)),
    "an id of Flink with another": ("long", of_id("sink-0-7", 60_000)),
    "a plain id": ("long", of_id("orders", 3_600_000)),
    "a random id": ("long", of_id("d9f2c1de-90ab-4c1e-8d31-2f6f0c0a9e11", 60_000)),
    "without an owner no id gives a hint": ("long", context(open_transaction(), None)),
    # The next transaction of a healthy producer has the same bytes as a late batch.
    "an unknown finding only has causes that the log proves": ("unknown", context(
        open_transaction(transaction(), leader=partition(log_start_offset=101)), excerpt(*LATE_BATCHES))),
    **{
        f"an unwritten marker: {name}": ("stuck_ending", one) for name, one in {
            "a replica is out of sync": prepared(leader=partition(isr=[1])),
            "replicas in sync are not known": prepared(leader=partition(isr=None)),
            "replicas are not known": prepared(leader=partition(replicas=None)), "all are in sync": prepared(),
            "version 1": prepared(record(1, "PrepareCommit", second=0, client_transaction_version=1)),
            "version 2": prepared(record(1, "PrepareCommit", second=0, client_transaction_version=2)),
            # Its coordinator has given up, and the cause was "not written".
            "refused": prepared(record(1, "PrepareCommit", second=0, leader_epoch=2), coordinator_epoch=3),
            "a line of a retry": prepared(DECIDED, lines=[
                logged("marker_retried", 11, "has failed with error", transactional_id="payments-7")]),
            "a line of a refusal": prepared(DECIDED, lines=[replace(REFUSED, timestamp=at(11))]),
            "a line of a failed request": prepared(DECIDED, lines=[logged(
                "marker_request_failed", 11, "unsupported version", topic=None, partition=None, affected_broker=3)]),
        }.items()
    },
    "two-phase commit": ("prepared", context(open_transaction(transaction(timeout_ms=2**31 - 1)), None)),
    # Of one that a checkpoint of Flink is to commit, it said that its coordinator had not decided.
    "a checkpoint of Flink": ("prepared", context(open_transaction(transaction(timeout_ms=60_000)), None)),
}  # fmt: skip


def test_the_cause_of_each_case() -> None:
    """Its names, its sentence and its evidence."""
    of_disowned = {name: cause(one, DISOWNED) for name, one in CAUSES.items()}
    of_others = {f"{name} ({verdict})": cause(one, CHECKS[verdict]) for name, (verdict, one) in OF_VERDICTS.items()}
    lines = []
    for name, found in {**of_disowned, **of_others}.items():
        lines.append(f"# {name}: {', '.join(found.names) or 'none found' if found else 'no cause'}")
        lines += [] if found is None else [found.text, *(f"    {each.name}: {each.value}" for each in found.evidence)]
    compare("causes.txt", lines)
    assert with_lines(WITHOUT_MARKER, SKIPPED).outcome == WITHOUT_MARKER.outcome, "a line changes no outcome"


# Log evidence in findings


BEHIND = data(101, pid=1, records=49)
EXPLAINED: dict[str, tuple[str, Transaction, Excerpt, list[Row], Sequence[str]]] = {  # records, and what is unread
    "a late batch": ("hanging undecided abort", COMPLETE_ABORT, excerpt(*LATE_BATCHES, BEHIND),
                     [init(), *ended_records("Abort", began=0, at_second=1)], ()),
    # A commit that ended while the partition had no leader (KAFKA-20734): an abort marker discards its records.
    "a commit whose marker was skipped": ("stuck_ending commit complete", COMMITTED, OPEN, COMMIT_RECORDS, ()),
    "an abort whose marker was skipped": (
        "hanging abort abort", COMPLETE_ABORT, OPEN, [init(), *ended_records("Abort", began=9, at_second=11)], ()),
    # Before the last transaction of the producer, which was aborted, there may be one that was committed.
    **{f"the coordinators' log could not be read: {owner.state}": ("unknown unknown None", owner, OPEN, [], UNREAD)
       for owner in (COMMITTED, COMPLETE_ABORT)},
    "a marker after the observations": (
        "ending None None", COMPLETE_ABORT, excerpt(*LATE_BATCHES, BEHIND, marker(150, ABORT)), [init()], ()),
    # The marker was in the log before the leader responded, and the leader still has it open: nothing is proven.
    "a marker missing from the producer state": (
        "unknown unknown None", COMPLETE_ABORT,
        excerpt(*LATE_BATCHES, marker(101, ABORT), data(102, pid=1, records=48)), [init()], ()),
    "a batch of another producer at its start": (
        "unknown unknown None", COMPLETE_ABORT, excerpt(data(98), data(99, pid=9, records=5)), [init()], ()),
}  # fmt: skip


def test_log_evidence_is_in_the_row() -> None:
    lines = []
    for name, (expected, owner, log, events, unread) in EXPLAINED.items():
        diagnosis = Diagnosis.of(twice(observation(owner)))
        contexts = {each.key: context(each, log, *events, unread=unread) for each in diagnosis.to_read()}
        row = only(explained_diagnosis(diagnosis, contexts))
        assert f"{row.verdict} {row.outcome} {row.action}" == expected, name
        assert ("kafka-txn abort" in row.remedy) == (row.action == "abort"), name
        lines += [f"# {name}", *columns([row])]
    compare("explained.txt", lines)


def test_a_marker_contradicts_by_the_high_watermark_of_its_own_partition() -> None:
    other = partition("another", hw=10, lso=10)
    diagnosis = Diagnosis.of(twice(observation(COMPLETE_ABORT, partitions=[other, partition()])))
    log = excerpt(*LATE_BATCHES, marker(101, ABORT))
    (facts,) = (context(each, log, init()).outcome for each in diagnosis.to_read())
    assert facts.marker_contradicts
    unknown = open_transaction(COMPLETE_ABORT, leader=partition(hw=None))
    assert not context(unknown, log, init()).outcome.marker_contradicts, "the marker may be newer"


def test_a_transaction_that_its_leader_no_longer_shows_open_has_ended() -> None:
    one = open_transaction(COMPLETE_ABORT)
    read = context(one, None, init())
    assert not read.outcome.has_ended
    assert replace(read, has_ended=True).outcome.has_ended


def test_rows_of_unread_partitions_are_unchanged_and_marked() -> None:
    diagnosis = Diagnosis.of(twice(observation(COMPLETE_ABORT)))
    (evidence,) = diagnosis.to_read()
    unread = context(evidence, None, init())
    rows = diagnosis.findings(read={evidence.key: unread})
    for without in (unread, evidence):
        (row,) = explain(rows, {evidence.key: without})
        assert [replace(row, evidence=row.evidence[:-1])] == rows
        assert row.evidence[-1].name == "left_out"


def held(**fields: Any) -> Finding:
    """The finding of the transaction of producer 7 at offset 100, which holds the LSO."""
    columns = {
        "topic": "orders", "partition": 0, "producer_id": 7, "producer_epoch": 0, "start_offset": 100,
        "last_stable_offset": 100, "high_watermark": 101, "verdict": Verdict.HANGING, "reason": "", "remedy": "",
        "missing": (), "evidence": (), "observed_at": NOW, "brokers_time": NOW, "queue_position": 1,
    }  # fmt: skip
    return Finding(**{**columns, **fields})


def explained(finding: Finding, log: Excerpt, owner: Transaction = COMPLETE_ABORT) -> Finding:
    """The finding with the log around the transaction at offset 100."""
    return only(explain([finding], {held().key: context(open_transaction(owner), log, init())}))


def test_a_finding_without_log_evidence_of_its_own_only_has_what_its_partition_holds_back() -> None:
    log = excerpt(data(100), start=0)
    for finding in (held(producer_id=8, queue_position=2), held(start_offset=99, verdict=Verdict.UNKNOWN)):
        assert explained(finding, log) == replace(finding, records_held=1, bytes_held=100, compaction_held=None)
    unread = excerpt(start=100, error="TOPIC_AUTHORIZATION_FAILED: no")
    found = explained(held(), unread)
    assert found == replace(held(), cause=found.cause, evidence=found.evidence)
    assert (found.cause or "").startswith(
        "written but never added: the coordinator wrote 1 record of producer 7 epoch 0"
    )
    left_out = {each.name: each.value for each in found.evidence or ()}["left_out"]
    assert left_out == "the log around it could not be read: TOPIC_AUTHORIZATION_FAILED: no", "nothing said so"
    nowhere = held(topic=None, partition=None)
    assert explained(nowhere, log) == nowhere


def test_a_stuck_ending_has_the_cause_of_its_coordinators_state() -> None:
    """In a Prepare state its coordinator has yet to write the marker; later, the marker is lost."""
    finding = held(verdict=Verdict.STUCK_ENDING)
    stuck = explained(finding, excerpt(data(100)), transaction(state="PrepareCommit"))
    assert (stuck.cause or "").endswith("(marker-not-written)")


# What the records of the epoch show


def test_a_batch_is_late_unless_its_producer_has_begun_another_transaction() -> None:
    """It then belongs to that one, which never added the partition."""

    def is_late(*events: Row, owner: Transaction = COMPLETE_ABORT) -> bool:
        late = excerpt(data(98), marker(99, ABORT, second=1), data(100, sequence=1, second=3))
        return context(open_transaction(owner), late, *events).is_late

    ended = ended_records("Abort", began=0, at_second=0.9)
    assert is_late(*ended)
    elsewhere = ended_records("Commit", began=2, at_second=4, on=(ELSEWHERE,), offset=4)
    assert not is_late(*ended, *elsewhere)
    assert not is_late(*ended, *elsewhere, record(8, "Empty", second=5, epoch=1)), "and a new instance since"
    assert is_late(*ended, *ended_records("Commit", began=1, at_second=4, on=(ELSEWHERE,), offset=4)), "as the marker"
    assert is_late(*ended, *ended_records("Commit", began=2, at_second=4, offset=4)), "it had the partition"
    no_start = [{**row, "start_time": None} for row in elsewhere[2:]]
    assert is_late(*ended, *no_start)
    assert not is_late(*ended, owner=transaction(on=(ELSEWHERE,)))
    assert is_late(*ended, owner=transaction(on=(HERE,)))
    assert is_late(*ended, owner=transaction(epoch=1, on=(ELSEWHERE,))), "another epoch has begun it"


def test_events_are_evidence_from_a_minute_before_its_first_batch_on() -> None:
    one = context(ended(), excerpt(*OPEN_BATCHES), *COMMIT_RECORDS)
    lines = [logged("log_truncated", second, f"at {second}") for second in (-57, -56)]
    assert [each.name for each in _events_around(with_lines(one, *lines))] == ["log_truncated"]


def counts(finding: Finding, log: Excerpt) -> tuple[int | None, int | None]:
    """Records and bytes."""
    found = held_back(finding, log)
    assert replace(found, records_held=None, bytes_held=None) == finding
    return found.records_held, found.bytes_held


BATCHES = (data(95, records=5), data(100, records=4), marker(104, COMMIT), data(105, pid=1, records=5))


def test_records_and_bytes_from_the_lso_to_the_high_watermark() -> None:
    assert counts(held(high_watermark=110), excerpt(*BATCHES)) == (9, 300)
    assert counts(held(high_watermark=105), excerpt(*BATCHES)) == (4, 200)
    assert counts(held(high_watermark=100), excerpt(*BATCHES)) == (0, 0)


def test_a_range_that_was_not_read_completely_is_not_counted() -> None:
    assert counts(held(high_watermark=111), excerpt(*BATCHES)) == (None, None)
    assert counts(held(last_stable_offset=80, high_watermark=110), excerpt(*BATCHES)) == (None, None)
    assert counts(held(last_stable_offset=None, high_watermark=110), excerpt(*BATCHES)) == (None, None)
    assert counts(held(high_watermark=None), excerpt(*BATCHES)) == (None, None)
    assert counts(held(high_watermark=100), excerpt(start=150)) == (0, 0), "there is nothing to read"
    assert counts(held(high_watermark=110), excerpt(data(100), held=(9, 300))) == (9, 300), "counted while it was read"


def opening(
    at_time: dt.datetime | None, batches: ProducerBatches, *, clock: str | None = "producer"
) -> tuple[dt.datetime | None, str | None]:
    """Opening time and clock."""
    finding = held(opened_at=at_time, opened_at_clock=clock)
    found = opening_time(finding, batches)
    assert replace(found, opened_at=at_time, opened_at_clock=clock) == finding
    return found.opened_at, found.opened_at_clock


BETWEEN = (marker(98, COMMIT, pid=1, second=0), data(100, second=5), marker(101, COMMIT, pid=1, second=60))


@pytest.mark.parametrize(
    ("at_time", "expected"),
    [
        (at(5), (at(5), "producer")),
        (at(-5), (at(-5), "producer")),  # clocks differ a little
        (at(65), (at(65), "producer")),
        (at(66), (at(0), "broker")),
        (at(-3600), (at(0), "broker")),
        (at(3600), (at(0), "broker")),
    ],
)
def test_a_producers_time_counts_within_the_markers_around_it(
    at_time: dt.datetime, expected: tuple[dt.datetime, str]
) -> None:
    assert opening(at_time, producer_batches(excerpt(*BETWEEN), 7, 100)) == expected


def test_a_future_time_without_a_previous_marker_is_null() -> None:
    without_marker = producer_batches(excerpt(data(100)), 7, 100)
    assert opening(NOW + dt.timedelta(hours=1), without_marker) == (None, None)
    assert opening(at(-3600), without_marker) == (at(-3600), "producer")


def hold_start(*batches: Any, start: int = 90, **fields: Any) -> tuple[dt.datetime | None, list[str]]:
    """The time since which it holds the LSO, and the names of the evidence."""
    found = held_since(held(**fields), producer_batches(excerpt(*batches, start=start), 7, 100))
    assert found.held_ms == (found.held_from and (NOW - found.held_from) // dt.timedelta(milliseconds=1))
    return found.held_from, [entry.name or "" for entry in found.evidence]


def test_a_transaction_holds_once_all_earlier_transactions_have_ended() -> None:
    before = (data(91, pid=1), data(92, pid=2), data(100, second=30))
    ended = (marker(101, COMMIT, pid=2, second=40), marker(102, ABORT, pid=1, second=50))
    later = (data(103, pid=3), marker(104, COMMIT, pid=3, second=60))
    assert hold_start(*before, *ended, *later, high_watermark=105) == (at(50), ["held_since"])
    log = producer_batches(excerpt(*before, *ended, *later), 7, 100)
    (entry,) = held_since(held(high_watermark=105), log).evidence
    assert (entry.value or "").startswith("offsets 102..102: ABORT")
    assert hold_start(*before, *ended[:1], high_watermark=102) == (None, []), (
        "the log and the broker contradict each other"
    )


def test_a_transaction_that_may_precede_the_excerpt_counts_as_holder() -> None:
    behind = (data(100, second=30), marker(101, COMMIT, pid=2, second=40))
    assert hold_start(*behind, high_watermark=102) == (at(40), ["held_at_least_since"])
    assert hold_start(*behind, start=0, high_watermark=102) == (at(30), []), "no offset is before 0"
    continued = (data(100, second=30), data(101, pid=2, sequence=8), marker(102, COMMIT, pid=2, second=40))
    assert hold_start(*continued, high_watermark=103) == (at(40), ["held_at_least_since"])
    first_of_epoch = (data(100, second=30), data(101, pid=2, sequence=0), marker(102, COMMIT, pid=2, second=40))
    assert hold_start(*first_of_epoch, high_watermark=103) == (at(30), [])
    after_its_marker = (data(92, pid=2, sequence=5), marker(93, ABORT, pid=2), *continued)
    assert hold_start(*after_its_marker, high_watermark=103) == (at(30), [])
    begun_in_it = (data(94, pid=2, sequence=6), data(100, second=30), marker(101, COMMIT, pid=2, second=40))
    assert hold_start(*after_its_marker[:2], *begun_in_it, high_watermark=102) == (at(40), ["held_since"])
    still_open = (data(100, second=30), data(101, pid=2, sequence=8))
    assert hold_start(*still_open, high_watermark=102) == (at(30), []), "the broker has it behind this one"


def test_an_excerpt_below_the_high_watermark_gives_no_hold_time() -> None:
    assert hold_start(data(100, second=30), high_watermark=102) == (None, [])
    assert hold_start(data(100, second=30), high_watermark=None) == (None, [])
    assert hold_start(data(100, second=30), start=0, high_watermark=102) == (at(30), [])


def test_a_deleted_first_batch_takes_its_time_from_the_coordinator() -> None:
    rest = (data(105, second=30), data(106, pid=2), marker(107, COMMIT, pid=2))
    assert hold_start(*rest, start=105, high_watermark=108) == (None, [])
    with_owner: dict[str, Any] = {"opened_at": at(3), "opened_at_clock": "coordinator", "high_watermark": 108}
    assert hold_start(*rest, start=105, **with_owner) == (at(3), [])


def test_an_impossible_producer_time_is_replaced_in_held_from() -> None:
    early = marker(98, COMMIT, pid=1, second=0)
    assert hold_start(early, data(100, second=-3600)) == (at(0), [])
    assert hold_start(early, data(100, second=3600)) == (at(0), [])
    assert hold_start(data(100, second=3600)) == (None, [])
    with_owner: dict[str, Any] = {"opened_at": at(7), "opened_at_clock": "coordinator"}
    assert hold_start(data(100, second=3600), **with_owner) == (at(7), [])
    assert hold_start(data(100, second=-3600), **with_owner) == (at(7), [])
    assert hold_start(data(100, second=30), **with_owner) == (at(30), [])
    assert hold_start(data(100, second=2), **with_owner) == (at(2), []), "clocks differ a little"
    by_producer: dict[str, Any] = {"opened_at": at(90), "opened_at_clock": "producer"}
    assert hold_start(data(100, second=30), **by_producer) == (at(30), [])


def test_own_records_are_dropped_and_ended_ones_up_to_the_next_lso_released() -> None:
    batches = headers(
        data(100, records=3),
        data(103, pid=1, records=2),
        marker(105, COMMIT, pid=1),
        data(106, pid=1, records=4),
        marker(110, ABORT, pid=1),
        data(111, pid=-1, attributes=0),
        data(112, pid=-1, attributes=0) | {"record_count": 0},  # all of its records were compacted
        data(113, records=5),
        data(118) | {"record_count": 0},
        data(119, pid=5),
        data(120, pid=3, records=2),
        data(122, pid=1, records=6),
        marker(128, COMMIT, pid=1),
        marker(129, COMMIT, pid=5),
    )
    effects = abort_effects(batches, producer_id=7, start_offset=100, last_stable_offset=100, next_stable_offset=120)
    assert effects == (8, 2 + 1 + 1)


def test_behind_an_earlier_transaction_nothing_is_released() -> None:
    """The producer's own earlier transaction is committed: none of its records is dropped."""
    batches = headers(
        data(90, pid=2, records=1), data(91, records=2), marker(93, COMMIT), data(94, pid=-1, attributes=0),
        data(100, records=3),
    )  # fmt: skip
    effects = abort_effects(batches, producer_id=7, start_offset=100, last_stable_offset=90, next_stable_offset=90)
    assert effects == (3, 0)
