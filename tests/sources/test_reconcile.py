"""Both sides of an open transaction, for every incident that is recorded, and where a finding proves nothing."""

from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import NOW
from toolkit import LogDir, connect
from toolkit.analysis.diagnosis.reconciliation import COMBINATIONS, reconcile
from toolkit.lab.samples import IncidentSample, load
from toolkit.schema import Row
from toolkit.schema.derived import RECONCILIATION, Reconciliation
from toolkit.schema.live import Finding, Producer, Transaction
from toolkit.schema.log import PastTransaction
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict
from toolkit.sources import reconciliation_frame, reconciliation_rows

COMBINED = {
    "late-message": ["late"],
    "never-added": ["never added"],
    "offsets-never-added": ["never added"],
    "open-young": ["its own"],
    "orphan": ["orphan"],
    "overdue": ["its own"],
    "several-open": ["never added", "its own", "never added"],
    "superseded-same-partition": ["superseded epoch"],
}


def both_sides(sample: IncidentSample, files: LogDir | None = None) -> list[Row]:
    files = files or sample.log_dir()
    findings = files.finding_rows(topics=[sample.topic], partitions=[sample.partition])
    return list(reconciliation_rows(files, sample.topic, sample.partition, findings=findings))


@pytest.mark.parametrize("name", COMBINED)
def test_the_reconciliation_of_an_incident(name: str) -> None:
    sample = load(name)
    rows = both_sides(sample)
    assert [row["combination"] for row in rows] == COMBINED[name]
    assert [row["means"] for row in rows] == [COMBINATIONS[each] for each in COMBINED[name]]
    assert [row["verdict"] == "hanging" for row in rows] == [each != "its own" for each in COMBINED[name]]
    evidence = {name: rows[0][name] for name in ("producer_id", "producer_epoch", "start_offset")}
    assert evidence == {name: sample.expected[name] for name in evidence}
    files = sample.log_dir()
    frame = reconciliation_frame(files, sample.topic, sample.partition, findings=files.finding_rows())
    assert list(frame.columns) == RECONCILIATION.names
    assert list(frame.combination) == COMBINED[name]


def test_a_partition_added_by_the_next_epoch_is_not_the_dead_ones() -> None:
    (row,) = both_sides(load("superseded-same-partition"))
    evidence = {
        name: row[name] for name in ("producer_epoch", "owner_epoch", "expects_marker", "was_added", "last_ended")
    }
    assert evidence == {
        "producer_epoch": 0,
        "owner_epoch": 1,
        "expects_marker": True,
        "was_added": False,
        "last_ended": None,
    }


@pytest.mark.parametrize("name", ["orphan", "late-message", "open-young"])
def test_without_coordinators_nothing_is_an_orphan(name: str) -> None:
    """Files of the partition alone contain no id; a hidden id gives the same rows on a live cluster."""
    sample = load(name)
    folder = sample.path / "log-dir" / f"{sample.topic}-{sample.partition}"
    (row,) = both_sides(sample, LogDir(folder, consistent_copy=True))
    assert (row["verdict"], row["combination"], row["transactional_id"]) == ("unknown", "unknown", None)
    assert "__transaction_state" in row["means"]


def producers_of(sample: IncidentSample, files: LogDir) -> list[Producer]:
    rows = files.producer_rows(topics=[sample.topic], partitions=[sample.partition])
    return [Producer.of(row) for row in rows]


def transactions_of(files: LogDir) -> list[Transaction]:
    return [Transaction.of(row) for row in files.transaction_rows()]


def test_a_transaction_that_ends_between_two_responses_is_not_late() -> None:
    """The leader still has it open, and its coordinator, queried a moment later, has ended it: like a late message."""
    sample = load("open-young")
    files = sample.log_dir()
    producers = producers_of(sample, files)
    ended = [replace(each, state="CompleteCommit", topic_partitions=()) for each in transactions_of(files)]
    (row,) = reconcile(producers, ended, findings=map(Finding.of, files.finding_rows()))
    assert (row.verdict, row.combination, row.expects_marker) == ("ongoing", "its own", False)
    (unseen,) = reconcile(producers, ended, findings=[])
    assert (unseen.verdict, unseen.combination) == (None, "unknown")


def test_a_producer_id_that_is_owned_again_is_not_proven() -> None:
    sample = load("never-added")
    files = sample.log_dir()
    here = (TopicPartition(sample.topic, sample.partition),)
    back = [replace(each, state="Ongoing", topic_partitions=here) for each in transactions_of(files)]
    (row,) = reconcile(
        producers_of(sample, files), back, findings=map(Finding.of, files.finding_rows(topics=[sample.topic]))
    )
    assert (row.verdict, row.combination) == ("hanging", "unknown")


