"""Calls whose answers are stored, each as text: commands, tables of sources, tools of agents."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import plotly.graph_objects as go
import pyarrow.parquet as pq
from typer import testing
from typer.main import get_command

from toolkit.cli import action_commands
from toolkit.cli.commands import app
from toolkit.errors import ToolkitError
from toolkit.sources import progress_bar
from toolkit.sources.source import SOURCE_TABLES, TableArguments
from toolkit.views.agent_tools import AgentTools
from toolkit.views.document import Connection
from toolkit.views.panel.layout import problem_section
from toolkit.views.renderers import html_text

FORMATS = ("table", "json", "csv")
SHOWN = {".csv", ".html", ".json", ".jsonl", ".md", ".svg"}
"""Files that a command leaves whose text is part of the answer, and not their names only, as those in folders are; the
records that an abort saves are shown as rows."""

command_tree = cache(get_command)
Connect = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is called, and how its answer becomes text."""

    name: str  # of its file
    run: Callable[[], str]
    covers: str = ""  # what it covers: a command with a format, a table of a kind of source, a tool


@contextmanager
def desk(files: Mapping[str, str | bytes], around: Path | None) -> Iterator[Path]:
    """A new folder to work in, with some files, and links to what another folder has.

    The audit trail is ``audit.jsonl``.
    """
    before = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        for each in around.iterdir() if around else ():
            Path(each.name).symlink_to(each)
        for name, content in files.items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        try:
            with (
                mock.patch.dict(os.environ, {"KAFKA_TXN_AUDIT_FILE": "audit.jsonl", "LOGNAME": "operator"}),
                mock.patch("socket.gethostname", return_value="workstation"),
                mock.patch.object(progress_bar, "DELAY", float("inf")),  # a slow machine would show a bar
            ):
                yield Path(folder)
        finally:
            os.chdir(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """Makes calls of commands on one source."""

    source: Sequence[str] = ()  # the options that name it
    files: Mapping[str, str | bytes] = field(default_factory=dict)  # that these options name
    around: Path | None = None  # a folder with files that they name

    def __call__(
        self,
        command: str,
        *options: str,
        name: str = "",
        stdin: str = "",
        typed: str | None = None,
        files: Mapping[str, str | bytes] | None = None,
    ) -> Call:
        """A command as a person calls it: its exit code, what it writes, and the files that it leaves.

        `typed`: at its prompt, as if at a terminal; null if it is at none.
        """
        argv = [command, *self.source, *options]
        fixture = {**self.files, **(files or {})}

        def run() -> str:
            with desk(fixture, self.around) as folder:
                with (
                    mock.patch.object(testing, "_get_command", command_tree),  # made once, not for each call
                    mock.patch.object(action_commands, "is_at_terminal", return_value=typed is not None),
                ):
                    result = testing.CliRunner().invoke(app, argv, input=stdin if typed is None else typed)
                if result.exception and not isinstance(result.exception, SystemExit):
                    raise result.exception
                left = sorted(
                    Path(at, name)
                    for at, _, names in os.walk(folder)
                    for name in names
                    if os.path.relpath(Path(at, name), folder) not in fixture and not Path(at, name).is_symlink()
                )
                parts = [f"$ kafka-txn {' '.join(argv)}", f"exit code {result.exit_code}"]
                parts += [f"--- stdout\n{result.stdout}"] if result.stdout else []
                parts += [f"--- stderr\n{result.stderr}"] if result.stderr else []
                parts += [_file_text(each, each.relative_to(folder)) for each in left]
                return "\n".join(part.rstrip("\n") for part in parts) + "\n"

        output = options[options.index("--format") + 1] if "--format" in options else "table"
        slug = re.sub(r"[^A-Za-z0-9._]+", "-", " ".join([command, *options])).strip("-")
        return Call(name=name or slug, run=run, covers=f"{command} {output}")


def _file_text(path: Path, name: Path) -> str:
    if path.suffix == ".parquet" and path.parent.name.endswith(".records"):
        return f"--- {name}\n" + "".join(map(json_line, pq.read_table(path).to_pylist()))
    return f"--- {name}\n{path.read_text()}" if path.suffix in SHOWN and len(name.parts) == 1 else f"--- {name}"


def json_line(row: Any) -> str:
    """A row as a line of JSON."""
    return json.dumps(row, default=_plain) + "\n"


def _plain(value: object) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(value)


def table(connect: Connect, kind: str, name: str, *, around: Path | None = None, **arguments: Any) -> Call:
    """A table of a source, a line of JSON for each row."""

    def run() -> str:
        with desk({}, around):
            try:
                with connect() as source:
                    rows = SOURCE_TABLES[name].table.ordered(source.read(name, TableArguments.of(**arguments)))
            except ToolkitError as error:
                return f"{type(error).__name__}: {error}\n"
        return "".join(map(json_line, rows)) or "no rows\n"

    return Call(name=f"table-{name}", run=run, covers=f"{name} of {kind}")


def tool(connect: Connect, name: str, *, around: Path | None = None, label: str = "", **arguments: Any) -> Call:
    """A tool of an agent."""

    def run() -> str:
        with desk({}, around):
            tools = AgentTools(connect, connection=Connection(server="HOST:PORT"), recheck_after=1.0)
            return json.dumps(getattr(tools, name)(**arguments), indent=1) + "\n"

    return Call(name=f"tool-{name}{label}", run=run, covers=f"tool {name}")


def figure(connect: Connect, plot: Callable[[Any], go.Figure], *, around: Path | None = None, name: str) -> Call:
    """A plot of a source's tables: its traces and layout."""

    def run() -> str:
        with desk({}, around), connect() as source:
            drawn = json.loads(plot(source).to_json(engine="json"))
        drawn["layout"].pop("template", None)
        return json.dumps(drawn, indent=1, ensure_ascii=False) + "\n"

    return Call(name=f"plot-{name}", run=run)


def card(connect: Connect, shown: Callable[[Any], Iterable[str]], *, name: str) -> Call:
    """What the panel shows, an element of HTML on each line."""

    def run() -> str:
        with desk({}, None), connect() as source:
            try:
                parts = [*shown(source)]
            except ToolkitError as error:
                parts = [html_text([problem_section(error)])]
        return "".join(re.sub(r"\n*(<(?:h3|p|li|pre|details|summary|tr)\b)", r"\n\1", each) + "\n" for each in parts)

    return Call(name=name, run=run)
