"""The sources that notebooks open with `connect`."""

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


def found_columns(opened: ConnectedSource, of: Any = None) -> dict[str, dict[str, Any]]:
    """The findings of the expected transactions, with the same columns."""
    rows = (of or opened.source).finding_rows(**opened.selection)
    return {
        topic: {name: row[name] for name in expected}
        for topic, expected in opened.expected.items()
        for row in rows
        if (row["topic"], row["start_offset"]) == (topic, expected["start_offset"])
    }


@pytest.mark.lab
def test_the_lab_gives_the_same_findings_live_from_files_and_recorded() -> None:
    with connect("lab", staged={"orders": "never_added", "clicks": "open_long"}) as opened:
        assert isinstance(opened.source, Cluster)
        assert opened.cluster is opened.source
        assert {row["verdict"] for row in opened.expected.values()} == {"hanging", "ongoing"}
        assert found_columns(opened) == found_columns(opened, opened.log_dir()) == opened.expected
        assert found_columns(opened) == opened.expected, "its broker runs on after it was copied"
        assert [type(source) for source in opened.sources()] == [LogDir]
        assert found_columns(opened, opened.recording(samples=2)) == opened.expected
        assert [type(source) for source in opened.sources()] == [LogDir, Recording]
        assert opened.audit.rows() == []
        folder = opened.audit.path.parent
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize("name", names())
def test_a_sample_has_the_tables_of_a_source(name: str) -> None:
    with connect(f"sample:{name}") as opened:
        assert found_columns(opened) == opened.expected
        assert opened.log_dir().batches(topics=[load(name).topic]).shape[0]
        assert all(
            found_columns(opened, source) for source in opened.sources() if isinstance(source, type(opened.source))
        )
        with pytest.raises(UsageError, match="is no running cluster"):
            _ = opened.cluster


def test_paths_are_opened_by_their_content(tmp_path: Path) -> None:
    recorded = shutil.copytree(load("flight-recording").path / "recording", tmp_path / "recorded")
    assert isinstance(connect(str(recorded)).source, Recording)
    copied = shutil.copytree(load("orphan").path / "log-dir", tmp_path / "copied")
    with connect(str(copied), consistent_copy=True) as opened:
        assert isinstance(opened.source, LogDir)
        assert opened.expected == {}
        assert opened.sources() == [opened.source]
        assert [row["verdict"] for row in opened.source.finding_rows(topics=["orders"], partitions=[0])] == ["hanging"]
    with pytest.raises(NotFound, match="does not exist"):
        connect(str(tmp_path / "none"))


@pytest.mark.lab
def test_a_cluster_is_opened_by_its_address(kafka: Kafka, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("client.id=nightshift\n")
    with connect(kafka.bootstrap_servers, command_config=str(properties)) as opened:
        assert opened.cluster.coordinators().error.isna().all()
        with pytest.raises(UsageError, match="has no files"):
            opened.log_dir()


def test_incidents_that_need_their_own_cluster_are_refused() -> None:
    with pytest.raises(UsageError, match="clusters of their own: neglectful, two-phase"):
        connect("lab", staged={"a": "overdue", "b": "prepared"})


@pytest.mark.lab
def test_open_labs_are_closed_at_exit() -> None:
    """A notebook's kernel ends without its last cell; the broker is stopped, and nothing is printed."""
    code = "from toolkit import connect; o = connect('lab'); print(o.audit.path.parent)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == ""
    assert not Path(done.stdout.strip()).exists()
