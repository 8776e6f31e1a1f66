"""Write the marker that was decided and is missing: COMMIT for committed records, ABORT for aborted ones.

A coordinator may end a transaction without its marker on a partition: the marker is skipped while all replicas are
offline (KAFKA-20734), lost with an unclean election, compacted away, or refused. The records stay open there, and no
broker ends them. WriteTxnMarkers can carry the COMMIT, with the epochs of the partition's producer state
(`toolkit.actions.marker`). It makes visible whatever the producer has open on the partition, so every open batch has to
be of a commit.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.actions.audit import Audit
from toolkit.actions.delivery import Delivery, delivered, group_offsets
from toolkit.actions.impact import CompleteImpact, OffsetCommitted, complete_impact
from toolkit.actions.marker_plan import (
    RECHECK_AFTER,
    MarkerPlan,
    audited_refusal,
    checked_step,
    finding_of,
    leader_view,
    no_longer_open,
    partition_view,
    state_of,
    transaction_step,
)
from toolkit.actions.refusals import (
    COMPLETED,
    NOTHING_WRITTEN,
    allowed_override,
    check_complete,
    check_confirmation,
    complete_refusal,
)
from toolkit.errors import ActionRefused, BrokerError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.sources.live.logs.transaction_records import LastBatch

if TYPE_CHECKING:
    from toolkit.actions.marker import Marker
    from toolkit.schema import Row
    from toolkit.schema.coerce import FindingLike
    from toolkit.schema.live import Finding, Transaction
    from toolkit.sources.live.cluster import Cluster

LOST_TAIL = (
    "if __transaction_state lost its newest records in a crash just then, an abort with transaction version 1 can be "
    "missing from it without a trace: ask the owner of the producer"
)
AFTER_PLAN_S = 10.0
"""From the plan to the marker, so that a later proof of an outcome can take it for one by hand (COMPLETED_AFTER)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteResult:
    """What the marker changed."""

    outcome: str  # ``commit`` or ``abort``
    # last_stable_offset_before, last_stable_offset_after, high_watermark: the LSO before and after, and the high
    # watermark
    last_stable_offset_before: int | None
    last_stable_offset_after: int | None
    high_watermark: int | None
    next_start_offset: int | None  # first offset of the transaction that holds the LSO next; null if none does
    # records_checked, records_delivered: records of the transaction that were looked for by a read_committed consumer,
    # and those that it received. After an abort it receives none. Null if the LSO is held before them, so that no such
    # consumer gets that far.
    records_checked: int | None
    records_delivered: int | None
    # offset_commits, unread_groups: on ``__consumer_offsets``, the offsets that the groups have now, and the groups
    # that no broker lists to this principal, so that theirs were not read
    offset_commits: Sequence[OffsetCommitted]
    unread_groups: Sequence[str]
    observed_at: dt.datetime  # when the LSO was read back


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletePlan(MarkerPlan):
    """The marker that is missing, ready to be written once it is confirmed and checked again.

    Parameters
    ----------
    impact
        What becomes visible, and to whom.
    planned_at
        When the outcome was proven, in seconds of this process's clock.
    """

    impact: CompleteImpact = field(compare=False)
    planned_at: float = field(default_factory=time.monotonic, repr=False, compare=False)

    @property
    def outcome(self) -> str:
        """What was decided, and what the marker says: ``commit`` or ``abort``; a commit if that is asserted only."""
        return _decided(self.basis)

    @property
    def warnings(self) -> Sequence[str]:
        """What no check can exclude."""
        return [LOST_TAIL]

    @property
    def needed_override(self) -> str | None:
        """The claims that are not proven, which `override` has to repeat; null if nothing may be overridden."""
        return allowed_override(self.basis, "complete")

    @property
    def marker(self) -> Mapping[str, Any]:
        """The fields of the marker, by the names of Kafka's WriteTxnMarkers."""
        return self._marker.fields

    @property
    def refusal(self) -> str | None:
        """Why `execute` would have refused this when it was planned; null if it would not."""
        return complete_refusal(self.basis)

    def preflight(self, *, recheck_after: float = RECHECK_AFTER, override: str | None = None) -> Row:
        """Diagnose the partition again, with a recheck and the logs: everything that justifies the marker.

        Parameters
        ----------
        recheck_after
            Delay in seconds before the recheck.
        override
            As for `execute`.

        Returns
        -------
        dict
            The fresh row of ``schema.FINDINGS``.

        Raises
        ------
        ActionRefused
            If the outcome is not proven again, exactly as it was, or other records of the producer may be open there.
        BrokerError
            If the log cannot be read.
        """
        return self._preflight(recheck_after, override).row()

    def execute(
        self,
        *,
        confirm: str,
        audit: Audit | None = None,
        override: str | None = None,
        recheck_after: float = RECHECK_AFTER,
        cancel: threading.Event | None = None,
    ) -> CompleteResult:
        """Check afresh, write the marker to the partition's leader, and read back what consumers receive.

        The marker is written no sooner than 10 seconds after the plan.

        Parameters
        ----------
        confirm
            `target`, typed by a person.
        audit
            Where it is written down; by default ``Audit()``.
        override
            Write a COMMIT marker although the commit is not proven to include every open record, at the operator's own
            risk: the claims, in words (`needed_override`), as the fresh check finds them.
        recheck_after
            Delay in seconds before the recheck of the fresh check.
        cancel
            Set by another thread to cancel it while it waits; the error says whether the marker was written.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, the fresh check does not prove the outcome, or the audit file cannot
            be written.
        ActionFailed
            If the leader refuses the marker, or does not answer: it says whether the marker was written.
        AuditFailed
            If the marker was sent, and the audit file could not be written any more.
        """
        trail, marker = audit or Audit(), self._marker
        step = replace(transaction_step("complete", self.cluster, self), override=override)
        progress = self.progress(marker.kind, cancel)
        with audited_refusal(trail, step), progress.stated():
            check_confirmation(confirm, self.target, means=NOTHING_WRITTEN)
            before = progress.wait(self.read_partition)
            remaining = AFTER_PLAN_S - (time.monotonic() - self.planned_at)
            fresh = progress.wait(partial(self._preflight, max(recheck_after, remaining), override))
            progress.check_cancelled()
        leader = fresh.broker_id or 0
        intent = replace(checked_step("complete", self, fresh), override=override, request=marker.request(leader))
        with trail.recording(intent) as outcome, progress.stated():
            self.write(
                marker,
                leader=leader,
                trail=trail,
                progress=progress,
                guards=partial(self.check_again, before, fresh, self._is_in_use),
                outcome=outcome,
            )
            done = self.verify(since=fresh, check=progress.check_cancelled)
            outcome.last_stable_offset_after = done.last_stable_offset_after
        return done

    def verify(
        self, *, since: FindingLike | Finding | None = None, check: Callable[[], None] = lambda: None
    ) -> CompleteResult:
        """Read back: the transaction is closed, and consumers receive its records, or after an abort do not.

        Parameters
        ----------
        since
            The finding to compare with; that of the plan if null.
        check
            Called while it waits; what it raises ends the wait.

        Raises
        ------
        BrokerError
            If the transaction is still open, or a read_committed consumer receives something else.
        """
        self.check_ended()
        move = self.wait_for_lso(self.basis if since is None else finding_of(since), check)
        found = self._delivery(move.after, check)
        are_offsets = self.topic == OFFSETS_TOPIC
        commits, unread = group_offsets(self.cluster, self.impact.offset_commits) if are_offsets else ((), ())
        return CompleteResult(
            outcome=self.outcome,
            last_stable_offset_before=move.before,
            last_stable_offset_after=move.after,
            high_watermark=move.high_watermark,
            next_start_offset=move.next_start_offset,
            records_checked=None if found is None else found.checked,
            records_delivered=None if found is None else found.delivered,
            offset_commits=commits,
            unread_groups=unread,
            observed_at=move.observed_at,
        )

    @property
    def _marker(self) -> Marker:
        return self.marker_of(is_commit=self.outcome == "commit")

    @property
    def _last(self) -> LastBatch:
        return LastBatch(self.producer_epoch, self.last_sequence)

    def _delivery(self, lso: int | None, check: Callable[[], None]) -> Delivery | None:
        found = delivered(self, self._last, lso, check)
        if found is None:
            return None
        if self.outcome == "commit" and found.delivered < found.checked:
            raise BrokerError(
                f"A read_committed consumer received {found.delivered} of {found.checked} records of {self.target}.",
                code="NONE",
                do="Read the partition with a consumer of your own, and keep this output.",
            )
        if self.outcome == "abort" and found.delivered:
            raise BrokerError(
                f"A read_committed consumer received {found.delivered} records of {self.target} after its abort.",
                code="NONE",
            )
        return found

    def _preflight(self, recheck_after: float, override: str | None) -> Finding:
        fresh = self.fresh_finding(recheck_after)
        check_complete(fresh, override, target=self.target)
        if _decided(fresh) != self.outcome:
            raise self.changed(f"its outcome is {_decided(fresh)}, and was {self.outcome}")
        self.check_state(fresh.broker_id)
        return fresh

    def _is_in_use(self, txn: Transaction) -> bool:
        """A transaction whose own marker may follow, and may say something else.

        An open one of a newer epoch that has written nothing here yet is none: once it has, the leader refuses this
        marker. Left alone, its ABORT marker would discard the committed records.
        """
        state = txn.state or ""
        same_epoch = txn.producer_epoch is None or txn.producer_epoch <= self.producer_epoch
        return state.startswith("Prepare") or (state == "Ongoing" and self.includes_partition(txn) and same_epoch)


