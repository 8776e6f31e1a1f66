"""Sources that notebooks open with `connect`."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolkit import Cluster, LogDir, Recording, connect
from toolkit.actions import ConnectedSource
from toolkit.errors import NotFound, UsageError
from toolkit.lab import Kafka
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


def test_paths_are_opened_by_their_content(tmp_path: Path) -> None:
    recording_folder = shutil.copytree(load("flight-recording").path / "recording", tmp_path / "recorded")
    assert isinstance(connect(str(recording_folder)).source, Recording)
    log_folder = shutil.copytree(load("orphan").path / "log-dir", tmp_path / "copied")
    with connect(str(log_folder), consistent_copy=True) as connection:
        assert isinstance(connection.source, LogDir)
        assert connection.expected == {}
        assert connection.sources() == [connection.source]
        assert [row["verdict"] for row in connection.source.finding_rows(topics=["orders"], partitions=[0])] == [
            "hanging"
        ]
    with pytest.raises(NotFound, match="does not exist"):
        connect(str(tmp_path / "none"))


@pytest.mark.lab
def test_a_cluster_is_opened_by_its_address(kafka: Kafka, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("client.id=nightshift\n")
    with connect(kafka.bootstrap_servers, command_config=str(properties)) as connection:
        assert connection.cluster.coordinators().error.isna().all()
        with pytest.raises(UsageError, match="has no files"):
            connection.log_dir()


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
