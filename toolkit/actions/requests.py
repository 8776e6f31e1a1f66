"""What an action sends, and the guards right before it: a marker to a leader, or a request to a coordinator.

Which epochs a leader accepts in a marker (WriteTxnMarkers: KIP-98, KIP-664) was tried on Kafka 2.8.2, 3.3.2, 3.5.2,
3.9.2, 4.0.1, 4.1.2, 4.2.1, 4.3.1 and 4.4.0. It is the same on all of them, for COMMIT and ABORT, for clients of
transaction versions 1 and 2, for every version of the request (0 and 1 up to 3.9, 1 up to 4.1, 1 and 2 from 4.2 on):

========================================= ==================================================================
in the marker, beside the partition's     the leader
producer state
========================================= ==================================================================
a lower producer epoch                    refuses it: INVALID_PRODUCER_EPOCH
the same producer epoch                   accepts it, unless ``transaction_version`` is 2 (from 4.2 on, KIP-1228):
                                          INVALID_PRODUCER_EPOCH
a higher producer epoch                   accepts it, and from then on refuses the producer's own epoch
a lower coordinator epoch, -1 included    refuses it: TRANSACTION_COORDINATOR_FENCED
the same coordinator epoch                accepts it; where the state has none, any, -1 included
a higher coordinator epoch                accepts it, and from then on refuses the coordinator's real markers
========================================= ==================================================================

So the marker has the epochs of the partition's producer state, and transaction version 0. Source:
``ProducerAppendInfo.checkProducerEpoch`` and ``checkCoordinatorEpoch``. A marker on a partition where the producer has
nothing open is accepted, too, and changes nothing.
"""

from __future__ import annotations

import shlex
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.actions.plan import Action, Plan, Progress, Result, Ruling
from toolkit.actions.transaction import (
    PlannedTransaction,
    check_ended,
    check_was_read,
    marker_impact,
    open_state,
    partition_view,
    partition_views,
    planned_transaction,
    producer_views,
    producers_on,
    readable,
)
from toolkit.analysis.coordinator.transaction_owners import TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.rules import NEEDED, claims_of, needed_override
from toolkit.analysis.diagnosis.verdicts import CHECKPOINT_ENTRY, NOT_PROVEN, OUTCOME_ENTRY, REFUTED, TO_COMMIT
from toolkit.analysis.exposure import is_of_another_system
from toolkit.errors import ActionRefused, BrokerError, NotFound, ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.coerce import finding_row
from toolkit.schema.live import EvidenceEntry, Finding, Partition, Producer, Transaction
from toolkit.schema.recorded import ActionClaim
from toolkit.schema.table import Error, TopicPartition
from toolkit.schema.verdict import Verdict
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_response import TOO_OLD, error_text, omitted_text
from toolkit.sources.live.state.coordinators import TRANSACTION, CoordinatorTopic, find_coordinators, partition_numbers

if TYPE_CHECKING:
    from toolkit.schema.coerce import FindingLike
    from toolkit.sources.live.client.broker_client import BrokerClient
    from toolkit.sources.live.cluster import Cluster

POLL_S = 0.1
UNCERTAIN = frozenset(
    {
        "INCOMPLETE_RESPONSE",
        "KAFKA_STORAGE_ERROR",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_SERVER_ERROR",
    }
)
"""Errors after which the marker may be in the log: the leader appended it, and its replicas may not have it."""
NOT_DONE = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
"""Errors of any request to a coordinator after which it has had no effect."""
PASSING = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
ENDED = {"Empty", "CompleteAbort", "CompleteCommit"}


def marker_fields(txn: PlannedTransaction, *, is_commit: bool) -> Mapping[str, Any]:
    """The fields of a marker, by the names of Kafka's WriteTxnMarkers: the epochs are those of the producer state.

    Without a coordinator epoch (no marker of this producer so far), 0 is sent.
    """
    return {
        "producer_id": txn.producer_id,
        "producer_epoch": txn.producer_epoch,
        "transaction_result": is_commit,
        "coordinator_epoch": txn.coordinator_epoch or 0,
        "transaction_version": 0,
    }


