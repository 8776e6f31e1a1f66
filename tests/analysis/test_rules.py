"""Rules on open transactions, and the claims that an action needs."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import (
    COMPLETE,
    NOW,
    ago,
    first_batch,
    observation,
    only,
    partition,
    producer,
    transaction,
    twice,
)
from tests.analysis.logged import HERE, by_logs, data, diagnosed, ended_records, excerpt, facts, init, marker, record
from toolkit.analysis.diagnosis import rules
from toolkit.analysis.diagnosis.case import DiagnoseOptions
from toolkit.analysis.diagnosis.decision import NOT_PROVEN, PROVEN, REFUTED, Outcome, decide_ended, decide_unknown
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.rules import claim_entries, claims_of, needed_override
from toolkit.formats.headers import COMMIT
from toolkit.schema import Row
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.recorded import ActionClaim
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict

ELSEWHERE = (("payments", 2),)
LAST_EPOCH = producer(epoch=32766)
TWO_PHASE = 2**31 - 1
FLINK_MS = 3_600_000
FIRST_BATCH = first_batch(epoch=1)


@pytest.mark.parametrize(
    ("owner", "verdict", "is_read", "reason", "remedy"),
    [
        (transaction(), "ongoing", False, "for 10 s, within its own timeout of 1 min.", "after 2026-11-21 12:00:50"),
        (transaction(timeout_ms=None), "ongoing", False, "for 10 s, within its own timeout.", "wait: its coordinator"),
        (transaction(timeout_ms=None, start_time=ago(seconds=81)), "ongoing", False, "for 1 min 21 s, ", "wait: "),
        (transaction(start_time=None), "ongoing", False, "not proven to be past its own", "wait: "),
        (transaction(start_time=NOW + dt.timedelta(minutes=3)), "ongoing", False, "(no broker's time", "12:04:00"),
        (transaction(start_time=ago(seconds=900), timeout_ms=FLINK_MS), "ongoing", False, "for 15 min, ", "Fence"),
        (transaction(start_time=ago(seconds=901), timeout_ms=FLINK_MS), "long", True, "15 min 1 s,", "Fence its id"),
        (transaction(start_time=ago(seconds=80)), "ongoing", False, "for 1 min 20 s, not proven", "wait: "),
        (transaction(start_time=ago(seconds=81)), "overdue", True, "11:58:39 UTC with a timeout of 1 min", "Never an"),
        (transaction(timeout_ms=TWO_PHASE), "prepared", True, "(no timeout)", "whether to commit or abort"),
    ],
)  # fmt: skip
def test_a_live_transaction(owner: Transaction, verdict: str, is_read: bool, reason: str, remedy: str) -> None:
    diagnosis = Diagnosis.of(twice(observation(owner)))
    row = only(diagnosis.findings(read=facts(diagnosis)))
    assert (row.verdict, row.outcome, bool(diagnosis.to_read())) == (verdict, "undecided", is_read)
    assert row.action == ("fence" if verdict == "overdue" else None)
    assert row.reason.startswith('coordinator 3: id "payments-7" is Ongoing')
    assert reason in row.reason
    assert remedy in row.remedy
    assert diagnosis.to_recheck() == []
    assert (row.opened_at, row.opened_at_clock) == (owner.start_time, "coordinator" if owner.start_time else None)


@pytest.mark.parametrize(
    ("open_for", "written_before", "is_read"), [(10, 11, True), (9.9, 11, False), (10, 10, False), (10, 9, False)]
)
def test_the_log_of_a_live_transaction_is_read_if_its_first_batch_is_older(
    open_for: float, written_before: float, is_read: bool
) -> None:
    """The batch may be of an earlier transaction; one that began less than 10 s ago ends soon."""
    batch = replace(FIRST_BATCH, producer_epoch=0, base_timestamp=ago(seconds=written_before))
    owner = transaction(start_time=ago(seconds=open_for))
    diagnosis = Diagnosis.of(twice(observation(owner, first_batches=[batch])))
    assert only(diagnosis.findings()).verdict == "ongoing"
    assert bool(diagnosis.to_read()) == is_read


@pytest.mark.parametrize(
    ("state", "outcome"), [("PrepareCommit", "commit"), ("PrepareAbort", "abort"), ("PrepareEpochFence", "abort")]
)
def test_a_decided_transaction_that_its_coordinator_still_writes(state: str, outcome: str) -> None:
    for seconds, verdict in ((65, "ending"), (66, "stuck_ending")):
        diagnosis = Diagnosis.of(twice(observation(transaction(state=state, last_update_time=ago(seconds=seconds)))))
        row = only(diagnosis.findings(read=facts(diagnosis)))
        assert (row.verdict, row.outcome, row.action) == (verdict, outcome, None)
        assert (bool(diagnosis.to_read()), diagnosis.to_recheck()) == (verdict == "stuck_ending", [HERE])
        assert row.cause == (None if verdict == "ending" else "marker not written by the coordinator")
        assert (row.opened_at, row.opened_at_clock) == (ago(seconds=10), "coordinator")
        assert "abort --" not in row.remedy
    assert "for 1 min 1 s and has not ended it here" in row.reason
    assert "move the leader of __transaction_state-33" in row.remedy


@pytest.mark.parametrize(
    ("owner", "cause", "reason", "remedy"),
    [
        (None, "no owner: the id has expired or moved on to another producer id", "no transactional id has", ""),
        (
            transaction(state="Empty", on=()),
            None,
            'coordinator 3: id "payments-7" is Empty, so no coordinator will',
            "",
        ),
        (transaction(state="CompleteCommit", on=()), None, "is CompleteCommit, so no coordinator will", ""),
        (transaction(state="Dead", on=()), None, "is Dead, so no coordinator will", ""),
        (transaction(state="CompleteAbort", on=(), epoch=1), None, "is CompleteAbort, so no coordinator will", ""),
        (transaction(state="Empty", on=(), timeout_ms=TWO_PHASE), None, "is Empty, so no coordinator will", ""),
        (
            transaction(on=ELSEWHERE),
            "written but not added to the transaction",
            "Ongoing on other partitions and does not know this one",
            "On this partition only:\n",
        ),
        (
            transaction(epoch=1, on=ELSEWHERE),
            "superseded epoch",
            "with epoch 1 elsewhere, so no coordinator will end this transaction of epoch 0",
            "Soon, as the new epoch's marker would decide this data too:\n",
        ),
        (
            transaction(epoch=1, last_update_time=ago(seconds=10)),
            "superseded epoch",
            "so epoch 0 is dead, and the next marker will decide its data",
            "Soon, as the new epoch's marker would decide this data too:\n",
        ),
    ],
)
def test_a_hanging_transaction(owner: Transaction | None, cause: str | None, reason: str, remedy: str) -> None:
    diagnosis = Diagnosis.of(twice(observation(*([owner] if owner else []))))
    row = only(diagnosis.findings(read=facts(diagnosis)))
    assert (row.verdict, row.outcome, row.action, row.cause) == ("hanging", "undecided", "abort", cause)
    assert reason in row.reason
    assert row.reason.endswith(" (seen twice, 5 s apart; all 3 brokers answered).")
    assert row.remedy == f"{remedy}kafka-txn abort --topic orders --partition 0 --start-offset 100"
    assert (len(diagnosis.to_read()), diagnosis.to_recheck()) == (1, [HERE])


@pytest.mark.parametrize(
    ("owner", "reason", "missing"),
    [
        (transaction(state="PrepareCommit", on=ELSEWHERE), "on other partitions", "the end of the transaction"),
        (
            transaction(state="PrepareCommit", on=ELSEWHERE, last_update_time=ago(minutes=5)),
            "on other partitions",
            "the end of the transaction",
        ),
        (transaction(timeout_ms=TWO_PHASE, on=ELSEWHERE), "may run ahead", "the external coordinator's decision"),
        (transaction(epoch=1), "its coordinator is fencing it", 'the record of "payments-7" with epoch 1'),
        (transaction(state="Odd", on=()), "is Odd, a state", "the meaning of the state Odd"),
        (transaction(state="Odd"), "is Odd, a state", "the meaning of the state Odd"),
        (transaction(state="Odd", epoch=1), "is Odd, a state", "the meaning of the state Odd"),
        (transaction(state="Odd", timeout_ms=TWO_PHASE), "is Odd, a state", "the meaning of the state Odd"),
        (transaction(state=None, on=()), "in no known state", "the meaning of the state that was not returned"),
        (transaction(state=None, error="X: y"), "could not be described", 'the state of "payments-7": X: y'),
    ],
)  # fmt: skip
def test_an_answer_that_proves_nothing(owner: Transaction, reason: str, missing: str) -> None:
    diagnosis = Diagnosis.of(twice(observation(owner)))
    row = only(diagnosis.findings(read=facts(diagnosis)))
    assert (row.verdict, row.outcome, row.action, row.cause) == ("unknown", "unknown", None, None)
    assert reason in row.reason
    assert row.missing[0].startswith(missing)
    assert row.remedy.startswith(("Do not abort", "Ask the external coordinator"))
    assert (len(diagnosis.to_read()), diagnosis.to_recheck()) == (1, [HERE])


@pytest.mark.parametrize(
    ("epoch", "owner", "outcome", "verdict"),
    [
        (32766, transaction(epoch=32767, start_time=ago(seconds=81)), "undecided", "overdue"),
        (32766, transaction(epoch=32767, start_time=ago(seconds=81)), "unknown", "overdue"),
        (32766, transaction(epoch=32767, start_time=ago(seconds=80)), "undecided", "unknown"),
        (32766, transaction(epoch=32767, start_time=ago(seconds=81)), "commit", "unknown"),
        (32765, transaction(epoch=32766, start_time=ago(seconds=81)), "undecided", "unknown"),
        (32765, transaction(epoch=32767, start_time=ago(seconds=81)), "undecided", "unknown"),
        (32766, transaction(epoch=32767, start_time=ago(seconds=81), on=ELSEWHERE), "undecided", "hanging"),
        (32766, transaction(state="Odd", epoch=32767, start_time=ago(seconds=81)), "undecided", "unknown"),
    ],
)
def test_a_coordinator_that_could_not_log_the_last_epoch(
    epoch: int, owner: Transaction, outcome: str, verdict: str
) -> None:
    """Below epoch 32767, a newer instance may have it; before the timeout, the fence may still be on its way.

    That its coordinator then aborts it was advised without the proof that no commit includes it.
    """
    diagnosis = Diagnosis.of(twice(observation(owner, producers=[producer(epoch=epoch)])))
    decided = Outcome(name=outcome, reason="its log shows it", are_markers_sought=True)
    row = only(diagnosis.findings(read=by_logs(diagnosis, decided)))
    assert (row.verdict, row.action) == (verdict, "abort" if verdict == "hanging" else None)
    if verdict == "overdue":
        assert row.outcome == outcome
        assert ("first get the proof that no commit includes" in row.remedy) is (outcome == "unknown")
        assert row.cause == "the coordinator could not log epoch 32767: KAFKA-20090"
        assert "restart broker 3" in row.remedy


@pytest.mark.parametrize("on", [(HERE,), ELSEWHERE])
def test_a_coordinator_without_an_epoch_does_not_prove_that_its_transaction_is_another_one(on: object) -> None:
    """A live transaction was called hanging, with the text that its coordinator's epoch -1 had superseded it."""
    for seconds in (10, 76):
        one = observation(
            transaction(producer_epoch=None, on=on, start_time=ago(seconds=seconds)), producers=[LAST_EPOCH]
        )
        row = only(diagnosed(twice(one)))
        assert (row.verdict, row.missing) == ("unknown", ("the epoch of producer 7 at its coordinator",))


