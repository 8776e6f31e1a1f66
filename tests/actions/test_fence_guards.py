"""Each guard of a fence alone, on prepared rows: whom it may end, and whether it was sent."""

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.actions.rows import NO_ANSWER, FenceCluster, RowCluster, found, named, outcome_claims, transaction
from tests.analysis.build import NOW, ago
from toolkit.actions import coordinator_actions
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import (
    AT_LAST_EPOCH,
    FENCED,
    FLINK,
    LOST,
    NOT_CHECKPOINTED,
    OF_CONNECT_LEADER,
    plan_fence,
)
from toolkit.actions.plan import Plan
from toolkit.analysis.diagnosis.observation import CLOCKS_DIFFER, TIMEOUT_GRACE
from toolkit.errors import ActionFailed, ActionRefused, BrokerError, NotFound
from toolkit.formats.flink_checkpoint import Committable, FlinkCheckpoint
from toolkit.schema import TRANSACTION_LOG, Row
from toolkit.schema.verdict import Verdict

NONE, CONCURRENT, LOADING, NOT_COORDINATOR, UNAVAILABLE, DENIED, INVALID, TIMED_OUT = 0, 51, 14, 16, 15, 53, 42, 7
OVERDUE: dict[str, Any] = {"start_time": ago(minutes=5)}


@pytest.fixture(autouse=True)
def _coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_coordinators(client: FenceCluster, keys: list[str], key_type: int) -> list[Any]:
        assert (keys, key_type) == (["payments-7"], 1)
        found = SimpleNamespace(error_code=client.coordinator_error, node_id=3)
        return [(SimpleNamespace(error_text=None), found)]

    monkeypatch.setattr(coordinator_actions, "find_coordinators", find_coordinators)


def cluster_of(**owner: Any) -> FenceCluster:
    return FenceCluster(transactions=[transaction(**owner)])


def plan_of(cluster: FenceCluster, **more: Any) -> Plan:
    connected: Any = cluster
    return plan_fence(connected, "payments-7", **more)


def execute(plan: Plan, **more: Any) -> Any:
    return plan.execute(confirm="payments-7", **more)


def refusal(plan: Plan, **more: Any) -> str:
    with pytest.raises(ActionRefused) as raised:
        execute(plan, **more)
    cluster: Any = plan.cluster
    assert cluster.sent == []
    assert "Nothing was sent" in str(raised.value)
    return str(raised.value)


def test_an_overdue_owner_is_fenced(audit: Audit) -> None:
    cluster = cluster_of(**OVERDUE)
    plan = plan_of(cluster)
    assert (plan.verdict, plan.refusal, plan.needed_override) == ("overdue", None, None)
    assert (plan.target, list(plan.topic_partitions)) == ("payments-7", [("orders", 0)])
    done = execute(plan)
    assert (done.owner.producer_epoch, done.owner.state, done.still_open) == (2, "CompleteAbort", [])
    (request,) = cluster.sent
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("payments-7", -1, -1)
    assert request.transaction_timeout_ms == 5_000
    assert ("send_one", {"broker_id": 3}) in cluster.arguments
    intent, outcome = audit.rows()
    assert (intent["verdict"], intent["producer_id"], intent["producer_epoch"]) == ("overdue", 7, 0)
    named = {entry["name"]: entry["value"] for entry in intent["evidence"]}
    assert (named["state"], named["topic_partitions"]) == ("Ongoing", "orders-0")
    assert outcome["response"] == "NONE: producer_id=7, producer_epoch=2"


def test_the_evidence_of_an_idle_owner_has_no_start(audit: Audit) -> None:
    execute(plan_of(cluster_of(state="CompleteCommit", on=())), override="idle")
    named = {entry["name"]: entry["value"] for entry in audit.rows()[0]["evidence"]}
    assert (named["state"], named.get("start_time")) == ("CompleteCommit", None)


VERDICTS: dict[str, Row] = {
    "overdue": transaction(**OVERDUE),
    "idle": transaction(state="CompleteCommit", on=()),
    "ongoing": transaction(),
}


