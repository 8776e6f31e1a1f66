"""Commit a transaction that a checkpoint of Flink has pre-committed, as its job would after a restore.

A job that dies between the end of a checkpoint and its commit leaves the transaction open, until it is restored or the
coordinator aborts it by its timeout, which loses records that the job considers written (FLIP-572). EndTxn with the
checkpoint's id, producer id and epoch is what the restored job sends (``FlinkKafkaInternalProducer``). A coordinator
that has committed already answers it in the same way, so that a later restore finds it done.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolkit.actions.plan import RECHECK_AFTER, Plan, Result, Ruling
from toolkit.actions.requests import (
    NOT_DONE,
    CoordinatorAction,
    changed,
    describe_owner,
    ended_owner,
    planned_with_impact,
)
from toolkit.actions.transaction import check_delivered, check_ended, delivered, first_epoch, lso_moved
from toolkit.analysis.diagnosis.verdicts import PROVEN
from toolkit.errors import ActionRefused, BrokerError, NotFound
from toolkit.formats.flink_checkpoint import Committable, FlinkCheckpoint, read_checkpoint
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.recorded import ActionClaim
from toolkit.sources.live.client import messages

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster

FLINKS_VERSION = 4
"""Of EndTxn. From 5 on it raises the epoch, and Flink would find its own transaction fenced."""
COMMITTED = {"PrepareCommit", "CompleteCommit"}


class Commit(CoordinatorAction):
    """EndTxn with the checkpoint's producer id and epoch; nothing can be overridden."""

    name = "commit"
    done = "The transaction was committed"
    done_if = "CompleteCommit with producer {producer_id} and epoch {producer_epoch} is committed."
    not_done = NOT_DONE | {
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "PRODUCER_FENCED",
    }

    def is_commit(self, plan: Plan) -> bool:
        return True

    def plan(self, cluster: Cluster, name: str, recheck_after: float) -> Plan:
        """The plan as of now: the checkpoint is read again, and every partition has to agree with it."""
        checkpoint, committable = _checkpointed(cluster, name)
        owner = describe_owner(cluster, name)
        check_owner(owner, committable)
        partitions = sorted(owner.topic_partitions or ())
        findings = cluster.records(Finding, partitions=partitions, recheck_after=recheck_after)
        found = [each for each in findings if each.error or each.producer_id == committable.producer_id]
        if other := next((each for each in found if each.action != "commit"), None):
            raise ActionRefused(
                f"{other.tp} is {other.verdict}: {other.reason}",
                means=f"A commit would decide the records there, too. {self.nothing}",
                do=f"Remedy: {other.remedy}",
            )
        transactions = [planned_with_impact(cluster, each) for each in found if each.start_offset is not None]
        for txn in transactions:
            # Each instance has a higher epoch, and a leader takes no lower one: all open records have the same epoch if
            # the first of them has that of the producer state. One marker would end both.
            if (first := first_epoch(cluster, txn)) != txn.producer_epoch:
                wrote = "none is left in the log" if first is None else f"epoch {first} wrote the first of them"
                raise ActionRefused(
                    f"The records of {txn.target} are not all of epoch {txn.producer_epoch}: {wrote}.",
                    means=f"One marker would end both, whatever was decided about each. {self.nothing}",
                    do="Save the records of each epoch by kafka-txn scan before anything is ended.",
                )
        verdict = found[0].verdict if found else ""
        reason = f"{checkpoint.name} is to commit it."
        claim = ActionClaim(
            claim=f"the last completed checkpoint is to commit {name}", status=PROVEN, discharged_by=reason
        )
        return Plan(
            cluster=cluster,
            action=self,
            ruling=Ruling(verdict=verdict, reason=reason, claims=[claim]),
            transactions=transactions,
            transactional_id=name,
            owner=owner,
            checkpoint=checkpoint,
            committable=committable,
        )

    def fresh(self, plan: Plan, recheck_after: float) -> Plan:
        fresh = self.plan(plan.cluster, plan.target, recheck_after)
        if fresh.committable != plan.committable:
            raise changed(plan.name, f"the checkpoint says {fresh.committable}", nothing=self.nothing)
        return fresh

    def guard(self, fresh: Plan) -> None:
        assert fresh.committable is not None
        check_owner(describe_owner(fresh.cluster, fresh.target), fresh.committable)

    def request(self, fresh: Plan) -> str:
        own = fresh.committable
        assert own is not None
        ids = f"producer_id={own.producer_id}, producer_epoch={own.producer_epoch}"
        return f"EndTxn transactional_id={fresh.target}, {ids}, committed=true"

    def message(self, fresh: Plan) -> Any:
        own = fresh.committable
        assert own is not None
        return messages.EndTxn(
            transactional_id=fresh.target,
            producer_id=own.producer_id,
            producer_epoch=own.producer_epoch,
            committed=True,
            max_version=FLINKS_VERSION,
        )

    def verify(self, fresh: Plan, check: Callable[[], None]) -> Result:
        """The coordinator has committed it, and a read_committed consumer receives its records."""
        now, partitions = ended_owner(fresh, check), []
        if now.state not in COMMITTED:
            raise BrokerError(f"{fresh.name} is {now.state}, not committed.", code="NONE", do="Run kafka-txn describe.")
        for txn in fresh.transactions:
            check_ended(fresh.cluster, txn, check, patience=fresh.cluster.timeout)
            done = delivered(fresh.cluster, txn, lso_moved(fresh.cluster, txn, check), check)
            check_delivered(done, txn, is_commit=True)
            partitions.append(done)
        return Result(owner=now, partitions=partitions)


COMMIT = Commit()


def plan_commit(cluster: Cluster, transactional_id: str, *, recheck_after: float = RECHECK_AFTER) -> Plan:
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
    return COMMIT.plan(cluster, transactional_id, recheck_after)


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
                means=f"A job that is restored from another one writes its records again. {COMMIT.nothing}",
                do="Restore the job from it.",
            )
        if newer := checkpoint.newer():
            raise ActionRefused(
                f"{newer.parent} is complete and newer than {checkpoint.name}.",
                means=f"The last completed checkpoint decides. {COMMIT.nothing}",
                do=f"Use --flink-checkpoint {shlex.quote(str(newer))}",
            )
        if other := checkpoint.newer_of_other_job():
            raise ActionRefused(
                f"Another job of the prefix has {other.name}, newer than {checkpoint.name}.",
                means=f"If it was restored from an earlier checkpoint, it wrote these records again. {COMMIT.nothing}",
                do="Restore the job that ran last from its own last checkpoint.",
            )
        if committable.checkpoint_id > checkpoint.checkpoint_id:
            raise ActionRefused(
                f"{checkpoint.name} leaves {transactional_id!r} to checkpoint {committable.checkpoint_id}.",
                means=COMMIT.nothing,
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
            means=f"That transaction has ended: it was committed, or fenced and aborted. {COMMIT.nothing}",
            do=f"kafka-txn history --transactional-id {shlex.quote(name)} says which.",
        )
    if owner.state != "Ongoing":
        means = "It is committed already." if owner.state in COMMITTED else "It cannot be committed any more."
        raise ActionRefused(f"{name!r} of {theirs} is {owner.state}.", means=f"{means} {COMMIT.nothing}")
