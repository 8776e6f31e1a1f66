"""An answer of the source that the options name, or of each cluster of the file; once, or again and again.

Results go to stdout in the format of --format; all else, and each error as one sentence, to stderr.
"""

from __future__ import annotations

import codecs
import csv
import errno
import io
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

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
    UsageError,
)
from toolkit.schema.table import utc_now
from toolkit.views.document import NOWHERE, Command
from toolkit.views.row_formats import csv_cells, json_default, printable

if TYPE_CHECKING:
    from toolkit.cli.options import SourceOptions
    from toolkit.schema import Row, Table
    from toolkit.schema.coerce import Scope
    from toolkit.sources.source import Source
    from toolkit.views.document import Connection, Part
    from toolkit.views.row_formats import Envelope

T = TypeVar("T")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was read: rows for programs, and parts of a document for a person.

    `table`: null where nothing could be read; `error`: why.
    `source`: null if the answer needed none. `scope`: what was seen; by default what the rows are about.
    `parts`: by default the rows in columns, `without` some of them; `connection`: of the commands in them.
    `missing`: what may be hidden. `remarks`: what else is said on stderr.
    `code`: exit code; by default 3 where an answer is missing, in a row or as a whole, else 0.
    `key`: what differs where something has changed, apart from ages.
    """

    table: Table | None = None
    rows: Sequence[Row] = ()
    source: Source | None = None
    scope: Scope | None = None
    parts: Callable[[], Iterable[Part]] | None = None
    connection: Connection = NOWHERE
    without: Collection[str] = ()
    missing: Sequence[str] = ()
    remarks: Sequence[str] = ()
    code: int | None = None
    key: Hashable = None
    error: str | None = None

    def write(self, output: Format) -> int:
        """Write it to stdout, and its remarks to stderr; return the exit code."""
        from toolkit.views.renderers import text_lines
        from toolkit.views.row_formats import answer_pieces, csv_pieces, json_pieces, table_grid

        if self.table is None:
            return self.end()
        if output is Format.CSV:
            sys.stdout.writelines(csv_pieces(self.table, self.rows))
        elif output is Format.JSON:
            sys.stdout.writelines(answer_pieces(self.envelope, json_pieces(self.table, self.rows)))
        else:
            parts = self.parts() if self.parts else [table_grid(self.table, self.rows, without=self.without)]
            show(text_lines(parts, connection=self.connection, width=width()))
        return self.end()

    def end(self) -> int:
        """Say the remarks; return the exit code."""
        for each in (*self.remarks, *self.missing):
            remark(each)
        if self.code is not None:
            return self.code
        for each in missing_rights(self.rows):
            remark(each)
        return INCOMPLETE if self.missing or any(row.get("error") for row in self.rows) else 0

    @property
    def envelope(self) -> Envelope:
        """The fields before its rows in JSON."""
        from toolkit.schema.coerce import Scope
        from toolkit.views.row_formats import Envelope

        assert self.table is not None
        scope = self.scope or Scope.of_rows(self.table, self.rows, missing=self.missing)
        return Envelope.of(self.table.name, self.table.version, self.source, scope)

    def json_value(self) -> dict[str, Any] | None:
        """As `write` has it in JSON; null without a table."""
        if self.table is None:
            return None
        envelope = self.envelope
        rows = [{name: row.get(name) for name in self.table.names} for row in self.rows]
        return {**envelope.fields(), "rows": rows}


def answer_json(schema: str, version: int, rows: Iterable[str], *, source: Source | None, scope: Scope | None) -> None:
    """Write an answer in JSON: its envelope, then the pieces of its rows, as they come."""
    from toolkit.views.row_formats import Envelope, answer_pieces

    sys.stdout.writelines(answer_pieces(Envelope.of(schema, version, source, scope), rows))


PARALLEL = 8  # clusters that are read at a time
SCHEMA, VERSION = "clusters", 1  # of `ClusterRow` in JSON; the version is raised when a field of it changes
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
CLEAR = "nothing to do"
MEANINGS = {1: "something to do", INCOMPLETE: "not known", NOT_FOUND: "not found"}


Read: TypeAlias = "Callable[[SourceOptions], Answer]"
Look: TypeAlias = "Callable[[], Answer | ClusterAnswers]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """The answer of one cluster as data."""

    cluster: str
    exit_code: int
    error: str | None  # why there is no answer: then nothing is known of this cluster
    answer: Mapping[str, Any] | None  # that of the same command with --cluster


def answer_sources(
    read: Read, source_options: SourceOptions, output: Format, *, watch: float | None = None, clear: str = CLEAR
) -> NoReturn:
    """Write what is read of the source, or of each cluster.

    `watch`: seconds between two looks; null for one. `clear`: what exit code 0 means of a cluster.
    Raises typer.Exit with the exit code; of several clusters the most severe one.
    """
    if watch is not None and source_options.log_dir:
        raise UsageError("--watch needs a cluster or a recording: files are copied once.", do="Leave it out.")
    look: Look = partial(read, source_options)
    if source_options.all_clusters:
        look = partial(_look_at_all, read, source_options.each_cluster(), clear)
    code = look().write(output) if watch is None else _watched(look, watch, output)
    raise typer.Exit(code)


def _watched(look: Look, interval: float, output: Format) -> int:
    """The exit code of the last look, at findings, when Ctrl-C ends it. One that fails is shown; the first one ends it.

    As csv, a look that found nothing is a row with its time only, and one that failed a row with its error; as JSON,
    that is a finding about the cluster.
    """
    code: int | None = None
    columns: list[str] = []
    key: Hashable = object()
    try:
        while True:
            try:
                answer = look()
            except UsageError:
                raise
            except ToolkitError as error:
                if code is None:
                    raise
                answer = _failed(error, "kafka-txn")
                if output is Format.JSON:
                    answer = _failed_finding(answer)
            if is_terminal := sys.stdout.isatty() and output is not Format.CSV:
                text = f"{utc_now():%Y-%m-%d %H:%M:%S} UTC; again every {interval:g} s, Ctrl-C ends it."
                sys.stdout.write(CLEAR_SCREEN)
                show([text, ""])
            elif answer.key != key and output is Format.TABLE:
                show([*([] if code is None else [""]), f"{utc_now():%Y-%m-%d %H:%M:%S} UTC"])
            if is_terminal or answer.key != key:
                if output is Format.CSV:
                    new_columns, *rows = csv_lines(answer, columns)
                    header = [["looked_at", *new_columns]] if new_columns not in (columns, []) else []
                    columns = new_columns or columns
                    _write_csv([*header, *([f"{utc_now():%Y-%m-%dT%H:%M:%SZ}", *row] for row in rows or [[]])])
                    code = answer.end()
                else:
                    code = answer.write(output)
                key = answer.key
                sys.stdout.flush()
            sleep(interval)
    except KeyboardInterrupt:
        if code is None:
            raise
        return code


def csv_lines(answer: Answer | ClusterAnswers, columns: Sequence[str] = ()) -> list[list[Any]]:
    """Its columns, and its rows as cells of CSV; without a table only a row with its error, below `columns`."""
    if isinstance(answer, ClusterAnswers):
        return answer.csv_lines()
    table = answer.table
    if table is None:
        return [[], [answer.error if column == "error" else "" for column in columns]]
    return [list(table.names), *(csv_cells(table, row) for row in answer.rows)]


def _write_csv(rows: Iterable[Sequence[str]]) -> None:
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


@dataclass(frozen=True, slots=True)
class ClusterAnswers:
    """The answers of all clusters; `clear`: what exit code 0 means of one."""

    found: Mapping[str, Answer]
    clear: str

    @property
    def key(self) -> Hashable:
        """As of an answer."""
        return tuple(each.key for each in self.found.values())

    def write(self, output: Format) -> int:
        """Write one after another; return the exit code."""
        if output is Format.CSV:
            _write_csv(self.csv_lines())
            return self.end()
        codes: dict[str, int] = {}
        rows: list[ClusterRow] = []
        for name, each in self.found.items():
            if output is Format.JSON:
                answer = each.json_value()
                codes[name] = self._end(name) if answer else each.code or INCOMPLETE
                rows.append(ClusterRow(cluster=name, exit_code=codes[name], error=each.error, answer=answer))
                continue
            show([f"Cluster {name}:"])
            if each.error is None:
                codes[name] = _named(name, each.write, output)
            else:
                codes[name] = each.code or INCOMPLETE
                show([f"{MEANINGS[codes[name]].capitalize()}: {each.error}"])
            show([""])
        if output is Format.JSON:
            pieces = json.dumps([asdict(row) for row in rows], indent=1, default=json_default)
            answer_json(SCHEMA, VERSION, [f"{pieces}\n"], source=None, scope=None)
        else:
            show([_sum(codes, self.clear)])
        return _worst(codes)

    def csv_lines(self) -> list[list[Any]]:
        """The rows of all below one header; a cluster without an answer is a row with its error."""
        tables = {name: csv_lines(each) for name, each in self.found.items() if each.table}
        columns = next((columns for columns, *_ in tables.values()), ["error"])
        lines = [["cluster", *columns]]
        for name, each in self.found.items():
            failed = [[each.error if column == "error" else "" for column in columns]]
            lines += ([name, *row] for row in (tables[name][1:] if each.table else failed))
        return lines

    def end(self) -> int:
        """Say the remarks of each; return the exit code."""
        return _worst({name: self._end(name) for name in self.found})

    def _end(self, name: str) -> int:
        return _named(name if self.found[name].table else "", self.found[name].end)


def _look_at_all(read: Read, each_cluster: Sequence[SourceOptions], clear: str) -> ClusterAnswers:
    """The answers of all clusters, which are read side by side."""
    found: dict[str, Answer] = {}
    slots = threading.BoundedSemaphore(PARALLEL)

    def read_one(options: SourceOptions) -> None:
        name = options.cluster_name or ""
        CLUSTER_NAME.set(name)
        try:
            with slots:
                found[name] = read(options)
        except Exception as error:  # noqa: BLE001 - the others have an answer; of this one nothing is known
            if not isinstance(error, ToolkitError):
                remark(traceback.format_exc())
            found[name] = _failed(error, f"Cluster {name}")

    # Ctrl-C does not wait for them, as it would for those of an executor.
    threads = [threading.Thread(target=read_one, args=(each,), daemon=True) for each in each_cluster]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [each.cluster_name or "" for each in each_cluster]
    ended = RuntimeError("it ended without an answer")
    return ClusterAnswers({name: found.get(name) or _failed(ended, f"Cluster {name}") for name in names}, clear)


def _failed(error: Exception, who: str) -> Answer:
    """Why there is no answer."""
    text = str(error) if isinstance(error, ToolkitError) else f"a defect of kafka-txn: {type(error).__name__}"
    code = NOT_FOUND if isinstance(error, NotFound) else INCOMPLETE
    return Answer(error=text, remarks=[f"{who}: {text}"], code=code, key=text)


def _failed_finding(answer: Answer) -> Answer:
    """Findings of which nothing is known, for programs: without an answer the one before would seem to hold."""
    from toolkit.analysis.diagnosis.decision import decide_unknown
    from toolkit.views.finding_document import LINKED_FINDINGS, linked_row

    error = answer.error or ""
    decided = decide_unknown(
        "The cluster could not be looked at.",
        remedy="Get what is missing, and diagnose again.",
        missing=(error,),
        is_open=False,
    )
    finding = replace(decided.finding(observed_at=utc_now()), error=error)
    return replace(answer, table=LINKED_FINDINGS, rows=[linked_row(finding, NOWHERE)])


def _named(name: str, function: Callable[..., T], *arguments: object) -> T:
    """What a function returns; its remarks on stderr name the cluster."""
    before = CLUSTER_NAME.set(name)
    try:
        return function(*arguments)
    finally:
        CLUSTER_NAME.reset(before)


def _worst(codes: Mapping[str, int]) -> int:
    return min({*codes.values()} - {0}, default=0)


def _sum(codes: Mapping[str, int], clear: str) -> str:
    """``3 clusters: 1 something to do (prod-eu), 1 not known (prod-us), 1 nothing to do``."""
    parts = []
    for code, text in (*MEANINGS.items(), (0, clear)):
        if names := [name for name, each in codes.items() if each == code]:
            parts.append(f"{len(names)} {text}" + (f" ({', '.join(names)})" if code else ""))
    return f"{len(codes)} cluster{'' if len(codes) == 1 else 's'}: {', '.join(parts)}."


RIGHTS = {  # by the code of an error: the operation, the resource, its column, and the name in rows without the column
    "TOPIC_AUTHORIZATION_FAILED": ("READ", "topic", "topic", "__transaction_state"),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": ("DESCRIBE", "transactional-id", "transactional_id", None),
    "GROUP_AUTHORIZATION_FAILED": ("DESCRIBE", "group", "group_id", None),
}
MAX_GRANTED = 10
"""Names in a command that grants a right; instead of more it is for all."""


def missing_rights(rows: Sequence[Row]) -> Iterator[str]:
    """The rights that are missing for rows, each with the command that grants it."""
    for code, (operation, resource, column, other) in RIGHTS.items():
        denied = [row for row in rows if (row.get("error") or "").startswith(code)]
        names = sorted({row.get(column, row.get("key", other)) for row in denied} - {None})
        if names:
            few = names if len(names) <= MAX_GRANTED else ["*"]
            yield f"This principal needs {operation} on {resource} {', '.join(map(repr, few))}:"
            yield command_line(connected(grant(operation, resource, few)))


def show(lines: Iterable[str]) -> None:
    """Write lines, coloured in a terminal and plain elsewhere, without control characters of names from outside."""
    lines = map(printable, lines)
    if not sys.stdout.isatty():
        sys.stdout.writelines(f"{line}\n" for line in lines)
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
    is_command = text.startswith(("kafka-txn ", "kafka-acls.sh "))  # copied as a whole line
    name = "" if is_command else CLUSTER_NAME.get()
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
    source, name = SOURCE.get(), CLUSTER_NAME.get()
    if source is None or (source.all_clusters and not name):
        return command
    if source.all_clusters:
        source = replace(source, all_clusters=False, cluster_name=name).named()
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
