"""How a person confirms what changes a cluster: by typing the name of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.output import show, width

__all__ = ["AuditFile", "Override", "confirmation", "tell"]

AuditFile = Annotated[
    Path | None,
    typer.Option(
        "--audit-file",
        metavar="FILE",
        envvar="KAFKA_TXN_AUDIT_FILE",
        help="Where it is written down, before and after. Default: audit.jsonl in the user's state directory.",
    ),
]
Override = Annotated[
    str | None,
    typer.Option(
        "--override",
        metavar="VERDICT",
        help="Do it against this verdict, which has to be the one of the check right before.",
    ),
]


def confirmation(target: str, given: str | None) -> str | None:
    """What was confirmed, by an option or by a person at a terminal; null for a dry run."""
    if given is not None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return given
    asked = f"To do it, type {target}; Enter leaves everything as it is"
    return str(typer.prompt(asked, default="", show_default=False)).strip() or None


def tell(texts: Iterable[str]) -> None:
    """Write sentences, wrapped to the terminal."""
    from toolkit.views.text import wrap

    show(line for text in texts for line in wrap(text, before="", width=width()))