def test_a_partition_without_an_epoch_does_not_prove_that_its_transaction_is_another_one() -> None:
    for logged_at in (None, ago(seconds=10)):
        one = observation(transaction(last_update_time=logged_at), producers=[replace(producer(), producer_epoch=None)])
        row = only(diagnosed(twice(one)))
        assert (row.verdict, row.missing) == ("unknown", ("the epoch of producer 7 on the partition",))


def test_a_producer_whose_epoch_is_not_known_is_not_called_superseded() -> None:
    row = only(
        diagnosed(twice(observation(transaction(on=ELSEWHERE), producers=[replace(producer(), producer_epoch=None)])))
    )
    assert "does not know this one" in row.reason


def test_a_producer_that_went_on_with_another_epoch_needs_observations_that_agree() -> None:
    one, other = (observation(producers=[producer(epoch=epoch)]) for epoch in (0, 1))
    row = only(diagnosed([twice(one)[0], other]))
    assert (row.verdict, row.missing) == (
        "unknown",
        ("observations that agree: the coordinator answered differently before",),
    )


@pytest.mark.parametrize(
    "one",
    [
        observation(
            producers=[producer(topic="__transaction_state")], partitions=[partition(topic="__transaction_state")]
        ),
        observation(transaction(), transaction(coordinator_id=2)),
        observation(transaction(), producers=[producer(epoch=1)]),
        observation(transaction(producer_epoch=None)),
        observation(transaction(epoch=2), producers=[producer(epoch=2)], first_batches=[FIRST_BATCH]),
        observation(
            transaction(epoch=1, start_time=ago(seconds=11)), producers=[producer(epoch=1)], first_batches=[FIRST_BATCH]
        ),
    ],
    ids=[
        "on the coordinators' topic",
        "several coordinators",
        "stale coordinator",
        "missing epoch",
        "of two epochs",
        "older first batch",
    ],
)
def test_the_logs_of_an_odd_transaction_are_read(one: Observation) -> None:
    assert len(Diagnosis.of(twice(one)).to_read()) == 1


