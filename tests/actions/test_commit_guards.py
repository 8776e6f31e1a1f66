"""Each guard of a commit alone, on prepared rows: what is sent, what comes back, and whether it was committed."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.actions.rows import ALIVE, ENDED, NO_ANSWER, RowCluster, found, partition, producer, transaction
from tests.formats.flink_bytes import write_checkpoint
from toolkit.actions import coordinator_actions, marker_actions
from toolkit.actions import transaction as transaction_module
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import plan_commit
from toolkit.actions.plan import Plan
from toolkit.actions.transaction import PartitionResult, PlannedTransaction
from toolkit.errors import ActionFailed, ActionRefused, NotFound
from toolkit.formats.flink_checkpoint import Committable, FlinkCheckpoint
from toolkit.schema import Row
from toolkit.schema.verdict import Verdict
from toolkit.sources.live.coordinator_logs import LastBatch

NAME = "tx-0-5"
NONE, LOADING, CONCURRENT, FENCED, INVALID_STATE, DENIED, UNKNOWN = 0, 14, 51, 90, 48, 53, -1
NOT_AVAILABLE, NOT_COORDINATOR, OLD_EPOCH, OTHER_ID = 15, 16, 47, 49


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
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_coordinators(client: object, keys: list[str], key_type: int) -> list[Any]:
        assert (keys, key_type) == ([NAME], 1)
        return [(SimpleNamespace(error_text=None), SimpleNamespace(error_code=0, node_id=3))]

    monkeypatch.setattr(coordinator_actions, "find_coordinators", find_coordinators)
    monkeypatch.setattr(coordinator_actions, "read_checkpoint", lambda _: CHECKPOINT)
    monkeypatch.setattr(coordinator_actions, "first_epoch", lambda _, txn: txn.producer_epoch)
    monkeypatch.setattr(marker_actions, "marker_impact", lambda *_, **__: None)
    received(monkeypatch, 2, 2)


def received(monkeypatch: pytest.MonkeyPatch, checked: int | None, delivered: int | None) -> None:
    """What a read_committed consumer looks for, and receives."""

    def read(cluster: object, txn: PlannedTransaction, done: PartitionResult, *_: object) -> PartitionResult:
        return replace(done, records_checked=checked, records_delivered=delivered)

    monkeypatch.setattr(coordinator_actions, "delivered", read)


CHECKPOINT = FlinkCheckpoint(
    path=Path("/checkpoints/chk-5/_metadata"),
    checkpoint_id=5,
    committables=(Committable(NAME, 7, 0, 5), Committable("tx-1-5", 9, 0, 6)),
    prefixes=frozenset({"tx"}),
    is_savepoint=False,
)


def cluster_of(**more: Any) -> CommitCluster:
    prepared = found(verdict=Verdict.PREPARED, action="commit", transactional_id=NAME).row()
    defaults: dict[str, Any] = {"transactions": [owner()], "findings": [prepared], "flink_checkpoints": [CHECKPOINT]}
    return CommitCluster(**defaults | more)


def plan_of(cluster: CommitCluster) -> Plan:
    connected: Any = cluster
    return plan_commit(connected, NAME)


def state_after(cluster: CommitCluster) -> str | None:
    """The state of the id after its commit."""
    now = plan_of(cluster).execute(confirm=NAME).owner
    assert now is not None
    return now.state


def test_what_is_sent_and_read_back(audit: Audit) -> None:
    cluster = cluster_of()
    done = plan_of(cluster).execute(confirm=NAME)
    (request,) = cluster.sent
    assert (request.transactional_id, request.producer_id, request.producer_epoch, request.committed) == (
        *(NAME, 7, 0),
        True,
    )
    assert request._max_version == 4, "a newer version raises the epoch that Flink looks for"
    assert ("send_one", {"broker_id": 3}) in cluster.arguments
    (moved,) = done.partitions
    assert done.owner is not None
    assert (done.owner.state, moved.last_stable_offset_before, moved.last_stable_offset_after) == (
        "CompleteCommit",
        100,
        150,
    )
    assert (moved.records_checked, moved.records_delivered) == (2, 2)
    intent, outcome = audit.rows()
    assert (intent["action"], intent["verdict"], intent["producer_epoch"]) == ("commit", "prepared", 0)
    assert intent["request"] == f"EndTxn transactional_id={NAME}, producer_id=7, producer_epoch=0, committed=true"
    assert outcome["response"] == "NONE"


@pytest.mark.parametrize("passing", [LOADING, CONCURRENT])
def test_what_passes_by_itself_is_tried_again(passing: int) -> None:
    cluster = cluster_of(answers=(passing, NONE))
    assert state_after(cluster) == "CompleteCommit"
    assert len(cluster.sent) == 2


@pytest.mark.parametrize(
    ("answers", "effect"),
    [
        ((FENCED,), "nothing"),
        ((INVALID_STATE,), "nothing"),
        ((DENIED,), "nothing"),
        ((LOADING,), "nothing"),
        ((NOT_AVAILABLE,), "nothing"),
        ((NOT_COORDINATOR,), "nothing"),
        ((OLD_EPOCH,), "nothing"),
        ((OTHER_ID,), "nothing"),
        ((UNKNOWN,), "uncertain"),
        ((CONCURRENT,), "uncertain"),
        ((CONCURRENT, FENCED), "uncertain"),  # the first one may have been ours
    ],
)
def test_whether_it_was_committed(answers: Sequence[int], effect: str) -> None:
    with pytest.raises(ActionFailed) as failed:
        plan_of(cluster_of(answers=answers)).execute(confirm=NAME)
    assert failed.value.effect == effect
    assert ("needs WRITE" in str(failed.value)) == (answers == (DENIED,))


def test_without_an_answer_it_is_uncertain() -> None:
    def fail(_: RowCluster) -> None:
        raise NO_ANSWER

    with pytest.raises(ActionFailed, match=r"(?s)uncertain whether .* was committed.*\nkafka-txn describe") as failed:
        plan_of(cluster_of(before={("send_one", 1): fail})).execute(confirm=NAME)
    assert failed.value.effect == "uncertain"


def test_a_coordinator_that_is_not_found_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of()
    plan = plan_of(cluster)
    monkeypatch.setattr(coordinator_actions, "coordinator_of", lambda *_: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: no")
    with pytest.raises(ActionFailed, match=r"refused to commit 'tx-0-5': TRANSACTIONAL_ID_AUTH") as failed:
        plan.execute(confirm=NAME)
    assert (failed.value.effect, cluster.sent) == ("nothing", [])


def test_a_commit_whose_marker_is_missing_is_an_error() -> None:
    """The coordinator has committed it, and a partition has it open still: read_committed consumers wait."""

    def without_marker(cluster: RowCluster) -> None:
        cluster.producers = ALIVE

    with pytest.raises(ActionFailed, match="is still open: no marker has ended it") as failed:
        plan_of(cluster_of(before={("transaction_rows", 4): without_marker})).execute(confirm=NAME)
    assert failed.value.effect == "written"


def test_a_commit_whose_markers_are_on_their_way_is_committed() -> None:
    def prepared(cluster: RowCluster) -> None:
        cluster.transactions = [owner(state="PrepareCommit")]

    assert state_after(cluster_of(before={("transaction_rows", 4): prepared})) == "PrepareCommit"


def test_a_coordinator_that_does_not_commit_is_an_error() -> None:
    with pytest.raises(ActionFailed, match="is Ongoing, not committed") as failed:
        plan_of(cluster_of(commits=False)).execute(confirm=NAME)
    assert failed.value.effect == "written"


def test_records_that_nobody_receives_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    received(monkeypatch, 2, 1)
    with pytest.raises(ActionFailed, match="received 1 of 2 records of orders-0@100"):
        plan_of(cluster_of()).execute(confirm=NAME)


def test_records_behind_another_transaction_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    received(monkeypatch, None, None)
    (moved,) = plan_of(cluster_of()).execute(confirm=NAME).partitions
    assert (moved.records_checked, moved.records_delivered) == (None, None)


CHANGES: dict[str, Callable[[RowCluster], None]] = {
    "epoch": lambda cluster: setattr(cluster, "transactions", [owner(epoch=1)]),
    "producer id": lambda cluster: setattr(cluster, "transactions", [owner(8)]),
    "state": lambda cluster: setattr(cluster, "transactions", [owner(state="PrepareAbort")]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("call", [2, 3], ids=["before the fresh check", "right before the request"])
def test_nothing_is_sent_once_the_coordinator_has_another_state(change: str, call: int, audit: Audit) -> None:
    cluster = cluster_of(before={("transaction_rows", call): CHANGES[change]})
    with pytest.raises(ActionRefused, match="Nothing was sent"):
        plan_of(cluster).execute(confirm=NAME)
    assert cluster.sent == []
    assert audit.rows()[-1]["step"] == ("refused" if call == 2 else "outcome")


@pytest.mark.parametrize(
    "other",
    [
        found(verdict=Verdict.ONGOING, action=None, reason="its first batch has a dead epoch"),
        found(
            verdict=Verdict.UNKNOWN, action=None, producer_id=None, error="NOT_LEADER: x", reason="it cannot be read"
        ),
    ],
)
def test_a_partition_with_other_records_is_not_committed(other: Any) -> None:
    cluster = cluster_of()
    cluster.findings = [*cluster.findings, other.row()]
    with pytest.raises(ActionRefused, match=f"orders-0 is {other.verdict}: {other.reason}"):
        plan_of(cluster)


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
        assert plan_of(cluster_of()).transactions
        return
    with pytest.raises(ActionRefused, match=rf"are not all of epoch 0: .*{why}.*Nothing was sent"):
        plan_of(cluster_of())


def test_every_partition_of_the_transaction_is_checked_and_nothing_else() -> None:
    """Another producer's open transaction on one of them decides nothing."""
    cluster = cluster_of(transactions=[owner(on=(("orders", 1), ("orders", 0)))])
    other = found(producer_id=8, verdict=Verdict.HANGING, start_offset=90)
    cluster.findings = [*cluster.findings, other.row()]
    (planned,) = plan_of(cluster).transactions
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
    cluster = cluster_of(
        flink_checkpoints=[own],
        transactions=[owner(producer_id, epoch=epoch, on=(("orders", number),))],
        producers=[producer(producer_id, epoch=epoch, start=start, partition=number)],
        partitions=[partition(number=number)],
        findings=[found(verdict=Verdict.PREPARED, action="commit", **numbers).row()],
    )
    (planned,) = plan_of(cluster).transactions
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
        plan_of(cluster_of(flink_checkpoints=[CHECKPOINT, newer]))
    assert plan_of(cluster_of(flink_checkpoints=[CHECKPOINT, emptied])).checkpoint == CHECKPOINT
    with pytest.raises(NotFound, match="The empty list of checkpoints has no transaction"):
        plan_of(cluster_of(flink_checkpoints=[]))


