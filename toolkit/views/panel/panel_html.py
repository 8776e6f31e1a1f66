"""HTML of the panel, all values escaped: pieces, findings to choose from, the selected one, errors."""

from __future__ import annotations

import html
import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

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
from toolkit.schema.verdict import Verdict
from toolkit.views.report.finding_sections import answer
from toolkit.views.report.report_parts import partition_name
from toolkit.views.report.report_tables import evidence_grid
from toolkit.views.row_formats import count, printable
from toolkit.views.urgency import age, by_urgency

if TYPE_CHECKING:
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
    heads = "".join(f"<th scope='col'>{line(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{line(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    head = f'<div class="scroll" role="region" aria-label="{line(table.title)}" tabindex="0">'
    return f"{head}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"


def tone(finding: Finding) -> str:
    """The colour of a verdict: ``alarm``, ``warn`` or ``calm``."""
    return "calm" if finding.verdict.tone == "muted" else finding.verdict.tone


def choice(finding: Finding) -> str:
    """``HANGING · orders-0 at offset 12 · 23 records held · for 2 min · group billing cannot read on``."""
    verdict = finding.verdict.upper() if finding.verdict is Verdict.HANGING else finding.verdict
    offset = "" if finding.start_offset is None else f" at offset {finding.start_offset}"
    parts = [verdict, f"{partition_name(finding)}{offset}"]
    if finding.action == "complete":
        parts.append("committed, its marker is missing")
    if finding.records_held:
        parts.append(f"{count(finding.records_held, 'record', 'records')} held")
    elif finding.offsets_held:
        parts.append(f"{count(finding.offsets_held, 'offset', 'offsets')} held")
    if (length := age(finding)) is not None:
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
    """The next finding with an action; null if there is none."""
    return next((each for each in by_urgency(findings) if each.action), None)


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.topic, finding.partition, finding.producer_id, finding.start_offset


FENCED = {Verdict.ONGOING, Verdict.LONG}
"""Verdicts of live owners: the command that fences one by choice is shown, and not run."""

_FIRST = ("Outcome", "Why", "Cause", "Who was affected", "Missing", "Error")


def answer_html(finding: Finding) -> str:
    """The finding in a few lines, verdict first."""
    section = answer(finding)
    first = [fact for fact in section.facts if fact.label in _FIRST and not _adds_nothing(fact.label, finding)]
    head = f'<h3><span class="badge {tone(finding)}">{line(finding.verdict)}</span> {line(section.title)}</h3>'
    remedy = f"<p><b>Remedy</b> {line(finding.remedy)}</p>" if finding.action else ""
    return card(tone(finding), head, paragraph(section.lead, kind="lead"), facts(first), remedy)


def evidence_html(finding: Finding) -> str:
    """Further facts of the finding, and all evidence."""
    rest = [fact for fact in answer(finding).facts if fact.label not in _FIRST]
    return facts(rest) + grid(evidence_grid(finding))


def why_not_html(finding: Finding) -> str:
    """What a finding without an action means, and its remedy."""
    verdict = finding.verdict
    return card(
        tone(finding),
        f"<h3>No action here: {line(verdict)}</h3>",
        paragraph(verdict.sentence),
        f"<p><b>Remedy</b> {line(finding.remedy)}</p>",
    )


def _adds_nothing(label: str, finding: Finding) -> bool:
    """Whether a fact would be empty."""
    return (label == "Cause" and not finding.cause) or (label == "Missing" and not finding.missing)


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
    return f"<pre tabindex='0'>{line_by_line(''.join(traceback.format_exception(error)))}</pre>"


def folded(title: str, content: str) -> str:
    """Content behind a title that opens by mouse and by keyboard, without a script; empty without content."""
    return f'<details class="fold"><summary>{line(title)}</summary>{content}</details>' if content else ""


def line_by_line(text: str) -> str:
    """A text of several lines, escaped."""
    return "\n".join(map(line, text.splitlines()))


def _card(head: str, what: str, means: str, do: str) -> str:
    rest = [f"<p><b>{label}</b> {line(text)}</p>" for label, text in (("Means", means), ("Do", do)) if text]
    return card("problem", f"<h3>{line(head)}</h3>", paragraph(what, kind="lead"), *rest, role="alert")
