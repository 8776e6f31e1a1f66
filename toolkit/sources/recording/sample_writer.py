"""Write samples of a recording atomically, and merge their files.

Every table is a folder of Parquet files with exactly the declared columns. A file is written under a hidden name,
flushed and renamed, so that it is never partial. The row of ``samples`` is written last: a sample without it is
incomplete and removed at the next start. A kill loses only the sample in flight.

A merge leaves one file per past hour, then one per past day. Readers must find each sample exactly once at any time,
and a kill must lose nothing:

1. The merged file is written under a hidden name, flushed, renamed, and the folder is flushed. Its name says which
   files it replaces: from now on readers ignore these (`recording_folder.current_files`).
2. The replaced files are deleted. A start and the next merge delete what a kill leaves of them.

Who reads all Parquet files of a folder instead finds each sample once as well, and some of them twice between 1 and 2.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping, Sequence
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
    sample_name,
    sample_times,
    table_file,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from toolkit.sources.recording.sampler import Sample


MAX_DAY_BYTES = 256 << 20  # days with more stay in hourly files
ROW_GROUP_ROWS = 1 << 16

LOCK = f"{HIDDEN}lock"
TABLES = ["samples", *(name for name in RECORDED if name != "samples")]  # `is_recording` looks for samples


class SampleWriter:
    """Writes a recording, under a lock; others may read it meanwhile.

    `directory`: its folder, created if missing. Leftovers of a killed process are cleaned up.
    Raises UsageError if another process writes to it, it has other content, or it cannot be written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._merges = 0
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
        paths = {table: self.directory / table / sample_name(sample.due, self._merges) for table in TABLES}
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

        Returns: reduction in the number of files.
        Raises OSError if it cannot be written, DecodeError if a file is damaged; no sample is lost.
        """
        self._remove_leftovers()
        merges, removed = self._merges + 1, 0
        for table in TABLES:
            folder = self.directory / table
            for (start, length), files in _groups(folder, files_of(self.directory, table), now).items():
                self._merges = merges  # samples written from now on are not replaced
                paths = [folder / file.name for file in files]
                _merge(folder / merged_name(start, whole_day=length == ONE_DAY, merges=merges), paths, table)
                for path in paths:
                    path.unlink()
                removed += len(paths) - 1
        return removed

    def retire(self, *, before: dt.datetime) -> int:
        """Remove files whose samples were all due before a time. Returns: number of files removed."""
        self._remove_replaced()  # before those that replace them
        removed = 0
        for table in TABLES:  # samples first: its row makes a sample complete
            for file in files_of(self.directory, table):
                if file.stop <= before:
                    (self.directory / table / file.name).unlink()
                    removed += 1
        return removed

    def _recover(self) -> None:
        for table in TABLES:
            folder = self.directory / table
            folder.mkdir(exist_ok=True)
            for path in folder.glob(f"{HIDDEN}*.part"):
                path.unlink()
            if not (folder / EMPTY).exists():  # without rows, so that an empty table can be read
                self._put(folder / EMPTY, RECORDED[table].arrow_schema.empty_table())
        self._remove_leftovers()
        self._merges = max((file.merges for table in TABLES for file in files_of(self.directory, table)), default=0)

    def _remove_leftovers(self) -> None:
        """Remove what a killed process or a failed write left."""
        self._remove_replaced()
        unmerged = [(table, file) for table in TABLES for file in files_of(self.directory, table) if file.is_sample]
        if not unmerged:
            return
        times = {file.start for _, file in unmerged}
        complete = set(sample_times(self.directory, min(times), max(times) + AN_INSTANT))
        for table, file in unmerged:
            if file.start not in complete:
                (self.directory / table / file.name).unlink()

    def _remove_replaced(self) -> None:
        for table in TABLES:
            current = {file.name for file in files_of(self.directory, table)}
            for name in os.listdir(self.directory / table):
                if table_file(name) is not None and name not in current:
                    (self.directory / table / name).unlink()

    def _put(self, path: Path, rows: pa.Table) -> None:
        import pyarrow.parquet as pq

        with durable_files.writing(path) as out:
            pq.write_table(rows, out, compression="zstd")
        durable_files.flush(path.parent)


def _groups(
    folder: Path, files: Iterable[TableFile], now: dt.datetime
) -> Mapping[tuple[dt.datetime, dt.timedelta], list[TableFile]]:
    """The files to merge, by start and length of their day or hour."""
    days: dict[dt.datetime, list[TableFile]] = {}
    for file in files:
        days.setdefault(floor_time(file.start, ONE_DAY), []).append(file)
    groups: dict[tuple[dt.datetime, dt.timedelta], list[TableFile]] = {}
    for day, of_day in days.items():
        if day + ONE_DAY <= now and sum((folder / file.name).stat().st_size for file in of_day) <= MAX_DAY_BYTES:
            groups[day, ONE_DAY] = of_day
            continue
        for file in of_day:
            hour = floor_time(file.start, ONE_HOUR)
            if hour + ONE_HOUR <= now and file.stop - file.start <= ONE_HOUR:
                groups.setdefault((hour, ONE_HOUR), []).append(file)
    return {window: group for window, group in groups.items() if len(group) > 1}


def _merge(path: Path, paths: Sequence[Path], table: str) -> None:
    """Write the rows of files to a new file, a row group at a time."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    schema = RECORDED[table].arrow_schema
    rows = ds.dataset([str(each) for each in paths], schema=schema, format="parquet")
    try:
        with durable_files.writing(path) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
            batches: list[pa.RecordBatch] = []
            for batch in rows.to_batches():
                batches.append(batch)
                if sum(each.num_rows for each in batches) >= ROW_GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(batches))
                    batches = []
            writer.write_table(pa.Table.from_batches(batches, schema))
    except Exception as error:
        if not is_damage(error):
            raise
        raise damaged(path.parent, error) from error
    durable_files.flush(path.parent)


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