@pytest.mark.parametrize(
    "one",
    [
        observation(transaction(on=ELSEWHERE, start_time=ago(minutes=2))),
        observation(transaction(on=ELSEWHERE, start_time=ago(minutes=20), timeout_ms=FLINK_MS)),
        observation(producers=[producer(epoch=2)], first_batches=[FIRST_BATCH]),
    ],
    ids=["overdue elsewhere", "long elsewhere", "of two epochs, and no owner"],
)
def test_only_a_live_transaction_is_overdue_or_long_or_ended_by_its_client(one: Observation) -> None:
    assert only(diagnosed(twice(one))).verdict == "hanging"


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


@pytest.mark.parametrize("name", ["undecided", "abort"])
def test_nothing_hangs_before_markers_on_other_partitions_were_sought(name: str) -> None:
    """The coordinators' log may have lost a commit, of which they would show."""
    (evidence,) = Diagnosis.of(twice(observation())).to_read()
    outcome = Outcome(name=name, reason="its log shows it", are_markers_sought=True)
    assert replace(evidence, known_outcome=outcome).decision.verdict == "hanging"
    not_sought = replace(evidence, known_outcome=replace(outcome, are_markers_sought=False)).decision
    unread = replace(evidence, known_outcome=replace(outcome, markers_unread="Broker 2 did not answer")).decision
    for found, why in ((not_sought, "they were not read"), (unread, "Broker 2 did not answer")):
        assert (found.verdict, found.outcome, found.action) == ("unknown", "unknown", None)
        assert found.missing == (
            "the markers of producer 7 on other partitions, which show whether the coordinators' log has lost a "
            f"commit: {why}",
        )
        assert found.remedy.startswith("Do not abort.")


