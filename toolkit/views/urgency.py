"""Age and urgency of findings: the same in plots and tables of one frame."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.schema.live import Finding


VERDICT_ORDER = ("hanging", "unknown", "stuck_ending", "overdue", "prepared", "unreplicated", "ended", "ending", "long")
"""Verdicts, the most urgent first."""


def urgency(verdict: str) -> int:
    """The place of a verdict in `VERDICT_ORDER`."""
    return VERDICT_ORDER.index(verdict) if verdict in VERDICT_ORDER else len(VERDICT_ORDER)


def newest(findings: Iterable[Finding]) -> dt.datetime:
    """When the newest of them was observed: ages are counted up to then."""
    return max((each.observed_at for each in findings if each.observed_at), default=dt.datetime.now(dt.UTC))


def age(finding: Finding, now: dt.datetime) -> dt.timedelta | None:
    """For how long it has held the LSO, or has been open; of an ended one, for how long it held it; null if unknown."""
    if finding.held_ms is not None:
        return dt.timedelta(milliseconds=finding.held_ms)
    since = finding.held_from or finding.opened_at
    return None if since is None or since > now else now - since


def by_urgency(findings: Iterable[Finding], now: dt.datetime | None = None) -> list[Finding]:
    """The most urgent verdict first, then the oldest; findings of one age by partition and queue position.

    `findings`: the findings.
    `now`: time up to which ages are counted; that of the newest finding if null.
    """
    found = list(findings)
    until = now or newest(found)

    def key(finding: Finding) -> tuple[int, float, str, int, int]:
        length = age(finding, until) or dt.timedelta(0)
        return (urgency(finding.verdict), -length.total_seconds(), finding.topic or "", finding.partition or 0,
                finding.queue_position or 0)  # fmt: skip

    return sorted(found, key=key)
