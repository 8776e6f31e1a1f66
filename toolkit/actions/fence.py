"""Fence the owner of a transactional id: what Kafka's ``forceTerminateTransaction`` and ``fenceProducers`` do.

InitProducerId without a producer id has the coordinator abort what is open under the id, on all of its partitions, and
give out a new epoch: the producer that had the old one is refused from then on (KIP-360, KIP-939;
``FenceProducersHandler``).
"""

from __future__ import annotations

import datetime as dt
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_requests import (
    ENDED,
    NOTHING_SENT,
    check_response,
    describe_owner,
    owner_evidence,
    owner_step,
    send_until_decided,
)
from toolkit.actions.marker_plan import audited_refusal
from toolkit.actions.progress import Progress
from toolkit.actions.refusals import check_confirmation
from toolkit.analysis.coordinator.transaction_endings import LAST_EPOCH
from toolkit.analysis.coordinator.transaction_owners import CONNECT_LEADER, may_be_flinks
from toolkit.analysis.coordinator.transaction_states import TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.clocks import UNKNOWN_TIME, BrokersTime, TransactionAge, age_verdict
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.analysis.diagnosis.verdicts import NOT_PROVEN, REFUTED, Claim
from toolkit.errors import ActionRefused, BrokerError, NotFound
from toolkit.schema.live import Transaction
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_response import error_text

if TYPE_CHECKING:
    from toolkit.formats.flink_checkpoint import FlinkCheckpoint
    from toolkit.schema import Row
    from toolkit.sources.live.cluster import Cluster

