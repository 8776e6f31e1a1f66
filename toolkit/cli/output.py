"""Results go to stdout in the format of --format; all else, and each error as one sentence, to stderr."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from toolkit.command_line import command_in, command_line, grant
from toolkit.errors import (
    ActionFailed,
    ActionRefused,
    AuditFailed,
    BrokerError,
    ConnectionFailed,
    NotFound,
    ToolkitError,
)
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.cli.options import SourceOptions
    from toolkit.schema import Row, Table
    from toolkit.schema.coerce import Scope
    from toolkit.sources.source import Source

INVALID, INCOMPLETE, NOT_FOUND, REFUSED, FAILED, DEFECT = 2, 3, 4, 5, 6, 70
CODES: Mapping[type[ToolkitError], int] = {
    BrokerError: INCOMPLETE,  # no broker showed what was requested
    ConnectionFailed: INCOMPLETE,
    NotFound: NOT_FOUND,
    ActionRefused: REFUSED,
    ActionFailed: FAILED,
    AuditFailed: FAILED,
}
ASCII = {"\N{MIDDLE DOT}": "-", "\N{HORIZONTAL ELLIPSIS}": "..."}
IMPORTLIB = "<frozen importlib._bootstrap>"
BROKEN_PIPE, INTERRUPTED = 141, 130  # 128 + SIGPIPE, 128 + SIGINT: what a shell expects of either

NO_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
STOPPED = "kafka-txn: interrupted."

SOURCE: ContextVar[SourceOptions | None] = ContextVar("SOURCE", default=None)
"""That a command reads, for the commands of its errors."""
CLUSTER_NAME = ContextVar("CLUSTER_NAME", default="")
"""Of several clusters the one whose answer is read or written, which remarks name."""

OPTIONAL = {
    "mcp": "mcp",
    "mcp_types": "mcp",
    "plotly": "plotly",
    "prometheus_client": "prometheus-client",
    "pyspark": "pyspark",
}
"""Modules of the extras, and what installs them; all others belong to every install."""


class Format(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def write_any_text() -> None:
    """Let stdout and stderr write what their encoding lacks: signs of ours as ASCII, letters of names as escapes."""
    codecs.register_error("kafka-txn", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="kafka-txn")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(ASCII.get(each, each).encode("ascii", "backslashreplace").decode() for each in text), error.end


def answer(
    table: Table,
    rows: Sequence[Row],
    output: Format,
    *,
    source: Source | None,
    scope: Scope | None = None,
    missing: Sequence[str] = (),
    without: Collection[str] = (),
) -> None:
    """Write the rows of a table that a source gave.

    `source`: null if the answer needed none.
    `scope`: what was seen; by default what the rows are about, and of what may be hidden what `missing` says.
    `without`: columns that a person does not see.
    """
    from toolkit.schema.coerce import Scope
    from toolkit.views.row_formats import csv_pieces, json_pieces, row_lines

    if output is Format.TABLE:
        sys.stdout.write("\n".join(row_lines(table, rows, width=width(), without=without)) + "\n")
    elif output is Format.CSV:
        sys.stdout.writelines(csv_pieces(table, rows))
    else:
        scope = scope or Scope.of_rows(table, rows, missing=missing)
        answer_json(table.name, table.version, json_pieces(table, rows), source=source, scope=scope)


def answer_json(schema: str, version: int, rows: Iterable[str], *, source: Source | None, scope: Scope | None) -> None:
    """Write an answer in JSON: its envelope, then the pieces of its rows, as they come."""
    from toolkit.views.row_formats import Envelope, answer_pieces

    sys.stdout.writelines(answer_pieces(Envelope.of(schema, version, source, scope), rows))


RIGHTS = {  # by the code of an error: the operation, the resource, its column, and the name in rows without the column
    "TOPIC_AUTHORIZATION_FAILED": ("READ", "topic", "topic", "__transaction_state"),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": ("DESCRIBE", "transactional-id", "transactional_id", None),
    "GROUP_AUTHORIZATION_FAILED": ("DESCRIBE", "group", "group_id", None),
}
MAX_GRANTED = 10
"""Names in a command that grants a right; instead of more it is for all."""


def exit_code(rows: Sequence[Row], missing: Sequence[str] = ()) -> int:
    """Return 3 where an answer is missing, in a row or as a whole, as `missing` says and stderr will; else 0.

    A right that is missing for a row is named on stderr, with the command that grants it.
    """
    for each in missing:
        remark(each)
    for code, (operation, resource, column, other) in RIGHTS.items():
        denied = [row for row in rows if (row.get("error") or "").startswith(code)]
        names = sorted({row.get(column, row.get("key", other)) for row in denied} - {None})
        if names:
            few = names if len(names) <= MAX_GRANTED else ["*"]
            remark(f"This principal needs {operation} on {resource} {', '.join(map(repr, few))}:")
            remark(command_line(connected(grant(operation, resource, few))))
    return INCOMPLETE if missing or any(row.get("error") for row in rows) else 0


def show(lines: Iterable[str]) -> None:
    """Write lines, coloured in a terminal and plain elsewhere, without control characters of names from outside."""
    lines = map(printable, lines)
    if not sys.stdout.isatty():
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()  # lab and demo are followed as they go
        return
    from rich.console import Console

    from toolkit.views.finding_document import paint

    Console().print(paint(lines), soft_wrap=True)


def width() -> int | None:
    """Columns of the terminal; null where there is none and nothing needs wrapping."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console().width


