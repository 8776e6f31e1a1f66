"""Merge the findings of a log and of a recording, one for each transaction."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from toolkit.analysis.diagnosis.decision.decide import decide
from toolkit.analysis.diagnosis.diagnose import transaction_key
from toolkit.analysis.diagnosis.evidence_kinds import TwoSourceEvidence
from toolkit.analysis.history.closing import close
from toolkit.schema.live import Finding
from toolkit.schema.record import replace
from toolkit.schema.table import TransactionKey

T = TypeVar("T")
MILLISECOND = dt.timedelta(milliseconds=1)


def merge_findings(of_log: Iterable[Finding], of_recording: Iterable[Finding]) -> list[Finding]:
    """Findings of a log and of a recording: one for each transaction.

    Parameters
    ----------
    of_log
        From `toolkit.analysis.history.hold_findings.held_findings`, or from the running cluster.
    of_recording
        From `toolkit.analysis.history.findings_over_time.over_time`.

    Returns
    -------
    list of Finding
        Where both have a transaction, the log's times and amounts win, if it has them; which verdict it has is decided
        on both (`decision.two_source_rules.TWO_SOURCE_RULES`). The recording's verdict becomes evidence if the
        transaction is over.
    """
    recorded: defaultdict[TransactionKey, list[Finding]] = defaultdict(list)
    found: list[Finding] = []
    for each in of_recording:
        if each.start_offset is None:
            found.append(each)
        else:
            recorded[transaction_key(each)].append(each)
    for each in of_log:
        same = recorded.pop(transaction_key(each), []) if each.start_offset is not None else []
        found.append(_both(each, same) if same else each)
    return [*found, *(each for same in recorded.values() for each in same)]


def _both(log: Finding, recorded: Sequence[Finding]) -> Finding:
    """Merge the log's finding with the recording's last one; the recorded ones may have several epochs."""
    last = max(recorded, key=lambda each: each.observed_at)
    decision = decide(TwoSourceEvidence(log=log, recorded=last))
    merged = decision.applied_to(_filled(log, recorded, last))
    if log.verdict == "ended":
        merged = close(merged, end=log.reason, before=last)
    elif decision.verdict == "ended":
        merged = replace(
            merged,
            queue_position=None,
            expires_at=None,
            observed_at=last.observed_at,
            held_to=last.held_to,
            held_ms=None,
        )
    elif last.verdict == "ended":
        return replace(merged, held_to=log.held_to)
    if merged.held_ms is None and merged.held_from is not None:
        held_to = merged.held_to or last.observed_at
        merged = replace(merged, held_ms=max((held_to - merged.held_from) // MILLISECOND, 0))
    return merged


def _filled(log: Finding, recorded: Sequence[Finding], last: Finding) -> Finding:
    """The log's finding, with what only the recording has."""
    filled = replace(
        log,
        transactional_id=_first(log.transactional_id, last.transactional_id),
        cause=_first(log.cause, last.cause),
        opened_at=_first(log.opened_at, last.opened_at),
        opened_at_clock=_first(log.opened_at_clock, last.opened_at_clock),
        offsets_held=_first(log.offsets_held, last.offsets_held),
        records_held=_first(log.records_held, last.records_held),
        bytes_held=_first(log.bytes_held, last.bytes_held),
        groups_held=_first(log.groups_held, last.groups_held),
        compaction_held=_first(log.compaction_held, last.compaction_held),
        held_from=_first(log.held_from, last.held_from),
        held_to=_first(log.held_to, last.held_to),
        evidence=(*log.evidence, *(entry for each in recorded for entry in each.evidence)),
    )
    if log.verdict == "ended":
        return filled
    return replace(
        filled,
        queue_position=_first(log.queue_position, last.queue_position),
        expires_at=_first(log.expires_at, last.expires_at),
        last_stable_offset=_first(log.last_stable_offset, last.last_stable_offset),
        high_watermark=_first(log.high_watermark, last.high_watermark),
    )


def _first(value: T | None, other: T | None) -> T | None:
    return other if value is None else value
