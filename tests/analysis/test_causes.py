"""Root causes from headers and records, those too that no lab can stage: what speaks for each, and what against."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.analysis.build import observation, only, partition, producer, transaction, twice
from tests.analysis.logged import data, excerpt, marker, record
from toolkit.analysis.diagnosis.causes import cause
from toolkit.analysis.diagnosis.diagnose import findings
from toolkit.analysis.diagnosis.explanation import explain
from toolkit.analysis.diagnosis.log_excerpts import Excerpt, LogEvidence
from toolkit.analysis.diagnosis.open_transactions import IndexedObservation, OpenTransaction
from toolkit.formats.log.headers import ABORT, COMMIT
from toolkit.schema import Row

HERE, ELSEWHERE = ("orders", 0), ("payments", 3)


def ended(how: str, *, began: float, at_second: float, on: Any = (HERE,), offset: int = 1, **more: Any) -> list[Row]:
    """The records of a transaction that its coordinator has ended."""
    return [
        record(offset, "Ongoing", second=began, started=began, on=on, **more),
        record(offset + 1, f"Prepare{how}", second=at_second, started=began, on=on, **more),
        record(offset + 2, f"Complete{how}", second=at_second + 0.1, started=began, **more),
    ]


def init(**more: Any) -> Row:
    return record(0, "Empty", second=-1, **more)


def txn(*owners: Row, start: int = 100, **more: Any) -> OpenTransaction:
    partition_row = more.pop("leader_row", partition())
    one = observation(*owners, producers=[producer(start=start, **more)], partitions=[partition_row])
    ((found,),) = IndexedObservation(one).cases.values()
    return found


def hanging(one: OpenTransaction, log: Excerpt | None, *events: Row, unread: Any = ()) -> tuple[str, str]:
    """Codes and sentence."""
    found = cause(
        one, "hanging", LogEvidence(excerpts={} if log is None else {HERE: log}, events=events, unread=unread)
    )
    assert found is not None
    return ", ".join(found.names), found.sentence


LATE = (data(98), marker(99, ABORT), data(100, sequence=1))
COMPLETE = transaction(state="CompleteAbort", on=())


# Late batches


@pytest.mark.parametrize(
    ("kind", "how", "code"), [(ABORT, "Abort", "late-after-abort"), (COMMIT, "Commit", "late-after-commit")]
)
def test_a_batch_after_the_end_of_its_own_transaction(kind: int, how: str, code: str) -> None:
    log = excerpt(data(98), marker(99, kind), data(100, sequence=1))
    codes, sentence = hanging(
        txn(transaction(state=f"Complete{how}", on=())), log, init(), *ended(how, began=0, at_second=1)
    )
    assert codes == code
    assert "marker at offset 99, with the next sequence number (1)" in sentence


def test_a_late_batch_is_found_without_the_coordinators_records() -> None:
    assert hanging(txn(COMPLETE), excerpt(*LATE))[0] == "late-after-abort"


def test_a_late_batch_whose_predecessors_were_not_read() -> None:
    codes, sentence = hanging(txn(COMPLETE), excerpt(marker(99, ABORT), data(100, sequence=40)))
    assert codes == "late-after-abort"
    assert "sequence number" not in sentence, "which comes next is not known"


def test_transaction_version_2_continues_with_the_epoch_of_its_marker() -> None:
    """A new epoch from sequence 0 on is no late batch. A late one has the epoch of the data before it."""
    fresh = excerpt(data(98, epoch=4), marker(99, ABORT, epoch=5), data(100, epoch=5))
    late = excerpt(data(98, epoch=4), marker(99, ABORT, epoch=5), data(100, epoch=4, sequence=1))
    owner = transaction(state="CompleteAbort", epoch=5, on=())
    version_2 = {"client_transaction_version": 2}
    events = [init(epoch=4), *ended("Abort", began=0, at_second=1, epoch=4)]
    events[2:] = [{**row, "producer_epoch": 5, **version_2} for row in events[2:]]
    assert hanging(txn(owner, epoch=5), fresh, *events)[0] == ""
    assert hanging(txn(owner, epoch=5), late, *events)[0] == "late-after-abort"


def test_a_sequence_number_wraps_to_0() -> None:
    log = excerpt(data(98, sequence=2**31 - 1), marker(99, ABORT), data(100, sequence=0))
    assert "with the next sequence number (0)" in hanging(txn(COMPLETE), log)[1]


def test_another_producers_marker_does_not_end_the_transaction() -> None:
    assert hanging(txn(COMPLETE), excerpt(data(98), marker(99, ABORT, pid=8), data(100, sequence=1)))[0] == ""


def test_a_batch_after_a_manual_abort_is_never_added_and_not_late() -> None:
    """The ABORT marker is that of kafka-txn abort: no transaction of the epoch ever had the partition."""
    assert hanging(txn(transaction(state="Empty", on=())), excerpt(*LATE), init())[0] == "never-added"


# Written but never added


def test_a_later_transaction_without_the_partition() -> None:
    first, then = (
        ended("Commit", began=0, at_second=1),
        ended("Commit", began=2, at_second=3, on=(ELSEWHERE,), offset=4),
    )
    log = excerpt(data(98), marker(99, COMMIT, second=1), data(100, sequence=1, second=2.5))
    assert hanging(txn(transaction(state="CompleteCommit", on=())), log, *first, *then)[0] == ""
    busy = transaction(on=(ELSEWHERE,))
    assert hanging(txn(busy), log, *first)[0] == "never-added"


def test_compaction_may_have_removed_the_record_with_the_partition() -> None:
    only_last = ended("Commit", began=2, at_second=3, on=(ELSEWHERE,))[-1:]
    codes, sentence = hanging(txn(transaction(state="CompleteCommit", on=())), excerpt(data(100)), *only_last)
    assert codes == ""
    assert sentence == "no cause found: offsets 90 to 100 were read and do not show what opened it"


def test_unread_records_prove_no_absence() -> None:
    unread = ["__transaction_state could not be read (TOPIC_AUTHORIZATION_FAILED)"]
    codes, sentence = hanging(txn(COMPLETE), excerpt(data(100)), init(), unread=unread)
    assert codes == ""
    assert sentence.endswith("; __transaction_state could not be read (TOPIC_AUTHORIZATION_FAILED)")


def test_an_epoch_without_a_transaction() -> None:
    assert hanging(txn(transaction(state="Empty", on=())), excerpt(data(100)))[0] == "never-added"


def test_transactions_of_another_epoch_are_no_evidence() -> None:
    events = [*ended("Commit", began=0, at_second=1), record(5, "Empty", second=2, epoch=1)]
    log = excerpt(data(90), marker(91, COMMIT), data(100, epoch=1))
    assert hanging(txn(transaction(state="Empty", epoch=1, on=()), epoch=1), log, *events)[0] == "never-added"


def test_a_superseded_epoch_and_how_it_opened() -> None:
    owner = transaction(epoch=1, on=(ELSEWHERE,))
    codes, sentence = hanging(txn(owner), excerpt(data(100)), init())
    assert codes == "never-added"
    assert sentence.startswith(
        'superseded epoch: "payments-7" is at epoch 1, this transaction at 0; written but never added'
    )
    assert hanging(txn(owner), excerpt(data(100)))[0] == "", "nothing tells how it opened"


# No owner


def test_an_expired_id() -> None:
    events = [init(), record(1, None, second=9)]
    codes, sentence = hanging(txn(), excerpt(data(100)), *events)
    assert codes == "no-owner, never-added"
    assert sentence.startswith(
        'its id "payments-7" has expired: __transaction_state-33 has its tombstone; written but never'
    )


def test_an_id_with_a_new_producer_id() -> None:
    events = [*ended("Abort", began=0, at_second=1), record(9, "Empty", second=5, pid=8, previous_producer_id=7)]
    codes, sentence = hanging(txn(), excerpt(*LATE), *events)
    assert codes == "no-owner, late-after-abort"
    assert sentence.startswith('its id "payments-7" now has producer id 8; a batch of the same producer came after')


def test_an_id_without_records() -> None:
    assert hanging(txn(), excerpt(data(100))) == (
        "no-owner", "no owner: its id has expired or moved on to another producer id (no-owner)"
    )  # fmt: skip


# A marker that is lost


DONE = [init(), *ended("Commit", began=9, at_second=11)]
OPEN_HERE = (marker(90, COMMIT, pid=1, second=8), data(100, second=10), data(101, pid=1, second=12, leader_epoch=4))


def test_a_marker_lost_with_a_leader() -> None:
    log = excerpt(*OPEN_HERE[:2], data(101, pid=1, second=12, leader_epoch=5))
    codes, sentence = hanging(txn(transaction(state="CompleteCommit", on=())), log, *DONE)
    assert codes == "marker-lost"
    assert sentence.startswith(
        "its marker is lost: the coordinator completed the commit, and the log has no marker of it"
    )
    assert "(leader epoch 4, then 5)" in sentence


def test_a_marker_refused_by_the_partition() -> None:
    refused = [{**row, "leader_epoch": 2} for row in DONE]
    one = txn(transaction(state="CompleteCommit", on=()), coordinator_epoch=3)
    codes, sentence = hanging(one, excerpt(*OPEN_HERE), *refused)
    assert codes == "marker-refused"
    assert sentence.endswith(
        "the partition knows coordinator epoch 3 and refuses the coordinator, which is at 2 (marker-refused)"
    )


def test_a_marker_removed_by_compaction() -> None:
    log = excerpt(*OPEN_HERE, is_compacted=True)
    assert hanging(txn(transaction(state="CompleteCommit", on=())), log, *DONE)[0] == "marker-compacted"


def test_a_marker_skipped_by_the_coordinator() -> None:
    codes, sentence = hanging(txn(transaction(state="CompleteCommit", on=())), excerpt(*OPEN_HERE), *DONE)
    assert codes == "marker-skipped"
    assert sentence.startswith("its marker is lost")


def test_a_marker_before_the_excerpt_is_not_lost() -> None:
    """The batch may be late: only a read from before its end can decide."""
    log = excerpt(marker(90, COMMIT, pid=1, second=20), data(100, second=21))
    codes, sentence = hanging(txn(transaction(state="CompleteCommit", on=())), log, *DONE)
    assert codes == ""
    assert sentence.startswith("no cause found: ")
    whole = excerpt(data(100, second=21), start=0)
    assert hanging(txn(transaction(state="CompleteCommit", on=())), whole, *DONE)[1].startswith("its marker is lost")


# Other verdicts


def test_a_healthy_transaction_has_no_cause() -> None:
    log = LogEvidence(excerpts={HERE: excerpt(*LATE)})
    for verdict in ("ongoing", "long", "overdue", "ending", "unknown"):
        assert cause(txn(transaction()), verdict, log) is None


def test_an_unknown_finding_only_has_causes_that_the_log_proves() -> None:
    """The next transaction of a healthy producer has the same bytes as a late batch."""
    one = txn(transaction(), leader_row=partition(log_start_offset=101))
    found = cause(one, "unknown", LogEvidence(excerpts={HERE: excerpt(*LATE)}))
    assert found is not None
    assert found.names == ("head-deleted",)


@pytest.mark.parametrize(
    ("more", "events", "codes"),
    [
        ({"leader_row": partition(isr=[1])}, (), ()),
        ({}, (), ("marker-not-written",)),
        (
            {},
            (record(1, "PrepareCommit", second=0, client_transaction_version=2),),
            ("marker-not-written", "marker-not-sent"),
        ),
    ],
)
def test_an_unwritten_marker(more: Any, events: Any, codes: tuple[str, ...]) -> None:
    one = txn(transaction(state="PrepareCommit"), **more)
    found = cause(one, "stuck_ending", LogEvidence(excerpts={}, events=events))
    assert found is not None
    assert found.names == codes


def test_two_phase_commit() -> None:
    found = cause(txn(transaction(timeout_ms=2**31 - 1)), "prepared", LogEvidence(excerpts={}))
    assert found is not None
    assert found.names == ("two-phase-commit",)


def test_an_unread_log_is_reported() -> None:
    assert hanging(txn(COMPLETE), None)[1] == "no cause found: the log was not read"
    failed = excerpt(start=100, error="TOPIC_AUTHORIZATION_FAILED: no")
    assert hanging(txn(COMPLETE), failed)[1] == "no cause found: the log could not be read (TOPIC_AUTHORIZATION_FAILED)"


# A verdict only gets more careful


def explained(
    owner: Row, log: Excerpt, *events: Row, high_watermark: int = 150, unread: Sequence[str] = ()
) -> list[Row]:
    one = observation(owner, partitions=[partition(hw=high_watermark)])
    rows = findings(twice(one))
    assert only(rows)["verdict"] == "hanging"
    return explain(rows, twice(one), LogEvidence(excerpts={HERE: log}, events=events, unread=unread))


def explained_row(log: Excerpt, *events: Row, high_watermark: int = 150) -> Row:
    return only(explained(COMPLETE, log, *events, high_watermark=high_watermark))


def test_log_evidence_is_in_the_row() -> None:
    row = explained_row(excerpt(*LATE, *(data(offset, pid=1) for offset in range(101, 150))))
    assert row["verdict"] == "hanging"
    assert row["cause"].endswith("(late-after-abort)")
    assert (row["records_held"], row["bytes_held"]) == (50, 5_000)
    assert {"marker_before", "first_batch", "batch_before"} <= {entry["name"] for entry in row["evidence"]}


def test_committed_records_whose_marker_was_skipped_are_never_aborted() -> None:
    """A commit that ended while the partition had no leader (KAFKA-20734): an abort marker discards its records."""
    (row,) = explained(transaction(state="CompleteCommit", on=()), excerpt(*OPEN_HERE), *DONE)
    assert row["verdict"] == "stuck_ending"
    assert row["cause"].endswith("(marker-skipped)")
    assert row["remedy"].startswith("Never an abort marker yet: these records are committed")
    aborted = [init(), *ended("Abort", began=9, at_second=11)]
    (row,) = explained(transaction(state="CompleteAbort", on=()), excerpt(*OPEN_HERE), *aborted)
    assert row["verdict"] == "hanging", "nothing committed is in it"


def test_without_the_coordinators_log_records_of_a_completed_commit_are_never_hanging() -> None:
    unread = ["__transaction_state could not be read (TOPIC_AUTHORIZATION_FAILED)"]
    (row,) = explained(transaction(state="CompleteCommit", on=()), excerpt(*OPEN_HERE), unread=unread)
    assert (row["verdict"], row["cause"]) == ("unknown", None)
    assert row["missing"] == [f"{unread[0]}: whether the completed commit includes these records (KAFKA-20734)"]
    (row,) = explained(transaction(state="CompleteAbort", on=()), excerpt(*OPEN_HERE), unread=unread)
    assert row["verdict"] == "hanging", "an abort marker discards nothing that was committed"


def test_a_marker_after_the_observations_has_ended_it() -> None:
    row = explained_row(excerpt(*LATE, data(101, pid=1, records=49), marker(150, ABORT)))
    assert (row["verdict"], row["cause"], row["missing"]) == ("ending", None, [])
    assert row["reason"] == "The ABORT marker at offset 150 has ended it in the meantime."


def test_a_marker_missing_from_the_producer_state_is_a_contradiction() -> None:
    """The marker was in the log before the leader responded, and the leader still has it open: nothing is proven."""
    row = explained_row(excerpt(*LATE, marker(101, ABORT), data(102, pid=1, records=48)))
    assert row["verdict"] == "unknown"
    assert row["missing"] == ["producer state that agrees: there is the ABORT marker at offset 101"]
    assert "abort --topic" not in row["remedy"]


def test_a_batch_of_another_producer_at_its_start_is_a_contradiction() -> None:
    row = explained_row(excerpt(data(98), data(99, pid=9, records=5)))
    assert row["verdict"] == "unknown"
    assert row["missing"] == ["a log that agrees: the batch at 100 is of producer 9"]


def test_rows_of_unread_partitions_are_unchanged_and_marked() -> None:
    one = observation(COMPLETE)
    rows = findings(twice(one))
    (explained,) = explain(rows, twice(one), LogEvidence(excerpts={}))
    *evidence, left_out = explained["evidence"]
    assert [{**explained, "evidence": evidence}] == rows
    assert left_out["name"] == "left_out"
