"""A run of the pipeline: read new data of logs and recordings, and add it to Delta tables up to findings.

The state for the next run is small: the open transactions of each log, the holds of its LSO, and its last offset (table
``state``), and what the run as a whole has found (table ``runs``). Both are written last. If a run was killed after it
wrote some of the tables, the next run starts from the same state and writes the rows again.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

import pyarrow.compute as pc
from pyspark.sql import functions as sf

from toolkit.errors import UsageError
from toolkit.schema import BATCHES, FINDINGS, LOG_TRANSACTIONS, LSO_TIMELINE, RECORDED, TRANSACTION_HISTORY, Row, Table
from toolkit.schema.live import Finding
from toolkit.schema.table import utc_now
from toolkit.sources.logdir.contents import NO_ASSERTIONS, FileArguments, FileAssertions
from toolkit.spark.arrow_types import from_arrow, mapped, spark_table
from toolkit.spark.datasources.data_sources import register
from toolkit.spark.datasources.log_reader import LogIdentity, LogListing, Origin
from toolkit.spark.pipeline import run_sources
from toolkit.spark.pipeline.history_fold import CURRENT, current_transaction_history
from toolkit.spark.pipeline.log_fold import LogWork, folded
from toolkit.spark.pipeline.log_states import LOST, NEVER, TRUNCATED, FoldStates, LogPlan, read_again, renames
from toolkit.spark.pipeline.run_sources import (
    ListedLogs,
    ReadCounts,
    RecordedSamples,
    is_recording,
    list_files,
    list_partitions,
    list_samples,
    store_samples,
)
from toolkit.spark.pipeline.stored_findings import ENDED, TopicFindings, log_rows
from toolkit.spark.pipeline.stored_tables import (
    FROM_OFFSET,
    IDS,
    IS_CURRENT,
    KEPT,
    ORDERED_BY,
    RECORDED_AS,
    RUN_ID,
    STATE,
    NewestSample,
    StoredRun,
    TableCounts,
    TableStore,
    make_views,
    open_store,
)
from toolkit.spark.spark_errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from toolkit.sources.live.cluster import Cluster


Progress = Callable[[str, bool], object]
FROM_FINDINGS = ("logs", "lso_holds", "findings")  # tables that each run makes anew
AT_ONCE = 4  # while Spark plans a job, or runs its last task, another one keeps the executors busy
PathLike = str | os.PathLike[str]
OLDER = (
    "The table {} was older than the last run, as after its restore or the loss of a commit: all that the logs still "
    "have was read again, and what they had deleted before is missing from it."
)
MADE_AGAIN = (
    "The table {} was older than the last run, as after its restore or the loss of a commit: what the other tables and "
    "the recordings still have was written again."
)
NEWER = (
    "Tables had rows of a later run than the last complete one, as after a killed run or the restore of the table "
    "state: rows of what the logs still have were replaced, and all others kept."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The result of a run."""

    # target, format: target and format of the tables
    target: str
    format: str
    read: Sequence[ReadCounts]  # counts of the listed and read items
    # row counts of each stored table; without new data, those of the last run that had any
    tables: Mapping[str, TableCounts]
    findings: Sequence[Finding]  # the current findings, in the order of ``schema.FINDINGS``
    verdicts: Mapping[str, int]  # number of findings by verdict; all past ones count as ``ended``
    proof: str | None = None  # what the files prove and what they do not, in one line; null without files
    assumptions: Sequence[str] = ()  # sentences: what is assumed because ids are missing
    repairs: Sequence[str] = ()  # sentences: which tables were not of one run, and what this run did about it
    seconds: float  # duration of the run


