"""A cluster that answers with prepared rows and takes markers, for the guards of an action one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from kafka.protocol.metadata import MetadataResponse

from tests.analysis import build
from toolkit.actions.marker_actions import ABORT, COMPLETE
from toolkit.actions.plan import Plan
from toolkit.actions.transaction import MarkerImpact, PlannedTransaction
from toolkit.analysis.diagnosis.decision import NOT_PROVEN, OUTCOME_ENTRY, PROVEN, REFUTED
from toolkit.analysis.diagnosis.observation import BrokersTime, Observation
from toolkit.errors import BrokerError, ToolkitError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema import FINDINGS, Row
from toolkit.schema.checkpoint import FlinkCheckpoint
from toolkit.schema.coerce import records_of
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.table import TableRow, TopicPartition
from toolkit.schema.verdict import Verdict
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerResponse

T = TypeVar("T")
R = TypeVar("R", bound=TableRow)
Change = Callable[["RowCluster"], None]


def partition(*arguments: Any, **more: Any) -> Row:
    """A row of `build.partition`."""
    return build.partition(*arguments, **more).row()


def producer(*arguments: Any, **more: Any) -> Row:
    """A row of `build.producer`."""
    return build.producer(*arguments, **{"last_sequence": 3, **more}).row()


def transaction(*arguments: Any, **more: Any) -> Row:
    """A row of `build.transaction`."""
    return build.transaction(*arguments, **more).row()


ENDED: Sequence[Row] = (producer(start=None, coordinator_epoch=3),)
ALIVE: Sequence[Row] = (producer(),)


@dataclass
class RowCluster:
    """Topic ``orders`` with one partition and a hanging transaction of producer 7 at offset 100.

    `before`: changes before the n-th call of a method, the first being 1.
    `response`: the error code of WriteTxnMarkers, or an error that is raised instead.
    `writes`: whether a marker ends the transaction; `coordinator_epoch`: leader epoch of ``__transaction_state-0``.
    """

    before: Mapping[tuple[str, int], Change] = field(default_factory=dict)
    partitions: Sequence[Row] = field(default_factory=lambda: [partition()])
    producers: Sequence[Row] = ALIVE
    transactions: Sequence[Row] = ()
    findings: Sequence[Row] = field(default_factory=lambda: [found().row()])
    gaps: Sequence[str] = ()  # rights without which a topic may be hidden
    transaction_log: Sequence[Row] = ()
    response: int | ToolkitError = 0
    writes: bool = True
    coordinator_epoch: int = 9
    timeout: float = 0.2
    bootstrap_servers: str = "one:9092"
    config: None = None
    flink_checkpoints: Sequence[FlinkCheckpoint] = ()
    calls: Counter[str] = field(default_factory=Counter)
    arguments: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)

    @property
    def client(self) -> RowCluster:
        return self

    @property
    def brokers(self) -> Mapping[int, str]:
        return {1: "one:9092"}

    @property
    def cluster_id(self) -> str:
        return "y49LRH0C"

    def metadata(self, topics: Collection[str]) -> Any:
        """The leaders of ``__transaction_state-0`` and of the partitions, of some topics."""
        of_topic = MetadataResponse.MetadataResponseTopic
        epochs = {(STATE_TOPIC, 0): self.coordinator_epoch}
        epochs |= {(row["topic"], row["partition"]): row["leader_epoch"] for row in self.partitions}
        leaders: dict[str, list[Any]] = {}
        for (topic, number), epoch in epochs.items():
            if topic not in topics:
                continue
            leader = of_topic.MetadataResponsePartition(
                partition_index=number, leader_id=1, leader_epoch=epoch, replica_nodes=[1], isr_nodes=[1]
            )
            leaders.setdefault(topic, []).append(leader)
        return MetadataResponse(
            topics=[of_topic(error_code=0, name=name, partitions=each) for name, each in leaders.items()]
        )

    scope_text: ClassVar[str | None] = None

    @property
    def principal(self) -> str | None:
        return self.config and self.config.principal

    def topic_gaps(self) -> Sequence[str]:
        return self.gaps

    def newest_checkpoints(self) -> Sequence[FlinkCheckpoint]:
        self._called("newest_checkpoints", {})
        return self.flink_checkpoints

    def records(self, record: type[R], **arguments: Any) -> list[R]:
        """The prepared rows of a record's table; the call is that of ``finding_rows``, for findings."""
        name = record.table.name
        self._called(f"{name.removesuffix('s')}_rows", arguments)
        return records_of(getattr(self, name), record)

    def send(self, requests: Sequence[tuple[int, Any]]) -> list[BrokerResponse]:
        answers = [(broker_id, self.send_one(each, broker_id=broker_id)) for broker_id, each in requests]
        return [BrokerResponse(broker_id, build.NOW, message=answer) for broker_id, answer in answers]

    def send_one(self, request: Any, *, broker_id: int) -> Any:
        if isinstance(request, broker_client.Metadata):
            self._called("metadata", {})
            return self.metadata({each.name for each in request.topics})
        self._called("send_one", {"broker_id": broker_id})
        self.sent.append(request)
        if isinstance(self.response, ToolkitError):
            raise self.response
        if self.response == 0 and self.writes:
            self.producers, self.partitions = ENDED, [partition(lso=150)]
        of_partition = SimpleNamespace(error_code=self.response)
        topic = SimpleNamespace(partitions=[of_partition])
        return SimpleNamespace(markers=[SimpleNamespace(topics=[topic])])

    def _called(self, method: str, arguments: Mapping[str, Any]) -> None:
        self.calls[method] += 1
        self.arguments.append((method, arguments))
        if change := self.before.get((method, self.calls[method])):
            change(self)