def test_what_a_fence_warns_of() -> None:
    warnings = {name: plan_of(FenceCluster(transactions=[row])).warnings for name, row in VERDICTS.items()}
    assert warnings["idle"] == (FENCED,)
    assert warnings["ongoing"] == warnings["overdue"] == (LOST, FENCED)
    assert plan_of(cluster_of(epoch=32767)).warnings == (AT_LAST_EPOCH, LOST, FENCED)
    assert plan_of(cluster_of(epoch=32767, state="CompleteAbort", on=())).warnings == (FENCED,)


def checkpoint(*committables: Committable, prefix: str = "tx") -> FlinkCheckpoint:
    return FlinkCheckpoint(
        path=Path("/checkpoints/chk-5/_metadata"),
        checkpoint_id=5,
        committables=committables,
        prefixes=frozenset({prefix}),
        is_savepoint=False,
    )


@pytest.mark.parametrize(("transactional_id", "is_leaders"), [("connect-cluster-c", True), ("c-source-0", False)])
def test_a_fence_of_connects_leader_names_its_effect(transactional_id: str, is_leaders: bool) -> None:
    """On 4.3.1 a lone worker lost its right to the config topic by it, until it was restarted."""
    for state in ("Ongoing", "Empty"):
        cluster: Any = FenceCluster(transactions=[named(transactional_id, state=state)])
        assert (OF_CONNECT_LEADER in plan_fence(cluster, transactional_id).warnings) is is_leaders


@pytest.mark.parametrize("timeout_ms", [10_000, 900_000, 3_600_000])
def test_an_id_that_may_be_flinks_is_warned_of_first(timeout_ms: int) -> None:
    cluster: Any = FenceCluster(transactions=[named("tx-0-5", timeout_ms=timeout_ms)])
    plan = plan_fence(cluster, "tx-0-5")
    assert plan.warnings == (FLINK, LOST, FENCED)
    cluster.flink_checkpoints = [checkpoint()]
    plan = plan_fence(cluster, "tx-0-5")
    assert plan.warnings == (f"Its checkpoint 5 (/checkpoints/chk-5) {NOT_CHECKPOINTED}", LOST, FENCED)
    cluster.flink_checkpoints = [replace(checkpoint(), others=1)]
    assert FLINK in plan_fence(cluster, "tx-0-5").warnings, "it may have what was not read"
    cluster.flink_checkpoints = [checkpoint(prefix="other")]
    assert FLINK in plan_fence(cluster, "tx-0-5").warnings


@pytest.mark.parametrize(
    "committable", [Committable("tx-0-5", 7, 1, 5), Committable("tx-0-5", 8, 0, 5), Committable("tx-0-4", 7, 0, 5)]
)
def test_another_transaction_of_a_checkpoint_protects_nothing(committable: Committable) -> None:
    cluster: Any = FenceCluster(transactions=[named("tx-0-5", **OVERDUE)])
    cluster.flink_checkpoints = [checkpoint(committable)]
    assert plan_fence(cluster, "tx-0-5").verdict == "overdue"


def test_the_equal_line_of_kafkas_own_tool() -> None:
    tool = "kafka-transactions.sh --bootstrap-server one:9092 forceTerminateTransaction --transactionalId payments-7"
    assert " ".join(plan_of(cluster_of()).command or ()) == tool
    assert "FenceCluster" not in repr(plan_of(cluster_of()))
    other = FenceCluster(transactions=[transaction()], timeout=1.0)
    assert plan_of(cluster_of()) == plan_of(other), "the same fence, whatever connection it goes through"


def test_a_fence_is_written_to_the_trail_that_is_named(tmp_path: Path, audit: Audit) -> None:
    trail = Audit(tmp_path / "other.jsonl")
    execute(plan_of(cluster_of(**OVERDUE)), audit=trail)
    assert [row["step"] for row in trail.rows()] == ["intent", "outcome"]
    assert audit.rows() == []


