"""Errors in the panel: what happened, what it means, what to do."""

from __future__ import annotations

import traceback

from toolkit.errors import (
    ActionFailed,
    ActionRefused,
    AuditFailed,
    AuthenticationFailed,
    ConnectionFailed,
    ToolkitError,
)
from toolkit.views.panel.html import card, line, paragraph

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
