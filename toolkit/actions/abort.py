"""End one hanging transaction on one partition by an abort marker (KIP-664).

The only road here leads through a fresh check: the same producer id, epoch and start offset must be found hanging
again right before the marker is written. An abort marker on a live transaction silently loses half of it.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.errors import ActionRefused, BrokerError
from toolkit.sources import wire

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.sources.cluster import Cluster

__all__ = ["AbortPlan", "Aborted", "plan_abort"]

RIGHT_TO_ABORT = "The principal needs ALTER on the Cluster (Kafka 3.8 or newer) or CLUSTER_ACTION."
LOOKS_APART = 2.0  # seconds between the two looks of the fresh check


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """What an abort marker changed: the LSO before and after, and who holds it next (null where nothing does)."""

    last_stable_offset_before: int | None
    last_stable_offset_after: int | None
    high_watermark: int | None
    next_start_offset: int | None
    written_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortPlan:
    """One abort marker, ready to be written once it is confirmed and checked again.

    Parameters
    ----------
    cluster
        Where the marker goes.
    topic, partition, start_offset, producer_id, producer_epoch
        The hanging transaction.
    finding
        The row of ``schema.FINDINGS`` that justifies it.
    """

    cluster: Cluster = field(repr=False, compare=False)
    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    finding: Row = field(repr=False, compare=False)

    @property
    def target(self) -> str:
        """What a person types to confirm: ``orders-0@913095344``."""
        return f"{self.topic}-{self.partition}@{self.start_offset}"

    @property
    def command(self) -> str:
        """The equal line of Kafka's own tool."""
        where = f"--topic {self.topic} --partition {self.partition} --start-offset {self.start_offset}"
        return f"kafka-transactions.sh --bootstrap-server {self.cluster.bootstrap_servers} abort {where}"

    def preflight(self, *, looks_apart: float = LOOKS_APART) -> Row:
        """Look again, twice, at everything that justifies the marker.

        Returns
        -------
        dict
            The fresh row of ``schema.FINDINGS``.

        Raises
        ------
        ActionRefused
            If the same transaction is not found hanging again.
        """
        for row in self.cluster.finding_rows([self.topic], [self.partition], looks_apart=looks_apart):
            if row["producer_id"] == self.producer_id and row["start_offset"] == self.start_offset:
                return self._proven(row)
        raise ActionRefused(
            f"Producer {self.producer_id} has no transaction open at {self.target} any more.",
            means="It ended since it was found; nothing was written.",
        )

    def execute(self, *, confirm: str, looks_apart: float = LOOKS_APART) -> Aborted:
        """Check afresh, write the abort marker to the partition's leader, and read the LSO back.

        Parameters
        ----------
        confirm
            `target`, typed by a person.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, or the fresh check does not find the transaction hanging.
        BrokerError
            If the leader refuses the marker, or the transaction is still open after it.
        """
        if confirm != self.target:
            raise ActionRefused(
                f"The confirmation {confirm!r} does not name {self.target!r}.",
                means="Nothing was written.",
                do=f"To go on, confirm with exactly {self.target}.",
            )
        fresh = self.preflight(looks_apart=looks_apart)
        leader = fresh["broker_id"]
        written_at = dt.datetime.now(dt.UTC)
        self._write_marker(leader)
        return self._verify(leader, fresh, written_at)

    def _proven(self, row: Row) -> Row:
        if row["verdict"] != "hanging" or row["producer_epoch"] != self.producer_epoch:
            why = "; ".join(row["missing"]) or row["reason"]
            raise ActionRefused(
                f"{self.target} is {row['verdict']} now, not proven to be hanging: {why}",
                means="Nothing was written.",
            )
        return row

    def _write_marker(self, leader: int) -> None:
        """WriteTxnMarkers with the partition's own epochs, as Kafka's Admin sends it (AbortTransactionHandler)."""
        state = self._state(leader)
        if state is None:
            raise ActionRefused(f"{self.target} ended just now.", means="Nothing was written.")
        coordinator_epoch = state["coordinator_epoch"]
        marker = wire.WriteTxnMarkers.WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_result=False,
            topics=[
                wire.WriteTxnMarkers.WritableTxnMarker.WritableTxnMarkerTopic(
                    name=self.topic, partition_indexes=[self.partition]
                )
            ],
            coordinator_epoch=0 if coordinator_epoch is None else coordinator_epoch,
            transaction_version=0,  # version 2 makes the leader refuse an equal epoch (KIP-1228)
        )
        answer = self.cluster.wire.ask(wire.WriteTxnMarkers(markers=[marker]), broker_id=leader)
        code = answer.markers[0].topics[0].partitions[0].error_code
        if code:
            raise BrokerError(
                f"Broker {leader} refused the abort marker for {self.target}: {wire.error_text(code)}.",
                code=wire.error_name(code),
                means="The transaction is still open.",
                do=RIGHT_TO_ABORT if wire.error_name(code) == "CLUSTER_AUTHORIZATION_FAILED" else "",
            )

    def _state(self, leader: int) -> Row | None:
        """The leader's producer row of this very transaction, null once it has ended."""
        rows = self.cluster.producer_rows([self.topic], [self.partition], broker_id=leader)
        for row in rows:
            if row["error"]:
                raise BrokerError(
                    f"Broker {leader} does not show the producers of {self.topic}-{self.partition}: {row['error']}.",
                    code=row["error"].split(":")[0],
                )
            same = row["producer_id"] == self.producer_id and row["producer_epoch"] == self.producer_epoch
            if same and row["current_txn_start_offset"] == self.start_offset:
                return row
        return None

    def _verify(self, leader: int, fresh: Row, written_at: dt.datetime) -> Aborted:
        """Read back: the transaction is closed on the leader, and the LSO has moved as far as it can."""
        if self._state(leader) is not None:
            raise BrokerError(
                f"Broker {leader} took the abort marker for {self.target}, and the transaction is still open.",
                code="NONE",
                do="Ask again with kafka-txn diagnose; do not send another marker before that.",
            )
        deadline = time.monotonic() + self.cluster.timeout
        while True:
            (row,) = self.cluster.partition_rows([self.topic], [self.partition])
            rest = self.cluster.producer_rows([self.topic], [self.partition], broker_id=leader)
            starts = [r["current_txn_start_offset"] for r in rest if r["current_txn_start_offset"] is not None]
            lso, before = row["last_stable_offset"], fresh["last_stable_offset"]
            moved = lso is not None and (before is None or lso > before or fresh["position"] != 1)
            if moved or time.monotonic() > deadline:  # the marker counts once the high watermark has passed it
                return Aborted(
                    last_stable_offset_before=before,
                    last_stable_offset_after=lso,
                    high_watermark=row["high_watermark"],
                    next_start_offset=min(starts, default=None),
                    written_at=written_at,
                )
            time.sleep(0.05)


def plan_abort(cluster: Cluster, finding: Row) -> AbortPlan:
    """Plan the abort marker for a finding; nothing is written.

    Parameters
    ----------
    cluster
        Where the finding was made.
    finding
        A row of ``schema.FINDINGS``.

    Raises
    ------
    ActionRefused
        If the finding is anything but `hanging`.
    """
    if finding["verdict"] != "hanging":
        raise ActionRefused(
            f"{finding['topic']}-{finding['partition']} is {finding['verdict']}: {finding['reason']}",
            means="Only a transaction proven to be hanging is ended by an abort marker; any other has an owner.",
            do=f"Remedy: {finding['remedy']}",
        )
    return AbortPlan(
        cluster=cluster,
        topic=finding["topic"],
        partition=finding["partition"],
        start_offset=finding["start_offset"],
        producer_id=finding["producer_id"],
        producer_epoch=finding["producer_epoch"],
        finding=finding,
    )
