"""What a completed checkpoint of Flink changes about a decision, beside the same evidence without it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.build import ago, first_batch, observation, only, producer, transaction, twice
from tests.analysis.logged import by_logs, facts
from toolkit.actions.marker_actions import ABORT
from toolkit.analysis.diagnosis.case import DiagnoseOptions
from toolkit.analysis.diagnosis.decision import CHECKPOINT_ENTRY, Outcome
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.errors import ActionRefused
from toolkit.schema.checkpoint import Committable, FlinkCheckpoint
from toolkit.schema.live import Finding


def checkpoint(*committables: Committable, prefix: str = "tx", others: int = 0) -> FlinkCheckpoint:
    return FlinkCheckpoint(
        path=Path("/flink jobs/chk-5/_metadata"),
        checkpoint_id=5,
        committables=committables,
        prefixes=frozenset({prefix}),
        is_savepoint=False,
        others=others,
    )


OWN = Committable("tx-0-5", 7, 0, 5)


def entries(row: Finding) -> list[str | None]:
    return [each.value for each in row.evidence if each.name == CHECKPOINT_ENTRY]


@pytest.mark.parametrize("minutes", [0, 5, 70])
def test_what_a_checkpoint_is_to_commit_is_prepared_whatever_its_age(minutes: int) -> None:
    txn = transaction(transactional_id="tx-0-5", start_time=ago(minutes=minutes), timeout_ms=60_000)
    diagnosis = Diagnosis.of([observation(txn)], DiagnoseOptions(checkpoints=[checkpoint(OWN)]))
    row = only(diagnosis.findings())
    assert (row.verdict, row.outcome, row.action) == ("prepared", "undecided", "commit")
    assert len(diagnosis.to_read()) == 1, "its log says whose records it holds"
    assert row.reason.endswith("and checkpoint 5 (/flink jobs/chk-5) of its Flink job is to commit it.")
    command = "kafka-txn commit --flink-checkpoint '/flink jobs/chk-5/_metadata' --transactional-id tx-0-5"
    assert command in row.remedy.split("\n")
    assert entries(row) == ["checkpoint 5 (/flink jobs/chk-5) is to commit it"]


@pytest.mark.parametrize(
    "committable", [OWN._replace(producer_epoch=1), OWN._replace(producer_id=8), OWN._replace(producer_epoch=-1)]
)
def test_another_transaction_of_the_same_id_is_not_the_checkpoints(committable: Committable) -> None:
    txn = transaction(transactional_id="tx-0-5", start_time=ago(minutes=70), timeout_ms=60_000)
    diagnosis = Diagnosis.of([observation(txn)], DiagnoseOptions(checkpoints=[checkpoint(committable)]))
    row = only(diagnosis.findings(read=facts(diagnosis)))
    assert (row.verdict, row.action) == ("overdue", "fence")
    assert entries(row) == ["checkpoint 5 (/flink jobs/chk-5) does not commit it"]


def test_a_checkpoint_of_another_job_proves_nothing() -> None:
    for one in (observation(transaction()), observation()):
        assert entries(only(Diagnosis.of([one], DiagnoseOptions(checkpoints=[checkpoint()])).findings())) == []


def test_each_checkpoint_of_its_job_is_evidence() -> None:
    """One has its transaction among others, one was not read completely, and one is of another job."""
    txn = transaction(transactional_id="tx-0-5")
    next_one = OWN._replace(transactional_id="tx-0-6", producer_id=8)
    checkpoints = [checkpoint(prefix="other"), checkpoint(OWN, next_one), checkpoint(next_one, others=2)]
    row = only(Diagnosis.of([observation(txn)], DiagnoseOptions(checkpoints=checkpoints)).findings())
    assert row.verdict == "prepared"
    assert entries(row) == [
        "checkpoint 5 (/flink jobs/chk-5) is to commit it",
        "checkpoint 5 (/flink jobs/chk-5) does not commit it, as far as it was read (2 states were not)",
    ]


def test_what_has_no_owner_and_is_in_a_checkpoint_is_never_hanging() -> None:
    """The same evidence without the checkpoint is proven to hang."""
    undecided = Outcome(
        name="undecided",
        reason="no commit or abort includes it",
        offsets="offset 100 of orders-0",
        are_markers_sought=True,
    )
    without = Diagnosis.of(twice(observation()))
    hanging = only(without.findings(read=by_logs(without, undecided)))
    assert (hanging.verdict, hanging.action) == ("hanging", "abort")
    diagnosis = Diagnosis.of(without.observations, DiagnoseOptions(checkpoints=[checkpoint(OWN)]))
    row = only(diagnosis.findings(read=by_logs(diagnosis, undecided)))
    assert (row.verdict, row.outcome, row.action) == ("unknown", "unknown", None)
    assert row.missing == (
        "a coordinator that has it open: checkpoint 5 (/flink jobs/chk-5) of its Flink job is to commit it",
    )
    # It was `kafka-txn scan`, which saves no record.
    assert "read orders-0 from offset 100 with read_uncommitted, and keep the records" in row.remedy
    with pytest.raises(ActionRefused, match=r"which cannot be overridden: checkpoint 5 .* is to commit it"):
        ABORT.ruling(row).check("unknown", target="orders-0@100", means="")


@pytest.mark.parametrize(("outcome", "action"), [("commit", "complete"), ("abort", "abort")])
def test_what_a_coordinator_has_decided_is_no_checkpoints_any_more(outcome: str, action: str) -> None:
    decided = Outcome(name=outcome, reason="its log shows it", are_markers_sought=True)
    diagnosis = Diagnosis.of(twice(observation()), DiagnoseOptions(checkpoints=[checkpoint(OWN)]))
    row = only(diagnosis.findings(read=by_logs(diagnosis, decided)))
    assert (row.outcome, row.action) == (outcome, action)


def test_what_a_checkpoint_is_to_commit_does_not_wait_for_a_timeout_at_the_last_epoch() -> None:
    """The remedy there is a restart of the coordinator, which then aborts the transaction."""
    txn = transaction(transactional_id="tx-0-5", epoch=32767, start_time=ago(minutes=70))
    one = observation(txn, producers=[producer(epoch=32766)])
    assert only(Diagnosis.of([one]).findings()).verdict == "overdue"
    own = checkpoint(OWN._replace(producer_epoch=32766))
    assert only(Diagnosis.of([one], DiagnoseOptions(checkpoints=[own])).findings()).verdict == "unknown"


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_what_is_ending_is_not_offered_for_a_commit(state: str) -> None:
    row = only(
        Diagnosis.of([observation(transaction(state=state))], DiagnoseOptions(checkpoints=[checkpoint(OWN)])).findings()
    )
    assert (row.verdict, row.action) == ("ending", None)


@pytest.mark.parametrize(("name", "is_partly_aborted"), [("abort", False), ("undecided", True), ("undecided", False)])
def test_over_aborted_records_nothing_is_committed(name: str, is_partly_aborted: bool) -> None:
    """An abort of the same epoch had lost its marker here, and `commit` published its records with the checkpoint's."""
    outcome = Outcome(name=name, reason="its log shows it", is_partly_aborted=is_partly_aborted)
    txn = transaction(transactional_id="tx-0-5")
    diagnosis = Diagnosis.of([observation(txn)], DiagnoseOptions(checkpoints=[checkpoint(OWN)]))
    row = only(diagnosis.findings(read=by_logs(diagnosis, outcome)))
    is_free = name == "undecided" and not is_partly_aborted
    expected = ("prepared", "undecided", "commit") if is_free else ("prepared", "unknown", None)
    assert (row.verdict, row.outcome, row.action) == expected
    assert ("was aborted, whose marker may be missing here" in row.reason) is not is_free


