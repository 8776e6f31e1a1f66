"""HTML of the panel, all values escaped: findings to choose from, the selected one, its marker, errors."""

from __future__ import annotations

import datetime as dt
import html
import shlex
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.actions.abort import AbortPlan, AbortResult
from toolkit.actions.complete import CompletePlan, CompleteResult
from toolkit.analysis.diagnosis.verdicts import VERDICTS
from toolkit.errors import (
    ActionFailed,
    ActionRefused,
    AuditFailed,
    AuthenticationFailed,
    ConnectionFailed,
    ToolkitError,
)
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding
from toolkit.views.report.finding_sections import answer
from toolkit.views.report.report_parts import partition_name
from toolkit.views.report.report_tables import evidence_grid
from toolkit.views.row_formats import count, printable
from toolkit.views.urgency import urgency

if TYPE_CHECKING:
    from toolkit.actions.fence import FencePlan
    from toolkit.actions.impact import OffsetCommitted
    from toolkit.views.report.report_parts import Fact, Grid


def line(text: object) -> str:
    """An escaped text."""
    return html.escape(printable(str(text)))


def paragraph(text: object, *, kind: str = "") -> str:
    """A paragraph."""
    return f'<p class="{kind}">{line(text)}</p>' if kind else f"<p>{line(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """A list of sentences."""
    return f"<ul>{''.join(f'<li>{line(text)}</li>' for text in texts)}</ul>"


def command(text: str) -> str:
    """A command to copy."""
    return f"<code>{line(text)}</code>"


def link(address: str) -> str:
    """A link that opens in a new page."""
    return f'<a href="{line(address)}" target="_blank" rel="noopener noreferrer">{line(address)}</a>'


def card(kind: str, *parts: str, role: str = "") -> str:
    """A framed section; `kind` is the class of its colour, `role` that of the section for a screen reader."""
    return f'<div class="card {kind}"{f" role={role}" if role else ""}>{"".join(parts)}</div>'


def facts(rows: Iterable[Fact]) -> str:
    """Labels with their texts."""
    lines = (
        f"<dt>{line(fact.label)}</dt><dd>"
        + "".join(f"<div>{_value(fact, text)}</div>" for text in fact.lines)
        + "</dd>"
        for fact in rows
    )
    return f"<dl>{''.join(lines)}</dl>"


def _value(fact: Fact, text: str) -> str:
    return link(text) if fact.link else command(text) if fact.command else line(text)


def grid(table: Grid) -> str:
    """A table of texts."""
    heads = "".join(f"<th>{line(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{line(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


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


def choice(finding: Finding) -> str:
    """``HANGING · orders-0 at offset 12 · 23 records held · for 2 min · group billing cannot read on``."""
    verdict = finding.verdict.upper() if finding.verdict == "hanging" else finding.verdict
    offset = "" if finding.start_offset is None else f" at offset {finding.start_offset}"
    parts = [verdict, f"{partition_name(finding)}{offset}"]
    if finding.outcome == "commit" and finding.action == "complete":
        parts.append("committed, its marker is missing")
    if finding.records_held:
        parts.append(f"{count(finding.records_held, 'record', 'records')} held")
    elif finding.offsets_held:
        parts.append(f"{count(finding.offsets_held, 'offset', 'offsets')} held")
    if (length := _age(finding)) is not None:
        parts.append(f"for {duration(length)}")
    if (finding.queue_position or 1) > 1:
        parts.append(f"behind {count((finding.queue_position or 1) - 1, 'other', 'others')}")
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


FENCED = {"ongoing", "long", "overdue"}
"""Verdicts whose owner can be fenced."""

_OWNED = "It has an owner: an abort marker on this partition would silently lose half of a live transaction."
_DECIDED = "Its outcome is decided: an abort marker could contradict it."
_NOTHING = "Nothing is open here that a marker could end."
_WHY_NOT = {
    "unknown": "It is not proven what was decided, so the panel writes nothing.",
    "ending": _DECIDED,
    "stuck_ending": _DECIDED,
    "unreplicated": _NOTHING,
    "clear": _NOTHING,
    "ended": _NOTHING,
}
_FIRST = ("Outcome", "Why", "Cause", "Who was affected", "Missing", "Error")


def answer_html(finding: Finding) -> str:
    """The finding in a few lines, verdict first."""
    section = answer(finding)
    first = [fact for fact in section.facts if fact.label in _FIRST and not _adds_nothing(fact.label, finding)]
    head = f'<h3><span class="badge {tone(finding)}">{line(finding.verdict)}</span> {line(section.title)}</h3>'
    remedy = f"<p><b>Remedy</b> {line(finding.remedy)}</p>" if finding.action == "complete" else ""
    return card(tone(finding), head, paragraph(section.lead, kind="lead"), facts(first), remedy)


def evidence_html(finding: Finding) -> str:
    """Further facts of the finding, and all evidence."""
    rest = [fact for fact in answer(finding).facts if fact.label not in _FIRST]
    return facts(rest) + grid(evidence_grid(finding))


def why_not_html(finding: Finding) -> str:
    """Why no marker is possible, and what to do instead."""
    verdict = finding.verdict
    return card(
        tone(finding),
        f"<h3>No marker here: {line(verdict)}</h3>",
        paragraph(f"{VERDICTS.get(verdict, '')} {_WHY_NOT.get(verdict, _OWNED)}".strip()),
        f"<p><b>Remedy</b> {line(finding.remedy)}</p>",
    )


def fence_html(plan: FencePlan) -> str:
    """The command that fences the owner, its effect, and whether it would be refused; nothing is sent."""
    server = shlex.quote(plan.cluster.bootstrap_servers)
    section = f"kafka-txn fence --bootstrap-server {server} --transactional-id {shlex.quote(plan.transactional_id)}"
    refused = [] if plan.refusal is None else [f"<p><b>It would be refused now</b>: {line(plan.refusal)}</p>"]
    return card(
        "plain",
        f"<h3>To end it: fence its id “{line(plan.transactional_id)}”</h3>",
        paragraph("In a terminal, a dry run until it is confirmed there:"),
        command(section),
        *refused,
        bullets(plan.warnings),
    )


def _adds_nothing(label: str, finding: Finding) -> bool:
    """Whether a fact would be empty."""
    return (label == "Cause" and not finding.cause) or (label == "Missing" and not finding.missing)


MAX_COMMITS = 20


def plan_html(plan: AbortPlan | CompletePlan) -> str:
    """The result of a successful dry run."""
    where = f"{plan.topic}-{plan.partition} at offset {plan.start_offset}"
    if isinstance(plan, CompletePlan):
        return card(
            "plain",
            "<h3>The dry run passed. Nothing was written.</h3>",
            paragraph(
                f"It was checked again just now: its coordinator decided to {plan.outcome}, and the marker is missing. "
                f"The marker would end producer {plan.producer_id} epoch {plan.producer_epoch} on {where}:"
            ),
            bullets(_changes(plan)),
        )
    return card(
        "plain",
        "<h3>The dry run passed. Nothing was written.</h3>",
        paragraph(
            f"It was checked again just now, and still hangs. An abort marker would end producer {plan.producer_id} "
            f"epoch {plan.producer_epoch} on {where}:"
        ),
        bullets(_changes(plan)),
        paragraph("Its records are saved first, beside the audit trail."),
        paragraph("Kafka's tool writes the same marker without these checks, and saves nothing:"),
        command(plan.command),
    )


def done_html(plan: AbortPlan | CompletePlan, done: AbortResult | CompleteResult, audit: str) -> str:
    """The result of the marker."""
    before, after = done.last_stable_offset_before, done.last_stable_offset_after
    is_moved = before is not None and after is not None and after > before
    head = f"The LSO moved: {before} → {after}" if is_moved else f"The LSO is still at {after}"
    return card(
        "done",
        f'<h3><span class="badge done">ended</span> {line(f"{plan.topic}-{plan.partition}")}</h3>',
        f'<p class="moved">{line(head)}</p>',
        bullets(_rest(done)),
        paragraph(f"Audit trail: {audit}.", kind="soft"),
        role="status",
    )


def _changes(plan: AbortPlan | CompletePlan) -> Iterator[str]:
    """What the marker would change."""
    impact, fate = plan.impact, "never read by any read_committed consumer"
    offset_commits: Sequence[OffsetCommitted] = ()
    if isinstance(plan, CompletePlan):
        offset_commits = plan.impact.offset_commits[:MAX_COMMITS]
        fate = "then visible to read_committed consumers" if plan.outcome == "commit" else fate
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        yield f"{count(impact.records or 0, 'record')} of it: {fate}."
        yield f"{count(impact.records_released or 0, 'record')} behind it: can then be read."
    for committed in offset_commits:
        partition = f"{printable(committed.topic)}-{committed.partition}"
        yield f"Group {printable(committed.group_id)} continues at {committed.offset} on {partition}."
    now, then = impact.last_stable_offset, impact.next_stable_offset
    yield f"The LSO stays at {now}." if now == then else f"The LSO goes from {now} to {then}."
    if impact.next_start_offset is not None:
        yield f"Then producer {impact.next_producer_id} holds it, from offset {impact.next_start_offset} on."
    yield _groups(impact.groups)


def _groups(groups: Sequence[str] | None) -> str:
    names = "not known" if groups is None else ", ".join(map(printable, groups)) or "none"
    return f"Groups that continue: {names}."


def _rest(done: AbortResult | CompleteResult) -> Iterator[str]:
    if isinstance(done, CompleteResult) and done.records_delivered is not None:
        received = count(done.records_delivered, "record", "records")
        yield f"A read_committed consumer received {received} of {done.records_checked}."
    if isinstance(done, AbortResult) and done.records_file is not None:
        yield f"{count(done.records_saved or 0, 'record', 'records')} saved in {done.records_file}."
    if done.next_start_offset is None:
        yield f"Nothing else is open on this partition; its high watermark is {done.high_watermark}."
    else:
        yield f"The next transaction open on this partition starts at offset {done.next_start_offset}."


_HEADS = (
    (ActionRefused, "Refused"),
    (AuditFailed, "Done, but missing from the audit trail"),
    (AuthenticationFailed, "Authentication failed"),
    (ConnectionFailed, "No response"),
    (ToolkitError, "Failed"),
)
_EFFECTS = {
    "nothing": "Failed: nothing was written",
    "written": "Written, but not verified",
    "uncertain": "It is uncertain whether it was written",
}
_UNEXPECTED = "This is a bug in the toolkit, not a result about the cluster. What was done before it is uncertain."
_NEXT = "Diagnose again before anything else; the traceback below shows where it happened."


def problem_html(error: BaseException) -> str:
    """Any error as HTML."""
    if not isinstance(error, ToolkitError):
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _card("Unexpected error", text, _UNEXPECTED, _NEXT)
    head = next(text for kind, text in _HEADS if isinstance(error, kind))
    if isinstance(error, ActionFailed):
        head = _EFFECTS[error.effect]
    return _card(head, error.what, error.means, error.do)


def traceback_html(error: BaseException) -> str:
    """Traceback of an unexpected error; empty for a `ToolkitError`."""
    if isinstance(error, ToolkitError):
        return ""
    return f"<pre>{line_by_line(''.join(traceback.format_exception(error)))}</pre>"


def line_by_line(text: str) -> str:
    """A text of several lines, escaped."""
    return "\n".join(map(line, text.splitlines()))


def _card(head: str, what: str, means: str, do: str) -> str:
    rest = [f"<p><b>{label}</b> {line(text)}</p>" for label, text in (("Means", means), ("Do", do)) if text]
    return card("problem", f"<h3>{line(head)}</h3>", paragraph(what, kind="lead"), *rest, role="alert")
