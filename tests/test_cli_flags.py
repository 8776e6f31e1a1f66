"""Every flag of every command reaches the library: what each changes in the calls, as text (`golden/cli_flags.txt`).

A new flag is in it by itself.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.actions.rows import found
from tests.distinct import distinct_rows
from tests.spy import Calls, spy_on
from tests.stored import compare
from toolkit.actions.audit import AUDIT_FILE
from toolkit.cli import output
from toolkit.cli.commands import app
from toolkit.cli.options import CONFIG_VARIABLE, SERVER_VARIABLE
from toolkit.schema import TABLES
from toolkit.sources.logdir import LogDir
from toolkit.sources.resource_checks import ResourceChecks
from toolkit.sources.source import STREAMED, TableArguments
from toolkit.views.explained_error import explain

CLUSTER, FILES, RECORDING = "--bootstrap-server broker:9092", "--log-dir input", "--recording input"
ONE = "--topic orders --partition 3 --start-offset 100"
CONTEXTS: Mapping[str, Sequence[str]] = {  # what a command needs besides its source
    "abort": (f"{CLUSTER} {ONE} --confirm orders-3@100", f"{CLUSTER} --list some.csv --confirm all"),
    "abort-command": ("input --producer-id 5 --producer-epoch 3",),
    "commit": (f"{CLUSTER} --flink-checkpoint input --transactional-id one --confirm one",),
    "complete": (f"{CLUSTER} {ONE} --confirm orders-3@100",),
    "coordinator": tuple(
        f"{source} {of}" for source in (CLUSTER, FILES) for of in ("--group one", "--transactional-id one")
    ),
    "copy": ("input target",),
    "demo": ("",),
    "describe": (f"{CLUSTER} --transactional-id one",),
    "explain": tuple(f"{source} text" for source in ("", CLUSTER, FILES)),
    "fence": (f"{CLUSTER} --transactional-id one --confirm one",),
    "gaps": (*(f"{source} orders-3" for source in (CLUSTER, FILES)), f"{CLUSTER} --topic orders --partition 3"),
    "grafana-dashboard": ("",),
    "history": tuple(f"{source} --transactional-id one" for source in (CLUSTER, FILES)),
    "lab": ("",),
    "pipeline": ("--input input --output tables", f"{CLUSTER} --output tables"),
    "prometheus-rules": ("",),
    "record": (f"{CLUSTER} --output recording", f"{CLUSTER} --output recording --metrics-port 8"),
    "report": tuple(f"{source} --output page.html" for source in (CLUSTER, FILES, RECORDING, f"{RECORDING} {FILES}")),
    "scan": tuple(
        f"input --table {table}" for table in {each.takes: name for name, each in LogDir.functions.items()}.values()
    ),
    "txn-stat": ("input",),
    "why": (
        *(f"{source} orders-3@100" for source in (CLUSTER, FILES, RECORDING)),
        f"{CLUSTER} --topic orders --partition 3 --offset 100",
    ),
}
NEEDED = {"partition": ("--topic", "orders"), "broker_log_time_zone": ("--broker-log", "input")}  # beside a flag
NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NAMES_CLUSTER = {"cluster_name", "all_clusters"}  # in place of a server
NO_EFFECT = "no effect"
REAL = ("toolkit.errors", "toolkit.schema", "toolkit.version", "toolkit.sources.source")


def interrupt(**arguments: Any) -> None:
    raise KeyboardInterrupt


def read(table: str, arguments: TableArguments) -> list[Any]:
    """Rows of which one has the producer id of `values`, two its epoch, and three its transactional id."""
    rows = (distinct_rows(TABLES[table]) * 2)[:6]
    for name, value, number in (("producer_id", 7, 1), ("producer_epoch", 7, 2), ("transactional_id", "other", 3)):
        if name in TABLES[table].names:
            rows = [{**row, name: value} if at < number else row for at, row in enumerate(rows)]
    rows = [{**row, "error": None} if "error" in row else row for row in rows]
    return [TABLES[table].arrow(rows)] if table in STREAMED else rows


ANSWERS: Mapping[str, Any] = {
    "Cluster.finding_rows()": [found(partition=3, start_offset=start).row() for start in (7, 100)],
    **{f"{source}.transaction_history_rows()": [{"transactional_id": "one"}] for source in ("Cluster", "LogDir")},
    **{f"{source}.records()": [found(verdict="unknown", action=None)] for source in ("Cluster", "LogDir", "Recording")},
    "Cluster.transaction_rows()": [{"error": None, "state": "Ongoing"}],
    "Kafka()": interrupt,
    "LogDir.read()": read,
    "LogDir.functions": LogDir.functions,
    "LogDir.kind": LogDir.kind,
    "class_archive_options()": [],
    "collect_incident()": {"findings": []},
    "delta_settings()": {},
    "explain()": replace(explain("text"), checks=ResourceChecks()),
    "plan_abort_list().execute().error": None,
    "plan_abort_list().left_out": [],
    "plan_abort().impact.size": None,
    **{f"plan_{each}().refusal": None for each in ("abort", "complete", "commit", "fence")},
    "Redaction.applied()": lambda value: value,
    "named_cluster().timeout": None,
    "groups_in_files()": (["one"], []),
    "groups_with_offsets()": (["one"], []),
    "transaction_at()": found(partition=3),
}


def contexts(name: str, command: Any) -> Sequence[str]:
    if name in CONTEXTS:
        return CONTEXTS[name]
    return [
        source
        for source in (CLUSTER, FILES, RECORDING)
        if any(source.split()[0] in each.opts for each in command.params)
    ]


def values(parameter: Any) -> Iterator[str]:
    """Values to try, none of them the default or 0; the first that the command takes is used."""
    name = parameter.type.name
    if getattr(parameter.type, "choices", None):
        yield from (
            each
            for each in map(str, parameter.type.choices)
            if each != str(getattr(parameter.default, "value", parameter.default))
        )
    elif "int" in name:
        yield from ("7", "2")
    elif parameter.metavar == "DURATION":
        yield "7"  # in the unit of a bare number
    else:
        yield from ("other", "other.csv", "other.html", "2001-02-03T04:05:06Z", "key=other", "checkpoints")


def tried(parameter: Any) -> Iterator[list[str]]:
    """How to set a flag to another value."""
    if parameter.is_flag:
        yield [(parameter.secondary_opts or parameter.opts)[0] if parameter.default else parameter.opts[0]]
        return
    for value in values(parameter):
        yield [*NEEDED.get(parameter.name, ()), parameter.opts[0], value]


class Runs:
    """Runs of commands on spies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = Calls(ANSWERS, folder=folder)
        (folder / "input").mkdir()
        for name in ("some", "other"):
            line = f"{name},3,7,100"
            (folder / f"{name}.csv").write_text(f"topic,partition,producer_id,start_offset\n{line}\n")

    def calls(self, *arguments: str) -> tuple[Counter[str], str]:
        """The calls of a command, and its refusal, if it was refused."""
        self._calls.lines.clear()
        selected = copy(app)  # as `run` does: typer builds every command anew
        selected.registered_commands = [each for each in app.registered_commands if each.name in arguments]
        result = CliRunner().invoke(selected, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise AssertionError(f"{arguments}: {self._calls.lines}") from result.exception
        return Counter(self._calls.lines), result.stderr if result.exit_code == 2 else ""

    def _slept(self, seconds: float) -> None:
        self._calls.lines.append(f"sleep({seconds:g})")
        raise KeyboardInterrupt

    def differences(self) -> Iterator[str]:
        """Each flag of each command, and what it changes; then those before the command."""
        group: Any = typer.main.get_command(app)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self._folder)
            for variable in (SERVER_VARIABLE, CONFIG_VARIABLE, AUDIT_FILE):
                patch.delenv(variable, raising=False)
            spy_on("toolkit.cli", self._calls, patch, real=REAL)
            patch.setattr(output, "sleep", self._slept)
            patch.setattr(output, "utc_now", lambda: NOON)
            for name, command in group.commands.items():
                for context in contexts(name, command):
                    yield from self._of_context([name, *context.split()], command.params)
            yield from self._of_context(["--bootstrap-server", "broker:9092", "list"], group.params[:3], after=2)

    def _of_context(self, base: Sequence[str], parameters: Sequence[Any], *, after: int | None = None) -> Iterator[str]:
        """The flags beside some others; they follow the command, or the first `after` words."""
        yield " ".join(base)
        before, refusal = self.calls(*base)
        assert not refusal, (base, refusal)
        refused = []
        for parameter in parameters:
            if parameter.param_type_name != "option" or parameter.name == "help":
                continue
            for added in tried(parameter):
                words = [*base[:after], *added, *(base[after:] if after else ())]
                if parameter.name in NAMES_CLUSTER and CLUSTER.split()[0] in words:
                    at = words.index(CLUSTER.split()[0])
                    del words[at : at + 2]
                calls, refusal = self.calls(*words)
                if not refusal:
                    lost = (f"not {each}" for each in sorted((before - calls).elements()))
                    changes = sorted((calls - before).elements()) or lost
                    yield f"    {' '.join(added)}: {'; '.join(changes) or NO_EFFECT}"
                    break
            else:
                refused.append(parameter.opts[0])
        if refused:
            yield f"    refused: {', '.join(refused)}"


@pytest.fixture(scope="module")
def differences(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return list(Runs(tmp_path_factory.mktemp("flags")).differences())


def test_every_flag_reaches_the_library(differences: Sequence[str]) -> None:
    compare("cli_flags.txt", differences)


def test_no_flag_is_ignored(differences: Sequence[str]) -> None:
    """One that has no effect is refused; each has an effect beside a source of its own."""
    assert [line for line in differences if line.endswith(NO_EFFECT)] == []
    effective, refused, command = set[tuple[str, str]](), set[tuple[str, str]](), ""
    for line in differences:
        if not line.startswith(" "):
            command = line.split()[0]
        elif line.startswith("    refused: "):
            refused |= {(command, flag) for flag in line.removeprefix("    refused: ").split(", ")}
        else:
            flags = [word for word in line.partition(": ")[0].split() if word.startswith("--")]
            effective.add((command, flags[-1]))
    assert refused - effective == set()
