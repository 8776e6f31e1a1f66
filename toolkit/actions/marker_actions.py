"""Actions that are one marker to the leader of a partition: abort and complete.

An abort marker on a live or a committed transaction silently loses its records there: it needs the proof that nobody
owns any open batch, and that no commit includes any. What it discards is saved first (KIP-664).

A coordinator may end a transaction without its marker on a partition: the marker is skipped while all replicas are
offline (KAFKA-20734), lost with an unclean election, compacted away, or refused. The records stay open there, and no
broker ends them; complete writes that marker. A COMMIT marker makes visible whatever the producer has open on the
partition, so every open batch has to be of a commit.

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

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.actions.plan import (
    RECHECK_AFTER,
    Action,
    LeftOut,
    Plan,
    PlanList,
    Progress,
    Result,
    Ruling,
    caught,
    changed,
)
from toolkit.actions.transaction import (
    PlannedTransaction,
    check_delivered,
    check_ended,
    check_was_read,
    delivered,
    group_offsets,
    lso_moved,
    marker_impact,
    open_state,
    partition_view,
    planned_transaction,
    producers_on,
    readable,
)
from toolkit.analysis.diagnosis import decision
from toolkit.analysis.diagnosis.decision import CHECKPOINT_ENTRY, NOT_PROVEN, OUTCOME_ENTRY, REFUTED, TO_COMMIT
from toolkit.analysis.diagnosis.rules import NEEDED, OFFSETS_DROPPED, claims_of, needed_override
from toolkit.analysis.exposure import is_of_another_system
from toolkit.analysis.transaction_owners import TWO_PHASE_COMMIT
from toolkit.errors import ActionRefused, BrokerError, ToolkitError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.schema.coerce import finding_row, records_of
from toolkit.schema.live import EvidenceEntry, Finding, Partition, Producer, Transaction
from toolkit.schema.table import Error, TopicPartition, TransactionKey
from toolkit.schema.verdict import Verdict
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import TOO_OLD, error_text, omitted_text
from toolkit.sources.live.coordinators import CoordinatorTopic, partition_numbers
from toolkit.sources.live.leaders import read_newest_metadata

if TYPE_CHECKING:
    from toolkit.schema.coerce import Data, FindingLike
    from toolkit.sources.live.broker_client import BrokerClient
    from toolkit.sources.live.cluster import Cluster


NOT_WRITTEN = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_PRODUCER_EPOCH",
        "NOT_ENOUGH_REPLICAS",
        "TRANSACTION_COORDINATOR_FENCED",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_VERSION",
    }
)
"""Errors of a leader that appends no marker. After any other one the marker may be in the log.