def test_over_a_record_of_a_dead_epoch_the_job_commits_it_all_the_same() -> None:
    """The finding said to have its client abort, which discards what the job considers written."""
    txn, first = transaction(transactional_id="tx-0-5", epoch=1), first_batch(last_offset=100)
    one = observation(txn, producers=[producer(epoch=1)], first_batches=[first])
    own = checkpoint(OWN._replace(producer_epoch=1))
    for checkpoints, verdict, words in (
        ([], "ongoing", "If no checkpoint of Flink is to commit it, have its client abort"),
        ([own], "prepared", "Then restore"),
    ):
        diagnosis = Diagnosis.of([one], DiagnoseOptions(checkpoints=checkpoints))
        row = only(diagnosis.findings(read=by_logs(diagnosis, Outcome(name="undecided", reason="no commit"))))
        assert (row.verdict, row.action) == (verdict, None)
        assert "the first batch has the dead epoch 0" in row.reason.replace(". The", ". the")
        assert words in row.remedy
    assert "Never fence or abort it" in row.remedy


@pytest.mark.parametrize(("minutes", "timeout_ms", "verdict"), [(5, 3_600_000, "ongoing"), (30, 3_600_000, "long")])
def test_what_may_be_flinks_is_fenced_only_if_no_checkpoint_is_to_commit_it(
    minutes: int, timeout_ms: int, verdict: str
) -> None:
    """`long` transactions are Flink's, mostly: a fence discards what a completed checkpoint is to commit."""
    txn = transaction(transactional_id="tx-0-5", start_time=ago(minutes=minutes), timeout_ms=timeout_ms)
    row = only(Diagnosis.of([observation(txn)]).findings())
    assert row.verdict == verdict
    assert row.remedy.endswith("Fence its id only to end it sooner, and if no checkpoint of Flink is to commit it.")
    row = only(Diagnosis.of([observation(replace(txn, transactional_id="billing"))]).findings())
    assert row.remedy.endswith("Fence its id only to end it sooner.")
