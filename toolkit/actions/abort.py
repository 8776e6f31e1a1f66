"""End one hanging transaction on one partition by an abort marker (KIP-664).

Each abort needs a fresh check: the same producer id, epoch and start offset must be found hanging again right before
the marker is written, with a proof that its records were not committed. An abort marker on a live or a committed
transaction silently loses its records there. What it discards is saved first.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.actions.audit import Audit
from toolkit.actions.impact import MarkerImpact, marker_impact
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
    NOTHING_WRITTEN,
    abort_refusal,
    allowed_override,
    check_abort,
    check_confirmation,
    check_saving,
)
from toolkit.analysis.diagnosis.decision.disowned_rules import OFFSETS_DROPPED
from toolkit.errors import ActionRefused
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.schema.table import TopicPartition

if TYPE_CHECKING:
    from toolkit.actions.progress import Progress
    from toolkit.actions.saved_records import SavedRecords
    from toolkit.schema import Row
    from toolkit.schema.coerce import FindingLike
    from toolkit.schema.live import Finding, Partition, Transaction
    from toolkit.sources.live.cluster import Cluster

PLANNED = {"hanging", "unknown"}  # an unknown one is shown, and refused unless what is not proven is asserted
LOST_TAIL = (
    "if __transaction_state lost its newest records in a crash just then, a commit with transaction version 1 can be "
    "missing from it without a trace: ask the owner of the producer"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortResult:
    """What an abort marker changed: the LSO before and after, and who holds it next (null where nothing does).

    `records_file` has the records that it discarded, `records_saved` of them; null if they were not saved.
    """

    last_stable_offset_before: int | None
    last_stable_offset_after: int | None
    high_watermark: int | None
    next_start_offset: int | None
    observed_at: dt.datetime
    records_file: Path | None = None
    records_saved: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortPlan(MarkerPlan):
    """One abort marker, ready to be written once it is confirmed and checked again.

    Parameters
    ----------
    impact
        What the marker would change.
    """

    impact: MarkerImpact = field(compare=False)

    @property
    def marker(self) -> Mapping[str, Any]:
        """The fields of the marker, by the names of Kafka's WriteTxnMarkers."""
        return self.marker_of(is_commit=False).fields

    @property
    def command(self) -> str:
        """The equal line of Kafka's own tool, which reads the epochs from the leader (brokers from 2.8 on)."""
        return f"{self._tool} --start-offset {self.start_offset}"

    @property
    def old_command(self) -> str:
        """`command` with every field of the marker, for brokers before 2.8."""
        epochs = f"--producer-epoch {self.producer_epoch} --coordinator-epoch {self.marker['coordinator_epoch']}"
        return f"{self._tool} --producer-id {self.producer_id} {epochs}"

    @property
    def refusal(self) -> str | None:
        """Why `execute` would have refused this when it was planned; null if it would not."""
        return abort_refusal(self.basis)

    @property
    def needed_override(self) -> str | None:
        """The claims that are not proven, which `override` has to repeat; null if nothing may be overridden."""
        return allowed_override(self.basis, "abort")

    @property
    def warnings(self) -> Sequence[str]:
        """What the marker loses beside the transaction's own records, and what no check can exclude."""
        offsets = [OFFSETS_DROPPED] if self.topic == OFFSETS_TOPIC else []
        return [*offsets, LOST_TAIL]

    def records_path(self, audit: Audit) -> Path:
        """Where `execute` saves the records that the marker discards."""
        from toolkit.actions.saved_records import records_path

        return records_path(audit, self.target, self.producer_id)

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
            If the same transaction is not found hanging again, exactly as it was, or its records may be committed.
        """
        return self._preflight(recheck_after, override).row()

    def execute(
        self,
        *,
        confirm: str,
        audit: Audit | None = None,
        override: str | None = None,
        recheck_after: float = RECHECK_AFTER,
        save: bool = True,
        max_save_bytes: int | None = None,
        cancel: threading.Event | None = None,
    ) -> AbortResult:
        """Save the records, check afresh, write the abort marker to the partition's leader, and read the LSO back.

        Parameters
        ----------
        confirm
            `target`, typed by a person.
        audit
            Where it is written down; by default ``Audit()``. The records are saved beside it (`records_path`).
        override
            Write the marker although a claim is not proven, at the operator's own risk: the claims, in words
            (`needed_override`), as the fresh check finds them. What is refuted cannot be overridden.
        recheck_after
            Delay in seconds before the recheck of the fresh check.
        save
            Save the records that the marker discards; they need not be saved where their outcome is proven.
        max_save_bytes
            Limit of their size in the log; `saved_records.MAX_SAVE_BYTES` if null.
        cancel
            Set by another thread to cancel it while it waits; the error says whether the marker was written.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, the fresh check does not find the transaction hanging, the records
            cannot be saved, or the audit file cannot be written.
        ActionFailed
            If the leader refuses the marker, or does not answer: it says whether the marker was written.
        AuditFailed
            If the marker was sent, and the audit file could not be written any more.
        """
        trail, progress, marker = audit or Audit(), self.progress("ABORT", cancel), self.marker_of(is_commit=False)
        step = replace(transaction_step("abort", self.cluster, self), override=override)
        with self._saved(trail, progress, max_bytes=max_save_bytes) if save else nullcontext() as save_now:
            with audited_refusal(trail, step), progress.stated():
                check_confirmation(confirm, self.target, means=NOTHING_WRITTEN)
                check_abort(self.basis, override, target=self.target)
                check_saving(self.basis, override, is_saved=save)
                before = progress.wait(self.read_partition)
                saved = None if save_now is None else save_now(before)
                fresh = progress.wait(partial(self._preflight, recheck_after, override))
                progress.check_cancelled()
            leader = fresh.broker_id or 0
            file = None if saved is None else str(saved.path)
            intent = replace(
                checked_step("abort", self, fresh), override=override, records_file=file, request=marker.request(leader)
            )
            with trail.recording(intent) as outcome, progress.stated():
                self.write(
                    marker,
                    leader=leader,
                    trail=trail,
                    progress=progress,
                    guards=partial(self.check_again, before, fresh, self._is_in_use, gaps_allowed=override is not None),
                    outcome=outcome,
                )
                done = self.verify(since=fresh, check=progress.check_cancelled)
                outcome.last_stable_offset_after = done.last_stable_offset_after
        return done if saved is None else replace(done, records_file=saved.path, records_saved=saved.records)

    def verify(
        self, *, since: FindingLike | Finding | None = None, check: Callable[[], None] = lambda: None
    ) -> AbortResult:
        """Read back: the transaction is closed on the leader, and the LSO has moved as far as it can.

        Parameters
        ----------
        since
            The finding to compare with; that of the plan if null.
        check
            Called while it waits; what it raises ends the wait.

        Raises
        ------
        BrokerError
            If the transaction is still open.
        """
        self.check_ended()
        move = self.wait_for_lso(self.basis if since is None else finding_of(since), check)
        return AbortResult(
            last_stable_offset_before=move.before,
            last_stable_offset_after=move.after,
            high_watermark=move.high_watermark,
            next_start_offset=move.next_start_offset,
            observed_at=move.observed_at,
        )

    @property
    def _tool(self) -> str:
        where = TopicPartition(self.topic, self.partition).flags
        return f"kafka-transactions.sh --bootstrap-server {self.cluster.bootstrap_servers} abort {where}"

    def _preflight(self, recheck_after: float, override: str | None) -> Finding:
        fresh = self.fresh_finding(recheck_after)
        check_abort(fresh, override, target=self.target)
        self.check_state(fresh.broker_id)
        return fresh

    def _is_in_use(self, txn: Transaction) -> bool:
        alive = txn.state == "Ongoing" and txn.producer_epoch in {None, self.producer_epoch}
        return self.includes_partition(txn) and (alive or (txn.state or "").startswith("Prepare"))

    @contextmanager
    def _saved(
        self, trail: Audit, progress: Progress, *, max_bytes: int | None
    ) -> Iterator[Callable[[Partition], SavedRecords]]:
        """A function that saves the records; the file is deleted at the end if nothing was written to the cluster."""
        from toolkit.actions.saved_records import MAX_SAVE_BYTES, save_records
        from toolkit.sources.live.logs.transaction_records import LastBatch

        files: list[SavedRecords] = []

        def save_now(partition: Partition) -> SavedRecords:
            files.append(
                save_records(
                    self.cluster,
                    partition,
                    self.records_path(trail),
                    producer_id=self.producer_id,
                    start_offset=self.start_offset,
                    last=LastBatch(self.producer_epoch, self.last_sequence),
                    max_bytes=MAX_SAVE_BYTES if max_bytes is None else max_bytes,
                    check=progress.check_cancelled,
                )
            )
            return files[0]

        try:
            yield save_now
        finally:
            if progress.effect == "nothing":
                for each in files:
                    each.discard()


def plan_abort(cluster: Cluster, finding: FindingLike | Finding) -> AbortPlan:
    """Plan the abort marker for a finding, and what it would change; nothing is written.

    Parameters
    ----------
    cluster
        Where the finding was made.
    finding
        A finding, or a row of ``schema.FINDINGS``: a dict, or a row of a frame.

    Raises
    ------
    ActionRefused
        If the finding has an owner, its records were committed, or nothing is open any more.
    BrokerError
        If the leader does not show the partition, or its producers.
    """
    found = finding_of(finding)
    name = f"{found.topic}-{found.partition}"
    if found.outcome == "commit":
        raise ActionRefused(
            f"{name}@{found.start_offset} is never aborted: {abort_refusal(found)}",
            means=NOTHING_WRITTEN,
            do=f"Remedy: {found.remedy}",
        )
    if found.verdict not in PLANNED or found.start_offset is None or found.topic is None or found.partition is None:
        raise ActionRefused(
            f"{name} is {found.verdict}: {found.reason}",
            means="Only a transaction proven to be hanging is ended by an abort marker; any other has an owner.",
            do=f"Remedy: {found.remedy}",
        )
    partition = partition_view(cluster, found.topic, found.partition)
    producers = leader_view(cluster, found.topic, found.partition, partition.leader)
    state = state_of(found, producers)
    if state is None or found.producer_id is None or found.producer_epoch is None:
        raise no_longer_open(found.producer_id, f"{name}@{found.start_offset}")
    return AbortPlan(
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
        impact=marker_impact(cluster.client, found, partition=partition, producers=producers),
    )