@pytest.mark.parametrize("unread", [None, "Broker 2 did not answer"])
def test_a_commit_needs_no_markers_on_other_partitions(unread: str | None) -> None:
    (evidence,) = Diagnosis.of(twice(observation())).to_read()
    outcome = Outcome(name="commit", reason="its log shows it", markers_unread=unread)
    assert replace(evidence, known_outcome=outcome).decision.action == "complete"


BEFORE = data(0, pid=1, records=100)
OLDER = (marker(0, COMMIT, pid=1, second=2), data(1, pid=1, records=99))  # that the log is older is proven
ENDED = observation(transaction(state="CompleteCommit", on=()))


def here(*rows: dict[str, Any], start: int = 0) -> dict[TopicPartition, Excerpt]:
    """The log of the partition, read up to the high watermark."""
    return {HERE: excerpt(*rows, start=start, stop=150)}


def ended(end: str, *, offset: int = 1, began: float = 3, at_second: float = 11, **more: Any) -> list[Row]:
    return ended_records(end, began=began, at_second=at_second, offset=offset, **more)


def timed(offset: int, second: float) -> dict[str, Any]:
    """A broker's time in the log of the partition: the marker of another producer."""
    return marker(offset, COMMIT, pid=1, second=second)


def test_what_the_log_decides() -> None:
    committed, proven = [init(), *ended("Commit")], here(BEFORE, data(100, second=4), timed(101, 5))
    row = only(diagnosed(twice(ENDED), proven, *committed))
    assert (row.verdict, row.outcome, row.action) == ("stuck_ending", "commit", "complete")
    assert row.reason.startswith('The transaction of "payments-7"')
    assert row.remedy.startswith("kafka-txn complete --topic orders --partition 0 --start-offset 100\n")
    row = only(diagnosed(twice(ENDED), proven, init(), *ended("Abort")))
    assert (row.verdict, row.outcome, row.action) == ("hanging", "abort", "abort")
    assert ": the transaction of" in row.reason


