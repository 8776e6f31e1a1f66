"""The command as a person calls it: flags, formats, exit codes, and one clear sentence when it cannot answer."""

import io
import json
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from tests.process import run
from tests.views.test_text import finding, healthy
from toolkit import Cluster, __version__, explain
from toolkit.cli import commands
from toolkit.cli.commands import app
from toolkit.cli.options import SourceOptions
from toolkit.errors import UsageError
from toolkit.lab.samples import load
from toolkit.schema import Row
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict
from toolkit.sources.source import TableArguments
from toolkit.views.explained_error import EXPLANATIONS

FENCED = "org.apache.kafka.common.errors.ProducerFencedException: fenced [Producer clientId=p, transactionalId=pay-7]"


class FixedCluster(Cluster):
    """A cluster with predefined findings, and without connections."""

    cluster_id = principal = None

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def read(self, table: str, arguments: TableArguments) -> list[Finding]:
        assert table == "findings"
        return records_of(self.rows, Finding)

    def close(self) -> None:
        """Nothing is open."""


UNKNOWN = finding(partition=1, verdict=Verdict.UNKNOWN, missing=["broker 2"])
UNREPLICATED = finding(partition=2, verdict=Verdict.UNREPLICATED, producer_id=None, queue_position=None)


STUCK = finding(partition=3, verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete")
OVERDUE = finding(partition=4, verdict=Verdict.OVERDUE, action=None)
PREPARED = finding(partition=5, verdict=Verdict.PREPARED, action="commit")


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([], 0),
        ([healthy()], 0),
        ([UNREPLICATED], 0),
        ([finding(), UNKNOWN], 1),
        ([healthy(), UNKNOWN], 3),
        ([UNKNOWN, STUCK], 1),  # committed records without their marker were 0
        ([OVERDUE], 1),
        ([PREPARED], 1),  # a checkpoint is to commit it
        ([{**PREPARED, "action": None}], 0),
    ],
)
@pytest.mark.parametrize("command", ["diagnose", "find-hanging"])
@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_the_exit_code_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, rows: Sequence[Row], code: int, command: str, output: str
) -> None:
    monkeypatch.setattr(SourceOptions, "open", lambda options: FixedCluster(rows))
    assert run(command, "--format", output).returncode == code


def test_a_verdict_filters_what_is_shown_and_short_is_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code and the sum are of all: "nothing hangs" of what a filter left out would be an all-clear."""
    rows = [healthy(), UNKNOWN, STUCK, finding(transactional_id="it's $(touch x)\x1b", action="abort")]
    monkeypatch.setattr(SourceOptions, "open", lambda options: FixedCluster(rows))
    short = run("diagnose", "--short")
    *lines, total = short.stdout.splitlines()
    assert short.returncode == 1
    first, *others = [re.split(" {2,}", line) for line in lines]
    quoted = r"$'it\'s $(touch x)\x1b'"
    assert first == ["orders-0", "913095344", "hanging", quoted, "2 h 14 min", "abort"]
    assert [line[0:3:2] for line in others] == [
        ["orders-1", "unknown"], ["orders-3", "stuck_ending"], ["orders-0", "ongoing"],
    ]  # fmt: skip
    assert total.startswith("1 partition hangs, ")
    some = run("diagnose", "--short", "--verdict", "stuck_ending", "--verdict", "unknown")
    assert some.returncode == 1
    assert [line.split()[0] for line in some.stdout.splitlines()[:-1]] == ["orders-1", "orders-3"]
    assert some.stdout.splitlines()[-1] == total
    none = run("find-hanging", "--verdict", "overdue")
    assert (none.returncode, none.stdout.splitlines()) == (1, [total])
    answer = json.loads(run("find-hanging", "--verdict", "stuck_ending", "--format", "json").stdout)
    assert [row["verdict"] for row in answer["rows"]] == ["stuck_ending"]
    refused = run("diagnose", "--short", "--format", "csv")
    assert (refused.returncode, "--short is for people" in refused.stderr) == (2, True)


def test_a_defect_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's is 1, which says that there is something to do."""

    def fail(options: SourceOptions) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(SourceOptions, "open", fail)
    monkeypatch.setattr("sys.argv", ["kafka-txn", "diagnose"])
    with pytest.raises(SystemExit) as ended:
        commands.run()
    assert ended.value.code == 70
    assert capsys.readouterr().err.endswith(
        "kafka-txn: this is a defect of kafka-txn; nothing is known from this run.\n"
    )


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_an_import_that_ctrl_c_ended_is_no_missing_package(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in C raises its own error then, after the interrupt or because of it."""
    error = ImportError("initialization failed", name="pyspark")
    setattr(error, link, KeyboardInterrupt())

    def fail(options: SourceOptions) -> NoReturn:
        raise error

    monkeypatch.setattr(SourceOptions, "open", fail)
    assert run("diagnose").returncode == 130


def test_help_has_whole_flags_in_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had ``--max-transactio…``."""
    monkeypatch.setenv("COLUMNS", "80")
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        displayed = run(name, "--help").stdout
        flags = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts) if flag[0] == "-"}
        assert flags <= set(re.findall(r"(?<=\s)-[\w-]+", displayed)), name
        options, _, examples = displayed.partition("\nExamples:\n")
        assert max(map(len, options.splitlines())) <= 80
        assert examples, "each on a line of its own, as a shell takes it"


