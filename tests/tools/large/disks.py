"""Full and read-only disks under the audit trail, the recorder, and aborts with their copies.

Each disk is a small tmpfs of which a random part is free. What was written before must stay, of what did not fit
nothing may be left, an error must name the reason, and once there is room again the next attempt must succeed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

from tests.sources.recorded import files, rows_of, sample
from tests.tools.large.recorder import PATIENCE_S, RecorderProcess
from tests.tools.large.sitting import Sitting
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import plan_abort
from toolkit.errors import ActionRefused, AuditFailed, UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import RECORDED
from toolkit.schema.recorded import ActionStep
from toolkit.schema.table import EPOCH
from toolkit.sources.recording.recorder import SampleWriter
from toolkit.sources.recording.recording import Sample, read

if TYPE_CHECKING:
    pass

KIB, PAGE = 1024, 4096  # a tmpfs gives out pages
ACTION = ActionStep(action="abort", bootstrap_servers="localhost:9092", target="orders-0@7")
REASONS = FULL, READ_ONLY = ("No space left on device", "Read-only file system")


class Disk:
    """A tmpfs of its own; needs the right to mount.

    Parameters
    ----------
    size
        Its bytes.
    """

    def __init__(self, size: int) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="kafka-txn-disk-"))
        self._filler = self.path / ".filler"
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path)

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        # Spark's Java, which goes on, keeps files open that it could not write.
        subprocess.run(["umount", "--lazy", str(self.path)], check=True, timeout=60)
        self.path.rmdir()

    def leave(self, free: int) -> None:
        """Fill it up to so many free bytes."""
        self.clear()
        state = os.statvfs(self.path)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(PAGE, state.f_bavail * state.f_frsize - free))

    def clear(self) -> None:
        """Remove what fills it."""
        self._filler.unlink(missing_ok=True)

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Read-only until the block ends; no file may be open for writing."""
        _mount("-o", "remount,ro", self.path)
        try:
            yield
        finally:
            _mount("-o", "remount,rw", self.path)

    @contextlib.contextmanager
    def read_only_for_new_files(self) -> Iterator[None]:
        """Read-only until the block ends for files that are opened meanwhile."""
        _mount("--bind", self.path, self.path)
        try:
            _mount("-o", "remount,bind,ro", self.path)
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True, timeout=60)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, timeout=60)


def can_mount() -> bool:
    """Whether this process may mount."""
    try:
        with Disk(64 * KIB):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def run(sitting: Sitting) -> None:
    """All of them, in turn."""
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(Kafka("4.3.1", properties=EVERYDAY.properties, timeout=PATIENCE_S))
        cluster = stack.enter_context(Cluster(kafka.bootstrap_servers))
        for _ in sitting.numbers():
            audit_trail(sitting)
            recording(sitting)
            aborts(sitting, kafka, cluster)
            live_recorder(sitting, kafka)


def audit_trail(sitting: Sitting, attempts: int = 40) -> None:
    """Lines of many sizes with little room: whole ones only."""
    chance = sitting.chance
    with Disk(256 * KIB) as disk:
        audit, lines = Audit(disk.path / "audit" / "trail.jsonl"), 0
        for _ in range(attempts):
            disk.leave(chance.choice([0, 0, 1, 2, 3]) * PAGE)
            wanted = replace(ACTION, reason="x" * chance.randrange(9000))
            with contextlib.ExitStack() as stack:
                if chance.random() < 0.1 and audit.path.exists():
                    stack.enter_context(disk.read_only())
                    sitting.counts["audit: read-only"] += 1
                lines += _audited(sitting, audit, wanted, disk)
            sitting.counts["audit: actions"] += 1
            rows = audit.rows()
            sitting.check(
                len(rows) == lines and "unreadable" not in {row["step"] for row in rows},
                f"audit: {lines} whole lines, found {[row['step'] for row in rows][-4:]} of {len(rows)}",
            )
            if sitting.problems:
                return
        disk.clear()
        with audit.recording(ACTION):
            pass
        sitting.check(len(audit.rows()) == lines + 2, "audit: not written though there is room")


def _audited(sitting: Sitting, audit: Audit, wanted: ActionStep, disk: Disk) -> int:
    """How many lines were written."""
    lines = 0
    try:
        with audit.recording(wanted) as outcome:
            lines = 1
            outcome.response = "y" * sitting.chance.randrange(9000)
        lines = 2
    except (ActionRefused, AuditFailed) as error:
        sitting.counts[f"audit: {type(error).__name__}"] += 1
        sitting.check(isinstance(error, AuditFailed) == (lines == 1), f"audit: {error!r} after {lines} lines")
        sitting.check(any(reason in str(error) for reason in REASONS), f"audit: {error}")
    return lines