def test_unread_partitions_are_neither_late_nor_never_added() -> None:
    sample = load("late-message")
    files = sample.log_dir()
    producers = producers_of(sample, files)
    (row,) = reconcile(producers, transactions_of(files), findings=map(Finding.of, files.finding_rows()))
    assert (row.combination, row.was_added, row.last_ended) == ("disowned", None, None)


HERE, ELSEWHERE = TopicPartition("orders", 0), TopicPartition("payments", 3)
PRODUCER = Producer(
    topic="orders", partition=0, producer_id=7, producer_epoch=3, current_txn_start_offset=50, observed_at=NOW
)
HANGING = Finding(
    topic="orders", partition=0, producer_id=7, start_offset=50, verdict=Verdict.HANGING, reason="Why.", remedy="What.",
    missing=("its outcome",), evidence=(), observed_at=NOW,
)  # fmt: skip


def owner_row(state: str, *listed: TopicPartition, epoch: int | None = 3, error: str | None = None) -> Transaction:
    return Transaction(
        transactional_id="payments", producer_id=7, producer_epoch=epoch, state=state, source="DescribeTransactions",
        topic_partitions=None if error else listed, observed_at=NOW, error=error,
    )  # fmt: skip


def past_row(kind: str = "transaction", *added: TopicPartition, epoch: int = 3, **more: Any) -> PastTransaction:
    columns = {"ended": "commit", "truncated": False, **more}
    return PastTransaction(
        transactional_id="payments", kind=kind, reason="Why.", producer_id=7, producer_epoch=epoch,
        topic_partitions=added or None, **columns,
    )  # fmt: skip


def hanging(owner: Transaction, *past: PastTransaction) -> Reconciliation:
    (found,) = reconcile([PRODUCER], [owner], past, findings=[HANGING])
    return found


@pytest.mark.parametrize(
    ("owner", "combination"),
    [
        (owner_row("Ongoing", ELSEWHERE), "not this partition"),
        (owner_row("PrepareCommit", ELSEWHERE, epoch=4), "not this partition"),  # version 2 raises it with every end
        (owner_row("Ongoing", ELSEWHERE, epoch=4), "superseded epoch"),
        (owner_row("CompleteCommit", epoch=4), "disowned"),
    ],
)
def test_what_a_coordinator_has_open_instead(owner: Transaction, combination: str) -> None:
    row = hanging(owner)
    assert (row.combination, row.means) == (combination, COMBINATIONS[combination])
    assert row.expects_marker is False


def test_a_coordinator_that_did_not_answer_may_still_expect_the_marker() -> None:
    """ListTransactions named the id and its state, and then DescribeTransactions failed: its partitions are unknown."""
    row = hanging(owner_row("Ongoing", epoch=None, error="NETWORK_EXCEPTION: gone"))
    assert (row.state, row.expects_marker, row.combination) == ("Ongoing", None, "unknown")


@pytest.mark.parametrize(
    ("past", "was_added"),
    [
        ([past_row("init"), past_row("transaction", HERE)], True),
        ([past_row("init"), past_row("transaction", ELSEWHERE)], False),
        ([past_row("init", truncated=True), past_row("transaction", ELSEWHERE)], None),
        ([past_row("init"), past_row("transaction", ELSEWHERE, error="CORRUPT_RECORD: no.")], None),
        ([past_row("transaction", HERE, truncated=True)], True),
    ],
)
def test_only_a_history_without_gaps_shows_that_a_partition_was_never_added(
    past: list[PastTransaction], was_added: bool | None
) -> None:
    row = hanging(owner_row("CompleteCommit"), *past)
    assert (row.was_added, row.last_ended) == (was_added, "commit" if was_added else None)
    assert row.combination == {True: "late", False: "never added", None: "disowned"}[was_added]


@pytest.mark.lab
def test_one_observation_proves_no_mismatch() -> None:
    with connect("lab", staged={"orders": "busy_elsewhere"}) as opened:
        once, twice = (opened.cluster.finding_rows(topics=["orders"], recheck_after=apart) for apart in (0, 0.5))
        found = [
            reconciliation_rows(opened.cluster, "orders", 0, findings=rows)[0]["combination"] for rows in (once, twice)
        ]
        assert found[1] == "not this partition"
        assert found[0] == ("unknown" if once[0]["verdict"] == "unknown" else found[1])