def test_the_environment_names_the_cluster_unless_an_option_names_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SourceOptions] = []

    def refuse(options: SourceOptions) -> NoReturn:
        seen.append(options)
        raise UsageError("Seen.", do="")

    monkeypatch.setattr(SourceOptions, "open", refuse)
    monkeypatch.setenv("KAFKA_TXN_BOOTSTRAP_SERVER", "prod:9092")
    monkeypatch.setenv("KAFKA_TXN_COMMAND_CONFIG", "prod.properties")
    assert "Cluster of the environment: --bootstrap-server prod:9092" in run("diagnose").stderr
    for arguments in (["--bootstrap-server", "test:9092"], ["--log-dir", "/copy"], ["--recording", "/samples"]):
        assert run("diagnose", *arguments).stderr == "kafka-txn: Seen.\n"
    # the pipeline read no files at all where the variable was set
    assert "/copy/t is in /copy" in run("pipeline", "--input", "/copy", "--output", "/copy/t").stderr
    assert [(each.bootstrap_server, each.command_config) for each in seen] == [
        ("prod:9092", "prod.properties"),
        ("test:9092", None),
        (None, None),
        (None, None),
    ]


def test_version_is_printed() -> None:
    assert run("--version").stdout == f"kafka-txn {__version__}\n"


@pytest.mark.parametrize("command", ["diagnose", "list", "describe-producers", "partitions", "explain PRODUCER_FENCED"])
def test_an_unreachable_cluster_is_a_sentence(command: str) -> None:
    with socket.socket() as taken:  # bound, never listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(*command.split(), "--bootstrap-server", address, "--timeout", "1")
    assert done.returncode == 3, done.stderr
    assert address in done.stderr + done.stdout
    assert "nothing hangs" not in done.stdout
    assert done.stdout.startswith("producer-fenced  " if "explain" in command else "")


@pytest.mark.parametrize("name", ["late-message", "flight-recording"])
def test_a_page_has_a_drawing_or_a_timeline_in_two_themes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    sample, page = load(name), tmp_path / "report.html"
    files = ["--log-dir", sample.path / "log-dir", "--consistent-copy"]
    source = ["--recording", sample.path / "recording", "--at", sample.at.isoformat()] if sample.at else files
    for options, drawn in ((["--title", "Orders stood still"], "<svg"), (["--interactive"], "Plotly.newPlot(")):
        done = run("report", *source, *options, "--output", page)
        assert (done.returncode, done.stderr.startswith(f"{page}: ")) == (1, True), done.stderr
        assert page.read_text().count(drawn) >= 1 + ("--interactive" in options), "for light and for dark"
        assert ("<h1>Orders stood still</h1>" in page.read_text()) == ("--title" in options)


def test_hostile_text_is_escaped_in_terminal_and_page() -> None:
    hostile = (
        f"{FENCED}\x1b[31m\x07 password=hunter2 sasl.jaas.config=\"x password='hunter2';\" "
        "transactionalId=\x1b]0;title\x07evil\u202eid groupId=<script>alert(1)</script> topic-partition orders-0"
    )
    explained = explain(hostile)
    shown = (run("explain", hostile).stdout, repr(explained), explained._repr_html_(), json.dumps(explained.rows()))
    for text in shown:
        assert [each for each in ("hunter2", "\x1b", "\x07", "\u202e", "<script") if each in text] == []
        assert "orders" in text
    assert "evilid" in repr(explained)


def test_arbitrary_bytes_can_be_piped_in() -> None:
    assert run("explain", stdin=b"\xff\xfe\x00PRODUCER_FENCED\xc3").returncode == 0
    filling = b"INFO nothing happened\n" * 200_000  # 4.4 MB
    found = run("explain", "--format", "json", stdin=b"PRODUCER_FENCED\n" + filling + b"UNKNOWN_PRODUCER_ID\n")
    assert [row["symptom"] for row in json.loads(found.stdout)["rows"]] == ["producer-fenced", "unknown-producer-id"]


def test_a_page_about_an_error_has_what_its_text_has() -> None:
    page = explain("Cannot execute transactional method because we are in an error state")._repr_html_()
    assert "<h3>failed-earlier</h3>" in page
    assert "<code>Caused by:</code>" in page
    unknown = explain("x < y")
    assert "<h3>unknown</h3>" in unknown._repr_html_()
    assert unknown.symptoms == ()
    assert unknown.findings().empty
    assert list(unknown.frame().columns) == EXPLANATIONS.names


def test_what_a_recording_does_not_have_is_not_checked() -> None:
    explained = explain("PRODUCER_FENCED", load("flight-recording").recording(), transactional_ids=["x"], groups=["g"])
    assert explained.checks
    assert explained.checks.not_checked == (
        "The history of transactional ids: a recording has none.",
        'Group "g": a recording has no committed offsets.',
    )


def test_an_ascii_terminal_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line of a finding has a middle dot: a traceback, and exit code 70."""
    outputs = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", outputs[0])
    monkeypatch.setattr(sys, "stderr", outputs[1])
    monkeypatch.setattr(sys, "argv", ["kafka-txn", "diagnose", "--log-dir", str(load("late-message").path / "log-dir")])
    with pytest.raises(SystemExit):
        commands.run()
    print("caf\xe9 \N{HORIZONTAL ELLIPSIS}", file=sys.stderr, flush=True)
    written, errors = (each.buffer.getvalue().decode("ascii") for each in outputs)
    assert " - 21 records waiting" in written
    assert errors.endswith("caf\\xe9 ...\n")


@pytest.mark.parametrize("command", ["why orders-0@²", "gaps orders-²", "gaps orders-0 --start-offset ²"])
def test_a_digit_that_is_no_number_is_invalid_usage(command: str) -> None:
    """It ended with a traceback, as a defect."""
    assert run(*command.split(), "--log-dir", "sample:late-message").returncode == 2
