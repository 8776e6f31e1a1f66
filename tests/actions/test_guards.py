"""Each guard of an action alone: what a broker answers otherwise than when it was planned, and what comes of it.

The cluster is a table of prepared rows. The other tests here have real brokers, which cannot show most of this on
demand: a change between two requests that are a millisecond apart.
"""

import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.actions.rows import (
    COMMITTED,
    NO_ANSWER,
    NO_COMMIT,
    NO_OWNER,
    Change,
    RowCluster,
    abort_plan,
    changed,
    claims,
    committed,
    complete_plan,
    found,
    no_answer,
    partition,
    producer,
    sets,
    transaction,
    unproven,
    with_txn,
)
from tests.analysis.build import ago
from toolkit.actions import marker_actions
from toolkit.actions import transaction as transaction_module
from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import Complete, plan_abort, plan_complete
from toolkit.actions.plan import Plan
from toolkit.actions.transaction import PartitionResult, PlannedTransaction, check_ended, lso_moved, save_records
from toolkit.analysis.diagnosis.decision import NOT_PROVEN, PROVEN
from toolkit.analysis.diagnosis.rules import OFFSETS_DROPPED
from toolkit.errors import ActionFailed, ActionRefused, BrokerError, UsageError
from toolkit.formats.batch_records import Record
from toolkit.lab.clients import until
from toolkit.schema import FINDINGS
from toolkit.schema.live import Partition
from toolkit.schema.verdict import Verdict
from toolkit.sources.live.coordinator_logs import LastBatch

Planner = Callable[..., Plan]


@dataclass
class Batch:
    """An open batch of the transaction, as far as the guards read it."""

    base_offset: int
    producer_epoch: int = 0
    size: int = 100
    written: Sequence[Record] = ()
    producer_id: int = 7

    def records(self) -> Iterator[Record]:
        yield from self.written


@pytest.fixture(autouse=True)
def batches(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """What is left of the transaction in the log; a `read_committed` consumer receives the one record of it."""
    left = [Batch(100)]

    def open_batches(
        client: object, of: Partition, *, producer_id: int, start_offset: int, last: LastBatch
    ) -> Iterator[Batch]:
        assert (of.topic in {"orders", "__consumer_offsets"}, producer_id, start_offset) == (True, 7, 100)
        last_sequence = None if of.topic == "__consumer_offsets" else 3  # there, each batch has the number 0
        assert last == LastBatch(last.producer_epoch, last_sequence), "by the producer's state"
        yield from left

    monkeypatch.setattr(transaction_module, "open_batches", open_batches)
    monkeypatch.setattr(marker_actions, "marker_impact", lambda *_, **__: None)
    received(monkeypatch, 1, 1)
    return left


def received(monkeypatch: pytest.MonkeyPatch, checked: int | None, delivered: int | None) -> None:
    """What a read_committed consumer looks for, and receives."""

    def read(cluster: object, txn: PlannedTransaction, done: PartitionResult, *_: object) -> PartitionResult:
        return changed(done, records_checked=checked, records_delivered=delivered)

    monkeypatch.setattr(marker_actions, "delivered", read)


PLANNERS: Mapping[str, Planner] = {"abort": abort_plan, "complete": complete_plan}
both = pytest.mark.parametrize("plan_of", PLANNERS.values(), ids=PLANNERS)


def execute(plan: Plan, **more: Any) -> Any:
    return plan.execute(confirm=plan.target, recheck_after=0, **more)


def connected(cluster: RowCluster) -> Any:
    """As a `Cluster`."""
    return cluster


def refusal(plan: Plan, **more: Any) -> str:
    """Why it was refused; nothing was sent."""
    with pytest.raises(ActionRefused) as raised:
        execute(plan, **more)
    cluster: Any = plan.cluster
    assert cluster.sent == []
    assert "Nothing was written" in str(raised.value)
    return str(raised.value)


@both
def test_the_marker_has_the_epochs_of_the_producer_state(plan_of: Planner, audit: Audit) -> None:
    cluster = RowCluster()
    plan = plan_of(cluster)
    done = execute(plan)
    ((marker,),) = [request.markers for request in cluster.sent]
    (topic,) = marker.topics
    assert (topic.name, topic.partition_indexes) == ("orders", [0])
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 0, 0)
    assert (marker.transaction_result, marker.transaction_version) == ((plan.action.name == "complete"), 0)
    assert (done.last_stable_offset_before, done.last_stable_offset_after, done.next_start_offset) == (100, 150, None)
    assert ("send_one", {"broker_id": 1}) in cluster.arguments, "to the leader that the fresh check has seen"
    intent, outcome = audit.rows()
    assert (intent["step"], intent["verdict"], outcome["response"]) == ("intent", plan.basis.verdict, "NONE")
    assert (outcome["last_stable_offset_before"], outcome["last_stable_offset_after"]) == (100, 150)


