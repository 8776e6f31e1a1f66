"""Diagnose the samples of a recording: two successive samples serve as two observations.

Late transactions are open for longer than their own timeout plus a padding, from their opening time. Kafka's
PartitionsWithLateTransactionsCount (KIP-664) uses the brokers' maximum timeout and the producer's newest timestamp.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from toolkit.analysis.coordinator.transaction_states import TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.clocks import CLOCKS_DIFFER
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, Observation
from toolkit.schema.durations import elapsed_ms
from toolkit.schema.live import Finding, Partition, Producer
from toolkit.schema.recorded import LateTransaction
from toolkit.schema.table import TransactionKey


def with_earlier(observation: Observation, before: Observation | None) -> list[Observation]:
    """The observations of a sample: what the one before it shows of the same partitions, and its own.

    A transaction in one of them only is `unknown`, never `hanging`, until the next sample.
    `observation`: the sample's. Only its partitions get findings: a deleted topic holds nothing.
    `before`: that of the previous sample, however old; null if there is none.
    """
    twice = {each.tp for each in (before.partitions if before else ())} & {each.tp for each in observation.partitions}
    return [*([before.on(twice)] if before and twice else []), observation]


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
        key = topic, partition, producer_id, start_offset = finding.key
        if topic is None or partition is None or producer_id is None or start_offset is None:
            continue
        timeout_ms = timeouts.get((finding.transactional_id, producer_id), longest_timeout_ms)
        opened_at, opened_at_clock, now = _opened(finding, observation, first_seen.get(key))
        late_since = opened_at + dt.timedelta(milliseconds=timeout_ms + padding_ms)
        if timeout_ms == TWO_PHASE_COMMIT or now <= late_since:
            continue
        late.append(
            LateTransaction.of_record(
                finding,
                sampled_at=sampled_at,
                opened_at=opened_at,
                opened_at_clock=opened_at_clock,
                timeout_ms=timeout_ms,
                late_since=late_since,
                late_ms=elapsed_ms(late_since, now),
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
    answers: list[Partition | Producer] = [*observation.partitions, *observation.partitions_after, *producers]
    unread = {each.tp for each in answers if each.error}
    carried = {key: at for key, at in before.items() if key[:2] in unread}
    opened = (
        TransactionKey(each.topic, each.partition, each.producer_id, each.current_txn_start_offset)
        for each in producers
        if each.current_txn_start_offset is not None and each.producer_id is not None
    )
    return carried | {key: before.get(key, observation.observed_at) for key in opened}
