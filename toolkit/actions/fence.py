"""Fence the owner of a transactional id: what Kafka's ``forceTerminateTransaction`` and ``fenceProducers`` do.

InitProducerId without a producer id has the coordinator abort what is open under the id, on all of its partitions, and
give out a new epoch: the producer that had the old one is refused from then on (KIP-360, KIP-939;
``FenceProducersHandler``).
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.actions.plan import Plan, Result, Ruling
from toolkit.actions.requests import ENDED, NOT_DONE, CoordinatorAction, check_same_owner, describe_owner, ended_owner
from toolkit.analysis.coordinator.transaction_history import LAST_EPOCH
from toolkit.analysis.coordinator.transaction_owners import CONNECT_LEADER, may_be_flinks
from toolkit.analysis.diagnosis import decision as rules
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, TransactionAge
from toolkit.errors import BrokerError, NotFound
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_response import error_text

if TYPE_CHECKING:
    from toolkit.formats.flink_checkpoint import FlinkCheckpoint
    from toolkit.sources.live.cluster import Cluster

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


class Fence(CoordinatorAction):
    """InitProducerId for an id."""

    name = "fence"
    done = "The id was fenced"
    done_if = "it was fenced if its epoch is not {producer_epoch} of producer {producer_id} any more."
    not_done = NOT_DONE | {"INVALID_REQUEST"}
    kafka_tool = ("forceTerminateTransaction", "--transactionalId")  # newer than 4.0

    def plan_now(self, cluster: Cluster, name: str, *, long_after_ms: int, earlier: Plan | None = None) -> Plan:
        """The plan as of now. `earlier`: that of before, whose observation is the first of two."""
        seen_for = dt.timedelta(seconds=0 if earlier is None else time.monotonic() - earlier.planned_at)
        clock = cluster.brokers_time()
        owner = describe_owner(cluster, name)
        if earlier is not None:
            check_same_owner(earlier, owner)
        findings: Sequence[Finding] = ()
        observation, is_hidden = None, False
        if owner.state == "Ongoing" and owner.producer_id is not None and owner.topic_partitions:
            try:
                findings, observation = cluster.producer_findings(
                    owner.producer_id,
                    [TopicPartition(*each) for each in owner.topic_partitions],
                    earlier=None if earlier is None else earlier.observation,
                    max_transaction_timeout_ms=long_after_ms,
                )
            except NotFound:
                is_hidden = True
        checkpoint = next((each for each in cluster.flink_checkpoints if _is_to_commit(each, owner)), None)
        decision = rules.decide_id(
            rules.IdEvidence(
                owner=owner,
                findings=findings,
                age=TransactionAge.of(owner.start_time, clock, observed_for=seen_for),
                long_after=dt.timedelta(milliseconds=long_after_ms),
                is_checkpointed=checkpoint is not None,
                is_hidden=is_hidden,
            )
        )
        meaning = rules.MEANINGS[decision.verdict]
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
        check_same_owner(fresh, describe_owner(fresh.cluster, fresh.target))

    def request(self, fresh: Plan) -> str:
        return f"InitProducerId transactional_id={fresh.target}, producer_id=-1, producer_epoch=-1"

    def message(self, fresh: Plan) -> Any:
        return messages.InitProducerId(
            transactional_id=fresh.target,
            transaction_timeout_ms=max(1, int(fresh.cluster.timeout * 1000)),
            producer_id=-1,
            producer_epoch=-1,
            max_version=5,
        )

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

        now = ended_owner(fresh, check, is_over=is_same)
        if is_same(now):
            raise BrokerError(
                f"{fresh.name} is still owned by producer {now.producer_id} epoch {now.producer_epoch}, and "
                f"{now.state}.",
                code="NONE",
                do="Check with kafka-txn describe.",
            )
        still_open = [] if now.state in ENDED else [TopicPartition(*each) for each in now.topic_partitions or ()]
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


def _is_to_commit(checkpoint: FlinkCheckpoint, owner: Transaction) -> bool:
    found = checkpoint.committable(owner.transactional_id or "")
    return found is not None and (found.producer_id, found.producer_epoch) == (owner.producer_id, owner.producer_epoch)


def _warnings(cluster: Cluster, owner: Transaction, verdict: str) -> tuple[str, ...]:
    name = owner.transactional_id or ""
    fenced = (FENCED, OF_CONNECT_LEADER) if CONNECT_LEADER.fullmatch(name) else (FENCED,)
    if verdict == rules.IDLE:
        return fenced
    is_last = owner.state == "Ongoing" and owner.producer_epoch == LAST_EPOCH + 1
    lost = (*([AT_LAST_EPOCH] if is_last else []),)
    own = [each.name for each in cluster.flink_checkpoints if not each.others and each.has_prefix_of(name)]
    if own:
        return (*lost, f"Its {own[-1]} {NOT_CHECKPOINTED}", LOST, *fenced)
    return (*lost, FLINK, LOST, *fenced) if may_be_flinks(name) else (*lost, LOST, *fenced)