def run(
    spark: SparkSession,
    source: PathLike | Sequence[PathLike] | Cluster,
    target: str,
    *,
    format: str = "delta",
    topics: Sequence[str] | None = None,
    min_held_ms: int = 60_000,
    with_batches: bool = False,
    progress: Progress = lambda table, done: None,
    **assertions: Unpack[FileArguments],
) -> RunSummary:
    """Read new data, and store which transactions held or hold the LSO of which partition, and when.

    A run that finds nothing new in files writes nothing. After a crash, run it again: the tables are then as after a
    single run. Stored rows stay when brokers or the recorder delete their source. Only one run at a time may write to a
    target.

    Parameters
    ----------
    spark
        The session; `toolkit.spark.spark_session.delta_settings` adds Delta Lake to your own.
    source
        Paths, valid on executors, of log directories, partition folders, segments or texts, and of recordings; or a
        live cluster.
    target
        Target of the tables: a folder (with a slash in it), or ``catalog.schema``.
    format
        ``delta``; or ``parquet``, for a single run into an empty folder.
    topics
        Only these topics of logs; null for all.
    min_held_ms
        Leave out ended transactions that held an LSO for less; those that an earlier run left out stay out.
    with_batches
        Store the header of every batch, too.
    progress
        Called with the name of a job and false when it starts, and true when it is done.
    **assertions
        Of files: ``consistent_copy``, ``as_of``, ``txn_state_partitions``, as for `toolkit.LogDir`.

    Returns
    -------
    RunSummary
        Counts of read data, stored rows and findings.

    Raises
    ------
    UsageError, NotFound
        If the source or the target is invalid or does not exist, or the target already has Parquet tables.
    ConnectionFailed, BrokerError
        If a live cluster does not respond.
    SetupError
        If Spark fails: the target is full or read-only, a stored table is damaged, executors lack the package.
    """
    started = time.monotonic()
    with translate_errors():
        store = open_store(spark, target, format=format)
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(count_rows, store, KEPT)
            states = FoldStates.load(store)
        counted = counting.result()
        if format == "parquet" and counted:
            raise UsageError(
                f"There are Parquet tables in {target} already.",
                means="A run can only add to Delta tables; Parquet tables are written once.",
                do="Write to an empty folder, or use the format delta.",
            )
        asserted = FileAssertions.of(**assertions)
        logs, recordings = _sources(spark, source, topics=topics, assertions=asserted, states=states)
        check_clusters(store, [*states.before, *(logs.listings if logs else ())], recordings)
        this = _PipelineRun(
            store=store,
            states=states,
            counted=counted,
            logs=logs,
            recordings=recordings,
            min_held_ms=min_held_ms,
            with_batches=with_batches,
        )
        this.execute(progress)
        current = FINDINGS.in_order(Finding.of(row) for row in this.findings if row[IS_CURRENT])
        verdicts = dict(sorted(Counter(str(each.verdict) for each in current).items()))
        ended = len(this.findings) - len(current)
        return RunSummary(
            target=store.target,
            format=store.format,
            read=this.read(),
            tables={name: this.counts[name] for name in KEPT if name in this.counts},
            findings=current,
            verdicts={ENDED: ended, **verdicts} if ended else verdicts,
            proof=this.result.proof if logs else None,
            assumptions=logs.assumptions if logs else (),
            repairs=[*this.repairs, *map(MADE_AGAIN.format, this.made_again)],
            seconds=time.monotonic() - started,
        )


def _sources(
    spark: SparkSession,
    source: PathLike | Sequence[PathLike] | Cluster,
    *,
    topics: Sequence[str] | None,
    assertions: FileAssertions,
    states: FoldStates,
) -> tuple[ListedLogs | None, Sequence[RecordedSamples]]:
    """The logs and the recordings of a source. `states`: what is stored, of recordings, too."""
    if not isinstance(source, str | os.PathLike | Sequence):
        if assertions != NO_ASSERTIONS:
            raise UsageError(f"{', '.join(FileArguments.__annotations__)} apply to files.", do="Remove them.")
        register(spark, config=source.config)
        return list_partitions(spark, source, topics=topics), ()
    paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    recorded = [path for path in paths if is_recording(spark, path)]
    others = [path for path in paths if path not in recorded]
    logs = None
    if others:
        logs = list_files(spark, others, topics=topics, assertions=assertions)
    stored, last_run = {each.log: each.sampled_at for each in states.last.samples}, states.last.run_id
    store = states.store
    return logs, [list_samples(spark, path, stored=stored, store=store, last_run=last_run) for path in recorded]


