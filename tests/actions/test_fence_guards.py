"""Each guard of a fence alone, on prepared rows: whom it may end, and whether it was sent."""

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.actions.rows import NO_ANSWER, RowCluster, transaction
from tests.analysis.build import NOW, ago, clock
from toolkit.actions import coordinator_requests
from toolkit.actions.audit import Audit
from toolkit.actions.fence import (
    AT_LAST_EPOCH,
    FENCED,
    FLINK,
    LOST,
    MEANINGS,
    NOT_CHECKPOINTED,
    OF_CONNECT_LEADER,
    FencePlan,
    plan_fence,
)
from toolkit.analysis.diagnosis.clocks import CLOCKS_DIFFER, TIMEOUT_GRACE, BrokersTime
from toolkit.analysis.diagnosis.verdicts import Outcome
from toolkit.errors import ActionFailed, ActionRefused, BrokerError, NotFound
from toolkit.formats.flink_checkpoint import Committable, FlinkCheckpoint
from toolkit.schema import Row

NONE, CONCURRENT, LOADING, NOT_COORDINATOR, UNAVAILABLE, DENIED, INVALID, TIMED_OUT = 0, 51, 14, 16, 15, 53, 42, 7
OVERDUE: dict[str, Any] = {"start_time": ago(minutes=5)}


@dataclass
class FenceCluster(RowCluster):
    """Coordinators answer InitProducerId by these error codes, the last one again and again; without one, it fences."""

    answers: Sequence[int] = (NONE,)
    coordinator_error: int = 0
    fences: bool = True
    outcomes: dict[Any, Outcome] = field(default_factory=dict)
    timeout: float = 5.0
    clock: BrokersTime = field(default_factory=lambda: clock(NOW))

    def brokers_time(self) -> BrokersTime:
        return self.clock

    def producer_outcomes(self, *_: object) -> dict[Any, Outcome]:
        return self.outcomes

    def send_one(self, request: Any, *, broker_id: int) -> Any:
        self._called("send_one", {"broker_id": broker_id})
        self.sent.append(request)
        code = self.answers[min(len(self.sent), len(self.answers)) - 1]
        if code == NONE and self.fences:
            (row,) = self.transactions
            self.transactions = [transaction(epoch=row["producer_epoch"] + 2, state="CompleteAbort", on=())]
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=2)


@pytest.fixture(autouse=True)
def _coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_coordinators(client: FenceCluster, keys: list[str], key_type: int) -> list[Any]:
        assert (keys, key_type) == (["payments-7"], 1)
        found = SimpleNamespace(error_code=client.coordinator_error, node_id=3)
        return [(SimpleNamespace(error_text=None), found)]

    monkeypatch.setattr(coordinator_requests, "find_coordinators", find_coordinators)


def cluster_of(**owner: Any) -> FenceCluster:
    return FenceCluster(transactions=[transaction(**owner)])


def plan_of(cluster: FenceCluster, **more: Any) -> FencePlan:
    connected: Any = cluster
    return plan_fence(connected, "payments-7", **more)


def execute(plan: FencePlan, **more: Any) -> Any:
    return plan.execute(confirm="payments-7", **more)


def refusal(plan: FencePlan, **more: Any) -> str:
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
    assert (done.producer_epoch_before, done.producer_epoch, done.state, done.still_open) == (0, 2, "CompleteAbort", [])
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
    execute(plan_of(cluster_of(state="CompleteCommit", on=())))
    named = {entry["name"]: entry["value"] for entry in audit.rows()[0]["evidence"]}
    assert (named["state"], named.get("start_time")) == ("CompleteCommit", None)


