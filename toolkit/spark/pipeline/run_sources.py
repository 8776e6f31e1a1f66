"""What a run reads: log directories, the partitions of a live cluster, and recordings, each as listed once.

Executors read the batches of a cluster if they reach the brokers; else this process does. It requests the small rest.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.session import SparkSession as ClassicSession
from pyspark.sql.types import StructType

from toolkit.errors import NotFound
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.log_dir_files import log_path
from toolkit.schema import FINDINGS, RECORDED
from toolkit.schema.live import Finding, Partition
from toolkit.sources.logdir import LogDir
from toolkit.sources.logdir.consistency import files_proof
from toolkit.sources.logdir.contents import NO_ASSERTIONS, Contents, FileAssertions, found_in
from toolkit.sources.recording.recording import AN_INSTANT, EMPTY, INCOMPLETE, OTHER_TABLES, current_files
from toolkit.sources.source import TableArguments
from toolkit.spark.arrow_types import in_tasks, struct_type
from toolkit.spark.datasources.log_reader import (
    LEADER,
    LogIdentity,
    LogListing,
    LogOptions,
    LogReader,
    Origin,
    listings,
    plan,
)
from toolkit.spark.datasources.reader_options import local_path
from toolkit.spark.pipeline.log_fold import WorkOptions
from toolkit.spark.pipeline.log_states import LogPlan, assumptions, is_older, plan_logs, read_to
from toolkit.spark.pipeline.stored_tables import (
    IDS,
    LOG,
    NOT_THERE,
    RECORDED_AS,
    RUN_ID,
    StoredState,
    TableStore,
    records_name,
    sql_text,
)
from toolkit.spark.spark_session import executors_reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from toolkit.sources.live.cluster import Cluster


SMALL = 64 << 20
"""Maximum bytes of logs that the driver reads itself, in less time than Spark's jobs take to start."""

MANY = 1000
"""Logs that tasks read sooner, however small: of each, most of the time is that of Python, which uses one core here."""