@pytest.mark.parametrize(
    "log",
    [
        here(*OLDER, data(100, second=4)),
        here(*OLDER, data(100, second=4), timed(101, 6)),  # clocks differ by up to 5 s
        here(*OLDER[:1], data(1, pid=1, records=98), timed(99, 5), data(100, second=4)),
        here(*OLDER, data(100, second=4), data(101, pid=1, second=5)),
    ],
    ids=["nothing after it", "a marker within the bound", "a marker before it", "CreateTime"],
)
def test_a_commit_is_likely_without_a_brokers_time_between_its_records_and_its_decision(
    log: dict[TopicPartition, Excerpt],
) -> None:
    """With transaction version 1, a late record that no commit includes has the same epoch."""
    row = only(diagnosed(twice(ENDED), log, init(), *ended("Commit")))
    assert (row.verdict, row.outcome, row.action, row.cause) == ("unknown", "unknown", None, None)
    claim = "records of offset 100 are older than the commit of 2026-11-21 11:50:11 UTC"
    assert row.remedy == (
        "Do not abort: a commit is likely. Check in the client's log, or in its checkpoint, what it committed. If that "
        f"shows that {claim}, this says how to write the COMMIT marker that is missing:\n"
        "kafka-txn complete --topic orders --partition 0 --start-offset 100"
    )
    (missing,) = row.missing
    assert missing.startswith("a broker's time between offset 100 and the decision: the transaction of")
    assert needed_override(row, "complete") == claim
    assert needed_override(row, "abort") == "no commit includes offset 100 of orders-0"
    nearest = here(*OLDER, data(100, second=4), timed(101, 5.999))
    assert only(diagnosed(twice(ENDED), nearest, init(), *ended("Commit"))).action == "complete"


def test_a_commit_is_likely_where_the_log_is_not_proven_to_be_older() -> None:
    """The partition may have been created again since: the commit's marker was in the old one."""
    row = only(diagnosed(twice(ENDED), here(BEFORE, data(100, second=4)), init(), *ended("Commit")))
    assert (row.verdict, row.action) == ("unknown", None)
    assert row.missing[0].startswith(
        "a proof that orders-0 was not created again, or lost its log, after this decision"
    )
    claim = "records of offset 100 are of the commit of 2026-11-21 11:50:11 UTC, whose marker is missing"
    assert needed_override(row, "complete") == claim
    assert f"If that shows that {claim}, this says" in row.remedy


def test_a_log_that_was_not_read_to_its_end_has_no_claim_to_override() -> None:
    """A marker would decide the records that were not read, too."""
    log = {HERE: excerpt(BEFORE, data(100, second=4), timed(101, 5), start=0)}
    row = only(diagnosed(twice(ENDED), log, init(), *ended("Commit")))
    assert (row.verdict, row.action, needed_override(row, "complete")) == ("unknown", None, None)
    assert row.missing == (
        "the log of orders-0 from offset 102 on: whether a commit includes these records of orders-0",
    )


def test_a_newer_epoch_behind_a_commit_without_its_marker_is_ended_by_no_marker() -> None:
    """A COMMIT marker would make its records visible too, and an ABORT marker discards those that are committed."""
    owner = transaction(state="CompleteAbort", on=(), epoch=1)
    one = observation(owner, producers=[producer(epoch=1)])
    committed = [init(), *ended("Commit"), record(9, "Empty", second=20, epoch=1)]
    opened = BEFORE, data(100, second=4), timed(101, 5)
    newer = data(102, records=2, epoch=1, second=20)
    row = only(diagnosed(twice(one), here(*opened, newer), *committed))
    assert (row.verdict, row.outcome, row.action) == ("unknown", "unknown", None)
    assert row.remedy.startswith("Write no marker: an abort discards committed records, and a commit makes others ")
    (missing,) = row.missing
    assert missing == (
        'one decision for all of them: offset 100 (epoch 0): the transaction of "payments-7" in '
        "__transaction_state-33 with epoch 0 was committed at 2026-11-21 11:50:11 UTC; offsets 102 to 103 (epoch 1): "
        "no decision includes them"
    )
    assert [needed_override(row, action) for action in ("abort", "complete")] == [None, None], "both are refuted"
    of_both = [*committed, *ended("Commit", offset=10, began=21, at_second=40, epoch=1)]
    row = only(diagnosed(twice(one), here(*opened, newer, timed(104, 30)), *of_both))
    assert (row.verdict, row.outcome, row.action) == ("stuck_ending", "commit", "complete"), "one marker for both"
    row = only(diagnosed(twice(one), here(*opened, newer), *of_both))
    assert (row.verdict, row.action) == ("unknown", None)
    assert (
        needed_override(row, "complete")
        == "records of offsets 102 to 103 are older than the commit of 2026-11-21 11:50:40 UTC"
    )
    assert needed_override(row, "abort") is None, "a part is proven to be committed"


LONG = observation(transaction(start_time=ago(minutes=20), timeout_ms=FLINK_MS))
LIVE_RECORDS = [init(), *ended("Commit"), record(9, "Ongoing", second=30, started=30, on=(HERE,))]
COMMITTED_BELOW = here(BEFORE, data(100, second=4), timed(101, 5))
LIKELY_BELOW = here(*OLDER, data(100, second=4))


