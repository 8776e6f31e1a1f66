"""A cluster that answers with prepared rows and takes markers, for the guards of an action one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, TypeVar

from tests.analysis import build
from toolkit.actions.abort import AbortPlan
from toolkit.actions.complete import CompletePlan
from toolkit.analysis.diagnosis.verdicts import NOT_PROVEN, PROVEN, REFUTED
from toolkit.errors import BrokerError, ToolkitError
from toolkit.formats.flink_checkpoint import FlinkCheckpoint
from toolkit.schema import FINDINGS, Row
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.verdict import Verdict

T = TypeVar("T")
Change = Callable[["RowCluster"], None]


def partition(*arguments: Any, **more: Any) -> Row:
    """A row of `build.partition`."""
    return build.partition(*arguments, **more).row()


def producer(*arguments: Any, **more: Any) -> Row:
    """A row of `build.producer`."""
    return build.producer(*arguments, **more).row()


def transaction(*arguments: Any, **more: Any) -> Row:
    """A row of `build.transaction`."""
    return build.transaction(*arguments, **more).row()


ENDED: Sequence[Row] = (producer(start=None, coordinator_epoch=3),)
ALIVE: Sequence[Row] = (producer(),)


@dataclass
class RowCluster:
    """Topic ``orders`` with one partition and a hanging transaction of producer 7 at offset 100.

    Parameters
    ----------
    before
        Changes before the n-th call of a method, the first being 1.
    response
        The error code of WriteTxnMarkers, or an error that is raised instead.
    writes
        Whether a marker ends the transaction.
    """

    before: Mapping[tuple[str, int], Change] = field(default_factory=dict)
    partitions: Sequence[Row] = field(default_factory=lambda: [partition()])
    producers: Sequence[Row] = ALIVE
    transactions: Sequence[Row] = ()
    findings: Sequence[Row] = field(default_factory=lambda: [found().row()])
    response: int | ToolkitError = 0
    writes: bool = True
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

    def partition_rows(self, **arguments: Any) -> Sequence[Row]:
        self._called("partition_rows", arguments)
        return self.partitions

    def producer_rows(self, **arguments: Any) -> Sequence[Row]:
        self._called("producer_rows", arguments)
        return self.producers

    def transaction_rows(self, **arguments: Any) -> Sequence[Row]:
        self._called("transaction_rows", arguments)
        return self.transactions

    def finding_rows(self, **arguments: Any) -> Sequence[Row]:
        self._called("finding_rows", arguments)
        return self.findings

    def send_one(self, request: Any, *, broker_id: int) -> Any:
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
        "evidence": [],
        "broker_id": 1,
        "observed_at": producer()["observed_at"],
    }
    return Finding.of({**dict.fromkeys(FINDINGS.names), **fields, **more})


NO_OWNER, NO_COMMIT = "no live transaction owns offset 100 of orders-0", "no commit includes offset 100 of orders-0"
COMMITTED = "records of offset 100 are older than the commit of 2026-11-21 11:50:11 UTC"


def claims(
    *, not_owned: str = PROVEN, no_commit: str = NOT_PROVEN, all_committed: str = REFUTED
) -> tuple[EvidenceEntry, ...]:
    """The claims of a finding as its evidence, by their status."""
    found = {
        "claim_not_owned": f"{NO_OWNER}: {not_owned}",
        "claim_no_commit": f"{NO_COMMIT}: {no_commit}",
        "claim_all_committed": f"{COMMITTED}: {all_committed}",
    }
    observed_at = build.NOW
    return tuple(EvidenceEntry(source="claims", observed_at=observed_at, name=n, value=v) for n, v in found.items())


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


def abort_plan(cluster: RowCluster, **more: Any) -> AbortPlan:
    """The plan for the transaction, as the rows of the cluster have it at first."""
    return AbortPlan(**_plan(cluster, found()) | more)


def complete_plan(cluster: RowCluster, **more: Any) -> CompletePlan:
    """The same for a commit without its marker; the fresh finding is that, too."""
    basis = found(verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete")
    cluster.findings = [basis.row()]
    return CompletePlan(**_plan(cluster, basis) | more)


def _plan(cluster: RowCluster, basis: Finding) -> dict[str, Any]:
    row = producer()
    return {
        "cluster": cluster,
        "topic": "orders",
        "partition": 0,
        "start_offset": 100,
        "producer_id": 7,
        "producer_epoch": 0,
        "coordinator_epoch": row["coordinator_epoch"],
        "last_sequence": row["last_sequence"],
        "last_timestamp": row["last_timestamp"],
        "basis": basis,
        "impact": SimpleNamespace(offset_commits=()),
    }


NO_ANSWER = BrokerError("Broker 1 did not answer WriteTxnMarkers in time.", code="REQUEST_TIMED_OUT")
