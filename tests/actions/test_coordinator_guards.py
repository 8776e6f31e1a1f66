"""Each guard of a fence and of a commit alone, on prepared rows: whom it may end, and whether it was sent."""

import datetime as dt
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from tests.actions.rows import (
    ALIVE,
    ENDED,
    FenceCluster,
    RowCluster,
    found,
    named,
    no_answer,
    outcome_claims,
    partition,
    producer,
    sets,
    transaction,
)
from tests.analysis.build import NOW, ago
from tests.formats.flink_bytes import SAVEPOINT, write_checkpoint
from toolkit.actions import coordinator_actions, marker_actions
from toolkit.actions import transaction as transaction_module
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import (
    AT_LAST_EPOCH,
    BY_CLOCKS,
    FENCED,
    FLINK,
    LOST,
    NOT_CHECKPOINTED,
    OF_CONNECT_LEADER,
    plan_commit,
    plan_fence,
)
from toolkit.actions.plan import Plan
from toolkit.actions.transaction import PartitionResult, PlannedTransaction
from toolkit.analysis.diagnosis.observation import TIMEOUT_GRACE
from toolkit.cli.action_commands import ActionAnswer, ActionFormat
from toolkit.errors import ActionFailed, ActionRefused, BrokerError, NotFound
from toolkit.formats.flink_checkpoint import read_checkpoint
from toolkit.schema import TRANSACTION_LOG, Row
from toolkit.schema.checkpoint import Committable, FlinkCheckpoint
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict
from toolkit.sources.live.coordinator_logs import LastBatch
from toolkit.views.document import NOWHERE

NONE, CONCURRENT, LOADING, NOT_COORDINATOR, UNAVAILABLE, DENIED, INVALID, TIMED_OUT = 0, 51, 14, 16, 15, 53, 42, 7
NAME = "tx-0-5"  # of a job of Flink
OVERDUE: dict[str, Any] = {"start_time": ago(minutes=5)}


@pytest.fixture(autouse=True)
def _coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_coordinators(client: RowCluster, keys: list[str], key_type: int) -> list[Any]:
        assert (keys[0] in {"payments-7", NAME}, key_type) == (True, 1)
        client._called("find_coordinators", {})
        found = SimpleNamespace(error_code=getattr(client, "coordinator_error", 0), node_id=3)
        return [(SimpleNamespace(error_text=None), found)]

    monkeypatch.setattr(coordinator_actions, "find_coordinators", find_coordinators)


def fence_cluster(**owner: Any) -> FenceCluster:
    return FenceCluster(transactions=[transaction(**owner)])


def fence_plan(cluster: FenceCluster, **more: Any) -> Plan:
    connected: Any = cluster
    return plan_fence(connected, "payments-7", **more)


def execute(plan: Plan, **more: Any) -> Any:
    return plan.execute(confirm=plan.target, **more)


def refusal(plan: Plan, **more: Any) -> str:
    with pytest.raises(ActionRefused) as raised:
        execute(plan, **more)
    cluster: Any = plan.cluster
    assert cluster.sent == []
    assert "Nothing was sent" in str(raised.value)
    return str(raised.value)


def failure(plan: Plan, words: str = "", **more: Any) -> tuple[str, int]:
    """The effect that its error has, and the number of requests that were sent."""
    with pytest.raises(ActionFailed, match=words) as raised:
        execute(plan, **more)
    cluster: Any = plan.cluster
    return raised.value.effect, len(cluster.sent)


def test_an_overdue_owner_is_fenced(audit: Audit) -> None:
    cluster = fence_cluster(**OVERDUE)
    plan = fence_plan(cluster)
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


def test_the_timeout_of_a_fence_is_no_longer_than_that_of_its_id() -> None:
    """A broker with a transaction.max.timeout.ms below that of requests refused it: INVALID_TRANSACTION_TIMEOUT."""
    cluster = fence_cluster(**OVERDUE, timeout_ms=3_000)
    execute(fence_plan(cluster))
    assert cluster.sent[0].transaction_timeout_ms == 3_000


def test_the_evidence_of_an_idle_owner_has_no_start(audit: Audit) -> None:
    execute(fence_plan(fence_cluster(state="CompleteCommit", on=())), override="idle")
    named = {entry["name"]: entry["value"] for entry in audit.rows()[0]["evidence"]}
    assert (named["state"], named.get("start_time")) == ("CompleteCommit", None)


VERDICTS: dict[str, Row] = {
    "overdue": transaction(**OVERDUE),
    "idle": transaction(state="CompleteCommit", on=()),
    "ongoing": transaction(),
}


