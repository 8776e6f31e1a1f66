"""Actions that are one request to the coordinator of a transactional id: commit and fence.

Commit ends what a checkpoint of Flink has pre-committed. A job that dies between the end of a checkpoint and its commit
leaves the transaction open, until it is restored or the coordinator aborts it by its timeout, which loses records that
the job considers written (FLIP-572). EndTxn with the checkpoint's id, producer id and epoch is what the restored job
sends (``FlinkKafkaInternalProducer``). A coordinator that has committed already answers it in the same way, so that a
later restore finds it done.

Fence does what Kafka's ``forceTerminateTransaction`` and ``fenceProducers`` do. InitProducerId without a producer id
has the coordinator abort what is open under the id, on all of its partitions, and give out a new epoch: the producer
that had the old one is refused from then on (KIP-360, KIP-939; ``FenceProducersHandler``).
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.actions.marker_actions import planned_with_impact
from toolkit.actions.plan import RECHECK_AFTER, Action, Plan, Progress, Result, Ruling, caught, changed
from toolkit.actions.transaction import check_delivered, check_ended, delivered, first_epoch, lso_moved
from toolkit.analysis.diagnosis import decision as rules
from toolkit.analysis.diagnosis.decision import PROVEN
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, TransactionAge, is_overdue
from toolkit.analysis.transaction_history import LAST_EPOCH
from toolkit.analysis.transaction_owners import CONNECT_LEADER, may_be_flinks
from toolkit.errors import ActionRefused, BrokerError, NotFound, ToolkitError
from toolkit.formats.flink_checkpoint import newer, newer_of_other_job, read_checkpoint
from toolkit.schema.checkpoint import Committable, FlinkCheckpoint
from toolkit.schema.durations import CLOCKS_DIFFER, duration
from toolkit.schema.live import EvidenceEntry, Finding, Transaction
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.recorded import ActionClaim
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import error_text, omitted_text
from toolkit.sources.live.coordinators import TRANSACTION, find_coordinators

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster


POLL_S = 0.1
NOT_DONE = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"})
"""Errors of any request to a coordinator after which it has had no effect.

COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR are also the answers of one whose decision is in its log, and did not get
to enough replicas in time, or before another broker led them (``TransactionStateManager.appendTransactionToLog``).
"""
PASSING = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
ENDED = {"Empty", "CompleteAbort", "CompleteCommit"}


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
        return [caught(partial(self.fresh, each, recheck_after)) for each in plans]

    def answer_of(self, message: Any) -> str:
        """``NONE``, with what came with it, or the error."""
        return error_text(message.error_code) if message.error_code else "NONE"

    def send(self, fresh: Plan, progress: Progress) -> str:
        """The coordinator's answer, once it is not one that passes by itself: a loading, a marker being written."""
        cluster, request = fresh.cluster, self.message(fresh)
        deadline = time.monotonic() + cluster.timeout
        may_have_effect = False
        answer = "COORDINATOR_NOT_AVAILABLE"
        while True:
            coordinator = progress.wait(partial(coordinator_of, cluster, fresh.target))
            if isinstance(coordinator, int):
                # A broker that hangs answers FindCoordinator late, and what passes takes seconds: the client may have
                # gone on meanwhile, and the request would end what nobody has checked.
                other = progress.wait(partial(self.overtaken_by, fresh, may_have_effect=may_have_effect))
                if other:
                    return f"{Error.of(answer).code}: {other} by now, and was not asked for"
                if other is not None:
                    progress.sending()
                    message = progress.wait(partial(cluster.client.send_one, request, broker_id=coordinator))
                    answer = self.answer_of(message)
                    may_have_effect |= Error.of(answer).code not in self.not_done
                    if not may_have_effect:
                        progress.effect = "nothing"
            else:
                answer = coordinator
            if Error.of(answer).code not in PASSING or time.monotonic() > deadline:
                return answer
            progress.check_cancelled()
            threading.Event().wait(POLL_S)

    def overtaken_by(self, fresh: Plan, *, may_have_effect: bool) -> str | None:
        """What a request would end by now, unless it is what was checked: then empty.

        Null if the coordinator does not say.
        Raises ActionRefused if nothing has had an effect so far, and the id is not as it was.
        """
        try:
            if not may_have_effect:
                self.guard(fresh)
                return ""
            now = describe_owner(fresh.cluster, fresh.target)
        except BrokerError:
            return None
        who = f"producer {now.producer_id} epoch {now.producer_epoch}"
        return f"{who} is {now.state}" if self.is_overtaken(fresh, now) else ""

    def is_overtaken(self, fresh: Plan, now: Transaction) -> bool:
        """Whether a request that is repeated would end something else than what was checked."""
        return is_another(fresh, now)

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
            find_out="To find out, describe the id: "
            + self.done_if.format(producer_id=was.producer_id, producer_epoch=was.producer_epoch),
            command=_describe(plan.target),
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


