"""What the plans of `abort` and `complete` share: one transaction, its guards, the marker, and what is read back."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from toolkit.actions.marker import Marker
from toolkit.actions.progress import Progress
from toolkit.actions.refusals import NOTHING_WRITTEN
from toolkit.errors import ActionFailed, ActionRefused, BrokerError
from toolkit.schema.actions import ActionStep
from toolkit.schema.coerce import finding_row
from toolkit.schema.live import Finding, Partition, Producer, Transaction
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client.broker_response import TOO_OLD

if TYPE_CHECKING:
    from toolkit.actions.audit import ActionOutcome, Audit
    from toolkit.schema import Row
    from toolkit.schema.coerce import FindingLike
    from toolkit.sources.live.cluster import Cluster

RECHECK_AFTER = 2.0  # seconds between the two observations of the fresh check
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LsoMove:
    """The LSO before and after a marker, the high watermark, and who holds the LSO next (null where nothing does)."""

    before: int | None
    after: int | None
    high_watermark: int | None
    next_start_offset: int | None
    observed_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerPlan:
    """One marker for one transaction on one partition, ready to be written once it is confirmed and checked again.

    Parameters
    ----------
    cluster
        Where the marker goes.
    topic, partition, start_offset, producer_id, producer_epoch
        The open transaction.
    coordinator_epoch, last_sequence, last_timestamp
        What the leader knew of its producer when this was planned; null where it knew none.
    basis
        The finding that justifies it, with its evidence.
    """

    cluster: Cluster = field(repr=False, compare=False)
    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_sequence: int | None
    last_timestamp: dt.datetime | None = field(repr=False)
    basis: Finding = field(repr=False, compare=False)

    @property
    def target(self) -> str:
        """What a person types to confirm: ``orders-0@913095344``."""
        return f"{self.topic}-{self.partition}@{self.start_offset}"

    @property
    def finding(self) -> Row:
        """`basis` as a row of ``schema.FINDINGS``."""
        return MappingProxyType(self.basis.row())

    def marker_of(self, *, is_commit: bool) -> Marker:
        """The marker with the epochs of the partition's producer state."""
        return Marker(
            topic=self.topic,
            partition=self.partition,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            is_commit=is_commit,
        )

    def progress(self, kind: str, cancel: threading.Event | None) -> Progress:
        """The steps of writing a marker, and what to say if one fails."""
        where = TopicPartition(self.topic, self.partition).flags
        return Progress(
            nothing=NOTHING_WRITTEN,
            written=f"The {kind} marker was written.",
            uncertain=f"It is uncertain whether the {kind} marker was written.",
            find_out=(
                f"To find out, run kafka-txn diagnose {where}: the marker was written if no transaction of producer "
                f"{self.producer_id} is open at offset {self.start_offset} any more."
            ),
            cancel=cancel,
        )

    def fresh_finding(self, recheck_after: float) -> Finding:
        """The finding of the same transaction, diagnosed again with the logs.

        Raises
        ------
        ActionRefused
            If it is not open any more, or its epoch is another one.
        """
        rows = self.cluster.finding_rows(topics=[self.topic], partitions=[self.partition], recheck_after=recheck_after)
        for row in rows:
            fresh = Finding.of(row)
            if (fresh.producer_id, fresh.start_offset) == (self.producer_id, self.start_offset):
                if fresh.producer_epoch != self.producer_epoch:
                    raise self.changed(f"its epoch is {fresh.producer_epoch}, not {self.producer_epoch}")
                return fresh
        raise no_longer_open(self.producer_id, self.target)

    def changed(self, how: str) -> ActionRefused:
        """The refusal of what is not as it was planned."""
        return ActionRefused(
            f"{self.target} changed since it was planned: {how}.",
            means=f"It is still in use. {NOTHING_WRITTEN}",
            do="Run kafka-txn diagnose, and plan again.",
        )

    def read_partition(self) -> Partition:
        """The partition as its leader has it.

        Raises
        ------
        BrokerError
            If it cannot be read.
        """
        return partition_view(self.cluster, self.topic, self.partition)

    def check_again(
        self, before: Partition, fresh: Finding, is_in_use: Callable[[Transaction], bool], *, gaps_allowed: bool = False
    ) -> None:
        """The guards right before the marker: coordinators, then the leader, and last its producer state.

        Parameters
        ----------
        before, fresh
            The partition and the finding of the fresh check.
        is_in_use, gaps_allowed
            As for `check_coordinators`.
        """
        self.check_coordinators(is_in_use, gaps_allowed=gaps_allowed)
        self.check_leader(before)
        self.check_state(fresh.broker_id)

    def check_leader(self, before: Partition) -> None:
        """Refuse if the partition was led by another broker, or in another epoch, before the check.

        A marker can only have been skipped, or lost, in between if the leader changed.
        """
        now = self.read_partition()
        if (now.leader, now.leader_epoch) != (before.leader, before.leader_epoch):
            raise self.changed(
                f"broker {now.leader} leads the partition in epoch {now.leader_epoch}, and it was broker "
                f"{before.leader} in epoch {before.leader_epoch}"
            )

    def check_state(self, leader: int | None) -> None:
        """Refuse what the leader knows otherwise than when it was planned."""
        state = self.read_state(leader)
        if state is None:
            raise ActionRefused(f"{self.target} ended just now.", means=NOTHING_WRITTEN)
        for name in ("last_sequence", "coordinator_epoch", "last_timestamp"):
            now, planned = getattr(state, name), getattr(self, name)
            if now != planned:
                raise self.changed(f"its {name} is {now}, and was {planned}")

    def check_coordinators(self, is_in_use: Callable[[Transaction], bool], *, gaps_allowed: bool) -> None:
        """Query the coordinators once more, as the check and the audit line have taken a while.

        Parameters
        ----------
        is_in_use
            Whether a transaction of this producer forbids the marker.
        gaps_allowed
            Whether a coordinator that does not answer is passed over; brokers before 3.0 always are.
        """
        for row in self.cluster.transaction_rows(producer_ids=[self.producer_id]):
            txn = Transaction.of(row)
            if txn.error:
                if gaps_allowed or txn.error.startswith(TOO_OLD):
                    continue
                raise ActionRefused(f"A coordinator no longer responds: {txn.error}.", means=NOTHING_WRITTEN)
            if is_in_use(txn):
                raise self.changed(f'"{txn.transactional_id}" is {txn.state} on it now')

    def includes_partition(self, txn: Transaction) -> bool:
        """Whether the coordinator has this partition in the transaction."""
        return (self.topic, self.partition) in (txn.topic_partitions or ())

    def write(
        self,
        marker: Marker,
        *,
        leader: int,
        trail: Audit,
        progress: Progress,
        guards: Callable[[], None],
        outcome: ActionOutcome,
    ) -> None:
        """Check the guards and send the marker, one process of this audit trail at a time.

        Parameters
        ----------
        marker, leader
            The marker, and the broker to send it to.
        trail, progress
            The audit trail, and the steps.
        guards
            Reads the state again right before the marker is sent, and refuses what has changed.
        outcome
            Takes the leader's response.
        """
        with trail.exclusive(progress.check_cancelled):
            guards()
            progress.sending()
            response = progress.wait(lambda: marker.send(self.cluster.client, leader))
            outcome.response = response
            try:
                marker.check_response(response, leader=leader, target=self.target, find_out=progress.find_out)
            except ActionFailed as error:
                progress.effect = error.effect
                raise
            progress.effect = "written"

    def check_ended(self) -> None:
        """Raise if the transaction is still open.

        Raises
        ------
        BrokerError
            If no marker has ended it.
        """
        if self.read_state(None) is not None:
            raise BrokerError(
                f"{self.target} is still open: no marker has ended it.",
                code="NONE",
                do="Run kafka-txn diagnose before you send another marker.",
            )

    def wait_for_lso(self, earlier: Finding, check: Callable[[], None] = lambda: None) -> LsoMove:
        """The LSO once it has moved as far as it can: the marker counts once the high watermark has passed it.

        Parameters
        ----------
        earlier
            The finding before the marker.
        check
            Called while it waits; what it raises ends the wait.
        """
        before, deadline = earlier.last_stable_offset, time.monotonic() + self.cluster.timeout
        while True:
            now = self.read_partition()
            lso = now.last_stable_offset
            moved = lso is not None and (before is None or lso > before or earlier.queue_position != 1)
            if moved or time.monotonic() > deadline:
                starts = [
                    each.current_txn_start_offset for each in leader_view(self.cluster, self.topic, self.partition)
                ]
                return LsoMove(
                    before=before,
                    after=lso,
                    high_watermark=now.high_watermark,
                    next_start_offset=min((each for each in starts if each is not None), default=None),
                    observed_at=now.observed_at,
                )
            check()
            threading.Event().wait(POLL_S)

    def read_state(self, leader: int | None) -> Producer | None:
        """The leader's producer state of this very transaction, null once it has ended."""
        mine = (self.producer_id, self.producer_epoch, self.start_offset)
        for each in leader_view(self.cluster, self.topic, self.partition, leader):
            if (each.producer_id, each.producer_epoch, each.current_txn_start_offset) == mine:
                return each
        return None


