"""The command as a person calls it: flags, formats, exit codes, and one clear sentence when it cannot answer."""

import json
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.process import run
from tests.views.test_text import finding, healthy
from toolkit import Cluster, __version__
from toolkit.cli.commands import app
from toolkit.cli.source_options import SourceOptions
from toolkit.errors import UsageError
from toolkit.schema import Row
from toolkit.schema.coerce import records_of
from toolkit.schema.docs_links import verdict_page
from toolkit.schema.live import Finding
from toolkit.sources.source_table import TableArguments
from toolkit.views.findings_text import LINKED_FINDINGS


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


class FixedCluster(Cluster):
    """A cluster with predefined findings, and without connections."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.arguments = TableArguments()

    def read(self, table: str, arguments: TableArguments) -> list[Finding]:
        assert table == "findings"
        self.arguments = arguments
        return records_of(self.rows, Finding)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def fixed_findings(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Row]], FixedCluster]:
    def make(rows: Sequence[Row]) -> FixedCluster:
        cluster = FixedCluster(rows)
        monkeypatch.setattr(SourceOptions, "open", lambda options: cluster)
        return cluster

    return make


UNKNOWN = finding(partition=1, verdict="unknown", missing=["broker 2"])
UNREPLICATED = finding(partition=2, verdict="unreplicated", producer_id=None, queue_position=None)


@pytest.mark.parametrize(
    ("rows", "code"),
    [([], 0), ([healthy()], 0), ([UNREPLICATED], 0), ([finding(), UNKNOWN], 1), ([healthy(), UNKNOWN], 3)],
)
@pytest.mark.parametrize("command", ["diagnose", "find-hanging"])
@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_the_exit_code_is_the_verdict(
    fixed_findings: Callable[[Sequence[Row]], FixedCluster], rows: Sequence[Row], code: int, command: str, output: str
) -> None:
    fixed_findings(rows)
    assert invoke(command, "--format", output).exit_code == code


def test_find_hanging_shows_hanging_and_unknown_and_counts_others(
    fixed_findings: Callable[[Sequence[Row]], FixedCluster],
) -> None:
    fixed_findings([finding(), UNKNOWN, UNREPLICATED, healthy(partition=7)])
    displayed = invoke("find-hanging").stdout
    assert "orders-0   LSO" in displayed
    assert "orders-1   LSO" in displayed
    assert "orders-2" not in displayed
    assert "orders-7" not in displayed
    assert displayed.endswith("\n1 partition hangs, 1 unknown, 1 unreplicated, 1 open transaction is healthy\n")


def test_find_hanging_lists_other_open_transactions_of_the_partition(
    fixed_findings: Callable[[Sequence[Row]], FixedCluster],
) -> None:
    fixed_findings([finding(), healthy(queue_position=2, producer_id=5, start_offset=913095350)])
    displayed = invoke("find-hanging").stdout
    assert "next     the LSO goes to 913095350" in displayed
    assert "nothing else is open" not in displayed


def test_json_is_one_array_with_the_columns_of_the_table(
    fixed_findings: Callable[[Sequence[Row]], FixedCluster],
) -> None:
    fixed_findings([finding(), healthy(partition=7)])
    parsed = json.loads(invoke("diagnose", "--format", "json").stdout)
    assert [list(row) for row in parsed] == [LINKED_FINDINGS.names] * 2
    assert [row["docs"] for row in parsed] == [verdict_page("hanging"), verdict_page("ongoing")]
    assert len(json.loads(invoke("find-hanging", "--format", "json").stdout)) == 1


def test_help_names_every_command_and_the_exit_codes() -> None:
    displayed = invoke("--help").stdout
    assert "kafka-txn demo" in displayed
    assert "Exit codes: 0 nothing hangs, 1 something hangs" in displayed
    for command in app.registered_commands:
        assert command.name
        assert command.name in displayed
        assert invoke(command.name, "--help").exit_code == 0


def test_help_has_whole_flags_in_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had ``--max-transactio…``."""
    monkeypatch.setenv("COLUMNS", "80")
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        displayed = invoke(name, "--help").stdout
        flags = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts) if flag[0] == "-"}
        assert flags <= set(re.findall(r"(?<=\s)-[\w-]+", displayed)), name
        assert max(map(len, displayed.splitlines())) <= 80


