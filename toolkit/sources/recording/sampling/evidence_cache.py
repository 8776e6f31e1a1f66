"""Cache of log evidence for held transactions, so that logs are not read with every sample."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.verdicts import is_to_explain
from toolkit.analysis.history.late_transactions import TransactionKey
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.groups.consumer_groups import with_groups

__all__ = ["CachedEvidence", "cached_evidence"]

MAX_AGE = dt.timedelta(seconds=60)
# Valid as long as the transaction and its verdict are the same.
TRANSACTION_COLUMNS = (
    "cause",
    "opened_at",
    "opened_at_clock",
    "compaction_held",
    "groups_held",
    "held_from",
    "held_to",
)
OFFSET_COLUMNS = ("records_held", "bytes_held")  # valid until LSO or high watermark moves


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedEvidence:
    """Log evidence of a transaction.

    Parameters
    ----------
    row
        Its row of ``schema.FINDINGS``.
    evidence
        The evidence that the log added.
    read_at
        When it was read.
    """

    row: Row
    evidence: Sequence[Row]
    read_at: dt.datetime


def cached_evidence(
    client: BrokerClient,
    observations: Sequence[Observation],
    rows: Sequence[Row],
    evidence: Mapping[TransactionKey, CachedEvidence],
) -> tuple[list[Row], dict[TransactionKey, CachedEvidence]]:
    """Add evidence from logs and groups, from the cache while it is fresh.

    Parameters
    ----------
    observations
        The observations that the findings rest on.
    rows
        Rows of ``schema.FINDINGS`` in their order.
    evidence
        The cache of the previous sample.

    Returns
    -------
    tuple
        The rows, and the cache for the next sample.
    """
    now = observations[-1].observed_at
    to_read = {_tp(row) for row in rows if is_to_explain(row) and not _is_fresh(row, evidence, now)}
    unread = [row for row in rows if _tp(row) in to_read]
    explained, new = _read(client, observations, unread) if unread else ([], {})
    fresh = {id(before): after for before, after in zip(unread, explained, strict=True)}
    cached = {_key(row): evidence[_key(row)] for row in rows if id(row) not in fresh and _key(row) in evidence}
    return [fresh.get(id(row)) or _with_cached(row, cached.get(_key(row))) for row in rows], cached | new


def _read(
    client: BrokerClient, observations: Sequence[Observation], rows: Sequence[Row]
) -> tuple[list[Row], dict[TransactionKey, CachedEvidence]]:
    from toolkit.analysis.diagnosis.evidence.explanation import explain  # imports numpy and Arrow
    from toolkit.sources.live.logs.log_evidence import read_log_evidence

    log = read_log_evidence(client, observations, rows)
    explained = rows if log is None else explain(rows, observations, log)
    explained = with_groups(client, explained)
    # Unread partitions are not cached, so that the next sample reads them.
    topic_partitions = {tp for tp, excerpt in log.excerpts.items() if not excerpt.error} if log else set()
    return explained, {
        _key(after): CachedEvidence(
            row=after, evidence=after["evidence"][len(before["evidence"]) :], read_at=observations[-1].observed_at
        )
        for before, after in zip(rows, explained, strict=True)
        if _tp(after) in topic_partitions and before["verdict"] == after["verdict"]
    }


def _is_fresh(row: Row, evidence: Mapping[TransactionKey, CachedEvidence], now: dt.datetime) -> bool:
    """Whether evidence for the same transaction and verdict was read within `MAX_AGE`."""
    cached = evidence.get(_key(row))
    return cached is not None and _is_same(row, cached.row) and now - cached.read_at < MAX_AGE


def _is_same(row: Row, other: Row) -> bool:
    return all(row[name] == other[name] for name in ("producer_epoch", "transactional_id", "verdict", "queue_position"))


def _with_cached(row: Row, cached: CachedEvidence | None) -> Row:
    if cached is None or not _is_same(row, cached.row):
        return row
    unmoved = all(row[name] == cached.row[name] for name in ("last_stable_offset", "high_watermark"))
    names = (*TRANSACTION_COLUMNS, *(OFFSET_COLUMNS if unmoved else ()))
    added = {name: cached.row[name] for name in names}
    if added["held_from"] is not None and added["held_to"] is None:
        added["held_ms"] = (row["observed_at"] - added["held_from"]) // dt.timedelta(milliseconds=1)
    return {**row, **added, "evidence": [*row["evidence"], *cached.evidence]}


def _key(row: Row) -> TransactionKey:
    return row["topic"], row["partition"], row["producer_id"], row["start_offset"]


def _tp(row: Row) -> TopicPartition:
    return row["topic"], row["partition"]
