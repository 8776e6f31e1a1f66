"""Diagnose the samples of a recording: two successive samples serve as two observations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from toolkit.analysis.diagnosis.diagnose import Diagnosis, diagnose, transaction_key
from toolkit.analysis.diagnosis.evidence_kinds import LogFacts
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.open_transactions import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.schema import FINDINGS
from toolkit.schema.live import Finding
from toolkit.schema.table import TopicPartition, TransactionKey


def diagnose_sample(
    observation: Observation,
    before: Observation | None = None,
    *,
    requested: Iterable[TopicPartition] = (),
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    recorded: Iterable[Finding] = (),
) -> list[Finding]:
    """Diagnose one sample, together with the one before it.

    Parameters
    ----------
    observation, before
        As for `sample_diagnoses`.
    requested, max_transaction_timeout_ms, recorded
        As for `diagnose.findings`.

    Returns
    -------
    list of Finding
        In their declared order. A transaction in one observation only is `unknown`, never `hanging`, until the next
        sample.
    """
    diagnoses = sample_diagnoses(observation, before, max_transaction_timeout_ms=max_transaction_timeout_ms)
    return sample_findings(diagnoses, requested=requested, recorded=recorded)


def sample_diagnoses(
    observation: Observation,
    before: Observation | None = None,
    *,
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> list[Diagnosis]:
    """The partitions of a sample that the previous sample has too, and the others.

    Parameters
    ----------
    observation
        The sample's observation. Only its partitions get findings: a deleted topic holds nothing.
    before
        The previous sample's observation, however old; null if there is none.
    max_transaction_timeout_ms
        As for `diagnose.findings`.
    """
    topic_partitions = _topic_partitions(observation)
    twice = topic_partitions & _topic_partitions(before) if before else set()
    found: list[Diagnosis] = []
    if before and twice:
        observations = [before.on(twice), observation.on(twice)]
        found.append(diagnose(observations, max_transaction_timeout_ms=max_transaction_timeout_ms))
    if topic_partitions - twice or not topic_partitions:
        once = observation.on(topic_partitions - twice)
        if twice:
            once = replace(once, coverage=replace(once.coverage, topic_gaps=()))  # reported by the findings above
        found.append(diagnose([once], max_transaction_timeout_ms=max_transaction_timeout_ms, is_single_sample=True))
    return found


def sample_findings(
    diagnoses: Sequence[Diagnosis],
    *,
    requested: Iterable[TopicPartition] = (),
    log: Mapping[TransactionKey, LogFacts] | None = None,
    recorded: Iterable[Finding] = (),
) -> list[Finding]:
    """Decide on a sample.

    Parameters
    ----------
    diagnoses
        From `sample_diagnoses`.
    requested, log, recorded
        As for `diagnose.findings`.
    """
    requested, recorded = set(requested), list(recorded)
    rows: list[Finding] = []
    for diagnosis in diagnoses:
        of_diagnosis = requested & _topic_partitions(diagnosis.observations[-1])
        rows += diagnosis.findings(requested=of_diagnosis, log=log, recorded=recorded)
    return sorted(rows, key=_order)


def with_recorded(findings: Iterable[Finding], recorded: Iterable[Finding]) -> list[Finding]:
    """Add the recorded log evidence to a sample's findings: the log of that time cannot be read again.

    Parameters
    ----------
    findings
        New findings, decided with the recorded ones as evidence.
    recorded
        Findings that were recorded with the same sample; those of other transactions are ignored.

    Returns
    -------
    list of Finding
        The new findings with recorded impact, and with recorded cause where the verdict is the same.
    """
    known = {(transaction_key(each), each.producer_epoch): each for each in recorded}
    return [_with(each, known.get((transaction_key(each), each.producer_epoch))) for each in findings]


def _with(finding: Finding, recorded: Finding | None) -> Finding:
    if recorded is None:
        return finding
    finding = replace(
        finding,
        records_held=recorded.records_held,
        bytes_held=recorded.bytes_held,
        groups_held=recorded.groups_held,
        compaction_held=recorded.compaction_held,
        held_from=recorded.held_from,
        held_to=recorded.held_to,
        held_ms=recorded.held_ms,
    )
    if finding.verdict != recorded.verdict:
        return finding
    return replace(
        finding,
        cause=recorded.cause,
        evidence=recorded.evidence,
        opened_at=recorded.opened_at,
        opened_at_clock=recorded.opened_at_clock,
    )


def _topic_partitions(observation: Observation) -> set[TopicPartition]:
    return {TopicPartition(each.topic, each.partition) for each in observation.partitions}


def _order(finding: Finding) -> list[tuple[bool, object]]:
    """The declared order, unknown values last."""
    values = (getattr(finding, name) for name in FINDINGS.sort)
    return [(value is None, 0 if value is None else value) for value in values]
