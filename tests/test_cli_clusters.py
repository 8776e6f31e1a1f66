"""Named clusters: one of them, all of them in one answer, and looks that are repeated."""

import csv
import io
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.process import run
from tests.test_cli import UNKNOWN, FixedCluster
from tests.views.test_text import finding, healthy
from toolkit.cli import output, table_commands
from toolkit.cli.options import WATCH_INTERVAL, SourceOptions
from toolkit.config.clusters import CLUSTERS_VARIABLE
from toolkit.errors import ConnectionFailed, NotFound
from toolkit.lab import Kafka
from toolkit.schema import GROUP_LAG, Row
from toolkit.views.document import Command

DOWN = ConnectionFailed("The broker at down:9092 cannot be used: connection refused.", do="")
FOUND: dict[str, Any] = {"hangs": [finding()], "healthy": [healthy()], "down": DOWN, "hidden": [UNKNOWN]}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "clusters.toml"
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(path))
    return path


@pytest.fixture
def clusters(file: Path, monkeypatch: pytest.MonkeyPatch) -> list[SourceOptions]:
    """The options of each cluster that was opened."""
    opened: list[SourceOptions] = []

    def open_one(options: SourceOptions) -> FixedCluster:
        opened.append(options)
        found = FOUND[options.cluster_name or ""]
        if isinstance(found, Exception):
            raise found
        return FixedCluster(found)

    monkeypatch.setattr(SourceOptions, "open", open_one)
    return opened


def write(file: Path, *names: str) -> None:
    (file.parent / "secret.properties").write_text("sasl.password=s3cr3t\n")
    tables = [f'[{name}]\nbootstrap-server = "{name}:9092"\ncommand-config = "secret.properties"\n' for name in names]
    file.write_text("\n".join(tables))


def test_a_command_for_a_named_cluster_names_it_as_it_was(file: Path, clusters: list[SourceOptions]) -> None:
    write(file, "hangs")
    (said,) = {run("diagnose", "--cluster", "hangs").stdout, run("--cluster", "hangs", "diagnose").stdout}
    commands = [shlex.split(line) for line in said.splitlines() if "kafka-txn abort" in line]
    assert [each[1:4] for each in commands] == [["abort", "--cluster", "hangs"]]
    assert "--bootstrap-server" not in said
    assert "secret" not in said
    assert (clusters[0].bootstrap_server, clusters[0].timeout) == ("hangs:9092", None)


def test_a_tool_of_kafka_gets_the_servers_of_a_named_cluster(tmp_path: Path) -> None:
    """Also where only its file of properties has them: it takes no name."""
    (tmp_path / "a.properties").write_text("bootstrap.servers=b1:9092,b2:9092\n")
    options = SourceOptions(cluster_name="a", command_config=str(tmp_path / "a.properties"))
    command = Command(("kafka-consumer-groups.sh", "--describe", "--group", "billing"))
    assert options.connection.argv(command)[:3] == ("kafka-consumer-groups.sh", "--bootstrap-server", "b1:9092,b2:9092")
    assert options.connection.argv(Command(("kafka-txn", "list"))) == ("kafka-txn", "list", "--cluster", "a")