@both
def test_a_marker_with_an_unknown_coordinator_epoch_has_0(plan_of: Planner) -> None:
    cluster = RowCluster(producers=[producer(coordinator_epoch=None)])
    execute(with_txn(plan_of(cluster), coordinator_epoch=None))
    assert cluster.sent[0].markers[0].coordinator_epoch == 0
    epoch_5 = RowCluster(producers=[producer(coordinator_epoch=5)])
    execute(with_txn(plan_of(epoch_5), coordinator_epoch=5))
    assert epoch_5.sent[0].markers[0].coordinator_epoch == 5


@both
def test_broker_0_gets_its_marker(plan_of: Planner) -> None:
    cluster = RowCluster(partitions=[partition(leader=0)])
    plan = plan_of(cluster)
    cluster.findings = [changed(plan.basis, broker_id=0).row()]
    execute(plan)
    assert ("send_one", {"broker_id": 0}) in cluster.arguments


@both
def test_a_plan_shows_what_it_would_do(plan_of: Planner, tmp_path: Path) -> None:
    cluster = RowCluster()
    plan = plan_of(cluster)
    assert (plan.finding["start_offset"], plan.target) == (100, "orders-0@100")
    assert plan.check(recheck_after=0).transaction.start_offset == 100
    other = RowCluster()
    assert changed(with_txn(plan, basis=found(reason="another"), impact=None), cluster=other) == plan, (
        "what it would do is the same"
    )
    assert "RowCluster" not in repr(plan)
    trail = Audit(tmp_path / "other.jsonl")
    execute(plan, audit=trail)
    assert [row["step"] for row in trail.rows()] == ["intent", "outcome"]
    assert complete_plan(cluster, basis=found(outcome="unknown")).refusal is not None


def test_a_plan_warns_of_what_no_check_can_exclude_and_of_offsets_that_an_abort_drops() -> None:
    """Of version 1, a crash can take the record of a decision from the coordinators' log without a trace."""
    aborted, completed = abort_plan(RowCluster()), complete_plan(RowCluster())
    assert list(aborted.warnings) == [marker_actions.LOST_COMMIT]
    assert list(completed.warnings) == [marker_actions.LOST_ABORT]
    of_groups = abort_plan(RowCluster(), topic="__consumer_offsets")
    assert list(of_groups.warnings) == [OFFSETS_DROPPED, marker_actions.LOST_COMMIT]
    assert "a commit with transaction version 1 can be missing" in marker_actions.LOST_COMMIT
    assert "an abort with transaction version 1 can be missing" in marker_actions.LOST_ABORT


def test_the_equal_lines_of_kafkas_own_tool() -> None:
    plan = abort_plan(RowCluster())
    tool = "kafka-transactions.sh --bootstrap-server one:9092 abort --topic orders --partition 0"
    assert " ".join(plan.command or ()) == f"{tool} --start-offset 100"


# Right before the marker


def producer_is(*arguments: Any, **more: Any) -> Change:
    return sets(producers=[producer(*arguments, **more)])


def owner_is(**more: Any) -> Change:
    return sets(transactions=[transaction(**more)])


MEANWHILE = {
    "it ended": (producer_is(start=None), "ended just now"),
    "its next transaction is open": (producer_is(start=130), "ended just now"),
    "a newer epoch is open": (producer_is(epoch=1), "ended just now"),
    "another producer is open there": (producer_is(8), "ended just now"),
    "new records": (producer_is(last_sequence=4), "its last_sequence is 4, and was 3"),
    "a marker of it": (producer_is(coordinator_epoch=1), "its coordinator_epoch is 1, and was 0"),
    "records again": (producer_is(last_timestamp=ago(seconds=1)), "its last_timestamp is"),
    "another leader": (
        sets(partitions=[partition(leader=2)]),
        "broker 2 leads the partition in epoch 4, and it was broker 1",
    ),
    "another leader epoch": (sets(partitions=[partition(leader_epoch=5)]), "broker 1 leads the partition in epoch 5"),
    # Its log may have lost its tail, so that one is live again; it says nothing before it has loaded it.
    "another coordinator": (sets(coordinator_epoch=10), "Leadership of __transaction_state partition 0 moved"),
    "its owner has added it": (owner_is(), '"payments-7" is Ongoing on it now'),
    "its owner commits it": (owner_is(state="PrepareCommit"), "is PrepareCommit on it now"),
    "its owner aborts it": (owner_is(state="PrepareAbort"), "is PrepareAbort on it now"),
    "a coordinator is silent": (
        owner_is(pid=None, state=None, error="REQUEST_TIMED_OUT: no answer"),
        "A coordinator no longer responds: REQUEST_TIMED_OUT",
    ),
}


@both
@pytest.mark.parametrize(("change", "why"), MEANWHILE.values(), ids=MEANWHILE)
def test_what_changed_since_the_fresh_check_is_refused(change: Change, why: str, plan_of: Planner) -> None:
    """The fresh check and the audit line have taken a while: coordinators, leader and producer state are read again."""
    cluster = RowCluster(before={("transaction_rows", 1): change})
    assert why in refusal(plan_of(cluster))


@both
def test_of_two_at_once_the_second_reads_what_the_first_has_done(
    plan_of: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read again is read once nobody else acts."""
    cluster, exclusive = RowCluster(), Audit.exclusive

    @contextmanager
    def after_another(self: Audit, check: Callable[[], None]) -> Iterator[None]:
        with exclusive(self, check):
            MEANWHILE["it ended"][0](cluster)
            yield

    monkeypatch.setattr(Audit, "exclusive", after_another)
    assert "ended just now" in refusal(plan_of(cluster))


@both
@pytest.mark.parametrize("name", ["it ended", "new records", "a marker of it", "records again"])
def test_what_changed_before_the_fresh_check_is_refused_by_it(name: str, plan_of: Planner) -> None:
    """It is the finding of another moment that would justify the marker."""
    change, why = MEANWHILE[name]
    cluster = RowCluster(before={("finding_rows", 1): change})
    assert why in refusal(plan_of(cluster))
    assert cluster.calls["transaction_rows"] == 0, "the fresh check itself refuses it"


@both
@pytest.mark.parametrize("name", ["another leader", "another leader epoch", "another coordinator"])
def test_who_leads_is_read_before_the_fresh_check(name: str, plan_of: Planner) -> None:
    """Read after it, one that took over during the check would pass for the one that was asked."""
    change, why = MEANWHILE[name]
    assert why in refusal(plan_of(RowCluster(before={("finding_rows", 1): change})))


@both
@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"on": [("orders", 1)]}, id="another partition"),
        pytest.param({"epoch": 1}, id="a newer epoch that has not written here"),
        pytest.param({"state": "CompleteCommit", "on": ()}, id="an earlier transaction that is complete"),
        pytest.param({"state": None, "error": "UNSUPPORTED_VERSION: before 3.0"}, id="brokers before 3.0"),
    ],
)
def test_what_has_nothing_to_do_with_it_does_not_forbid_the_marker(other: dict[str, Any], plan_of: Planner) -> None:
    cluster = RowCluster(transactions=[transaction(**other)])
    execute(plan_of(cluster))
    assert len(cluster.sent) == 1
    assert ("transaction_rows", {"producer_ids": [7]}) in cluster.arguments


def test_complete_also_waits_for_what_an_abort_may_overtake() -> None:
    """A COMMIT makes all of it visible: an older epoch that is open there, or whatever is being decided anywhere."""
    for owner, why in (
        (transaction(epoch=-1), "is Ongoing"),
        (transaction(state="PrepareAbort", on=[("orders", 1)]), "is PrepareAbort"),
    ):
        assert why in refusal(complete_plan(RowCluster(transactions=[owner])))
        execute(abort_plan(RowCluster(transactions=[owner])))


@both
def test_an_owner_without_an_epoch_may_have_it_open(plan_of: Planner) -> None:
    """Abort took it for one of another epoch."""
    cluster = RowCluster(transactions=[{**transaction(), "producer_epoch": None}])
    assert "is Ongoing on it now" in refusal(plan_of(cluster))


def test_after_an_override_a_silent_coordinator_is_passed_over() -> None:
    """Its answer is what was missing."""
    unknown = unproven(missing=("the answer of broker 2",), evidence=claims(NOT_PROVEN, PROVEN))
    silent = transaction(pid=None, state=None, error="REQUEST_TIMED_OUT: no answer")
    cluster = RowCluster(findings=[unknown.row()], transactions=[silent])
    plan = abort_plan(cluster, basis=unknown)
    execute(plan, override=NO_OWNER)
    assert len(cluster.sent) == 1
    in_use = RowCluster(findings=[unknown.row()], transactions=[silent, transaction()])
    assert "is Ongoing on it now" in refusal(abort_plan(in_use, basis=unknown), override=NO_OWNER)


# The fresh finding


@both
def test_another_transaction_of_the_partition_justifies_nothing(plan_of: Planner) -> None:
    cluster = RowCluster()
    plan = plan_of(cluster)
    for other in ({"producer_id": 8}, {"start_offset": 90}):
        cluster.findings = [changed(plan.basis, **other).row()]
        assert "has no transaction open at orders-0@100 any more" in refusal(plan)
    cluster.findings = [changed(plan.basis, producer_epoch=1).row()]
    assert "its epoch is 1, not 0" in refusal(plan)
    cluster.findings = [changed(plan.basis, producer_id=8).row(), plan.basis.row()]
    assert execute(plan).last_stable_offset_after == 150


@both
def test_what_is_not_to_be_done_any_more_is_refused(plan_of: Planner) -> None:
    cluster = RowCluster()
    plan = plan_of(cluster)
    for fields in (
        {"verdict": Verdict.ONGOING, "action": None},
        {"verdict": Verdict.UNKNOWN, "outcome": "unknown", "action": None},
        {"outcome": "unknown"},
        {"outcome": "commit", "action": None},
    ):
        cluster.findings = [changed(plan.basis, **fields).row()]
        refusal(plan)


def test_complete_refuses_an_outcome_that_is_another_one_now() -> None:
    cluster = RowCluster()
    plan = complete_plan(cluster)
    cluster.findings = [found(outcome="abort", action="abort").row()]
    assert "its outcome is abort, and was commit" in refusal(plan)


def test_complete_writes_no_sooner_than_ten_seconds_after_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later proof takes no marker for one by hand that follows another one of the producer sooner."""
    monkeypatch.setattr(Complete, "after_plan_s", 10.0)
    cluster = RowCluster()
    execute(complete_plan(cluster))
    (delay,) = [arguments["recheck_after"] for name, arguments in cluster.arguments if name == "finding_rows"]
    assert 9 < delay <= 10


@both
def test_the_plan_itself_has_to_be_confirmed_and_safe(plan_of: Planner, audit: Audit) -> None:
    cluster = RowCluster()
    plan = plan_of(cluster)
    with pytest.raises(ActionRefused, match="confirm with exactly orders-0@100"):
        plan.execute(confirm="orders-0@1")
    assert not cluster.calls
    assert [row["step"] for row in audit.rows()] == ["refused"]


@both
@pytest.mark.parametrize("path", ["/dev/full", "/proc/none/audit.jsonl"])
def test_without_an_audit_trail_nothing_is_sent(plan_of: Planner, path: str) -> None:
    cluster = RowCluster()
    with pytest.raises(ActionRefused, match=r"Nothing was (sent|written)"):
        execute(plan_of(cluster), audit=Audit(path))
    assert cluster.sent == []


def test_an_abort_of_a_plan_that_is_not_safe_reads_nothing() -> None:
    cluster = RowCluster()
    assert "is ongoing now" in refusal(abort_plan(cluster, basis=found(verdict=Verdict.ONGOING, action=None)))
    assert not cluster.calls
    committed = found(outcome="commit", verdict=Verdict.STUCK_ENDING, action="complete")
    for override in (None, "unknown", "stuck_ending", NO_COMMIT):
        assert "is never aborted" in refusal(abort_plan(cluster, basis=committed), override=override)
    assert not cluster.calls


def test_records_of_an_outcome_that_is_not_proven_any_more_have_to_be_saved() -> None:
    """It was undecided when it was planned; by the fresh check, evidence is missing, and its claim is overridden."""
    unknown = unproven()
    cluster = RowCluster(findings=[unknown.row()])
    assert "have to be saved" in refusal(abort_plan(cluster, basis=unknown), override=NO_COMMIT, save=False)
    assert not cluster.calls, "before anything is read"
    execute(abort_plan(RowCluster()), save=False)


# What a person may override


LIKELY = claims(all_=NOT_PROVEN)
ASSERTED = {"abort": NO_COMMIT, "complete": COMMITTED}


@both
def test_what_is_not_proven_is_done_by_the_words_that_the_plan_names(plan_of: Planner, audit: Audit) -> None:
    unknown, cluster = unproven(evidence=LIKELY), RowCluster()
    plan = plan_of(cluster, basis=unknown)
    cluster.findings = [unknown.row()]
    words = ASSERTED["abort" if plan_of is abort_plan else "complete"]
    assert plan.needed_override == words
    assert plan.refusal is not None
    for other in (None, "unknown", ASSERTED["complete" if plan_of is abort_plan else "abort"]):
        refusal(plan, override=other)
    assert plan.check(recheck_after=0, override=words).verdict == "unknown"
    execute(plan, override=words)
    ((marker,),) = [request.markers for request in cluster.sent]
    assert marker.transaction_result is (plan_of is complete_plan)
    steps = [(row["step"], row["override"]) for row in audit.rows()]
    assert steps[-2:] == [("intent", words), ("outcome", words)]
    assert ("refused", "unknown") in steps


def test_what_is_asserted_of_a_plan_is_not_of_a_live_transaction() -> None:
    asserted = unproven(evidence=claims(NOT_PROVEN, PROVEN))
    plan = abort_plan(RowCluster(findings=[found(verdict=Verdict.ONGOING, action=None).row()]), basis=asserted)
    assert plan.needed_override == NO_OWNER
    why = "is ongoing now, not proven to be hanging, which cannot be overridden"
    assert why in refusal(plan, override=NO_OWNER)


def test_an_asserted_commit_is_no_abort_that_was_decided_since() -> None:
    """The marker would be another one than that which was planned."""
    cluster = RowCluster()
    plan = complete_plan(cluster, basis=unproven(evidence=LIKELY))
    assert plan.outcome == "commit"
    cluster.findings = [found(outcome="abort", action="abort").row()]
    assert "its outcome is abort, and was commit" in refusal(plan, override=COMMITTED)
    cluster.findings = [committed().row()]
    assert "is not needed, as everything is proven" in refusal(plan, override=COMMITTED)


# The response


def test_the_response_of_a_leader_shows_whether_the_marker_was_written(audit: Audit) -> None:
    """A storage error, or too few replicas after the append: it may be in the log.

    Also where another broker led the partition before its replicas had it: the copy of what it discarded was deleted.
    """
    for code, effect, words in (
        (31, "nothing", "CLUSTER_AUTHORIZATION_FAILED"),
        (47, "nothing", "INVALID_PRODUCER_EPOCH"),
        (52, "nothing", "TRANSACTION_COORDINATOR_FENCED"),
        (19, "nothing", "NOT_ENOUGH_REPLICAS"),
        (3, "uncertain", "UNKNOWN_TOPIC_OR_PARTITION"),
        (6, "uncertain", "NOT_LEADER_OR_FOLLOWER"),
        (56, "uncertain", "KAFKA_STORAGE_ERROR"),
        (20, "uncertain", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
        (7, "uncertain", "REQUEST_TIMED_OUT"),
        (15, "uncertain", "COORDINATOR_NOT_AVAILABLE"),
        (-1, "uncertain", "UNKNOWN_SERVER_ERROR"),
    ):
        cluster = RowCluster(response=code)
        with pytest.raises(ActionFailed, match=words) as raised:
            execute(abort_plan(cluster))
        assert (raised.value.effect, raised.value.code) == (effect, words)
        assert ("needs ALTER on the Cluster" in str(raised.value)) is (code == 31)
        assert ("To find out" in str(raised.value)) is (effect == "uncertain")
        kept = list((audit.path.parent / "trail.records").glob("*.parquet"))
        assert bool(kept) is (effect == "uncertain"), "the only copy of what may have been discarded"
        for path in kept:
            path.unlink()
    assert audit.rows()[-1]["response"].startswith("UNKNOWN_SERVER_ERROR")


@both
def test_without_an_answer_it_is_uncertain(plan_of: Planner) -> None:
    with pytest.raises(ActionFailed) as raised:
        execute(plan_of(RowCluster(response=NO_ANSWER)))
    assert (raised.value.effect, raised.value.code) == ("uncertain", "REQUEST_TIMED_OUT")
    with pytest.raises(ActionFailed) as raised:
        execute(plan_of(RowCluster(before={("partition_rows", 1): no_answer})))
    assert raised.value.effect == "nothing"


@both
def test_a_marker_that_did_not_end_it_was_written(plan_of: Planner) -> None:
    with pytest.raises(ActionFailed, match="orders-0@100 is still open: no marker has ended it") as raised:
        execute(plan_of(RowCluster(writes=False)))
    assert raised.value.effect == "written"


def test_the_request_is_written_down_with_its_fields() -> None:
    plan = with_txn(complete_plan(RowCluster()), coordinator_epoch=None, leader=2)
    assert plan.action.request(plan) == (
        "WriteTxnMarkers to broker 2: producer_id=7, producer_epoch=0, transaction_result=True, coordinator_epoch=0, "
        "transaction_version=0"
    )


# A cancel


CANCELLED = {
    "while the partition is read": ("partition_rows", 1),
    "during the fresh check": ("finding_rows", 1),
    "while the guards read": ("transaction_rows", 1),
}


@both
@pytest.mark.parametrize("call", CANCELLED.values(), ids=CANCELLED)
def test_a_cancel_before_the_marker_writes_nothing(call: tuple[str, int], plan_of: Planner, audit: Audit) -> None:
    cancel = threading.Event()
    plan = plan_of(RowCluster(before={call: lambda cluster: cancel.set()}))
    assert "The action was cancelled" in refusal(plan, cancel=cancel)
    steps = [row["step"] for row in audit.rows()]
    assert steps == (["intent", "outcome"] if call[0] == "transaction_rows" else ["refused"])
    assert not list((audit.path.parent / "trail.records").glob("*"))


@both
def test_a_cancel_while_the_marker_is_sent_or_the_lso_is_read(plan_of: Planner, audit: Audit) -> None:
    cancel, answer = threading.Event(), threading.Event()

    def waits(cluster: RowCluster) -> None:
        cancel.set()
        answer.wait(60)

    def held(cluster: RowCluster) -> None:
        cancel.set()
        cluster.partitions = [partition(lso=100)]

    cluster = RowCluster(before={("send_one", 1): waits})
    with pytest.raises(ActionFailed, match=r"cancelled.*It is uncertain whether.*To find out, diagnose") as raised:
        execute(plan_of(cluster), cancel=cancel)
    # that it is still open shows only that no marker was written so far: it said that none was
    assert (raised.value.effect, cluster.sent) == ("uncertain", [])
    assert (
        "written so far if producer 7 still has a transaction open at offset 100; a request on its way may still"
        in (str(raised.value))
    )
    answer.set()
    until(lambda: cluster.sent or None, awaited="the marker of the cancelled action")
    cancel.clear()
    reads = 3 if plan_of is abort_plan else 2  # before it
    with pytest.raises(ActionFailed, match=r"cancelled.* marker was written.*To find out") as raised:
        execute(plan_of(RowCluster(before={("partition_rows", reads + 1): held}, timeout=60)), cancel=cancel)
    assert raised.value.effect == "written"
    assert "written" in audit.rows()[-1]["error"]


@pytest.mark.parametrize("wait", [check_ended, lso_moved])
def test_a_cancel_ends_the_wait_for_a_marker(wait: Callable[..., object]) -> None:
    def cancelled() -> None:
        raise ActionFailed("The action was cancelled.", effect="written", do="")

    cluster = RowCluster(timeout=60)
    (txn,) = abort_plan(cluster).transactions
    with pytest.raises(ActionFailed, match="The action was cancelled"):
        wait(cluster, txn, cancelled, **{"patience": 60} if wait is check_ended else {})


@both
def test_an_interrupt_names_the_effect(plan_of: Planner) -> None:
    def interrupt(cluster: RowCluster) -> None:
        raise KeyboardInterrupt

    for call, effect in (
        (("finding_rows", 1), r"Nothing was written\.$"),
        (("send_one", 1), r"It is uncertain.*\nkafka-txn diagnose --topic"),
    ):
        with pytest.raises(KeyboardInterrupt) as raised:
            execute(plan_of(RowCluster(before={call: interrupt})))
        note = "\n".join(raised.value.__notes__)
        assert re.match(effect, note)


@both
def test_without_a_cancel_a_cancellable_action_is_done(plan_of: Planner) -> None:
    assert execute(plan_of(RowCluster()), cancel=threading.Event()).last_stable_offset_after == 150


# What is read back


def lso_after(
    *values: int | None, queue_position: int | None = 1, before: int | None = 100, timeout: float = 60
) -> tuple[int | None, int]:
    """The LSO that is reported when the leader shows these one after another, and the number of reads."""
    reads = {("partition_rows", n): sets(partitions=[partition(lso=value)]) for n, value in enumerate(values, start=1)}
    cluster = RowCluster(before=reads, timeout=timeout)
    plan = abort_plan(cluster, found(last_stable_offset=before, queue_position=queue_position))
    cluster.producers = [producer(8, start=180), producer(9, start=160), producer(10, start=None)]
    done = plan.verify()
    assert (done.last_stable_offset_before, done.partitions[0].next_start_offset) == (before, 160)
    return done.last_stable_offset_after, cluster.calls["partition_rows"]


def test_the_lso_moves_once_the_high_watermark_has_passed_the_marker() -> None:
    assert lso_after(100, 100, 160) == (160, 3), "and waits no longer"
    assert lso_after(None, 160) == (160, 2)
    assert lso_after(100, timeout=0.2)[0] == 100, "it reports what it has when the time is over"
    assert lso_after(100, 160, queue_position=2)[0] == 100, "another transaction holds it: it need not move"
    assert lso_after(90, 160, before=None)[0] == 90, "where none was known before, any is news"


def test_complete_looks_for_the_records_that_it_made_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    received(monkeypatch, 2, 2)
    done = execute(complete_plan(RowCluster()))
    assert (done.records_checked, done.records_delivered) == (2, 2)
    received(monkeypatch, 2, 1)
    with pytest.raises(ActionFailed, match="received 1 of 2 records") as raised:
        execute(complete_plan(RowCluster()))
    assert raised.value.effect == "written"
    aborted = found(outcome="abort", action="abort")

    def of_an_abort() -> Plan:
        cluster = RowCluster()
        plan = complete_plan(cluster, aborted)
        cluster.findings = [aborted.row()]
        return plan

    with pytest.raises(ActionFailed, match="received 1 records of orders-0@100 after its abort"):
        execute(of_an_abort())
    received(monkeypatch, 2, 0)
    assert execute(of_an_abort()).records_delivered == 0
    received(monkeypatch, None, None)
    done = execute(complete_plan(RowCluster()))
    assert (done.records_checked, done.records_delivered) == (None, None)


def test_the_offsets_of_groups_are_read_back_on_their_topic_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_actions, "group_offsets", lambda *_: (("an offset",), ("hidden",)))
    elsewhere = execute(complete_plan(RowCluster()))
    assert (elsewhere.offset_commits, elsewhere.unread_groups) == ((), ())
    topic = "__consumer_offsets"
    cluster = RowCluster(producers=[], partitions=[partition(topic, lso=150)])
    done: Any = complete_plan(cluster, topic=topic).verify()
    assert (done.offset_commits, done.unread_groups) == (("an offset",), ("hidden",))


# Plans


@both
def test_a_plan_is_of_a_transaction_that_is_open(plan_of: Planner) -> None:
    is_abort = plan_of is abort_plan
    plan_it: Any = plan_abort if is_abort else plan_complete
    cluster = RowCluster()
    basis = plan_of(cluster).basis
    plan = plan_it(cluster, basis)
    txn = plan.transaction
    assert (txn.producer_epoch, txn.coordinator_epoch, txn.last_sequence) == (0, 0, 3)
    assert plan.refusal is None
    for rows in ([], [producer(8)], [producer(start=130)], [producer(start=None)]):
        with pytest.raises(ActionRefused, match="has no transaction open at orders-0@100 any more"):
            plan_it(RowCluster(producers=rows), basis)
    for name in ("producer_id", "producer_epoch"):
        with pytest.raises(ActionRefused, match="has no transaction open"):
            plan_it(cluster, changed(basis, **{name: None}))
    for fields in (
        {"start_offset": None},
        {"topic": None},
        {"partition": None},
        {"outcome": "unknown", "verdict": Verdict.ONGOING},
    ):
        with pytest.raises(ActionRefused, match="Remedy: kafka-txn abort"):
            plan_it(cluster, changed(basis, **fields))
    denied = [producer(error="TOPIC_AUTHORIZATION_FAILED: no")]
    with pytest.raises(BrokerError, match="does not show the producers of orders-0: TOPIC_AUTH") as raised:
        plan_it(RowCluster(producers=denied), basis)
    assert raised.value.code == "TOPIC_AUTHORIZATION_FAILED"
    unread = [partition(error="LEADER_NOT_AVAILABLE: none")]
    with pytest.raises(BrokerError, match="orders-0 cannot be read: LEADER_NOT_AVAILABLE") as raised:
        plan_it(RowCluster(partitions=unread), basis)
    assert raised.value.code == "LEADER_NOT_AVAILABLE"


def test_a_row_of_a_data_frame_is_accepted_as_a_finding() -> None:
    cluster: Any = RowCluster()
    frame = FINDINGS.frame([found()])
    assert plan_abort(cluster, frame.iloc[0]) == plan_abort(cluster, frame) == plan_abort(cluster, found())
    with pytest.raises(UsageError, match="One finding is needed, not 2"):
        plan_abort(cluster, frame.iloc[[0, 0]])


def test_an_unknown_transaction_is_planned_and_shown_and_a_commit_is_not() -> None:
    cluster: Any = RowCluster()
    plan = plan_abort(cluster, unproven(missing=["rights"]))
    assert plan.refusal == "rights"
    with pytest.raises(ActionRefused, match="orders-0@100 is never aborted"):
        plan_abort(cluster, found(outcome="commit"))
    with pytest.raises(ActionRefused, match="orders-0@100 is long now"):
        plan_abort(cluster, found(verdict=Verdict.LONG))


# The copy of what is discarded


def test_a_refused_abort_leaves_no_copy_and_a_done_one_names_it(audit: Audit) -> None:
    done = execute(abort_plan(RowCluster()))
    folder = audit.path.parent / "trail.records"
    assert done.records_file == folder / "orders-0@100-7.parquet"
    assert done.records_file.exists()
    assert audit.rows()[0]["records_file"] == str(done.records_file)
    assert done.records_saved == 0
    again = execute(abort_plan(RowCluster()))
    assert [path.name for path in sorted(folder.iterdir())] == ["orders-0@100-7.2.parquet", "orders-0@100-7.parquet"]
    assert again.records_file == folder / "orders-0@100-7.2.parquet"
    refusal(abort_plan(RowCluster(before={("transaction_rows", 1): MEANWHILE["it ended"][0]})))
    assert len(list(folder.iterdir())) == 2


def test_more_bytes_than_the_limit_are_not_saved_and_not_aborted(batches: list[Batch], audit: Audit) -> None:
    batches[:] = [Batch(100), Batch(101)]
    why = refusal(abort_plan(RowCluster()), max_save_bytes=199)
    assert why.startswith("The transaction's records take more than 199 bytes, the limit")
    assert not (audit.path.parent / "trail.records").exists()
    execute(abort_plan(RowCluster()), max_save_bytes=200)


def test_the_limit_is_256_mb_if_none_is_named(batches: list[Batch]) -> None:
    batches[:] = [Batch(100, size=256_000_001)]
    assert "take more than 256000000 bytes" in refusal(abort_plan(RowCluster()))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), NO_ANSWER])
def test_what_cannot_be_read_or_written_is_not_aborted(
    error: Exception, monkeypatch: pytest.MonkeyPatch, audit: Audit
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(transaction_module, "_write", fail)
    words = "No space left on device" if isinstance(error, OSError) else "did not answer"
    assert words in refusal(abort_plan(RowCluster()))
    assert not (audit.path.parent / "trail.records").exists()


@pytest.mark.parametrize("name", ["toolkit.actions.transaction.flush", "pathlib.Path.replace"])
def test_a_copy_that_is_not_safely_on_disk_is_none(name: str, monkeypatch: pytest.MonkeyPatch, audit: Audit) -> None:
    """Neither the file that was being written is left, nor the name that was reserved for it."""
    audit.path.parent.mkdir()

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(name, fail)
    plan = abort_plan(RowCluster())
    with pytest.raises(ActionRefused, match=r"could not be saved to .*: Input/output error"):
        execute(plan)
    assert plan.cluster.sent == []  # type: ignore[attr-defined]
    assert not (audit.path.parent / "trail.records").exists()


def test_the_longest_name_of_a_topic_has_a_copy(batches: list[Batch], audit: Audit) -> None:
    """Its file had a longer name than file systems take: no abort on such a topic without --no-save-records."""
    plan = abort_plan(RowCluster())
    path = audit.records_path(f"{'t' * 249}-0@913095344", 171100)
    saved = save_records(plan.cluster, plan.transaction, path)
    assert saved.path.name.endswith("ttt-0@913095344-171100.parquet")


@both
def test_until_it_is_noted_that_the_marker_was_written_it_is_uncertain(plan_of: Planner) -> None:
    """Ctrl-C right behind the answer deleted the copy of what the marker had discarded."""
    plan = plan_of(RowCluster())
    progress = plan.action.progress(plan, None)
    assert plan.action.send(plan, progress) == "NONE"
    assert progress.effect == "uncertain"


def test_every_record_is_in_the_copy(batches: list[Batch], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In row groups of bounded memory: by their bytes, and by their number."""

    def record(offset: int, size: int = 1) -> Record:
        return Record(offset=offset, timestamp_ms=1_000 + offset, key=b"k", value=b"v" * size, headers=((b"h", None),))

    batches[:] = [
        Batch(100, written=[record(100), record(101)], size=70),
        Batch(102, written=[record(102)], size=30),
        Batch(103, producer_epoch=0, written=[record(103, size=20), record(104)], size=50),
    ]
    monkeypatch.setattr(transaction_module, "ROW_GROUP_BYTES", 12)
    monkeypatch.setattr(transaction_module, "MAX_ROWS", 3)
    plan = abort_plan(RowCluster())
    path = tmp_path / "records" / "copy.parquet"
    saved = save_records(plan.cluster, plan.transaction, path)
    assert (saved.path, saved.records, saved.size) == (path, 5, 150)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    table = pq.read_table(path)
    assert table.column("offset").to_pylist() == [100, 101, 102, 103, 104]
    assert table.column("headers").to_pylist()[0] == [{"key": "h", "value": None}]
    assert set(table.column("producer_id").to_pylist()) == {7}
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(each).num_rows for each in range(file.metadata.num_row_groups)] == [3, 1, 1]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ActionRefused("The action was cancelled.", do="")])
def test_an_interrupt_while_the_copy_is_written_leaves_none(error: BaseException, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise error

    plan = abort_plan(RowCluster())
    with pytest.raises(type(error)) as raised:
        save_records(plan.cluster, plan.transaction, tmp_path / "records" / "copy.parquet", check=interrupt)
    assert raised.value is error
    assert not (tmp_path / "records").exists()


def saved_rows(path: Path, topic: str = "orders") -> pq.ParquetFile:
    """The copy of the open batches."""
    plan = abort_plan(RowCluster(partitions=[partition(topic)]), topic=topic)
    saved = save_records(plan.cluster, plan.transaction, path)
    return pq.ParquetFile(saved.path)


@pytest.mark.parametrize(("limit", "groups"), [(27, [2, 2, 2, 1]), (28, [3, 3, 1])])
def test_a_row_group_is_bounded_by_keys_values_and_headers(
    limit: int, groups: list[int], batches: list[Batch], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """14 bytes a record."""
    headers = ((b"name", b"value"),)
    records = [Record(offset=100 + n, timestamp_ms=0, key=b"kk", value=b"vvv", headers=headers) for n in range(7)]
    batches[:] = [Batch(100, written=records)]
    monkeypatch.setattr(transaction_module, "ROW_GROUP_BYTES", limit)
    found = saved_rows(tmp_path / "copy.parquet").metadata
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == groups


def test_offsets_of_groups_are_decoded_and_everything_else_is_saved_as_it_is(
    batches: list[Batch], tmp_path: Path
) -> None:
    """An offset, one that is removed, a group's own record, and bytes of a newer Kafka; on their topic only."""
    name = struct.pack(">h", 1) + b"g"
    key = struct.pack(">h", 1) + name + struct.pack(">h", 6) + b"orders" + struct.pack(">i", 3)
    value = struct.pack(">hqih", 3, 41, 5, 0) + struct.pack(">q", 1_000)
    written = [
        (key, value),
        (key, None),
        (struct.pack(">h", 2) + name, None),
        (struct.pack(">h", 99), value),
        (None, value),
    ]
    records = [Record(offset=100 + n, timestamp_ms=0, key=k, value=v, headers=()) for n, (k, v) in enumerate(written)]
    batches[:] = [Batch(100, written=records)]
    names = ["group_id", "committed_topic", "committed_partition", "committed_offset", "committed_leader_epoch"]
    rows = saved_rows(tmp_path / "offsets.parquet", "__consumer_offsets").read().to_pylist()
    decoded = [tuple(row[name] for name in names) for row in rows]
    nothing = (None,) * 5
    assert decoded == [("g", "orders", 3, 41, 5), ("g", "orders", 3, None, None), nothing, nothing, nothing]
    assert [(row["key"], row["value"]) for row in rows] == written
    elsewhere = saved_rows(tmp_path / "orders.parquet").read().to_pylist()
    assert {row["group_id"] for row in elsewhere} == {None}
