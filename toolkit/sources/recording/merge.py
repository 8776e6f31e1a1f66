"""Many files of a table to few: those of an hour that is over to one, and those of a day that is over to one.

A reader, also one that lists and reads plain Parquet files, has to find each row exactly once at every instant, and a
kill at any instant must lose nothing. No order of renames within one folder gives that: between the instant where the
merged file comes and the one where the last of its sources goes, rows are there twice, or not at all. So the folder
of the table changes as a whole:

1. A hidden folder beside it is filled: hard links to the files that stay, and the merged ones, written out to the disk.
2. Both folders change their names in one system call (``renameat2`` with ``RENAME_EXCHANGE``): before it a reader lists
   the old files, after it the new ones; no row is missing or there twice in either.
3. The old folder, hidden now, is removed; files that stay have their second name still.

Killed before 2, the table is as it was; after 2, it is as it shall be. Either way a hidden folder is left that the next
start removes. Where the system cannot exchange folders, 2 is two renames: away with the old one, then in with the new
one. A plain reader that asks between the two finds no such folder, which is an error and not an answer; `Recording`
looks at the old one; and a start after a kill between the two puts the old one back.

Who had listed the old files before 2 and opens them after it does not find them: an error again, and no wrong answer,
since no name is ever given twice.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.schema import RECORDED
from toolkit.sources.recording import durable
from toolkit.sources.recording.folder import damaged, files_of, next_folder, old_folder, sample_times
from toolkit.sources.recording.names import HIDDEN, ONE_DAY, ONE_HOUR, Recorded, merged_name

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["merge", "undo_half_a_merge"]

LARGEST = 256 << 20  # bytes that the files of a day may have to be merged into one
ROWS = 1 << 16  # of a row group

Span = tuple[dt.datetime, dt.timedelta]  # the beginning and the length of a day or an hour


def merge(directory: Path, table: str, *, now: dt.datetime) -> int:
    """Merge what is over by `now`, if there is anything.

    Parameters
    ----------
    directory
        The recording; nobody else may write to it.
    now
        The hour and the day of this time still go on.

    Returns
    -------
    int
        How many files there are less.

    Raises
    ------
    OSError
        If it cannot be written; then the table is as it was.
    DecodeError
        If a file is not whole; the same.
    """
    from pyarrow import ArrowInvalid

    files = files_of(directory, table)
    several = {span: _whole(directory, group) for span, group in _groups(files, now).items() if len(group) > 1}
    groups = {span: group for span, group in several.items() if len(group) > 1}
    if not groups:
        return 0
    undo_half_a_merge(directory, table)
    folder = next_folder(directory, table)
    folder.mkdir()
    try:
        _fill(folder, directory / table, table, groups)
    except BaseException as error:
        durable.remove(folder)
        if isinstance(error, ArrowInvalid):
            raise damaged(directory / table, error) from error
        raise
    _take_place(directory, table)
    return sum(len(group) - 1 for group in groups.values())


def undo_half_a_merge(directory: Path, table: str) -> None:
    """Put things right where a process was killed while it merged."""
    old = old_folder(directory, table)
    if old.exists() and not (directory / table).exists():
        old.rename(directory / table)
    for leftover in (old, next_folder(directory, table)):
        durable.remove(leftover)


def _groups(files: Iterable[Recorded], now: dt.datetime) -> Mapping[Span, list[Recorded]]:
    """Files by the day or hour that they are of."""
    days: dict[dt.datetime, list[Recorded]] = {}
    for file in files:
        days.setdefault(_floor(file.start, ONE_DAY), []).append(file)
    found: dict[Span, list[Recorded]] = {}
    for day, of_day in days.items():
        if day + ONE_DAY <= now and sum(file.path.stat().st_size for file in of_day) <= LARGEST:
            found[day, ONE_DAY] = of_day
            continue
        for file in of_day:
            hour = _floor(file.start, ONE_HOUR)
            if hour + ONE_HOUR <= now and file.stop - file.start <= ONE_HOUR:
                found.setdefault((hour, ONE_HOUR), []).append(file)
    return found


def _whole(directory: Path, group: Sequence[Recorded]) -> list[Recorded]:
    """Those of the files whose samples are whole: what a failed write has left behind stays apart."""
    times = set(sample_times(directory, group[0].start, group[-1].stop))
    return [file for file in group if not file.is_sample or file.start in times]


def _fill(folder: Path, present: Path, table: str, groups: Mapping[Span, Sequence[Recorded]]) -> None:
    """Fill the folder that shall take the place of the present one."""
    merged = {file.path.name for group in groups.values() for file in group}
    for path in sorted(present.iterdir()):
        if path.name not in merged and not path.name.startswith(HIDDEN):
            durable.link(path, folder / path.name)
    for (start, length), group in groups.items():
        _write(folder, table, group, start=start, whole_day=length == ONE_DAY)
    durable.flush(folder)


def _write(folder: Path, table: str, group: Sequence[Recorded], *, start: dt.datetime, whole_day: bool) -> None:
    import pyarrow.parquet as pq

    schema = RECORDED[table].arrow_schema
    rows = sum(pq.read_metadata(file.path).num_rows for file in group)
    name = merged_name(start, whole_day=whole_day, rows=rows)
    with durable.writing(folder / name) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for part in _parts(schema, group):
            writer.write_table(part)


def _parts(schema: pa.Schema, group: Iterable[Recorded]) -> Iterator[pa.Table]:
    """The rows of files in their order, enough at a time."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    batches: list[pa.RecordBatch] = []
    for file in group:
        # With the columns of today: those that are new since the file was written are null.
        for batch in ds.dataset(str(file.path), schema=schema, format="parquet").to_batches():
            batches.append(batch)
            if sum(each.num_rows for each in batches) >= ROWS:
                yield pa.Table.from_batches(batches)
                batches = []
    yield pa.Table.from_batches(batches, schema)


def _take_place(directory: Path, table: str) -> None:
    """Have the new folder take the place of the old one."""
    new, present, old = next_folder(directory, table), directory / table, old_folder(directory, table)
    if durable.exchange(new, present):
        durable.flush(directory)
        durable.remove(new)
        return
    present.rename(old)
    new.rename(present)
    durable.flush(directory)
    durable.remove(old)


def _floor(time: dt.datetime, span: dt.timedelta) -> dt.datetime:
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return epoch + (time - epoch) // span * span