def check_clusters(store: TableStore, names: Iterable[str], recordings: Sequence[RecordedSamples]) -> None:
    """Raise UsageError if recordings, those that are stored included, are not all of one cluster, that of the logs.

    Their transactions have the same numbers, so that what is open in one has ended by the next sample of the other.

    `names`: of the logs, those that are stored included.
    """
    recorded = {name for each in recordings for name in each.cluster_ids}
    if (stored := store.find(RECORDED_AS["samples"])) is not None:
        recorded |= {*stored.select("cluster_id").distinct().toArrow()["cluster_id"].to_pylist()} - {None}
    of_logs = {LogIdentity.of(name).cluster_id for name in names} - {None} if recorded else set()
    if len(recorded) > 1 or not recorded.issuperset(of_logs):
        raise UsageError(
            f"The recordings are of {', '.join(sorted(recorded))}"
            + (f", and the logs of {', '.join(sorted(map(str, of_logs)))}" if of_logs else "")
            + ".",
            means="Partitions and producer ids of one cluster would be taken for those of another.",
            do="Use a target for each cluster that is recorded.",
        )


@dataclass(slots=True, kw_only=True)
class _PipelineRun:
    """One run: its plan, and what it has made so far."""

    store: TableStore  # the stored tables
    states: FoldStates  # the state of each log
    counted: Mapping[str, TableCounts]  # the tables that there are
    # logs, recordings: the sources
    logs: ListedLogs | None
    recordings: Sequence[RecordedSamples]
    min_held_ms: int  # shortest hold of the LSO to keep
    with_batches: bool  # whether to keep the header of every batch
    # plans, listings: plan and listing of each log
    plans: dict[str, LogPlan] = field(init=False)
    listings: Mapping[str, LogListing] = field(init=False)
    repairs: list[str] = field(init=False)  # which tables of logs are not of one run, as sentences
    made_again: list[str] = field(init=False)  # other tables that were older than the last run
    has_samples: bool = field(init=False)  # whether there are or were recordings
    result: StoredRun = field(init=False)  # what is stored of this run as a whole; at first, what is of the last one
    counts: dict[str, TableCounts] = field(init=False)  # of the tables; at first, those of the last run
    reads_here: bool = False  # whether this process reads the logs, and not tasks
    new: Mapping[str, DataFrame] = field(default_factory=dict)  # the new rows of each table of logs
    findings: Sequence[Row] = ()  # all that are stored

    def __post_init__(self) -> None:
        """Plan what to read, and check that the tables are of one run."""
        states, counted, last = self.states, self.counted, self.states.last
        self.result, self.counts = last, {each.name: replace(each, new=0) for each in last.tables}
        self.has_samples = bool(self.recordings) or RECORDED_AS["samples"] in counted
        self.listings = self.logs.listings if self.logs else {}
        states.rename(renames(self.listings, states.all))
        self.plans = self.logs.plans(states.before) if self.logs else {}
        checked = [name for name in FROM_OFFSET if self.with_batches or name != BATCHES.name]
        made = [name for name in self.counts if name not in FROM_OFFSET]
        stored = {name: each.newest_run for name, each in counted.items()}
        newest = {name: run for name, run in stored.items() if name in checked}
        older, self.made_again = (
            [each for each in names if each in self.counts and stored.get(each, 0) < self.counts[each].newest_run]
            for names in (checked, made)
        )
        self.counts |= counted
        self.repairs = [OLDER.format(name) for name in older]
        if not {*RECORDED_AS.values()}.isdisjoint(self.made_again):
            self.recordings = [replace(each, after=None) for each in self.recordings]
        if older:
            known = {log: row for log, row in self.listings.items() if log in states.before and row.is_readable}
            self.plans |= {log: read_again(row, states.before[log], self.plans.get(log)) for log, row in known.items()}
        states.run_id = max(last.run_id, *newest.values()) + 1 if newest else states.run_id
        if states.run_id > last.run_id + 1:
            self.repairs.append(NEWER)
            for log, plan in self.plans.items():
                if plan.mode == LOST:  # by the runs of which nothing is known, it may have been read
                    self.plans[log] = plan._replace(mode=TRUNCATED, offset=plan.obsolete_from, error=None)
                elif plan.obsolete_from < (cleaned := self.listings[log].cleaned) and not log.endswith(IDS):
                    self.plans[log] = plan._replace(offset=cleaned, repairs=True)

    @property
    def needs_diagnosis(self) -> bool:
        """Whether the files or the cluster must be diagnosed again."""
        logs = self.logs
        return logs is not None and (bool(self.plans) or self.states.last.signature != self._signature(logs))

    @property
    def new_samples(self) -> list[RecordedSamples]:
        """The recordings with new samples."""
        return [each for each in self.recordings if each.has_new]

    @property
    def has_news(self) -> bool:
        """Whether there is new data."""
        return self.needs_diagnosis or bool(self.new_samples) or bool(self.made_again)

    def read(self) -> Sequence[ReadCounts]:
        """Counts of the listed and read items."""
        found = []
        if logs := self.logs:
            found.append(logs.counts(self.plans, self.states.new.values()))
        found.extend(ReadCounts(what="samples", listed=each.listed, new=each.count_new()) for each in self.recordings)
        return found

    def execute(self, progress: Progress) -> None:
        """Read what is new and store it, then what follows from it, and last the state, which completes the run."""

        def do(jobs: Mapping[str, Callable[[], object]]) -> None:
            def one(name: str) -> None:
                progress(name, False)
                jobs[name]()
                progress(name, True)

            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(one, jobs))  # after a failure, no further one starts

        logs, reads, adds = self.logs, dict[str, Callable[[], object]](), dict[str, Callable[[], object]]()
        if logs is not None and self.needs_diagnosis:  # after the logs were read, most of which it need not read again
            adds["current_findings"] = partial(self._diagnose, logs)
        if logs is not None and self.plans:
            reads["logs"] = partial(self._read_logs, logs)
            if self.store.format == "delta":
                reads["tables"] = self._create_tables
            for table in (LOG_TRANSACTIONS, LSO_TIMELINE, *([BATCHES] if self.with_batches else [])):
                adds[table.name] = partial(self._add, table)
            adds["transaction_history"] = self._add_transaction_history
        if self.new_samples:
            reads |= {RECORDED_AS[name]: partial(self._store_samples, name) for name in RECORDED}
        do(reads)
        if self.states.new:
            adds["state"] = self.states.store_new
        do(adds)
        if self.has_news:
            do({"findings": self._make_findings})
            do({"runs": self._complete})
        else:
            self.findings = self.store.arrow("findings", FINDINGS, *FINDINGS.names, IS_CURRENT).to_pylist()

    def _signature(self, logs: ListedLogs) -> str:
        return f"{logs.signature} {self.min_held_ms}"

    # Logs.

    def _diagnose(self, logs: ListedLogs) -> None:
        """Diagnose the current state."""
        rows = logs.current_findings(logs.settled(self.states.all))
        others = logs.elsewhere(self.result.findings, may_hide=rows["topic"].null_count > 0, states=self.states.before)
        self.result = replace(
            self.result,
            signature=self._signature(logs),
            # Of files without findings it is not known; a cluster was diagnosed now.
            diagnosed_at=pc.min(rows["observed_at"]).as_py() or (utc_now() if logs.cluster else None),
            findings=(*Finding.of_table(rows), *others),
            proof=logs.proof(),
        )

    def _read_logs(self, logs: ListedLogs) -> None:
        """Read what is new in logs, and fold it onto their states."""
        works = [
            LogWork(log=log, listing=self.listings[log], plan=plan, state=self.states.before.get(log))
            for log, plan in self.plans.items()
        ]
        options = logs.options(min_held_ms=self.min_held_ms, with_batches=self.with_batches)
        fits = not self.with_batches or (logs.bytes_listed or 0) <= run_sources.SMALL  # the rows of batches in memory
        self.reads_here = logs.reads_here and fits
        self.new, states = folded(self.store, works, options, here=self.reads_here)
        self.states.add(states, self.listings, self.plans)

    def _create_tables(self) -> None:
        """Create the tables that are missing: Spark has time for it while Python reads."""
        names = [name for name in (*FROM_OFFSET, *FROM_FINDINGS) if self.with_batches or name != BATCHES.name]
        missing = [name for name in names if name not in self.counted]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: self.store.create(name, KEPT[name]), missing))

    def _add_transaction_history(self) -> None:
        """Add final rows, and the last row of each id, which depends on the newest time of all ids."""
        states = {log: state for log, state in self.states.all.items() if log.endswith(IDS)}
        latest: dict[Origin, dt.datetime] = {}
        for log, state in states.items():
            if state.latest is not None:
                origin = LogIdentity.of(log).origin
                latest[origin] = max(state.latest, latest.get(origin, state.latest))
        make = partial(current_transaction_history, latest=latest)
        spark, table = self.store.spark, spark_table(STATE.arrow(states.values()))
        if self.reads_here:
            current = from_arrow(spark, make(table), CURRENT)
        else:
            current = mapped(from_arrow(spark, table), make, CURRENT)
        self._add(TRANSACTION_HISTORY, current, keeps_provisional=False)

    def _add(self, table: Table, current: DataFrame | None = None, *, keeps_provisional: bool = True) -> None:
        """Add the new rows of a table of logs. `current`: others, which are not final."""
        is_history = table.name == TRANSACTION_HISTORY.name
        of_table = {log: plan for log, plan in self.plans.items() if log.endswith(IDS) is is_history}
        rows, read = self.new[table.name], {log: plan.read_from for log, plan in of_table.items()}
        stays = {log: plan.obsolete_from for log, plan in of_table.items() if plan.repairs}
        if is_history and self.repairs:
            read = dict.fromkeys(read, (NEVER, NEVER))
            stays = dict.fromkeys(read, NEVER)
        if stays:
            rows = self._following(table, rows, stays)
        self.store.write(
            table.name,
            table,
            rows if current is None else rows.unionByName(current),
            run_id=self.states.run_id,
            last_run=self.states.last.run_id,
            read=read,
            changed=[log for log, plan in of_table.items() if plan.mode == TRUNCATED],
            keeps_provisional=keeps_provisional,
        )
        self._count(table.name)

    def _following(self, table: Table, rows: DataFrame, stays: Mapping[str, int]) -> DataFrame:
        """The rows that follow those stored: what these are of may be gone by compaction, so that they stay.

        `stays`: the offset up to which the stored rows of a log stay.
        """
        *keys, offset = ORDERED_BY[table.name]
        logs = self.store.spark.createDataFrame(list(stays.items()), "log string, stays_to long")
        stored = self.store.load(table.name, table).where("is_final").join(logs, "log").where(f"`{offset}` < stays_to")
        known = stored.groupBy(*keys).agg(sf.max(offset).alias("known"))
        follows = f"NOT is_final OR coalesce(`{offset}` > known, true)"
        return rows.join(known, keys, "left").where(follows).select(*rows.columns)

    def _count(self, name: str) -> None:
        """Count the rows of a table that was changed."""
        self.counts |= count_rows(self.store, [name], run_id=self.states.run_id)

    def _store_samples(self, name: str) -> None:
        store_samples(self.store, name, self.new_samples, run_id=self.states.run_id)
        self._count(RECORDED_AS[name])

    # Findings.

    def _make_findings(self) -> None:
        """Make all findings and holds of the LSO from the stored tables, and change those stored."""
        made = TopicFindings(
            store=self.store,
            states=self.states,
            run=self.result,
            listings=self.listings,
            is_consistent=self.logs is not None and self.logs.assertions.consistent_copy,
            min_held_ms=self.min_held_ms,
        )
        holds, self.findings = made.stored(with_samples=self.has_samples)
        logs = log_rows(self.states.all.values(), self.listings)

        rows, run_id = {"logs": logs, "lso_holds": holds, "findings": self.findings}, self.states.run_id
        with ThreadPoolExecutor(AT_ONCE) as pool:
            merged = pool.map(lambda name: self.store.merge(name, KEPT[name], rows[name], run_id=run_id), FROM_FINDINGS)
            self.counts |= {each.name: each for each in merged}

    # State.

    def _complete(self) -> None:
        """Store what the run has found, which completes it."""
        if self.store.schema is not None:
            make_views(self.store)
        samples = {each.log: each for each in self.states.last.samples}
        for each in self.new_samples:
            assert each.newest is not None
            samples[each.log] = NewestSample(log=each.log, sampled_at=each.newest)
        self.states.complete(replace(self.result, samples=tuple(samples.values()), tables=tuple(self.counts.values())))


def count_rows(store: TableStore, names: Iterable[str], *, run_id: int = 0) -> dict[str, TableCounts]:
    """Row counts of the tables that exist; several at once, as Delta takes most of the time to find their files.

    `run_id`: of the run that has written the new ones.
    """

    def of_table(name: str) -> TableCounts | None:
        if (frame := store.find(name)) is None:
            return None
        errors = sf.count("error") if "error" in frame.columns else sf.lit(0)
        new, newest = sf.count_if(sf.col(RUN_ID) == run_id), sf.coalesce(sf.max(RUN_ID), sf.lit(0))
        (found,) = frame.agg(sf.count(sf.lit(1)), errors, new, newest).collect()
        return TableCounts(**dict(zip(TableCounts.table.names, (name, *found), strict=True)))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {each.name: each for each in pool.map(of_table, names) if each is not None}
