"""The folder of a recording: a folder of Parquet files per table, readable while a recorder writes.

A name always stands for the same bytes. So a reader that opens all files of a listing reads every row once, unless the
folder was replaced while it was listed, or a file is gone, merged or expired: list again. Files are named by the time
of their rows:

``20261121T095830000.parquet``
    One sample, by its due time.
``20261121T09.3600.parquet``, ``20261121.86400.parquet``
    All samples of an hour or a day, with the number of rows: a later merge has another name.
``00000000.empty.parquet``
    The columns without rows, so that an empty table can be read as well.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import DecodeError, NotFound
from toolkit.schema import RECORDED
from toolkit.schema.table import EPOCH

if TYPE_CHECKING:
    import pyarrow as pa

EMPTY = "00000000.empty.parquet"
HIDDEN = "."  # prefix that Spark, pyarrow's datasets and globs ignore
NAME = re.compile(r"(\d{8})(?:T(\d{2})(\d{7})?)?(?:\.\d+)?\.parquet")
DAY, HOUR, SAMPLE = "%Y%m%d", "%Y%m%dT%H", "%Y%m%dT%H%M%S%f"
ONE_HOUR, ONE_DAY, AN_INSTANT = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(milliseconds=1)
MAX_RETRIES, RETRY_BACKOFF_S = 20, 0.05  # files are removed once an hour


@dataclass(frozen=True, slots=True, order=True)
class TableFile:
    """A file of a table."""

    # start, stop: due times of its samples: from `start` to before `stop`
    start: dt.datetime
    stop: dt.datetime
    path: Path

    @property
    def is_sample(self) -> bool:
        """Whether it has one sample, not merged yet."""
        return self.stop - self.start == AN_INSTANT


def table_file(path: Path) -> TableFile | None:
    """The samples of a file, by its name; null for other files and the empty one."""
    match = NAME.fullmatch(path.name)
    if match is None or path.name == EMPTY:
        return None
    day, hour, rest = match.groups()
    if hour is None:
        text, form, length = day, DAY, ONE_DAY
    elif rest is None:
        text, form, length = f"{day}T{hour}", HOUR, ONE_HOUR
    else:
        text, form, length = f"{day}T{hour}{rest}", SAMPLE, AN_INSTANT
    try:
        start = dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    return TableFile(start, start + length, path)


def floor_time(time: dt.datetime, interval: dt.timedelta) -> dt.datetime:
    """The last multiple of an interval since 1970 that is not after a time."""
    return EPOCH + (time - EPOCH) // interval * interval


def sample_name(due: dt.datetime) -> str:
    """File name of a sample."""
    return f"{due.astimezone(dt.UTC):{SAMPLE}}"[:-3] + ".parquet"


def merged_name(start: dt.datetime, *, whole_day: bool, rows: int) -> str:
    """File name of a whole day, or of an hour."""
    return f"{start.astimezone(dt.UTC):{DAY if whole_day else HOUR}}.{rows}.parquet"


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

    Raises FileNotFoundError if neither the table's folder nor its previous one exists.
    """
    paths = _listing(directory, table)
    while (again := _listing(directory, table)) != paths:
        paths = again  # of a folder that was replaced meanwhile, some files were already removed
    files = [table_file(path) for path in paths]
    return sorted(file for file in files if file is not None)


def _listing(directory: Path, table: str) -> set[Path]:
    """The content of a table's folder, or of the previous one while it is replaced."""
    current = directory / table
    for folder in (current, old_folder(directory, table), current):  # it may be back meanwhile
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            return {folder / entry.name for entry in entries}
    raise FileNotFoundError(f"{current} does not exist")


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
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(directory / table, error) from error
    raise NotFound(f"{directory / table} cannot be read: {missing}.", do="Try again.")


def is_damage(error: BaseException) -> bool:
    """Whether it is Arrow's error for bytes that it cannot read; one of the operating system has a number."""
    from pyarrow import ArrowException

    return isinstance(error, ArrowException) or (isinstance(error, OSError) and error.errno is None)


def damaged(folder: Path, error: BaseException) -> DecodeError:
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
    bounds = ((start, pc.greater_equal), (stop, pc.less))
    terms = [compare(pc.field("sampled_at"), pc.scalar(bound)) for bound, compare in bounds if bound is not None]
    condition = functools.reduce(operator.and_, terms) if terms else None
    dataset = ds.dataset([str(file.path) for file in files], schema=schema, format="parquet")
    rows = dataset.to_table(filter=condition, columns=list(columns) if columns else None)
    rows.validate(full=True)  # Arrow takes any bytes for text, and Python would fail at them
    order = [(name, "ascending") for name in RECORDED[table].sort if columns is None or name in columns]
    return rows.sort_by(order)
