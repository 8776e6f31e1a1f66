"""Looks to findings: every open transaction and every held partition gets one answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import replace

from toolkit.analysis.cases import MAX_TRANSACTION_TIMEOUT_MS, Case, Partition, Seen, is_held
from toolkit.analysis.evidence import Look
from toolkit.analysis.verdicts import Rule, rule_for
from toolkit.analysis.wording import by_the_looks, evidence, number
from toolkit.schema import FINDINGS, Row

__all__ = ["findings"]

_EMPTY = dict.fromkeys(FINDINGS.names)
OWNED = {"ongoing", "long", "overdue", "ending", "stuck_ending", "prepared"}


def findings(
    looks: Sequence[Look],
    *,
    asked: Iterable[Partition] = (),
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> list[Row]:
    """Judge what one or more looks saw.

    Parameters
    ----------
    looks
        Looks in the order they were taken. A later one may cover fewer partitions: those that it covers are judged
        by all looks, the others by the earlier ones.
    asked
        Partitions that get a row even where nothing is held (`clear`).
    max_transaction_timeout_ms
        A live transaction older than this is `long`; the default is the broker's default transaction.max.timeout.ms.

    Returns
    -------
    list of dict
        Rows of ``schema.FINDINGS``: one per open transaction, one per partition whose LSO is below its high
        watermark with nothing open at it, one per partition that could not be read, one with null topic where
        topics may be hidden.
    """
    seen = [Seen(look) for look in looks]
    long_after = dt.timedelta(milliseconds=max_transaction_timeout_ms)
    asked = set(asked)
    rows: list[Row] = []
    for tp in sorted(set().union(*(one.before for one in seen))):
        covering = [one for one in seen if tp in one.before]
        found = _transactions(tp, covering, long_after) + _partition(tp, covering)
        rows += found or ([_clear(tp, covering[-1])] if tp in asked else [])
    return [{**_EMPTY, **row} for row in rows + _hidden_topics(looks[-1])]


def _transactions(tp: Partition, seen: Sequence[Seen], long_after: dt.timedelta) -> list[Row]:
    """Rows of the open transactions, in the order in which they will hold the LSO; those that hold nothing last."""
    looks = [one.look for one in seen]
    found = []
    for case in seen[-1].cases.get(tp, ()):
        history = [one.case(tp, case.key) for one in seen]
        found.append(_transaction(case, history, looks, long_after))
    holding = sorted((row for row in found if row["start_offset"] is not None), key=lambda row: row["start_offset"])
    idle = [row for row in found if row["start_offset"] is None]
    return [{**row, "position": i} for i, row in enumerate(holding, start=1)] + idle


def _transaction(case: Case, history: Sequence[Case | None], looks: Sequence[Look], long_after: dt.timedelta) -> Row:
    case = replace(case, seen_for=_seen_for(case, history))
    rule = rule_for(case)
    missing = [rule.needs(case)] if rule.needs else []
    verdict, why, remedy = rule.verdict, rule.why(case), rule.remedy(case)
    if verdict == "hanging":
        missing = _doubts(case, rule, history, looks)
        if missing:
            verdict, remedy = "unknown", "Do not abort. Get what is missing and ask again."
            why = f"It would be hanging if it were proven: {why}."
        else:
            why = f"{why} ({by_the_looks(looks)})."
    if verdict == "ongoing" and case.age is not None and case.age > long_after:
        verdict = "long"
    return {
        **_partition_columns(case.leader_row),
        "producer_id": case.producer["producer_id"],
        "producer_epoch": case.producer.get("producer_epoch"),
        "transactional_id": case.owner.get("transactional_id"),
        "start_offset": case.start,
        "verdict": verdict,
        "reason": why,
        "cause": rule.cause if verdict != "unknown" else None,
        "remedy": remedy,
        "missing": missing,
        "evidence": evidence(case, looks),
        **_opened(case, owned=verdict in OWNED),
        "expires_at": case.expires_at if verdict in {"ongoing", "long", "overdue"} else None,
        "broker_id": case.producer.get("broker_id"),
        "observed_at": case.look.observed_at,
    }


def _doubts(case: Case, rule: Rule, history: Sequence[Case | None], looks: Sequence[Look]) -> list[str]:
    """What speaks against trusting a coordinator's silence; empty where it is proven."""
    doubts = list(dict.fromkeys(gap for look in looks for gap in look.coverage.gaps))
    doubts += case.look.doubts.get((*case.tp, case.producer["producer_id"]), ())
    if case.leader_moved:
        doubts.append("an answer of the partition's leader: leadership moved during the look")
    if case.leader_row.get("error"):
        doubts.append(f"the leader's offsets: {case.leader_row['error']}")
    if any(earlier is None for earlier in history):
        doubts.append("a second look: it was open in the last one only")
    elif any(
        earlier and (rule_for(earlier).verdict, earlier.epoch) != (rule.verdict, case.epoch) for earlier in history
    ):
        doubts.append("looks that agree: the coordinator answered differently before")
    return doubts