def plan_complete(cluster: Cluster, finding: FindingLike | Finding) -> CompletePlan:
    """Plan the marker that is missing, and what becomes visible by it; nothing is written.

    Parameters
    ----------
    cluster
        Where the finding was made.
    finding
        A finding, or a row of ``schema.FINDINGS``: a dict, or a row of a frame.

    Raises
    ------
    ActionRefused
        If the finding refutes that all of its records are committed, or aborted, its coordinator may still write the
        marker, or nothing is open any more.
    BrokerError
        If the leader does not show the partition, its producers or its log.
    """
    found = finding_of(finding)
    name = f"{found.topic}-{found.partition}"
    refusal = None if allowed_override(found, "complete") else complete_refusal(found)
    if refusal is not None or found.topic is None or found.partition is None or found.start_offset is None:
        raise ActionRefused(
            f"{name} is {found.verdict}, and cannot be completed: {refusal or found.reason}",
            means="Only a marker that was decided and that nobody else will write is written.",
            do=f"Remedy: {found.remedy}",
        )
    partition = partition_view(cluster, found.topic, found.partition)
    producers = leader_view(cluster, found.topic, found.partition, partition.leader)
    state = state_of(found, producers)
    if state is None or found.producer_id is None or found.producer_epoch is None:
        raise no_longer_open(found.producer_id, f"{name}@{found.start_offset}")
    last = LastBatch(found.producer_epoch, state.last_sequence)
    return CompletePlan(
        cluster=cluster,
        topic=found.topic,
        partition=found.partition,
        start_offset=found.start_offset,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        coordinator_epoch=state.coordinator_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        basis=found,
        impact=complete_impact(cluster.client, found, partition=partition, producers=producers, last=last),
    )


def _decided(finding: Finding) -> str:
    """What was decided, or what `complete` is to assert."""
    return finding.outcome if finding.outcome in COMPLETED else "commit"