A broker that leads the partition no more while it waits for its replicas says NOT_LEADER_OR_FOLLOWER: the next leader
may have the marker (``Partition.checkEnoughReplicasReachOffset``).
"""


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
    of_topic = broker_client.WriteTxnMarkers.WritableTxnMarker.WritableTxnMarkerTopic
    topics = [of_topic(name=tp.topic, partition_indexes=[tp.partition])]
    marker = broker_client.WriteTxnMarkers.WritableTxnMarker(**fields, topics=topics)
    answer = client.send_one(broker_client.WriteTxnMarkers(markers=[marker]), broker_id=leader)
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
        check_cluster(cluster, [found])
        ruling, tp = self.ruling(found), found.tp
        if tp is None or found.start_offset is None:
            raise ActionRefused(
                f"{tp or 'The whole cluster'} is {found.verdict}: {found.reason}",
                means=self.only,
                do=f"Remedy: {found.advice}",
                command=found.command or (),
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
        coordinators = CoordinatorTopic.read(cluster.client, STATE_TOPIC)
        before = cluster.records(Partition, partitions=tps)
        findings = cluster.records(Finding, partitions=tps, recheck_after=recheck_after)
        producers = cluster.records(Producer, partitions=tps)
        plans = [replace(each, coordinators=coordinators) for each in plans]
        return [caught(partial(self._fresh, each, before, findings, producers)) for each in plans]

    def _fresh(
        self, plan: Plan, before: Sequence[Partition], findings: Sequence[Finding], producers: Sequence[Producer]
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
            raise ActionRefused(f"{old.target} ended just now.", means=self.nothing, do="Diagnose it again.")
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
                raise ActionRefused(
                    f"A coordinator no longer responds: {owner.error}.", means=self.nothing, do="Diagnose it again."
                )
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
            raise ActionRefused(f"{txn.target} ended just now.", means=self.nothing, do="Diagnose it again.")
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
        if Error.of(answer).code in NOT_WRITTEN:
            progress.effect = "nothing"
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
                f"To find out, diagnose the partition: the marker was not written so far if producer {txn.producer_id} "
                f"still has a transaction open at offset {txn.start_offset}; a request on its way may still write it. "
                "If it is not open, kafka-txn scan shows which marker ended it."
            ),
            command=("kafka-txn", "diagnose", *txn.tp.options),
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
        unproven = [each.claim for each in claims if each.status == NOT_PROVEN]
        refuted = [each.claim for each in claims if each.status == REFUTED]
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
                replace(each, discharged_by=proof if each.status != NOT_PROVEN else None)
                for each, proof in zip(claims, (found.reason, outcome), strict=False)
            ],
            refusal=refusal,
            refused=f"is {found.verdict} now, {self.blocked}",
            needed_override=None if refusal is None or never else needed_override(found, needs),
            cannot=never or why_not(found),
            remedy=found.advice,
            command=found.command or (),
        )


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


def check_cluster(cluster: Cluster, findings: Iterable[Finding]) -> None:
    """Refuse what was found on another cluster: that it is not open here says nothing of that one."""
    for each in findings:
        if each.cluster_id not in {None, cluster.cluster_id or each.cluster_id}:
            raise ActionRefused(
                f"What was found on cluster {each.cluster_id} is not looked for on this one, {cluster.cluster_id}.",
                means=Action.nothing,
                do="Connect to the cluster on which it was found, or diagnose this one.",
            )


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
    producers = producers_on(cluster.records(Producer, partitions=[tp], broker_id=partition.leader), tp)
    txn = planned_transaction(found, partition, producers)
    if txn is None:
        raise no_longer_open(found.producer_id, f"{tp}@{found.start_offset}")
    return replace(txn, impact=marker_impact(cluster, txn, partition=partition, producers=producers))


def no_longer_open(producer_id: int | None, target: str) -> ActionRefused:
    """The refusal of a transaction that ended since it was found."""
    return ActionRefused(
        f"Producer {producer_id} has no transaction open at {target} any more.",
        means=f"It ended since it was found. {Action.nothing}",
        do="Diagnose it again.",
    )


LOST_COMMIT = (
    "if __transaction_state lost its newest records in a crash just then, a commit with transaction version 1 can be "
    "missing from it without a trace: ask the owner of the producer"
)


class Abort(MarkerAction):
    """The abort marker."""

    name = "abort"
    blocked = "not proven to be hanging"
    only = "Only a transaction proven to be hanging is ended by an abort marker; any other has an owner."
    discards = True
    kafka_tool = ("abort",)  # it reads the epochs from the leader (brokers from 2.8 on)

    def ruling(self, found: Finding) -> Ruling:
        if found.outcome == decision.COMMIT:
            return Ruling(
                verdict=found.verdict,
                outcome=found.outcome,
                reason=found.reason,
                refusal=f"its records were committed, and an abort marker would discard them: {why_not(found)}",
                refused="is never aborted",
                remedy=found.advice,
                command=found.command or (),
            )
        is_hanging = found.verdict is Verdict.HANGING and found.outcome in {decision.UNDECIDED, decision.ABORT}
        is_offered = found.action == "abort" and is_hanging
        return self.ruling_by_claims(found, "abort", refusal=None if is_offered else why_not(found))

    def warnings(self, found: Finding) -> Sequence[str]:
        return [*([OFFSETS_DROPPED] if found.topic == OFFSETS_TOPIC else []), LOST_COMMIT]

    def is_in_use(self, txn: PlannedTransaction, owner: Transaction) -> bool:
        is_alive = owner.state == "Ongoing" and owner.producer_epoch in {None, txn.producer_epoch}
        is_decided = (owner.state or "").startswith("Prepare")
        return txn.tp in (owner.topic_partitions or ()) and (is_alive or is_decided)

    def read_back(self, fresh: Plan, check: Callable[[], None]) -> Result:
        return Result(partitions=[lso_moved(fresh.cluster, fresh.transaction, check)])


ABORT = Abort()


def plan_abort(cluster: Cluster, finding: FindingLike | Finding) -> Plan:
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
        If the finding has an owner or is of another cluster, its records were committed, or nothing is open any more.
    BrokerError
        If the leader does not show the partition, or its producers.
    """
    return ABORT.plan(cluster, finding)