def test_what_a_fence_warns_of() -> None:
    warnings = {name: fence_plan(FenceCluster(transactions=[row])).warnings for name, row in VERDICTS.items()}
    assert warnings["idle"] == (FENCED,)
    assert warnings["ongoing"] == (LOST, FENCED)
    assert warnings["overdue"] == (BY_CLOCKS, LOST, FENCED)
    assert fence_plan(fence_cluster(epoch=32767)).warnings == (AT_LAST_EPOCH, LOST, FENCED)
    assert fence_plan(fence_cluster(epoch=32767, state="CompleteAbort", on=())).warnings == (FENCED,)


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


@pytest.mark.parametrize(("read", "why"), [(2, "is checkpointed now"), (3, "changed since .* is to commit it")])
def test_what_a_checkpoint_pre_commits_after_the_plan_is_not_fenced(read: int, why: str) -> None:
    """At a prompt for minutes, and in a panel for hours, the checkpoints were those of the first look."""
    cluster: Any = FenceCluster(transactions=[named("tx-0-5", **OVERDUE)])
    plan = plan_fence(cluster, "tx-0-5")
    completed = [checkpoint(Committable("tx-0-5", 6, 3, 4), Committable("tx-0-5", 7, 0, 5))]
    cluster.before = {("newest_checkpoints", read): sets(flink_checkpoints=completed)}
    assert re.search(why, refusal(plan))


@pytest.mark.parametrize(
    "committable", [Committable("tx-0-5", 7, 1, 5), Committable("tx-0-5", 8, 0, 5), Committable("tx-0-4", 7, 0, 5)]
)
def test_another_transaction_of_a_checkpoint_protects_nothing(committable: Committable) -> None:
    cluster: Any = FenceCluster(transactions=[named("tx-0-5", **OVERDUE)])
    cluster.flink_checkpoints = [checkpoint(committable)]
    assert plan_fence(cluster, "tx-0-5").verdict == "overdue"


def test_the_equal_line_of_kafkas_own_tool() -> None:
    tool = "kafka-transactions.sh --bootstrap-server one:9092 forceTerminateTransaction --transactionalId payments-7"
    assert " ".join(fence_plan(fence_cluster()).command or ()) == tool
    assert "FenceCluster" not in repr(fence_plan(fence_cluster()))
    other = FenceCluster(transactions=[transaction()], timeout=1.0)
    assert fence_plan(fence_cluster()) == fence_plan(other), "the same fence, whatever connection it goes through"


def test_what_is_long_is_a_word_only() -> None:
    cluster = fence_cluster(start_time=ago(minutes=20), timeout_ms=3_600_000)
    assert fence_plan(cluster, max_transaction_timeout_ms=1_200_000).verdict == "ongoing", "exactly that old"
    assert fence_plan(cluster, max_transaction_timeout_ms=1_199_999).verdict == "long"
    assert fence_plan(fence_cluster(start_time=None)).verdict == "ongoing"
    limit = dt.timedelta(minutes=1) + TIMEOUT_GRACE + CLOCKS_DIFFER
    assert fence_plan(fence_cluster(start_time=NOW - limit)).verdict == "ongoing", "within its timeout and the grace"
    assert fence_plan(fence_cluster(start_time=NOW - limit - dt.timedelta(seconds=1))).verdict == "overdue"
    assert fence_plan(fence_cluster(start_time=ago(days=1), timeout_ms=None)).verdict == "long"
    assert fence_plan(fence_cluster(start_time=ago(days=30), timeout_ms=2**31 - 1)).verdict == "prepared"


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_what_is_decided_is_never_fenced(state: str) -> None:
    with pytest.raises(ActionRefused, match="is decided now"):
        fence_plan(fence_cluster(state=state))


def test_what_is_open_is_read_before_the_request_and_what_is_not_proven_then_is_refused(audit: Audit) -> None:
    """The words of an older check override nothing; what is committed under the id is never discarded."""
    first, second = "no commit includes offset 100 of orders-0", "no commit includes what is open under payments-7"
    cluster = fence_cluster(**OVERDUE)
    cluster.own_findings = [found(verdict=Verdict.OVERDUE, evidence=outcome_claims("not proven"))]
    plan = fence_plan(cluster)
    assert (plan.verdict, plan.needed_override) == ("unproven", first)
    cluster.own_findings, cluster.deleted = (), [TopicPartition("orders", 0)]  # or its topic is hidden
    assert f"does not repeat what is not proven now: {second}" in refusal(plan, override=first)
    cluster.own_findings = [found(verdict=Verdict.ONGOING, evidence=outcome_claims("refuted"))]
    assert "is committed now, which cannot be overridden" in refusal(plan, override=first)
    cluster.deleted = ()
    cluster.own_findings = [found(verdict=Verdict.OVERDUE, evidence=outcome_claims("proven"))]
    assert "is not needed" in refusal(plan, override=first)
    cluster.own_findings = [found(verdict=Verdict.OVERDUE, evidence=outcome_claims("not proven"))]
    execute(plan, override=first)
    assert len(cluster.sent) == 1
    _, claim = audit.rows()[-1]["claims"]
    assert (claim["claim"], claim["status"]) == (first, "not proven")


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
        cluster = fence_cluster(**OVERDUE)
        cluster.own_findings = [found(verdict=Verdict.OVERDUE, evidence=outcome_claims("proven"))]
        cluster.gaps, cluster.transaction_log = ["DESCRIBE on Topic '*'"], [without_others(each) for each in log]
        assert fence_plan(cluster).needed_override == needed
        assert ("transaction_log_rows", {"transactional_ids": ["payments-7"]}) in cluster.arguments
    cluster.gaps, cluster.transaction_log = (), ()
    assert fence_plan(cluster).needed_override is None