def test_what_is_long_is_a_word_only() -> None:
    cluster = cluster_of(start_time=ago(minutes=20), timeout_ms=3_600_000)
    assert plan_of(cluster, max_transaction_timeout_ms=1_200_000).verdict == "ongoing", "exactly that old"
    assert plan_of(cluster, max_transaction_timeout_ms=1_199_999).verdict == "long"
    assert plan_of(cluster_of(start_time=None)).verdict == "ongoing"
    limit = dt.timedelta(minutes=1) + TIMEOUT_GRACE + CLOCKS_DIFFER
    assert plan_of(cluster_of(start_time=NOW - limit)).verdict == "ongoing", "within its timeout and the grace"
    assert plan_of(cluster_of(start_time=NOW - limit - dt.timedelta(seconds=1))).verdict == "overdue"
    assert plan_of(cluster_of(start_time=ago(days=1), timeout_ms=None)).verdict == "long"


def test_what_is_open_is_read_before_the_request_and_what_is_not_proven_then_is_refused() -> None:
    """The words of an older check override nothing; what is committed under the id is never discarded."""
    first, second = "no commit includes offset 100 of orders-0", "no commit includes what is open under payments-7"
    cluster = cluster_of(**OVERDUE)
    cluster.own_findings = [found(verdict=Verdict.OVERDUE, evidence=outcome_claims("not proven"))]
    plan = plan_of(cluster)
    assert (plan.verdict, plan.needed_override) == ("unproven", first)
    cluster.own_findings = NotFound("There is no topic orders.")  # or it is hidden
    assert f"is not what is not proven now: {second}" in refusal(plan, override=first)
    cluster.own_findings = [found(verdict=Verdict.ONGOING, evidence=outcome_claims("refuted"))]
    assert "is committed now, which cannot be overridden" in refusal(plan, override=first)
    cluster.own_findings = [found(verdict=Verdict.OVERDUE, evidence=outcome_claims("proven"))]
    assert "is not needed" in refusal(plan, override=first)
    cluster.own_findings = [found(verdict=Verdict.OVERDUE, evidence=outcome_claims("not proven"))]
    execute(plan, override=first)
    assert len(cluster.sent) == 1


def test_a_topic_that_may_be_hidden_is_not_proven_to_have_no_committed_records() -> None:
    """DescribeTransactions leaves out topics that the principal may not describe; the coordinators' log has them."""
    what = "no commit includes what is open under payments-7"
    seen = {"transactional_id": "payments-7", "producer_id": 7, "producer_epoch": 0, "state": "Ongoing"}
    orders, hidden = {"topic": "orders", "partition": 0}, {"topic": "hidden", "partition": 0}
    for log, needed in (
        ([], what),
        ([{**seen, "topic_partitions": [orders, hidden]}], what),
        ([{**seen, "producer_epoch": 1, "topic_partitions": [orders]}], what),
        ([{**seen, "topic_partitions": [orders]}], None),
    ):
        cluster = cluster_of(**OVERDUE)
        cluster.own_findings = [found(verdict=Verdict.OVERDUE, evidence=outcome_claims("proven"))]
        cluster.gaps, cluster.transaction_log = ["DESCRIBE on Topic '*'"], [without_others(each) for each in log]
        assert plan_of(cluster).needed_override == needed
    cluster.gaps, cluster.transaction_log = (), ()
    assert plan_of(cluster).needed_override is None


def without_others(row: Row) -> Row:
    return {**dict.fromkeys(TRANSACTION_LOG.names), "tombstone": False, **row}


def test_the_verdict_is_that_of_the_findings_and_not_another_one() -> None:
    """Of two epochs, its commit may be wanted: overdue by its age, the fence was offered."""
    cluster = cluster_of(**OVERDUE)
    cluster.own_findings = [found(verdict=Verdict.ONGOING, evidence=outcome_claims("proven"))]
    assert plan_of(cluster).verdict == "ongoing"
    cluster.own_findings = [found(verdict=Verdict.ONGOING, producer_epoch=1, evidence=outcome_claims("proven"))]
    assert plan_of(cluster).verdict == "overdue", "that of another epoch says nothing of this one"


def test_an_id_that_has_ended_in_the_meantime_is_no_dry_run_that_passes() -> None:
    cluster = cluster_of(**OVERDUE)
    plan = plan_of(cluster)
    cluster.transactions = [transaction(state="CompleteAbort", on=())]
    with pytest.raises(ActionRefused, match="changed since it was planned: its state is CompleteAbort"):
        plan.check()
    assert plan_of(cluster).refusal is not None
    assert "nothing is open under it" in refusal(plan_of(cluster))


