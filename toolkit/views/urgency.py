"""Age and urgency of findings: the same in plots, tables and short lines of one frame."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from toolkit.schema.durations import duration
from toolkit.schema.verdict import Verdict
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.schema.live import Finding

UrgencyKey: TypeAlias = tuple[int, float, str, int, int]
TICK = dt.timedelta(seconds=1)
"""Files have the times at which they were copied in whole seconds: a record in them may be a little younger."""


def newest(findings: Iterable[Finding]) -> dt.datetime:
    """The brokers' time when the newest of them was observed; without it, when that was by the observer's clock."""
    found = list(findings)
    known = [each.brokers_time for each in found if each.brokers_time]
    return max(known or [each.observed_at for each in found if each.observed_at], default=dt.datetime.now(dt.UTC))


def age(finding: Finding, now: dt.datetime | None = None) -> dt.timedelta | None:
    """For how long it has held the LSO, or has been open; of an ended one, for how long it held it; null if unknown.

    `now`: by the brokers' clocks, as the times since when; by default when it was observed. It is unknown where no
        broker's time was read.
    """
    if finding.held_ms is not None:
        is_over = finding.held_to is not None or finding.verdict is Verdict.ENDED or finding.brokers_time is None
        later = dt.timedelta(0) if is_over or now is None else now - (finding.brokers_time or now)
        return dt.timedelta(milliseconds=finding.held_ms) + max(later, dt.timedelta(0))
    since, until = finding.held_from or finding.opened_at, finding.brokers_time and (now or finding.brokers_time)
    if since is None or until is None or since > until + TICK:
        return None
    return max(until - since, dt.timedelta(0))


def expires_in(finding: Finding) -> dt.timedelta | None:
    """The time left until its timeout, which is at most the timeout; null if it is over, or not known."""
    now, opened_at, expires_at = finding.brokers_time, finding.opened_at, finding.expires_at
    if now is None or expires_at is None or opened_at is None or finding.opened_at_clock != "coordinator":
        return None
    return expires_at - now if opened_at <= now < expires_at else None


def urgency_key(finding: Finding, until: dt.datetime) -> UrgencyKey:
    """The most urgent verdict first, then the oldest; findings of one age by partition and queue position."""
    length = age(finding, until) or dt.timedelta(0)
    place = finding.topic or "", finding.partition or 0, finding.queue_position or 0
    return finding.verdict.urgency, -length.total_seconds(), *place


def by_urgency(findings: Iterable[Finding], now: dt.datetime | None = None) -> list[Finding]:
    """The most urgent first, as `urgency_key` ranks them.

    `findings`: the findings.
    `now`: time up to which ages are counted; that of the newest finding if null.
    """
    found = list(findings)
    until = now or newest(found)
    return sorted(found, key=lambda finding: urgency_key(finding, until))


def short_lines(findings: Iterable[Finding]) -> list[str]:
    """A line for each, aligned, the most urgent first: partition, start offset, verdict, id, how long, action.

    An id stands as a shell takes it; what is not known, or does not apply, is a dash.
    """
    cells = [
        (
            "all topics" if each.tp is None else printable(str(each.tp)),
            "-" if each.start_offset is None else str(each.start_offset),
            str(each.verdict),
            "-" if each.transactional_id is None else shlex.quote(printable(each.transactional_id)),
            "-" if (length := age(each)) is None else duration(length),
            each.action or "-",
        )
        for each in by_urgency(findings)
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