def test_a_partition_whose_producers_alone_were_not_read_proves_nothing() -> None:
    """Its offsets were read, so its finding has no `error`, and nothing seemed to be open there."""
    unread = found(
        start_offset=None, producer_id=None, verdict=Verdict.UNKNOWN, action=None, missing=["READ"], evidence=[]
    )
    with pytest.raises(ActionRefused, match=r"orders-0 is unknown.*Nothing was sent"):
        commit_plan(commit_cluster(findings=[unread.row()]))
    cluster = fence_cluster(**OVERDUE)
    cluster.own_findings = [unread]
    assert fence_plan(cluster).needed_override == "no commit includes what is open under payments-7 on orders-0"


def without_others(row: Row) -> Row:
    return {**dict.fromkeys(TRANSACTION_LOG.names), "tombstone": False, **row}


def test_the_verdict_is_that_of_the_findings_and_not_another_one() -> None:
    """Of two epochs, its commit may be wanted: overdue by its age, the fence was offered."""
    cluster = fence_cluster(**OVERDUE)
    cluster.own_findings = [found(verdict=Verdict.ONGOING, evidence=outcome_claims("proven"))]
    assert fence_plan(cluster).verdict == "ongoing"
    cluster.own_findings = [found(verdict=Verdict.ONGOING, producer_epoch=1, evidence=outcome_claims("proven"))]
    assert fence_plan(cluster).verdict == "overdue", "that of another epoch says nothing of this one"


def test_an_id_that_has_ended_in_the_meantime_is_no_dry_run_that_passes() -> None:
    cluster = fence_cluster(**OVERDUE)
    plan = fence_plan(cluster)
    cluster.transactions = [transaction(state="CompleteAbort", on=())]
    with pytest.raises(ActionRefused, match="changed since it was planned: its state is CompleteAbort"):
        plan.check()
    assert fence_plan(cluster).refusal is not None
    assert "nothing is open under it" in refusal(fence_plan(cluster))


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
    cluster = fence_cluster(**OVERDUE)
    plan = fence_plan(cluster)
    cluster.calls.clear()
    cluster.before = {("transaction_rows", read): sets(transactions=[transaction(**now)])}
    assert "changed since it was planned: its " in refusal(plan)


def test_an_id_that_is_not_there_or_cannot_be_described() -> None:
    with pytest.raises(NotFound, match="There is no transactional id 'payments-7'"):
        fence_plan(fence_cluster(error="TRANSACTIONAL_ID_NOT_FOUND: no"))
    with pytest.raises(BrokerError, match="could not be described: REQUEST_TIMED_OUT") as raised:
        fence_plan(fence_cluster(error="REQUEST_TIMED_OUT: no answer"))
    assert raised.value.code == "REQUEST_TIMED_OUT"


# The answer


def fenced(**more: Any) -> Plan:
    return fence_plan(FenceCluster(transactions=[transaction(**OVERDUE)], **more))


def committed(**more: Any) -> Plan:
    return commit_plan(commit_cluster(**more))


@pytest.mark.parametrize("code", [CONCURRENT, LOADING, NOT_COORDINATOR, UNAVAILABLE])
def test_an_answer_that_passes_by_itself_is_followed_by_another_request(code: int) -> None:
    cluster = fence_cluster(**OVERDUE)
    cluster.answers = (code, NONE)
    assert execute(fence_plan(cluster)).owner.producer_epoch == 2
    assert len(cluster.sent) == 2


ANSWERS: dict[str, tuple[Sequence[int], str]] = {
    "denied": ((DENIED,), "nothing"),
    "an invalid request": ((INVALID,), "nothing"),
    "a timeout above the brokers' limit": ((50,), "nothing"),
    "loading for ever": ((LOADING,), "nothing"),
    "no coordinator for ever": ((UNAVAILABLE,), "uncertain"),
    "another coordinator for ever": ((NOT_COORDINATOR,), "uncertain"),
    "ending what is open for ever": ((CONCURRENT,), "uncertain"),
    "ending what is open, then denied": ((CONCURRENT, DENIED), "uncertain"),
    "a time-out": ((TIMED_OUT,), "uncertain"),
}


