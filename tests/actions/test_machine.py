"""The machine of every action: several targets, what an audit line says, and rows that are missing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from kafka.protocol.metadata import MetadataResponse

from tests.actions.rows import (
    ENDED,
    IMPACT,
    NO_COMMIT,
    RowCluster,
    abort_plan,
    claims,
    found,
    partition,
    producer,
    transaction,
    unproven,
    with_txn,
)
from tests.analysis.build import NOW
from tests.process import run
from toolkit.actions import marker_actions
from toolkit.actions import plan as plan_module
from toolkit.actions.audit import Audit, is_on
from toolkit.actions.marker_actions import Abort, plan_abort, plan_abort_list
from toolkit.actions.plan import ASSERTED, ListResult, PlanList, Result
from toolkit.actions.transaction import PartitionResult, transaction_at
from toolkit.analysis.diagnosis.decision import PROVEN
from toolkit.cli.action_commands import read_list
from toolkit.cli.options import SourceOptions
from toolkit.errors import ActionFailed, ActionRefused, BrokerError, NotFound
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict
from toolkit.version import __version__
from toolkit.views.action_document import list_result

NUMBERS = (0, 1, 2)
ORDERS_0 = TopicPartition("orders", 0)


class ListCluster(RowCluster):
    """The same transaction on three partitions; each marker ends that on its own."""

    def send_one(self, request: Any, *, broker_id: int) -> Any:
        answer = super().send_one(request, broker_id=broker_id)
        if isinstance(answer, MetadataResponse):
            return answer
        self.partitions, self.producers = self.rows[0], self.rows[1]
        number = request.markers[0].topics[0].partition_indexes[0]
        self.rows = (
            [partition(number=n, lso=150 if n == number else row["last_stable_offset"])
             for n, row in enumerate(self.rows[0])],
            [producer(partition=n, start=None if n == number else row["current_txn_start_offset"])
             for n, row in enumerate(self.rows[1])],
        )  # fmt: skip
        self.partitions, self.producers = self.rows
        return answer

    rows: tuple[Any, Any] = ([partition(number=n) for n in NUMBERS], [producer(partition=n) for n in NUMBERS])


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = SimpleNamespace(path="copy", records=1, discard=lambda: None)
    monkeypatch.setattr(plan_module, "save_records", lambda *_, **__: saved)
    monkeypatch.setattr(marker_actions, "marker_impact", lambda *_, **__: IMPACT)


def list_cluster(**more: Any) -> ListCluster:
    cluster = ListCluster(
        partitions=[partition(number=n) for n in NUMBERS],
        producers=[producer(partition=n) for n in NUMBERS],
        findings=[found(partition=n).row() for n in NUMBERS],
        **more,
    )
    cluster.rows = (list(cluster.partitions), list(cluster.producers))
    return cluster


def plan_of(cluster: ListCluster) -> PlanList:
    connected: Any = cluster
    plans = [with_txn(abort_plan(cluster), partition=n, basis=found(partition=n)) for n in NUMBERS]
    return PlanList(cluster=connected, plans=plans, left_out=[])


def targets(*numbers: int) -> list[str]:
    return [f"orders-{n}@100" for n in numbers]


def test_several_are_checked_again_at_once_and_then_done_one_by_one(audit: Audit) -> None:
    """Each was diagnosed again by itself: 300 took half an hour."""
    cluster = list_cluster()
    done = plan_of(cluster).execute(confirm="3 transactions", recheck_after=0)
    assert ([each.target for each in done.done], done.error) == (targets(0, 1, 2), None)
    (looked,) = [arguments["partitions"] for name, arguments in cluster.arguments if name == "finding_rows"]
    assert looked == [("orders", n) for n in NUMBERS]
    assert [row["step"] for row in audit.rows()] == ["intent", "outcome"] * 3
    assert {row["confirmation"] for row in audit.rows()} == {"3 transactions"}


class QueueCluster(RowCluster):
    """Two of them on one partition: the marker of producer 7 moves the LSO to that of producer 8, at 120."""

    last: ClassVar[int] = 150  # LSO after the marker of producer 8

    def send_one(self, request: Any, *, broker_id: int) -> Any:
        answer = super().send_one(request, broker_id=broker_id)
        if not isinstance(answer, MetadataResponse):
            is_first = request.markers[0].producer_id == 7
            self.partitions = [partition(lso=120 if is_first else self.last)]
            self.producers = [producer(start=None), producer(8, start=120 if is_first else None)]
        return answer


def test_the_second_on_a_partition_moves_the_lso_from_where_the_first_has_left_it(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said, and written down, to have moved it from where the first had held it.

    And where it did not move, that was no surprise, as another one had held it when the list was planned.
    """
    of_second = {"producer_id": 8, "start_offset": 120}
    second = found(queue_position=2, **of_second)
    cluster: Any = QueueCluster(producers=[producer(), producer(8, start=120)], findings=[found().row(), second.row()])
    plans = [abort_plan(cluster), with_txn(abort_plan(cluster), basis=second, **of_second)]
    done = PlanList(cluster=cluster, plans=plans, left_out=[]).execute(confirm="2 transactions", recheck_after=0)
    assert done.error is None
    moved = [(each.result.last_stable_offset_before, each.result.last_stable_offset_after) for each in done.done]
    assert moved == [(100, 120), (120, 150)]
    assert [row["last_stable_offset_before"] for row in audit.rows() if row["step"] == "intent"] == [100, 120]
    monkeypatch.setattr(QueueCluster, "last", 120)
    cluster = QueueCluster(producers=[producer(), producer(8, start=120)], findings=[found().row(), second.row()])
    plans = [abort_plan(cluster), with_txn(abort_plan(cluster), basis=second, **of_second)]
    done = PlanList(cluster=cluster, plans=plans, left_out=[]).execute(confirm="2 transactions", recheck_after=0)
    assert (done.stopped_at, "The LSO of orders-0 is 120, and was 120" in str(done.error)) == ("orders-0@120", True)


