"""Late transactions (KIP-664): open for longer than their own timeout plus a padding.

Kafka's PartitionsWithLateTransactionsCount uses the brokers' maximum timeout and the producer's newest timestamp. Here
each transaction is measured by its own timeout, from its opening time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence

from toolkit.analysis.coordinator.transaction_states import TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.open_transactions import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.schema import Row

__all__ = ["LATE_PADDING_MS", "TransactionKey", "first_seen", "late_transactions"]

LATE_PADDING_MS = 300_000  # Kafka's own padding

TransactionKey = tuple[str, int, int, int]  # topic, partition, producer id, start offset
FirstSeen = Mapping[TransactionKey, dt.datetime]


def late_transactions(
    findings: Iterable[Row],
    observation: Observation,
    *,
    first_seen: FirstSeen,
    padding_ms: int = LATE_PADDING_MS,
    longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> list[Row]:
    """The open transactions that are late.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS``.
    observation
        The newest observation behind the findings.
    first_seen
        When each transaction was first seen open; used if neither a coordinator nor the log has an opening time, or if
        that time is in the future.
    padding_ms
        How long past its timeout a transaction may stay open.
    longest_timeout_ms
        The timeout of a transaction without a known transactional id: the brokers' maximum.

    Returns
    -------
    list of dict
        Rows of ``schema.LATE_TRANSACTIONS`` without `sampled_at`. Two-phase commit has no timeout, so it is never late.
    """
    timeouts = {
        (row["transactional_id"], row["producer_id"]): row["timeout_ms"]
        for row in observation.transactions
        if row["timeout_ms"] is not None
    }
    rows: list[Row] = []
    for row in findings:
        if row["producer_id"] is None or row["start_offset"] is None:
            continue
        timeout_ms = timeouts.get((row["transactional_id"], row["producer_id"]), longest_timeout_ms)
        opened_at, opened_at_clock = _opened(row, observation.observed_at, first_seen)
        late_since = opened_at + dt.timedelta(milliseconds=timeout_ms + padding_ms)
        if timeout_ms == TWO_PHASE_COMMIT or observation.observed_at <= late_since:
            continue
        rows.append(
            {
                **{name: row[name] for name in ("topic", "partition", "producer_id", "producer_epoch")},
                "transactional_id": row["transactional_id"],
                "start_offset": row["start_offset"],
                "opened_at": opened_at,
                "opened_at_clock": opened_at_clock,
                "timeout_ms": timeout_ms,
                "late_since": late_since,
                "late_ms": (observation.observed_at - late_since) // dt.timedelta(milliseconds=1),
                "broker_id": row["broker_id"],
                "observed_at": observation.observed_at,
            }
        )
    return rows


def _opened(row: Row, observed_at: dt.datetime, first_seen: FirstSeen) -> tuple[dt.datetime, str]:
    """When a transaction opened, and by whose clock; a time in the future is not used."""
    if row["opened_at"] is not None and row["opened_at"] <= observed_at:
        return row["opened_at"], row["opened_at_clock"]
    key = row["topic"], row["partition"], row["producer_id"], row["start_offset"]
    return first_seen.get(key, observed_at), "recorder"


def first_seen(observation: Observation, before: FirstSeen) -> dict[TransactionKey, dt.datetime]:
    """When each open transaction was first seen open.

    Parameters
    ----------
    observation
        The newest observation.
    before
        The result for the previous observation. A transaction on a partition that cannot be read now stays in it.
    """
    rows = (*observation.producers, *observation.producers_after)
    unread = _unread((*observation.partitions, *observation.partitions_after, *rows))
    carried = {key: at for key, at in before.items() if key[:2] in unread}
    return carried | {key: before.get(key, observation.observed_at) for key in _open(rows)}


def _open(rows: Sequence[Row]) -> set[TransactionKey]:
    return {
        (row["topic"], row["partition"], row["producer_id"], row["current_txn_start_offset"])
        for row in rows
        if row["current_txn_start_offset"] is not None and row["producer_id"] is not None
    }


def _unread(rows: Iterable[Row]) -> Collection[tuple[str, int]]:
    return {(row["topic"], row["partition"]) for row in rows if row["error"]}
