"""Errors in the panel: what happened, what it means, what to do."""

from __future__ import annotations

import traceback

from toolkit.errors import (
    ActionRefused,
    AuditFailed,
    AuthenticationFailed,
    ConnectionFailed,
    ToolkitError,
)
from toolkit.views.panel.html import card, line, paragraph

__all__ = ["problem_html", "traceback_html"]

_HEADS = (
    (ActionRefused, "Refused"),
    (AuditFailed, "It happened, and is not written down"),
    (AuthenticationFailed, "Not let in"),
    (ConnectionFailed, "No answer"),
    (ToolkitError, "This did not work"),
)
_UNEXPECTED = "This is a fault of the toolkit, not an answer about the cluster. What happened before it is unsure."
_LOOK = "Diagnose again before anything else; the traceback below shows where it happened."


def problem_html(error: BaseException) -> str:
    """Any error as HTML."""
    if not isinstance(error, ToolkitError):
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _card("Unexpected error", text, _UNEXPECTED, _LOOK)
    head = next(text for kind, text in _HEADS if isinstance(error, kind))
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