VERDICTS: dict[str, tuple[Row, str]] = {
    "overdue": (transaction(**OVERDUE), ""),
    "idle": (transaction(state="CompleteCommit", on=()), ""),
    "ongoing": (transaction(), "ongoing"),
    "long": (transaction(start_time=ago(minutes=20), timeout_ms=3_600_000), "long"),
    "prepared": (transaction(start_time=ago(days=30), timeout_ms=2**31 - 1), "prepared"),
    "decided": (transaction(state="PrepareCommit"), "never"),
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_whom_a_fence_may_end(verdict: str) -> None:
    """A live owner only by its own name, a decided one by none, and one that is safe by no override at all."""
    row, needed = VERDICTS[verdict]
    plan = plan_of(FenceCluster(transactions=[row]))
    assert plan.verdict == verdict
    assert (plan.refusal is None, plan.needed_override) == (
        needed == "",
        needed if needed not in {"", "never"} else None,
    )
    for override in (None, *VERDICTS):
        if override == (needed or None):
            assert plan.preflight(override=override)["producer_id"] == 7
            continue
        why = refusal(plan, override=override)
        assert (
            f"is {verdict} now{'' if override in {None, verdict} else f', not {override}'}. {MEANINGS[verdict]}" in why
        )
        assert ("To fence it anyway" in why) is (needed not in {"", "never"})


def test_what_a_fence_warns_of() -> None:
    warnings = {name: plan_of(FenceCluster(transactions=[row])).warnings for name, (row, _) in VERDICTS.items()}
    assert warnings["idle"] == (FENCED,)
    assert warnings["decided"] == (MEANINGS["decided"], FENCED)
    assert warnings["ongoing"] == warnings["overdue"] == (LOST, FENCED)
    assert plan_of(cluster_of(epoch=32767)).warnings == (AT_LAST_EPOCH, LOST, FENCED)
    assert plan_of(cluster_of(epoch=32767, state="CompleteAbort", on=())).warnings == (FENCED,)


def named(transactional_id: str, **owner: Any) -> Row:
    return {**transaction(**owner), "transactional_id": transactional_id}


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
    assert plan.flink_warning == FLINK
    cluster.flink_checkpoints = [checkpoint()]
    plan = plan_fence(cluster, "tx-0-5")
    assert plan.warnings == (f"Its checkpoint 5 (/checkpoints/chk-5) {NOT_CHECKPOINTED}", LOST, FENCED)
    assert plan.flink_warning is None
    cluster.flink_checkpoints = [replace(checkpoint(), others=1)]
    assert plan_fence(cluster, "tx-0-5").flink_warning == FLINK, "it may have what was not read"
    cluster.flink_checkpoints = [checkpoint(prefix="other")]
    assert plan_fence(cluster, "tx-0-5").flink_warning == FLINK


@pytest.mark.parametrize("owner", [OVERDUE, {}])
def test_what_a_checkpoint_is_to_commit_is_never_fenced(owner: dict[str, Any]) -> None:
    cluster: Any = FenceCluster(transactions=[named("tx-0-5", **owner)])
    cluster.flink_checkpoints = [checkpoint(Committable("tx-0-5", 7, 0, 5))]
    plan = plan_fence(cluster, "tx-0-5")
    assert (plan.verdict, plan.needed_override) == ("checkpointed", None)
    assert plan.warnings == (MEANINGS["checkpointed"], FENCED)
    for override in (None, "checkpointed", "ongoing", "overdue"):
        with pytest.raises(
            ActionRefused, match=r"checkpointed now.*\(checkpoint 5 \(/checkpoints/chk-5\)\)\. A completed"
        ):
            plan.execute(confirm="tx-0-5", override=override)
    assert cluster.sent == []


@pytest.mark.parametrize(
    "committable", [Committable("tx-0-5", 7, 1, 5), Committable("tx-0-5", 8, 0, 5), Committable("tx-0-4", 7, 0, 5)]
)
def test_another_transaction_of_a_checkpoint_protects_nothing(committable: Committable) -> None:
    cluster: Any = FenceCluster(transactions=[named("tx-0-5", **OVERDUE)])
    cluster.flink_checkpoints = [checkpoint(committable)]
    assert plan_fence(cluster, "tx-0-5").verdict == "overdue"


def test_what_a_checkpoint_has_committed_already_is_idle() -> None:
    cluster: Any = FenceCluster(transactions=[named("tx-0-5", state="CompleteCommit", on=())])
    cluster.flink_checkpoints = [checkpoint(Committable("tx-0-5", 7, 0, 5))]
    plan = plan_fence(cluster, "tx-0-5")
    assert plan.verdict == "idle"
    with pytest.raises(ActionRefused, match=r"is idle now, not checkpointed\. "):  # it names no checkpoint
        plan.execute(confirm="tx-0-5", override="checkpointed")


def test_the_equal_line_of_kafkas_own_tool() -> None:
    tool = "kafka-transactions.sh --bootstrap-server one:9092 forceTerminateTransaction --transactionalId payments-7"
    assert plan_of(cluster_of()).command == tool
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


def test_committed_records_under_an_open_transaction_are_never_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ABORT marker would end them, too."""
    cluster = cluster_of(**OVERDUE)
    plan = plan_of(cluster)
    cluster.outcomes = {("orders", 0): Outcome(name="commit", reason="")}
    for override in (None, "overdue", "committed", "ongoing"):
        assert "is committed now" in refusal(plan, override=override)
    committed = plan_of(cluster)
    assert (committed.verdict, committed.needed_override) == ("committed", None)
    assert committed.warnings == (MEANINGS["committed"], FENCED)
    cluster.outcomes = {("orders", 0): Outcome(name="abort", reason="")}
    assert plan_of(cluster).verdict == "overdue"
    both = {("orders", 0): Outcome(name="commit", reason=""), ("orders", 1): Outcome(name="undecided", reason="")}
    cluster.outcomes = both
    assert plan_of(cluster).verdict == "committed"
    for nothing in ({"state": "Empty"}, {"on": ()}, {"topic_partitions": None}, {"pid": None}):
        other = cluster_of(**{**OVERDUE, **nothing})
        other.outcomes = both
        assert plan_of(other).verdict in {"idle", "overdue"}

    def deleted(*_: object) -> None:
        raise NotFound("There is no topic orders.")

    monkeypatch.setattr(cluster, "producer_outcomes", deleted)
    unread = plan_of(cluster)
    assert (unread.verdict, unread.needed_override) == (
        "unproven",
        "no commit includes what is open under payments-7",
    ), "or hidden"


PARTLY = Outcome(name="unknown", reason="", is_partly_committed=True, is_partly_free=True)
OF_0, OF_1 = "no commit includes offset 4 of orders-0", "no commit includes offsets from 9 on of orders-1"
NOT_KNOWN = {
    ("orders", 1): Outcome(name="unknown", reason="", offsets="offsets from 9 on of orders-1"),
    ("orders", 0): Outcome(name="unknown", reason="", offsets="offset 4 of orders-0"),
}


def test_records_that_are_committed_in_part_are_never_discarded() -> None:
    cluster = cluster_of(**OVERDUE)
    cluster.outcomes = {**NOT_KNOWN, ("orders", 2): PARTLY}
    plan = plan_of(cluster)
    assert (plan.verdict, plan.unproven, plan.needed_override) == ("committed", (), None)
    for override in (None, "committed", OF_0, f"{OF_0}, and {OF_1}"):
        assert "is committed now" in refusal(plan, override=override)


def test_records_that_are_not_proven_to_be_uncommitted_are_discarded_only_by_these_words(audit: Audit) -> None:
    """Of each partition, in their order."""
    cluster = cluster_of(**OVERDUE)
    cluster.outcomes = NOT_KNOWN
    plan = plan_of(cluster)
    assert (plan.verdict, plan.unproven, plan.needed_override) == ("unproven", (OF_0, OF_1), f"{OF_0}, and {OF_1}")
    assert plan.refusal == f"it is unproven. {MEANINGS['unproven']}"
    assert plan.warnings == (LOST, FENCED)
    for override in (
        None,
        "unproven",
        "overdue",
        OF_0,
        OF_1,
        f"{OF_1}, and {OF_0}",
        f"overdue, and {OF_0}, and {OF_1}",
    ):
        why = refusal(plan, override=override)
        assert "is unproven now" in why
        assert f"override {f'{OF_0}, and {OF_1}'!r}, word for word" in why
    cluster.outcomes = {**NOT_KNOWN, ("orders", 1): Outcome(name="undecided", reason="")}
    assert plan.preflight(override=OF_0)["producer_id"] == 7, "what is not proven by the fresh check"
    assert "is unproven now" in refusal(plan, override=f"{OF_0}, and {OF_1}"), "the words of an older check"
    execute(plan, override=OF_0)
    assert len(cluster.sent) == 1
    assert [(row["step"], row["override"]) for row in audit.rows()][-2:] == [("intent", OF_0), ("outcome", OF_0)]


def test_once_everything_is_proven_there_is_nothing_to_override() -> None:
    cluster = cluster_of(**OVERDUE)
    cluster.outcomes = NOT_KNOWN
    plan = plan_of(cluster)
    cluster.outcomes = {("orders", 0): Outcome(name="undecided", reason="")}
    assert "is overdue now, not no commit includes" in refusal(plan, override=OF_0)
    assert plan.preflight()["producer_id"] == 7


@pytest.mark.parametrize("verdict", ["ongoing", "long", "prepared"])
def test_a_live_owner_over_what_is_not_proven_needs_both_words(verdict: str) -> None:
    cluster = FenceCluster(transactions=[VERDICTS[verdict][0]])
    cluster.outcomes = {("orders", 0): NOT_KNOWN["orders", 0]}
    plan, words = plan_of(cluster), f"{verdict}, and {OF_0}"
    assert (plan.verdict, plan.needed_override) == (verdict, words)
    for override in (None, verdict, OF_0, f"{OF_0}, and {verdict}"):
        why = refusal(plan, override=override)
        assert f"is {verdict} now" in why
        assert f"override {words!r}, word for word" in why
    assert plan.preflight(override=words)["producer_id"] == 7


def test_what_is_not_proven_changes_nothing_for_whom_a_fence_never_ends() -> None:
    cluster: Any = FenceCluster(transactions=[named("tx-0-5", **OVERDUE)])
    cluster.outcomes = NOT_KNOWN
    cluster.flink_checkpoints = [checkpoint(Committable("tx-0-5", 7, 0, 5))]
    plan = plan_fence(cluster, "tx-0-5")
    assert (plan.verdict, plan.unproven, plan.needed_override) == ("checkpointed", (), None)
    for verdict in ("decided", "idle"):
        cluster = FenceCluster(transactions=[VERDICTS[verdict][0]])
        cluster.outcomes = NOT_KNOWN
        assert (plan_of(cluster).verdict, plan_of(cluster).needed_override) == (verdict, None)


@pytest.mark.parametrize("read", [1, 2], ids=["by the fresh check", "right before the request"])
@pytest.mark.parametrize(
    "now",
    [
        {"pid": 8, **OVERDUE},
        {"epoch": 1, **OVERDUE},
        {"state": "PrepareAbort", **OVERDUE},
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
    assert execute(plan_of(cluster)).producer_epoch == 2
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
    with pytest.raises(ActionFailed, match=r"It is uncertain whether the id was fenced\. To find out, run") as raised:
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
    assert (done.state, done.still_open, reads) == ("CompleteAbort", [], 3)
    done, _ = reads_back(aborting, timeout=0.05)
    assert (done.state, done.still_open) == ("PrepareAbort", [("orders", 0)]), "markers on their way"
    with pytest.raises(BrokerError, match="is still owned by producer 7 epoch 0, and Ongoing"):
        reads_back(transaction(**OVERDUE))
    done, _ = reads_back(transaction(8, state="Empty", on=()))
    assert (done.producer_id_before, done.producer_id) == (7, 8), "its next producer id, with the same epoch"


def test_a_cancel_ends_the_wait_for_the_markers() -> None:
    cluster = cluster_of(**OVERDUE)
    plan = plan_of(cluster)
    cluster.transactions = [transaction(epoch=1, state="PrepareAbort")]

    def cancelled() -> None:
        raise ActionFailed("The action was cancelled.", effect="written")

    with pytest.raises(ActionFailed, match="The action was cancelled"):
        plan.verify(check=cancelled)
