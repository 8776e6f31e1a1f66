"""Merge the files of a table: one per past hour, then one per past day.

Readers, also of plain Parquet files, must find each row exactly once at any time, and a kill must lose nothing. Renames
within one folder cannot ensure that: rows would be missing or duplicated between them. So the table's folder is
replaced at once:

1. Fill a hidden folder with hard links to the unchanged files and with the merged files, and flush it.
2. Swap both folders in one system call (``renameat2`` with ``RENAME_EXCHANGE``).
3. Remove the old folder, which is hidden now; unchanged files keep their link in the new one.

A kill before or after 2 leaves a complete table and a hidden folder, which the next start removes. On systems without
the swap, step 2 is two renames: the old folder away, then the new one in. Between them a plain reader gets an error,
`Recording` reads the old folder, and a start after a kill restores it.

A reader that listed files before 2 and opens them after it also gets an error, never wrong rows, since names are not
reused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.schema import RECORDED
from toolkit.sources.recording import durable_files
from toolkit.sources.recording.recording_folder import (
    HIDDEN,
    ONE_DAY,
    ONE_HOUR,
    TableFile,
    damaged,
    files_of,
    floor_time,
    merged_name,
    next_folder,
    old_folder,
    sample_times,
)

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DAY_BYTES = 256 << 20  # days with more stay in hourly files
ROW_GROUP_ROWS = 1 << 16

MergeWindow = tuple[dt.datetime, dt.timedelta]  # start and length of a day or an hour


def merge(directory: Path, table: str, *, now: dt.datetime) -> int:
    """Merge the files of hours and days that ended by `now`.

    Parameters
    ----------
    directory
        The recording; no other process may write to it.
    table
        Name of the table.
    now
        Current time; its hour and day are not merged.

    Returns
    -------
    int
        Reduction in the number of files.

    Raises
    ------
    OSError
        If it cannot be written; the table is unchanged.
    DecodeError
        If a file is damaged; the table is unchanged.
    """
    from pyarrow import ArrowInvalid

    files = files_of(directory, table)
    candidates = {
        window: _complete(directory, group) for window, group in _groups(files, now).items() if len(group) > 1
    }
    groups = {window: group for window, group in candidates.items() if len(group) > 1}
    if not groups:
        return 0
    recover_compaction(directory, table)
    folder = next_folder(directory, table)
    folder.mkdir()
    try:
        _fill(folder, directory / table, table, groups)
    except BaseException as error:
        durable_files.remove(folder)
        if isinstance(error, ArrowInvalid):
            raise damaged(directory / table, error) from error
        raise
    _replace_folder(directory, table)
    return sum(len(group) - 1 for group in groups.values())


def recover_compaction(directory: Path, table: str) -> None:
    """Clean up after a process that was killed while merging."""
    old = old_folder(directory, table)
    if old.exists() and not (directory / table).exists():
        old.rename(directory / table)
    for leftover in (old, next_folder(directory, table)):
        durable_files.remove(leftover)


def _groups(files: Iterable[TableFile], now: dt.datetime) -> Mapping[MergeWindow, list[TableFile]]:
    """Files by day or hour."""
    days: dict[dt.datetime, list[TableFile]] = {}
    for file in files:
        days.setdefault(floor_time(file.start, ONE_DAY), []).append(file)
    groups: dict[MergeWindow, list[TableFile]] = {}
    for day, of_day in days.items():
        if day + ONE_DAY <= now and sum(file.path.stat().st_size for file in of_day) <= MAX_DAY_BYTES:
            groups[day, ONE_DAY] = of_day
            continue
        for file in of_day:
            hour = floor_time(file.start, ONE_HOUR)
            if hour + ONE_HOUR <= now and file.stop - file.start <= ONE_HOUR:
                groups.setdefault((hour, ONE_HOUR), []).append(file)
    return groups


def _complete(directory: Path, group: Sequence[TableFile]) -> list[TableFile]:
    """Files with complete samples, without leftovers of a failed write."""
    times = set(sample_times(directory, group[0].start, group[-1].stop))
    return [file for file in group if not file.is_sample or file.start in times]


def _fill(folder: Path, current: Path, table: str, groups: Mapping[MergeWindow, Sequence[TableFile]]) -> None:
    """Fill the folder that replaces the current one."""
    merged = {file.path.name for group in groups.values() for file in group}
    for path in sorted(current.iterdir()):
        if path.name not in merged and not path.name.startswith(HIDDEN):
            durable_files.link(path, folder / path.name)
    for (start, length), group in groups.items():
        _write(folder, table, group, start=start, whole_day=length == ONE_DAY)
    durable_files.flush(folder)


def _write(folder: Path, table: str, group: Sequence[TableFile], *, start: dt.datetime, whole_day: bool) -> None:
    import pyarrow.parquet as pq

    schema = RECORDED[table].arrow_schema
    rows = sum(pq.read_metadata(file.path).num_rows for file in group)
    name = merged_name(start, whole_day=whole_day, rows=rows)
    with durable_files.writing(folder / name) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for rows_of_group in _row_groups(schema, group):
            writer.write_table(rows_of_group)


def _row_groups(schema: pa.Schema, group: Iterable[TableFile]) -> Iterator[pa.Table]:
    """Rows of files in order, a row group at a time."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    batches: list[pa.RecordBatch] = []
    for file in group:
        # With the current columns: those that a file lacks are null.
        for batch in ds.dataset(str(file.path), schema=schema, format="parquet").to_batches():
            batches.append(batch)
            if sum(each.num_rows for each in batches) >= ROW_GROUP_ROWS:
                yield pa.Table.from_batches(batches)
                batches = []
    yield pa.Table.from_batches(batches, schema)


def _replace_folder(directory: Path, table: str) -> None:
    """Replace the table's folder with the new one."""
    new, current, old = next_folder(directory, table), directory / table, old_folder(directory, table)
    if durable_files.exchange(new, current):
        durable_files.flush(directory)
        durable_files.remove(new)
        return
    current.rename(old)
    new.rename(current)
    durable_files.flush(directory)
    durable_files.remove(old)
