"""Turn observations into findings: one for every open transaction and every held partition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.analysis.diagnosis.clocks import TransactionAge, is_overdue
from toolkit.analysis.diagnosis.decision.claims import claim_entries
from toolkit.analysis.diagnosis.decision.decide import decide, needs_log, needs_recheck
from toolkit.analysis.diagnosis.decision.decision import Decision
from toolkit.analysis.diagnosis.evidence_kinds import (
    CHECKPOINT_ENTRY,
    OUTCOME_ENTRY,
    TO_COMMIT,
    Evidence,
    GapEvidence,
    LogFacts,
    OpenEvidence,
    PartitionEvidence,
)
from toolkit.analysis.diagnosis.evidence_text import coverage_evidence, partition_evidence, transaction_evidence
from toolkit.analysis.diagnosis.observation import (
    MAX_TRANSACTION_TIMEOUT_MS,
    IndexedObservation,
    Observation,
    OpenTransaction,
    between,
    is_held,
    observed_between,
)
from toolkit.formats.flink_checkpoint import FlinkCheckpoint
from toolkit.schema.durations import elapsed_ms
from toolkit.schema.live import FINDINGS, EvidenceEntry, Finding, Partition
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.schema.verdict import Verdict


def explained_by(finding: Finding, known: Finding) -> Finding:
    """The finding with what the logs showed of its transaction when they were read for another finding of it.

    With the times of the hold; with the impact, its amounts only while the LSO and the high watermark are the same; and
    with cause and evidence if the verdict is the same.
    """
    if (finding.last_stable_offset, finding.high_watermark) != (known.last_stable_offset, known.high_watermark):
        known = replace(known, records_held=None, bytes_held=None)
    is_later = finding.observed_at != known.observed_at
    if is_later and known.held_ms is not None and known.held_to is None:
        known = replace(known, held_ms=elapsed_ms(known.held_from, finding.brokers_time))
    unexplained: dict[str, Any] = {"cause": None, "opened_at": None, "opened_at_clock": None, "evidence": ()}
    if finding.verdict == known.verdict:
        return replace(finding, **unexplained).merged(known)
    return finding.merged(replace(known, **unexplained, expires_at=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseOptions:
    """How a source is diagnosed."""

    recheck_after: float = 5.0  # seconds before the confirming second observation; 0 disables it
    # a live transaction older than this is `long`; the default is the brokers' of transaction.max.timeout.ms
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    log_evidence: bool = True  # read the log around held LSOs for outcome, cause, opening time and impact
    # whether the last observation is a sample: what is in no earlier one waits for the next
    is_sample: bool = False
    checkpoints: Sequence[FlinkCheckpoint] = ()  # completed checkpoints of Flink jobs


DEFAULTS = DiagnoseOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The observations of each partition, before the logs are read and anything is decided."""

    indexed: Sequence[IndexedObservation]  # the observations by partition, in order of time
    # the evidence of the open transactions of each partition, as far as it does not need the logs
    opened: Mapping[TopicPartition, Sequence[OpenEvidence]]
    options: DiagnoseOptions

    @classmethod
    def of(
        cls,
        observations: Sequence[Observation],
        options: DiagnoseOptions = DEFAULTS,
        *,
        earlier: Sequence[IndexedObservation] = (),
    ) -> Diagnosis:
        """Index observations, so that it is known what else has to be read.

        `observations`: in order of time. A later one may cover fewer partitions: those are diagnosed from all
            observations, the others from the earlier ones.
        `earlier`: observations before these, indexed already.
        """
        indexed = [*earlier, *map(IndexedObservation, observations)]
        opened: dict[TopicPartition, Sequence[OpenEvidence]] = {}
        for tp in set().union(*(one.cases for one in indexed)):
            covering = [one for one in indexed if tp in one.before]
            opened[tp] = [
                OpenEvidence(
                    txn=_with_time_in_state(txn, history),
                    history=history,
                    observations=[one.observation for one in covering],
                    is_single_sample=options.is_sample and len(covering) == 1,
                    long_after=dt.timedelta(milliseconds=options.max_transaction_timeout_ms),
                    checkpoints=options.checkpoints,
                )
                for txn in covering[-1].cases.get(tp, ())
                for history in [[one.same(txn) for one in covering]]
            ]
        return cls(indexed=indexed, opened=opened, options=options)

    @property
    def observations(self) -> list[Observation]:
        """The observations, in order of time."""
        return [one.observation for one in self.indexed]

    def with_next(self, observation: Observation) -> Diagnosis:
        """The diagnosis of one observation more, which came after these."""
        return Diagnosis.of([observation], self.options, earlier=self.indexed)

    def to_recheck(self) -> list[TopicPartition]:
        """Partitions on which these observations do not decide, if the next one comes `recheck_after` later."""
        last, after = self.indexed[-1], dt.timedelta(seconds=self.options.recheck_after)
        return sorted(
            tp
            for tp in set().union(*(one.notable() for one in self.indexed))
            if any(needs_recheck(each) or _may_become_overdue(each.txn, after) for each in self.opened.get(tp, ()))
            or bool(last.errors(tp))
            or _partition(tp, self._covering(tp)).is_held
        )

    def to_read(self) -> list[OpenEvidence]:
        """Open transactions whose logs have to be read, in the order of their partitions and start offsets."""
        return [each for tp in sorted(self.opened) for each in self.opened[tp] if needs_log(each)]

    def findings(
        self,
        *,
        requested: Iterable[TopicPartition] = (),
        log: Mapping[TransactionKey, LogFacts] | None = None,
        recorded: Iterable[Finding] = (),
    ) -> list[Finding]:
        """Complete the evidence, and decide.

        Returns: in their declared order: one per open transaction, one per partition whose LSO is below its high
        watermark with nothing open at it, one per partition that could not be read if no coordinator has a transaction
        open there, one with null topic if topics may be hidden.
        `requested`: partitions that get a row even if nothing is held (`clear`).
        `log`: what the logs show of open transactions, read after the last observation.
        `recorded`: for a recording: the findings that were recorded with the last observation, which are evidence, and
            explain these: the logs of that time cannot be read again.
        """
        requested, log = set(requested), log or {}
        by_key = {(finding.key, finding.producer_epoch): finding for finding in recorded}
        rows: list[Finding] = []
        for tp in sorted(requested.union(*(one.notable() for one in self.indexed))):
            covering = self._covering(tp)
            if not covering:
                continue
            held = [
                replace(each, log=log.get(each.key), recorded=by_key.get((each.key, each.txn.producer.producer_epoch)))
                for each in self.opened.get(tp, ())
            ]
            rows += _in_order(list(map(_transaction, held)))
            of_partition = _partition(tp, covering)
            is_unread = bool(of_partition.errors) and not any(each.txn.partition_error for each in held)
            if is_unread or of_partition.is_held or (tp in requested and not held):
                rows.append(_partition_finding(of_partition, covering[-1].observation))
        last = self.indexed[-1].observation
        if gaps := tuple(last.coverage.topic_gaps):
            hidden = GapEvidence(
                reason="The cluster may have topics that this principal cannot see.",
                remedy="Diagnose as a principal that may describe all topics.",
                missing=gaps,
                is_open=False,
            )
            rows.append(gap_finding(hidden, last))
        known = [by_key.get((each.key, each.producer_epoch)) for each in rows]
        return FINDINGS.in_order(
            each if same is None else explained_by(each, same) for each, same in zip(rows, known, strict=True)
        )

    def _covering(self, tp: TopicPartition) -> list[IndexedObservation]:
        return [one for one in self.indexed if tp in one.before]


