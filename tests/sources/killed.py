"""Kill a writer of a recording before each of its file operations in turn, and check the result.

A process of its own: each attempt is a child that really is killed (SIGKILL), on a recording of its own.
"""

import datetime as dt
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.sources.recorded import NINE, files, rows_of, sample
from tests.tiers import is_full
from toolkit.schema import RECORDED, Row
from toolkit.sources.recording import recorder as writer_module
from toolkit.sources.recording.recorder import SampleWriter
from toolkit.sources.recording.recording import files_of, read, sample_name

OPERATIONS = {"open", "os.mkdir", "os.remove", "os.rename", "os.truncate"}
LATER = NINE + dt.timedelta(hours=2)
WRITTEN = [sample(NINE + dt.timedelta(minutes=30 * each)) for each in range(4)]  # of 9 and 10 o'clock
NEXT = sample(LATER, partitions=3)

MERGED = ["samples", "findings"]  # the others are merged as these are

EVERY = 1 if is_full() else 2  # how far apart the operations are that it is killed before

Step = Callable[[Path], None]


def write(directory: Path) -> None:
    with SampleWriter(directory) as writer:
        writer.write(NEXT)


def merge(directory: Path, now: dt.datetime = LATER) -> None:
    with SampleWriter(directory) as writer:
        writer_module.TABLES = MERGED
        assert writer.merge(now=now) > 0


def merge_the_day(directory: Path) -> None:
    merge(directory, NINE + dt.timedelta(days=1))


def start(directory: Path) -> None:
    SampleWriter(directory).close()


def half_merged(directory: Path) -> None:
    """What a kill between the rename of a merged file and the removal of those that it replaces leaves, and others."""
    shutil.copytree(directory, directory.parent / "before")
    merge(directory)
    shutil.copytree(directory.parent / "before", directory, dirs_exist_ok=True)
    shutil.copy(directory / "findings" / sample_name(NINE), directory / "findings" / ".some.parquet.part")
    pq.write_table(rows_of([NEXT], "findings"), directory / "findings" / sample_name(NEXT.due))


def nothing(directory: Path) -> None:
    pass


SCENES: dict[str, tuple[Step, Step]] = {  # the previous state, and the killed process
    "write": (nothing, write),
    "merge": (nothing, merge),
    "merge_again": (merge, merge_the_day),
    "merge_what_a_kill_left": (half_merged, merge_the_day),
    "start": (half_merged, start),
}


def killed_before(operation: int, step: Step, directory: Path) -> bool:
    """Whether a child that does this was killed before its n-th operation on files; not, if it has fewer."""
    child = os.fork()
    if child == 0:
        left = operation

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event not in OPERATIONS or (event == "open" and str(directory) not in str(arguments[0])):
                return
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        sys.addaudithook(count)
        step(directory)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, f"the child failed: {status}"
    return status != 0


def plainly(directory: Path, table: str) -> list[Row]:
    """Rows as a reader of Parquet files finds them that knows nothing of recordings."""
    rows: list[Row] = ds.dataset(directory / table, format="parquet").to_table().to_pylist()
    return rows


def check(directory: Path, where: str, tables: Iterable[str]) -> None:
    """What was written is there once; of what was in flight all, or nothing that counts."""
    whole = {row["sampled_at"] for row in read(directory, "samples").to_pylist()}
    samples = [each for each in (*WRITTEN, NEXT) if each.due in whole]
    assert len(samples) >= len(WRITTEN), f"{where}: lost {len(WRITTEN) - len(samples)} samples"
    for table in tables:
        expected = rows_of(samples, table).to_pylist()
        found = [row for row in read(directory, table).to_pylist() if row["sampled_at"] in whole]
        assert found == expected, f"{where}: {table} has {len(found)} rows, not {len(expected)}"
        plain = {str(row) for row in plainly(directory, table) if row["sampled_at"] in whole}
        assert plain == set(map(str, expected)), f"{where}: {table} read plainly, where some may be there twice"


def check_restarted(directory: Path, where: str) -> None:
    """Started again nothing is hidden or half there, and the sample can be written, once."""
    with SampleWriter(directory) as writer:
        left = [name for name in files(directory) if "/." in f"/{name}" and name != ".lock"]
        assert not left, f"{where}: {left}"
        due = {each.due for each in (*WRITTEN, NEXT) if writer.has(each.due)}
        assert {file.start for table in RECORDED for file in files_of(directory, table) if file.is_sample} <= due, where
        writer.write(NEXT)
        assert not writer.write(NEXT)
    for table in RECORDED:
        expected = rows_of([*WRITTEN, NEXT], table)
        assert read(directory, table).equals(expected), f"{where}: {table} after a restart"
        assert len(plainly(directory, table)) == len(expected), f"{where}: {table} read plainly after a restart"


def main(context: str, scratch: Path) -> None:
    os.fsync = lambda fd: None  # it takes most of the time, and only the process is killed here, not the machine
    before, step = SCENES[context]
    written = scratch / "written"
    with SampleWriter(written) as writer:
        for each in WRITTEN:
            assert writer.write(each)
    in_a_child(before, written)
    operation, was_killed = random.randrange(EVERY), True
    while was_killed:
        directory = Path(tempfile.mkdtemp(dir=scratch)) / "recording"
        shutil.copytree(written, directory)
        was_killed = killed_before(operation, step, directory)
        where = f"{context}, killed before operation {operation}" if was_killed else f"{context}, not killed"
        tables = MERGED if step in {merge, merge_the_day} else RECORDED
        check(directory, where, tables)
        check_restarted(directory, where)
        shutil.rmtree(directory)
        operation += EVERY
    print(operation - EVERY)


def in_a_child(step: Step, directory: Path) -> None:
    """Do something that changes this module as well."""
    child = os.fork()
    if child == 0:
        step(directory)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
