"""End one hanging transaction on one partition by an abort marker (KIP-664).

The only road here leads through a fresh check: the same producer id, epoch and start offset must be found hanging
again right before the marker is written. An abort marker on a live transaction silently loses half of it.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolkit.actions.abort_impact import AbortImpact, abort_impact
from toolkit.actions.audit import Audit
from toolkit.actions.confirmation import check_confirmation
from toolkit.actions.override import check_override
from toolkit.errors import ActionRefused, BrokerError
from toolkit.schema.coerce import finding_row
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.error_codes import error_text
from toolkit.sources.live.state.transaction_listing import TOO_OLD

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.schema.coerce import Finding
    from toolkit.sources.live.cluster import Cluster

__all__ = ["AbortPlan", "AbortResult", "plan_abort"]

RIGHT_TO_ABORT = "The principal needs ALTER on the Cluster (Kafka 3.8 or newer) or CLUSTER_ACTION."
RECHECK_AFTER = 2.0  # seconds between the two observations of the fresh check
NOTHING_WRITTEN = "Nothing was written."
PLANNED = {"hanging", "unknown"}  # an unknown one is shown, and refused unless that verdict is overridden by name


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortResult:
    """What an abort marker changed: the LSO before and after, and who holds it next (null where nothing does)."""

    last_stable_offset_before: int | None
    last_stable_offset_after: int | None
    high_watermark: int | None
    next_start_offset: int | None
    observed_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortPlan:
    """One abort marker, ready to be written once it is confirmed and checked again.

    Parameters
    ----------
    cluster
        Where the marker goes.
    topic, partition, start_offset, producer_id, producer_epoch
        The hanging transaction.
    coordinator_epoch, last_sequence
        What the leader knew of its producer when this was planned; null where it knew none.
    finding
        The row of ``schema.FINDINGS`` that justifies it, with its evidence.
    impact
        What the marker would change.
    """

    cluster: Cluster = field(repr=False, compare=False)
    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_sequence: int | None
    finding: Row = field(repr=False, compare=False)
    impact: AbortImpact = field(compare=False)

    @property
    def target(self) -> str:
        """What a person types to confirm: ``orders-0@913095344``."""
        return f"{self.topic}-{self.partition}@{self.start_offset}"

    @property
    def marker(self) -> Mapping[str, Any]:
        """The fields of the marker, by the names of Kafka's WriteTxnMarkers."""
        return {
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": 0 if self.coordinator_epoch is None else self.coordinator_epoch,
            "transaction_version": 0,  # version 2 makes the leader refuse an equal epoch (KIP-1228)
        }

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
        if self.finding["verdict"] == "hanging":
            return None
        return "; ".join(self.finding["missing"]) or str(self.finding["reason"])

    def preflight(self, *, recheck_after: float = RECHECK_AFTER, override: str | None = None) -> Row:
        """Diagnose the partition again, with a recheck: everything that justifies the marker.

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
            If the same transaction is not found hanging again, exactly as it was.
        """
        rows = self.cluster.finding_rows(topics=[self.topic], partitions=[self.partition], recheck_after=recheck_after)
        fresh = next((row for row in rows if self._is_same(row)), None)
        if fresh is None:
            raise ActionRefused(
                f"Producer {self.producer_id} has no transaction open at {self.target} any more.",
                means="It ended since it was found; nothing was written.",
            )
        if fresh["producer_epoch"] != self.producer_epoch:
            raise self._changed(f"its epoch is {fresh['producer_epoch']}, not {self.producer_epoch}")
        check_override(fresh, override, target=self.target)
        self._check_state(fresh["broker_id"])
        return fresh

    def execute(
        self,
        *,
        confirm: str,
        audit: Audit | None = None,
        override: str | None = None,
        recheck_after: float = RECHECK_AFTER,
    ) -> AbortResult:
        """Check afresh, write the abort marker to the partition's leader, and read the LSO back.

        Parameters
        ----------
        confirm
            `target`, typed by a person.
        audit
            Where it is written down; by default ``Audit()``.
        override
            ``"unknown"``: write the marker although evidence is missing, at the operator's own risk. It must be
            the verdict of the fresh check; whatever has an owner, or a decided outcome, cannot be overridden.
        recheck_after
            Delay in seconds before the recheck of the fresh check.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, the fresh check does not find the transaction hanging, or the audit file
            cannot be written.
        BrokerError
            If the leader refuses the marker, or the transaction is still open after it.
        AuditFailed
            If the marker was sent, and the audit file could not be written any more.
        """
        trail = audit or Audit()
        try:
            check_confirmation(confirm, self.target, means=NOTHING_WRITTEN)
            fresh = self.preflight(recheck_after=recheck_after, override=override)
        except ActionRefused as error:
            trail.refused(error, **self._about, override=override)
            raise
        check = {name: fresh[name] for name in ("verdict", "reason", "evidence", "transactional_id")}
        before = {"last_stable_offset_before": fresh["last_stable_offset"], "override": override}
        request = f"WriteTxnMarkers to broker {fresh['broker_id']}: {_fields(self.marker)}"
        with trail.recording(**self._about | check | before, request=request) as outcome:
            self._check_owner(is_overridden=override is not None)
            self._check_state(fresh["broker_id"])
            outcome["response"] = self._send(fresh["broker_id"])
            self._check_response(fresh["broker_id"], outcome["response"])
            done = self.verify(since=fresh)
            outcome["last_stable_offset_after"] = done.last_stable_offset_after
        return done

    def verify(self, *, since: Row | None = None) -> AbortResult:
        """Read back: the transaction is closed on the leader, and the LSO has moved as far as it can.

        Parameters
        ----------
        since
            The row of ``schema.FINDINGS`` to compare with; that of the plan if null.

        Raises
        ------
        BrokerError
            If the transaction is still open.
        """
        earlier = self.finding if since is None else since
        if self._state() is not None:
            raise BrokerError(
                f"{self.target} is still open: no marker has ended it.",
                code="NONE",
                do="Run kafka-txn diagnose before you send another marker.",
            )
        before, deadline = earlier["last_stable_offset"], time.monotonic() + self.cluster.timeout
        while True:
            (row,) = self.cluster.partition_rows(topics=[self.topic], partitions=[self.partition])
            rest = self.cluster.producer_rows(topics=[self.topic], partitions=[self.partition])
            starts = [each["current_txn_start_offset"] for each in rest]
            lso = row["last_stable_offset"]
            moved = lso is not None and (before is None or lso > before or earlier["queue_position"] != 1)
            if moved or time.monotonic() > deadline:  # the marker counts once the high watermark has passed it
                return AbortResult(
                    last_stable_offset_before=before,
                    last_stable_offset_after=lso,
                    high_watermark=row["high_watermark"],
                    next_start_offset=min((each for each in starts if each is not None), default=None),
                    observed_at=row["observed_at"],
                )
            time.sleep(0.05)

    @property
    def _tool(self) -> str:
        where = f"--topic {self.topic} --partition {self.partition}"
        return f"kafka-transactions.sh --bootstrap-server {self.cluster.bootstrap_servers} abort {where}"

    @property
    def _about(self) -> dict[str, Any]:
        """Columns of every line of the audit trail."""
        names = ("target", "topic", "partition", "start_offset", "producer_id", "producer_epoch")
        about = {name: getattr(self, name) for name in names}
        return {"action": "abort", "bootstrap_servers": self.cluster.bootstrap_servers, **about}

    def _is_same(self, row: Row) -> bool:
        return bool(row["producer_id"] == self.producer_id and row["start_offset"] == self.start_offset)

    def _changed(self, how: str) -> ActionRefused:
        return ActionRefused(
            f"{self.target} changed since it was planned: {how}.",
            means=f"It is still in use. {NOTHING_WRITTEN}",
            do="Run kafka-txn diagnose, and plan again.",
        )

    def _check_state(self, leader: int) -> None:
        """Refuse what the leader knows otherwise than when it was planned."""
        state = self._state(leader)
        if state is None:
            raise ActionRefused(f"{self.target} ended just now.", means=NOTHING_WRITTEN)
        for name in ("last_sequence", "coordinator_epoch"):
            if state[name] != getattr(self, name):
                raise self._changed(f"its {name} is {state[name]}, and was {getattr(self, name)}")

    def _check_owner(self, *, is_overridden: bool) -> None:
        """Query the coordinators once more, as the check and the audit line have taken a while."""
        for row in self.cluster.transaction_rows(producer_ids=[self.producer_id]):
            if row["error"]:
                if is_overridden or row["error"].startswith(TOO_OLD):
                    continue
                raise ActionRefused(f"A coordinator no longer responds: {row['error']}.", means=NOTHING_WRITTEN)
            here = {"topic": self.topic, "partition": self.partition} in (row["topic_partitions"] or ())
            alive = row["state"] == "Ongoing" and row["producer_epoch"] == self.producer_epoch
            if here and (alive or (row["state"] or "").startswith("Prepare")):
                raise self._changed(f'"{row["transactional_id"]}" is {row["state"]} on it now')

    def _send(self, leader: int) -> str:
        """WriteTxnMarkers with the partition's own epochs, as Kafka's Admin sends it (AbortTransactionHandler)."""
        of_topic = messages.WriteTxnMarkers.WritableTxnMarker.WritableTxnMarkerTopic
        marker = messages.WriteTxnMarkers.WritableTxnMarker(
            **self.marker, topics=[of_topic(name=self.topic, partition_indexes=[self.partition])]
        )
        answer = self.cluster.client.send_one(messages.WriteTxnMarkers(markers=[marker]), broker_id=leader)
        code = answer.markers[0].topics[0].partitions[0].error_code
        return error_text(code) if code else "NONE"

    def _check_response(self, leader: int, response: str) -> None:
        code = response.partition(":")[0]
        if code != "NONE":
            raise BrokerError(
                f"Broker {leader} refused the abort marker for {self.target}: {response}.",
                code=code,
                means="The transaction is still open.",
                do=RIGHT_TO_ABORT if code == "CLUSTER_AUTHORIZATION_FAILED" else "",
            )

    def _state(self, leader: int | None = None) -> Row | None:
        """The leader's producer row of this very transaction, null once it has ended."""
        rows = _producers(self.cluster, self.topic, self.partition, leader)
        names = ("producer_id", "producer_epoch", "current_txn_start_offset")
        mine = (self.producer_id, self.producer_epoch, self.start_offset)
        return next((row for row in rows if tuple(row[name] for name in names) == mine), None)


