"""Names of a recording's files: the time that their rows are of, so that a listing tells what is where.

``20261121T095830000.parquet``
    One sample, by the time that it was due.
``20261121T09.3600.parquet``, ``20261121.86400.parquet``
    All samples of an hour, or of a day, and how many rows that is: whatever is merged into it later has another name,
    so that a name always stands for the same bytes.
``00000000.empty.parquet``
    No rows, but the columns: so that a table that nothing was recorded of can be read as well.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EMPTY", "HIDDEN", "ONE_DAY", "ONE_HOUR", "Recorded", "merged_name", "recorded", "sample_name"]

EMPTY = "00000000.empty.parquet"
HIDDEN = "."  # what begins with it is not there for Spark, for pyarrow's datasets and for globs
NAME = re.compile(r"(\d{8})(?:T(\d{2})(\d{7})?)?(?:\.\d+)?\.parquet")
DAY, HOUR, SAMPLE = "%Y%m%d", "%Y%m%dT%H", "%Y%m%dT%H%M%S%f"
ONE_HOUR, ONE_DAY, AN_INSTANT = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class Recorded:
    """A file of a table.

    Parameters
    ----------
    start, stop
        Its samples were due from `start` to before `stop`.
    path
        Where it is.
    """

    start: dt.datetime
    stop: dt.datetime
    path: Path

    @property
    def is_sample(self) -> bool:
        """Whether it holds one sample, as it was written first."""
        return self.stop - self.start == AN_INSTANT


def recorded(path: Path) -> Recorded | None:
    """Which samples a file holds, by its name; null where it is none of ours, or has no rows."""
    found = NAME.fullmatch(path.name)
    if found is None or path.name == EMPTY:
        return None
    day, hour, rest = found.groups()
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
    return Recorded(start, start + length, path)


def sample_name(due: dt.datetime) -> str:
    """Name of a sample's file."""
    return f"{due.astimezone(dt.UTC):{SAMPLE}}"[:-3] + ".parquet"


def merged_name(start: dt.datetime, *, whole_day: bool, rows: int) -> str:
    """Name of the file of a whole day, or of an hour."""
    return f"{start.astimezone(dt.UTC):{DAY if whole_day else HOUR}}.{rows}.parquet"