def write_marker(client: BrokerClient, tp: TopicPartition, fields: Mapping[str, Any], *, leader: int) -> str:
    """Send a marker to the leader, as Kafka's Admin does (AbortTransactionHandler), and return ``NONE`` or the error.

    Raises BrokerError, ConnectionFailed if there is no response: it may have been written.
    """
    of_topic = messages.WriteTxnMarkers.WritableTxnMarker.WritableTxnMarkerTopic
    topics = [of_topic(name=tp.topic, partition_indexes=[tp.partition])]
    marker = messages.WriteTxnMarkers.WritableTxnMarker(**fields, topics=topics)
    answer = client.send_one(messages.WriteTxnMarkers(markers=[marker]), broker_id=leader)
    codes = [each.error_code for sent in answer.markers for topic in sent.topics for each in topic.partitions]
    if not codes:
        return omitted_text("WriteTxnMarkers", "the marker")
    return error_text(codes[0]) if codes[0] else "NONE"


class MarkerAction(Action):
    """One marker for one transaction on one partition, written to its leader."""

    right = "The principal needs ALTER on the Cluster (Kafka 3.8 or newer) or CLUSTER_ACTION."
    blocked: ClassVar[str]  # what a transaction is that it is not offered for
    only: ClassVar[str]  # what it is for, as a sentence

    @abstractmethod
    def ruling(self, found: Finding) -> Ruling:
        """Whether it is offered for a finding."""

    @abstractmethod
    def warnings(self, found: Finding) -> Sequence[str]:
        """What it loses beside the transaction's own records, and what no check can exclude."""

    @abstractmethod
    def is_in_use(self, txn: PlannedTransaction, owner: Transaction) -> bool:
        """Whether a transaction of the producer forbids the marker."""

    @abstractmethod
    def read_back(self, fresh: Plan, check: Callable[[], None]) -> Result:
        """What consumers of the partition receive now that the marker is written."""

    def plan(self, cluster: Cluster, finding: FindingLike | Finding) -> Plan:
        """Plan it for a finding, and what it would change; nothing is written.

        Raises ActionRefused if it is not offered and nobody may override that, or nothing is open any more. Raises
        BrokerError if the leader does not show the partition, or its producers.
        """
        found = finding if isinstance(finding, Finding) else Finding.of(finding_row(finding))
        ruling, tp = self.ruling(found), found.tp
        if tp is None or found.start_offset is None:
            raise ActionRefused(
                f"{tp or 'The whole cluster'} is {found.verdict}: {found.reason}",
                means=self.only,
                do=f"Remedy: {found.remedy}",
            )
        name = f"{tp}@{found.start_offset}"
        if ruling.refusal is not None and ruling.needed_override is None:
            ruling.check(None, target=name, means=self.only)
        return Plan(
            cluster=cluster,
            action=self,
            ruling=ruling,
            transactions=[planned_with_impact(cluster, found)],
            warnings=self.warnings(found),
        )

    def fresh_plans(self, plans: Sequence[Plan], recheck_after: float) -> Sequence[Plan | ToolkitError]:
        cluster, tps = plans[0].cluster, sorted({each.transaction.tp for each in plans})
        coordinators, before = CoordinatorTopic.read(cluster.client, STATE_TOPIC), partition_views(cluster, tps)
        findings = cluster.records(Finding, partitions=tps, recheck_after=recheck_after)
        producers = producer_views(cluster, tps)
        plans = [replace(each, coordinators=coordinators) for each in plans]
        return [_caught(partial(self._fresh, each, before, findings, producers)) for each in plans]

    def _fresh(
        self,
        plan: Plan,
        before: Mapping[TopicPartition, Partition],
        findings: Sequence[Finding],
        producers: Sequence[Producer],
    ) -> Plan:
        old = plan.transaction
        partition = readable(before, old.tp)
        mine = (old.tp, old.producer_id, old.start_offset)
        found = next((each for each in findings if (each.tp, each.producer_id, each.start_offset) == mine), None)
        if found is None:
            check_was_read(findings, old.tp, what=f"{old.target} is still open")
            raise no_longer_open(old.producer_id, old.target)
        if found.producer_epoch != old.producer_epoch:
            raise changed(old.target, f"its epoch is {found.producer_epoch}, not {old.producer_epoch}")
        txn = planned_transaction(found, partition, producers_on(producers, old.tp))
        if txn is None:
            raise ActionRefused(f"{old.target} ended just now.", means=self.nothing)
        check_state(old, txn)
        fresh = replace(plan, ruling=self.ruling(found), transactions=[replace(txn, impact=old.impact)])
        if fresh.outcome != plan.outcome:
            raise changed(old.target, f"its outcome is {fresh.outcome}, and was {plan.outcome}")
        return fresh

    def guard(self, fresh: Plan) -> None:
        """The coordinators, then the leader, and last its producer state."""
        cluster, txn = fresh.cluster, fresh.transaction
        for owner in cluster.records(Transaction, producer_ids=[txn.producer_id]):
            if owner.error:
                if fresh.refusal is not None or owner.error.startswith(TOO_OLD):
                    continue  # what it would say is what was overridden
                raise ActionRefused(f"A coordinator no longer responds: {owner.error}.", means=self.nothing)
            if self.is_in_use(txn, owner):
                raise changed(txn.target, f'"{owner.transactional_id}" is {owner.state} on it now')
        # A new coordinator may have another log than the one that was read, and says nothing before it loads it.
        assert fresh.coordinators is not None
        if moved := fresh.coordinators.moved_until(CoordinatorTopic.read(cluster.client, STATE_TOPIC)):
            raise ActionRefused(
                f"Leadership of {STATE_TOPIC} {partition_numbers(moved)} moved since {txn.target} was checked.",
                means=f"Its new coordinator may know more of the transaction. {self.nothing}",
                do="Run it again.",
            )
        now = partition_view(cluster, txn.tp)
        # A marker can only have been skipped, or lost, in between if the leader changed.
        if (now.leader, now.leader_epoch) != (txn.leader, txn.leader_epoch):
            raise changed(
                txn.target,
                f"broker {now.leader} leads the partition in epoch {now.leader_epoch}, and it was broker "
                f"{txn.leader} in epoch {txn.leader_epoch}",
            )
        state = open_state(cluster, txn, broker_id=txn.leader)
        if state is None:
            raise ActionRefused(f"{txn.target} ended just now.", means=self.nothing)
        check_state(txn, state)

    def request(self, fresh: Plan) -> str:
        fields = marker_fields(fresh.transaction, is_commit=self.is_commit(fresh)).items()
        named = ", ".join(f"{name}={value}" for name, value in fields)
        return f"WriteTxnMarkers to broker {fresh.transaction.leader}: {named}"

    def send(self, fresh: Plan, progress: Progress) -> str:
        txn, client = fresh.transaction, fresh.cluster.client
        fields = marker_fields(txn, is_commit=self.is_commit(fresh))
        progress.sending()
        answer = progress.wait(partial(write_marker, client, txn.tp, fields, leader=txn.leader or 0))
        progress.effect = "uncertain" if Error.of(answer).code in UNCERTAIN else "nothing"
        return answer

    def refused(self, fresh: Plan) -> str:
        marker = f"the {fresh.outcome.upper()} marker for {fresh.target}"
        return f"Broker {fresh.transaction.leader} answered {marker} with an error"

    def verify(self, fresh: Plan, check: Callable[[], None]) -> Result:
        check_ended(fresh.cluster, fresh.transaction, check)
        return self.read_back(fresh, check)

    def progress(self, plan: Plan, cancel: threading.Event | None) -> Progress:
        txn, kind = plan.transaction, plan.outcome.upper()
        return Progress(
            nothing=self.nothing,
            written=f"The {kind} marker was written.",
            uncertain=f"It is uncertain whether the {kind} marker was written.",
            find_out=(
                f"To find out, run kafka-txn diagnose {txn.tp.flags}: the marker was written if no transaction of "
                f"producer {txn.producer_id} is open at offset {txn.start_offset} any more."
            ),
            cancel=cancel,
        )

    def evidence(self, fresh: Plan) -> tuple[EvidenceEntry, ...]:
        return fresh.basis.evidence

    def ruling_by_claims(self, found: Finding, needs: str, *, refusal: str | None) -> Ruling:
        """The ruling by the claims of a finding: all that the marker needs has to be proven, or overridden.

        `needs`: the action whose claims it needs: ``abort`` or ``complete``.
        `refusal`: why the finding itself does not offer it; null if it does.
        """
        outcome = next((each.value for each in found.evidence if each.name == OUTCOME_ENTRY), None)
        claims = claims_of(found, needs)
        unproven = [each.words for each in claims if each.status == NOT_PROVEN]
        refuted = [each.words for each in claims if each.status == REFUTED]
        is_complete = len(claims) == len(NEEDED[needs])
        if refusal is None and (refuted or unproven or not is_complete):
            missing = " and that ".join(refuted or unproven) or "nobody owns it, and what was decided about it"
            refusal = f"it is {'refuted' if refuted else 'not proven'} that {missing}"
        never = _never(found)
        if not never and refuted:
            never = f"it is refuted that {' and that '.join(refuted)}"
        elif not never and not is_complete:
            never = why_not(found)
        return Ruling(
            verdict=found.verdict,
            outcome=found.outcome,
            reason=found.reason,
            claims=[
                ActionClaim(
                    claim=each.words, status=each.status, discharged_by=proof if each.status != NOT_PROVEN else None
                )
                for each, proof in zip(claims, (found.reason, outcome), strict=False)
            ],
            refusal=refusal,
            refused=f"is {found.verdict} now, {self.blocked}",
            needed_override=None if refusal is None or never else needed_override(found, needs),
            cannot=never or why_not(found),
            remedy=found.remedy,
        )


