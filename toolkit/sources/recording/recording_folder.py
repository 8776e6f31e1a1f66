"""The folder of a recording: a folder of Parquet files per table, readable while a recorder writes.

A name always stands for the same bytes, and says which samples a file has:

``20261121T095830000.parquet``
    One sample, by its due time.
``20261121T09.1.parquet``, ``20261121.2.parquet``
    All samples of an hour or a day, of merges 1 and 2. A file replaces those of its time that have a lower number, or
    none. They are deleted next, and a kill may leave some of them.
``20261121T090100000.2.parquet``
    A sample written after merge 2, so that none of these replaces it.
``00000000.empty.parquet``
    The columns without rows, so that an empty table can be read as well.

So a reader that opens all files of `current_files` reads every row once, unless one is gone, merged or expired: list
again.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
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
NAME = re.compile(r"(\d{8})(?:T(\d{2})(\d{7})?)?(?:\.(\d+))?\.parquet")
DAY, HOUR, SAMPLE = "%Y%m%d", "%Y%m%dT%H", "%Y%m%dT%H%M%S%f"
ONE_HOUR, ONE_DAY, AN_INSTANT = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(milliseconds=1)
MAX_RETRIES, RETRY_BACKOFF_S = 20, 0.05  # files are removed once an hour


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table."""

    # start, stop: due times of its samples: from `start` to before `stop`
    start: dt.datetime
    stop: dt.datetime
    merges: int  # number of the merge that wrote it; of a sample, the last one before it
    name: str

    @property
    def is_sample(self) -> bool:
        """Whether it has one sample, not merged yet."""
        return self.stop - self.start == AN_INSTANT


def table_file(name: str) -> TableFile | None:
    """The samples of a file, by its name; null for other files and the empty one."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    day, hour, rest, merges = match.groups()
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
    return TableFile(start, start + length, int(merges or 0), name)


def floor_time(time: dt.datetime, interval: dt.timedelta) -> dt.datetime:
    """The last multiple of an interval since 1970 that is not after a time."""
    return EPOCH + (time - EPOCH) // interval * interval


def sample_name(due: dt.datetime, merges: int = 0) -> str:
    """File name of a sample."""
    return f"{due.astimezone(dt.UTC):{SAMPLE}}"[:-3] + (f".{merges}.parquet" if merges else ".parquet")


def merged_name(start: dt.datetime, *, whole_day: bool, merges: int) -> str:
    """File name of a whole day, or of an hour."""
    return f"{start.astimezone(dt.UTC):{DAY if whole_day else HOUR}}.{merges}.parquet"


def is_recording(directory: Path) -> bool:
    """Whether a folder is a recording."""
    return (directory / "samples").is_dir()


def current_files(names: Callable[[], Iterable[str]]) -> list[TableFile]:
    """The files to read of a table, by time: those that no other one replaces.

    `names`: lists the names in its folder.
    """
    listed = set(names())
    while (again := set(names())) != listed:
        listed = again  # a listing may lack both a file that was added meanwhile and those that it replaces
    files = [file for file in map(table_file, listed) if file is not None]
    current: list[TableFile] = []
    enclosing: list[TableFile] = []
    for file in sorted(files, key=lambda each: (each.start, each.start - each.stop, -each.merges)):
        enclosing = [each for each in enclosing if each.stop > file.start]
        if not any(each.stop >= file.stop and each.merges > file.merges for each in enclosing):
            current.append(file)
            enclosing.append(file)
    return current


def files_of(directory: Path, table: str) -> list[TableFile]:
    """The files to read of a table, by time. Raises FileNotFoundError if it does not exist."""
    return current_files(functools.partial(os.listdir, directory / table))


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
            paths = [str(directory / table / file.name) for file in files]
            return _read(table, paths, start=start, stop=stop, columns=columns)
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
    paths: Sequence[str],
    *,
    start: dt.datetime | None,
    stop: dt.datetime | None,
    columns: Sequence[str] | None,
) -> pa.Table:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    schema = RECORDED[table].arrow_schema
    if not paths:
        empty = schema.empty_table()
        return empty if columns is None else empty.select(columns)
    bounds = ((start, pc.greater_equal), (stop, pc.less))
    terms = [compare(pc.field("sampled_at"), pc.scalar(bound)) for bound, compare in bounds if bound is not None]
    condition = functools.reduce(operator.and_, terms) if terms else None
    dataset = ds.dataset(paths, schema=schema, format="parquet")
    rows = dataset.to_table(filter=condition, columns=list(columns) if columns else None)
    rows.validate(full=True)  # Arrow takes any bytes for text, and Python would fail at them
    order = [(name, "ascending") for name in RECORDED[table].sort if columns is None or name in columns]
    return rows.sort_by(order)
