"""Sources that notebooks open with `connect`."""

import atexit
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolkit import Cluster, LogDir, Recording, connect
from toolkit.actions.audit import Audit
from toolkit.config.clusters import CLUSTERS_VARIABLE
from toolkit.errors import NotFound, UsageError
from toolkit.lab import ConnectedSource, Kafka, connected_source
from toolkit.lab.samples import load, names


def found_columns(connection: ConnectedSource, source: Any = None) -> dict[str, dict[str, Any]]:
    """The findings of the expected transactions, with the expected columns."""
    rows = (source or connection.source).finding_rows(**connection.selection)
    return {
        topic: {name: row[name] for name in expected}
        for topic, expected in connection.expected.items()
        for row in rows
        if (row["topic"], row["start_offset"]) == (topic, expected["start_offset"])
    }


@pytest.mark.lab
def test_the_lab_gives_the_same_findings_live_from_files_and_recorded() -> None:
    with connect("lab", staged={"orders": "never_added", "clicks": "open_long"}) as connection:
        assert isinstance(connection.source, Cluster)
        assert connection.cluster is connection.source
        again = connect("lab", staged={"clicks": "open_long", "orders": "never_added"})
        assert again is connection, "a cell that runs twice starts no second Kafka"
        assert {row["verdict"] for row in connection.expected.values()} == {"hanging", "ongoing"}
        assert found_columns(connection) == found_columns(connection, connection.log_dir()) == connection.expected
        assert found_columns(connection) == connection.expected, "its broker continues after the copy"
        assert [type(source) for source in connection.sources()] == [LogDir]
        assert found_columns(connection, connection.recording(samples=2)) == connection.expected
        assert [type(source) for source in connection.sources()] == [LogDir, Recording]
        assert connection.audit.rows() == []
        folder = connection.audit.path.parent
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize("name", names())
def test_a_sample_has_the_tables_of_a_source(name: str) -> None:
    with connect(f"sample:{name}") as connection:
        assert found_columns(connection) == connection.expected
        assert connection.log_dir().batches(topics=[load(name).topic]).shape[0]
        assert all(
            found_columns(connection, source)
            for source in connection.sources()
            if isinstance(source, type(connection.source))
        )
        with pytest.raises(UsageError, match="is no running cluster"):
            _ = connection.cluster


def test_no_source_is_not_this_folder(tmp_path: Path) -> None:
    """An empty text opened the folder of the notebook; an empty folder was told of log directories only."""
    for nothing in ("", " "):
        with pytest.raises(NotFound, match=r"No source is named. Use a broker.* recording"):
            connect(nothing)
    with pytest.raises(NotFound, match="recording"):
        connect(str(tmp_path)).source.findings()


def test_paths_are_opened_by_their_content(tmp_path: Path) -> None:
    recording_folder = shutil.copytree(load("flight-recording").path / "recording", tmp_path / "recorded")
    recorded = connect(str(recording_folder))
    assert isinstance(recorded.source, Recording)
    assert recorded.recording() is recorded.source
    with pytest.raises(UsageError, match="has no files to read"):
        recorded.log_dir()
    log_folder = shutil.copytree(load("orphan").path / "log-dir", tmp_path / "copied")
    with connect(str(log_folder), consistent_copy=True) as connection:
        assert isinstance(connection.source, LogDir)
        assert connection.expected == {}
        assert connection.sources() == [connection.source]
        assert connection.log_dir() is connection.source
        with pytest.raises(UsageError, match="is no running cluster"):
            connection.recording()
        assert [row["verdict"] for row in connection.source.finding_rows(topics=["orders"], partitions=[0])] == [
            "hanging"
        ]
    with pytest.raises(NotFound, match="does not exist"):
        connect(str(tmp_path / "none"))


@dataclass
class NoBroker:
    """In place of a cluster."""

    config: str
    timeout: float


def test_a_cluster_is_recorded_into_a_folder_that_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By connections of its own, which have the settings of the first."""

    def record(connect: Any, folder: Path, *, samples: int, interval_ms: int) -> None:
        assert connect() is not cluster
        assert (connect(), samples, interval_ms) == (cluster, 2, 10)
        shutil.copytree(load("flight-recording").path / "recording", folder)

    monkeypatch.setattr(connected_source, "Cluster", NoBroker)
    monkeypatch.setattr(connected_source, "record_samples", record)
    cluster: Any = NoBroker("one:9092", 7)
    with ConnectedSource(cluster, audit=Audit()) as connection:
        assert connection.cluster is cluster
        assert connection.recording(samples=2, interval_ms=10).partition_rows()
        folder = connection.temporary()
        assert list(folder.iterdir()) == [folder / "recording"]
    assert not folder.exists()


def test_a_source_with_a_folder_of_somebody_else_leaves_it(tmp_path: Path) -> None:
    with connect("sample:orphan") as sample, ConnectedSource(sample.source, audit=Audit(), folder=tmp_path) as other:
        assert other.temporary() == tmp_path
    assert tmp_path.exists()


def test_what_a_source_owns_is_closed_with_it_or_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[Any] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(atexit, "unregister", at_exit.remove)
    closed: list[str] = []
    with connect("sample:orphan") as sample:
        for close in (ConnectedSource.close, lambda _: at_exit[-1]()):
            connection = ConnectedSource(sample.source, audit=Audit())
            with ExitStack() as resources:
                resources.callback(closed.append, "a broker")
                connection.own(resources)
            assert closed == [], "by its new owner only"
            close(connection)
            close_again = connection.close
            close_again()
            assert closed == ["a broker"]
            assert close_again not in at_exit
            closed.clear()


@pytest.mark.lab
def test_a_cluster_is_opened_by_its_address_or_name(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("client.id=nightshift\n")
    named = f'[mine]\nbootstrap-server = "{kafka.bootstrap_servers}"\ncommand-config = "{properties}"\ntimeout = "9s"\n'
    (tmp_path / "clusters.toml").write_text(named)
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(tmp_path / "clusters.toml"))
    for source in (kafka.bootstrap_servers, "cluster:mine"):
        with connect(source, command_config="" if ":m" in source else str(properties)) as connection:
            assert connection.cluster.coordinators().error.isna().all()
            assert connection.cluster.config.librdkafka()["client.id"] == "nightshift"
            with pytest.raises(UsageError, match="has no files"):
                connection.log_dir()
    assert connection.cluster.timeout == 9
    with pytest.raises(UsageError, match=r"has no cluster 'other'. It has mine"):
        connect("cluster:other")


def test_incidents_that_need_their_own_cluster_are_refused() -> None:
    with pytest.raises(UsageError, match="clusters of their own: neglectful, two-phase"):
        connect("lab", staged={"a": "overdue", "b": "prepared"})


@pytest.mark.lab
def test_open_labs_are_closed_at_exit() -> None:
    """When a kernel ends without the last cell of its notebook, the broker is stopped and nothing is printed."""
    code = "from toolkit import connect; o = connect('lab'); print(o.audit.path.parent)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert process.stderr == ""
    assert not Path(process.stdout.strip()).exists()


def test_a_wrong_address_is_two_lines_in_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """It was a traceback of 76 lines."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()  # type: ignore[no-untyped-call]
    shell.run_cell("from toolkit import connect\nconnect('127.0.0.1:1')")  # type: ignore[no-untyped-call]
    shown = capsys.readouterr().out.strip().splitlines()
    assert shown == [
        "ConnectionFailed: The broker at 127.0.0.1:1 cannot be used: connection refused.",
        "Check bootstrap.servers, and that the broker is running and reachable from here.",
    ]