def _caught(make: Callable[[], Plan]) -> Plan | ToolkitError:
    """The plan, or why there is none."""
    try:
        return make()
    except ToolkitError as error:
        return error


def why_not(found: Finding) -> str:
    """What is missing, or the reason of the verdict."""
    return "; ".join(found.missing) or found.reason


def _never(found: Finding) -> str:
    """Why not even a person's word is enough; empty where it is."""
    if found.verdict is not Verdict.UNKNOWN:
        return found.reason
    if found.topic == STATE_TOPIC:
        return "no marker belongs on the coordinators' own topic."
    if other := next(filter(is_of_another_system, found.missing), None):
        return f"its brokers end transactions by other rules, with a remedy of their own: {other}"
    values = {(entry.name, entry.value or "") for entry in found.evidence}
    if to_commit := next((text for name, text in values if name == CHECKPOINT_ENTRY and TO_COMMIT in text), None):
        return f"{to_commit}: its Flink job considers the records written."
    if any(name == "state" and value.startswith("Prepare") for name, value in values):
        return "its coordinator has decided a transaction of this producer."
    if ("timeout_ms", str(TWO_PHASE_COMMIT)) in values:
        return "it belongs to a two-phase commit, which only its external coordinator decides."
    return ""


def check_state(planned: PlannedTransaction, now: PlannedTransaction | Producer) -> None:
    """Refuse what the leader knows otherwise than when it was planned."""
    for name in ("last_sequence", "coordinator_epoch", "last_timestamp"):
        value, before = getattr(now, name), getattr(planned, name)
        if value != before:
            raise changed(planned.target, f"its {name} is {value}, and was {before}")


