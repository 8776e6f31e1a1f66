"""Each rule of the decision at its edges: verdict, outcome, action, sentences, and what else has to be read."""

import datetime as dt
from dataclasses import replace

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
from tests.analysis.logged import HERE, data, diagnosed, ended_records, excerpt, facts, init, record
from toolkit.analysis.diagnosis.decision.decide import decide, needs_outcome
from toolkit.analysis.diagnosis.diagnose import diagnose
from toolkit.analysis.diagnosis.evidence_kinds import EndEvidence, GapEvidence, LogFacts
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.verdicts import Outcome
from toolkit.schema.live import Transaction

ELSEWHERE = (("payments", 2),)
LAST_EPOCH = producer(epoch=32766)
TWO_PHASE = 2**31 - 1
FLINK_MS = 3_600_000
FIRST_BATCH = first_batch(epoch=1)


@pytest.mark.parametrize(
    ("owner", "verdict", "is_read", "reason", "remedy"),
    [
        (transaction(), "ongoing", False, "for 10 s, within its own timeout of 1 min.", "after 2026-11-21 12:00:50"),
        (transaction(timeout_ms=None), "ongoing", False, "for 10 s, within its own timeout.", "Wait; it is alive."),
        (transaction(timeout_ms=None, start_time=ago(seconds=81)), "ongoing", False, "for 1 min 21 s, ", "Wait; "),
        (transaction(start_time=None), "ongoing", False, "not proven to be past its own", "Wait; "),
        (transaction(start_time=NOW + dt.timedelta(minutes=3)), "ongoing", False, "(no broker's time", "12:04:00"),
        (transaction(start_time=ago(seconds=900), timeout_ms=FLINK_MS), "ongoing", False, "for 15 min, ", "Fence"),
        (transaction(start_time=ago(seconds=901), timeout_ms=FLINK_MS), "long", True, "15 min 1 s,", "Fence its id"),
        (transaction(start_time=ago(seconds=80)), "ongoing", False, "for 1 min 20 s, not proven", "Wait: "),
        (transaction(start_time=ago(seconds=81)), "overdue", True, "11:58:39 UTC with a timeout of 1 min", "Never an"),
        (transaction(timeout_ms=TWO_PHASE), "prepared", True, "(no timeout)", "whether to commit or abort"),
    ],
)  # fmt: skip
def test_a_live_transaction(owner: Transaction, verdict: str, is_read: bool, reason: str, remedy: str) -> None:
    diagnosis = diagnose(twice(observation(owner)))
    row = only(diagnosis.findings(log=facts(diagnosis)))
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
    diagnosis = diagnose(twice(observation(owner, first_batches=[batch])))
    assert only(diagnosis.findings()).verdict == "ongoing"
    assert bool(diagnosis.to_read()) == is_read


@pytest.mark.parametrize(
    ("state", "outcome"), [("PrepareCommit", "commit"), ("PrepareAbort", "abort"), ("PrepareEpochFence", "abort")]
)
def test_a_decided_transaction_that_its_coordinator_still_writes(state: str, outcome: str) -> None:
    for seconds, verdict in ((65, "ending"), (66, "stuck_ending")):
        diagnosis = diagnose(twice(observation(transaction(state=state, last_update_time=ago(seconds=seconds)))))
        row = only(diagnosis.findings(log=facts(diagnosis)))
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
        (transaction(state="CompleteAbort", on=(), epoch=1), None, "is CompleteAbort, so no coordinator will", ""),
        (transaction(state="Empty", on=(), timeout_ms=TWO_PHASE), None, "is Empty, so no coordinator will", ""),
        (
            transaction(on=ELSEWHERE),
            "written but not added to the transaction",
            "Ongoing on other partitions and does not know this one",
            "On this partition only: ",
        ),
        (
            transaction(epoch=1, on=ELSEWHERE),
            "superseded epoch",
            "with epoch 1 elsewhere, so no coordinator will end this transaction of epoch 0",
            "Soon, as the new epoch's marker would decide this data too: ",
        ),
        (
            transaction(epoch=1, last_update_time=ago(seconds=10)),
            "superseded epoch",
            "so epoch 0 is dead, and the next marker will decide its data",
            "Soon, as the new epoch's marker would decide this data too: ",
        ),
    ],
)
def test_a_hanging_transaction(owner: Transaction | None, cause: str | None, reason: str, remedy: str) -> None:
    diagnosis = diagnose(twice(observation(*([owner] if owner else []))))
    row = only(diagnosis.findings(log=facts(diagnosis)))
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
    diagnosis = diagnose(twice(observation(owner)))
    row = only(diagnosis.findings(log=facts(diagnosis)))
    assert (row.verdict, row.outcome, row.action, row.cause) == ("unknown", "unknown", None, None)
    assert reason in row.reason
    assert row.missing[0].startswith(missing)
    assert row.remedy.startswith(("Do not abort", "Ask the external coordinator"))
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
    diagnosis = diagnose(twice(observation(owner, producers=[producer(epoch=epoch)])))
    decided = Outcome(name=outcome, reason="its log shows it")
    log = {key: replace(each, outcome=decided) for key, each in facts(diagnosis).items()}
    row = only(diagnosis.findings(log=log))
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
    assert len(diagnose(twice(one)).to_read()) == 1


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


