"""What a checkpoint of a real Flink job is to commit: findings, fences and the commit, on a real broker.

The job is killed after its last checkpoint was complete and before it committed, with records of the next checkpoint
written: those look the same to the broker, and must not be committed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.builders import create_topics, received
from tests.java_clients import FlinkJob
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import FLINK, plan_commit, plan_fence
from toolkit.actions.marker_actions import plan_abort
from toolkit.cli.commands import app
from toolkit.errors import ActionRefused, NotFound
from toolkit.formats.flink_checkpoint import JOB_FOLDER, FlinkCheckpoints, newer, read_checkpoint
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.schema import Row
from toolkit.schema.checkpoint import FlinkCheckpoint

pytestmark = [
    pytest.mark.lab,
    pytest.mark.full,
    pytest.mark.xdist_group("flink"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="FlinkJob.java needs a JDK"),
]
RECORDS = 600


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with Kafka("4.3.1") as kafka:
        yield kafka


def visible(kafka: Kafka, topic: str) -> list[int]:
    """What a read_committed consumer receives of the job."""
    return [int(each.value() or b"") for each in received(kafka, [(topic, 0)])]


def killed_before_its_commit(
    kafka: Kafka, folder: Path, topic: str, *, naming: str = "INCREMENTING"
) -> tuple[FlinkJob, FlinkCheckpoint, set[str]]:
    """A job that was killed after its last checkpoint was complete and before it committed, and the ids to commit."""
    create_topics(kafka, topic)
    with FlinkJob(kafka, folder, topic=topic, prefix=topic, naming=naming, records=RECORDS) as job:

        def complete() -> int | None:
            job.check()
            count = len(list(job.checkpoints.glob("*/chk-*/_metadata")))
            return count if count >= 4 else None

        last = until(complete, awaited="four checkpoints", timeout=300) + 3
        job.freeze(last)
        until(lambda: job.is_frozen or None, awaited="a frozen job", timeout=300)
        checkpoint, to_commit = until(lambda: _undecided(kafka, job), awaited="a checkpoint that is not committed")
        job.kill()
    return job, checkpoint, to_commit


def _undecided(kafka: Kafka, job: FlinkJob) -> tuple[FlinkCheckpoint, set[str]] | None:
    """The newest complete checkpoint and its ids with open transactions, once there are those of all subtasks.

    On a busy machine it also has those of the checkpoint before: open, or committed just before the job was frozen.
    """
    checkpoint = read_checkpoint(job.last_checkpoint() or job.checkpoints)
    with Cluster(kafka.bootstrap_servers) as cluster:
        rows = cluster.transaction_rows(transactional_ids=[each.transactional_id for each in checkpoint.committables])
    if any(row["state"].startswith("Prepare") for row in rows):
        return None
    to_commit = {
        each.transactional_id
        for row, each in zip(rows, checkpoint.committables, strict=True)
        if (row["state"], row["producer_id"], row["producer_epoch"])
        == ("Ongoing", each.producer_id, each.producer_epoch)
    }
    return (checkpoint, to_commit) if len(to_commit) >= job.parallelism else None


def by_id(rows: Sequence[Row]) -> dict[str, Row]:
    return {row["transactional_id"]: row for row in rows if row["transactional_id"]}


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_a_checkpoint_decides_what_a_killed_job_left_open(
    broker: Kafka, tmp_path: Path, audit: Audit, capsys: pytest.CaptureFixture[str], naming: str
) -> None:
    topic = f"flink-{naming.lower()}"
    job, checkpoint, to_commit = killed_before_its_commit(broker, tmp_path, topic, naming=naming)
    assert not checkpoint.is_savepoint
    assert JOB_FOLDER.fullmatch(checkpoint.path.parents[1].name), "as `newer_of_other_job` expects it"
    assert checkpoint.prefixes == {topic}
    older = min(job.checkpoints.glob("*/chk-*/_metadata"), key=lambda each: int(each.parent.name[4:]))
    assert not {*read_checkpoint(older).committables} & {*checkpoint.committables}
    assert newer(read_checkpoint(older)) == checkpoint.path
    with Cluster(broker.bootstrap_servers) as cluster:
        without = by_id(cluster.finding_rows(topics=[topic], recheck_after=0))
        assert all(FLINK in plan_fence(cluster, each).warnings for each in without)
    with Cluster(broker.bootstrap_servers, flink_checkpoints=FlinkCheckpoints(checkpoint.path.parents[1])) as cluster:
        found = by_id(cluster.finding_rows(topics=[topic], recheck_after=0))
        later = found.keys() - to_commit
        assert len(to_commit) >= len(later) == 2, "the look-alikes: open, and of the next checkpoint"
        assert {row["verdict"] for row in without.values()} == {"ongoing"}
        assert {found[each]["action"] for each in to_commit} == {"commit"}
        assert {found[each]["action"] for each in later} == {None}
        assert all(checkpoint.name in found[each]["reason"] for each in to_commit)
        assert all(row["owner"].endswith("(certain)") and topic in row["owner"] for row in found.values())
        if naming == "INCREMENTING":
            assert all("Apache Flink" in row["owner"] and "likely" in row["owner"] for row in without.values())

        before = visible(broker, topic)
        assert len(before) == len(set(before))
        for each in sorted(to_commit):
            refused(cluster, found[each])
        for each in sorted(later):
            with pytest.raises(NotFound, match="has no transaction of"):
                plan_commit(cluster, each)
        expected = 0
        for each in sorted(to_commit):
            planned = plan_commit(cluster, each, recheck_after=0).transactions
            expected += sum(part.impact.records or 0 for part in planned if part.impact)
            command = ["commit", "--bootstrap-server", broker.bootstrap_servers, "--transactional-id", each]
            command += ["--flink-checkpoint", str(checkpoint.path), "--recheck-after", "0"]
            app(command, standalone_mode=False)
            assert "become visible" in capsys.readouterr().out
            app([*command, "--confirm", each], standalone_mode=False)
            assert f'"{each}" is CompleteCommit.' in capsys.readouterr().out
        after = visible(broker, topic)
        assert len(after) == len(before) + expected > len(before)
        assert sorted(after) == sorted(set(after))
        for each in sorted(to_commit):
            with pytest.raises(ActionRefused, match=r"is CompleteCommit.* It is committed already"):
                plan_commit(cluster, each)
        steps = [(row["action"], row["step"]) for row in audit.rows() if row["transactional_id"] in to_commit]
        assert steps.count(("commit", "intent")) == steps.count(("commit", "outcome")) == len(to_commit)

    job.thaw()
    with FlinkJob(
        broker, tmp_path, topic=topic, prefix=topic, naming=naming, records=RECORDS, restored=checkpoint.path.parent
    ) as restored:
        assert restored.process.wait(600) == 0, (restored.folder / "log").read_text()[-4000:]
    assert sorted(visible(broker, topic)) == list(range(RECORDS)), "each record exactly once"


def refused(cluster: Cluster, row: Row) -> None:
    """Neither an abort nor a fence is planned, so that nothing can be overridden."""
    with pytest.raises(
        ActionRefused, match=r"is checkpointed now: .*a completed checkpoint of its Flink job is to commit"
    ):
        plan_fence(cluster, row["transactional_id"])
    with pytest.raises(ActionRefused, match="prepared"):
        plan_abort(cluster, row)