def _seen_for(case: Case, history: Sequence[Case | None]) -> dt.timedelta:
    same = [earlier for earlier in history if earlier and earlier.state == case.state]
    return case.look.observed_at - same[0].look.observed_at if same else dt.timedelta(0)


def _opened(case: Case, *, owned: bool) -> Row:
    if owned and case.owner.get("start_time"):
        return {"opened_at": case.owner["start_time"], "opened_by": "coordinator"}
    if case.first_epoch is None or case.opening is None:
        return {}
    return {
        "opened_at": case.opening.base_timestamp,
        "opened_by": "broker" if case.opening.log_append_time else "producer",
    }


def _partition(tp: Partition, seen: Sequence[Seen]) -> list[Row]:
    """What a partition says beyond its open transactions: it could not be read, or nothing open explains its LSO."""
    last = seen[-1]
    row = last.after[tp]
    failed = last.errors(tp)
    if failed:
        return [_partition_row(row, last.look, "unknown", "The partition could not be read.", "Ask again.", failed)]
    if not is_held(row) or not is_held(seen[0].before[tp]):
        return []
    lso, high_watermark = row["last_stable_offset"], row["high_watermark"]
    if any(case.start is not None and case.start <= lso for case in last.cases.get(tp, ())):
        return []
    earlier = seen[0].before[tp].get("last_stable_offset")
    if not last.look.from_files and (earlier != lso or last.open_at_any_time(tp)):
        why = f"The transaction that held the LSO at {number(earlier)} ended while we looked."
        return [_partition_row(row, last.look, "ending", why, "None: transactions come and go here.", [])]
    why = (
        f"Nothing is open at the LSO {lso}, which stays below the high watermark {high_watermark} "
        f"(log end {number(row.get('log_end_offset'))}): a marker is written and waits for replication."
    )
    remedy = f"Look at the replicas: in sync {number(row.get('isr'))} of {number(row.get('replicas'))}. Abort nothing."
    return [_partition_row(row, last.look, "unreplicated", why, remedy, [])]


def _clear(tp: Partition, seen: Seen) -> Row:
    row = seen.after[tp]
    why = (
        f"The LSO {number(row.get('last_stable_offset'))} is the high watermark: nothing is held back. A consumer that "
        "shows a lag of 1 here stands before a transaction marker, which it never counts as read."
    )
    return _partition_row(row, seen.look, "clear", why, "None.", [])


def _hidden_topics(look: Look) -> list[Row]:
    gaps = list(look.coverage.topic_gaps)
    if not gaps:
        return []
    why = "The cluster may have topics that this principal cannot see."
    nowhere: Row = {"topic": None, "partition": None}
    return [_partition_row(nowhere, look, "unknown", why, "Ask with the right to describe all topics.", gaps)]


def _partition_row(row: Row, look: Look, verdict: str, why: str, remedy: str, missing: list[str]) -> Row:
    return {
        **_partition_columns(row),
        "verdict": verdict,
        "reason": why,
        "remedy": remedy,
        "missing": missing,
        "evidence": evidence(row, [look]),
        "broker_id": row.get("broker_id"),
        "observed_at": look.observed_at,
        "error": row.get("error"),
    }


def _partition_columns(row: Row) -> Row:
    lso, high_watermark = row.get("last_stable_offset"), row.get("high_watermark")
    held = None if lso is None or high_watermark is None else max(high_watermark - lso, 0)
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "last_stable_offset": lso,
        "high_watermark": high_watermark,
        "offsets_held": held,
    }