def test_a_check_that_has_become_old_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "MAX_CHECK_AGE_S", -1.0)
    cluster = list_cluster()
    plan_of(cluster).execute(confirm="3 transactions", recheck_after=0)
    looked = [arguments["partitions"] for name, arguments in cluster.arguments if name == "finding_rows"]
    assert [len(each) for each in looked] == [3, 3, 2, 1]


def test_what_another_ones_later_check_shows_stops_the_list_before_its_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn of the second took longer than a minute, so all that were left were checked again: the third was live by
    then, and got its marker, as only the second one's new ruling was looked at."""
    cluster = list_cluster()
    live = found(partition=2, verdict=Verdict.ONGOING, action=None)

    def on_turn(plan: Any) -> None:
        is_second = plan.target == targets(1)[0]
        monkeypatch.setattr(plan_module, "MAX_CHECK_AGE_S", -1.0 if is_second else 60.0)
        if is_second:
            cluster.findings = [*cluster.findings[:2], live.row()]

    done = plan_of(cluster).execute(confirm="3 transactions", recheck_after=0, progress=on_turn)
    assert ([each.target for each in done.done], done.stopped_at) == (targets(0, 1), *targets(2))
    assert isinstance(done.error, ActionRefused)
    assert len(cluster.sent) == 2


def test_a_surprise_in_the_common_check_stops_the_list_before_the_first_marker(audit: Audit) -> None:
    cluster = list_cluster()
    plan = plan_of(cluster)
    live = found(partition=2, verdict=Verdict.ONGOING, action=None)
    cluster.findings = [*cluster.findings[:2], live.row()]
    done = plan.execute(confirm="3 transactions", recheck_after=0)
    assert (len(cluster.sent), len(done.done)) == (0, 0)
    assert (done.stopped_at, done.not_tried) == (*targets(2), targets(0, 1))
    assert isinstance(done.error, ActionRefused)
    assert [(row["step"], row["target"]) for row in audit.rows()] == [("refused", *targets(2))]


def test_a_surprise_right_before_a_marker_stops_the_list_there() -> None:
    def resumes(cluster: RowCluster) -> None:
        cluster.transactions = [transaction(on=[("orders", 1)])]

    cluster = list_cluster(before={("transaction_rows", 2): resumes})
    done = plan_of(cluster).execute(confirm="3 transactions", recheck_after=0)
    assert ([each.target for each in done.done], done.stopped_at, done.not_tried) == (
        targets(0),
        *targets(1),
        targets(2),
    )
    assert "is Ongoing on it now" in str(done.error)
    assert len(cluster.sent) == 1


