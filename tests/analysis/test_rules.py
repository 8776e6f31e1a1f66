"""Rules on open transactions, and the claims that an action needs."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import COMPLETE, NOW, ago, observation, only, partition, producer, transaction, twice
from tests.analysis.logged import HERE, by_logs, data, diagnosed, ended_records, excerpt, facts, init, marker, record
from toolkit.analysis.diagnosis.case import DiagnoseOptions
from toolkit.analysis.diagnosis.decision import Outcome
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.rules import claim_entries, needed_override
from toolkit.formats.headers import COMMIT
from toolkit.schema import Row
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict

ELSEWHERE = (("payments", 2),)
LAST_EPOCH = producer(epoch=32766)
TWO_PHASE = 2**31 - 1
FLINK_MS = 3_600_000


@pytest.mark.parametrize(
    ("owner", "verdict", "is_read", "reason", "remedy"),
    [
        (transaction(), "ongoing", False, "for 10 s, within its own timeout of 1 min.", "after 2026-11-21 12:00:50"),
        (transaction(timeout_ms=None), "ongoing", False, "for 10 s, within its own timeout.", "Wait: its coordinator"),
        (transaction(timeout_ms=None, start_time=ago(seconds=81)), "ongoing", False, "for 1 min 21 s, ", "Wait: "),
        (transaction(start_time=None), "ongoing", False, "not proven to be past its own", "Wait: "),
        (transaction(start_time=NOW + dt.timedelta(minutes=3)), "ongoing", False, "(no broker's time", "12:04:00"),
        (transaction(start_time=ago(seconds=900), timeout_ms=FLINK_MS), "ongoing", False, "for 15 min, ", "Fence"),
        (transaction(start_time=ago(seconds=901), timeout_ms=FLINK_MS), "long", True, "15 min 1 s,", "Fence its id"),
        (transaction(start_time=ago(seconds=80)), "ongoing", False, "for 1 min 20 s, not proven", "Wait: "),
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
    ("epoch", "owner", "outcome", "verdict"),
    [
        (32766, transaction(epoch=32767, start_time=ago(seconds=81)), "undecided", "overdue"),
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
    """Below epoch 32767, a newer instance may have it; before the timeout, the fence may still be on its way."""
    diagnosis = Diagnosis.of(twice(observation(owner, producers=[producer(epoch=epoch)])))
    decided = Outcome(name=outcome, reason="its log shows it", are_markers_sought=True)
    row = only(diagnosis.findings(read=by_logs(diagnosis, decided)))
    assert (row.verdict, row.action) == (verdict, "abort" if verdict == "hanging" else None)
    if verdict == "overdue":
        assert row.outcome == "undecided"
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


def test_a_producer_that_went_on_with_another_epoch_needs_observations_that_agree() -> None:
    one, other = (observation(producers=[producer(epoch=epoch)]) for epoch in (0, 1))
    row = only(diagnosed([twice(one)[0], other]))
    assert (row.verdict, row.missing) == (
        "unknown",
        ("observations that agree: the coordinator answered differently before",),
    )


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


def test_a_long_transaction_perhaps_over_committed_records_is_not_undecided() -> None:
    row = only(diagnosed(twice(LONG), LIKELY_BELOW, *LIVE_RECORDS))
    assert (row.verdict, row.outcome, row.action) == ("long", "unknown", None)
    words = "and if no commit includes offset 100 of orders-0, which is not proven."
    assert row.remedy.endswith(f"Fence its id only to end it sooner, {words}")
    row = only(diagnosed(twice(LONG), here(BEFORE, data(100, second=31)), init(), LIVE_RECORDS[-1]))
    assert (row.verdict, row.outcome) == ("long", "undecided")
    assert row.remedy.endswith("Fence its id only to end it sooner.")
    unread = only(Diagnosis.of(twice(LONG)).findings())
    assert (unread.verdict, unread.outcome) == ("long", "undecided"), "as long as no log speaks against it"


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


HANGING = observation()
FREE = replace(OUTCOMES["undecided"], are_markers_sought=True)


def entries(one: Observation, shown: Outcome = FREE) -> dict[str, str | None]:
    (evidence,) = Diagnosis.of(twice(one)).to_read()
    found = list(claim_entries(replace(evidence, known_outcome=shown)))
    assert {each.source for each in found} <= {"claims"}
    assert {each.observed_at for each in found} <= {one.observed_at}
    return {each.name or "": each.value for each in found}


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


def finding(*values: tuple[str, str], verdict: Verdict = Verdict.UNKNOWN) -> Finding:
    row = only(diagnosed(twice(HANGING)))
    entry = row.evidence[0]
    return replace(row, verdict=verdict, evidence=tuple(replace(entry, name=name, value=v) for name, v in values))


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
