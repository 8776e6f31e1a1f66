"""Write samples of a recording atomically.

Every table is a folder of Parquet files with exactly the declared columns. A file is written under a hidden name,
flushed and renamed, so that it is never partial. The row of ``samples`` is written last: a sample without it is
incomplete and removed at the next start. A kill loses only the sample in flight. `compaction` merges files.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import UsageError
from toolkit.schema import RECORDED
from toolkit.sources.recording import durable_files
from toolkit.sources.recording.compaction import merge, recover_compaction
from toolkit.sources.recording.recording_folder import (
    AN_INSTANT,
    EMPTY,
    HIDDEN,
    files_of,
    is_recording,
    sample_name,
    sample_times,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from toolkit.sources.recording.sampler import Sample

LOCK = f"{HIDDEN}lock"
TABLES = ["samples", *(name for name in RECORDED if name != "samples")]  # `is_recording` looks for samples


class SampleWriter:
    """Writes a recording, under a lock; others may read it meanwhile.

    Parameters
    ----------
    directory
        Its folder, created if missing. Leftovers of a killed process are cleaned up.

    Raises
    ------
    UsageError
        If another process writes to it, it has other content, or it cannot be written.
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

        Returns
        -------
        bool
            Whether it was written.

        Raises
        ------
        OSError
            If it cannot be written, for example on a full disk; nothing of it is left.
        """
        if self.has(sample.due):
            return False
        paths = {table: self.directory / table / sample_name(sample.due) for table in TABLES}
        try:
            for table in reversed(TABLES):
                if sample.tables[table]:
                    self._put(paths[table], RECORDED[table].arrow(sample.tables[table]))
                else:
                    paths[table].unlink(missing_ok=True)  # left by a failed write
        except BaseException:
            for path in paths.values():
                path.unlink(missing_ok=True)
            raise
        return True

    def merge(self, *, now: dt.datetime) -> int:
        """Merge the files of each hour and day that ended by `now`.

        Returns
        -------
        int
            Reduction in the number of files.

        Raises
        ------
        OSError
            If it cannot be written; the files are unchanged.
        """
        return sum(merge(self.directory, table, now=now) for table in TABLES)

    def retire(self, *, before: dt.datetime) -> int:
        """Remove files whose samples were all due before a time.

        Returns
        -------
        int
            Number of files removed.
        """
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except (FileNotFoundError, pa.ArrowInvalid):
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
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor
