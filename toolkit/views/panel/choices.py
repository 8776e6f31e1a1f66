"""Findings to choose from, the most urgent first, each in a line that begins with its verdict."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from toolkit.schema.durations import duration
from toolkit.schema.live import Finding
from toolkit.views.report.finding_sections import urgency
from toolkit.views.report.report_parts import counted
from toolkit.views.row_formats import printable

MAX_CHOICES = 60
"""Maximum number of choices, each a button."""

MARKED = {"abort", "complete"}
"""Actions that write a marker: the steps of the panel."""

_TONES = {
    "hanging": "alarm",
    "unknown": "warn",
    "stuck_ending": "warn",
    "overdue": "warn",
    "prepared": "warn",
    "unreplicated": "warn",
}


def rank_findings(findings: Sequence[Finding]) -> list[Finding]:
    """The findings to choose from: the most urgent first, then those that hold the most records."""
    return sorted(findings, key=lambda each: (urgency(each.verdict), -(each.records_held or each.offsets_held or 0)))


def tone(finding: Finding) -> str:
    """The colour of a verdict: ``alarm``, ``warn`` or ``calm``."""
    return _TONES.get(finding.verdict, "calm")


def partition_name(finding: Finding) -> str:
    """``orders-0``, or "the whole cluster"."""
    return "the whole cluster" if finding.topic is None else f"{printable(finding.topic)}-{finding.partition}"


def choice(finding: Finding) -> str:
    """``HANGING · orders-0 at offset 12 · 23 records held · for 2 min · group billing cannot read on``."""
    verdict = finding.verdict.upper() if finding.verdict == "hanging" else finding.verdict
    offset = "" if finding.start_offset is None else f" at offset {finding.start_offset}"
    parts = [verdict, f"{partition_name(finding)}{offset}"]
    if finding.outcome == "commit" and finding.action == "complete":
        parts.append("committed, its marker is missing")
    if finding.records_held:
        parts.append(f"{counted(finding.records_held, 'record', 'records')} held")
    elif finding.offsets_held:
        parts.append(f"{counted(finding.offsets_held, 'offset', 'offsets')} held")
    if (length := _age(finding)) is not None:
        parts.append(f"for {duration(length)}")
    if (finding.queue_position or 1) > 1:
        parts.append(f"behind {counted((finding.queue_position or 1) - 1, 'other', 'others')}")
    if finding.groups_held:
        groups = ", ".join(map(printable, finding.groups_held[:3])) + (" and more" if finding.groups_held[3:] else "")
        parts.append(f"{groups} cannot read on")
    return " · ".join(parts)


def is_same(finding: Finding | None, other: Finding | None) -> bool:
    """Whether two findings are about the same transaction, or the same partition if none is open."""
    return finding is not None and other is not None and _key(finding) == _key(other)


def next_actionable(findings: Sequence[Finding]) -> Finding | None:
    """The next finding that a marker ends; null if there is none."""
    return next((each for each in rank_findings(findings) if each.action in MARKED), None)


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.topic, finding.partition, finding.producer_id, finding.start_offset


def _age(finding: Finding) -> dt.timedelta | None:
    if finding.held_ms is not None:
        return dt.timedelta(milliseconds=finding.held_ms)
    since = finding.held_from or finding.opened_at
    return finding.observed_at - since if since and since <= finding.observed_at else None
