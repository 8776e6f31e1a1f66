"""Commit a transaction that a checkpoint of Flink has pre-committed, as its job would after a restore.

A job that dies between the end of a checkpoint and its commit leaves the transaction open, until it is restored or the
coordinator aborts it by its timeout, which loses records that the job considers written (FLIP-572). EndTxn with the
checkpoint's id, producer id and epoch is what the restored job sends (``FlinkKafkaInternalProducer``). A coordinator
that has committed already answers it in the same way, so that a later restore finds it done.
"""

from __future__ import annotations

import datetime as dt
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_requests import (
    ENDED,
    NOTHING_SENT,
    POLL_S,
    check_response,
    describe_owner,
    owner_evidence,
    owner_step,
    send_until_decided,
)
from toolkit.actions.delivery import delivered
from toolkit.actions.impact import CompleteImpact, complete_impact
from toolkit.actions.marker_plan import (
    RECHECK_AFTER,
    MarkerPlan,
    audited_refusal,
    leader_view,
    partition_view,
    state_of,
)
from toolkit.actions.progress import Progress
from toolkit.actions.refusals import check_confirmation
from toolkit.errors import ActionRefused, BrokerError, NotFound
from toolkit.formats.flink_checkpoint import Committable, FlinkCheckpoint, read_checkpoint
from toolkit.schema.live import Finding, Partition, Transaction
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_response import error_text
from toolkit.sources.live.logs.transaction_records import LastBatch, open_batches

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster

FLINKS_VERSION = 4
"""Of EndTxn. From 5 on it raises the epoch, and Flink would find its own transaction fenced."""
COMMITTED = {"PrepareCommit", "CompleteCommit"}
REFUSED = {
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
    "NOT_COORDINATOR",
    "PRODUCER_FENCED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
"""Errors of EndTxn after which nothing was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToCommit(MarkerPlan):
    """The transaction on one of its partitions, and what becomes visible there."""

    impact: CompleteImpact = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPartition:
    """What the commit changed on a partition.

    `last_stable_offset_before`, `last_stable_offset_after`: the LSO before and after.
    `records_checked`, `records_delivered`: records of the transaction that were looked for by a read_committed
        consumer, and those that it received; null if another transaction holds the LSO before them.
    """

    topic: str
    partition: int
    last_stable_offset_before: int | None
    last_stable_offset_after: int | None
    records_checked: int | None
    records_delivered: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """The coordinator's state after the commit, and what changed on each partition."""

    state: str | None
    partitions: Sequence[CommittedPartition]
    observed_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """The commit of one transaction, ready to be sent once it is confirmed and checked again.

    Parameters
    ----------
    cluster
        Where the id is known.
    checkpoint, committable
        The checkpoint that is to commit it, and what it says.
    owner
        Its coordinator's state of the id.
    partitions
        The transaction on each of its partitions.
    """

    cluster: Cluster = field(repr=False, compare=False)
    checkpoint: FlinkCheckpoint = field(repr=False)
    committable: Committable
    owner: Transaction = field(repr=False)
    partitions: Sequence[PartitionToCommit] = field(repr=False)

    @property
    def transactional_id(self) -> str:
        """The id."""
        return self.committable.transactional_id

    @property
    def target(self) -> str:
        """What a person types to confirm: the id."""
        return self.transactional_id

    def execute(
        self,
        *,
        confirm: str,
        audit: Audit | None = None,
        recheck_after: float = RECHECK_AFTER,
        cancel: threading.Event | None = None,
    ) -> CommitResult:
        """Check afresh, send EndTxn to the coordinator, and read back what consumers receive.

        Parameters
        ----------
        confirm
            The transactional id, typed by a person.
        audit
            Where it is written down; by default ``Audit()``.
        recheck_after
            Delay in seconds before the recheck of the fresh check.
        cancel
            Set by another thread to cancel it while it waits; the error says whether it was committed.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, the checkpoint or the coordinator does not say the same any more, or the
            audit file cannot be written. Nothing can be overridden.
        ActionFailed
            If the coordinator refuses, or does not answer: it says whether the transaction was committed.
        AuditFailed
            If the request was sent, and the audit file could not be written any more.
        """
        trail, progress = audit or Audit(), self._progress(cancel)
        step = owner_step("commit", self.cluster, self.transactional_id, self.committable)
        with audited_refusal(trail, step), progress.stated():
            check_confirmation(confirm, self.target, means=NOTHING_SENT)
            fresh = progress.wait(lambda: plan_commit(self.cluster, self.transactional_id, recheck_after=recheck_after))
            if fresh.committable != self.committable:
                raise ActionRefused(
                    f"The checkpoint says another thing than when this was planned: {fresh.committable}.",
                    means=NOTHING_SENT,
                )
            progress.check_cancelled()
        verdict = next((each.basis.verdict for each in fresh.partitions), None)
        intent = replace(
            owner_step("commit", self.cluster, self.transactional_id, self.committable, verdict=verdict),
            reason=f"{fresh.checkpoint.name} is to commit it.",
            evidence=owner_evidence(fresh.owner),
            request=f"EndTxn transactional_id={self.transactional_id}, producer_id={self.committable.producer_id}, "
            f"producer_epoch={self.committable.producer_epoch}, committed=true",
        )
        with trail.recording(intent) as outcome, progress.stated():
            with trail.exclusive(progress.check_cancelled):
                check_owner(describe_owner(self.cluster, self.transactional_id), self.committable)
                outcome.response = response = self._send(progress)
            check_response(response, request=f"commit {self.transactional_id!r}")
            progress.effect = "written"
            return fresh.verify(check=progress.check_cancelled)

    def verify(self, *, check: Callable[[], None] = lambda: None) -> CommitResult:
        """Read back: the coordinator has committed it, and a read_committed consumer receives its records.

        Parameters
        ----------
        check
            Called while it waits; what it raises ends the wait.

        Raises
        ------
        BrokerError
            If it is not committed, or a read_committed consumer receives less.
        """
        deadline = time.monotonic() + self.cluster.timeout
        while (now := describe_owner(self.cluster, self.transactional_id)).state not in ENDED:
            if time.monotonic() > deadline:
                break
            check()
            threading.Event().wait(POLL_S)
        if now.state not in COMMITTED:
            raise BrokerError(
                f"{self.transactional_id!r} is {now.state}, not committed.", code="NONE", do="Run kafka-txn describe."
            )
        return CommitResult(
            state=now.state,
            partitions=[_verified(each, check) for each in self.partitions],
            observed_at=now.observed_at,
        )

    def _progress(self, cancel: threading.Event | None) -> Progress:
        return Progress(
            nothing=NOTHING_SENT,
            written="The transaction was committed.",
            uncertain="It is uncertain whether the transaction was committed.",
            find_out=(
                f"To find out, run kafka-txn describe --transactional-id {shlex.quote(self.transactional_id)}: "
                f"CompleteCommit with producer {self.committable.producer_id} and epoch "
                f"{self.committable.producer_epoch} is committed."
            ),
            cancel=cancel,
        )

    def _send(self, progress: Progress) -> str:
        request = messages.EndTxn(
            transactional_id=self.transactional_id,
            producer_id=self.committable.producer_id,
            producer_epoch=self.committable.producer_epoch,
            committed=True,
            max_version=FLINKS_VERSION,
        )

        def send(coordinator: int) -> str:
            message = self.cluster.client.send_one(request, broker_id=coordinator)
            return error_text(message.error_code) if message.error_code else "NONE"

        return send_until_decided(self.cluster, self.transactional_id, progress, send, refused=REFUSED)


def plan_commit(cluster: Cluster, transactional_id: str, *, recheck_after: float = RECHECK_AFTER) -> CommitPlan:
    """Plan the commit of a transaction that one of the cluster's `flink_checkpoints` is to commit; nothing is sent.

    Parameters
    ----------
    cluster
        Where the id is known, with the checkpoint.
    transactional_id
        The id.
    recheck_after
        Delay in seconds before the findings of its partitions are confirmed.

    Raises
    ------
    NotFound
        If no checkpoint is to commit a transaction of the id, or the cluster has no such id.
    ActionRefused
        If a newer checkpoint decides, or may, or the coordinator does not have exactly this transaction open.
    BrokerError
        If its coordinator or one of its partitions cannot be read.
    """
    checkpoint, committable = _checkpointed(cluster, transactional_id)
    owner = describe_owner(cluster, transactional_id)
    check_owner(owner, committable)
    tps = sorted(owner.topic_partitions or ())
    rows = map(Finding.of, cluster.finding_rows(partitions=tps, recheck_after=recheck_after))
    found = [each for each in rows if each.error or each.producer_id == committable.producer_id]
    _check_findings(found)
    partitions = [_partition(cluster, each) for each in found if each.start_offset is not None]
    return CommitPlan(
        cluster=cluster, checkpoint=checkpoint, committable=committable, owner=owner, partitions=partitions
    )


def _checkpointed(cluster: Cluster, transactional_id: str) -> tuple[FlinkCheckpoint, Committable]:
    """The checkpoint that is to commit the transaction, read again, and what it says."""
    for known in reversed(cluster.flink_checkpoints):  # the newest of a job first
        if known.committable(transactional_id) is None:
            continue
        checkpoint = read_checkpoint(known.path)
        committable = checkpoint.committable(transactional_id)
        if committable is None:
            break
        if checkpoint.is_savepoint:
            raise ActionRefused(
                f"{checkpoint.name} commits {transactional_id!r} only in a job that is restored from it.",
                means=f"A job that is restored from another one writes its records again. {NOTHING_SENT}",
                do="Restore the job from it.",
            )
        if newer := checkpoint.newer():
            raise ActionRefused(
                f"{newer.parent} is complete and newer than {checkpoint.name}.",
                means=f"The last completed checkpoint decides. {NOTHING_SENT}",
                do=f"Use --flink-checkpoint {shlex.quote(str(newer))}",
            )
        if other := checkpoint.newer_of_other_job():
            raise ActionRefused(
                f"Another job of the prefix has {other.name}, newer than {checkpoint.name}.",
                means=f"If it was restored from an earlier checkpoint, it wrote these records again. {NOTHING_SENT}",
                do="Restore the job that ran last from its own last checkpoint.",
            )
        if committable.checkpoint_id > checkpoint.checkpoint_id:
            raise ActionRefused(
                f"{checkpoint.name} leaves {transactional_id!r} to checkpoint {committable.checkpoint_id}.",
                means=NOTHING_SENT,
            )
        return checkpoint, committable
    names = ", ".join(each.name for each in cluster.flink_checkpoints) or "The empty list of checkpoints"
    raise NotFound(
        f"{names} has no transaction of {transactional_id!r} to commit.",
        means="Its Flink job aborts it when it is restored, and writes its records again.",
        do="Name the last completed checkpoint of its job by --flink-checkpoint PATH.",
    )


def check_owner(owner: Transaction, committable: Committable) -> None:
    """Refuse unless the coordinator has exactly this transaction open. Raises ActionRefused if it does not."""
    name, now = committable.transactional_id, (owner.producer_id, owner.producer_epoch)
    theirs = f"producer {owner.producer_id} epoch {owner.producer_epoch}"
    if now != (committable.producer_id, committable.producer_epoch):
        raise ActionRefused(
            f"{name!r} belongs to {theirs} now, and the checkpoint has producer {committable.producer_id} epoch "
            f"{committable.producer_epoch}.",
            means=f"That transaction has ended: it was committed, or fenced and aborted. {NOTHING_SENT}",
            do=f"kafka-txn history --transactional-id {shlex.quote(name)} says which.",
        )
    if owner.state != "Ongoing":
        means = "It is committed already." if owner.state in COMMITTED else "It cannot be committed any more."
        raise ActionRefused(f"{name!r} of {theirs} is {owner.state}.", means=f"{means} {NOTHING_SENT}")


def _check_findings(found: Sequence[Finding]) -> None:
    """Refuse if not every finding on a partition of the transaction says that the checkpoint is to commit it."""
    other = next((each for each in found if each.action != "commit"), None)
    if other is not None:
        raise ActionRefused(
            f"{other.topic}-{other.partition} is {other.verdict}: {other.reason}",
            means=f"A commit would decide the records there, too. {NOTHING_SENT}",
            do=f"Remedy: {other.remedy}",
        )


def _partition(cluster: Cluster, finding: Finding) -> PartitionToCommit:
    topic, number = finding.topic or "", finding.partition or 0
    partition = partition_view(cluster, topic, number)
    producers = leader_view(cluster, topic, number, partition.leader)
    state = state_of(finding, producers)
    if state is None:
        raise ActionRefused(f"The transaction ended on {topic}-{number} just now.", means=NOTHING_SENT)
    last = LastBatch(finding.producer_epoch or 0, state.last_sequence)
    _check_epochs(cluster, partition, finding, last)
    return PartitionToCommit(
        cluster=cluster,
        topic=topic,
        partition=number,
        start_offset=finding.start_offset or 0,
        producer_id=finding.producer_id or 0,
        producer_epoch=finding.producer_epoch or 0,
        coordinator_epoch=state.coordinator_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        basis=finding,
        impact=complete_impact(cluster.client, finding, partition=partition, producers=producers, last=last),
    )


def _verified(plan: PartitionToCommit, check: Callable[[], None]) -> CommittedPartition:
    deadline = time.monotonic() + plan.cluster.timeout
    while plan.read_state(None) is not None and time.monotonic() < deadline:  # its marker is on the way
        check()
        threading.Event().wait(POLL_S)
    plan.check_ended()
    move = plan.wait_for_lso(plan.basis, check)
    found = delivered(plan, LastBatch(plan.producer_epoch, plan.last_sequence), move.after, check)
    if found is not None and found.delivered < found.checked:
        raise BrokerError(
            f"A read_committed consumer received {found.delivered} of {found.checked} records of {plan.target}.",
            code="NONE",
            do="Read the partition with a consumer of your own, and keep this output.",
        )
    return CommittedPartition(
        topic=plan.topic,
        partition=plan.partition,
        last_stable_offset_before=move.before,
        last_stable_offset_after=move.after,
        records_checked=None if found is None else found.checked,
        records_delivered=None if found is None else found.delivered,
    )


def _check_epochs(cluster: Cluster, partition: Partition, found: Finding, last: LastBatch) -> None:
    """Refuse if more than one epoch of the producer has written records that are still open.

    Each transaction of a client with transaction version 2, and each new instance, has a higher epoch, and a leader
    takes no lower one. So all open records have the same epoch if the first of them has that of the producer state.

    Raises ActionRefused if a newer epoch has written since, or none of the records is left.
    """
    batches = open_batches(
        cluster.client, partition, producer_id=found.producer_id or 0, start_offset=found.start_offset or 0, last=last
    )
    first = next(batches, None)
    batches.close()
    name = f"{found.topic}-{found.partition}@{found.start_offset}"
    if first is None:
        raise ActionRefused(
            f"No record of {name} is left in the log, so its epoch is not known.",
            means=f"Nothing would become visible. {NOTHING_SENT}",
        )
    if first.producer_epoch != found.producer_epoch:
        raise ActionRefused(
            f"Epoch {found.producer_epoch} of producer {found.producer_id} has written to {found.topic}-"
            f"{found.partition} since epoch {first.producer_epoch} wrote the records at {name}.",
            means=f"One marker would end both, whatever was decided about each. {NOTHING_SENT}",
            do="Save the records of each epoch by kafka-txn scan before anything is ended.",
        )