def test_committed_records_below_a_live_transaction_are_committed_by_it() -> None:
    """Its client commits: an abort, and a fence, would discard them."""
    row = only(diagnosed(twice(LONG), COMMITTED_BELOW, *LIVE_RECORDS))
    assert (row.verdict, row.outcome, row.action) == ("ongoing", "commit", None)
    assert row.cause == "committed records in a live transaction"
    assert row.remedy.startswith("Have its client commit")
    assert "Do not fence the id" in row.remedy
    assert [needed_override(row, action) for action in ("abort", "complete")] == [None, None], "it has an owner"


def test_committed_and_aborted_records_below_a_live_transaction_are_kept_first() -> None:
    """Its commit published those of an abort whose marker was lost, too, as the finding said to have it commit."""
    mixed = Outcome(name="unknown", reason="both", is_partly_committed=True, is_partly_free=True)
    for outcome, words in (
        (mixed, "Have its client commit"),
        (replace(mixed, is_partly_aborted=True), "First read orders-0 from offset 100 with read_uncommitted"),
    ):
        diagnosis = Diagnosis.of(twice(LONG))
        row = only(diagnosis.findings(read=by_logs(diagnosis, outcome)))
        assert (row.verdict, row.outcome, row.action) == ("ongoing", "unknown", None)
        assert row.remedy.startswith(words)
        assert "Do not fence the id" in row.remedy


def test_a_live_transaction_over_aborted_records_is_not_to_commit() -> None:
    """The finding said to wait, and the commit of its client published them."""
    for outcome, words in (
        (Outcome(name="undecided", reason="none", is_partly_aborted=True), "Have its client abort, or fence"),
        (Outcome(name="unknown", reason="both", is_partly_aborted=True), "First read orders-0 from offset 100 with"),
    ):
        diagnosis = Diagnosis.of(twice(LONG))
        row = only(diagnosis.findings(read=by_logs(diagnosis, outcome)))
        assert (row.verdict, row.action) == ("long", None)
        assert "a commit may make its records visible, too" in row.reason
        assert row.remedy.startswith(words)
        assert "Otherwise wait" not in row.remedy


def test_records_of_a_dead_epoch_that_may_be_committed_are_kept_before_anything_ends_them() -> None:
    """The finding said to have the client abort, which discards them, whatever was proven of them."""
    mixed = observation(transaction(epoch=2), producers=[producer(epoch=2)], first_batches=[FIRST_BATCH])
    diagnosis = Diagnosis.of(twice(mixed))
    for name, words in (
        ("undecided", "Have its client abort"),
        ("unknown", "First read orders-0 from offset 100 with"),
    ):
        row = only(diagnosis.findings(read=by_logs(diagnosis, Outcome(name=name, reason="none"))))
        assert (row.verdict, row.outcome, row.cause) == ("ongoing", name, "mixed epochs in one transaction")
        assert row.remedy.startswith(words)
        assert ("Do not fence the id" in row.remedy) is (name == "unknown")


def test_a_long_transaction_perhaps_over_committed_records_is_not_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    row = only(diagnosed(twice(LONG), LIKELY_BELOW, *LIVE_RECORDS))
    assert (row.verdict, row.outcome, row.action) == ("long", "unknown", None)
    words = "get the proof that no commit includes offset 100 of orders-0"
    assert row.remedy.startswith(f"Before its client is started again, or its id is fenced, {words}: both abort"), (
        'it was "start it again: its InitProducerId ends the transaction", which discards what was likely committed'
    )
    row = only(diagnosed(twice(LONG), here(BEFORE, data(100, second=31)), init(), LIVE_RECORDS[-1]))
    assert (row.verdict, row.outcome) == ("long", "undecided")
    assert row.remedy.endswith("Fence its id only to end it sooner.")
    unread = only(Diagnosis.of(twice(LONG)).findings())
    assert (unread.verdict, unread.outcome) == ("long", "undecided"), "as long as no log speaks against it"
    monkeypatch.setattr(rules, "may_be_flinks", lambda name: True)
    row = only(diagnosed(twice(LONG), LIKELY_BELOW, *LIVE_RECORDS))
    assert f"{words}, and that no checkpoint of Flink is to commit it: both" in row.remedy


