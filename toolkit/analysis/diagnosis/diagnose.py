"""Turn observations into findings: one for every open transaction and every held partition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import replace

from toolkit.analysis.diagnosis.evidence_text import by_observations, evidence, number
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.open_transactions import (
    MAX_TRANSACTION_TIMEOUT_MS,
    IndexedObservation,
    OpenTransaction,
    is_held,
)
from toolkit.analysis.diagnosis.verdicts import OWNED, Rule, rule_for
from toolkit.schema import FINDINGS, Row
from toolkit.schema.table import TopicPartition

__all__ = ["findings"]

_EMPTY = dict.fromkeys(FINDINGS.names)


def findings(
    observations: Sequence[Observation],
    *,
    requested: Iterable[TopicPartition] = (),
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> list[Row]:
    """Diagnose one or more observations.

    Parameters
    ----------
    observations
        In order of time. A later one may cover fewer partitions: those are diagnosed from all observations, the others
        from the earlier ones.
    requested
        Partitions that get a row even if nothing is held (`clear`).
    max_transaction_timeout_ms
        A live transaction older than this is `long`; the default is the broker's default transaction.max.timeout.ms.

    Returns
    -------
    list of dict
        Rows of ``schema.FINDINGS``: one per open transaction, one per partition whose LSO is below its high
        watermark with nothing open at it, one per partition that could not be read, one with null topic if topics may
        be hidden.
    """
    indexed = [IndexedObservation(observation) for observation in observations]
    long_after = dt.timedelta(milliseconds=max_transaction_timeout_ms)
    requested = set(requested)
    rows: list[Row] = []
    for tp in sorted(requested.union(*(one.notable() for one in indexed))):
        covering = [one for one in indexed if tp in one.before]
        if not covering:
            continue
        found = _transactions(tp, covering, long_after) + _partition(tp, covering)
        rows += found or ([_clear(tp, covering[-1])] if tp in requested else [])
    if gaps := list(observations[-1].coverage.topic_gaps):
        why = "The cluster may have topics that this principal cannot see."
        remedy = "Diagnose as a principal that may describe all topics."
        hidden = {"topic": None, "partition": None}
        rows.append(_partition_row(hidden, observations[-1], "unknown", why, remedy, gaps))
    return [{**_EMPTY, **row} for row in rows]


def _transactions(tp: TopicPartition, indexed: Sequence[IndexedObservation], long_after: dt.timedelta) -> list[Row]:
    """Rows of the open transactions, in the order in which they will hold the LSO; those without data last."""
    observations = [one.observation for one in indexed]
    found = []
    for txn in indexed[-1].cases.get(tp, ()):
        history = [one.same(txn) for one in indexed]
        alike = [each for each in history if each and each.state == txn.state]
        seen_for = txn.observation.observed_at - (alike or [txn])[0].observation.observed_at
        found.append(_transaction(replace(txn, seen_for=seen_for), history, observations, long_after))
    holding = sorted((row for row in found if row["start_offset"] is not None), key=lambda row: row["start_offset"])
    idle = [row for row in found if row["start_offset"] is None]
    return [{**row, "queue_position": i} for i, row in enumerate(holding, start=1)] + idle


def _transaction(
    txn: OpenTransaction,
    history: Sequence[OpenTransaction | None],
    observations: Sequence[Observation],
    long_after: dt.timedelta,
) -> Row:
    rule = rule_for(txn)
    missing = [rule.needs(txn)] if rule.needs else []
    verdict, why, remedy = rule.verdict, rule.why(txn), rule.remedy(txn)
    if verdict == "hanging":
        missing = _doubts(txn, rule, history, observations)
        if missing:
            verdict, remedy = "unknown", "Do not abort. Get what is missing, and diagnose again."
            why = f"Not proven to be hanging: {why}."
        else:
            why = f"{why} ({by_observations(observations)})."
    if verdict == "ongoing" and txn.age is not None and txn.age > long_after:
        verdict = "long"
    return {
        **_partition_columns(txn.leader_row),
        "producer_id": txn.producer["producer_id"],
        "producer_epoch": txn.producer.get("producer_epoch"),
        "transactional_id": txn.owner.get("transactional_id"),
        "start_offset": txn.start,
        "verdict": verdict,
        "reason": why,
        "cause": rule.cause if verdict != "unknown" else None,
        "remedy": remedy,
        "missing": missing,
        "evidence": evidence(txn, observations),
        **_opened(txn, owned=verdict in OWNED),
        "expires_at": txn.expires_at if verdict in {"ongoing", "long", "overdue"} else None,
        "broker_id": txn.producer.get("broker_id"),
        "observed_at": txn.observation.observed_at,
    }


def _doubts(
    txn: OpenTransaction,
    rule: Rule,
    history: Sequence[OpenTransaction | None],
    observations: Sequence[Observation],
) -> list[str]:
    """What is missing to prove that the transaction hangs; empty if it is proven."""
    doubts = list(dict.fromkeys(gap for observation in observations for gap in observation.coverage.gaps))
    doubts += txn.observation.doubts.get((*txn.tp, txn.producer["producer_id"]), ())
    if txn.leader_moved:
        doubts.append("a response of the partition's leader: leadership moved during the observation")
    if txn.leader_row.get("error"):
        doubts.append(f"the leader's offsets: {txn.leader_row['error']}")
    if any(earlier is None for earlier in history):
        doubts.append("a second observation: it was open in the last one only")
    elif any(
        earlier and (rule_for(earlier).verdict, earlier.epoch) != (rule.verdict, txn.epoch) for earlier in history
    ):
        doubts.append("observations that agree: the coordinator answered differently before")
    return doubts


def _opened(txn: OpenTransaction, *, owned: bool) -> Row:
    if owned and txn.owner.get("start_time"):
        return {"opened_at": txn.owner["start_time"], "opened_at_clock": "coordinator"}
    if txn.first_epoch is None or txn.first_batch is None:
        return {}
    return {
        "opened_at": txn.first_batch.base_timestamp,
        "opened_at_clock": "broker" if txn.first_batch.log_append_time else "producer",
    }


def _partition(tp: TopicPartition, indexed: Sequence[IndexedObservation]) -> list[Row]:
    """The finding of a partition that could not be read, or whose LSO no open transaction explains."""
    last = indexed[-1]
    row = last.after[tp]
    failed = last.errors(tp)
    if failed:
        return [
            _partition_row(
                row, last.observation, "unknown", "The partition could not be read.", "Diagnose again.", failed
            )
        ]
    if not is_held(row) or not is_held(indexed[0].before[tp]):
        return []
    lso, high_watermark = row["last_stable_offset"], row["high_watermark"]
    if any(txn.start is not None and txn.start <= lso for txn in last.cases.get(tp, ())):
        return []
    earlier = indexed[0].before[tp].get("last_stable_offset")
    if not last.observation.from_files and (earlier != lso or last.open_at_any_time(tp)):
        why = f"The transaction that held the LSO at {number(earlier)} ended in the meantime."
        remedy = "None: the blocking transaction ended normally."
        return [_partition_row(row, last.observation, "ending", why, remedy, [])]
    why = (
        f"Nothing is open at the LSO {lso}, which stays below the high watermark {high_watermark} "
        f"(log end {number(row.get('log_end_offset'))}): a marker is written and waits for replication."
    )
    remedy = f"Check the replicas: in sync {number(row.get('isr'))} of {number(row.get('replicas'))}. Abort nothing."
    return [_partition_row(row, last.observation, "unreplicated", why, remedy, [])]


def _clear(tp: TopicPartition, indexed: IndexedObservation) -> Row:
    row = indexed.after[tp]
    why = (
        f"The LSO {number(row.get('last_stable_offset'))} is the high watermark: nothing is held back. A consumer that "
        "shows a lag of 1 here is at a transaction marker, which is never delivered to it."
    )
    return _partition_row(row, indexed.observation, "clear", why, "None.", [])


def _partition_row(row: Row, observation: Observation, verdict: str, why: str, remedy: str, missing: list[str]) -> Row:
    return {
        **_partition_columns(row),
        "verdict": verdict,
        "reason": why,
        "remedy": remedy,
        "missing": missing,
        "evidence": evidence(row, [observation]),
        "broker_id": row.get("broker_id"),
        "observed_at": observation.observed_at,
        "error": row.get("error"),
    }


def _partition_columns(row: Row) -> Row:
    lso, high_watermark = row.get("last_stable_offset"), row.get("high_watermark")
    offsets_held = None if lso is None or high_watermark is None else max(high_watermark - lso, 0)
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "last_stable_offset": lso,
        "high_watermark": high_watermark,
        "offsets_held": offsets_held,
    }