@pytest.mark.parametrize(("answers", "effect"), ANSWERS.values(), ids=ANSWERS)
def test_a_refused_request_names_its_effect(answers: Sequence[int], effect: str, audit: Audit) -> None:
    """CONCURRENT_TRANSACTIONS also comes while the coordinator aborts what is open: the fence has begun.

    A coordinator whose decision did not get to enough replicas in time says that it is not available, or none any more.
    """
    cluster = fence_cluster(**OVERDUE)
    cluster.answers, cluster.timeout = answers, 0.05
    with pytest.raises(ActionFailed, match="refused to fence 'payments-7'") as raised:
        execute(fence_plan(cluster))
    assert raised.value.effect == effect
    assert ("needs WRITE on the transactional id" in str(raised.value)) is (answers == (DENIED,))
    assert audit.rows()[-1]["response"]


def test_without_a_coordinator_nothing_is_sent() -> None:
    cluster = fence_cluster(**OVERDUE)
    cluster.coordinator_error, cluster.timeout = UNAVAILABLE, 0.05
    assert failure(fence_plan(cluster), "COORDINATOR_NOT_AVAILABLE") == ("nothing", 0)


def test_a_coordinator_that_is_not_found_after_a_refusal_leaves_nothing_done() -> None:
    """The fence was said to be uncertain, although only the search for its coordinator had no answer."""
    cluster = fence_cluster(**OVERDUE)
    cluster.answers, cluster.before = (LOADING,), {("send_one", 1): sets(coordinator_error=TIMED_OUT)}
    assert failure(fence_plan(cluster), "REQUEST_TIMED_OUT") == ("nothing", 1)


RESTARTED = [transaction(epoch=3, start_time=ago(seconds=1))]  # the application, which has a transaction open
restarts = sets(transactions=RESTARTED)


def test_what_its_coordinator_does_not_list_as_past_its_timeout_is_not_overdue() -> None:
    """By the clocks of two brokers, of which one was ten minutes behind, a live transaction was overdue, and fenced."""
    cluster = fence_cluster(**OVERDUE)
    cluster.before = {("transaction_rows", 2): sets(transactions=[])}
    plan = fence_plan(cluster)
    assert (plan.verdict, plan.needed_override) == ("ongoing", "ongoing")
    assert (plan.refusal or "").startswith("by its coordinator's own clock it is within its own timeout")


@pytest.mark.parametrize("code", [LOADING, UNAVAILABLE])
def test_what_has_begun_while_a_coordinator_was_loading_is_not_fenced(code: int, audit: Audit) -> None:
    """Nothing had an effect so far, and the request was repeated for 30 s without a look at the id: the application had
    restarted, and its new transaction was aborted.
    """
    cluster = fence_cluster(**OVERDUE)
    cluster.answers, cluster.before = (LOADING, NONE), {("send_one", 1): restarts}
    if code == UNAVAILABLE:
        cluster.answers, cluster.coordinator_error = (NONE,), UNAVAILABLE
        found_again = sets(transactions=RESTARTED, coordinator_error=0)
        cluster.before = {("find_coordinators", 2): found_again}
    with pytest.raises(ActionRefused, match="changed since it was planned: its producer_epoch is 3, and was 0"):
        execute(fence_plan(cluster))
    assert len(cluster.sent) == (code == LOADING)
    assert "ActionRefused" in audit.rows()[-1]["error"]


@pytest.mark.parametrize("answers", [(NONE,), (LOADING, NONE)], ids=["the first request", "a repeated one"])
def test_what_has_begun_while_its_coordinator_was_looked_up_is_not_fenced(answers: Sequence[int]) -> None:
    """A broker that hung answered FindCoordinator 10 s late, or another one did: the application had restarted."""
    cluster = fence_cluster(**OVERDUE)
    cluster.answers, cluster.before = answers, {("find_coordinators", len(answers)): restarts}
    with pytest.raises(ActionRefused, match="changed since it was planned: its producer_epoch is 3, and was 0"):
        execute(fence_plan(cluster))
    assert len(cluster.sent) == len(answers) - 1


def test_a_request_is_not_repeated_before_the_coordinator_says_what_is_open() -> None:
    cluster = fence_cluster(**OVERDUE)
    unread = transaction(error="COORDINATOR_LOAD_IN_PROGRESS: no")
    cluster.answers = (LOADING, NONE)
    cluster.before = {("send_one", 1): sets(transactions=[unread]), ("transaction_rows", 8): restarts}
    with pytest.raises(ActionRefused, match="its producer_epoch is 3, and was 0"):
        execute(fence_plan(cluster))
    assert len(cluster.sent) == 1


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"epoch": 1, "state": "CompleteCommit", "on": ()}, "producer 7 epoch 1 is CompleteCommit by now"),
        ({"state": "PrepareCommit"}, "producer 7 epoch 0 is PrepareCommit by now"),
        ({"epoch": 2, "state": "Empty", "on": ()}, "producer 7 epoch 2 is Empty by now"),
        ({"epoch": 3, "start_time": ago(seconds=1)}, "producer 7 epoch 3 is Ongoing by now, and was not asked for"),
    ],
    ids=["committed", "committing", "restarted", "restarted, with a transaction"],
)
def test_a_client_that_goes_on_meanwhile_is_not_fenced_by_the_next_request(now: dict[str, Any], said: str) -> None:
    """Its commit was under way when the fence came: it was fenced after it, and said to be aborted.

    An application that restarted while its transaction was aborted was fenced, too, and its new one aborted.
    """
    cluster = fence_cluster(**OVERDUE)
    cluster.answers, cluster.before = (CONCURRENT, NONE), {("send_one", 1): sets(transactions=[transaction(**now)])}
    assert failure(fence_plan(cluster), said) == ("uncertain", 1)