def test_an_overdue_transaction_perhaps_over_committed_records_is_not_to_be_fenced() -> None:
    """A fence aborts all that is open here."""
    overdue = observation(transaction(start_time=ago(minutes=2)))
    row = only(diagnosed(twice(overdue), LIKELY_BELOW, *LIVE_RECORDS))
    assert (row.verdict, row.outcome, row.action) == ("overdue", "unknown", None)
    assert "first get the proof that no commit includes offset 100 of orders-0 (a broker's time between" in row.remedy
    assert "kafka-txn fence" not in row.remedy
    assert "it should have been aborted" in row.reason
    row = only(diagnosed(twice(overdue), here(BEFORE, data(100, second=31)), init(), LIVE_RECORDS[-1]))
    assert (row.verdict, row.outcome, row.action) == ("overdue", "undecided", "fence"), "nothing was committed"
    row = only(diagnosed(twice(overdue), COMMITTED_BELOW, *LIVE_RECORDS))
    assert (row.verdict, row.cause) == ("ongoing", "committed records in a live transaction")
    unread = only(Diagnosis.of(twice(overdue)).findings())
    assert (unread.verdict, unread.outcome, unread.action) == ("overdue", "unknown", None)
    without_data = observation(transaction(start_time=ago(minutes=2)), producers=[], partitions=[partition(lso=150)])
    assert only(Diagnosis.of(twice(without_data)).findings()).action == "fence", "it has nothing here to discard"


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


def test_a_transaction_without_data_needs_no_log() -> None:
    without_data = observation(transaction(start_time=ago(minutes=2)), producers=[], partitions=[partition(lso=150)])
    assert Diagnosis.of([without_data]).to_read() == []
    assert only(Diagnosis.of([without_data]).findings()).verdict == "overdue"


def test_doubts_of_one_observation_are_named_once() -> None:
    gap = replace(COMPLETE, gaps=("broker 2 did not answer",))
    row = only(diagnosed(twice(observation(coverage=gap))))
    assert row.missing == ("broker 2 did not answer",)
    failed = observation(partitions_after=[partition(error="NOT_LEADER: x")])
    assert "the leader's offsets: NOT_LEADER: x" in only(row for row in diagnosed([failed]) if row.producer_id).missing
    moved = observation(partitions_after=[partition(leader=2)])
    assert only(diagnosed(twice(moved))).missing == (
        "a response of the partition's leader: leadership moved during the observation",
    )


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
    "committed, and free": Outcome(
        name="unknown", reason="", offsets=OFFSETS, is_partly_committed=True, is_partly_free=True
    ),
    "committed, and likely": Outcome(
        name="unknown", reason="", offsets=OFFSETS, is_partly_committed=True, commit_claim=OLDER_THAN_IT
    ),
    "free, and likely": Outcome(
        name="unknown", reason="", offsets=OFFSETS, is_partly_free=True, commit_claim=OLDER_THAN_IT
    ),
}


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


HANGING = observation()
FREE = replace(OUTCOMES["undecided"], are_markers_sought=True)


def entries(one: Observation, shown: Outcome = FREE) -> dict[str, str | None]:
    (evidence,) = Diagnosis.of(twice(one)).to_read()
    found = list(claim_entries(replace(evidence, known_outcome=shown)))
    assert {each.source for each in found} <= {"claims"}
    assert {each.observed_at for each in found} <= {one.observed_at}
    return {each.name or "": each.value for each in found}


def test_the_claims_are_evidence_of_a_finding() -> None:
    assert entries(HANGING) == {
        "claim_not_owned": "no live transaction owns offset 100 of orders-0: proven",
        "claim_no_commit": "no commit includes offset 100 of orders-0: proven",
        "claim_all_committed": "a commit includes offset 100 of orders-0: refuted",
    }
    row = only(Diagnosis.of(twice(HANGING)).findings(read={}))
    assert [each.name for each in row.evidence if each.source == "claims"] == list(entries(HANGING))


def test_a_doubt_leaves_open_whether_a_live_transaction_owns_it() -> None:
    gap = observation(coverage=replace(COMPLETE, gaps=("broker 2 did not answer",)))
    two = observation(transaction(), transaction(coordinator_id=2))
    words = "no live transaction owns offset 100 of orders-0: not proven"
    assert entries(gap)["claim_not_owned"] == words
    assert entries(two)["claim_not_owned"] == words, "a rule on its owners leaves it unknown"
    unread = entries(HANGING, OUTCOMES["unknown"])
    assert unread["claim_not_owned"] == "no live transaction owns offset 100 of orders-0: proven", "that is another one"