@contextmanager
def audited_refusal(trail: Audit, step: ActionStep) -> Iterator[None]:
    """Write to the audit trail that the action was refused, or failed before anything was sent."""
    try:
        yield
    except (ActionRefused, ActionFailed) as error:
        trail.refused(error, step)
        raise


def transaction_step(
    action: str, cluster: Cluster, transaction: Finding | MarkerPlan, *, verdict: str | None = None
) -> ActionStep:
    """What every line of the audit trail has of an action on a transaction, and the verdict of its check, if any."""
    return ActionStep(
        action=action,
        bootstrap_servers=cluster.bootstrap_servers,
        target=f"{transaction.topic}-{transaction.partition}@{transaction.start_offset}",
        topic=transaction.topic,
        partition=transaction.partition,
        start_offset=transaction.start_offset,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        verdict=verdict,
    )


def checked_step(action: str, plan: MarkerPlan, fresh: Finding) -> ActionStep:
    """The same of a plan, with what the fresh check found."""
    return replace(
        transaction_step(action, plan.cluster, plan, verdict=fresh.verdict),
        outcome=fresh.outcome,
        reason=fresh.reason,
        evidence=fresh.evidence,
        transactional_id=fresh.transactional_id,
        last_stable_offset_before=fresh.last_stable_offset,
    )


