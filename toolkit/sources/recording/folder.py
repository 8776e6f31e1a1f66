"""The folder of a recording: a folder of Parquet files for each table, read while a recorder may be writing there.

A name always stands for the same bytes (`toolkit.sources.recording.names`), and a table's files are listed at one
instant. So whoever could open all that was listed has read every row once; where a file is gone by then it was merged
or has expired, and the table is listed anew.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import DecodeError, NotFound
from toolkit.schema import RECORDED
from toolkit.sources.recording.names import HIDDEN, Recorded, recorded

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["damaged", "files_of", "is_recording", "next_folder", "old_folder", "read", "sample_times"]

TRIES, PAUSE = 20, 0.05  # seconds; files that go do so once an hour


def is_recording(directory: Path) -> bool:
    """Whether a folder is one of recordings."""
    return any(path.is_dir() for path in (directory / "samples", old_folder(directory, "samples")))


def next_folder(directory: Path, table: str) -> Path:
    """Where a table's folder is made anew."""
    return directory / f"{HIDDEN}{table}.next"


def old_folder(directory: Path, table: str) -> Path:
    """Where a table's folder is kept while another takes its place."""
    return directory / f"{HIDDEN}{table}.old"


def files_of(directory: Path, table: str) -> list[Recorded]:
    """The files of a table in the order of time.

    Raises
    ------
    FileNotFoundError
        If the table is not there, not even the one that it was before.
    """
    for folder in (directory / table, old_folder(directory, table)):
        try:
            with os.scandir(folder) as entries:
                found = [recorded(folder / entry.name) for entry in entries]
        except FileNotFoundError:
            continue
        return sorted(file for file in found if file is not None)
    raise FileNotFoundError(f"{directory / table} is not there")


def read(
    directory: Path,
    table: str,
    *,
    start: dt.datetime | None = None,
    stop: dt.datetime | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Rows of a table, of samples that were due from `start` to before `stop`, in the declared order.

    Raises
    ------
    NotFound
        If files go faster than they can be read, or the table is not there at all.
    DecodeError
        If a file is not whole, which no kill does to it.
    """
    from pyarrow import ArrowInvalid

    for _ in range(TRIES):
        try:
            files = [
                file
                for file in files_of(directory, table)
                if (stop is None or file.start < stop) and (start is None or file.stop > start)
            ]
            return _read(table, files, start=start, stop=stop, columns=columns)
        except FileNotFoundError as error:
            gone = error
            time.sleep(PAUSE)
        except ArrowInvalid as error:
            raise damaged(directory / table, error) from error
    raise NotFound(f"{directory / table} cannot be read: {gone}.", do="Ask again.")


def damaged(folder: Path, error: Exception) -> DecodeError:
    """The error of a folder in which a file cannot be read."""
    said = str(error).splitlines()[0].rstrip(".")
    return DecodeError(f"A file in {folder} is damaged: {said}.", position=0, do="Move it out of the recording.")


def sample_times(
    directory: Path, start: dt.datetime | None = None, stop: dt.datetime | None = None
) -> list[dt.datetime]:
    """When the samples were due that are whole, in order."""
    times: list[dt.datetime] = read(directory, "samples", start=start, stop=stop, columns=["sample"])[
        "sample"
    ].to_pylist()
    return times


def _read(
    table: str,
    files: Sequence[Recorded],
    *,
    start: dt.datetime | None,
    stop: dt.datetime | None,
    columns: Sequence[str] | None,
) -> pa.Table:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    schema = RECORDED[table].arrow_schema
    if not files:
        empty = schema.empty_table()
        return empty if columns is None else empty.select(columns)
    condition = None
    for bound, compare in ((start, pc.greater_equal), (stop, pc.less)):
        if bound is not None:
            given = compare(pc.field("sample"), pc.scalar(bound))
            condition = given if condition is None else condition & given
    dataset = ds.dataset([str(file.path) for file in files], schema=schema, format="parquet")
    found = dataset.to_table(filter=condition, columns=list(columns) if columns else None)
    order = [(name, "ascending") for name in RECORDED[table].sort if columns is None or name in columns]
    return found.sort_by(order)
