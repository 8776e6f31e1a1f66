"""Write samples of a recording atomically, and merge their files.

Every table is a folder of Parquet files with exactly the declared columns. A file is written under a hidden name,
flushed and renamed, so that it is never partial. The row of ``samples`` is written last: a sample without it is
incomplete and removed at the next start. A kill loses only the sample in flight.

`merge` leaves one file per past hour, then one per past day. Readers, also of plain Parquet files, must find each row
exactly once at any time, and a kill must lose nothing. Renames within one folder cannot ensure that: rows would be
missing or duplicated between them. So the table's folder is replaced at once:

1. Fill a hidden folder with hard links to the unchanged files and with the merged files, and flush it.
2. Swap both folders in one system call (``renameat2`` with ``RENAME_EXCHANGE``).
3. Remove the old folder, which is hidden now; unchanged files keep their link in the new one.

A kill before or after 2 leaves a complete table and a hidden folder, which the next start removes. On systems without
the swap, step 2 is two renames: the old folder away, then the new one in. Between them a plain reader gets an error,
`Recording` reads the old folder, and a start after a kill restores it.

A reader that listed files before 2 and opens them after it also gets an error, never wrong rows, since names are not
reused. One that lists them meanwhile may miss some, as pyarrow and Spark leave out a name that is gone when they look
at its size: `files_of` lists until two listings are the same.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import UsageError
from toolkit.schema import RECORDED
from toolkit.sources.recording import durable_files
from toolkit.sources.recording.recording_folder import (
    AN_INSTANT,
    EMPTY,
    HIDDEN,
    ONE_DAY,
    ONE_HOUR,
    TableFile,
    damaged,
    files_of,
    floor_time,
    is_damage,
    is_recording,
    merged_name,
    next_folder,
    old_folder,
    sample_name,
    sample_times,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from toolkit.sources.recording.sampler import Sample


MAX_DAY_BYTES = 256 << 20  # days with more stay in hourly files
ROW_GROUP_ROWS = 1 << 16

MergeWindow = tuple[dt.datetime, dt.timedelta]  # start and length of a day or an hour


def merge(directory: Path, table: str, *, now: dt.datetime) -> int:
    """Merge the files of hours and days that ended by `now`.

    Returns: reduction in the number of files.
    `directory`: the recording; no other process may write to it.
    `now`: current time; its hour and day are not merged.
    Raises OSError if it cannot be written; the table is unchanged. Raises DecodeError if a file is damaged; the table
    is unchanged.
    """
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
        if is_damage(error):
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


LOCK = f"{HIDDEN}lock"
TABLES = ["samples", *(name for name in RECORDED if name != "samples")]  # `is_recording` looks for samples


class SampleWriter:
    """Writes a recording, under a lock; others may read it meanwhile.

    `directory`: its folder, created if missing. Leftovers of a killed process are cleaned up.
    Raises UsageError if another process writes to it, it has other content, or it cannot be written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if any(path.name != LOCK for path in self.directory.iterdir()) and not is_recording(self.directory):
                raise UsageError(f"{directory} is not a recording and not empty.", do="Use another --output folder.")
            self._lock = _locked(self.directory)
        except OSError as error:
            raise UsageError(f"{directory} cannot be written to: {error.strerror}.") from error
        try:
            self._recover()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise UsageError(f"{directory} cannot be written to: {error.strerror}.") from error
            raise

    def __enter__(self) -> SampleWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def has(self, due: dt.datetime) -> bool:
        """Whether the sample of a time is recorded."""
        return bool(sample_times(self.directory, due, due + AN_INSTANT))

    def write(self, sample: Sample) -> bool:
        """Write a sample, unless it is recorded already.

        Returns: whether it was written.
        Raises OSError if it cannot be written, for example on a full disk; nothing of it is left.
        """
        if self.has(sample.due):
            return False
        rows = sample.tables
        paths = {table: self.directory / table / sample_name(sample.due) for table in TABLES}
        try:
            for table in reversed(TABLES):
                if rows[table]:
                    self._put(paths[table], RECORDED[table].arrow(rows[table]))
                else:
                    paths[table].unlink(missing_ok=True)  # left by a failed write
        except BaseException:
            for path in paths.values():
                path.unlink(missing_ok=True)
            raise
        return True

    def merge(self, *, now: dt.datetime) -> int:
        """Merge the files of each hour and day that ended by `now`.

        Returns: reduction in the number of files. Raises OSError if it cannot be written; the files are unchanged.
        """
        return sum(merge(self.directory, table, now=now) for table in TABLES)

    def retire(self, *, before: dt.datetime) -> int:
        """Remove files whose samples were all due before a time. Returns: number of files removed."""
        removed = 0
        for table in TABLES:  # samples first: its row makes a sample complete
            for file in files_of(self.directory, table):
                if file.stop <= before:
                    file.path.unlink()
                    removed += 1
        return removed

    def _recover(self) -> None:
        for table in TABLES:
            recover_compaction(self.directory, table)
            (self.directory / table).mkdir(exist_ok=True)
            for path in (self.directory / table).glob(f"{HIDDEN}*.part"):
                path.unlink()
            empty, schema = self.directory / table / EMPTY, RECORDED[table].arrow_schema
            if _columns(empty) != schema:  # without rows, so that an empty table can be read
                self._put(empty, schema.empty_table())
        self._remove_incomplete()

    def _remove_incomplete(self) -> None:
        unmerged = [file for table in TABLES for file in files_of(self.directory, table) if file.is_sample]
        if not unmerged:
            return
        times = {file.start for file in unmerged}
        complete = set(sample_times(self.directory, min(times), max(times) + AN_INSTANT))
        for file in unmerged:
            if file.start not in complete:
                file.path.unlink()

    def _put(self, path: Path, rows: pa.Table) -> None:
        import pyarrow.parquet as pq

        with durable_files.writing(path) as out:
            pq.write_table(rows, out, compression="zstd")
        durable_files.flush(path.parent)


def _columns(path: Path) -> pa.Schema | None:
    """The columns of a file; null if it is missing or damaged."""
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except FileNotFoundError:
        return None
    except Exception as error:
        if not is_damage(error):
            raise
        return None


def _locked(directory: Path) -> int:
    """Lock the recording; the lock ends with this process."""
    try:
        import fcntl
    except ImportError as error:
        raise UsageError("A recorder runs on Linux and macOS.", do="On Windows, use it inside WSL.") from error
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        os.close(descriptor)
        owner = f"process {holder}" if holder else "another process"
        raise UsageError(f"{directory} is in use by {owner}.", do="Use one folder per recorder.") from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError:
        os.close(descriptor)  # an open descriptor keeps the lock
        raise
    return descriptor