def _describe(transactional_id: str) -> tuple[str, ...]:
    return ("kafka-txn", "describe", "--transactional-id", transactional_id)


def describe_owner(cluster: Cluster, transactional_id: str) -> Transaction:
    """The coordinator's state of an id.

    Raises NotFound if its coordinator has no such id. Raises BrokerError if it does not describe it.
    """
    (owner,) = cluster.records(Transaction, transactional_ids=[transactional_id])
    if owner.error:
        code = Error.of(owner.error).code
        if code == "TRANSACTIONAL_ID_NOT_FOUND":
            raise NotFound(
                f"There is no transactional id {transactional_id!r}.",
                means="It never existed, or has expired.",
                do="kafka-txn list shows those that are there.",
            )
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


def is_another(plan: Plan, now: Transaction) -> bool:
    """Whether the transaction that is open now is not the one that was checked."""
    names = ("producer_id", "producer_epoch", "start_time")
    return now.state == "Ongoing" and any(getattr(now, name) != getattr(plan.owner, name) for name in names)


def check_same_owner(plan: Plan, now: Transaction) -> None:
    """Refuse an id that is not as it was when this was planned."""
    for name in ("producer_id", "producer_epoch", "state", "start_time", "topic_partitions"):
        value, before = getattr(now, name), getattr(plan.owner, name)
        if isinstance(value, tuple) and isinstance(before, tuple):
            value, before = tuple(sorted(value)), tuple(sorted(before))  # another coordinator has another order
        if value != before:
            raise changed(plan.name, f"its {name} is {value}, and was {before}", nothing=plan.action.nothing)


def hidden_topic_gaps(cluster: Cluster, owner: Transaction) -> Sequence[str]:
    """Why an open transaction may include a topic that the coordinator's answer leaves out; empty if none may.

    DescribeTransactions silently omits topics that this principal may not describe; the coordinators' log has them all.
    """
    if not (gaps := cluster.topic_gaps()):
        return ()
    try:
        records = cluster.records(TransactionLogRecord, transactional_ids=[owner.transactional_id or ""])
    except ToolkitError:
        return gaps
    last = records[-1] if records else None
    is_same = last is not None and (last.state, last.producer_id, last.producer_epoch) == (
        owner.state,
        owner.producer_id,
        owner.producer_epoch,
    )
    if last is None or not is_same or not {*(last.topic_partitions or ())} <= {*(owner.topic_partitions or ())}:
        return gaps
    return ()


