"""Turn observations into findings: one for every open transaction and every held partition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.analysis.diagnosis.case import DEFAULTS, Case, DiagnoseOptions, IndexedObservation
from toolkit.analysis.diagnosis.decision import (
    CHECKPOINT_ENTRY,
    OUTCOME_ENTRY,
    TO_COMMIT,
    Decision,
    PartitionEvidence,
    decide_unknown,
)
from toolkit.analysis.diagnosis.evidence_text import case_evidence, coverage_evidence, partition_evidence
from toolkit.analysis.diagnosis.observation import Observation, TransactionAge, brokers_time_of, is_held, is_overdue
from toolkit.analysis.diagnosis.rules import claim_entries
from toolkit.schema import FINDINGS
from toolkit.schema.durations import elapsed_ms
from toolkit.schema.live import EvidenceEntry, Finding, Partition
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.schema.verdict import Verdict

# Why the whole was not diagnosed, and what to do: of a cluster, of files.
HIDDEN_TOPICS = (
    "The cluster may have topics that this principal cannot see.",
    "Diagnose as a principal that may describe all topics.",
)
UNREAD_FOLDERS = (
    "Folders below these paths may have partitions that were not read.",
    "Diagnose as a user that may read them, name folders of partitions as brokers do (topic-partition), and copy again "
    "what was being moved.",
)


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
class Diagnosis:
    """The observations of each partition, before the logs are read and anything is decided."""

    indexed: Sequence[IndexedObservation]  # the observations by partition, in order of time
    # the open transactions of each partition, with the evidence that does not need the logs
    opened: Mapping[TopicPartition, Sequence[Case]]
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
        brokers_time = brokers_time_of([one.observation for one in indexed]) if indexed else None
        opened: dict[TopicPartition, Sequence[Case]] = {}
        for tp in set().union(*(one.cases for one in indexed)):
            covering = [one for one in indexed if tp in one.before]
            opened[tp] = [
                replace(
                    case,
                    observations=[one.observation for one in covering],
                    history=[one.same(case) for one in covering],
                    brokers_time=brokers_time,
                    options=options,
                )
                for case in covering[-1].cases.get(tp, ())
            ]
        return cls(indexed=indexed, opened=opened, options=options)

    @property
    def observations(self) -> list[Observation]:
        """The observations, in order of time."""
        return [one.observation for one in self.indexed]

    def to_recheck(self) -> list[TopicPartition]:
        """Partitions on which these observations do not decide, if the next one comes `recheck_after` later."""
        last, after = self.indexed[-1], dt.timedelta(seconds=self.options.recheck_after)
        return sorted(
            tp
            for tp in set().union(*(one.notable() for one in self.indexed))
            if any(each.needs_recheck or _may_become_overdue(each, after) for each in self.opened.get(tp, ()))
            or bool(last.errors(tp))
            or _partition(tp, self._covering(tp)).is_held
        )

    def to_read(self) -> list[Case]:
        """Open transactions whose logs have to be read, in the order of their partitions and start offsets."""
        return [each for tp in sorted(self.opened) for each in self.opened[tp] if each.needs_log]

    def findings(
        self,
        *,
        requested: Iterable[TopicPartition] = (),
        read: Mapping[TransactionKey, Case] | None = None,
        recorded: Iterable[Finding] = (),
    ) -> list[Finding]:
        """Complete the evidence, and decide.

        Returns: in their declared order: one per open transaction, one per partition whose LSO is below its high
        watermark with nothing open at it, one per partition that could not be read if no coordinator has a transaction
        open there, one with null topic if topics may be hidden.
        `requested`: partitions that get a row even if nothing is held (`clear`).
        `read`: open transactions whose logs were read after the last observation.
        `recorded`: for a recording: the findings that were recorded with the last observation, which are evidence, and
            explain these: the logs of that time cannot be read again.
        """
        requested, read = set(requested), read or {}
        by_key = {(finding.key, finding.producer_epoch): finding for finding in recorded}
        rows: list[Finding] = []
        for tp in sorted(requested.union(*(one.notable() for one in self.indexed))):
            covering = self._covering(tp)
            if not covering:
                continue
            opened = (read.get(each.key, each) for each in self.opened.get(tp, ()))
            held = sorted(opened, key=lambda each: (each.start is None, each.start))  # as they hold the LSO, one by one
            if by_key:
                held = [replace(each, recorded=by_key.get((each.key, each.producer.producer_epoch))) for each in held]
            rows += (_case(each, queue_position) for queue_position, each in enumerate(held, start=1))
            of_partition = _partition(tp, covering)
            is_unread = bool(of_partition.errors) and not any(each.partition_error for each in held)
            if is_unread or of_partition.is_held or (tp in requested and not held):
                observation, partition = covering[-1].observation, of_partition.partition
                evidence = partition_evidence(partition, [observation])
                rows.append(_decided(of_partition.decision, partition, observation, evidence))
        last = self.indexed[-1].observation
        if gaps := tuple(last.coverage.topic_gaps):
            why, remedy = UNREAD_FOLDERS if last.from_files else HIDDEN_TOPICS
            hidden = decide_unknown(why, remedy=remedy, missing=gaps, is_open=False).finding(
                observed_at=last.observed_at
            )
            rows.append(replace(hidden, evidence=coverage_evidence(last), brokers_time=last.brokers_time.time))
        known = [by_key.get((each.key, each.producer_epoch)) for each in rows]
        return FINDINGS.in_order(
            each if same is None else explained_by(each, same) for each, same in zip(rows, known, strict=True)
        )

    def _covering(self, tp: TopicPartition) -> list[IndexedObservation]:
        return [one for one in self.indexed if tp in one.before]


def _may_become_overdue(case: Case, after: dt.timedelta) -> bool:
    """Whether no broker's time shows the age of a transaction, and a second observation after that time would."""
    seen_again = TransactionAge(observed_for=after)
    return case.state == "Ongoing" and case.age.since_start is None and is_overdue(case.owner, seen_again)


