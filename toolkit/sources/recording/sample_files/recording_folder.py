"""The folder of a recording: a folder of Parquet files per table, readable while a recorder writes.

File names always stand for the same bytes (`sample_names`), and a folder is listed atomically. So a reader
that opens all listed files reads every row once. If a file is gone, it was merged or has expired: list again.
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
from toolkit.sources.recording.sample_files.sample_names import HIDDEN, TableFile, table_file

if TYPE_CHECKING:
    import pyarrow as pa

MAX_RETRIES, RETRY_BACKOFF_S = 20, 0.05  # files are removed once an hour


def is_recording(directory: Path) -> bool:
    """Whether a folder is a recording."""
    return any(path.is_dir() for path in (directory / "samples", old_folder(directory, "samples")))


def next_folder(directory: Path, table: str) -> Path:
    """The folder in which a table's merged files are prepared."""
    return directory / f"{HIDDEN}{table}.next"


def old_folder(directory: Path, table: str) -> Path:
    """The previous folder of a table while it is replaced."""
    return directory / f"{HIDDEN}{table}.old"


def files_of(directory: Path, table: str) -> list[TableFile]:
    """The files of a table by time.

    Raises
    ------
    FileNotFoundError
        If neither the table's folder nor its previous one exists.
    """
    for folder in (directory / table, old_folder(directory, table)):
        try:
            with os.scandir(folder) as entries:
                files = [table_file(folder / entry.name) for entry in entries]
        except FileNotFoundError:
            continue
        return sorted(file for file in files if file is not None)
    raise FileNotFoundError(f"{directory / table} does not exist")


def read(
    directory: Path,
    table: str,
    *,
    start: dt.datetime | None = None,
    stop: dt.datetime | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Rows of a table, of samples due from `start` to before `stop`, in the declared order.

    Raises
    ------
    NotFound
        If files keep disappearing while they are read, or the table does not exist.
    DecodeError
        If a file is damaged; a killed recorder leaves none.
    """
    from pyarrow import ArrowInvalid

    for _ in range(MAX_RETRIES):
        try:
            files = [
                file
                for file in files_of(directory, table)
                if (stop is None or file.start < stop) and (start is None or file.stop > start)
            ]
            return _read(table, files, start=start, stop=stop, columns=columns)
        except FileNotFoundError as error:
            missing = error
            time.sleep(RETRY_BACKOFF_S)
        except ArrowInvalid as error:
            raise damaged(directory / table, error) from error
    raise NotFound(f"{directory / table} cannot be read: {missing}.", do="Try again.")


def damaged(folder: Path, error: Exception) -> DecodeError:
    """The error of a folder with a damaged file."""
    reason = str(error).splitlines()[0].rstrip(".")
    return DecodeError(f"A file in {folder} is damaged: {reason}.", position=0, do="Move it out of the recording.")


def sample_times(
    directory: Path, start: dt.datetime | None = None, stop: dt.datetime | None = None
) -> list[dt.datetime]:
    """Due times of complete samples, in order."""
    times: list[dt.datetime] = read(directory, "samples", start=start, stop=stop, columns=["sampled_at"])[
        "sampled_at"
    ].to_pylist()
    return times


def _read(
    table: str,
    files: Sequence[TableFile],
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
            term = compare(pc.field("sampled_at"), pc.scalar(bound))
            condition = term if condition is None else condition & term
    dataset = ds.dataset([str(file.path) for file in files], schema=schema, format="parquet")
    rows = dataset.to_table(filter=condition, columns=list(columns) if columns else None)
    order = [(name, "ascending") for name in RECORDED[table].sort if columns is None or name in columns]
    return rows.sort_by(order)
