"""File names of a recording, by the time of their rows.

``20261121T095830000.parquet``
    One sample, by its due time.
``20261121T09.3600.parquet``, ``20261121.86400.parquet``
    All samples of an hour or a day, with the number of rows: a later merge has another name, so that a name always
    stands for the same bytes.
``00000000.empty.parquet``
    The columns without rows, so that an empty table can be read as well.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path

from toolkit.schema.table import EPOCH

EMPTY = "00000000.empty.parquet"
HIDDEN = "."  # prefix that Spark, pyarrow's datasets and globs ignore
NAME = re.compile(r"(\d{8})(?:T(\d{2})(\d{7})?)?(?:\.\d+)?\.parquet")
DAY, HOUR, SAMPLE = "%Y%m%d", "%Y%m%dT%H", "%Y%m%dT%H%M%S%f"
ONE_HOUR, ONE_DAY, AN_INSTANT = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class TableFile:
    """A file of a table.

    Parameters
    ----------
    start, stop
        Due times of its samples: from `start` to before `stop`.
    path
        Its path.
    """

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
