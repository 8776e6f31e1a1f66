"""Small log directories for tests, written by hand where a real broker would take too long or cannot be made to."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from toolkit.formats.batches import write_batch

META = "meta.properties"
CLUSTER = "xRkncQT9TEa2WI1kTHANEQ"
NOON = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)


def write_root(path: Path, *, broker_id: int = 1, cluster_id: str = CLUSTER) -> Path:
    """An empty log directory."""
    path.mkdir(parents=True, exist_ok=True)
    (path / META).write_text(f"#\nnode.id={broker_id}\nversion=1\ncluster.id={cluster_id}\n")
    return path


def partition_folder(root: Path, name: str, *more: str) -> Path:
    """A partition's folder with a segment of three records, and empty files."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(
        write_batch([(None, b"1"), (None, b"2"), (None, b"3")], timestamp=NOON)
    )
    for each in more:
        (folder / each).touch()
    return folder