ON_ONE_MACHINE = 128
"""Factor of `SMALL` for a local master: there the driver has as many cores as Spark's tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCounts:
    """Counts of the items of one kind, listed and read."""

    what: str  # name of the items: ``logs`` in files, ``partitions`` of a cluster, ``samples`` of a recording
    # listed, new: number of items, and of those that are new or have changed
    listed: int
    new: int
    bytes_listed: int | None = None  # total size of the items; null if unknown
    bytes_read: int = 0  # total size of the batches that were read


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLogs:
    """The logs of log directories, or the partitions of a cluster, as listed once."""

    spark: SparkSession  # the session
    logs: Sequence[LogListing]  # of these topics
    topics: Sequence[str] | None = None  # only these topics, and ``__transaction_state`` of files; null for all
    paths: Sequence[str] = ()  # log directories, partition folders, segments, texts
    assertions: FileAssertions = NO_ASSERTIONS  # what the caller asserts of them
    contents: Contents | None = None  # these files as listed by this process; null if executors listed them
    cluster: Cluster | None = None  # null for files

    def counts(self, plans: Collection[str], states: Iterable[StoredState]) -> ReadCounts:
        """Counts of the listed and read logs. `plans`: names of those that are read. `states`: what is then known."""
        return ReadCounts(
            what="logs" if self.cluster is None else "partitions",
            listed=len(self.logs),
            new=sum(not log.endswith(IDS) for log in plans),
            bytes_listed=self.bytes_listed,
            bytes_read=sum(state.bytes_read or 0 for state in states),
        )

    @property
    def bytes_listed(self) -> int | None:
        """Total size of the logs; null if unknown."""
        return sum(row.bytes or 0 for row in self.logs) if self.cluster is None else None

    @property
    def signature(self) -> str:
        """Changes when a log, a checkpoint or the selection changes; of a cluster always: it is always queried."""
        if self.cluster is not None:
            return str(time.time_ns())
        files = sorted([row.log, row.listing or "", row.checkpoints or ""] for row in self.logs)
        arguments = [list(self.paths), self.topics and list(self.topics), str(self.assertions)]
        return hashlib.sha256(json.dumps([arguments, files]).encode()).hexdigest()[:16]

    def elsewhere(
        self, findings: Iterable[Finding], *, may_hide: bool, states: Mapping[str, StoredState]
    ) -> list[Finding]:
        """Those of an earlier diagnosis that one of these logs does not look at, and so ends none of them.

        They are on other topics, of another cluster, or on partitions that are not among the files, or of which these
        are older copies than what was read (`states`); or that a cluster may hide (`may_hide`).
        """
        clusters = {LogIdentity.of(row.log).cluster_id for row in self.logs}
        is_known = None not in clusters
        has_all = self.cluster is not None and not may_hide
        newer = (row for row in self.logs if not is_older(row, states.get(row.log)))
        listed = None if has_all else {(row.topic, row.partition) for row in newer} | {None}
        return [
            each
            for each in findings
            if (is_known and each.cluster_id not in {*clusters, None})
            or (self.topics is not None and each.topic not in self.topics)
            or (listed is not None and each.tp not in listed)
        ]

    @property
    def listings(self) -> Mapping[str, LogListing]:
        """Each log, as listed."""
        return {row.log: row for row in self.logs} | {records_name(row): row for row in self.logs if row.is_best}

    @property
    def assumptions(self) -> Sequence[str]:
        """What is assumed because ids are missing."""
        return assumptions(row.log for row in self.logs)

    def plans(self, states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
        """How to read the new data of each changed log."""
        # Most partitions of __transaction_state are empty and need no state. A log without begin cannot be read now.
        listed = {
            name: row
            for name, row in self.listings.items()
            if not name.endswith(IDS) or row.bytes != 0 or row.begin is None or row.error or name in states
        }
        return plan_logs(listed, states)

    def options(self, *, min_held_ms: int, with_batches: bool) -> WorkOptions:
        """How to read and fold them."""
        options = WorkOptions(min_held_ms=min_held_ms, with_batches=with_batches)
        if self.cluster is None:
            return options
        return replace(options, config=self.cluster.config, timeout=self.cluster.timeout)

    @property
    def reads_here(self) -> bool:
        """Whether this process reads the logs: sooner than Spark's jobs would, or as executors reach no brokers."""
        if self.cluster is not None:
            return not executors_reach(self.spark, self.cluster.client.brokers.values())
        if not isinstance(self.spark, ClassicSession) or len(self.logs) > MANY:
            return False
        is_local = str(self.spark.sparkContext.master).startswith("local")
        return sum(row.bytes or 0 for row in self.logs) <= SMALL * (ON_ONE_MACHINE if is_local else 1)

    def settled(self, states: Mapping[str, StoredState]) -> dict[str, int]:
        """As `Contents.settled`, by the states after this run's reads: what was read once need not be read again.

        None of a run of some topics, which has a finding of each partition.
        """
        origins: defaultdict[tuple[str | None, int | None], set[Origin]] = defaultdict(set)
        ends: dict[str, tuple[LogListing, int]] = {}
        for row in self.logs if self.topics is None else ():
            origins[row.topic, row.partition].add(LogIdentity.of(row.log).origin)
            end = read_to(row, states.get(row.log))
            if end is not None and row.folder is not None:
                ends[row.folder] = row, end
        return {folder: end for folder, (row, end) in ends.items() if len(origins[row.topic, row.partition]) == 1}

    def current_findings(self, settled: Mapping[str, int]) -> pa.Table:
        """The findings at the time that the files prove, or at present. `settled`: as `Contents.settled`."""
        if self.cluster is not None:
            return FINDINGS.arrow(self.cluster.finding_rows(topics=self.topics))
        arguments = TableArguments.of(topics=self.topics)
        if self.contents is not None and self.reads_here:
            self.contents.settled = settled
            return FINDINGS.arrow(LogDir.of(self.contents, *self.paths).read("findings", arguments))
        options = LogOptions(paths=self.paths, table="findings", arguments=arguments, assertions=self.assertions)

        def planned(contents: Contents) -> pa.Table:
            contents.settled = settled
            return pa.table({"task": [pickle.dumps(each) for each in plan(options, contents)]})

        tasks = [pickle.loads(each) for each in self.of_contents(planned, "task binary")["task"].to_pylist()]  # noqa: S301
        schema = struct_type(FINDINGS)
        rows = in_tasks(self.spark, tasks, LogReader(options, schema).read, schema).toArrow()
        return rows.cast(FINDINGS.arrow_schema)

    def proof(self) -> str | None:
        """What the files prove and what they do not, in one line; null without files."""
        if self.cluster is not None:
            return None
        lines = self.of_contents(lambda each: pa.table({"line": [files_proof(each).line]}), "line string")["line"]
        return str(lines[0])

    def of_contents(self, function: Callable[[Contents], pa.Table], schema: StructType | str) -> pa.Table:
        """What a function of the files returns: in a task, as a client of Spark Connect may be on another machine."""
        if self.contents is not None:
            return function(self.contents)
        paths, assertions = self.paths, self.assertions

        def in_task(_: None) -> Iterator[pa.RecordBatch]:
            yield from function(found_in(paths, assertions=assertions)).to_batches()

        return in_tasks(self.spark, [None], in_task, schema).toArrow()