@pytest.mark.parametrize(
    ("names", "code", "total"),
    [
        (("healthy",), 0, "1 cluster: 1 nothing to do."),
        (("healthy", "down"), 3, "2 clusters: 1 not known (down), 1 nothing to do."),
        (("hidden", "healthy"), 3, "2 clusters: 1 not known (hidden), 1 nothing to do."),
        (
            ("down", "healthy", "hangs"),
            1,
            "3 clusters: 1 something to do (hangs), 1 not known (down), 1 nothing to do.",
        ),
    ],
)
@pytest.mark.usefixtures("clusters")
def test_the_answer_of_all_clusters_is_the_most_severe(file: Path, names: Sequence[str], code: int, total: str) -> None:
    """A cluster that cannot be read is not known: an answer without it would be an all-clear."""
    write(file, *names)
    said = run("find-hanging", "--all-clusters")
    assert (said.returncode, said.stdout.splitlines()[-1]) == (code, total)
    assert [line for line in said.stdout.splitlines() if line.startswith("Cluster ")] == [
        f"Cluster {name}:" for name in names
    ]
    assert "s3cr3t" not in said.stdout + said.stderr
    answer = json.loads(run("find-hanging", "--all-clusters", "--format", "json").stdout)
    assert (answer["schema"], [row["cluster"] for row in answer["rows"]]) == ("clusters", list(names))
    for row in answer["rows"]:
        assert (row["answer"] is None) == (row["error"] is not None) == (row["cluster"] == "down")
        assert row["error"] is None or row["exit_code"] == 3
        assert row["answer"] is None or row["answer"]["schema"] == "findings_with_docs"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("list --cluster other", "has no cluster 'other'. It has healthy."),
        ("list --cluster healthy --bootstrap-server b:9092", "names a cluster, and --cluster does"),
        ("list --all-clusters --cluster healthy", "--cluster names a cluster, and --all-clusters does"),
        ("lag --all-clusters --log-dir x", "--all-clusters reads clusters, no files"),
        ("find-hanging --all-clusters --partition 1", "--partition is a number within a topic"),
        ("diagnose --watch --log-dir x", "--watch needs a cluster or a recording"),
        *((f"{action} --all-clusters", "No such option") for action in ("abort", "complete", "commit", "fence")),
    ],
)
def test_what_names_no_cluster_or_two_is_refused(file: Path, command: str, said: str) -> None:
    write(file, "healthy")
    refused = run(*command.split())
    assert refused.returncode == 2
    assert said in refused.stderr


@pytest.mark.usefixtures("clusters")
def test_all_clusters_as_csv_are_the_rows_of_each(file: Path, tmp_path: Path) -> None:
    """A cluster that cannot be read is a row with its error; and a list of two clusters ends no transaction."""
    write(file, "healthy", "down", "hangs", "hidden")
    said = run("find-hanging", "--all-clusters", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(said.stdout)))
    assert {row["cluster"]: (row["verdict"], row["error"]) for row in rows} == {
        "down": ("", str(DOWN).replace("\r", "")),
        "hangs": ("hanging", ""),
        "hidden": ("unknown", rows[-1]["error"]),
    }
    assert (said.returncode, "Cluster down: " in said.stderr) == (1, True)
    one = run("find-hanging", "--cluster", "hangs", "--format", "csv").stdout.splitlines()
    assert f"hangs,{one[1]}" in said.stdout.splitlines()
    (tmp_path / "all.csv").write_text(said.stdout)
    refused = run("abort", "--cluster", "hangs", "--list", str(tmp_path / "all.csv"))
    assert (refused.returncode, "names transactions of down, hangs, hidden" in refused.stderr) == (2, True)


def watched_looks(monkeypatch: pytest.MonkeyPatch, *looks: Sequence[Row] | Exception) -> None:
    """What a watched cluster answers, until its reader has seen enough."""
    left = list(looks)

    def open_next(options: SourceOptions) -> FixedCluster:
        if not left:
            raise KeyboardInterrupt
        look = left.pop(0)
        if isinstance(look, Exception):
            raise look
        return FixedCluster(look)

    monkeypatch.setattr(SourceOptions, "open", open_next)
    monkeypatch.setattr(output, "sleep", lambda seconds: None)


def test_looks_as_csv_have_their_time_and_one_header(monkeypatch: pytest.MonkeyPatch) -> None:
    watched_looks(monkeypatch, [finding()], [finding()], [], DOWN, [finding()])
    watched = run("find-hanging", "--bootstrap-server", "b:1", "--watch", "--format", "csv")
    header, *rows = csv.reader(io.StringIO(watched.stdout))
    assert header[0] == "looked_at"
    assert [len(row) for row in rows] == [len(header), 1, len(header), len(header)]
    failed = dict(zip(header, rows[2], strict=True))
    assert {value for name, value in failed.items() if name not in {"looked_at", "error"}} == {""}
    assert failed["error"] == str(DOWN), "a failed look was the row of one that found nothing"
    assert "connection refused" in watched.stderr