def recording(sitting: Sitting, steps: int = 25) -> None:
    """Samples, merges and starts with little room."""
    chance = sitting.chance
    with Disk(2048 * KIB) as disk:
        directory = disk.path / "recording"
        due, written = EPOCH + dt.timedelta(days=20_000), list[Sample]()
        writer: SampleWriter | None = None
        for _ in range(steps):
            disk.leave(int(2 ** chance.uniform(8, 20)))
            if writer is None:
                writer = _started(sitting, directory, disk)
                continue
            kind = chance.choices(["write", "merge", "stop"], [8, 2, 1])[0]
            sitting.counts[f"recording: {kind}"] += 1
            due += dt.timedelta(minutes=chance.choice([1, 40, 700]))
            new = sample(due, partitions=chance.choice([2, 3, 40]))
            with _noted(sitting, "recording"):
                if kind == "write":
                    writer.write(new)
                    written.append(new)
                elif kind == "merge":
                    writer.merge(now=due)
                else:
                    writer.close()
                    writer = None
            _check_recording(sitting, directory, written)
            if sitting.problems:
                return
        disk.clear()
        if writer is not None:
            writer.close()
        with SampleWriter(directory) as last:
            last.write(sample(due + dt.timedelta(days=2)))
            last.merge(now=due + dt.timedelta(days=3))
        written.append(sample(due + dt.timedelta(days=2)))
        _check_recording(sitting, directory, written)
        left = [name for name in files(directory) if "/." in f"/{name}" and name != ".lock"]
        sitting.check(not left, f"recording: left {left}")


def _started(sitting: Sitting, directory: Path, disk: Disk) -> SampleWriter | None:
    sitting.counts["recording: start"] += 1
    try:
        if sitting.chance.random() < 0.2:
            sitting.counts["recording: read-only"] += 1
            with disk.read_only():
                SampleWriter(directory).close()
            sitting.check(False, "recording: a writer started on a read-only disk")
        return SampleWriter(directory)
    except UsageError as error:
        sitting.counts["recording: not started"] += 1
        sitting.check(any(reason in str(error) for reason in REASONS), f"recording: {error}")
        return None


@contextlib.contextmanager
def _noted(sitting: Sitting, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        sitting.counts[f"{what}: OSError"] += 1
        sitting.check(error.strerror in REASONS, f"{what}: {error!r}")


def _check_recording(sitting: Sitting, directory: Path, written: list[Sample]) -> None:
    if not (directory / "samples").exists():
        return
    for table in RECORDED:
        expected = sorted(map(str, rows_of(written, table).to_pylist()))
        found = sorted(map(str, read(directory, table).to_pylist()))
        sitting.check(found == expected, f"recording: {table} has {len(found)} rows, not {len(expected)}")
        plain = ds.dataset(directory / table, format="parquet").to_table().to_pylist()
        sitting.check(sorted(map(str, plain)) == expected, f"recording: {table} read plainly: {len(plain)} rows")


def live_recorder(sitting: Sitting, kafka: Kafka, faults: int = 3) -> None:
    """``kafka-txn record`` while its disk is full or read-only: it says so, goes on, and writes again when it can."""
    chance = sitting.chance
    with Disk(8192 * KIB) as disk, tempfile.TemporaryDirectory() as folder:
        recorder = RecorderProcess(kafka, Path(folder), disk.path / "recording")
        recorder.start()
        recorder.await_sample()
        for _ in range(faults):
            reason, printed = chance.choice([FULL, FULL, READ_ONLY]), len(recorder.errors())
            sitting.counts[f"live recorder: {reason}"] += 1
            with disk.read_only_for_new_files() if reason == READ_ONLY else contextlib.nullcontext():
                if reason == FULL:
                    disk.leave(chance.choice([0, 1, 5, 20]) * PAGE)
                warning = f"they cannot be written: {reason}."
                until(lambda: warning in recorder.errors()[printed:] or None, awaited=warning, timeout=PATIENCE_S)  # noqa: B023
            disk.clear()
            recorder.await_sample()
        sitting.check(recorder.stop() == 0, f"live recorder: it ended: {recorder.errors()}")
        lost, again = (recorder.errors().count(text) for text in ("Samples are lost", "samples can be written again"))
        sitting.check(lost == again, f"live recorder: {recorder.errors()}")
        recorder.check_files(sitting)


def aborts(sitting: Sitting, kafka: Kafka, cluster: Cluster, attempts: int = 6) -> None:
    """The copy of the records, the intent and the outcome with little room, on a real broker."""
    chance = sitting.chance
    with INCIDENTS["never_added"](kafka, records=chance.choice([1, 400, 2000])) as staged, Disk(512 * KIB) as disk:
        audit = Audit(disk.path / "audit" / "trail.jsonl")
        for attempt in range(attempts):
            disk.leave(512 * KIB if attempt == attempts - 1 else int(2 ** chance.uniform(8, 16)))
            sitting.counts["abort: attempts"] += 1
            plan = plan_abort(cluster, _finding(cluster, staged))
            saved = disk.path / "audit" / "trail.records"
            try:
                done = plan.execute(confirm=plan.target, audit=audit, recheck_after=0.2)
            except ActionRefused as error:
                sitting.counts["abort: refused"] += 1
                sitting.check(any(reason in str(error) for reason in REASONS), f"abort: {error}")
                sitting.check(not saved.exists(), f"abort: refused, and left {files(disk.path)}")
                sitting.check(_finding(cluster, staged)["verdict"] == "hanging", "abort: refused, and ended")
                continue
            except AuditFailed as error:
                sitting.counts["abort: outcome not written"] += 1
                sitting.check(len(audit.unfinished()) == 1, f"abort: {error}, {audit.rows()}")
            else:
                sitting.counts["abort: done"] += 1
                sitting.check(done.records_saved is not None, "abort: without a copy")
            sitting.check(len(list(saved.iterdir())) == 1, f"abort: {files(disk.path)}")
            sitting.check("unreadable" not in {row["step"] for row in audit.rows()}, "abort: a torn line")
            return
        sitting.check(False, "abort: refused though there is room")


def _finding(cluster: Cluster, staged: StagedIncident) -> Any:
    (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=0.2)
    return row