def _case(case: Case, queue_position: int) -> Finding:
    decision = case.decision
    opened_at, clock = None, None
    if (decision.verdict.is_owned or case.partition_error is not None) and case.owner and case.owner.start_time:
        opened_at, clock = case.owner.start_time, "coordinator"
    elif case.first_epoch is not None and case.first_batch is not None:
        opened_at = case.first_batch.base_timestamp
        clock = "broker" if case.first_batch.log_append_time else "producer"
    has_timeout = decision.verdict.is_live or decision.verdict is Verdict.OVERDUE or case.partition_error is not None
    evidence = (*case_evidence(case), *_of_logs(case), *_of_checkpoints(case), *claim_entries(case))
    return replace(
        _decided(decision, case.leader, case.observation, evidence),
        queue_position=None if case.start is None else queue_position,
        producer_id=case.producer_id,
        producer_epoch=case.producer.producer_epoch,
        transactional_id=case.transactional_id,
        start_offset=case.start,
        cause=decision.cause,
        opened_at=opened_at,
        opened_at_clock=clock,
        expires_at=case.expires_at if has_timeout and case.state == "Ongoing" else None,
        broker_id=case.producer.broker_id,
        error=case.partition_error,
    )


def _of_logs(case: Case) -> Iterator[EvidenceEntry]:
    if not case.is_read:
        return
    yield EvidenceEntry(
        source="__transaction_state",
        observed_at=case.observation.observed_at,
        name=OUTCOME_ENTRY,
        value=f"{case.outcome.name}: {case.outcome.reason}",
    )
    yield from case.outcome.evidence
    if case.outcome.marker_entry is not None:
        yield case.outcome.marker_entry


def _of_checkpoints(case: Case) -> Iterator[EvidenceEntry]:
    """Whether a checkpoint is to commit it, of each checkpoint with the prefix of its id."""
    for checkpoint in case.options.checkpoints:
        is_own = checkpoint is case.checkpoint
        if not is_own and not checkpoint.has_prefix_of(case.transactional_id or ""):
            continue
        unread = f", as far as it was read ({checkpoint.others} states were not)" if checkpoint.others else ""
        yield EvidenceEntry(
            source="_metadata",
            observed_at=case.observation.observed_at,
            name=CHECKPOINT_ENTRY,
            value=f"{checkpoint.name} {TO_COMMIT if is_own else f'does not commit it{unread}'}",
        )


def _partition(tp: TopicPartition, covering: Sequence[IndexedObservation]) -> PartitionEvidence:
    last = covering[-1]
    first = next((one for one in covering if not one.before[tp].error), last)  # one that failed shows nothing not held
    partition = last.after[tp]
    lso, lso_before = partition.last_stable_offset, first.before[tp].last_stable_offset
    is_explained = lso is not None and any(
        each.start is not None and each.start <= lso for each in last.cases.get(tp, ())
    )
    return PartitionEvidence(
        partition=partition,
        errors=last.errors(tp),
        lso_before=lso_before,
        is_held=is_held(partition) and is_held(first.before[tp]) and not is_explained,
        has_begun=last.has_begun(tp),
        has_moved=not last.observation.from_files and (lso_before != lso or last.open_at_any_time(tp)),
    )


def _decided(
    decision: Decision, partition: Partition, observation: Observation, evidence: tuple[EvidenceEntry, ...]
) -> Finding:
    lso, high_watermark = partition.last_stable_offset, partition.high_watermark
    return Finding(
        **decision.parts,
        evidence=evidence,
        topic=partition.topic,
        partition=partition.partition,
        last_stable_offset=lso,
        high_watermark=high_watermark,
        offsets_held=None if lso is None or high_watermark is None else max(high_watermark - lso, 0),
        brokers_time=observation.brokers_time.time,
        broker_id=partition.broker_id,
        observed_at=observation.observed_at,
        error=partition.error,
    )