def finding_of(finding: FindingLike | Finding) -> Finding:
    """A typed finding of a row, a row of a frame, or a finding."""
    return finding if isinstance(finding, Finding) else Finding.of(finding_row(finding))


def no_longer_open(producer_id: int | None, target: str) -> ActionRefused:
    """The refusal of a transaction that ended since it was found."""
    return ActionRefused(
        f"Producer {producer_id} has no transaction open at {target} any more.",
        means=f"It ended since it was found. {NOTHING_WRITTEN}",
    )


def state_of(found: Finding, producers: Sequence[Producer]) -> Producer | None:
    """The producer state of a finding's transaction, null once it has ended."""
    mine = (found.producer_id, found.start_offset)
    return next((each for each in producers if (each.producer_id, each.current_txn_start_offset) == mine), None)


def leader_view(cluster: Cluster, topic: str, partition: int, leader: int | None = None) -> list[Producer]:
    """The producers of a partition, as its leader has them. Raises BrokerError if it does not show them."""
    rows = cluster.producer_rows(topics=[topic], partitions=[partition], broker_id=leader)
    found = [Producer.of(row) for row in rows]
    for each in found:
        if each.error:
            raise BrokerError(
                f"Broker {each.broker_id} does not show the producers of {topic}-{partition}: {each.error}.",
                code=Error.of(each.error).code,
            )
    return found


def partition_view(cluster: Cluster, topic: str, partition: int) -> Partition:
    """The partition as its leader has it. Raises BrokerError if it cannot be read."""
    (row,) = cluster.partition_rows(topics=[topic], partitions=[partition])
    found = Partition.of(row)
    if found.error:
        raise BrokerError(f"{topic}-{partition} cannot be read: {found.error}.", code=Error.of(found.error).code)
    return found