def test_a_failed_look_as_json_is_a_finding_about_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """It wrote nothing, and the answer before seemed to hold."""
    watched_looks(monkeypatch, [healthy()], DOWN, DOWN)
    watched = run("diagnose", "--watch", "--format", "json")
    _, end = json.JSONDecoder().raw_decode(watched.stdout)
    failed = json.loads(watched.stdout[end:])
    (row,) = failed["rows"]
    assert (failed["schema"], failed["scope"]["missing"]) == ("findings_with_docs", [str(DOWN)])
    assert (row["verdict"], row["topic"], row["error"], watched.returncode) == ("unknown", None, str(DOWN), 3)


@pytest.mark.parametrize(
    "gone", [NotFound("No broker lists the group 'old'.", do=""), DOWN], ids=["deleted", "no broker"]
)
def test_a_group_that_is_gone_since_it_was_listed_leaves_the_lag_of_the_others(
    gone: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of a console consumer that expired meanwhile ended the whole command with exit code 4, without a row."""

    class Groups(FixedCluster):
        def group_lag_rows(self, group: str, **_: object) -> list[Row]:
            if group == "old":
                raise gone
            return [lag_row]

    lag_row = {**dict.fromkeys(GROUP_LAG.names), "group_id": "billing", "topic": "orders", "partition": 0}
    monkeypatch.setattr(SourceOptions, "open_logs", lambda _: Groups([]))
    monkeypatch.setattr(table_commands, "_all_groups", lambda _: (["old", "billing"], []))
    said = run("lag", "--bootstrap-server", "b:1", "--format", "json")
    assert [row["group_id"] for row in json.loads(said.stdout)["rows"]] == ["billing"]
    assert (said.returncode, gone.args[0].splitlines()[0].split(":")[0] in said.stderr) == (3, True)


def test_a_missing_right_of_one_of_several_clusters_is_granted_there(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line was ``a: kafka-acls.sh --add ...``, without the servers of that cluster: no shell ran it."""
    error = "TOPIC_AUTHORIZATION_FAILED: no"
    denied = {**dict.fromkeys(GROUP_LAG.names), "group_id": "g", "topic": "orders", "partition": 0, "error": error}
    write(file, "a")
    monkeypatch.setattr(SourceOptions, "open_logs", lambda _: FixedCluster([]))
    monkeypatch.setattr(table_commands, "_all_groups", lambda _: (["g"], []))
    monkeypatch.setattr(FixedCluster, "group_lag_rows", lambda *_: [denied], raising=False)
    said = run("lag", "--all-clusters").stderr.splitlines()
    config = str(file.parent / "secret.properties")
    reach = ["kafka-acls.sh", "--bootstrap-server", "a:9092", "--command-config", config]
    assert said[0] == "a: This principal needs READ on topic 'orders':"
    assert shlex.split(said[1])[:6] == [*reach, "--add"]


def test_a_pipe_gets_a_block_per_change_and_the_last_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages change with every look, and are no change."""
    older = {**healthy(), "offsets_held": 999}
    watched_looks(monkeypatch, [healthy()], [older], DOWN, DOWN, [healthy()], [finding()])
    watched = run("diagnose", "--watch", "--short")
    blocks = watched.stdout.split("\n\n")
    assert watched.returncode == 1
    assert ["ongoing" in each for each in blocks] == [True, False, True, False]
    assert watched.stderr == f"kafka-txn: {DOWN}\n"
    assert WATCH_INTERVAL == "10s"


def test_the_first_look_fails_as_a_single_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: SourceOptions) -> FixedCluster:
        raise DOWN

    monkeypatch.setattr(SourceOptions, "open", fail)
    assert run("diagnose", "--watch", "30s").returncode == 3


def test_two_clusters_of_which_one_is_down(kafka: Kafka, file: Path) -> None:
    file.write_text(
        f'[here]\nbootstrap-server = "{kafka.bootstrap_servers}"\n\n'
        '[down]\nbootstrap-server = "localhost:1"\ntimeout = "2s"\n'
    )
    for command in ("list", "lag", "find-hanging"):
        answer = run(command, "--all-clusters", "--format", "json")
        here, down = json.loads(answer.stdout)["rows"]
        assert here["answer"]["cluster_id"]
        assert (down["answer"], down["exit_code"]) == (None, 3)
        assert answer.returncode in {1, 3}