def test_what_frees_most_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a partition in the order of its offsets; a number that is not known may be any."""
    freed: Mapping[tuple[int, int], int | None] = {(0, 100): 5, (1, 100): 1, (1, 120): 9, (2, 100): None}

    def impact(_: object, txn: Any, **__: object) -> Any:
        return replace(IMPACT, records_released=freed[txn.partition, txn.start_offset])

    monkeypatch.setattr(marker_actions, "marker_impact", impact)
    rows = [found(partition=n, start_offset=start) for n, start in freed]
    cluster: Any = RowCluster(
        findings=[each.row() for each in rows],
        partitions=[partition(number=n) for n in NUMBERS],
        producers=[producer(partition=n, start=start) for n, start in freed],
    )
    plan = plan_abort_list(cluster, rows)
    assert [each.target for each in plan.plans] == ["orders-2@100", "orders-1@100", "orders-1@120", "orders-0@100"]


# What an audit line says


def test_a_line_says_which_cluster_as_whom_by_which_version_and_what_was_proven(audit: Audit) -> None:
    """Through port-forwards every cluster is 127.0.0.1."""
    user: Any = SimpleNamespace(principal="ann")
    cluster = RowCluster(findings=[unproven().row()], config=user)
    abort_plan(cluster, unproven()).execute(confirm="orders-0@100", override=NO_COMMIT, recheck_after=0)
    intent, outcome = audit.rows()
    for row in (intent, outcome):
        assert (row["cluster_id"], row["principal"], row["tool_version"]) == ("y49LRH0C", "ann", __version__)
        owned, commit = row["claims"]
        assert (owned["status"], owned["discharged_by"]) == ("proven", "no transactional id has it")
        assert (commit["claim"], commit["status"], commit["discharged_by"]) == (NO_COMMIT, "not proven", ASSERTED)


def test_a_proof_is_named_by_what_the_logs_show(audit: Audit) -> None:
    cluster = RowCluster()
    abort_plan(cluster).execute(confirm="orders-0@100", recheck_after=0)
    assert audit.rows()[0]["claims"][1]["discharged_by"] == "undecided: the coordinators' log"


def test_lines_of_another_cluster_at_the_same_address_are_not_of_this_one() -> None:
    cluster: Any = RowCluster()
    here: Row = {"bootstrap_servers": "one:9092", "cluster_id": "y49LRH0C"}
    assert is_on(cluster, here)
    assert is_on(cluster, {**here, "bootstrap_servers": "two:9092"}), "as it was addressed another time"
    assert not is_on(cluster, {**here, "cluster_id": "other"})
    assert is_on(cluster, {**here, "cluster_id": None}), "a line of an older version"
    assert not is_on(cluster, {"bootstrap_servers": "two:9092", "cluster_id": None})


# An absent row is not an absent thing


UNREAD = (
    found(
        start_offset=None, producer_id=None, verdict=Verdict.UNKNOWN, error="LEADER_NOT_AVAILABLE: none", evidence=[]
    ),
    found(start_offset=None, verdict=Verdict.UNKNOWN, missing=["the right READ"], evidence=[]),
)


@pytest.mark.parametrize("unread", UNREAD, ids=["no leader", "no rights"])
def test_a_transaction_on_a_partition_that_was_not_read_is_not_absent(unread: Any) -> None:
    """An `abort` of a partition without its leader said that it may have ended, and exited with 2."""
    cluster: Any = RowCluster(findings=[unread.row()])
    with pytest.raises(BrokerError, match=r"could not be read: (LEADER|the right).*at offset 100 is not known"):
        transaction_at(cluster, ORDERS_0, start_offset=100)
    for rows in ([], [found(start_offset=90).row()], [{**unread.row(), "partition": 1}]):
        cluster.findings = rows
        with pytest.raises(NotFound, match="no open transaction that starts at offset 100"):
            transaction_at(cluster, ORDERS_0, start_offset=100)
    cluster.findings = [unread.row(), found().row()]
    assert transaction_at(cluster, ORDERS_0, start_offset=100).start_offset == 100


@pytest.mark.parametrize("unread", UNREAD, ids=["no leader", "no rights"])
def test_a_fresh_check_that_reads_nothing_says_that_and_not_that_it_has_ended(unread: Any) -> None:
    cluster = RowCluster()
    plan = abort_plan(cluster)
    cluster.findings = [unread.row()]
    with pytest.raises(BrokerError, match="Whether orders-0@100 is still open is not known"):
        plan.check(recheck_after=0)
    connected: Any = cluster
    (left,) = plan_abort_list(connected, [found()]).left_out
    assert "could not be read" in left.reason


def test_a_deleted_topic_of_a_list_is_left_out_and_the_others_are_planned() -> None:
    """With "The cluster has no topic 'deleted'" none of the list was aborted."""
    cluster: Any = RowCluster()
    plan = plan_abort_list(cluster, [found(), found(topic="deleted"), found(partition=1)])
    assert [each.target for each in plan.plans] == targets(0)
    assert [(each.target, each.reason.partition(":")[0]) for each in plan.left_out] == [
        ("deleted-0@100", "deleted-0 cannot be read"),
        ("orders-1@100", "orders-1 cannot be read"),
    ]
    read = next(arguments for name, arguments in cluster.arguments if name == "finding_rows")
    assert read["partitions"] == [ORDERS_0]


def test_what_was_found_on_another_cluster_is_not_called_ended(tmp_path: Path) -> None:
    """The list of one cluster, on another: each of its transactions was "not open there any more"."""
    cluster: Any = RowCluster()
    own, other = found(cluster_id=cluster.cluster_id), found(cluster_id="other")
    path = tmp_path / "hanging.csv"
    path.write_text("topic,partition,producer_id,start_offset,cluster_id\norders,0,7,100,other\n")
    for plan in (lambda: plan_abort(cluster, other), lambda: plan_abort_list(cluster, [own, other])):
        with pytest.raises(ActionRefused, match=r"found on cluster other is not looked for on this one, y49LRH0C"):
            plan()
    with pytest.raises(ActionRefused, match="found on cluster other"):
        plan_abort_list(cluster, read_list(path))
    path.write_text("topic,partition,producer_id,start_offset\norders,0,7,100\n")
    assert len(plan_abort_list(cluster, read_list(path)).plans) == len(plan_abort_list(cluster, [own]).plans) == 1


def test_claims_that_are_not_in_a_finding_are_not_proven() -> None:
    """A finding of its verdict alone justifies no marker."""
    bare = found(evidence=claims("missing", "missing", "missing"))
    cluster = RowCluster(findings=[bare.row()])
    with pytest.raises(ActionRefused, match="it is not proven that nobody owns it"):
        abort_plan(cluster).execute(confirm="orders-0@100", recheck_after=0)
    assert cluster.sent == []
    assert found().evidence[0].value == f"no live transaction owns offset 100 of orders-0: {PROVEN}"


def test_an_lso_that_stands_where_it_was_stops_the_list(monkeypatch: pytest.MonkeyPatch, audit: Audit) -> None:
    """Of one abort without a list it was no failure: exit code 0."""
    stands = PartitionResult(
        topic="orders",
        partition=0,
        last_stable_offset_before=100,
        last_stable_offset_after=100,
        high_watermark=150,
        next_start_offset=100,
        observed_at=NOW,
    )
    monkeypatch.setattr(Abort, "verify", lambda *_: Result(partitions=[stands]))
    cluster = list_cluster()
    done = plan_of(cluster).execute(confirm="3 transactions", recheck_after=0)
    assert isinstance(done.error, ActionFailed)
    assert (done.stopped_at, done.error.effect, len(cluster.sent)) == (*targets(0), "written", 1)
    with pytest.raises(ActionFailed, match="The LSO of orders-0 is 100, and was 100 before the ABORT marker"):
        abort_plan(RowCluster()).execute(confirm="orders-0@100", recheck_after=0)
    assert "The LSO of orders-0" in audit.rows()[-1]["error"]

    def interrupted(*_: object) -> Result:
        raise KeyboardInterrupt

    monkeypatch.setattr(Abort, "verify", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        plan_of(list_cluster()).execute(confirm="3 transactions", recheck_after=0)
    assert stopped.value.__notes__[-1] == f"0 of 3 transactions were done; it was the turn of {targets(0)[0]}."


def test_a_list_names_each_transaction_once_and_leaves_out_what_is_not_open() -> None:
    cluster: Any = RowCluster()
    assert plan_abort_list(cluster, [found(), found()]).target == "1 transaction"
    cluster.producers = ENDED
    plan = plan_abort_list(cluster, [found(), found(start_offset=None, producer_id=None), found(topic=None)])
    assert [each.target for each in plan.left_out] == [*targets(0), "orders-0", "the whole cluster"]
    # with --confirm, nobody saw a dry run that names them
    assert [*list_result(plan, ListResult(done=[]))][-1] == f"Left out: {targets(0)[0]}, orders-0, the whole cluster."
    with pytest.raises(ActionRefused, match="No transaction of the list"):
        plan.execute(confirm=plan.target)


def test_a_list_of_which_some_are_left_out_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script took the 0 for all of them; the text alone named the one that was left out."""
    cluster, listed = list_cluster(), tmp_path / "listed.csv"
    monkeypatch.setattr(SourceOptions, "connect", lambda _: nullcontext(cluster))
    listed.write_text("topic,partition,producer_id,start_offset\n" + "".join(
        f"orders,{number},7,{start}\n" for number, start in [*((n, 100) for n in NUMBERS), (0, 7)]))  # fmt: skip
    command = ("abort", "--bootstrap-server", "b:9092", "--list", str(listed))
    for confirm, sent in ((), 0), (("--confirm", "3 transactions"), 3):
        done = run(*command, "--recheck-after", "0", *confirm)
        assert (done.returncode, len(cluster.sent)) == (5, sent), done.stderr