def test_what_a_later_producer_has_open_is_nothing_that_the_fence_leaves() -> None:
    """The read-back waited for its end until the time-out, and said that markers of the fence were on their way."""
    cluster = fence_cluster(**OVERDUE)
    cluster.fences, cluster.before = False, {("send_one", 1): restarts}
    done = execute(fence_plan(cluster))
    assert (done.owner.producer_epoch, done.still_open) == (3, [])


def test_a_dry_run_is_refused_by_an_override_that_is_not_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """It passed, and the same command with --confirm was refused."""
    plan = fence_plan(fence_cluster(**OVERDUE))
    given: dict[str, Any] = {
        "output": ActionFormat.TABLE,
        "connection": NOWHERE,
        "confirm": None,
        "override": "ongoing",
    }
    answer = ActionAnswer(action="fence", audit=Audit(), **given)
    with pytest.raises(typer.Exit) as ended:
        answer.act(plan, plan.execute)
    said = "the override 'ongoing' is not needed, as everything is proven: leave it out."
    assert (ended.value.exit_code, said in " ".join(capsys.readouterr().out.split())) == (5, True)
    assert said in refusal(plan, override="ongoing")


def test_an_answer_without_the_id_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an AttributeError."""
    answer = SimpleNamespace(error_text=None)
    monkeypatch.setattr(coordinator_actions, "find_coordinators", lambda *_: [(answer, None)])
    plan = fence_plan(fence_cluster(**OVERDUE))
    assert failure(plan, "INCOMPLETE_RESPONSE: the response to FindCoordinator") == ("nothing", 0)


@pytest.mark.parametrize(("plan_it", "words"), [(fenced, "the id was fenced"), (committed, "was committed")])
def test_without_an_answer_it_is_uncertain(plan_it: Callable[..., Plan], words: str) -> None:
    says = rf"(?s)It is uncertain whether .*{words}.*\nkafka-txn describe"
    assert failure(plan_it(before={("send_one", 1): no_answer}), says) == ("uncertain", 0)


def test_a_cancel_between_two_requests_is_uncertain() -> None:
    cancel = threading.Event()
    cluster = fence_cluster(**OVERDUE)
    cluster.answers = (CONCURRENT,)
    cluster.before = {("send_one", 2): lambda _: cancel.set()}
    says = r"The action was cancelled\. It is uncertain"
    assert failure(fence_plan(cluster), says, cancel=cancel) == ("uncertain", 2)


# What is read back


def reads_back(*owners: Row, timeout: float = 5.0, cancel: threading.Event | None = None) -> Any:
    """What the plan finds after its request, as the coordinator shows these owners one after another."""
    cluster = fence_cluster(**OVERDUE)
    cluster.fences, cluster.timeout = False, timeout
    plan = fence_plan(cluster)
    reads = cluster.calls["transaction_rows"]
    cluster.before = {("transaction_rows", reads + n): sets(transactions=[row]) for n, row in enumerate(owners, 1)}
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
    cluster = fence_cluster(**OVERDUE)
    plan = fence_plan(cluster)
    cluster.transactions = [transaction(epoch=1, state="PrepareAbort")]

    def cancelled() -> None:
        raise ActionFailed("The action was cancelled.", effect="written", do="")

    with pytest.raises(ActionFailed, match="The action was cancelled"):
        plan.verify(check=cancelled)


# A commit: what is sent, what comes back, and whether it was committed


PRODUCER_FENCED, INVALID_STATE, UNKNOWN, OLD_EPOCH, OTHER_ID = 90, 48, -1, 47, 49


def owner(producer_id: int = 7, **more: Any) -> Row:
    return {**transaction(producer_id, **more), "transactional_id": NAME}


@dataclass
class CommitCluster(RowCluster):
    """A coordinator answers EndTxn by these error codes, the last one again and again; without one, it commits."""

    answers: Sequence[int] = (NONE,)
    commits: bool = True
    timeout: float = 0.5

    def send_one(self, request: Any, *, broker_id: int) -> Any:
        self._called("send_one", {"broker_id": broker_id})
        self.sent.append(request)
        code = self.answers[min(len(self.sent), len(self.answers)) - 1]
        if code == NONE and self.commits:
            self.transactions = [owner(state="CompleteCommit", on=())]
            self.producers, self.partitions = ENDED, [partition(lso=150)]
        return SimpleNamespace(error_code=code)


@pytest.fixture(autouse=True)
def _checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_actions, "read_checkpoint", lambda _: CHECKPOINT)
    monkeypatch.setattr(coordinator_actions, "first_epoch", lambda _, txn: txn.producer_epoch)
    monkeypatch.setattr(marker_actions, "marker_impact", lambda *_, **__: None)
    received(monkeypatch, 2, 2)


def received(monkeypatch: pytest.MonkeyPatch, checked: int | None, delivered: int | None) -> None:
    """What a read_committed consumer looks for, and receives."""

    def read(cluster: object, txn: PlannedTransaction, done: PartitionResult, *_: object) -> PartitionResult:
        return replace(done, records_checked=checked, records_delivered=delivered)

    monkeypatch.setattr(coordinator_actions, "delivered", read)


CHECKPOINT = checkpoint(Committable(NAME, 7, 0, 5), Committable("tx-1-5", 9, 0, 6))


def commit_cluster(**more: Any) -> CommitCluster:
    prepared = found(verdict=Verdict.PREPARED, action="commit", transactional_id=NAME).row()
    defaults: dict[str, Any] = {"transactions": [owner()], "findings": [prepared], "flink_checkpoints": [CHECKPOINT]}
    return CommitCluster(**defaults | more)


def commit_plan(cluster: CommitCluster) -> Plan:
    connected: Any = cluster
    return plan_commit(connected, NAME)


def test_what_is_sent_and_read_back(audit: Audit) -> None:
    cluster = commit_cluster()
    done = execute(commit_plan(cluster))
    (request,) = cluster.sent
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == (NAME, 7, 0)
    assert request.committed is True
    assert request._max_version == 4, "a newer version raises the epoch that Flink looks for"
    assert ("send_one", {"broker_id": 3}) in cluster.arguments
    (moved,) = done.partitions
    assert (moved.last_stable_offset_before, moved.last_stable_offset_after) == (100, 150)
    assert done.owner.state == "CompleteCommit"
    assert (moved.records_checked, moved.records_delivered) == (2, 2)
    intent, outcome = audit.rows()
    assert (intent["action"], intent["verdict"], intent["producer_epoch"]) == ("commit", "prepared", 0)
    assert intent["request"] == f"EndTxn transactional_id={NAME}, producer_id=7, producer_epoch=0, committed=true"
    assert outcome["response"] == "NONE"


@pytest.mark.parametrize(
    ("answers", "effect"),
    [
        ((PRODUCER_FENCED,), "nothing"),
        ((INVALID_STATE,), "nothing"),
        ((DENIED,), "nothing"),
        ((LOADING,), "nothing"),
        ((UNAVAILABLE,), "uncertain"),
        ((NOT_COORDINATOR,), "uncertain"),
        ((OLD_EPOCH,), "nothing"),
        ((OTHER_ID,), "nothing"),
        ((UNKNOWN,), "uncertain"),
        ((CONCURRENT,), "uncertain"),
        ((CONCURRENT, PRODUCER_FENCED), "uncertain"),  # the first one may have been ours
    ],
)
def test_whether_it_was_committed(answers: Sequence[int], effect: str) -> None:
    says = "needs WRITE" if answers == (DENIED,) else r"^(?!.*needs WRITE)"
    assert failure(commit_plan(commit_cluster(answers=answers)), f"(?s){says}")[0] == effect


def test_a_later_transaction_than_the_one_that_was_confirmed_is_not_committed() -> None:
    """The fresh check was of whatever had the checkpoint's epoch by then; a fence compares with its plan."""
    cluster = commit_cluster()
    plan = commit_plan(cluster)
    cluster.transactions = [owner(start_time=ago(seconds=1))]
    assert "changed since it was planned: its start_time is" in refusal(plan)


