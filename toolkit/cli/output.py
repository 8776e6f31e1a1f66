"""Results go to stdout in the format of --format; everything else goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from toolkit.cli.common_options import Format

if TYPE_CHECKING:
    from toolkit.schema import Row, Table


def answer(table: Table, rows: Sequence[Row], output: Format, *, without: Collection[str] = ()) -> None:
    """Write the rows of a table; for a person `without` some columns."""
    from toolkit.views.row_formats import csv_pieces, json_pieces, row_lines

    if output is Format.TABLE:
        sys.stdout.write("\n".join(row_lines(table, rows, width=width(), without=without)) + "\n")
    else:
        sys.stdout.writelines((json_pieces if output is Format.JSON else csv_pieces)(table, rows))


def exit_code(rows: Iterable[Row]) -> int:
    """Return 3 where an answer is missing in a row, else 0."""
    return 3 if any(row.get("error") for row in rows) else 0


def show(lines: Iterable[str]) -> None:
    """Write lines of findings: coloured in a terminal, plain elsewhere."""
    if not sys.stdout.isatty():
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()  # lab and demo are followed as they go
        return
    from rich.console import Console

    from toolkit.views.findings_text import paint

    Console().print(paint(lines), soft_wrap=True)


def width() -> int | None:
    """Columns of the terminal; null where there is none and nothing needs wrapping."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console().width


def remark(text: str) -> None:
    """Print a remark on stderr."""
    typer.echo(text, err=True)


def progress(text: str) -> None:
    """Show progress on a terminal only."""
    if sys.stderr.isatty():
        remark(text)
