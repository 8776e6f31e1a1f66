"""Abort a list of hanging transactions with one confirmation: each with its own proof, all in one audit trail.

Whatever is not proven to be hanging, or was committed, is left out by name. The first transaction that is not as it was
planned stops the list: what changed there may have changed on the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.actions.abort import AbortPlan, AbortResult, plan_abort
from toolkit.actions.audit import Audit
from toolkit.actions.marker_plan import RECHECK_AFTER, audited_refusal
from toolkit.actions.refusals import NOTHING_WRITTEN, check_confirmation
from toolkit.analysis.diagnosis.diagnose import transaction_key
from toolkit.errors import ActionFailed, ActionRefused, BrokerError, ToolkitError
from toolkit.schema.actions import ActionStep
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.live import Finding
from toolkit.schema.table import TopicPartition, TransactionKey

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A transaction of the list that is not aborted: its name, and why not."""

    target: str  # ``orders-0@913095344``
    # verdict, outcome: of the fresh check; null if it is not open any more
    verdict: str | None
    outcome: str | None
    # reason, remedy: a sentence each; the remedy is empty if there is none
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A transaction of the list that was aborted, and what that changed."""

    target: str
    result: AbortResult


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortListResult:
    """How far a list came."""

    aborted: Sequence[AbortedTransaction]  # what was aborted, in order
    # stopped_at, error: the transaction that stopped the list, and why; null if none did. The error says whether its
    # marker was written.
    stopped_at: str | None = None
    error: ToolkitError | None = None
    not_tried: Sequence[str] = ()  # the names of those after it


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortListPlan:
    """The abort markers of a list, ready to be written one after another once their number is confirmed.

    Parameters
    ----------
    cluster
        Where the markers go.
    plans
        Those that are proven to be hanging, each with its own plan.
    left_out
        Those that are not aborted.
    """

    cluster: Cluster = field(repr=False, compare=False)
    plans: Sequence[AbortPlan]
    left_out: Sequence[LeftOut]

    @property
    def target(self) -> str:
        """What a person types to confirm: ``12 transactions``."""
        return f"{len(self.plans)} transaction{'' if len(self.plans) == 1 else 's'}"

    def execute(
        self,
        *,
        confirm: str,
        audit: Audit | None = None,
        recheck_after: float = RECHECK_AFTER,
        save: bool = True,
        max_save_bytes: int | None = None,
        cancel: threading.Event | None = None,
        progress: Callable[[AbortPlan], object] = lambda plan: None,
    ) -> AbortListResult:
        """Abort them one after another, each as `AbortPlan.execute` does, up to the first that is not as planned.

        Parameters
        ----------
        confirm
            `target`, typed by a person.
        audit
            The audit trail of all of them; by default ``Audit()``.
        recheck_after, save, max_save_bytes, cancel
            As for `AbortPlan.execute`, of each. Nothing can be overridden.
        progress
            Called with each plan before it is checked again.

        Returns
        -------
        AbortListResult
            Also if the list was stopped: read its `error`.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, or nothing of the list is aborted.
        """
        trail = Audit(None if audit is None else audit.path, confirmation=self.target)
        step = ActionStep(action="abort", bootstrap_servers=self.cluster.bootstrap_servers, target=self.target)
        with audited_refusal(trail, step):
            if not self.plans:
                raise ActionRefused("No transaction of the list is proven to be hanging.", means=NOTHING_WRITTEN)
            check_confirmation(confirm, self.target, means=NOTHING_WRITTEN)
        aborted: list[AbortedTransaction] = []
        for number, plan in enumerate(self.plans):
            try:
                progress(plan)
                result = plan.execute(
                    confirm=plan.target,
                    audit=trail,
                    recheck_after=recheck_after,
                    save=save,
                    max_save_bytes=max_save_bytes,
                    cancel=cancel,
                )
                aborted.append(AbortedTransaction(target=plan.target, result=result))
                _check_moved(plan, result)
            except ToolkitError as error:
                rest = [each.target for each in self.plans[number + 1 :]]
                return AbortListResult(aborted=aborted, stopped_at=plan.target, error=error, not_tried=rest)
            except BaseException as error:
                error.add_note(f"{len(aborted)} of {self.target} were aborted; it was the turn of {plan.target}.")
                raise
        return AbortListResult(aborted=aborted)


def plan_abort_list(cluster: Cluster, transactions: Data, *, recheck_after: float = RECHECK_AFTER) -> AbortListPlan:
    """Diagnose the transactions of a list again, and plan the abort of those that hang; nothing is written.

    Parameters
    ----------
    cluster
        Where the markers would go.
    transactions
        Findings, as rows or a frame of ``schema.FINDINGS``. Topic, partition, producer id and start offset name each
        transaction; all else is observed again. An entry that lacks one of them is left out.
    recheck_after
        Delay in seconds before the confirming second check.

    Raises
    ------
    NotFound
        If the cluster has no such partition.
    """
    listed = {transaction_key(each): each for each in records_of(transactions, Finding)}
    keys = sorted(key for key in listed if None not in key)
    partitions = sorted({TopicPartition(key.topic or "", key.partition or 0) for key in keys})
    rows = cluster.finding_rows(partitions=partitions, recheck_after=recheck_after) if partitions else []
    fresh = {transaction_key(each): each for each in map(Finding.of, rows)}
    found = [_plan_or_left_out(cluster, key, fresh.get(key)) for key in keys]
    return AbortListPlan(
        cluster=cluster,
        plans=[each for each in found if isinstance(each, AbortPlan)],
        left_out=[
            *(each for each in found if isinstance(each, LeftOut)),
            *(_nameless(each) for key, each in listed.items() if None in key),
        ],
    )


def _plan_or_left_out(cluster: Cluster, key: TransactionKey, fresh: Finding | None) -> AbortPlan | LeftOut:
    target = f"{key.topic}-{key.partition}@{key.start_offset}"
    if fresh is None:
        gone = f"Producer {key.producer_id} has no transaction open there any more."
        return LeftOut(target=target, verdict=None, outcome=None, reason=gone)
    try:
        plan = plan_abort(cluster, fresh)
        refusal = plan.refusal
    except (ActionRefused, BrokerError) as error:
        refusal = error.what
    if refusal is None:
        return plan
    return LeftOut(target=target, verdict=fresh.verdict, outcome=fresh.outcome, reason=refusal, remedy=fresh.remedy)


def _nameless(listed: Finding) -> LeftOut:
    """What a finding without a transaction is: a partition or a broker that could not be read."""
    where = "the whole cluster" if listed.topic is None else f"{listed.topic}-{listed.partition}"
    return LeftOut(target=where, verdict=None, outcome=None, reason="The list names no open transaction there.")


def _check_moved(plan: AbortPlan, result: AbortResult) -> None:
    """Raise if the LSO stands where it was although the transaction held it."""
    before, after = result.last_stable_offset_before, result.last_stable_offset_after
    if plan.basis.queue_position != 1 or before is None or (after is not None and after > before):
        return
    raise ActionFailed(
        f"The LSO of {plan.topic}-{plan.partition} is {after}, and was {before} before the ABORT marker.",
        effect="written",
        means="The transaction is closed on the leader.",
        do="Run kafka-txn diagnose on this partition before any other marker.",
    )