def plan_abort_list(cluster: Cluster, transactions: Data, *, recheck_after: float = RECHECK_AFTER) -> PlanList:
    """Diagnose the transactions of a list again, and plan the abort of those that hang; nothing is written.

    Parameters
    ----------
    cluster
        Where the markers would go.
    transactions
        Findings, as rows or a frame of ``schema.FINDINGS``. Topic, partition, producer id and start offset name each
        transaction; all else is observed again. An entry that lacks one of them is left out. Where they have a cluster
        id, it has to be that of this cluster.
    recheck_after
        Delay in seconds before the confirming second check.

    Raises
    ------
    ActionRefused
        If they are of another cluster.
    """
    found_before = records_of(transactions, Finding, some_columns=True)
    check_cluster(cluster, found_before)
    listed = {each.key: each for each in found_before}
    keys = sorted(key for key in listed if None not in key)
    tps = sorted({TopicPartition(key.topic or "", key.partition or 0) for key in keys})
    metadata = read_newest_metadata(cluster.client, {tp.topic for tp in tps})
    there = [tp for tp in tps if tp in metadata.partitions]
    absent = {tp: f"{tp} cannot be read: {each.error}." for tp, each in metadata.at({*tps} - {*there}).items()}
    findings = cluster.records(Finding, partitions=there, recheck_after=recheck_after) if there else []
    found = [_plan_or_left_out(cluster, key, findings, absent) for key in keys]
    nameless = [each for key, each in listed.items() if None in key]  # a partition or a broker that could not be read
    return PlanList(
        cluster=cluster,
        plans=_what_frees_most_first([each for each in found if isinstance(each, Plan)]),
        left_out=[
            *(each for each in found if isinstance(each, LeftOut)),
            *(
                LeftOut(
                    target=str(each.tp or "the whole cluster"),
                    verdict=None,
                    outcome=None,
                    reason="The list names no open transaction there.",
                )
                for each in nameless
            ),
        ],
    )


def _what_frees_most_first(plans: Sequence[Plan]) -> list[Plan]:
    """By the records that the markers of a partition free, an unknown number first; on each by its offsets."""
    freed: dict[TopicPartition, float] = {}
    for each in plans:
        tp, released = each.transaction.tp, each.impact.records_released
        freed[tp] = freed.get(tp, 0.0) + (float("inf") if released is None else released)
    return sorted(
        plans, key=lambda each: (-freed[each.transaction.tp], each.transaction.tp, each.transaction.start_offset)
    )