def test_markers_elsewhere_are_read_only_where_nothing_but_the_outcome_is_missing() -> None:
    (evidence,) = diagnose(twice(observation())).to_read()
    facts_of = {name: LogFacts(outcome=Outcome(name=name, reason="")) for name in ("unknown", "commit")}
    assert needs_outcome(replace(evidence, log=facts_of["unknown"]))
    assert not needs_outcome(replace(evidence, log=facts_of["commit"]))
    assert not needs_outcome(replace(evidence, log=facts_of["unknown"], is_single_sample=True))


def test_what_the_log_decides() -> None:
    owner = observation(transaction(state="CompleteCommit", on=()))
    committed = [init(), *ended_records("Commit", began=9, at_second=11)]
    log = {HERE: excerpt(data(0, pid=1, records=100), data(100, second=10), start=0)}
    row = only(diagnosed(twice(owner), log, *committed))
    assert (row.verdict, row.outcome, row.action) == ("stuck_ending", "commit", "complete")
    assert row.reason.startswith('The transaction of "payments-7"')
    assert row.remedy.startswith("kafka-txn complete --topic orders --partition 0 --start-offset 100 writes")
    aborted = [init(), *ended_records("Abort", began=9, at_second=11)]
    row = only(diagnosed(twice(owner), log, *aborted))
    assert (row.verdict, row.outcome, row.action) == ("hanging", "abort", "abort")
    assert ": the transaction of" in row.reason


def test_a_newer_epoch_behind_a_commit_without_its_marker_is_completed_by_nobody() -> None:
    """A COMMIT marker would make its records visible too."""
    owner = transaction(state="CompleteAbort", on=(), epoch=1)
    one = observation(owner, producers=[producer(epoch=1)])
    committed = [init(), *ended_records("Commit", began=9, at_second=11), record(9, "Empty", second=20, epoch=1)]
    batches = (data(0, pid=1, records=100), data(100, second=10), data(101, epoch=1, second=20))
    row = only(diagnosed(twice(one), {HERE: excerpt(*batches, start=0)}, *committed))
    assert (row.verdict, row.outcome, row.action) == ("stuck_ending", "commit", None)
    assert row.remedy.startswith("Write no marker")


def test_committed_records_below_a_live_transaction_are_committed_by_it() -> None:
    """Its client commits: an abort, and a fence, would discard them."""
    long = transaction(start_time=ago(minutes=20), timeout_ms=FLINK_MS)
    committed = [init(), *ended_records("Commit", began=9, at_second=11)]
    records = [*committed, record(9, "Ongoing", second=30, started=30, on=(HERE,))]
    log = {HERE: excerpt(data(0, pid=1, records=100), data(100, second=10), start=0)}
    row = only(diagnosed(twice(observation(long)), log, *records))
    assert (row.verdict, row.outcome, row.action) == ("ongoing", "commit", None)
    assert row.cause == "committed records in a live transaction"


def test_partitions_that_one_observation_does_not_decide() -> None:
    held = observation(producers=[], partitions=[partition()])
    assert diagnose([held]).to_recheck() == [HERE]
    unread = observation(producers=[], partitions=[partition(lso=None, hw=None, error="X: y")])
    assert diagnose([unread]).to_recheck() == [HERE]
    assert diagnose([observation(producers=[], partitions=[partition(lso=150)])]).to_recheck() == []
    both = observation(
        transaction(8, transactional_id="fine", on=(("orders", 1),)),
        partitions=[partition(), partition(number=1)],
        producers=[producer(), producer(8, partition=1)],
    )
    assert diagnose([both]).to_recheck() == [HERE]


def test_a_transaction_without_data_needs_no_log() -> None:
    without_data = observation(transaction(start_time=ago(minutes=2)), producers=[], partitions=[partition(lso=150)])
    assert diagnose([without_data]).to_read() == []
    assert only(diagnose([without_data]).findings()).verdict == "overdue"


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
    gap = GapEvidence(reason="No coordinator was asked.", missing=("answers",))
    found = decide(gap)
    assert (found.verdict, found.outcome, found.missing, found.action) == ("unknown", "unknown", ("answers",), None)
    assert decide(replace(gap, is_open=False)).outcome is None
    ended = decide(EndEvidence(proof="Its marker is there."))
    assert (ended.verdict, ended.outcome, ended.reason, ended.missing) == ("ended", None, "Its marker is there.", ())
    assert ended.remedy == "None: it has ended."