def list_files(
    spark: SparkSession,
    paths: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    assertions: FileAssertions = NO_ASSERTIONS,
) -> ListedLogs:
    """List log directories. Raises NotFound if the files contain no partition of a topic."""
    paths = [local_path(path) for path in paths]
    contents = found_in(paths, assertions=assertions) if isinstance(spark, ClassicSession) else None
    found = ListedLogs(spark=spark, paths=paths, topics=topics, assertions=assertions, contents=contents, logs=())

    def listed(contents: Contents) -> pa.Table:
        return LogListing.table.arrow(listings(contents, contents.replica_logs()))

    logs = LogListing.of_table(found.of_contents(listed, struct_type(LogListing.table)))
    if topics is not None:
        if missing := sorted(set(topics) - {row.topic for row in logs}):
            raise NotFound(
                f"The files contain no partition of topic {missing[0]!r}.", do="Check its name, or copy it, too."
            )
        logs = [row for row in logs if row.topic in {*topics, STATE_TOPIC}]
    return replace(found, logs=logs)


def list_partitions(spark: SparkSession, cluster: Cluster, *, topics: Sequence[str] | None = None) -> ListedLogs:
    """List all partitions of a cluster, or those of some topics, with their start and end offsets.

    Raises NotFound if the cluster does not have one of the topics.
    """
    from toolkit.sources.live.leaders import read_metadata  # imports kafka-python

    partitions = [*map(Partition.of, cluster.partition_rows(topics=topics))]
    leaders = read_metadata(cluster.client, topics).at(each.tp for each in partitions)
    logs = []
    for each in partitions:
        topic_id = leaders[each.tp].topic_id
        row = LogListing(
            log=str(LogIdentity(cluster.client.cluster_id, LEADER, topic_id, str(each.tp))),
            topic=each.topic,
            partition=each.partition,
            broker_id=each.broker_id,
            topic_id=topic_id,
            begin=each.log_start_offset,
            is_best=each.topic == STATE_TOPIC,
            high_watermark=None if each.error else each.high_watermark,
            error=each.error,
        )
        logs.append(row)
    return ListedLogs(spark=spark, logs=logs, topics=topics, cluster=cluster)


Result = TypeVar("Result")
RECORDING = "recording:"  # before its path
TRIES = 5
GONE = ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException", "SparkFileNotFoundException")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSamples:
    """A recording, as listed once: its samples after the last stored one are new."""

    spark: SparkSession  # the session
    path: str  # the folder of the recording
    listed: int  # number of samples
    # oldest, newest: due times of these samples; null without any. A sample without a row in ``samples`` is incomplete
    # and does not count.
    oldest: dt.datetime | None
    newest: dt.datetime | None
    cluster_ids: Sequence[str]  # of these samples; none of an older recording
    after: dt.datetime | None  # due time of the last stored one

    @property
    def log(self) -> str:
        """The name of its stored rows."""
        return f"{RECORDING}{self.path}"

    @property
    def has_new(self) -> bool:
        """Whether there are new samples."""
        return self.newest is not None and (self.after is None or self.newest > self.after)

    def count_new(self) -> int:
        """Number of new samples."""
        return _retried(lambda: self.rows("samples").count()) if self.has_new else 0

    def rows(self, table: str) -> DataFrame:
        """The new rows of a table of ``schema.RECORDED``."""
        rows = _read(self.spark, self.path, table, after=self.after)
        if table == "samples":  # as `sources.recording.recording.Recording.samples`
            found = _read(self.spark, self.path, "findings", after=self.after).groupBy("sampled_at").count()
            counts = sf.col("row_counts")[OTHER_TABLES.index("findings")], sf.coalesce("count", sf.lit(0))
            error = sf.when(counts[0] != counts[1], INCOMPLETE.format("findings"))
            rows = rows.join(found, "sampled_at", "left").withColumn("error", sf.coalesce("error", error)).drop("count")
        return rows.withColumn(LOG, sf.lit(self.log)).where(self.is_new)

    @property
    def is_new(self) -> str:
        """Condition in SQL for the rows of new samples; stored ones are of a killed run."""
        times = [f"sampled_at BETWEEN TIMESTAMP '{self.oldest}' AND TIMESTAMP '{self.newest}'"]
        if self.after is not None:
            times.append(f"sampled_at > TIMESTAMP '{self.after}'")
        return " AND ".join([f"{LOG} = {sql_text(self.log)}", *times])


