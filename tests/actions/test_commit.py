"""The commit of what a checkpoint of Flink is to commit, with producers of both transaction versions.

`test_commit_flink` has real jobs of Flink, and `test_coordinator_guards` what is refused.
"""

from pathlib import Path

import pytest

from tests.brokers import NEWEST, OLDER, on_cluster
from tests.builders import create_topics, received
from tests.formats.flink_bytes import write_checkpoint
from tests.sources.recorded import take_sample
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import plan_commit, plan_fence
from toolkit.actions.marker_actions import plan_abort
from toolkit.cli.commands import app
from toolkit.errors import ActionRefused, NotFound
from toolkit.formats.flink_checkpoint import FlinkCheckpoints
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema.checkpoint import Committable
from toolkit.schema.table import utc_now

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
        return Cluster(self.kafka.bootstrap_servers, flink_checkpoints=FlinkCheckpoints(self.path))

    def visible(self) -> list[int]:
        """Records that a read_committed consumer receives, of each partition."""
        found = [each.partition() for each in received(self.kafka, [(self.topic, 0), (self.topic, 1)])]
        return [found.count(partition) for partition in (0, 1)]


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


def test_a_recorder_and_a_panel_know_what_was_checkpointed_since(kafka: Kafka, tmp_path: Path) -> None:
    """A recorder read no checkpoint at all, and advised the fence of what one is to commit once that was overdue."""
    staged = Staged(kafka, tmp_path, "since")
    with staged.cluster() as cluster:

        def verdicts() -> dict[str | None, str]:
            found = take_sample(cluster, due=utc_now()).findings
            sampled = {each.transactional_id: each.verdict.value for each in found if each.topic == staged.topic}
            assert sampled == {
                row["transactional_id"]: row["verdict"]
                for row in cluster.finding_rows(topics=[staged.topic], recheck_after=0)
            }
            return sampled

        assert verdicts() == {staged.first: "prepared", staged.next: "ongoing"}
        later = staged.producers[1]
        own = Committable(staged.next, later.producer_id, later.producer_epoch, 6)
        write_checkpoint(tmp_path, 6, [own], prefix=staged.topic)
        assert verdicts() == {staged.first: "prepared", staged.next: "prepared"}
        with pytest.raises(ActionRefused, match=r"checkpoint 6 \(.* is to commit it"):
            plan_fence(cluster, staged.next)


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
