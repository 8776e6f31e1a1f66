"""The commit of what a checkpoint of Flink is to commit, with producers of both transaction versions.

`test_commit_flink` has real jobs of Flink.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.actions.test_abort import read_committed
from tests.brokers import NEWEST, OLDER, on_cluster
from tests.builders import create_topics
from tests.formats.flink_bytes import SAVEPOINT, write_checkpoint
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import plan_commit, plan_fence
from toolkit.actions.marker_actions import plan_abort
from toolkit.cli.commands import app
from toolkit.errors import ActionRefused, NotFound
from toolkit.formats.flink_checkpoint import Committable
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY

pytestmark = pytest.mark.lab

VERSIONS = [on_cluster(version, EVERYDAY, id=version) for version in (OLDER, NEWEST)]


class Staged:
    """Two transactions of one Flink-like prefix on two partitions each: of the checkpoint, and of the next one."""

    def __init__(self, kafka: Kafka, folder: Path, name: str, *, transaction_version: int = 1) -> None:
        self.kafka, self.topic, self.folder = kafka, name, folder
        create_topics(kafka, name, partitions=2)
        self.first, self.next = f"{name}-0-5", f"{name}-0-6"
        with Cluster(kafka.bootstrap_servers) as cluster:
            self.producers = [
                TxnProducer(cluster.client, each, transaction_version=transaction_version).init()
                for each in (self.first, self.next)
            ]
            for producer in self.producers:
                producer.add(name, 0, 1)
                for partition in (0, 1):
                    producer.send(name, partition, records=3)
        own = self.producers[0]
        self.committable = Committable(self.first, own.producer_id, own.producer_epoch, 5)
        self.path = write_checkpoint(folder, 5, [self.committable], prefix=name)

    def cluster(self) -> Cluster:
        """The cluster with the checkpoint."""
        return Cluster(self.kafka.bootstrap_servers, flink_checkpoints=[self.path])

    def visible(self) -> list[int]:
        """Records that a read_committed consumer receives, of each partition."""
        return [read_committed(self.kafka, self.topic, partition) for partition in (0, 1)]


def version_of(kafka: Kafka) -> int:
    """Transaction version of a client that is as new as the brokers."""
    return 2 if kafka.version.startswith("4") else 1


@pytest.mark.parametrize("lab", VERSIONS, indirect=True)
def test_a_commit_makes_the_records_of_the_checkpoint_visible_and_no_others(
    lab: Kafka, tmp_path: Path, audit: Audit
) -> None:
    for transaction_version in range(1, version_of(lab) + 1):
        name = f"commit-v{transaction_version}"
        staged = Staged(lab, tmp_path / name, name, transaction_version=transaction_version)
        assert staged.visible() == [0, 0]
        with staged.cluster() as cluster:
            rows = cluster.finding_rows(topics=[staged.topic], recheck_after=0)
            assert {(row["transactional_id"], row["verdict"], row["action"]) for row in rows} == {
                (staged.first, "prepared", "commit"),
                (staged.next, "ongoing", None),
            }
            plan = plan_commit(cluster, staged.first, recheck_after=0)
            assert [each.impact.records if each.impact else None for each in plan.transactions] == [3, 3]
            assert staged.visible() == [0, 0], "a plan changes nothing"
            done = plan.execute(confirm=staged.first, recheck_after=0)
            assert done.owner is not None
            assert done.owner.state == "CompleteCommit"
            assert [(each.records_checked, each.records_delivered) for each in done.partitions] == [(3, 3), (3, 3)]
            assert staged.visible() == [3, 3]
            (owner,) = cluster.transaction_rows(transactional_ids=[staged.first])
            assert owner["producer_epoch"] == staged.committable.producer_epoch, "what a restored job looks for"
            again = TxnProducer(cluster.client, staged.first)
            again.producer_id, again.producer_epoch = staged.committable[1:3]
            again.decide(commit=True)  # as a job that is restored later
            assert staged.visible() == [3, 3]
            with pytest.raises(ActionRefused, match=r"is CompleteCommit.*It is committed already"):
                plan_commit(cluster, staged.first, recheck_after=0)
            with pytest.raises(NotFound, match="aborts it when it is restored"):
                plan_commit(cluster, staged.next, recheck_after=0)
            (state,) = cluster.transaction_rows(transactional_ids=[staged.next])
            assert state["state"] == "Ongoing", "the look-alike is untouched"
            TxnProducer(
                cluster.client, staged.next
            ).init()  # as a restored job aborts what its checkpoint does not have
            assert staged.visible() == [3, 3]
            intent, outcome = [row for row in audit.rows() if row["transactional_id"] == staged.first]
            assert (intent["action"], intent["step"], intent["verdict"]) == ("commit", "intent", "prepared")
            assert (outcome["step"], outcome["response"]) == ("outcome", "NONE")


REFUSALS: dict[str, tuple[Callable[[Staged, Cluster], object], str]] = {
    "a new instance has aborted it": (
        lambda staged, cluster: TxnProducer(cluster.client, staged.first).init(),
        "belongs to producer .* now.*it was committed, or fenced and aborted",
    ),
    "the job has committed it": (
        lambda staged, _: staged.producers[0].end(commit=True),
        "is CompleteCommit.*It is committed already",
    ),
    "a client has aborted it": (
        lambda staged, _: staged.producers[0].end(commit=False),
        "is CompleteAbort.*It cannot be committed any more",
    ),
    "a newer checkpoint is complete": (
        lambda staged, _: write_checkpoint(staged.folder, 6, [], prefix=staged.topic),
        "chk-6 is complete and newer than checkpoint 5",
    ),
    "the checkpoint is a savepoint": (
        lambda staged, _: _make_savepoint(staged.path / "_metadata"),
        "commits .* only in a job that is restored from it",
    ),
    "the checkpoint was written again": (
        lambda staged, _: _rewrite(staged, staged.committable._replace(producer_epoch=7)),
        "the checkpoint has producer .* epoch 7",
    ),
}


def _make_savepoint(path: Path) -> None:
    path.write_bytes(path.read_bytes() + SAVEPOINT)


def _rewrite(staged: Staged, committable: Committable) -> None:
    (staged.path / "_metadata").unlink()
    staged.path.rmdir()
    write_checkpoint(staged.folder, 5, [committable], prefix=staged.topic)


ON_PREPARED_ROWS = ("the job has committed it", "a client has aborted it", "the checkpoint was written again")
"""Also in `test_commit_guards`."""


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=[pytest.mark.full] if each in ON_PREPARED_ROWS else []) for each in REFUSALS]
)
def test_a_commit_is_refused_once_the_checkpoint_does_not_decide_any_more(
    kafka: Kafka, tmp_path: Path, audit: Audit, case: str
) -> None:
    change, why = REFUSALS[case]
    staged = Staged(kafka, tmp_path, f"refused-{list(REFUSALS).index(case)}")
    with Cluster(kafka.bootstrap_servers) as client:
        for producer in staged.producers:
            producer.cluster = client.client
        with staged.cluster() as cluster:
            plan = plan_commit(cluster, staged.first, recheck_after=0)
            change(staged, cluster)
            before = staged.visible()
            with pytest.raises(ActionRefused, match=why):
                plan.execute(confirm=staged.first, recheck_after=0)
            assert staged.visible() == before
    (refusal,) = audit.rows()
    assert (refusal["action"], refusal["step"]) == ("commit", "refused")


def test_what_the_checkpoint_is_to_commit_is_neither_aborted_nor_fenced(
    kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    staged = Staged(kafka, tmp_path, "protected")
    with staged.cluster() as cluster:
        with pytest.raises(ActionRefused, match=r"is checkpointed now: checkpoint 5 \(.* is to commit it"):
            plan_fence(cluster, staged.first)
        assert plan_fence(cluster, staged.next).verdict == "ongoing"
        for row in cluster.finding_rows(topics=[staged.topic], recheck_after=0):
            with pytest.raises(ActionRefused):
                plan_abort(cluster, row)
    assert staged.visible() == [0, 0]
    fence = ["fence", "--bootstrap-server", kafka.bootstrap_servers, "--transactional-id", staged.next]
    confirmed = [*fence, "--override", "ongoing", "--confirm", staged.next]
    app(confirmed, standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.index("Warning: This id may be a Flink job's") < shown.index("is fenced"), "it is warned of first"


def test_a_commit_needs_its_own_name(kafka: Kafka, tmp_path: Path) -> None:
    staged = Staged(kafka, tmp_path, "confirmed")
    with staged.cluster() as cluster:
        plan = plan_commit(cluster, staged.first, recheck_after=0)
        with pytest.raises(ActionRefused, match="does not name"):
            plan.execute(confirm=staged.next, recheck_after=0)
    assert staged.visible() == [0, 0]