def planned_with_impact(cluster: Cluster, found: Finding) -> PlannedTransaction:
    """A finding's transaction as its leader has it now, and what its marker would change.

    Raises ActionRefused if it is not open any more. Raises BrokerError if the leader does not show it.
    """
    tp = found.tp
    assert tp is not None
    partition = partition_view(cluster, tp)
    producers = producers_on(producer_views(cluster, [tp], broker_id=partition.leader), tp)
    txn = planned_transaction(found, partition, producers)
    if txn is None:
        raise no_longer_open(found.producer_id, f"{tp}@{found.start_offset}")
    return replace(txn, impact=marker_impact(cluster, txn, partition=partition, producers=producers))


def no_longer_open(producer_id: int | None, target: str) -> ActionRefused:
    """The refusal of a transaction that ended since it was found."""
    return ActionRefused(
        f"Producer {producer_id} has no transaction open at {target} any more.",
        means=f"It ended since it was found. {Action.nothing}",
    )


def changed(name: str, how: str, *, nothing: str = Action.nothing) -> ActionRefused:
    """The refusal of what is not as it was planned."""
    return ActionRefused(
        f"{name} changed since it was planned: {how}.",
        means=f"It is in use. {nothing}",
        do="Run kafka-txn diagnose, and plan again.",
    )


