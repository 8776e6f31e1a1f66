"""Add log evidence to findings: cause, opening time, impact. It changes no decision.

Markers and batches under LogAppendTime have the time of the partition's leader; other batches have their producer's.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from toolkit.analysis.diagnosis.evidence.causes import CHECKS, DISOWNED, cause
from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER, Excerpt, ProducerBatches
from toolkit.analysis.diagnosis.evidence_text import event_entry
from toolkit.analysis.log.log_transactions import (
    OPEN,
    LogTransactionField,
    LogTransactions,
    finish,
    partial_transactions,
)
from toolkit.analysis.log.lso_timeline import lso_steps
from toolkit.analysis.log.record_counts import amounts
from toolkit.formats.log.headers import StructuredRow
from toolkit.schema import utc
from toolkit.schema.durations import elapsed_ms
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case

MAX_EVENTS = 20  # of the cluster, from shortly before the first batch on
LOG_LEFT_OUT = (
    "the log around it was not read for cause, opening time and impact: too many partitions are held, or too little "
    "time was left; diagnose this partition alone"
)


def explain(findings: Sequence[Finding], cases: Mapping[TransactionKey, Case]) -> list[Finding]:
    """Add log evidence to findings.

    Parameters
    ----------
    findings
        From `Diagnosis.findings`.
    cases
        The open transactions whose logs had to be read. Without an excerpt of a partition, the evidence of its findings
        states so (``left_out``), as for one that could not be read.

    Returns
    -------
    list of Finding
        The findings with ``cause``, ``opened_at``, ``records_held``, ``bytes_held``, ``compaction_held``, ``held_from``
        and further evidence.
    """
    excerpts = {each.tp: each.excerpt for each in cases.values() if each.excerpt is not None}
    return [_explained(each, cases.get(each.key), excerpts) for each in findings]


def _explained(finding: Finding, case: Case | None, excerpts: Mapping[TopicPartition, Excerpt]) -> Finding:
    if (tp := finding.tp) is None:
        return finding
    excerpt = excerpts.get(tp)
    if excerpt is None:
        return finding if case is None else _left_out(finding, LOG_LEFT_OUT)
    finding = held_back(finding, excerpt)
    if finding.queue_position == 1:
        groups = excerpt.groups.get(finding.producer_id or -1)
        held = None if groups is None else tuple(groups)
        finding = replace(finding, compaction_held=excerpt.is_compacted, groups_held=held)
    if case is None:
        return finding
    batches = case.batches
    if batches is not None:
        finding = opening_time(finding, batches)
    elif excerpt.error is not None:
        finding = _left_out(finding, f"the log around it could not be read: {excerpt.error}")
    finding = replace(finding, evidence=(*finding.evidence, *_events_around(case)))
    if batches is not None and finding.queue_position == 1:
        finding = held_since(finding, batches)
    is_ended = case.state.startswith("Prepare")
    is_disowned = finding.verdict is Verdict.HANGING or (finding.verdict is Verdict.STUCK_ENDING and not is_ended)
    why = cause(case, DISOWNED if is_disowned else CHECKS.get(finding.verdict, ()))
    if why is None:
        return finding
    return replace(finding, cause=why.sentence, evidence=(*finding.evidence, *why.evidence))


def _events_around(case: Case) -> tuple[EvidenceEntry, ...]:
    """What happened to the cluster, in order; rather what is about the transaction or its partition than the rest."""
    events = case.cluster_events
    is_own = [each.error or each.tp == case.tp or each.transactional_id is not None for each in events]
    chosen = sorted(range(len(events)), key=lambda number: not is_own[number])[:MAX_EVENTS]
    return tuple(event_entry(events[number]) for number in sorted(chosen))


def _left_out(finding: Finding, why: str) -> Finding:
    entry = EvidenceEntry(
        source="log", broker_id=finding.broker_id, observed_at=finding.observed_at, name="left_out", value=why
    )
    return replace(finding, evidence=(*finding.evidence, entry))


def held_back(finding: Finding, excerpt: Excerpt) -> Finding:
    """Count data records and bytes between the LSO and the high watermark.

    Returns: with ``records_held`` and ``bytes_held``; null if the range was not read completely. Bytes are those of
    complete batches, including markers.
    """
    lso, high_watermark = finding.last_stable_offset, finding.high_watermark
    if lso is None or high_watermark is None:
        return replace(finding, records_held=None, bytes_held=None)
    first = max(lso, excerpt.log_start_offset or 0)  # the LSO may be below the log start
    if first >= high_watermark:
        return replace(finding, records_held=0, bytes_held=0)
    if excerpt.held is None and (excerpt.start > first or excerpt.stop < high_watermark):
        return replace(finding, records_held=None, bytes_held=None)
    records, size = excerpt.held or amounts(excerpt.headers, first, high_watermark)
    return replace(finding, records_held=records, bytes_held=size)


def opening_time(finding: Finding, batches: ProducerBatches) -> Finding:
    """Correct a transaction's opening time if a broker's clock contradicts its producer's.

    Returns: with ``opened_at`` and ``opened_at_clock``: unchanged, or the broker time before the first batch, null if
    none was read.
    `batches`: its producer's batches in the excerpt.
    """
    if finding.opened_at is None or finding.opened_at_clock != "producer":
        return finding
    opened_at = _plausible(finding.opened_at, batches, now=finding.brokers_time)
    if opened_at == finding.opened_at:
        return finding
    return replace(finding, opened_at=opened_at, opened_at_clock=None if opened_at is None else "broker")


def _plausible(by_producer: dt.datetime, batches: ProducerBatches, *, now: dt.datetime | None) -> dt.datetime | None:
    """A producer's time if brokers' clocks allow it, else the broker time before the first batch.

    Broker times before and after the first batch bound the opening time. A producer's time outside these bounds is
    wrong, or its records have other times on purpose.
    """
    earliest = batches.brokers_time_before
    latest = batches.brokers_time_after or now or by_producer
    is_plausible = (earliest or by_producer) - CLOCKS_DIFFER <= by_producer <= latest + CLOCKS_DIFFER
    return by_producer if is_plausible else earliest


def held_since(finding: Finding, batches: ProducerBatches) -> Finding:
    """Since when the lowest open transaction has held the LSO: since its first batch, or since a later marker.

    An earlier transaction holds the LSO until its marker. If the excerpt has only the marker of a transaction, that may
    have begun earlier: the time is then the latest possible one, and the evidence is named ``held_at_least_since``.

    With ``held_from``, ``held_to`` (if its marker was read) and ``held_ms``, null if the excerpt does not show them or
    the clocks contradict each other; and ``evidence``, with the marker after which it was the lowest.
    `batches`: its producer's batches in the excerpt.
    """
    excerpt, high_watermark = batches.excerpt, finding.high_watermark
    # A transaction that was open before the excerpt may have ended after it.
    if excerpt.start != 0 and (high_watermark is None or excerpt.stop < high_watermark):
        return finding
    log_transactions, unsure = _log_transactions_around(batches)
    own = log_transactions[
        (log_transactions["producer_id"] == batches.producer_id) & (log_transactions["first_offset"] == batches.start)
    ]
    steps = lso_steps(log_transactions, log_end_offset=batches.excerpt.stop)
    holds = (steps["holder_producer_id"] == batches.producer_id) & (steps["holder_first_offset"] == batches.start)
    if not holds.any():
        return finding
    step, evidence = steps[holds][0], finding.evidence
    if step["event"] == OPEN:
        held_from = _first_batch_time(finding, own[0], batches)
    else:
        held_from = utc(int(step["at"]))
        name = "held_at_least_since" if step["offset"] - 1 in unsure else "held_since"
        headers = excerpt.headers
        evidence = (*evidence, batches.entry(name, headers[headers["base_offset"] == step["offset"] - 1]))
    held_to = utc(int(own[0]["end"]))
    held_ms = elapsed_ms(held_from, held_to or finding.brokers_time, differ=CLOCKS_DIFFER)
    return replace(finding, held_from=held_from, held_to=held_to, held_ms=held_ms, evidence=evidence)


def _log_transactions_around(batches: ProducerBatches) -> tuple[LogTransactions, set[int]]:
    """Transactions in the excerpt, and the marker offsets of those that may have begun before it.

    Those are assumed to have begun before it. A first batch with sequence number 0 begins its producer's epoch, and so
    a transaction.
    """
    headers, start = batches.excerpt.headers, batches.excerpt.start
    if start == 0:  # a transaction that begins later cannot have held the LSO before this one
        earlier = headers["producer_id"][: bisect_right(headers["base_offset"], batches.start)]
        return finish(partial_transactions(headers[np.isin(headers["producer_id"], earlier)])), set()
    found = partial_transactions(headers)
    read = finish(found)
    unsure = read[(read["truncated"] == -1) & (read["marker_offset"] >= 0) & (read["first_sequence"] != 0)]
    unsure = unsure[unsure["first_offset"] != batches.start]
    before = {int(each["producer_id"]): (0, int(each["producer_epoch"])) for each in unsure} if batches.start else {}
    if batches.start < start:
        before[batches.producer_id] = batches.start, -1
    return finish(found, opened_before=before), set(unsure["marker_offset"].tolist())


def _first_batch_time(
    finding: Finding, log_transaction: StructuredRow[LogTransactionField], batches: ProducerBatches
) -> dt.datetime | None:
    """When its first batch was written; not before its coordinator's start time, which is a broker's clock."""
    found = utc(int(log_transaction["start"]))
    if found is not None and log_transaction["start_clock"] != 1:
        found = _plausible(found, batches, now=finding.brokers_time)
    if finding.opened_at_clock != "coordinator" or finding.opened_at is None:
        return found
    started = finding.opened_at
    return started if found is None or found < started - CLOCKS_DIFFER else found