def _may_become_overdue(txn: OpenTransaction, after: dt.timedelta) -> bool:
    """Whether no broker's time shows the age of a transaction, and a second observation after that time would."""
    seen_again = TransactionAge(observed_for=after)
    return txn.state == "Ongoing" and txn.age.since_start is None and is_overdue(txn.owner, seen_again)


def _with_time_in_state(txn: OpenTransaction, history: Sequence[OpenTransaction | None]) -> OpenTransaction:
    first = next(each for each in history if each and each.state == txn.state)  # at the latest itself
    same = next(each for each in history if each and each.of_owner == txn.of_owner)
    return replace(
        txn,
        seen_for=between(first.observation, txn.observation),
        observed_for=observed_between(same.observation, txn.observation),
    )


def _in_order(found: Sequence[Finding]) -> list[Finding]:
    """Findings of a partition in the order in which they will hold the LSO; those without data last."""
    started = [(each.start_offset, each) for each in found if each.start_offset is not None]
    holding = [each for _, each in sorted(started, key=lambda pair: pair[0])]
    idle = [each for each in found if each.start_offset is None]
    return [replace(each, queue_position=i) for i, each in enumerate(holding, start=1)] + idle


def _transaction(evidence: OpenEvidence) -> Finding:
    txn, decision = evidence.txn, decide(evidence)
    opened_at, clock = _opened(txn, owned=decision.verdict.is_owned or txn.partition_error is not None)
    has_timeout = (
        decision.verdict in {Verdict.ONGOING, Verdict.LONG, Verdict.OVERDUE} or txn.partition_error is not None
    )
    return replace(
        _decided(decision, txn.leader, txn.observation),
        producer_id=txn.producer_id,
        producer_epoch=txn.producer.producer_epoch,
        transactional_id=txn.transactional_id,
        start_offset=txn.start,
        cause=decision.cause,
        evidence=(
            *transaction_evidence(txn, evidence.observations),
            *_of_logs(evidence),
            *_of_checkpoints(evidence),
            *claim_entries(evidence),
        ),
        opened_at=opened_at,
        opened_at_clock=clock,
        expires_at=txn.expires_at if has_timeout and txn.state == "Ongoing" else None,
        broker_id=txn.producer.broker_id,
        observed_at=txn.observation.observed_at,
        error=txn.partition_error,
    )


