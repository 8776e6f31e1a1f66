"""A list of hanging transactions on a real broker: one confirmation, a proof of each, a stop at a surprise."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.brokers import on_cluster
from tests.process import on
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import Abort, plan_abort, plan_abort_list
from toolkit.actions.plan import Plan
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import await_coordinators
from toolkit.lab.incidents import INCIDENTS, REPLICATED, StagedIncident
from toolkit.schema import Row

pytestmark = pytest.mark.lab


def dozen(kafka: Kafka) -> list[StagedIncident]:
    """A hanging transaction on each of twelve partitions of one topic."""
    last = INCIDENTS["never_added"](kafka, partition=11)
    return [*(INCIDENTS["never_added"](kafka, topic=last.topic, partition=number) for number in range(11)), last]


def rows(cluster: Cluster, staged: Sequence[StagedIncident]) -> list[Row]:
    found = cluster.finding_rows(topics=sorted({each.topic for each in staged}), recheck_after=0)
    return [row for row in found if row["start_offset"] is not None]


def target(staged: StagedIncident) -> str:
    return f"{staged.topic}-{staged.partition}@{staged.start_offset}"


def test_twelve_partitions_are_aborted_with_one_confirmation_and_a_live_one_is_left_out(
    kafka: Kafka, cluster: Cluster, tmp_path: Path
) -> None:
    staged, trail = dozen(kafka), Audit(tmp_path / "audit.jsonl")
    with INCIDENTS["open_young"](kafka) as live:
        plan = plan_abort_list(cluster, rows(cluster, [*staged, live]), recheck_after=0.2)
        assert sorted(each.target for each in plan.plans) == sorted(map(target, staged))
        (left,) = plan.left_out
        assert (left.target, left.verdict) == (target(live), "ongoing")
        assert plan.target == "12 transactions"
        for wrong in ("yes", "11 transactions", plan.plans[0].target):
            with pytest.raises(ActionRefused, match="does not name '12 transactions'"):
                plan.execute(confirm=wrong, audit=trail)
        done = plan.execute(confirm="12 transactions", audit=trail, recheck_after=0.2)
        assert (done.stopped_at, done.error, done.not_tried) == (None, None, ())
        assert [each.target for each in done.done] == [each.target for each in plan.plans]
        assert all(each.result.records_saved == 1 for each in done.done)
        assert [row["start_offset"] for row in rows(cluster, [*staged, live])] == [live.start_offset]
    lines = trail.rows()
    assert [line["step"] for line in lines] == ["refused"] * 3 + ["intent", "outcome"] * 12
    assert {line["confirmation"] for line in lines} == {"12 transactions"}
    assert {line["target"] for line in lines[3:]} == set(map(target, staged))
    assert all(line["verdict"] == "hanging" and line["evidence"] for line in lines[3:])


@pytest.mark.full
@pytest.mark.parametrize("lab", [on_cluster("4.3.1", REPLICATED, id="4.3.1")], indirect=True)
def test_coordinators_that_are_elected_after_the_check_stop_it(lab: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator may have another log than the one that was read: its transaction is live again."""
    staged, guard = INCIDENTS["never_added"](lab), Abort.guard
    with Cluster(lab.bootstrap_servers) as cluster:
        plan = plan_abort(cluster, rows(cluster, [staged])[0])

        def guard_after_election(action: Abort, fresh: Plan) -> None:
            other = next(each for each in cluster.client.brokers if each != fresh.transaction.leader)
            lab.restart(other)
            await_coordinators(cluster.client)
            guard(action, fresh)

        monkeypatch.setattr(Abort, "guard", guard_after_election)
        with pytest.raises(ActionRefused, match="Leadership of __transaction_state"):
            plan.execute(confirm=plan.target, recheck_after=1.1)
        monkeypatch.undo()
        plan.execute(confirm=plan.target, recheck_after=1.1)


def test_a_list_of_the_command_line(kafka: Kafka, tmp_path: Path) -> None:
    """What `find-hanging` writes as CSV is the list, in which a person deletes lines."""
    last = INCIDENTS["never_added"](kafka, partition=1)
    first = INCIDENTS["never_added"](kafka, topic=last.topic)
    with INCIDENTS["open_young"](kafka) as live:
        listed = tmp_path / "hanging.csv"
        listed.write_text(
            on(kafka, "find-hanging", "--topic", last.topic, "--recheck-after", "0.2", "--format", "csv").stdout
        )
        with listed.open("a", newline="") as file:
            names = csv.DictReader(listed.read_text().splitlines()).fieldnames or []
            entry = {
                "topic": live.topic,
                "partition": 0,
                "producer_id": live.producer_id,
                "start_offset": live.start_offset,
            }
            csv.DictWriter(file, names).writerow(entry)
        trail = ["--recheck-after", "0.2", "--audit-file", str(tmp_path / "audit.jsonl")]
        dry = on(kafka, "abort", "--list", str(listed), *trail)
        assert dry.returncode == 5, dry.stderr  # the live one is left out
        for each in (first, last):
            assert re.search(rf"- {target(each)}  producer .*: 1 record never read, 0 behind it", dry.stdout)
        assert "1 left out" in dry.stdout
        assert re.search(rf"{target(live)}\s+ongoing: ", dry.stdout)
        assert "To do it, add: --confirm '2 transactions'" in dry.stdout
        wrong = on(kafka, "abort", "--list", str(listed), *trail, "--confirm", "3 transactions")
        assert (wrong.returncode, "does not name '2 transactions'" in wrong.stderr) == (5, True)
        done = on(kafka, "abort", "--list", str(listed), *trail, "--confirm", "2 transactions")
        assert done.returncode == 5, done.stderr
        assert done.stdout.startswith("2 of 2 transactions aborted.\n")
        again = on(kafka, "abort", "--list", str(listed), *trail, "--confirm", "2 transactions")
        assert again.returncode == 5
        assert re.search(rf"{target(first)}\s+Producer", again.stdout)
        assert [row["step"] for row in Audit(tmp_path / "audit.jsonl").rows()][-2:] == ["outcome", "refused"]
    mixed = on(kafka, "abort", "--list", str(listed), "--topic", last.topic)
    assert (mixed.returncode, "--list names the transactions" in mixed.stderr) == (2, True)
    listed.write_text("topic,partition\n")
    assert "has no column producer_id, start_offset" in on(kafka, "abort", "--list", str(listed)).stderr
