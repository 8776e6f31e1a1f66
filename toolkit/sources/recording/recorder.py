"""The flight recorder: a sample at every multiple of an interval, until stopped; it resumes an earlier recording.

A sample is an observation that is diagnosed with the previous one. Every table is a folder of Parquet files with
exactly the declared columns. A file is written under a hidden name, flushed and renamed, so that it is never partial.
The row of ``samples`` is written last: a sample without it is incomplete and removed at the next start. A kill loses
only the sample in flight.

A merge leaves one file per past hour, then one per past day. Readers must find each sample exactly once at any time,
and a kill must lose nothing:

1. The merged file is written under a hidden name, flushed, renamed, and the folder is flushed. Its name says which
   files it replaces: from now on readers ignore these (`recording.current_files`).
2. The replaced files are deleted. A start and the next merge delete what a kill leaves of them.

Who reads all Parquet files of a folder instead finds each sample once as well, and some of them twice between 1 and 2.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from toolkit.analysis.diagnosis.case import DEFAULTS, DiagnoseOptions
from toolkit.analysis.diagnosis.consumer_lag import group_lag
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, UNKNOWN_TIME, Observation
from toolkit.analysis.findings_over_time import LATE_PADDING_MS, first_seen, late_transactions, with_earlier
from toolkit.errors import BrokerError, ConnectionFailed, NotFound, ToolkitError, UsageError
from toolkit.schema import RECORDED
from toolkit.schema.live import Finding, GroupLag
from toolkit.schema.recorded import RecordedSample
from toolkit.schema.table import EPOCH, TopicPartition, TransactionKey
from toolkit.schema.verdict import Verdict
from toolkit.sources.diagnose import diagnose
from toolkit.sources.live.broker_client import OTHER_CLUSTER, BrokerClient, row_text
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.coordinators import longest_timeout_ms
from toolkit.sources.live.group_offsets import offsets_of_groups
from toolkit.sources.live.observe import LiveEvidence
from toolkit.sources.recording.recording import (
    AN_INSTANT,
    EMPTY,
    HIDDEN,
    ONE_DAY,
    ONE_HOUR,
    Sample,
    TableFile,
    damaged,
    files_of,
    find_samples,
    floor_time,
    is_damage,
    is_recording,
    merged_name,
    read,
    read_sample,
    recorded_sample,
    sample_name,
    sample_times,
    table_file,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ExcerptStart


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Open a hidden file for writing; on success it is flushed and renamed to `path`, replacing it.

    On an error the hidden file is removed and `path` is unchanged.
    """
    hidden = path.with_name(f"{HIDDEN}{path.name}.part")
    try:
        with hidden.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def flush(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(kw_only=True)
class Sampler:
    """Takes samples: observes a cluster once, and diagnoses the observation with the previous one, without a recheck.

    It reconnects after a failed one.
    """

    connect: Callable[[], Cluster]  # returns the cluster; its timeout, of at most the interval, bounds each round
    interval_ms: int  # time between samples
    # older live transactions are ``long``, and whether the log around held LSOs is read: at most once a minute for the
    # same transaction and verdict
    diagnosis: DiagnoseOptions = DEFAULTS
    late_padding_ms: int = LATE_PADDING_MS  # as for `analysis.findings_over_time.late_transactions`
    with_held_groups: bool = False  # read the committed offsets of the groups while an LSO is held
    _cluster: Cluster | None = None
    _cluster_id: str | None = None  # of all samples; null until one has it
    _longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS

    def take(self, due: dt.datetime, before: Sample | None = None) -> Sample:
        """Take a sample, with an error instead of rows if the cluster, or a checkpoint, cannot be read.

        `due`: when the sample is due, with time zone.
        `before`: the previous sample, successful or failed. Without one no verdict is `hanging`.
        """
        started, due = time.monotonic(), due.astimezone(dt.UTC)
        diagnosis = replace(self.diagnosis, recheck_after=0, is_sample=True)
        try:
            cluster = self._same_cluster(before)
            diagnosis = replace(diagnosis, checkpoints=cluster.newest_checkpoints())
            evidence = SampleEvidence(cluster, before.observation if before else None)
            diagnosed = diagnose(evidence, diagnosis, before=before.log_readings if before else {})
        except (OSError, ToolkitError) as error:
            self.close()  # brokers may have moved
            if isinstance(error, BrokerError | ConnectionFailed):
                text = row_text(error)
            else:  # of a file: a checkpoint, properties
                text = f"NOT_READ: {str(error).rstrip('.')}"
            row = RecordedSample(
                sampled_at=due,
                observed_at=dt.datetime.now(dt.UTC),
                interval_ms=self.interval_ms,
                seconds=time.monotonic() - started,
                error=text,
            )
            kept = before or Sample(due=due, row=row)  # it keeps what the previous sample knows for the next one
            return replace(kept, due=due, row=row, findings=(), late_transactions=(), held_groups=None)
        findings, observation = diagnosed.findings, diagnosed.observations[-1]
        groups = held_groups(cluster.client, findings) if self.with_held_groups else None
        times = first_seen(observation, before.first_seen if before else {})
        late = late_transactions(
            findings,
            observation,
            sampled_at=due,
            first_seen=times,
            padding_ms=self.late_padding_ms,
            longest_timeout_ms=self._longest_timeout_ms,
        )
        return Sample(
            due=due,
            row=recorded_sample(
                observation,
                due=due,
                interval_ms=self.interval_ms,
                seconds=time.monotonic() - started,
                cluster_id=cluster.cluster_id,
            ),
            findings=findings,
            late_transactions=late,
            observation=observation,
            first_seen=times,
            log_readings=diagnosed.log_readings,
            held_groups=groups,
        )

    def cluster(self) -> Cluster:
        """The cluster; connects if needed.

        Raises ConnectionFailed or AuthenticationFailed if no broker can be reached, or it rejects the credentials.
        """
        if self._cluster is None:
            self._cluster = self.connect()
            self._longest_timeout_ms = longest_timeout_ms(self._cluster.client) or self._longest_timeout_ms
        return self._cluster

    def _same_cluster(self, before: Sample | None) -> Cluster:
        """The cluster. Raises BrokerError if it is another one than that of earlier samples.

        An address, as of a port-forward, may lead to another cluster, where every transaction of this one would have
        ended, and a producer id and an offset may be the same.
        """
        if self._cluster_id is None and before is not None:  # before it connects: a failed sample has no cluster id
            self._cluster_id = before.row.cluster_id
        cluster = self.cluster()
        self._cluster_id = self._cluster_id or cluster.cluster_id
        if cluster.cluster_id not in {None, self._cluster_id}:
            raise BrokerError(
                f"These brokers are of cluster {cluster.cluster_id}, and the samples before of {self._cluster_id}.",
                code=OTHER_CLUSTER,
                do="Record each cluster to a folder of its own.",
            )
        return cluster

    def close(self) -> None:
        """Close the connections; the next sample makes new ones."""
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = None


class SampleEvidence(LiveEvidence):
    """What a cluster gives to a sample: all of it is observed, and what fails after that does not fail the sample."""

    def __init__(self, cluster: Cluster, before: Observation | None) -> None:
        super().__init__(cluster.client)
        self._cluster = cluster
        self._before = before
        self._read: Container[TopicPartition] = ()

    def observations(self) -> Sequence[Observation]:
        return with_earlier(self._cluster.observe(), self._before)

    def excerpts(self, starts: Sequence[ExcerptStart]) -> Mapping[TopicPartition, Excerpt]:
        self._read = {each.tp for each in starts}
        return super().excerpts(starts)

    def with_groups(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Of partitions whose logs were read now: those of others are known."""
        with suppress(ToolkitError):
            of_read = iter(super().with_groups([each for each in findings if each.tp in self._read]))
            return [next(of_read) if each.tp in self._read else each for each in findings]
        return findings


def held_groups(client: BrokerClient, findings: Sequence[Finding]) -> list[GroupLag] | None:
    """The lag of the groups with offsets beyond a held LSO; markers count as records.

    Null if the offsets of a group could not be read.
    `findings`: the findings. Partitions whose LSO is held only briefly are left out.
    """
    held: dict[TopicPartition, Finding] = {}
    for each in findings:
        lso, high_watermark = each.last_stable_offset, each.high_watermark
        is_held = lso is not None and high_watermark is not None and lso < high_watermark
        if each.tp is not None and not each.verdict.is_brief and is_held:
            held[each.tp] = each
    if not held:
        return []
    groups = offsets_of_groups(client, sorted(held))
    if groups is None:
        return None
    lags = []
    for group, offsets in groups:
        for tp, committed in offsets.items():
            lso, high_watermark = held[tp].last_stable_offset or 0, held[tp].high_watermark or 0
            if 0 <= committed < high_watermark:
                parts = group_lag(committed, last_stable_offset=lso, high_watermark=high_watermark)
                own = {"group_id": group, "committed_offset": committed, "reason": None, "error": None}
                lags.append(GroupLag.of_record(held[tp], **own, **parts._asdict()))
    return lags


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
            raise _not_writable(self.directory, error) from error
        try:
            self._recover()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise _not_writable(self.directory, error) from error
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

        with writing(path) as out:
            pq.write_table(rows, out, compression="zstd")
        flush(path.parent)


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
        with writing(path) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
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
    flush(path.parent)


def _not_writable(directory: Path, error: OSError) -> UsageError:
    return UsageError(f"{directory} cannot be written to: {error.strerror}.", do="Use another --output folder.")


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


MAX_LOOKBACK = dt.timedelta(days=1)  # transactions open for longer are already recorded as late


class RecorderListener(Protocol):
    """Callbacks for a recorder's progress."""

    def on_resume(self, sample: Sample) -> None:
        """The recording has samples: those that last read what later ones did not, and last its last successful one."""

    def on_wait(self, due: dt.datetime) -> None:
        """The next sample is due at `due`."""

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        """A sample was taken; `written` is false if it could not be written."""

    def on_skip(self, count: int) -> None:
        """Samples were skipped while the last one was taken, or while this machine was suspended."""

    def on_warning(self, text: str) -> None:
        """Something failed; recording continues."""


@dataclass(kw_only=True)
class Recorder:
    """Takes samples of one cluster, and records them to one recording."""

    sampler: Sampler  # takes samples
    listener: RecorderListener  # receives progress
    writer: SampleWriter | None = None  # writes them; null if only the listener wants them
    retention: dt.timedelta | None = None  # how long samples are kept; null for no limit
    is_service: bool = False  # whether it also starts while the cluster is away: then its first samples fail
    _previous: Sample | None = None
    _compacted_at: dt.datetime = EPOCH
    _lost: int = 0

    @property
    def interval(self) -> dt.timedelta:
        """Time between samples, which are due at its multiples."""
        return dt.timedelta(milliseconds=self.sampler.interval_ms)

    def run(self, stop: threading.Event, *, samples: int | None = None, until: dt.datetime | None = None) -> int:
        """Record until `stop` is set; the current sample is completed.

        Returns: number of samples taken.
        `stop`: set by another thread or a signal handler.
        `samples`: maximum number of samples.
        `until`: latest due time.
        Raises ToolkitError if the cluster cannot be reached and the recording has no sample yet; later, and of a
        service, that is a failed sample.
        """
        self._previous = resume(self.writer.directory) if self.writer else None
        if self.writer is None or self._previous is None:
            with suppress(*((ConnectionFailed, BrokerError) if self.is_service else ())):
                self.sampler.cluster()
        else:
            for each in (*last_known(self.writer.directory, self._previous), self._previous):
                self.listener.on_resume(each)
        count = 0
        due = self._first()
        try:
            while (samples is None or count < samples) and (until is None or due <= until):
                self.listener.on_wait(due)
                if due - _now() > 2 * self.interval:
                    self.listener.on_warning(f"This machine's clock was set back; the next sample is due at {at(due)}.")
                if stop.wait(max(0.0, (due - _now()).total_seconds())):
                    break
                latest = max(due, floor_time(_now(), self.interval))  # another one if this machine was suspended
                self._skip((latest - due) // self.interval)
                self._record(latest)
                count += 1
                due = self._next()
                self._skip((due - latest) // self.interval - 1)  # due while the sample was taken
        finally:
            self.sampler.close()
        return count

    def _record(self, due: dt.datetime) -> None:
        sample = self.sampler.take(due, self._previous)
        written = True
        try:
            if self.writer:
                self.writer.write(sample)
        except (OSError, ToolkitError) as error:
            written = False
            self._lost += 1
            if self._lost == 1:
                since, reason = at(due), getattr(error, "strerror", None) or str(error).rstrip(".")
                self.listener.on_warning(f"Samples are lost from {since} on: they cannot be written: {reason}.")
        if written:
            self._previous = sample  # recorded samples only, so that a diagnosis can be repeated
            if self._lost:
                lost = f"{self._lost} samples were" if self._lost > 1 else "one sample was"
                self.listener.on_warning(f"Since {at(due)} samples can be written again; {lost} lost.")
            self._lost = 0
        self.listener.on_sample(sample, written=written)
        self._compact(due, sample)

    def _compact(self, due: dt.datetime, sample: Sample) -> None:
        """Merge files and remove expired ones, once an hour; a clock of ours that is ahead expires nothing."""
        if self.writer is None or due - self._compacted_at < ONE_HOUR:
            return
        self._compacted_at = floor_time(due, ONE_HOUR)
        try:
            if self.retention is not None:
                brokers_time = sample.observation.brokers_time if sample.observation else UNKNOWN_TIME
                now = min(due, brokers_time.time or due) if brokers_time.is_current else due
                self.writer.retire(before=now - self.retention)
            self.writer.merge(now=due)
        except (OSError, ToolkitError) as error:
            self.listener.on_warning(f"Files could not be merged and remain unchanged: {error}")

    def _first(self) -> dt.datetime:
        """The last multiple if it is recent and not recorded; else the next one."""
        now = _now()
        last = floor_time(now, self.interval)
        if now - last < self.interval / 2 and not self._has(last):
            return last
        return self._next()

    def _next(self) -> dt.datetime:
        """The next multiple that is not recorded; after the clock was set back, some are."""
        due = floor_time(_now(), self.interval) + self.interval
        while self._has(due):
            due += self.interval
        return due

    def _has(self, due: dt.datetime) -> bool:
        try:
            return self.writer is not None and self.writer.has(due)
        except (OSError, ToolkitError):  # a folder that is away, as on NFS: to write to it fails, and that is reported
            return False

    def _skip(self, count: int) -> None:
        if count > 0:
            self.listener.on_skip(count)


def record_samples(
    connect: Callable[[], Cluster],
    folder: Path,
    *,
    stop: threading.Event | None = None,
    samples: int | None = None,
    interval_ms: int = 1000,
) -> None:
    """Record a cluster, silently.

    `stop`: ends recording when set.
    `samples`: maximum number; null until stopped.
    """
    sampler = Sampler(connect=connect, interval_ms=interval_ms)
    with SampleWriter(folder) as writer:
        Recorder(sampler=sampler, writer=writer, listener=_SilentListener()).run(
            stop or threading.Event(), samples=samples
        )


def resume(directory: Path) -> Sample | None:
    """The last successful sample, which the next one is diagnosed with; null if there is none."""
    try:
        found = find_samples(directory)
    except NotFound:
        return None
    sample, observation = read_sample(directory, found.sample)
    observed = first_seen(observation, {})
    with_opening_time = {each.key for each in sample.findings if each.opened_at is not None}
    recorded = {
        each.key: each.opened_at
        for each in sample.late_transactions
        if each.opened_at is not None and each.opened_at_clock == "recorder"
    }
    undated = observed.keys() - with_opening_time - recorded.keys()
    earliest = _earliest(directory, undated, found.sample) if undated else {}
    return replace(sample, first_seen=observed | recorded | earliest)


def last_known(directory: Path, last: Sample) -> Iterator[Sample]:
    """The samples of a day that were the last to read what the `last` one could not read, in order."""
    assert last.observation is not None
    names, start = ["sampled_at", "topic", "partition", "verdict"], last.due - MAX_LOOKBACK
    unknown = {each.tp for each in last.findings if each.verdict is Verdict.UNKNOWN}
    observed = {each.tp for each in last.observation.partitions}
    if not unknown and not last.row.topic_gaps:
        return
    found: dict[TopicPartition, dict[dt.datetime, bool]] = {}
    for sampled_at, topic, partition, verdict in zip(
        *(each.to_pylist() for each in read(directory, "findings", start=start, stop=last.due, columns=names).columns),
        strict=True,
    ):
        if topic is not None and ((tp := TopicPartition(topic, partition)) in unknown or tp not in observed):
            of_partition = found.setdefault(tp, {})
            of_partition[sampled_at] = of_partition.get(sampled_at, True) and verdict != Verdict.UNKNOWN
    samples = RecordedSample.of_table(read(directory, "samples", start=start, stop=last.due))
    needed: dict[dt.datetime, RecordedSample] = {}
    for of_partition in found.values():
        for sample in reversed(samples):
            is_known = of_partition.get(sample.sampled_at, not sample.topic_gaps)  # without a finding, it was clear
            if sample.error is None and is_known:
                needed |= {sample.sampled_at: sample} if sample.sampled_at in of_partition else {}
                break
    for _, sample in sorted(needed.items()):
        yield read_sample(directory, sample, idle_producers=False)[0]


class _SilentListener:
    """Ignores what the recorder reports."""

    def on_resume(self, sample: object) -> None: ...
    def on_wait(self, due: dt.datetime) -> None: ...
    def on_sample(self, sample: object, *, written: bool) -> None: ...
    def on_skip(self, count: int) -> None: ...
    def on_warning(self, text: str) -> None: ...


def _earliest(
    directory: Path, transactions: Collection[TransactionKey], last: RecordedSample
) -> dict[TransactionKey, dt.datetime]:
    """When each was first observed open within the last day of the recording."""
    import pyarrow.compute as pc

    names = ["topic", "partition", "producer_id", "current_txn_start_offset"]
    start = last.sampled_at - MAX_LOOKBACK
    rows = read(directory, "producers", start=start, columns=["sampled_at", *names])
    rows = rows.filter(pc.is_valid(rows["current_txn_start_offset"]))
    samples = RecordedSample.of_table(read(directory, "samples", start=start, columns=["sampled_at", "observed_at"]))
    observed = {each.sampled_at: each.observed_at for each in samples}
    firsts = rows.group_by(names).aggregate([("sampled_at", "min")]).to_pylist()
    earliest = {TransactionKey(*(row[name] for name in names)): observed.get(row["sampled_at_min"]) for row in firsts}
    return {key: time for key in transactions if (time := earliest.get(key)) is not None}


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