def test_what_a_later_checkpoint_is_to_commit_is_left_to_it() -> None:
    connected: Any = cluster_of()
    with pytest.raises(ActionRefused, match="leaves 'tx-1-5' to checkpoint 6"):
        plan_commit(connected, "tx-1-5")


def test_what_another_job_of_the_prefix_may_have_written_again_is_not_committed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was restored from an earlier checkpoint: a commit would make the same records visible twice."""
    own = replace(CHECKPOINT, path=tmp_path / ("1" * 32) / "chk-5" / "_metadata")
    own.path.parent.mkdir(parents=True)
    monkeypatch.setattr(coordinator_actions, "read_checkpoint", lambda _: own)
    assert plan_of(cluster_of()).checkpoint == own
    write_checkpoint(tmp_path / ("2" * 32), 6, [], prefix="tx")
    with pytest.raises(ActionRefused, match=r"Another job of the prefix has checkpoint 6 .*wrote these records again"):
        plan_of(cluster_of())


def test_a_commit_can_be_cancelled() -> None:
    cancelled = threading.Event()
    cancelled.set()
    cluster = cluster_of()
    with pytest.raises(ActionRefused, match="cancelled"):
        plan_of(cluster).execute(confirm=NAME, cancel=cancelled)
    assert cluster.sent == []


def test_a_commit_can_be_cancelled_between_two_requests() -> None:
    cancelled = threading.Event()
    cluster = cluster_of(answers=(LOADING,), before={("send_one", 1): lambda _: cancelled.set()}, timeout=60.0)
    with pytest.raises(ActionFailed, match="cancelled"):
        plan_of(cluster).execute(confirm=NAME, cancel=cancelled)
    assert len(cluster.sent) == 1


def test_a_commit_is_written_down_in_the_named_file(tmp_path: Path, audit: Audit) -> None:
    own = Audit(tmp_path / "own.jsonl")
    plan_of(cluster_of()).execute(confirm=NAME, audit=own)
    assert ([row["step"] for row in own.rows()], audit.rows()) == (["intent", "outcome"], [])


@pytest.mark.parametrize(
    ("state", "means"), [("PrepareAbort", "cannot be committed any more"), ("CompleteCommit", "is committed already")]
)
def test_a_refusal_names_the_end(state: str, means: str) -> None:
    with pytest.raises(ActionRefused, match=means):
        plan_of(cluster_of(transactions=[owner(state=state)]))


def test_a_commit_needs_its_own_name() -> None:
    cluster = cluster_of()
    with pytest.raises(ActionRefused, match=r"does not name 'tx-0-5'\. Nothing was sent"):
        plan_of(cluster).execute(confirm="tx-0-6")
    assert cluster.sent == []


def test_a_checkpoint_that_was_written_again_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of()
    plan = plan_of(cluster)
    cluster.transactions = [owner(epoch=1)]
    other = replace(CHECKPOINT, committables=(Committable(NAME, 7, 1, 5),))
    monkeypatch.setattr(coordinator_actions, "read_checkpoint", lambda _: other)
    with pytest.raises(ActionRefused, match="changed since it was planned: the checkpoint says"):
        plan.execute(confirm=NAME)
    assert cluster.sent == []


def test_a_commit_waits_for_its_markers() -> None:
    """The coordinator says PrepareCommit until all of them are written."""

    def prepared(cluster: RowCluster) -> None:
        cluster.transactions = [owner(state="PrepareCommit")]

    def complete(cluster: RowCluster) -> None:
        cluster.transactions = [owner(state="CompleteCommit", on=())]

    cluster = cluster_of(before={("transaction_rows", 4): prepared, ("transaction_rows", 5): complete}, timeout=60.0)
    assert state_after(cluster) == "CompleteCommit"
    assert cluster.calls["transaction_rows"] == 5