def found(**more: Any) -> Finding:
    """The finding of the transaction."""
    fields = {
        "topic": "orders",
        "partition": 0,
        "producer_id": 7,
        "producer_epoch": 0,
        "start_offset": 100,
        "queue_position": 1,
        "last_stable_offset": 100,
        "high_watermark": 150,
        "verdict": Verdict.HANGING,
        "outcome": "undecided",
        "action": "abort",
        "reason": "no transactional id has it",
        "remedy": "kafka-txn abort",
        "missing": [],
        "evidence": claims(PROVEN, PROVEN, REFUTED),
        "broker_id": 1,
        "observed_at": producer()["observed_at"],
    }
    return Finding.of({**dict.fromkeys(FINDINGS.names), **fields, **more})


NO_OWNER, NO_COMMIT = "no live transaction owns offset 100 of orders-0", "no commit includes offset 100 of orders-0"
COMMITTED = "records of offset 100 are older than the commit of 2026-11-21 11:50:11 UTC"
CLAIM_WORDS = {"owned": NO_OWNER, "commit": NO_COMMIT, "all": COMMITTED}


def claims(owned: str = PROVEN, commit: str = NOT_PROVEN, all_: str = REFUTED) -> tuple[EvidenceEntry, ...]:
    """The claims of a finding as its evidence, by their status; without those that are missing."""
    found = {
        "claim_not_owned": (NO_OWNER, owned),
        "claim_no_commit": (NO_COMMIT, commit),
        "claim_all_committed": (COMMITTED, all_),
    }
    values = {name: f"{words}: {status}" for name, (words, status) in found.items() if status != "missing"}
    values[OUTCOME_ENTRY] = "undecided: the coordinators' log"
    return tuple(
        EvidenceEntry(source="claims", observed_at=build.NOW, name=name, value=value) for name, value in values.items()
    )


def outcome_claims(commit: str) -> tuple[EvidenceEntry, ...]:
    """The claims of a live transaction's finding."""
    return claims(REFUTED, commit, "missing")


def unproven(**more: Any) -> Finding:
    """The finding of a transaction whose outcome is not proven."""
    fields: dict[str, Any] = {
        "verdict": Verdict.UNKNOWN,
        "outcome": "unknown",
        "action": None,
        "missing": ("the coordinators' log",),
        "evidence": claims(),
    }
    return changed(found(), **fields | more)


def changed(one: T, **fields: Any) -> T:
    """The same with other fields, whose names a test chooses."""
    return replace(one, **fields)  # type: ignore[type-var]


def committed(**more: Any) -> Finding:
    """The finding of a commit without its marker."""
    fields = {"verdict": Verdict.STUCK_ENDING, "outcome": "commit", "action": "complete"}
    return found(**{**fields, "evidence": claims(PROVEN, REFUTED, PROVEN), **more})


def with_txn(plan: Plan, **fields: Any) -> Plan:
    """The plan with other facts of its transaction."""
    return replace(plan, transactions=[replace(plan.transaction, **fields)])