def remark(text: str) -> None:
    """Print a remark of one line on stderr, without control characters of names from outside."""
    name = "" if text.startswith("kafka-txn ") else CLUSTER_NAME.get()  # a command is copied as a whole line
    typer.echo(printable(f"{name}: {text}" if name else text), err=True)


def progress(text: str) -> None:
    """Show progress on a terminal only."""
    if sys.stderr.isatty():
        remark(text)


@contextmanager
def exit_on_failure() -> Iterator[None]:
    """Turn errors into `typer.Exit`; an error of the program itself stays one, with its traceback."""
    try:
        yield
    except ToolkitError as error:
        code = next((code for kind, code in CODES.items() if isinstance(error, kind)), INVALID)
        raise _exit(f"kafka-txn: {error.text}", code, error.command) from error
    except BrokenPipeError as error:
        _drop_output()
        raise typer.Exit(BROKEN_PIPE) from error
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", ()):  # what an action had written when it was interrupted
            argv = command_in(note)
            remark(f"kafka-txn: {note}" if argv is None else command_line(connected(argv)))
        raise _interrupted(in_import=_is_in_import(error)) from error
    except ImportError as error:
        raise _not_imported(error) from error
    except OSError as error:
        raise _not_written(error) from error


def _interrupted(*, in_import: bool) -> typer.Exit:
    """The exit after Ctrl-C; whoever presses it while a command works sees what it did so far."""
    return _exit(STOPPED, INTERRUPTED) if in_import else typer.Exit(INTERRUPTED)


def _not_imported(error: ImportError) -> Exception:
    """The exit where an optional package is not installed, or Ctrl-C ended an import; else the error."""
    if _is_interrupted(error):
        return _interrupted(in_import=True)
    package = OPTIONAL.get((error.name or "").partition(".")[0])
    if package is None:
        return error
    return _exit(f"kafka-txn: {error.name} is not installed. pip install {package}", INVALID)


def _not_written(error: OSError) -> Exception:
    """The exit where the output has no place; else the error."""
    if error.errno not in NO_PLACE:
        return error
    _drop_output()
    where = f" to {error.filename}" if error.filename else ""
    text = f"The output could not be written{where}: {error.strerror}. What was written is incomplete."
    return _exit(f"kafka-txn: {text}", INVALID)


def _exit(text: str, code: int, command: Sequence[str] = ()) -> typer.Exit:
    with suppress(OSError):  # stderr may be what cannot be written
        for line in text.splitlines():  # the error of another program may have several
            remark(line)
        if command:
            remark(command_line(connected(command)))
    return typer.Exit(code)


def connected(command: Sequence[str]) -> Sequence[str]:
    """A command with the options of the source that was to be read."""
    from toolkit.views.document import Command

    source = SOURCE.get()
    if source is None or source.all_clusters:
        return command
    return source.connection.argv(Command(tuple(command)))


def _drop_output() -> None:
    """Leave nothing for the interpreter to write at its exit: it would fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):  # a stdout that is no file
        os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _is_in_import(error: BaseException) -> bool:
    frames = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(name == IMPORTLIB for name in frames)


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an import that failed: modules in C raise their own error about it."""
    seen = 0
    while error is not None and seen < 20:
        if isinstance(error, KeyboardInterrupt):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False