def plan_abort(cluster: Cluster, finding: Finding) -> AbortPlan:
    """Plan the abort marker for a finding, and what it would change; nothing is written.

    Parameters
    ----------
    cluster
        Where the finding was made.
    finding
        A row of ``schema.FINDINGS``: a dict, or a row of a frame.

    Raises
    ------
    ActionRefused
        If the finding has an owner, or nothing is open any more.
    BrokerError
        If the leader does not show the partition, or its producers.
    """
    row = finding_row(finding)
    topic, partition, start = row["topic"], row["partition"], row["start_offset"]
    if row["verdict"] not in PLANNED or start is None:
        raise ActionRefused(
            f"{topic}-{partition} is {row['verdict']}: {row['reason']}",
            means="Only a transaction proven to be hanging is ended by an abort marker; any other has an owner.",
            do=f"Remedy: {row['remedy']}",
        )
    (state,) = cluster.partition_rows(topics=[topic], partitions=[partition])
    if state["error"]:
        raise BrokerError(
            f"{topic}-{partition} cannot be read: {state['error']}.", code=state["error"].partition(":")[0]
        )
    producers = _producers(cluster, topic, partition, state["leader"])
    mine = [each for each in producers if each["current_txn_start_offset"] == start]
    producer = next((each for each in mine if each["producer_id"] == row["producer_id"]), None)
    if producer is None:
        raise ActionRefused(
            f"Producer {row['producer_id']} has no transaction open at {topic}-{partition}@{start} any more.",
            means="It ended since it was found.",
        )
    return AbortPlan(
        cluster=cluster,
        topic=topic,
        partition=partition,
        start_offset=start,
        producer_id=row["producer_id"],
        producer_epoch=row["producer_epoch"],
        coordinator_epoch=producer["coordinator_epoch"],
        last_sequence=producer["last_sequence"],
        finding=MappingProxyType(dict(row)),
        impact=abort_impact(cluster.client, row, partition=state, producers=producers),
    )


def _producers(cluster: Cluster, topic: str, partition: int, leader: int | None) -> list[Row]:
    """The producers of a partition, as its leader has them.

    Raises
    ------
    BrokerError
        If it does not show them.
    """
    rows = cluster.producer_rows(topics=[topic], partitions=[partition], broker_id=leader)
    for row in rows:
        if row["error"]:
            raise BrokerError(
                f"Broker {row['broker_id']} does not show the producers of {topic}-{partition}: {row['error']}.",
                code=row["error"].partition(":")[0],
            )
    return rows


def _fields(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