def coordinator_of(cluster: Cluster, transactional_id: str) -> int | str:
    """Broker id of an id's coordinator, or the error."""
    ((answer, found),) = find_coordinators(cluster.client, [transactional_id], TRANSACTION)
    if found is None:
        return str(answer.error_text or omitted_text("FindCoordinator", "this id"))
    return error_text(found.error_code) if found.error_code else int(found.node_id)


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
        if gaps := hidden_topic_gaps(cluster, owner):
            raise ActionRefused(
                f"{name!r} may have a topic in its transaction that this principal may not describe.",
                means=f"A commit would decide what is open there, too. {self.nothing}",
                do=f"Get what is missing: {'; '.join(gaps)}.",
            )
        partitions = sorted(owner.topic_partitions or ())
        findings = cluster.records(Finding, partitions=partitions, recheck_after=recheck_after)
        found = [each for each in findings if each.is_not_read or each.producer_id == committable.producer_id]
        if other := next((each for each in found if each.action != "commit"), None):
            raise ActionRefused(
                f"{other.tp} is {other.verdict}: {other.reason}",
                means=f"A commit would decide the records there, too. {self.nothing}",
                do=f"Remedy: {other.advice}",
                command=other.command or (),
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
                    do=f"Before anything is ended, read {txn.tp} from offset {txn.start_offset} with read_uncommitted, "
                    f"and keep the records of producer {txn.producer_id}.",
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
        assert fresh.owner is not None
        check_same_owner(plan, fresh.owner)
        return fresh

    def guard(self, fresh: Plan) -> None:
        assert fresh.committable is not None
        now = describe_owner(fresh.cluster, fresh.target)
        check_owner(now, fresh.committable)
        # A later one of version 1 has the same epoch, and partitions that were added since were not checked.
        check_same_owner(fresh, now)

    def request(self, fresh: Plan) -> str:
        own = fresh.committable
        assert own is not None
        ids = f"producer_id={own.producer_id}, producer_epoch={own.producer_epoch}"
        return f"EndTxn transactional_id={fresh.target}, {ids}, committed=true"

    def message(self, fresh: Plan) -> Any:
        own = fresh.committable
        assert own is not None
        return broker_client.EndTxn(
            transactional_id=fresh.target,
            producer_id=own.producer_id,
            producer_epoch=own.producer_epoch,
            committed=True,
            max_version=FLINKS_VERSION,
        )

    def verify(self, fresh: Plan, check: Callable[[], None]) -> Result:
        """The coordinator has committed it, and a read_committed consumer receives its records."""
        own = fresh.committable
        assert own is not None

        def has_gone_on(now: Transaction) -> bool:
            is_own = (now.producer_id, now.producer_epoch) == (own.producer_id, own.producer_epoch)
            return not is_own or is_another(fresh, now)

        now, partitions = ended_owner(fresh, check, is_over=has_gone_on), []
        # Where its client has gone on, the coordinator's answer to this one and its partitions show the commit.
        if now.state not in COMMITTED and not has_gone_on(now):
            raise BrokerError(
                f"{fresh.name} is {now.state}, not committed.",
                code="NONE",
                do="Describe it again.",
                command=_describe(fresh.target),
            )
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
        if (last := newer(checkpoint)) is not None:
            raise ActionRefused(
                f"{last.parent} is complete and newer than {checkpoint.name}.",
                means=f"The last completed checkpoint decides. {COMMIT.nothing}",
                do="Commit by that one, if the job is to be restored from it.",
                command=(
                    *("kafka-txn", "commit", "--flink-checkpoint", str(last)),
                    *("--transactional-id", transactional_id),
                ),
            )
        if other := newer_of_other_job(checkpoint):
            raise ActionRefused(
                f"Another job of the prefix has {other.name}, newer than {checkpoint.name}.",
                means=f"If it was restored from an earlier checkpoint, it wrote these records again. {COMMIT.nothing}",
                do="Restore the job that ran last from its own last checkpoint.",
            )
        if committable.checkpoint_id > checkpoint.checkpoint_id:
            raise ActionRefused(
                f"{checkpoint.name} leaves {transactional_id!r} to checkpoint {committable.checkpoint_id}.",
                means=COMMIT.nothing,
                do=f"Name checkpoint {committable.checkpoint_id} by --flink-checkpoint PATH, if it is completed.",
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
            do="Its history says which.",
            command=("kafka-txn", "history", "--transactional-id", name),
        )
    if owner.state != "Ongoing":
        means = "It is committed already." if owner.state in COMMITTED else "It cannot be committed any more."
        raise ActionRefused(
            f"{name!r} of {theirs} is {owner.state}.", means=f"{means} {COMMIT.nothing}", do="Diagnose it again."
        )


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
BY_CLOCKS = (
    f"That it is past its timeout may be by the clocks of two brokers: if its coordinator's is more than "
    f"{duration(CLOCKS_DIFFER)} behind, its owner may be alive."
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


class Fence(CoordinatorAction):
    """InitProducerId for an id."""

    name = "fence"
    done = "The id was fenced"
    done_if = (
        "it was not fenced so far if it still has epoch {producer_epoch} of producer {producer_id}. With transaction "
        "version 2 a commit by its client raises the epoch, too: kafka-txn history has PrepareCommit then, not "
        "PrepareAbort."
    )
    not_done = NOT_DONE | {"INVALID_REQUEST", "INVALID_TRANSACTION_TIMEOUT"}
    kafka_tool = ("forceTerminateTransaction", "--transactionalId")  # newer than 4.0

    def plan_now(self, cluster: Cluster, name: str, *, long_after_ms: int, earlier: Plan | None = None) -> Plan:
        """The plan as of now. `earlier`: that of before, whose observation is the first of two."""
        seen_for = dt.timedelta(seconds=0 if earlier is None else time.monotonic() - earlier.planned_at)
        clock = cluster.brokers_time()
        owner = describe_owner(cluster, name)
        if earlier is not None:
            check_same_owner(earlier, owner)
        findings: Sequence[Finding] = ()
        observation, is_hidden = None, owner.state == "Ongoing" and bool(hidden_topic_gaps(cluster, owner))
        if owner.state == "Ongoing" and owner.producer_id is not None and owner.topic_partitions:
            partitions = [TopicPartition(*each) for each in owner.topic_partitions]
            findings, observation = cluster.producer_findings(
                owner.producer_id,
                partitions,
                earlier=None if earlier is None else earlier.observation,
                max_transaction_timeout_ms=long_after_ms,
            )
            is_hidden |= not {*partitions} <= {each.tp for each in observation.partitions}  # deleted, or hidden
        checkpoint = next((each for each in cluster.newest_checkpoints() if _is_to_commit(each, owner)), None)
        age = TransactionAge.of(owner.start_time, clock, observed_for=seen_for)
        observed = TransactionAge(observed_for=seen_for)
        is_by_clocks = is_overdue(owner, age) or any(each.verdict == rules.OVERDUE for each in findings)
        is_in_time = is_by_clocks and not is_overdue(owner, observed) and _is_in_time(cluster, owner)
        decision = rules.decide_id(
            rules.IdEvidence(
                owner=owner,
                findings=findings,
                age=observed if is_in_time else age,
                is_in_time=is_in_time,
                long_after=dt.timedelta(milliseconds=long_after_ms),
                is_checkpointed=checkpoint is not None,
                is_hidden=is_hidden,
            )
        )
        meaning = rules.MEANINGS[decision.verdict]
        if is_in_time:
            meaning = f"by its coordinator's own clock {meaning}"
        if checkpoint is not None:
            meaning = f"{checkpoint.name}: {meaning}"
        return Plan(
            cluster=cluster,
            action=self,
            ruling=Ruling(
                verdict=decision.verdict,
                reason=meaning,
                claims=[decision.is_past_its_time, *decision.no_commit],
                refusal=None if decision.verdict == rules.OVERDUE else meaning,
                refused=f"is {decision.verdict} now",
                needed_override=decision.needed_override,
            ),
            transactional_id=name,
            owner=owner,
            checkpoint=checkpoint,
            warnings=_warnings(cluster, owner, decision.verdict),
            observation=observation,
            max_transaction_timeout_ms=long_after_ms,
        )

    def fresh(self, plan: Plan, recheck_after: float) -> Plan:
        return self.plan_now(plan.cluster, plan.target, long_after_ms=plan.max_transaction_timeout_ms, earlier=plan)

    def guard(self, fresh: Plan) -> None:
        owner = describe_owner(fresh.cluster, fresh.target)
        check_same_owner(fresh, owner)
        if own := next((each for each in fresh.cluster.newest_checkpoints() if _is_to_commit(each, owner)), None):
            raise changed(fresh.name, f"{own.name} is to commit it", nothing=self.nothing)

    def request(self, fresh: Plan) -> str:
        return f"InitProducerId transactional_id={fresh.target}, producer_id=-1, producer_epoch=-1"

    def message(self, fresh: Plan) -> Any:
        """Its timeout is also that of the coordinator's write, and at most what the broker took of the id before."""
        own = None if fresh.owner is None else fresh.owner.timeout_ms
        timeout_ms = max(1, int(fresh.cluster.timeout * 1000))
        return broker_client.InitProducerId(
            transactional_id=fresh.target,
            transaction_timeout_ms=timeout_ms if own is None else min(own, timeout_ms),
            producer_id=-1,
            producer_epoch=-1,
            max_version=5,
        )

    def is_overtaken(self, fresh: Plan, now: Transaction) -> bool:
        """Also by its client, which has committed it, or has begun anew and has nothing open yet."""
        was = fresh.owner
        assert was is not None
        is_new = (now.producer_id, now.producer_epoch) != (was.producer_id, was.producer_epoch)
        is_committed = was.state == "Ongoing" and now.state in COMMITTED
        return is_another(fresh, now) or is_committed or (is_new and now.state == "Empty")

    def answer_of(self, message: Any) -> str:
        if message.error_code:
            return error_text(message.error_code)
        return f"NONE: producer_id={message.producer_id}, producer_epoch={message.producer_epoch}"

    def verify(self, fresh: Plan, check: Callable[[], None]) -> Result:
        """Another epoch owns the id, and nothing of the old one is open."""
        was = fresh.owner
        assert was is not None

        def is_same(now: Transaction) -> bool:
            return (now.producer_id, now.producer_epoch) == (was.producer_id, was.producer_epoch)

        now = ended_owner(fresh, check, is_over=lambda now: is_same(now) or now.state == "Ongoing")
        if is_same(now):
            raise BrokerError(
                f"{fresh.name} is still owned by producer {now.producer_id} epoch {now.producer_epoch}, and "
                f"{now.state}.",
                code="NONE",
                do="Describe it again.",
                command=_describe(fresh.target),
            )
        is_ending = now.state not in {*ENDED, "Ongoing"}  # what is ongoing is of a later producer
        still_open = [TopicPartition(*each) for each in now.topic_partitions or ()] if is_ending else []
        return Result(owner=now, still_open=still_open)


FENCE = Fence()


def plan_fence(
    cluster: Cluster, transactional_id: str, *, max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
) -> Plan:
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
    ActionRefused
        If a fence would discard what is committed or is to be, or could change nothing.
    NotFound
        If the cluster has no such id.
    BrokerError
        If its coordinator does not describe it, or its partitions cannot be observed.
    """
    return FENCE.plan_now(cluster, transactional_id, long_after_ms=max_transaction_timeout_ms).offered()


def _is_in_time(cluster: Cluster, owner: Transaction) -> bool:
    """Whether its coordinator, by its own clock, has a transaction open for no longer than its timeout (KIP-994).

    Before Kafka 3.8 it does not say so.
    """
    assert owner.producer_id is not None
    listed = cluster.records(Transaction, producer_ids=[owner.producer_id], min_duration_ms=owner.timeout_ms)
    return all(each.transactional_id not in {owner.transactional_id, None} for each in listed)


def _is_to_commit(checkpoint: FlinkCheckpoint, owner: Transaction) -> bool:
    own = owner.transactional_id, owner.producer_id, owner.producer_epoch
    return any(each[:3] == own for each in checkpoint.committables)  # it may have an older one of the id, too


def _warnings(cluster: Cluster, owner: Transaction, verdict: str) -> tuple[str, ...]:
    name = owner.transactional_id or ""
    fenced = (FENCED, OF_CONNECT_LEADER) if CONNECT_LEADER.fullmatch(name) else (FENCED,)
    if verdict == rules.IDLE:
        return fenced
    is_last = owner.state == "Ongoing" and owner.producer_epoch == LAST_EPOCH + 1
    lost = (*([AT_LAST_EPOCH] if is_last else []), *([BY_CLOCKS] if verdict == rules.OVERDUE else []))
    own = [each.name for each in cluster.flink_checkpoints if not each.others and each.has_prefix_of(name)]
    if own:
        return (*lost, f"Its {own[-1]} {NOT_CHECKPOINTED}", LOST, *fenced)
    return (*lost, FLINK, LOST, *fenced) if may_be_flinks(name) else (*lost, LOST, *fenced)
