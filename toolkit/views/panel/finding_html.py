"""The selected finding as HTML: the answer, its evidence, and why it must not be aborted."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.verdicts import VERDICTS
from toolkit.views.panel.choices import tone
from toolkit.views.panel.html import bullets, card, command, facts, grid, line, paragraph
from toolkit.views.report.finding_sections import answer
from toolkit.views.report.report_tables import evidence_grid

if TYPE_CHECKING:
    from toolkit.actions.fence import FencePlan
    from toolkit.schema.live import Finding

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
    section = answer(finding.row())
    first = [fact for fact in section.facts if fact.label in _FIRST and not _adds_nothing(fact.label, finding)]
    head = f'<h3><span class="badge {tone(finding)}">{line(finding.verdict)}</span> {line(section.title)}</h3>'
    remedy = f"<p><b>Remedy</b> {line(finding.remedy)}</p>" if finding.action == "complete" else ""
    return card(tone(finding), head, paragraph(section.lead, kind="lead"), facts(first), remedy)


def evidence_html(finding: Finding) -> str:
    """Further facts of the finding, and all evidence."""
    row = finding.row()
    rest = [fact for fact in answer(row).facts if fact.label not in _FIRST]
    return facts(rest) + grid(evidence_grid(row))


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