def _of_logs(evidence: OpenEvidence) -> Iterator[EvidenceEntry]:
    if evidence.log is None:
        return
    outcome = evidence.log.outcome
    yield EvidenceEntry(
        source="__transaction_state",
        observed_at=evidence.txn.observation.observed_at,
        name=OUTCOME_ENTRY,
        value=f"{outcome.name}: {outcome.reason}",
    )
    yield from outcome.evidence
    if evidence.log.marker_entry is not None:
        yield evidence.log.marker_entry


def _of_checkpoints(evidence: OpenEvidence) -> Iterator[EvidenceEntry]:
    """Whether a checkpoint is to commit it, of each checkpoint with the prefix of its id."""
    for checkpoint in evidence.checkpoints:
        is_own = checkpoint is evidence.checkpoint
        if not is_own and not checkpoint.has_prefix_of(evidence.txn.transactional_id or ""):
            continue
        unread = f", as far as it was read ({checkpoint.others} states were not)" if checkpoint.others else ""
        yield EvidenceEntry(
            source="_metadata",
            observed_at=evidence.txn.observation.observed_at,
            name=CHECKPOINT_ENTRY,
            value=f"{checkpoint.name} {TO_COMMIT if is_own else f'does not commit it{unread}'}",
        )


def _opened(txn: OpenTransaction, *, owned: bool) -> tuple[dt.datetime | None, str | None]:
    if owned and txn.owner and txn.owner.start_time:
        return txn.owner.start_time, "coordinator"
    if txn.first_epoch is None or txn.first_batch is None:
        return None, None
    return txn.first_batch.base_timestamp, "broker" if txn.first_batch.log_append_time else "producer"


def _partition(tp: TopicPartition, covering: Sequence[IndexedObservation]) -> PartitionEvidence:
    first, last = covering[0], covering[-1]
    partition = last.after[tp]
    lso, lso_before = partition.last_stable_offset, first.before[tp].last_stable_offset
    is_explained = lso is not None and any(txn.start is not None and txn.start <= lso for txn in last.cases.get(tp, ()))
    return PartitionEvidence(
        partition=partition,
        errors=last.errors(tp),
        lso_before=lso_before,
        is_held=is_held(partition) and is_held(first.before[tp]) and not is_explained,
        has_begun=last.has_begun(tp),
        has_moved=not last.observation.from_files and (lso_before != lso or last.open_at_any_time(tp)),
    )


def _partition_finding(evidence: PartitionEvidence, observation: Observation) -> Finding:
    return replace(
        _decided(decide(evidence), evidence.partition, observation),
        evidence=partition_evidence(evidence.partition, [observation]),
        broker_id=evidence.partition.broker_id,
        observed_at=observation.observed_at,
        error=evidence.partition.error,
    )


def gap_finding(evidence: Evidence, observation: Observation) -> Finding:
    """The finding about a whole cluster."""
    found = decide(evidence).finding(observed_at=observation.observed_at)
    return replace(found, evidence=coverage_evidence(observation), brokers_time=observation.brokers_time.time)


def _decided(decision: Decision, partition: Partition, observation: Observation) -> Finding:
    lso, high_watermark = partition.last_stable_offset, partition.high_watermark
    return replace(
        decision.finding(observed_at=partition.observed_at),
        topic=partition.topic,
        partition=partition.partition,
        last_stable_offset=lso,
        high_watermark=high_watermark,
        offsets_held=None if lso is None or high_watermark is None else max(high_watermark - lso, 0),
        brokers_time=observation.brokers_time.time,
    )