def abort_plan(cluster: RowCluster, basis: Finding | None = None, **more: Any) -> Plan:
    """The plan for the transaction, as the rows of the cluster have it at first."""
    return _plan(cluster, ABORT, basis or found(), **more)


def complete_plan(cluster: RowCluster, basis: Finding | None = None, **more: Any) -> Plan:
    """The same for a commit without its marker; the fresh finding is that, too."""
    cluster.findings = [committed().row()]
    return _plan(cluster, COMPLETE, basis or committed(), **more)


IMPACT = MarkerImpact(
    records=1,
    size=100,
    first_offset=100,
    last_offset=100,
    records_released=5,
    groups=(),
    last_stable_offset=100,
    next_stable_offset=150,
    next_start_offset=None,
    next_producer_id=None,
)


def _plan(cluster: RowCluster, action: Any, basis: Finding, **more: Any) -> Plan:
    row = producer()
    txn = PlannedTransaction(
        topic=more.pop("topic", "orders"),
        partition=0,
        start_offset=100,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=row["coordinator_epoch"],
        last_sequence=row["last_sequence"],
        last_timestamp=row["last_timestamp"],
        leader=1,
        leader_epoch=4,
        basis=basis,
        impact=IMPACT,
    )
    connected: Any = cluster
    return Plan(
        cluster=connected,
        action=action,
        ruling=action.ruling(basis),
        transactions=[replace(txn, **more)],
        warnings=action.warnings(replace(basis, topic=txn.topic)),
    )


def sets(**fields: Any) -> Change:
    """The cluster has other rows from then on, or answers otherwise."""

    def change(cluster: RowCluster) -> None:
        for name, value in fields.items():
            setattr(cluster, name, value)

    return change


def no_answer(cluster: RowCluster) -> None:
    raise NO_ANSWER


NO_ANSWER = BrokerError("Broker 1 did not answer WriteTxnMarkers in time.", code="REQUEST_TIMED_OUT")


def named(transactional_id: str, **owner: Any) -> Row:
    """The row of an id."""
    return {**transaction(**owner), "transactional_id": transactional_id}


@dataclass
class FenceCluster(RowCluster):
    """Coordinators answer InitProducerId by these error codes, the last one again and again; without one, it fences."""

    answers: Sequence[int] = (0,)
    coordinator_error: int = 0
    fences: bool = True
    own_findings: Sequence[Finding] = ()
    deleted: Sequence[TopicPartition] = ()
    timeout: float = 5.0
    clock: BrokersTime = field(default_factory=lambda: build.clock(build.NOW))

    def brokers_time(self) -> BrokersTime:
        return self.clock

    def producer_findings(
        self, _: int, partitions: Sequence[TopicPartition], **arguments: Any
    ) -> tuple[Sequence[Finding], Observation]:
        self._called("producer_findings", arguments)
        there = [build.partition(*each) for each in partitions if each not in self.deleted]
        return self.own_findings, build.observation(partitions=there)

    def send_one(self, request: Any, *, broker_id: int) -> Any:
        self._called("send_one", {"broker_id": broker_id})
        self.sent.append(request)
        code = self.answers[min(len(self.sent), len(self.answers)) - 1]
        if code == 0 and self.fences:
            (row,) = self.transactions
            self.transactions = [transaction(epoch=row["producer_epoch"] + 2, state="CompleteAbort", on=())]
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=2)


def forged(found: Finding | Row, *, action: str = "abort", **fields: Any) -> Finding:
    """A finding with other facts, and every claim that the action needs proven: as if the evidence were wrong."""
    finding = found if isinstance(found, Finding) else Finding.of(found)
    where = f"offset {finding.start_offset} of {finding.tp}"
    words = {
        "claim_not_owned": f"no live transaction owns {where}",
        "claim_no_commit": f"no commit includes {where}",
        "claim_all_committed": f"a commit includes {where}",
    }
    kept = tuple(each for each in finding.evidence if each.name not in words)
    proven = tuple(
        EvidenceEntry(source="claims", observed_at=build.NOW, name=name, value=f"{text}: {PROVEN}")
        for name, text in words.items()
    )
    offered = {"verdict": Verdict.HANGING, "outcome": "undecided", "action": "abort"}
    if action == "complete":
        offered = {"verdict": Verdict.STUCK_ENDING, "outcome": "commit", "action": "complete"}
    return changed(finding, **{**offered, "evidence": (*kept, *proven), **fields})
