"""What cannot be read of a log directory is an error row with its partition, in every table that has rows of it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unprivileged import unprivileged
from toolkit import LogDir
from toolkit.errors import ToolkitError
from toolkit.formats.log_dir_files import parse_folder_name
from toolkit.lab import samples
from toolkit.schema import TABLES, Row
from toolkit.sources.source import STREAMED, TableArguments

OPEN = "__transaction_state-25"  # of the sample: the coordinator's partition of an open id
FOLDERS = ("orders-0", OPEN, "__consumer_offsets-9", "__cluster_metadata-0")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Some partitions of a real broker's log directory, that may be written to."""
    source, copied = Path(str(samples.load("late-message").log_dir().paths[0])), tmp_path / "logs"
    others = [folder.name for folder in source.iterdir() if folder.is_dir() and folder.name not in FOLDERS]
    shutil.copytree(source, copied, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns(*others))
    for folder in copied.glob("*-*/"):
        folder.chmod(0o755)
    return copied


def tables(log_dir: Path) -> Iterator[tuple[str, Sequence[Row]]]:
    """The rows of each table; an error instead of a table is one row of it."""
    try:
        files = LogDir(log_dir)
    except ToolkitError as error:
        yield from ((name, [{"error": str(error)}]) for name in LogDir.functions)
        return
    for name in LogDir.functions:
        rows: list[Row]
        try:
            found = files.read(name, TableArguments())
            rows = (
                [row for each in found for row in each.to_pylist()] if name in STREAMED else TABLES[name].ordered(found)
            )
        except ToolkitError as error:
            rows = [{"error": str(error)}]
        yield name, rows


def kept(rows: Sequence[Row]) -> Counter[str]:
    """Rows that can be compared: without the times and texts that depend on the read."""
    left_out = {"observed_at", "modified", "evidence", "reason", "remedy", "missing", "error", "error_counts"}
    left_out |= {"broker_id", "metadata_node_id"}  # of meta.properties, whose own rows have its error
    return Counter(
        json.dumps({name: value for name, value in row.items() if name not in left_out}, default=str) for row in rows
    )


SILENT = {  # tables that lose rows in silence
    "coordinators": "an id or group without a readable record is not known; transactions and findings say so",
    "lso_timeline": "it has no column error; log_transactions has the row",
    "transaction_history": "of a partition of which no record could be read; transaction_log has the row",
}
DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "unreadable": lambda path: path.chmod(0),
    "garbage": lambda path: path.write_bytes(b"\x07" * max(100, path.stat().st_size)),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_no_row_is_lost_in_silence(log_dir: Path, how: str) -> None:
    before = dict(tables(log_dir))
    assert {name for name, rows in before.items() if rows} >= {
        "batches",
        "aborted",
        "snapshots",
        "checkpoints",
        "findings",
    }
    files = [path for folder in FOLDERS for path in sorted((log_dir / folder).iterdir())]
    files += [path for path in sorted(log_dir.iterdir()) if path.is_file()]
    files += [log_dir / folder for folder in FOLDERS] if how == "unreadable" else []
    silent: list[str] = []
    for file in files:
        mode, content = file.stat().st_mode, file.read_bytes() if file.is_file() else b""
        DAMAGES[how](file)
        with unprivileged():
            after = dict(tables(log_dir))
        file.chmod(mode)
        if file.is_file():
            file.write_bytes(content)
        for name, rows in after.items():
            if kept(before[name]) - kept(rows) and not any(says(row, file) for row in rows):
                silent.append(f"{file.relative_to(log_dir)}: {name}")
    assert {each for each in silent if each.split()[1] not in SILENT} == set()
    assert {each.split()[1] for each in silent} == SILENT.keys(), "explained, and gone"


def says(row: Row, file: Path) -> bool:
    """Whether a row says that something of this file's partition could not be read."""
    if not (row.get("error") or row.get("missing")):
        return False
    named = parse_folder_name(file.name if file.is_dir() else file.parent.name)
    known: dict[str, Any] = {"topic": named.topic, "partition": named.partition} if named and "topic" in row else {}
    return all(row[each] in {value, None} for each, value in known.items())
