"""Diagnose the samples of a recording: two successive samples serve as two observations.

Late transactions are open for longer than their own timeout plus a padding, from their opening time. Kafka's
PartitionsWithLateTransactionsCount (KIP-664) uses the brokers' maximum timeout and the producer's newest timestamp.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from toolkit.analysis.coordinator.transaction_states import TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.clocks import CLOCKS_DIFFER
from toolkit.analysis.diagnosis.diagnose import Diagnosis, diagnose, transaction_key
from toolkit.analysis.diagnosis.evidence_kinds import LogFacts
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, Observation
from toolkit.schema import FINDINGS
from toolkit.schema.live import Finding, Partition, Producer
from toolkit.schema.recorded import LateTransaction
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

    Returns: in their declared order. A transaction in one observation only is `unknown`, never `hanging`, until the
    next sample.
    `observation`, `before`: as for `sample_diagnoses`.
    `requested`, `max_transaction_timeout_ms`, `recorded`: as for `diagnose` and `Diagnosis.findings`.
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

    `observation`: the sample's observation. Only its partitions get findings: a deleted topic holds nothing.
    `before`: the previous sample's observation, however old; null if there is none.
    `max_transaction_timeout_ms`: as for `diagnose`.
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

    `diagnoses`: from `sample_diagnoses`. `requested`, `log`, `recorded`: as for `Diagnosis.findings`.
    """
    requested, recorded = set(requested), list(recorded)
    rows: list[Finding] = []
    for diagnosis in diagnoses:
        of_diagnosis = requested & _topic_partitions(diagnosis.observations[-1])
        rows += diagnosis.findings(requested=of_diagnosis, log=log, recorded=recorded)
    return FINDINGS.in_order(rows)


def with_recorded(findings: Iterable[Finding], recorded: Iterable[Finding]) -> list[Finding]:
    """Add the recorded log evidence to a sample's findings: the log of that time cannot be read again.

    Returns: the new findings with recorded impact, and with recorded cause where the verdict is the same.
    `findings`: new findings, decided with the recorded ones as evidence.
    `recorded`: findings that were recorded with the same sample; those of other transactions are ignored.
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
    """The partitions that it read, and those that coordinators have open."""
    return {each.tp for each in observation.partitions}.union(observation.unseen)


LATE_PADDING_MS = 300_000  # Kafka's own padding

FirstSeen = Mapping[TransactionKey, dt.datetime]


def late_transactions(
    findings: Iterable[Finding],
    observation: Observation,
    *,
    sampled_at: dt.datetime,
    first_seen: FirstSeen,
    padding_ms: int = LATE_PADDING_MS,
    longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> list[LateTransaction]:
    """The open transactions that are late.

    Two-phase commit has no timeout, so it is never late.
    `findings`: the findings of a sample.
    `observation`: the newest observation behind the findings.
    `sampled_at`: when the sample was due.
    `first_seen`: when each transaction was first seen open; used if neither a coordinator nor the log has an opening
        time, if no broker's time is known, or if the opening time is after it.
    `padding_ms`: how long past its timeout a transaction may stay open.
    `longest_timeout_ms`: the timeout of a transaction without a known transactional id: the brokers' maximum.
    """
    timeouts = {
        (each.transactional_id, each.producer_id): each.timeout_ms
        for each in observation.transactions
        if each.timeout_ms is not None
    }
    late: list[LateTransaction] = []
    for finding in findings:
        key = topic, partition, producer_id, start_offset = transaction_key(finding)
        if topic is None or partition is None or producer_id is None or start_offset is None:
            continue
        timeout_ms = timeouts.get((finding.transactional_id, producer_id), longest_timeout_ms)
        opened_at, opened_at_clock, now = _opened(finding, observation, first_seen.get(key))
        late_since = opened_at + dt.timedelta(milliseconds=timeout_ms + padding_ms)
        if timeout_ms == TWO_PHASE_COMMIT or now <= late_since:
            continue
        late.append(
            LateTransaction(
                sampled_at=sampled_at,
                topic=topic,
                partition=partition,
                producer_id=producer_id,
                producer_epoch=finding.producer_epoch,
                transactional_id=finding.transactional_id,
                start_offset=start_offset,
                opened_at=opened_at,
                opened_at_clock=opened_at_clock,
                timeout_ms=timeout_ms,
                late_since=late_since,
                late_ms=(now - late_since) // dt.timedelta(milliseconds=1),
                broker_id=finding.broker_id,
                observed_at=observation.observed_at,
            )
        )
    return late


def _opened(
    finding: Finding, observation: Observation, first_seen_at: dt.datetime | None
) -> tuple[dt.datetime, str | None, dt.datetime]:
    """When a transaction opened, by whose clock, and the time now that may be compared with it.

    The times are brokers', or both are the recorder's: when it was first seen, and when it was seen now. A time that
    brokers have not reached is not used.
    """
    now = None if observation.brokers_time.time is None else observation.brokers_time.time - CLOCKS_DIFFER
    if now is not None and finding.opened_at is not None and finding.opened_at <= now + CLOCKS_DIFFER:
        return finding.opened_at, finding.opened_at_clock, now
    return first_seen_at or observation.observed_at, "recorder", observation.observed_at


def first_seen(observation: Observation, before: FirstSeen) -> dict[TransactionKey, dt.datetime]:
    """When each open transaction was first seen open.

    `observation`: the newest observation.
    `before`: the result for the previous observation. A transaction on a partition that cannot be read now stays in it.
    """
    producers = (*observation.producers, *observation.producers_after)
    unread = _unread((*observation.partitions, *observation.partitions_after, *producers))
    carried = {key: at for key, at in before.items() if key[:2] in unread}
    return carried | {key: before.get(key, observation.observed_at) for key in _open(producers)}


def _open(producers: Sequence[Producer]) -> set[TransactionKey]:
    return {
        TransactionKey(each.topic, each.partition, each.producer_id, each.current_txn_start_offset)
        for each in producers
        if each.current_txn_start_offset is not None and each.producer_id is not None
    }


def _unread(answers: Iterable[Partition | Producer]) -> Collection[TopicPartition]:
    return {each.tp for each in answers if each.error}