@pytest.mark.parametrize("read", [1, 2], ids=["by the fresh check", "right before the request"])
@pytest.mark.parametrize(
    "now",
    [
        {"pid": 8, **OVERDUE},
        {"epoch": 1, **OVERDUE},
        {"state": "PrepareAbort", **OVERDUE},
        {"on": (("orders", 0), ("orders", 1)), **OVERDUE},
        {"start_time": ago(minutes=4)},
    ],
)
def test_an_owner_that_is_another_one_now_is_refused(now: dict[str, Any], read: int) -> None:
    cluster = cluster_of(**OVERDUE)
    plan = plan_of(cluster)
    cluster.calls.clear()
    cluster.before = {("transaction_rows", read): lambda each: setattr(each, "transactions", [transaction(**now)])}
    assert "changed since it was planned: its " in refusal(plan)


def test_a_confirmation_is_the_id(audit: Audit) -> None:
    plan = plan_of(cluster_of(**OVERDUE))
    with pytest.raises(ActionRefused, match="confirm with exactly payments-7"):
        plan.execute(confirm="payments")
    assert [(row["step"], row["target"]) for row in audit.rows()] == [("refused", "payments-7")]


def test_an_id_that_is_not_there_or_cannot_be_described() -> None:
    with pytest.raises(NotFound, match="There is no transactional id 'payments-7'"):
        plan_of(cluster_of(error="TRANSACTIONAL_ID_NOT_FOUND: no"))
    with pytest.raises(BrokerError, match="could not be described: REQUEST_TIMED_OUT") as raised:
        plan_of(cluster_of(error="REQUEST_TIMED_OUT: no answer"))
    assert raised.value.code == "REQUEST_TIMED_OUT"


# The answer


@pytest.mark.parametrize("code", [CONCURRENT, LOADING, NOT_COORDINATOR, UNAVAILABLE])
def test_an_answer_that_passes_by_itself_is_followed_by_another_request(code: int) -> None:
    cluster = cluster_of(**OVERDUE)
    cluster.answers = (code, NONE)
    assert execute(plan_of(cluster)).owner.producer_epoch == 2
    assert len(cluster.sent) == 2


ANSWERS: dict[str, tuple[Sequence[int], str]] = {
    "denied": ((DENIED,), "nothing"),
    "an invalid request": ((INVALID,), "nothing"),
    "loading for ever": ((LOADING,), "nothing"),
    "no coordinator for ever": ((UNAVAILABLE,), "nothing"),
    "another coordinator for ever": ((NOT_COORDINATOR,), "nothing"),
    "ending what is open for ever": ((CONCURRENT,), "uncertain"),
    "ending what is open, then denied": ((CONCURRENT, DENIED), "uncertain"),
    "a time-out": ((TIMED_OUT,), "uncertain"),
}


@pytest.mark.parametrize(("answers", "effect"), ANSWERS.values(), ids=ANSWERS)
def test_a_refused_request_names_its_effect(answers: Sequence[int], effect: str, audit: Audit) -> None:
    """CONCURRENT_TRANSACTIONS also comes while the coordinator aborts what is open: the fence has begun."""
    cluster = cluster_of(**OVERDUE)
    cluster.answers, cluster.timeout = answers, 0.05
    with pytest.raises(ActionFailed, match="refused to fence 'payments-7'") as raised:
        execute(plan_of(cluster))
    assert raised.value.effect == effect
    assert ("needs WRITE on the transactional id" in str(raised.value)) is (answers == (DENIED,))
    assert audit.rows()[-1]["response"]


def test_without_a_coordinator_nothing_is_sent() -> None:
    cluster = cluster_of(**OVERDUE)
    cluster.coordinator_error, cluster.timeout = UNAVAILABLE, 0.05
    with pytest.raises(ActionFailed, match="COORDINATOR_NOT_AVAILABLE") as raised:
        execute(plan_of(cluster))
    assert (raised.value.effect, cluster.sent) == ("nothing", [])