def test_the_environment_names_the_cluster_unless_an_option_names_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SourceOptions] = []

    def refuse(options: SourceOptions) -> NoReturn:
        seen.append(options)
        raise UsageError("Seen.")

    monkeypatch.setattr(SourceOptions, "open", refuse)
    monkeypatch.setenv("KAFKA_TXN_BOOTSTRAP_SERVER", "prod:9092")
    monkeypatch.setenv("KAFKA_TXN_COMMAND_CONFIG", "prod.properties")
    assert "Cluster of the environment: --bootstrap-server prod:9092" in invoke("diagnose").stderr
    for arguments in (["--bootstrap-server", "test:9092"], ["--log-dir", "/copy"], ["--recording", "/samples"]):
        assert invoke("diagnose", *arguments).stderr == "kafka-txn: Seen.\n"
    assert [(each.bootstrap_server, each.command_config) for each in seen] == [
        ("prod:9092", "prod.properties"),
        ("test:9092", None),
        (None, None),
        (None, None),
    ]


def test_a_remedy_names_the_cluster_as_the_user_did() -> None:
    options = SourceOptions(bootstrap_server="broker:9092", command_config="my client.properties")
    cluster = "--bootstrap-server broker:9092 --command-config 'my client.properties'"
    fence = "Check coordinator 3. kafka-txn fence --transactional-id payments-7 ends it."
    assert options.runnable(fence) == fence.replace("fence --", f"fence {cluster} --")
    with_checkpoint = replace(options, flink_checkpoint=[Path("/chk-5")])
    assert f"kafka-txn fence {cluster} --flink-checkpoint /chk-5 --transactional-id" in with_checkpoint.runnable(fence)
    commit = "kafka-txn commit --flink-checkpoint /chk-5 --transactional-id a commits it"
    assert with_checkpoint.runnable(commit).count("/chk-5") == 1
    for unchanged in ("Never kafka-txn abort.", "kafka-txn describe --transactional-id a"):
        assert options.runnable(unchanged) == unchanged
    assert SourceOptions(log_dir=["/copy"]).runnable(fence) == fence


def test_version_is_printed() -> None:
    assert invoke("--version").stdout == f"kafka-txn {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["diagnose"], "No cluster is named."),
        (["partitions", "--partition", "1", "--bootstrap-server", "127.0.0.1:1"], "--partition is a number within"),
        (["describe", "--bootstrap-server", "127.0.0.1:1"], "describe needs an id."),
        (["coordinator", "--bootstrap-server", "127.0.0.1:1"], "coordinator needs an id or a group."),
        (["why", "orders-0", "--log-dir", "/copy"], "why needs TOPIC-PARTITION@OFFSET."),
        (["why", "--topic", "orders", "--partition", "0", "--log-dir", "/copy"], "why needs an offset."),
        (["gaps", "--topic", "orders", "--log-dir", "/copy"], "No partition is named."),
        (["gaps", "orders-0", "--partition", "0", "--log-dir", "/copy"], "name a partition."),
        (["lab", "--property", "novalue"], "--property novalue is not KEY=VALUE."),
        (["lab", "--version", "1.0"], "'1.0' is not a Kafka version of the lab."),
        (["list", "--command-config", "/no/such/file"], "/no/such/file"),
        (["abort", "--topic", "orders"], "abort needs --topic, --partition and --start-offset, or --list."),
        (["complete", "--topic", "orders"], "Missing option '--partition'"),
        (["abort", "--list", "/no/such/list.csv"], "/no/such/list.csv cannot be read: No such file or directory."),
        (["diagnose", "--format", "xml"], "xml"),
        (["no-such-command"], "No such command 'no-such-command'"),
    ],
)
def test_invalid_usage_is_a_sentence_on_stderr_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("command", ["diagnose", "find-hanging", "list", "describe-producers", "partitions"])
def test_an_unreachable_cluster_is_a_sentence(command: str) -> None:
    with socket.socket() as taken:  # bound, never listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(command, "--bootstrap-server", address, "--timeout", "2")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert address in done.stderr
    assert "Traceback" not in done.stderr