@pytest.mark.parametrize(
    "owner",
    [
        transaction(start_time=ago(minutes=20)),
        transaction(start_time=ago(minutes=20), timeout_ms=3_600_000),
        transaction(timeout_ms=2**31 - 1),
        transaction(state="PrepareCommit", last_update_time=ago(minutes=5)),
    ],
    ids=["overdue", "long", "prepared", "being ended"],
)
def test_of_what_has_an_owner_no_claim_can_be_asserted(owner: Transaction) -> None:
    """No marker is written; a recording keeps what was known of its records."""
    one = observation(owner)
    for outcome in OUTCOMES.values():
        found = entries(one, replace(outcome, are_markers_sought=True))
        assert found["claim_not_owned"] == f"no live transaction owns {OFFSETS}: refuted"
        assert found["claim_no_commit"] == f"{outcome.no_commit.claim}: {outcome.no_commit.status}"
        assert found["claim_all_committed"] == f"{outcome.all_committed.claim}: {outcome.all_committed.status}"
    (evidence,) = Diagnosis.of(twice(one)).to_read()
    assert list(claim_entries(evidence)) == [], "nothing is known of its records if no log was read"


@pytest.mark.parametrize("name", ["undecided", "abort"])
def test_that_no_commit_includes_it_is_not_proven_before_markers_elsewhere_were_read(name: str) -> None:
    outcome = OUTCOMES[name]
    words = "no commit includes offset 100 of orders-0"
    unsought = outcome
    unread = replace(outcome, are_markers_sought=True, markers_unread="payments-3 could not be read")
    for log, status in (
        (unsought, "not proven"),
        (unread, "not proven"),
        (replace(unsought, are_markers_sought=True), "proven"),
    ):
        assert entries(HANGING, log)["claim_no_commit"] == f"{words}: {status}"
    diagnosis = Diagnosis.of(twice(HANGING))
    row = only(diagnosis.findings(read=by_logs(diagnosis, unread)))
    assert needed_override(row, "abort") == words
    refuted = OUTCOMES["committed, and free"]
    assert entries(HANGING, refuted)["claim_no_commit"] == f"{words}: refuted", "nothing makes that better"
    owned = entries(observation(transaction(start_time=ago(minutes=20))), unsought)
    assert owned["claim_no_commit"] == f"{words}: proven", "of what has an owner, they are not looked for"


def test_a_transaction_that_has_written_nothing_here_has_no_claims() -> None:
    one = observation(transaction(start_time=ago(minutes=2)), producers=[], partitions=[partition(lso=150)])
    ((evidence,),) = Diagnosis.of(twice(one)).opened.values()
    assert evidence.start is None
    assert list(claim_entries(evidence)) == []
    assert list(claim_entries(replace(evidence, known_outcome=FREE))) == []


def test_what_may_have_an_owner_has_claims_whether_its_log_was_read_or_not() -> None:
    two = observation(transaction(), transaction(coordinator_id=2))
    (evidence,) = Diagnosis.of(twice(two)).to_read()
    assert [each.name for each in claim_entries(evidence)] == list(entries(two))
    (owned,) = Diagnosis.of(twice(observation(transaction(start_time=ago(minutes=20))))).to_read()
    assert list(claim_entries(owned)) == []


def finding(*values: tuple[str, str], verdict: Verdict = Verdict.UNKNOWN) -> Finding:
    row = only(diagnosed(twice(HANGING)))
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


def test_a_commit_and_a_record_that_joined_it_are_neither_aborted_nor_completed() -> None:
    """Version 1: the commit's marker is lost, and another broker's time shows a record younger than its decision."""
    committed = [init(), *ended_records("Commit", began=3, at_second=11), record(9, "Empty", second=40, epoch=1)]
    owner = observation(transaction(state="Empty", epoch=1, on=()), producers=[producer()])
    before, older = data(90, pid=1, records=10), (data(100, second=4), marker(101, COMMIT, pid=1, second=5))
    late, after = marker(102, COMMIT, pid=1, second=17), data(103, sequence=1, second=18)
    log = {HERE: excerpt(before, *older, late, after, stop=150)}
    row = only(diagnosed(twice(owner), log, *committed))
    statuses = [each.value for each in row.evidence if each.source == "claims"]
    assert statuses == [
        "no live transaction owns offsets 100 to 103 of orders-0: proven",
        "no commit includes offsets 100 to 103 of orders-0: refuted",
        "a commit includes offsets 100 to 103 of orders-0: refuted",
    ]
    assert (row.verdict, row.action, needed_override(row, "abort"), needed_override(row, "complete")) == (
        *("unknown", None),
        *(None, None),
    )
    within = {HERE: excerpt(before, *older, {**late, "second": 16}, after, stop=150)}
    row = only(diagnosed(twice(owner), within, *committed))
    assert (
        needed_override(row, "complete") == "records of offset 103 are older than the commit of 2026-11-21 11:50:11 UTC"
    )
    assert needed_override(row, "abort") is None