def store_samples(store: TableStore, name: str, recordings: Sequence[RecordedSamples], *, run_id: int) -> None:
    """Add the new rows of a table of ``schema.RECORDED``; stored rows stay when the recorder deletes samples."""

    def write() -> None:
        rows = reduce(DataFrame.unionByName, (each.rows(name) for each in recordings))
        replaced = " OR ".join(f"({each.is_new})" for each in recordings)
        store.replace_rows(RECORDED_AS[name], RECORDED[name], rows, run_id=run_id, replaced=replaced)

    _retried(write)


def is_recording(spark: SparkSession, path: str) -> bool:
    """Whether a path is a recording; also for paths that only Spark can read."""
    found = log_path(path)
    if isinstance(spark, ClassicSession) and found.exists():  # without a Spark job
        return (found / "samples").is_dir()
    try:
        return bool(spark.read.schema(struct_type(RECORDED["samples"])).parquet(f"{path}/samples").columns)
    except PySparkException as error:
        is_absent = isinstance(error, AnalysisException) and error.getCondition() in NOT_THERE
        if not is_absent and isinstance(found, Path):  # Spark may lack the file system of an object store
            raise
        return False


def list_samples(
    spark: SparkSession, path: str, *, stored: Mapping[str, dt.datetime], store: TableStore, last_run: int
) -> RecordedSamples:
    """List the samples of a recording. `stored`: the last stored sample of each, by `log`, as of `last_run`.

    A recorder whose clock was set back takes samples before it: the first one that is not stored is new, as all after.
    """
    numbers = [sf.count("sampled_at").alias("listed"), sf.min("sampled_at").alias("oldest")]
    numbers += [sf.max("sampled_at").alias("newest"), sf.collect_set("cluster_id").alias("cluster_ids")]
    (row,) = _retried(lambda: _read(spark, path, "samples").agg(*numbers).toArrow()).to_pylist()
    found = RecordedSamples(spark=spark, path=path, **row, after=stored.get(f"{RECORDING}{path}"))
    if found.after is None or (known := store.find(RECORDED_AS["samples"])) is None:
        return found
    known = known.where(f"{LOG} = {sql_text(found.log)} AND {RUN_ID} <= {last_run}").select("sampled_at")
    earlier = sf.col("sampled_at") <= sf.lit(found.after)

    def first_unstored() -> dt.datetime | None:
        listed = _read(spark, path, "samples").where(earlier)
        unstored = listed.join(known, "sampled_at", "left_anti").agg(sf.min("sampled_at").alias("at"))
        (at,) = unstored.toArrow()["at"].to_pylist()
        return at  # type: ignore[no-any-return]

    first = _retried(first_unstored)
    return found if first is None else replace(found, after=first - AN_INSTANT)


def _read(spark: SparkSession, path: str, table: str, *, after: dt.datetime | None = None) -> DataFrame:
    """Rows of a table: of the files that have samples after a time, each sample once."""
    reader, folder = spark.read.schema(struct_type(RECORDED[table])), f"{path}/{table}"
    files = current_files(lambda: (each.rpartition("/")[2] for each in reader.parquet(folder).inputFiles()))
    names = [file.name for file in files if after is None or file.stop > after] or [EMPTY]
    return reader.parquet(*(f"{folder}/{name}" for name in names))


def _retried(read: Callable[[], Result]) -> Result:
    """Read again if the recorder has merged files since they were listed."""
    for _ in range(TRIES - 1):
        try:
            return read()
        except PySparkException as error:
            if not any(text in str(error) for text in GONE):
                raise
    return read()