class CoordinatorAction(Action):
    """One request to the coordinator of a transactional id."""

    right = "The principal needs WRITE on the transactional id."
    nothing = "Nothing was sent."
    done: ClassVar[str]  # what has happened to its target once it is done, with its subject
    not_done: ClassVar[Container[str]]  # errors after which it has had no effect
    done_if: ClassVar[str]  # how kafka-txn describe shows that it is done

    @abstractmethod
    def fresh(self, plan: Plan, recheck_after: float) -> Plan:
        """The plan as it would be made now. Raises ActionRefused if its id is not as it was planned."""

    @abstractmethod
    def message(self, fresh: Plan) -> Any:
        """The request."""

    def fresh_plans(self, plans: Sequence[Plan], recheck_after: float) -> Sequence[Plan | ToolkitError]:
        return [_caught(partial(self.fresh, each, recheck_after)) for each in plans]

    def answer_of(self, message: Any) -> str:
        """``NONE``, with what came with it, or the error."""
        return error_text(message.error_code) if message.error_code else "NONE"

    def send(self, fresh: Plan, progress: Progress) -> str:
        """The coordinator's answer, once it is not one that passes by itself: a loading, a marker being written."""
        cluster, request = fresh.cluster, self.message(fresh)
        deadline = time.monotonic() + cluster.timeout
        may_have_effect = False
        while True:
            coordinator = progress.wait(partial(coordinator_of, cluster, fresh.target))
            if isinstance(coordinator, int):
                progress.sending()
                message = progress.wait(partial(cluster.client.send_one, request, broker_id=coordinator))
                answer = self.answer_of(message)
                may_have_effect |= Error.of(answer).code not in self.not_done
            else:
                answer = coordinator
            if Error.of(answer).code not in PASSING or time.monotonic() > deadline:
                break
            progress.check_cancelled()
            threading.Event().wait(POLL_S)
        if not may_have_effect:
            progress.effect = "nothing"
        return answer

    def refused(self, fresh: Plan) -> str:
        return f"The coordinator refused to {self.name} {fresh.name}"

    def progress(self, plan: Plan, cancel: threading.Event | None) -> Progress:
        was = plan.committable or plan.owner
        assert was is not None
        subject, _, verb = self.done.partition(" was ")
        return Progress(
            nothing=self.nothing,
            written=f"{self.done}.",
            uncertain=f"It is uncertain whether {subject[:1].lower()}{subject[1:]} was {verb}.",
            find_out=(
                f"To find out, run kafka-txn describe --transactional-id {shlex.quote(plan.target)}: "
                + self.done_if.format(producer_id=was.producer_id, producer_epoch=was.producer_epoch)
            ),
            cancel=cancel,
        )

    def evidence(self, fresh: Plan) -> tuple[EvidenceEntry, ...]:
        owner = fresh.owner
        assert owner is not None
        observation = fresh.observation
        values = {
            "state": owner.state,
            "producer_id": owner.producer_id,
            "producer_epoch": owner.producer_epoch,
            "timeout_ms": owner.timeout_ms,
            "start_time": owner.start_time,
            "brokers_time": None if observation is None else observation.brokers_time.text,
            "topic_partitions": ", ".join(f"{topic}-{number}" for topic, number in owner.topic_partitions or ()),
        }
        source = EvidenceEntry(source=owner.source, broker_id=owner.broker_id, observed_at=owner.observed_at)
        return tuple(replace(source, name=name, value=str(each)) for name, each in values.items() if each is not None)


def describe_owner(cluster: Cluster, transactional_id: str) -> Transaction:
    """The coordinator's state of an id.

    Raises NotFound if its coordinator has no such id. Raises BrokerError if it does not describe it.
    """
    (owner,) = cluster.records(Transaction, transactional_ids=[transactional_id])
    if owner.error:
        code = Error.of(owner.error).code
        if code == "TRANSACTIONAL_ID_NOT_FOUND":
            raise NotFound(f"There is no transactional id {transactional_id!r}.", means="It never was, or has expired.")
        raise BrokerError(f"{transactional_id!r} could not be described: {owner.error}.", code=code)
    return owner


def ended_owner(
    plan: Plan, check: Callable[[], None], *, is_over: Callable[[Transaction], bool] = lambda owner: False
) -> Transaction:
    """The coordinator's state of an id once its transaction has ended, or `is_over`, or so is the time.

    `check`: called while it waits; what it raises ends the wait.
    """
    deadline = time.monotonic() + plan.cluster.timeout
    while True:
        now = describe_owner(plan.cluster, plan.target)
        if now.state in ENDED or is_over(now) or time.monotonic() > deadline:
            return now
        check()
        threading.Event().wait(POLL_S)


def check_same_owner(plan: Plan, now: Transaction) -> None:
    """Refuse an id that is not as it was when this was planned."""
    for name in ("producer_id", "producer_epoch", "state", "start_time", "topic_partitions"):
        value, before = getattr(now, name), getattr(plan.owner, name)
        if value != before:
            raise changed(plan.name, f"its {name} is {value}, and was {before}", nothing=plan.action.nothing)


def coordinator_of(cluster: Cluster, transactional_id: str) -> int | str:
    """Broker id of an id's coordinator, or the error."""
    ((answer, found),) = find_coordinators(cluster.client, [transactional_id], TRANSACTION)
    if found is None or found.error_code:
        return str(answer.error_text or error_text(found.error_code))
    return int(found.node_id)