REFUSED = {
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "INVALID_REQUEST",
    "NOT_COORDINATOR",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
"""Errors after which nothing was fenced; CONCURRENT_TRANSACTIONS also comes while the coordinator does it."""
SAFE = {"overdue", "idle"}
OVERRIDABLE = {"ongoing", "long", "prepared"}  # live within its own timeout, or not ours to decide
MEANINGS: Mapping[str, str] = {
    "ongoing": "It is alive, and within its own timeout: wait, or fence it deliberately.",
    "long": "It is alive, and within its own timeout, which is long: wait, or fence it deliberately.",
    "overdue": "It is open past its own timeout.",
    "prepared": "It is part of a two-phase commit: only its external coordinator may decide.",
    "decided": "Its outcome is decided, and fencing does not change it: what is committed is completed.",
    "idle": "Nothing is open under it; the next epoch only fences its present producer.",
    "checkpointed": "A completed checkpoint of its Flink job is to commit it, and a fence discards its records: "
    "restore the job, or run kafka-txn commit.",
    "committed": "Committed records of an earlier transaction of it are open under it: a fence discards them. Have its "
    "client commit.",
    "unproven": "It is not proven that no commit includes what is open under it, which a fence discards.",
}
"""What each verdict on an id means."""
FENCED = "The producer that uses the id gets ProducerFenced at its next request, and must be restarted."
OF_CONNECT_LEADER = (
    "This may be the id of a Connect cluster's leader: once fenced, it restarts no connector with its tasks until the "
    "workers rebalance. Restart that worker afterwards."
)
LOST = "The open transaction is aborted on all of its partitions: its records are never read by read_committed."
FLINK = (
    "This id may be a Flink job's: then its last completed checkpoint decides between commit and abort, and a fence of "
    "what it is to commit loses data (FLIP-572). Name it by --flink-checkpoint PATH, and check the job first."
)
AT_LAST_EPOCH = (
    "Its epoch is 32767, the last one: a coordinator before 4.3.0 refuses the fence with UNKNOWN_SERVER_ERROR "
    "(KAFKA-20090). While all replicas of __transaction_state are in sync, restart that broker, or move the leader of "
    "the id's partition: the timeout then takes effect."
)
NOT_CHECKPOINTED = (
    "is not to commit it. If that is the last completed checkpoint of its Flink job, a job that is restored from it "
    "aborts it, too."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceResult:
    """What a fence changed: the owner's epoch and state, and what it still has open (markers on their way)."""

    producer_id_before: int | None
    producer_epoch_before: int | None
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    still_open: Sequence[tuple[str, int]]
    observed_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FencePlan:
    """The fence of one transactional id, ready to be sent once it is confirmed and checked again.

    Parameters
    ----------
    cluster
        Where the id is known.
    transactional_id
        The id; it is what a person types to confirm.
    owner
        Its coordinator's state of it.
    verdict
        ``overdue`` or ``idle``, which are fenced; ``ongoing``, ``long`` or ``prepared``, which are refused unless
        overridden by that name; ``unproven``, likewise by `unproven`; ``decided``, ``committed`` and ``checkpointed``,
        which are refused.
    warnings
        What a fence does, and what may be lost by it, a sentence each.
    unproven
        Claims that are not proven, in words: that no commit includes what is open under it on each partition.
    brokers_time
        The brokers' time, by which it was planned.
    checkpoint
        The checkpoint of Flink that is to commit its transaction; null if none is known.
    max_transaction_timeout_ms
        What is live and open for longer is ``long`` and not ``ongoing``; it changes the word only.
    planned_at
        When its owner had answered, by this process's monotonic clock.
    """

    cluster: Cluster = field(repr=False, compare=False)
    transactional_id: str
    owner: Transaction = field(repr=False)
    verdict: str
    warnings: Sequence[str] = field(repr=False)
    unproven: Sequence[str] = field(default=(), repr=False)
    brokers_time: BrokersTime = field(default=UNKNOWN_TIME, repr=False)
    checkpoint: FlinkCheckpoint | None = field(default=None, repr=False)
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    planned_at: float = field(default_factory=time.monotonic, repr=False, compare=False)

    @property
    def target(self) -> str:
        """What a person types to confirm: the id."""
        return self.transactional_id

    @property
    def topic_partitions(self) -> Sequence[tuple[str, int]]:
        """Where the open transaction has written, or will."""
        return self.owner.topic_partitions or ()

    @property
    def command(self) -> str:
        """The equal line of Kafka's own tool, which those newer than 4.0 have."""
        server = f"--bootstrap-server {self.cluster.bootstrap_servers}"
        return f"kafka-transactions.sh {server} forceTerminateTransaction --transactionalId {self.transactional_id}"

    @property
    def refusal(self) -> str | None:
        """Why `execute` would have refused this when it was planned; null if it would not."""
        return None if self.verdict in SAFE else f"it is {self.verdict}. {MEANINGS[self.verdict]}"

    @property
    def flink_warning(self) -> str | None:
        """What has to be checked first if the id may be a Flink job's; null if it may not, or a checkpoint is known."""
        return FLINK if FLINK in self.warnings else None

    @property
    def needed_override(self) -> str | None:
        """What has to be overridden, word for word; null where nothing has to be, or nothing can be."""
        return _needed_override(self.verdict, self.unproven)

    def preflight(self, *, override: str | None = None) -> Row:
        """Check again everything that justifies the fence.

        Returns
        -------
        dict
            The fresh row of ``schema.TRANSACTIONS``.

        Raises
        ------
        ActionRefused
            If the id is not as it was, or may not be fenced.
        """
        return self._preflight(override)[0].row()

    def _preflight(self, override: str | None) -> tuple[Transaction, str, BrokersTime]:
        """The owner as it is now, the verdict on it, and the brokers' time."""
        claims = _claims(self.cluster, self.owner)
        observed_for = dt.timedelta(seconds=time.monotonic() - self.planned_at)
        brokers_time = self.cluster.brokers_time()
        fresh = self._unchanged_owner()
        age = TransactionAge.of(fresh.start_time, brokers_time, observed_for=observed_for)
        verdict, unproven = _verdict(self.cluster, fresh, claims, age, self.max_transaction_timeout_ms)
        needed = _needed_override(verdict, unproven)
        if override == needed and (needed is not None or verdict in SAFE):
            return fresh, verdict, brokers_time
        why = f", not {override}" if override not in {None, verdict} else ""
        of = f" ({self.checkpoint.name})" if self.checkpoint and verdict == "checkpointed" else ""
        raise ActionRefused(
            f"{self.transactional_id!r} is {verdict} now{why}{of}. {MEANINGS[verdict]}",
            means=NOTHING_SENT,
            do=f"To fence it anyway, override {needed!r}, word for word." if needed else "",
        )

    def _unchanged_owner(self) -> Transaction:
        """The owner, read once more; refuse one that is not as it was when this was planned."""
        fresh = describe_owner(self.cluster, self.transactional_id)
        for name in ("producer_id", "producer_epoch", "state", "start_time"):
            now, before = getattr(fresh, name), getattr(self.owner, name)
            if now != before:
                raise ActionRefused(
                    f"{self.transactional_id!r} changed since it was planned: its {name} is {now}, and was {before}.",
                    means=f"It is in use. {NOTHING_SENT}",
                    do="Run kafka-txn describe, and plan again.",
                )
        return fresh

    def execute(
        self,
        *,
        confirm: str,
        audit: Audit | None = None,
        override: str | None = None,
        cancel: threading.Event | None = None,
    ) -> FenceResult:
        """Check afresh, send InitProducerId to the coordinator until it has ended what was open, and read it back.

        Parameters
        ----------
        confirm
            The transactional id, typed by a person.
        audit
            Where it is written down; by default ``Audit()``.
        override
            `needed_override` of the fresh check: to fence a live owner by choice ``"ongoing"``, ``"long"`` or
            ``"prepared"``, and the claims that are not proven.
        cancel
            Set by another thread to cancel it while it waits; the error says whether the id was fenced.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, the fresh check speaks against it, or the audit file cannot be written.
        ActionFailed
            If the coordinator refuses, has not ended what was open in time, or does not answer: it says whether the id
            was fenced.
        AuditFailed
            If the request was sent, and the audit file could not be written any more.
        """
        trail, progress = audit or Audit(), self._progress(cancel)
        step = replace(owner_step("fence", self.cluster, self.transactional_id, self.owner), override=override)
        with audited_refusal(trail, step), progress.stated():
            check_confirmation(confirm, self.target, means=NOTHING_SENT)
            fresh, verdict, brokers_time = progress.wait(partial(self._preflight, override))
            progress.check_cancelled()
        intent = replace(
            owner_step("fence", self.cluster, self.transactional_id, self.owner, verdict=verdict),
            override=override,
            reason=MEANINGS[verdict],
            evidence=owner_evidence(fresh, brokers_time),
            request=f"InitProducerId transactional_id={self.transactional_id}, producer_id=-1, producer_epoch=-1",
        )
        with trail.recording(intent) as outcome, progress.stated():
            self._unchanged_owner()  # the check and the audit line have taken a while
            outcome.response = response = self._send(progress)
            check_response(response, request=f"fence {self.transactional_id!r}")
            progress.effect = "written"
            return self.verify(check=progress.check_cancelled)

    def verify(self, *, check: Callable[[], None] = lambda: None) -> FenceResult:
        """Read back: another epoch owns the id, and nothing of the old one is open.

        Parameters
        ----------
        check
            Called while it waits; what it raises ends the wait.

        Raises
        ------
        BrokerError
            If the old epoch still owns it.
        """
        deadline = time.monotonic() + self.cluster.timeout
        while True:
            now = describe_owner(self.cluster, self.transactional_id)
            if (now.producer_id, now.producer_epoch) == (self.owner.producer_id, self.owner.producer_epoch):
                raise BrokerError(
                    f"{self.transactional_id!r} is still owned by producer {now.producer_id} epoch "
                    f"{now.producer_epoch}, and {now.state}.",
                    code="NONE",
                    do="Check with kafka-txn describe.",
                )
            still_open = [] if now.state in ENDED else list(now.topic_partitions or ())
            if not still_open or time.monotonic() > deadline:
                break
            check()
            threading.Event().wait(0.1)
        return FenceResult(
            producer_id_before=self.owner.producer_id,
            producer_epoch_before=self.owner.producer_epoch,
            producer_id=now.producer_id,
            producer_epoch=now.producer_epoch,
            state=now.state,
            still_open=still_open,
            observed_at=now.observed_at,
        )

    def _progress(self, cancel: threading.Event | None) -> Progress:
        return Progress(
            nothing=NOTHING_SENT,
            written="The id was fenced.",
            uncertain="It is uncertain whether the id was fenced.",
            find_out=(
                f"To find out, run kafka-txn describe --transactional-id {shlex.quote(self.transactional_id)}: "
                f"it was fenced if its epoch is not {self.owner.producer_epoch} of producer {self.owner.producer_id} "
                "any more."
            ),
            cancel=cancel,
        )

    def _send(self, progress: Progress) -> str:
        request = messages.InitProducerId(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=max(1, int(self.cluster.timeout * 1000)),
            producer_id=-1,
            producer_epoch=-1,
            max_version=5,
        )
        send = partial(self._ask, request)
        return send_until_decided(self.cluster, self.transactional_id, progress, send, refused=REFUSED)

    def _ask(self, request: Any, coordinator: int) -> str:
        message = self.cluster.client.send_one(request, broker_id=coordinator)
        if message.error_code:
            return error_text(message.error_code)
        return f"NONE: producer_id={message.producer_id}, producer_epoch={message.producer_epoch}"


def plan_fence(
    cluster: Cluster, transactional_id: str, *, max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
) -> FencePlan:
    """Plan the fence of a transactional id; nothing is sent.

    Parameters
    ----------
    cluster
        Where the id is known.
    transactional_id
        The id.
    max_transaction_timeout_ms
        A live transaction that is open for longer is ``long``: the word to override; by default the brokers' default.

    Raises
    ------
    NotFound
        If the cluster has no such id.
    BrokerError
        If its coordinator does not describe it.
    """
    brokers_time = cluster.brokers_time()
    owner = describe_owner(cluster, transactional_id)
    planned_at = time.monotonic()
    age = TransactionAge.of(owner.start_time, brokers_time)
    verdict, unproven = _verdict(cluster, owner, _claims(cluster, owner), age, max_transaction_timeout_ms)
    is_last = owner.state == "Ongoing" and owner.producer_epoch == LAST_EPOCH + 1
    return FencePlan(
        cluster=cluster,
        transactional_id=transactional_id,
        owner=owner,
        verdict=verdict,
        unproven=unproven,
        brokers_time=brokers_time,
        planned_at=planned_at,
        checkpoint=_checkpoint(cluster, owner),
        warnings=(*([AT_LAST_EPOCH] if is_last else []), *_warnings(cluster, transactional_id, verdict)),
        max_transaction_timeout_ms=max_transaction_timeout_ms,
    )


def _verdict(
    cluster: Cluster, owner: Transaction, claims: Sequence[Claim], age: TransactionAge, max_transaction_timeout_ms: int
) -> tuple[str, tuple[str, ...]]:
    """The verdict on an id, and the claims that are not proven, in words."""
    if any(each.status == REFUTED for each in claims):
        return "committed", ()
    if owner.state != "Ongoing":
        return "decided" if str(owner.state).startswith("Prepare") else "idle", ()
    if _checkpoint(cluster, owner) is not None:
        return "checkpointed", ()
    verdict = "prepared"
    if owner.timeout_ms != TWO_PHASE_COMMIT:
        verdict = age_verdict(owner, age, long_after=dt.timedelta(milliseconds=max_transaction_timeout_ms))
    unproven = tuple(each.words for each in claims if each.status == NOT_PROVEN)
    return ("unproven" if unproven and verdict in SAFE else verdict), unproven


def _needed_override(verdict: str, unproven: Sequence[str]) -> str | None:
    """What has to be overridden, word for word; null where nothing has to be, or nothing can be."""
    if verdict not in {*OVERRIDABLE, "unproven"}:
        return None
    return ", and ".join([*([verdict] if verdict in OVERRIDABLE else []), *unproven])


def _checkpoint(cluster: Cluster, owner: Transaction) -> FlinkCheckpoint | None:
    """The checkpoint that is to commit the transaction of an id; null if none is."""
    for checkpoint in cluster.flink_checkpoints:
        found = checkpoint.committable(owner.transactional_id or "")
        if found and (found.producer_id, found.producer_epoch) == (owner.producer_id, owner.producer_epoch):
            return checkpoint
    return None


def _claims(cluster: Cluster, owner: Transaction) -> Sequence[Claim]:
    """That no commit includes what is open on each partition: records of an earlier one may lie under the open one."""
    if owner.state != "Ongoing" or owner.producer_id is None or not owner.topic_partitions:
        return ()
    try:
        outcomes = cluster.producer_outcomes(owner.producer_id, owner.topic_partitions)
    except NotFound:  # a topic of it is deleted, or hidden
        words = f"no commit includes what is open under {owner.transactional_id}"
        return [Claim(words=words, status=NOT_PROVEN)]
    return [outcomes[tp].no_commit for tp in sorted(outcomes)]


def _warnings(cluster: Cluster, transactional_id: str, verdict: str) -> tuple[str, ...]:
    fenced = (FENCED, OF_CONNECT_LEADER) if CONNECT_LEADER.fullmatch(transactional_id) else (FENCED,)
    if verdict in {"decided", "committed", "checkpointed"}:
        return (MEANINGS[verdict], *fenced)
    if verdict == "idle":
        return fenced
    checkpoints = [each for each in cluster.flink_checkpoints if not each.others]
    own = [each.name for each in checkpoints if each.has_prefix_of(transactional_id)]
    if own:
        return (f"Its {own[-1]} {NOT_CHECKPOINTED}", LOST, *fenced)
    return (FLINK, LOST, *fenced) if may_be_flinks(transactional_id) else (LOST, *fenced)
