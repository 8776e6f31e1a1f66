"""What the panel shows and plans for a finding: its sections, the text of its button, and its freshly checked plan.

Which action a finding has was decided with it (`analysis.diagnosis.decision`); nothing here chooses another one.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.actions.coordinator_actions import plan_commit, plan_fence
from toolkit.actions.marker_actions import plan_abort, plan_abort_list, plan_complete
from toolkit.actions.plan import Plan, PlanList
from toolkit.errors import (
    ActionFailed,
    ActionRefused,
    AuditFailed,
    AuthenticationFailed,
    ConnectionFailed,
    ToolkitError,
)
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict
from toolkit.views.document import Command, Field, Fields, Paragraph, Part, Quote, Section
from toolkit.views.finding_document import by_urgency, finding_section, remedy, transaction_name
from toolkit.views.report.report_sections import evidence_grid
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster


def checked_plan(cluster: Cluster, finding: Finding, *, recheck_after: float) -> Plan:
    """Plan the action of a finding, and check it afresh; nothing is sent.

    Raises ActionRefused if the finding has no action, or it is not safe any more. Raises BrokerError if the evidence
    cannot be read.
    """
    transactional_id = finding.transactional_id or ""
    if finding.action == "commit":
        return plan_commit(cluster, transactional_id, recheck_after=recheck_after)  # which is its check
    if finding.action == "fence":
        plan = plan_fence(cluster, transactional_id)
    else:
        plan = plan_complete(cluster, finding) if finding.action == "complete" else plan_abort(cluster, finding)
    return plan.check(recheck_after=recheck_after)


def checked_list(cluster: Cluster, findings: Sequence[Finding], *, recheck_after: float) -> PlanList:
    """Plan the abort of many, and check each afresh; nothing is sent.

    Raises ActionRefused if none is proven to be hanging any more.
    """
    plan = plan_abort_list(cluster, findings, recheck_after=recheck_after)
    if not plan.plans:
        raise ActionRefused(
            "None of these transactions is proven to be hanging any more.", means="Nothing was written.", do="Refresh."
        )
    return plan


def button_text(finding: Finding) -> str:
    """What the button says that takes the action of a finding."""
    if finding.action == "commit":
        return "Commit the transaction"
    if finding.action == "fence":
        return "Fence the id"
    is_commit = finding.action == "complete" and finding.outcome == "commit"
    return f"Write the {'COMMIT' if is_commit else 'abort'} marker"


def tone(finding: Finding) -> str:
    """The colour of a verdict: ``alarm``, ``warn`` or ``calm``."""
    return "calm" if finding.verdict.tone == "muted" else finding.verdict.tone


def choice(finding: Finding) -> str:
    """``HANGING · orders-0 at offset 12 · LSO 12 held for 2 min · 23 records waiting · group billing cannot move``."""
    position = finding.queue_position or 1
    parts = [
        finding.verdict.upper() if finding.verdict is Verdict.HANGING else finding.verdict,
        transaction_name(finding),
        "" if finding.transactional_id is None else f'id "{finding.transactional_id}"',
        "committed, its marker is missing" if finding.action == "complete" else "",
        finding_section(finding).lead,
        f"behind {count(position - 1, 'other', 'others')}" if position > 1 else "",
    ]
    return printable(" · ".join(filter(None, parts)))


def is_same(finding: Finding | None, other: Finding | None) -> bool:
    """Whether two findings are about the same transaction, or the same partition if none is open."""
    return finding is not None and other is not None and finding.key == other.key


def next_actionable(findings: Sequence[Finding]) -> Finding | None:
    """The next finding with an action; null if there is none."""
    return next((each for each in by_urgency(findings) if each.action), None)


def answer_section(finding: Finding) -> Section:
    """The finding in a few lines, verdict first."""
    section = finding_section(finding)
    fields = tuple(each for each in section.fields if finding.action or each.label != "remedy")  # of `why_not_section`
    if finding.offsets_held and finding.groups_held is None:
        fields = (*fields, Field("groups", ("which of them wait is not known: their offsets were not read",)))
    return replace(section, badge=finding.verdict, tone=tone(finding), parts=(Fields(fields),))


def evidence_section(finding: Finding) -> Section:
    """All evidence of the finding."""
    return Section(title="All evidence", parts=(evidence_grid(finding),), is_folded=True)


def why_not_section(finding: Finding) -> Section:
    """What a finding without an action means, and its remedy."""
    parts = (Paragraph(finding.verdict.sentence), Fields((Field("Remedy", remedy(finding)),)))
    return Section(title=f"No action here: {finding.verdict}", tone=tone(finding), parts=parts)


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
_UNEXPECTED = "This is a bug in the toolkit, not a result about the cluster."
_UNKNOWN = "What was done before it is uncertain."
_NEXT = "Diagnose again before anything else; the traceback below shows where it happened."


def problem_section(error: BaseException) -> Section:
    """Any error."""
    if not isinstance(error, ToolkitError):
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        head, why = ("Interrupted", "") if isinstance(error, KeyboardInterrupt) else ("Unexpected error", _UNEXPECTED)
        done = " ".join(getattr(error, "__notes__", (_UNKNOWN,)))  # by an action, up to then
        return _problem(head, ToolkitError(text, means=f"{why} {done}".lstrip(), do=_NEXT))
    head = next(text for kind, text in _HEADS if isinstance(error, kind))
    if isinstance(error, ActionFailed) or (isinstance(error, AuditFailed) and error.effect != "written"):
        head = _EFFECTS[error.effect]
    return _problem(head, error)


def _problem(head: str, error: ToolkitError) -> Section:
    command = (Command(error.command),) if error.command else ()
    said = (("Means", (error.means,)), ("Do", (error.do, *command)))
    fields = tuple(Field(label, values) for label, values in said if values[0])
    return Section(title=head, tone="problem", lead=error.what, parts=(Fields(fields),) if fields else ())


def traceback_parts(error: BaseException) -> list[Part]:
    """Traceback of an unexpected error; none for a `ToolkitError`."""
    if isinstance(error, ToolkitError):
        return []
    quote = Quote("".join(traceback.format_exception(error)))
    return [Section(title="Traceback", parts=(quote,), is_folded=True)]