def test_a_coordinator_that_is_not_found_after_a_refusal_leaves_nothing_done() -> None:
    """The fence was said to be uncertain, although only the search for its coordinator had no answer."""

    def fails(cluster: RowCluster) -> None:
        assert isinstance(cluster, FenceCluster)
        cluster.coordinator_error = TIMED_OUT

    cluster = cluster_of(**OVERDUE)
    cluster.answers, cluster.before = (LOADING,), {("send_one", 1): fails}
    with pytest.raises(ActionFailed, match="REQUEST_TIMED_OUT") as raised:
        execute(plan_of(cluster))
    assert (raised.value.effect, len(cluster.sent)) == ("nothing", 1)


def test_without_an_answer_it_is_uncertain() -> None:
    def fails(cluster: RowCluster) -> None:
        raise NO_ANSWER

    cluster = cluster_of(**OVERDUE)
    cluster.before = {("send_one", 1): fails}
    with pytest.raises(
        ActionFailed, match=r"It is uncertain whether the id was fenced\. To find out, describe"
    ) as raised:
        execute(plan_of(cluster))
    assert raised.value.effect == "uncertain"


@pytest.mark.parametrize(("call", "step"), [(("transaction_rows", 2), "refused"), (("transaction_rows", 3), "intent")])
def test_a_cancel_before_the_request_sends_nothing(call: tuple[str, int], step: str, audit: Audit) -> None:
    cancel = threading.Event()
    cluster = cluster_of(**OVERDUE)
    cluster.before = {call: lambda _: cancel.set()}
    assert "The action was cancelled" in refusal(plan_of(cluster), cancel=cancel)
    assert audit.rows()[0]["step"] == step


def test_a_cancel_between_two_requests_is_uncertain() -> None:
    cancel = threading.Event()
    cluster = cluster_of(**OVERDUE)
    cluster.answers = (CONCURRENT,)
    cluster.before = {("send_one", 2): lambda _: cancel.set()}
    with pytest.raises(ActionFailed, match=r"The action was cancelled\. It is uncertain") as raised:
        execute(plan_of(cluster), cancel=cancel)
    assert (raised.value.effect, len(cluster.sent)) == ("uncertain", 2)


# What is read back


def reads_back(*owners: Row, timeout: float = 5.0, cancel: threading.Event | None = None) -> Any:
    """What the plan finds after its request, as the coordinator shows these owners one after another."""
    cluster = cluster_of(**OVERDUE)
    cluster.fences, cluster.timeout = False, timeout
    plan = plan_of(cluster)

    def shows(row: Row) -> Callable[[RowCluster], None]:
        return lambda each: setattr(each, "transactions", [row])

    reads = cluster.calls["transaction_rows"]
    cluster.before = {("transaction_rows", reads + number): shows(row) for number, row in enumerate(owners, start=1)}
    return plan.verify(check=lambda: None), cluster.calls["transaction_rows"] - reads


def test_the_fence_is_over_when_its_markers_are_written() -> None:
    aborting = transaction(epoch=1, state="PrepareAbort")
    done, reads = reads_back(aborting, aborting, transaction(epoch=2, state="CompleteAbort"))
    assert (done.owner.state, done.still_open, reads) == ("CompleteAbort", [], 3)
    done, _ = reads_back(aborting, timeout=0.05)
    assert (done.owner.state, done.still_open) == ("PrepareAbort", [("orders", 0)]), "markers on their way"
    with pytest.raises(BrokerError, match="is still owned by producer 7 epoch 0, and Ongoing"):
        reads_back(transaction(**OVERDUE))
    done, _ = reads_back(transaction(8, state="Empty", on=()))
    assert done.owner.producer_id == 8, "its next producer id, with the same epoch"


def test_a_cancel_ends_the_wait_for_the_markers() -> None:
    cluster = cluster_of(**OVERDUE)
    plan = plan_of(cluster)
    cluster.transactions = [transaction(epoch=1, state="PrepareAbort")]

    def cancelled() -> None:
        raise ActionFailed("The action was cancelled.", effect="written")

    with pytest.raises(ActionFailed, match="The action was cancelled"):
        plan.verify(check=cancelled)