@pytest.mark.parametrize(
    "later", [{"start_time": ago(seconds=1)}, {"on": [("orders", 0), ("orders", 1)]}], ids=["another", "has grown"]
)
def test_a_later_transaction_of_the_same_epoch_is_not_committed(later: dict[str, Any]) -> None:
    """Transactions of version 1 share an epoch; and what joined since the check was decided by nobody."""
    planned = commit_cluster()
    commit_plan(planned)
    guard = "transaction_rows", 2 * planned.calls["transaction_rows"] + 1
    cluster = commit_cluster(before={guard: sets(transactions=[owner(**later)])})
    assert "changed since it was planned" in refusal(commit_plan(cluster))


@pytest.mark.parametrize(
    "later", [{"start_time": ago(seconds=1)}, {"state": "Empty", "on": ()}, {"state": "CompleteAbort", "on": ()}]
)
def test_a_commit_is_one_though_its_client_has_gone_on_by_now(
    later: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the end of a later one until the time-out, and said `Ongoing, not committed`; or `Empty, not
    committed`, once its job was restored.
    """
    monkeypatch.setattr("toolkit.actions.coordinator_actions.POLL_S", 60)
    planned = commit_cluster()
    execute(commit_plan(planned))
    goes_on = sets(transactions=[owner(epoch=1, **later)])
    done = execute(
        commit_plan(commit_cluster(before={("transaction_rows", planned.calls["transaction_rows"]): goes_on}))
    )
    assert (done.owner.state, len(done.partitions)) == (later.get("state", "Ongoing"), 1)


def test_a_commit_whose_marker_is_missing_is_an_error() -> None:
    """The coordinator has committed it, and a partition has it open still: read_committed consumers wait."""
    cluster = commit_cluster(before={("transaction_rows", 5): sets(producers=ALIVE)})
    assert failure(commit_plan(cluster), "is still open: no marker has ended it") == ("written", 1)


PREPARED, COMMITTED = (sets(transactions=[owner(state=f"{each}Commit", on=())]) for each in ("Prepare", "Complete"))


@pytest.mark.parametrize(
    ("then", "state"),
    [({}, "PrepareCommit"), ({("transaction_rows", 6): COMMITTED}, "CompleteCommit")],
    ids=["up to its time-out", "until they are written"],
)
def test_a_commit_waits_for_its_markers(then: dict[Any, Any], state: str) -> None:
    """The coordinator says PrepareCommit until all of them are written; on their way, they are committed, too."""
    cluster = commit_cluster(before={("transaction_rows", 5): PREPARED, **then}, timeout=60.0 if then else 0.5)
    assert execute(commit_plan(cluster)).owner.state == state
    assert not then or cluster.calls["transaction_rows"] == 6


def test_a_coordinator_that_does_not_commit_is_an_error() -> None:
    assert failure(commit_plan(commit_cluster(commits=False)), "is Ongoing, not committed") == ("written", 1)


def test_records_that_nobody_receives_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    received(monkeypatch, 2, 1)
    assert failure(commit_plan(commit_cluster()), "received 1 of 2 records of orders-0@100")[1] == 1


def test_records_behind_another_transaction_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    received(monkeypatch, None, None)
    (moved,) = execute(commit_plan(commit_cluster())).partitions
    assert (moved.records_checked, moved.records_delivered) == (None, None)


@pytest.mark.parametrize(
    "now", [owner(epoch=1), owner(8), owner(state="PrepareAbort")], ids=["epoch", "producer id", "state"]
)
@pytest.mark.parametrize("call", [2, 3], ids=["before the fresh check", "right before the request"])
def test_nothing_is_sent_once_the_coordinator_has_another_state(now: Row, call: int, audit: Audit) -> None:
    refusal(commit_plan(commit_cluster(before={("transaction_rows", call): sets(transactions=[now])})))
    assert audit.rows()[-1]["step"] == ("refused" if call == 2 else "outcome")


@pytest.mark.parametrize(("first", "why"), [(0, None), (1, "epoch 1 wrote the first"), (None, "none is left")])
def test_records_of_two_epochs_and_of_none_are_not_committed(
    first: int | None, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One marker ends everything that is open."""

    def open_batches(*_: object, producer_id: int, start_offset: int, last: LastBatch) -> Iterator[SimpleNamespace]:
        assert (producer_id, start_offset, last) == (7, 100, LastBatch(0, 3))
        yield from [] if first is None else [SimpleNamespace(producer_epoch=first), SimpleNamespace(producer_epoch=9)]

    monkeypatch.setattr(transaction_module, "open_batches", open_batches)
    monkeypatch.setattr(coordinator_actions, "first_epoch", transaction_module.first_epoch)
    if why is None:
        assert commit_plan(commit_cluster()).transactions
        return
    with pytest.raises(ActionRefused, match=rf"are not all of epoch 0: .*{why}.*Nothing was sent.*read_uncommitted"):
        commit_plan(commit_cluster())


def test_every_partition_of_the_transaction_is_checked_and_nothing_else() -> None:
    """Another producer's open transaction on one of them decides nothing."""
    cluster = commit_cluster(transactions=[owner(on=(("orders", 1), ("orders", 0)))])
    other = found(producer_id=8, verdict=Verdict.HANGING, start_offset=90)
    cluster.findings = [*cluster.findings, other.row()]
    (planned,) = commit_plan(cluster).transactions
    assert (planned.topic, planned.partition, planned.start_offset) == ("orders", 0, 100)
    assert (planned.producer_id, planned.producer_epoch) == (7, 0)
    (checked,) = [arguments["partitions"] for method, arguments in cluster.arguments if method == "finding_rows"]
    assert checked == [("orders", 0), ("orders", 1)]


@pytest.mark.parametrize(("producer_id", "epoch", "number", "start"), [(7, 2, 3, 100), (0, 0, 0, 0)])
def test_the_plan_has_the_numbers_of_its_finding(
    monkeypatch: pytest.MonkeyPatch, producer_id: int, epoch: int, number: int, start: int
) -> None:
    """Those that the records are counted by, and that the read-back looks for."""
    own = replace(CHECKPOINT, committables=(Committable(NAME, producer_id, epoch, 5),))
    monkeypatch.setattr(coordinator_actions, "read_checkpoint", lambda _: own)
    numbers = {"partition": number, "producer_id": producer_id, "producer_epoch": epoch, "start_offset": start}
    cluster = commit_cluster(
        flink_checkpoints=[own],
        transactions=[owner(producer_id, epoch=epoch, on=(("orders", number),))],
        producers=[producer(producer_id, epoch=epoch, start=start, partition=number)],
        partitions=[partition(number=number)],
        findings=[found(verdict=Verdict.PREPARED, action="commit", **numbers).row()],
    )
    (planned,) = commit_plan(cluster).transactions
    assert {name: getattr(planned, name) for name in numbers} == numbers
    assert planned.topic == "orders"
    assert planned.last == LastBatch(epoch, 3)
    requested = [arguments for method, arguments in cluster.arguments if method == "producer_rows"]
    assert [each["partitions"] for each in requested] == [[("orders", number)]]


def test_a_checkpoint_that_no_longer_has_the_transaction_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an earlier one has it: the last one decides."""
    newer = replace(CHECKPOINT, path=Path("/checkpoints/chk-6/_metadata"), checkpoint_id=6)
    emptied = replace(newer, committables=())
    read = {CHECKPOINT.path: CHECKPOINT, newer.path: emptied}
    monkeypatch.setattr(coordinator_actions, "read_checkpoint", read.__getitem__)
    with pytest.raises(NotFound, match=r"checkpoint 5 .*, checkpoint 6 .* has no transaction of 'tx-0-5' to commit"):
        commit_plan(commit_cluster(flink_checkpoints=[CHECKPOINT, newer]))
    assert commit_plan(commit_cluster(flink_checkpoints=[CHECKPOINT, emptied])).checkpoint == CHECKPOINT
    with pytest.raises(NotFound, match="The empty list of checkpoints has no transaction"):
        commit_plan(commit_cluster(flink_checkpoints=[]))


def test_what_another_job_of_the_prefix_may_have_written_again_is_not_committed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was restored from an earlier checkpoint: a commit would make the same records visible twice."""
    own = replace(CHECKPOINT, path=tmp_path / ("1" * 32) / "chk-5" / "_metadata")
    own.path.parent.mkdir(parents=True)
    monkeypatch.setattr(coordinator_actions, "read_checkpoint", lambda _: own)
    assert commit_plan(commit_cluster()).checkpoint == own
    write_checkpoint(tmp_path / ("2" * 32), 6, [], prefix="tx")
    with pytest.raises(ActionRefused, match=r"Another job of the prefix has checkpoint 6 .*wrote these records again"):
        commit_plan(commit_cluster())


@pytest.mark.parametrize(
    ("state", "means"), [("PrepareAbort", "cannot be committed any more"), ("CompleteCommit", "is committed already")]
)
def test_a_refusal_names_the_end(state: str, means: str) -> None:
    with pytest.raises(ActionRefused, match=means):
        commit_plan(commit_cluster(transactions=[owner(state=state)]))


def is_written_again(cluster: CommitCluster, path: Path) -> None:
    cluster.transactions = [owner(epoch=1)]
    (path / "_metadata").unlink()
    path.rmdir()
    write_checkpoint(path.parent, 5, [Committable(NAME, 7, 1, 5)], prefix="tx")


def is_a_savepoint(cluster: CommitCluster, path: Path) -> None:
    (path / "_metadata").write_bytes((path / "_metadata").read_bytes() + SAVEPOINT)


def is_older_than_another(cluster: CommitCluster, path: Path) -> None:
    write_checkpoint(path.parent, 6, [], prefix="tx")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (is_written_again, "changed since it was planned: the checkpoint says"),
        (is_a_savepoint, "commits .* only in a job that is restored from it"),
        (is_older_than_another, "chk-6 is complete and newer than checkpoint 5"),
    ],
)
def test_a_checkpoint_that_does_not_decide_any_more_commits_nothing(
    change: Callable[[CommitCluster, Path], None],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    audit: Audit,
) -> None:
    monkeypatch.setattr(coordinator_actions, "read_checkpoint", read_checkpoint)
    path = write_checkpoint(tmp_path, 5, [Committable(NAME, 7, 0, 5)], prefix="tx")
    cluster = commit_cluster(flink_checkpoints=[read_checkpoint(path)])
    plan = commit_plan(cluster)
    change(cluster, path)
    assert re.search(why, refusal(plan))
    assert [row["step"] for row in audit.rows()] == ["refused"]