def _plan_or_left_out(
    cluster: Cluster, key: TransactionKey, findings: Sequence[Finding], absent: Mapping[TopicPartition, str]
) -> Plan | LeftOut:
    tp = TopicPartition(key.topic or "", key.partition or 0)
    target = f"{tp}@{key.start_offset}"
    fresh = next((each for each in findings if each.key == key), None)
    try:
        if fresh is None:
            check_was_read(findings, tp, what="it is open")
            reason = absent.get(tp) or f"Producer {key.producer_id} has no transaction open there any more."
            return LeftOut(target=target, verdict=None, outcome=None, reason=reason)
        plan = ABORT.plan(cluster, fresh)
        refusal = plan.refusal
    except (ActionRefused, BrokerError) as error:
        refusal = error.what
    if refusal is None:
        return plan
    if fresh is None:
        return LeftOut(target=target, verdict=None, outcome=None, reason=refusal)
    return LeftOut(
        target=target,
        verdict=fresh.verdict,
        outcome=fresh.outcome,
        reason=refusal,
        remedy=fresh.advice,
        command=fresh.command or (),
    )


LOST_ABORT = (
    "if __transaction_state lost its newest records in a crash just then, an abort with transaction version 1 can be "
    "missing from it without a trace: ask the owner of the producer"
)


class Complete(MarkerAction):
    """The marker that is missing; a COMMIT if that is asserted only."""

    name = "complete"
    blocked = "and cannot be completed"
    only = "It writes only a marker that was decided and that nobody else will write."
    after_plan_s = 10.0  # so that a later proof of an outcome can take it for one by hand (COMPLETED_AFTER)

    def is_commit(self, plan: Plan) -> bool:
        return plan.basis.outcome != decision.ABORT

    def ruling(self, found: Finding) -> Ruling:
        is_commit = (
            found.outcome == decision.COMMIT and found.verdict is Verdict.STUCK_ENDING and found.action == "complete"
        )
        is_abort = (
            found.outcome == decision.ABORT
            and found.verdict is Verdict.HANGING
            and found.action in {"abort", "complete"}
        )
        if found.topic == STATE_TOPIC:
            refusal: str | None = "no marker belongs on the coordinators' own topic."
        elif is_commit or is_abort:
            refusal = None
        elif found.outcome in {decision.COMMIT, decision.ABORT}:
            refusal = f"its coordinator may still write the marker. {why_not(found)}"
        else:
            outcome = found.outcome or "not known"
            refusal = f"its outcome is {outcome}, so no marker is known to be missing. {why_not(found)}"
        needs = "abort" if found.outcome == decision.ABORT else "complete"
        return self.ruling_by_claims(found, needs, refusal=refusal)

    def warnings(self, found: Finding) -> Sequence[str]:
        return [LOST_ABORT]

    def is_in_use(self, txn: PlannedTransaction, owner: Transaction) -> bool:
        """A transaction whose own marker may follow, and may say something else.

        An open one of a newer epoch that has written nothing here yet is none: once it has, the leader refuses this
        marker. Left alone, its ABORT marker would discard the committed records.
        """
        is_same_epoch = owner.producer_epoch is None or owner.producer_epoch <= txn.producer_epoch
        is_open_here = owner.state == "Ongoing" and txn.tp in (owner.topic_partitions or ()) and is_same_epoch
        return (owner.state or "").startswith("Prepare") or is_open_here

    def read_back(self, fresh: Plan, check: Callable[[], None]) -> Result:
        cluster, txn = fresh.cluster, fresh.transaction
        done = delivered(cluster, txn, lso_moved(cluster, txn, check), check)
        check_delivered(done, txn, is_commit=self.is_commit(fresh))
        result = Result(partitions=[done])
        if txn.topic != OFFSETS_TOPIC or txn.impact is None:
            return result
        commits, unread = group_offsets(cluster, txn.impact.offset_commits)
        return replace(result, offset_commits=commits, unread_groups=unread)


COMPLETE = Complete()


def plan_complete(cluster: Cluster, finding: FindingLike | Finding) -> Plan:
    """Plan the marker that is missing, and what becomes visible by it; nothing is written.

    Parameters
    ----------
    cluster, finding
        As for `plan_abort`.

    Raises
    ------
    ActionRefused
        If the finding refutes that all of its records are committed, or aborted, its coordinator may still write the
        marker, or nothing is open any more.
    BrokerError
        If the leader does not show the partition, its producers or its log.
    """
    return COMPLETE.plan(cluster, finding)
