"""How a person confirms what changes a cluster: by typing the name of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.output import show, width

NOT_CONFIRMED = "Not confirmed: nothing was sent."

AuditFile = Annotated[
    Path | None,
    typer.Option(
        "--audit-file",
        metavar="FILE",
        envvar="KAFKA_TXN_AUDIT_FILE",
        help="File of the audit trail. Default: audit.jsonl in the user's state directory.",
    ),
]
Override = Annotated[
    str | None,
    typer.Option(
        "--override",
        metavar="VERDICT",
        help="Act although the verdict is this one; it must be the verdict of the check right before.",
    ),
]


def is_at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirmation(target: str, option: str | None) -> str | None:
    """What was confirmed, by an option or by a person at a terminal; null for a dry run.

    Raises
    ------
    KeyboardInterrupt
        At Ctrl-C, with a note that nothing was sent.
    """
    if option is not None or not is_at_terminal():
        return option
    question = f"Type {target} to confirm; Enter cancels"
    try:
        return str(typer.prompt(question, default="", show_default=False)).strip() or None
    except typer.Abort as aborted:
        if isinstance(aborted.__context__, EOFError):  # Ctrl-D
            print_notice(["", NOT_CONFIRMED])
            return None
        interrupt = KeyboardInterrupt()
        interrupt.add_note(NOT_CONFIRMED)
        raise interrupt from aborted


def print_notice(texts: Iterable[str]) -> None:
    """Write sentences, wrapped to the terminal."""
    from toolkit.views.findings_text import wrap

    show(line for text in texts for line in wrap(text, before="", width=width()))
