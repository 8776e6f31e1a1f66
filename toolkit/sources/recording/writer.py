"""What writes a recording: each sample at once and whole, or not at all.

Every table is a folder of Parquet files with exactly the declared columns. A file is written under a hidden name beside
its place, flushed to the disk, and renamed: so a name never stands for half a file. The row of ``samples`` comes last:
a sample that has none is not whole, and what else is there of it is removed at the next start. A kill therefore loses
the sample in flight and nothing else. How files become fewer without a moment at which a row is missing or there twice
is said in `toolkit.sources.recording.merge`.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import UsageError
from toolkit.schema import RECORDED
from toolkit.sources.recording import durable
from toolkit.sources.recording.folder import files_of, is_recording, sample_times
from toolkit.sources.recording.merge import merge, undo_half_a_merge
from toolkit.sources.recording.names import AN_INSTANT, EMPTY, HIDDEN, sample_name

if TYPE_CHECKING:
    import pyarrow as pa

    from toolkit.sources.recording.sample import Sample

__all__ = ["Writer"]

LOCK = f"{HIDDEN}lock"
TABLES = ["samples", *(name for name in RECORDED if name != "samples")]  # a folder with samples is a recording


class Writer:
    """A recording that is written to; nobody else writes to it meanwhile, and anybody may read it.

    Parameters
    ----------
    directory
        Where it is; made where there is none. What a killed process has left behind is put right.

    Raises
    ------
    UsageError
        If another process writes there, something else lies there, or it cannot be written to.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if any(path.name != LOCK for path in self.directory.iterdir()) and not is_recording(self.directory):
                raise UsageError(f"{directory} is no recording and not empty.", do="Name another --output folder.")
            self._lock = _locked(self.directory)
        except OSError as error:
            raise UsageError(f"{directory} cannot be written to: {error.strerror}.") from error
        try:
            self._put_right()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise UsageError(f"{directory} cannot be written to: {error.strerror}.") from error
            raise

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def has(self, due: dt.datetime) -> bool:
        """Whether the sample of that time is there."""
        return bool(sample_times(self.directory, due, due + AN_INSTANT))

    def write(self, sample: Sample) -> bool:
        """Write a sample, unless it is there.

        Returns
        -------
        bool
            Whether it was not.

        Raises
        ------
        OSError
            If it cannot be written, for want of space or otherwise; then nothing of it is left.
        """
        if self.has(sample.due):
            return False
        try:
            for table in reversed(TABLES):
                self._write(table, sample)
        except BaseException:
            self._remove(sample.due)
            raise
        return True

    def merge(self, *, now: dt.datetime) -> int:
        """Merge the files of hours and days that are over by `now`, into one each.

        Returns
        -------
        int
            How many files there are less.

        Raises
        ------
        OSError
            If it cannot be written; then there are as many as before.
        """
        return sum(merge(self.directory, table, now=now) for table in TABLES)

    def retire(self, *, before: dt.datetime) -> int:
        """Remove files of which every sample was due before a time.

        Returns
        -------
        int
            How many.
        """
        removed = 0
        for table in TABLES:  # first the row that makes a sample whole
            for file in files_of(self.directory, table):
                if file.stop <= before:
                    file.path.unlink()
                    removed += 1
        return removed

    def _put_right(self) -> None:
        for table in TABLES:
            undo_half_a_merge(self.directory, table)
            (self.directory / table).mkdir(exist_ok=True)
            for path in (self.directory / table).glob(f"{HIDDEN}*.part"):
                path.unlink()
            self._write_empty(table)
        self._remove_what_is_not_whole()

    def _remove_what_is_not_whole(self) -> None:
        alone = [file for table in TABLES for file in files_of(self.directory, table) if file.is_sample]
        if not alone:
            return
        times = {file.start for file in alone}
        whole = set(sample_times(self.directory, min(times), max(times) + AN_INSTANT))
        for file in alone:
            if file.start not in whole:
                file.path.unlink()

    def _write_empty(self, table: str) -> None:
        """A file without rows, so that a table which nothing was recorded of can be read too."""
        path, schema = self.directory / table / EMPTY, RECORDED[table].arrow_schema
        if _columns(path) != schema:
            self._put(path, schema.empty_table())

    def _write(self, table: str, sample: Sample) -> None:
        path = self.directory / table / sample_name(sample.due)
        if sample.tables[table]:
            self._put(path, RECORDED[table].arrow(sample.tables[table]))
        else:
            path.unlink(missing_ok=True)  # of a sample that failed

    def _put(self, path: Path, rows: pa.Table) -> None:
        import pyarrow.parquet as pq

        with durable.writing(path) as out:
            pq.write_table(rows, out, compression="zstd")
        durable.flush(path.parent)

    def _remove(self, due: dt.datetime) -> None:
        for table in TABLES:
            (self.directory / table / sample_name(due)).unlink(missing_ok=True)


def _columns(path: Path) -> pa.Schema | None:
    """The columns of a file; null where it is not there, or not whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except (FileNotFoundError, pa.ArrowInvalid):
        return None


def _locked(directory: Path) -> int:
    """A lock on the recording, which goes with this process however it ends."""
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
        who = f"process {holder}" if holder else "another process"
        raise UsageError(f"{directory} is written to by {who}.", do="One recorder to a folder.") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor
