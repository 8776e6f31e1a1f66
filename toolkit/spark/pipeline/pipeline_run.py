"""A run of the pipeline: read new data of logs and recordings, and add it to Delta tables up to findings.

The state for the next run is small: the open transactions of each log, the holds of its LSO, and its last offset (table
``state``). It is written last. If a run was killed after it wrote some of the tables, the next run starts from the same
state and writes the rows again.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.dataframe import DataFrame

from toolkit.errors import UsageError
from toolkit.formats.columns import to_ipc
from toolkit.schema import BATCHES, FINDINGS, LOG_TRANSACTIONS, LSO_TIMELINE, RECORDED, TRANSACTION_HISTORY, Table
from toolkit.sources.logdir.contents import NO_ASSERTIONS, FileAssertions
from toolkit.spark.arrow_types import from_arrow, mapped, spark_table
from toolkit.spark.datasources.data_sources import register
from toolkit.spark.datasources.log_identity import LogIdentity, Origin
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline import from_files
from toolkit.spark.pipeline.fold_states import FoldStates
from toolkit.spark.pipeline.from_files import LogFiles, list_files
from toolkit.spark.pipeline.from_recording import RecordedSamples, is_recording, list_samples, store_samples
from toolkit.spark.pipeline.history_fold import CURRENT, current_transaction_history
from toolkit.spark.pipeline.jobs import Job, Progress, run_jobs
from toolkit.spark.pipeline.log_plan import LOST, NEVER, TRUNCATED, LogPlan, read_again
from toolkit.spark.pipeline.log_renames import renames
from toolkit.spark.pipeline.log_work import LogWork, folded
from toolkit.spark.pipeline.run_summary import (
    ReadCounts,
    RunSummary,
    TableCounts,
    count_rows,
    counts_from_json,
    counts_to_json,
    newest_runs,
    summarised,
)
from toolkit.spark.pipeline.tables.staging_table import IDS, STATE, StoredState
from toolkit.spark.pipeline.tables.stored_tables import FROM_OFFSET, IS_CURRENT, KEPT, RECORDED_AS, TOPIC_ID
from toolkit.spark.pipeline.tables.table_store import TableStore, open_store
from toolkit.spark.pipeline.tables.table_views import make_views
from toolkit.spark.pipeline.topic_findings import CURRENT_FINDINGS, StoredFinding, StoredRecord, TopicFindings, log_rows
from toolkit.spark.spark_errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from toolkit.sources.live.cluster import Cluster
    from toolkit.spark.pipeline.from_cluster import LivePartitions

PathLike = str | os.PathLike[str]
PROOF, COUNTS = "files_proof", "table_counts"
OLDER = (
    "The table {} was older than the last run, as after its restore or the loss of a commit: all that the logs still "
    "have was read again, and what they had deleted before is missing from it."
)
NEWER = (
    "Tables had rows of a later run than the last complete one, as after a killed run or the restore of the table "
    "state: rows of what the logs still have were replaced, and all others kept."
)


def run(
    spark: SparkSession,
    source: PathLike | Sequence[PathLike] | Cluster,
    target: str,
    *,
    format: str = "delta",
    topics: Sequence[str] | None = None,
    min_held_ms: int = 60_000,
    consistent_copy: bool = False,
    as_of: dt.datetime | None = None,
    txn_state_partitions: int | None = None,
    with_batches: bool = False,
    progress: Progress = lambda table, done: None,
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
    consistent_copy, as_of, txn_state_partitions
        As for `toolkit.LogDir`.
    with_batches
        Store the header of every batch, too.
    progress
        Called with the name of a job and false when it starts, and true when it is done.

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
        if format == "parquet" and any(store.find(name) is not None for name in KEPT):
            raise UsageError(
                f"There are Parquet tables in {target} already.",
                means="A run can only add to Delta tables; Parquet tables are written once.",
                do="Write to an empty folder, or use the format delta.",
            )
        assertions = FileAssertions(
            consistent_copy=consistent_copy, as_of=as_of, txn_state_partitions=txn_state_partitions
        )
        states = FoldStates.load(store)
        logs, recordings = _sources(spark, source, topics=topics, assertions=assertions)
        this = _PipelineRun.begin(
            store, states, logs=logs, recordings=recordings, min_held_ms=min_held_ms, with_batches=with_batches
        )
        done = run_jobs(this.jobs(), progress=progress)
        if this.has_news:
            findings = done["findings"]
        else:
            columns = (*FINDINGS.names, TOPIC_ID, IS_CURRENT)
            findings = list(map(StoredFinding.of, store.rows("findings", FINDINGS, *columns)))
        summary = summarised(store, this.read(), this.counts, findings=findings, started=started)
        assumed = this.logs.assumptions if this.logs else ()
        return replace(summary, proof=this.proof(), assumptions=assumed, repairs=this.repairs)


def _sources(
    spark: SparkSession,
    source: PathLike | Sequence[PathLike] | Cluster,
    *,
    topics: Sequence[str] | None,
    assertions: FileAssertions,
) -> tuple[LogFiles | LivePartitions | None, Sequence[RecordedSamples]]:
    """The logs and the recordings of a source."""
    if not isinstance(source, str | os.PathLike | Sequence):
        from toolkit.spark.pipeline.from_cluster import list_partitions  # imports kafka-python

        if assertions != NO_ASSERTIONS:
            raise UsageError("consistent_copy, as_of and txn_state_partitions apply to files.", do="Remove them.")
        register(spark, config=source.config)
        return list_partitions(spark, source, topics=topics), ()
    paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    recorded = [path for path in paths if is_recording(spark, path)]
    others = [path for path in paths if path not in recorded]
    logs = None
    if others:
        logs = list_files(spark, others, topics=topics, assertions=assertions)
    return logs, [list_samples(spark, path) for path in recorded]


@dataclass(slots=True, kw_only=True)
class _PipelineRun:
    """One run."""

    store: TableStore  # the stored tables
    # logs, recordings: the sources
    logs: LogFiles | LivePartitions | None
    recordings: Sequence[RecordedSamples]
    # states, plans, listings: state, plan and listing of each log
    states: FoldStates
    plans: Mapping[str, LogPlan]
    listings: Mapping[str, LogListing]
    min_held_ms: int  # shortest hold of the LSO to keep
    with_batches: bool  # whether to keep the header of every batch
    reads_here: bool = False  # whether this process reads the logs, and not tasks
    new: Mapping[str, DataFrame] = field(default_factory=dict)  # the new rows of each table of logs
    repairs: Sequence[str] = ()  # which tables are not of one run, as sentences
    # row counts of the tables; those of the last run until this one has counted
    counts: dict[str, TableCounts] = field(default_factory=dict)

    @staticmethod
    def begin(
        store: TableStore,
        states: FoldStates,
        *,
        logs: LogFiles | LivePartitions | None,
        recordings: Sequence[RecordedSamples],
        min_held_ms: int,
        with_batches: bool,
    ) -> _PipelineRun:
        """Plan what to read."""
        listings = logs.listings if logs else {}
        states.rename(renames(listings, states.all))
        plans = logs.plans(states.before) if logs else {}
        counted = states.before.get(COUNTS)
        counts = {} if counted is None else counts_from_json(counted.listing or "{}")
        checked = [name for name in FROM_OFFSET if with_batches or name != BATCHES.name]
        newest = newest_runs(store, checked)
        older = [name for name in checked if name in counts and newest.get(name, 0) < counts[name].newest_run]
        repairs = [OLDER.format(name) for name in older]
        if older:
            plans |= {log: read_again(row) for log, row in listings.items() if log in states.before}
        states.run_id = max(states.last_run, *newest.values()) + 1 if newest else states.run_id
        if states.run_id > states.last_run + 1:
            repairs.append(NEWER)
            for log, plan in plans.items():
                if plan.remembered == LOST:  # by the runs of which nothing is known, it may have been read
                    plans[log] = plan._replace(remembered=TRUNCATED, offset=plan.obsolete_from, error=None)
        return _PipelineRun(
            store=store,
            logs=logs,
            recordings=recordings,
            states=states,
            plans=plans,
            listings=listings,
            min_held_ms=min_held_ms,
            with_batches=with_batches,
            counts=counts,
            repairs=repairs,
        )

    @property
    def needs_diagnosis(self) -> bool:
        """Whether the files or the cluster must be diagnosed again."""
        logs, before = self.logs, self.states.before.get(CURRENT_FINDINGS)
        return logs is not None and (bool(self.plans) or before is None or before.listing != self._signature(logs))

    @property
    def new_samples(self) -> list[RecordedSamples]:
        """The recordings with new samples."""
        return [each for each in self.recordings if each.has_new(self.states.before)]

    @property
    def has_news(self) -> bool:
        """Whether there is new data."""
        return self.needs_diagnosis or bool(self.new_samples)

    def proof(self) -> str | None:
        """What the files prove and what they do not; null without files."""
        state = self.states.all.get(PROOF)
        return None if state is None or self.logs is None else state.listing

    def read(self) -> Sequence[ReadCounts]:
        """Counts of the listed and read items."""
        found = []
        if logs := self.logs:
            found.append(
                ReadCounts(
                    what=logs.what,
                    listed=logs.listed,
                    new=sum(not log.endswith(IDS) for log in self.plans),
                    bytes_listed=logs.bytes_listed,
                    bytes_read=sum(state.bytes_read or 0 for state in self.states.new.values()),
                )
            )
        for each in self.recordings:
            new = each.count_new(self.states.before) if each.has_new(self.states.before) else 0
            found.append(ReadCounts(what="samples", listed=each.listed, new=new))
        return found

    def jobs(self) -> dict[str, Job]:
        """The jobs of the run; none without new data if the last run stored its counts."""
        jobs: dict[str, Job] = {}
        logs = self.logs
        if logs is not None and self.needs_diagnosis:
            jobs[CURRENT_FINDINGS] = Job(partial(self._diagnose, logs))
        if logs is not None and self.plans:
            jobs["logs"] = Job(partial(self._read_logs, logs))
            for table in (LOG_TRANSACTIONS, LSO_TIMELINE, *([BATCHES] if self.with_batches else [])):
                jobs[table.name] = Job(partial(self._add_rows, table), after=["logs"])
            jobs["transaction_history"] = Job(self._add_transaction_history, after=["logs"])
        if new := self.new_samples:
            runs = {"run_id": self.states.run_id, "last_run": self.states.last_run}
            for name in RECORDED:
                jobs[RECORDED_AS[name]] = Job(partial(store_samples, self.store, name, new, self.states.before, **runs))
        if self.has_news or not self.counts:
            jobs["counts"] = Job(self._count, after=list(jobs))
        if self.has_news:
            needed = {CURRENT_FINDINGS, "logs", "transaction_history", *(KEPT if self._has_samples else ())}
            jobs["findings"] = Job(self._make_findings, after=needed.intersection(jobs) - {"findings"})
            jobs["state"] = Job(self._save, after=list(jobs))
        return jobs

    def _signature(self, logs: LogFiles | LivePartitions) -> str:
        return f"{logs.signature} {self.min_held_ms}"

    # Logs.

    def _diagnose(self, logs: LogFiles | LivePartitions) -> None:
        """Diagnose the current state."""
        rows = logs.current_findings()
        latest = pc.min(rows["observed_at"]).as_py()
        signature = self._signature(logs)
        self.states.put(StoredState(log=CURRENT_FINDINGS, listing=signature, latest=latest, remembered=to_ipc(rows)))
        if isinstance(logs, LogFiles):
            self.states.put(StoredState(log=PROOF, listing=logs.proof()))

    def _read_logs(self, logs: LogFiles | LivePartitions) -> None:
        """Read what is new in logs, and fold it onto their states."""
        works = [
            LogWork(log=log, listing=self.listings[log], plan=plan, state=self.states.before.get(log))
            for log, plan in self.plans.items()
        ]
        options = logs.options(min_held_ms=self.min_held_ms, with_batches=self.with_batches)
        fits = not self.with_batches or (logs.bytes_listed or 0) <= from_files.SMALL  # the rows of batches in memory
        self.reads_here = logs.reads_here and fits
        self.new, states = folded(self.store, works, options, here=self.reads_here)
        self.states.add(states, self.listings, self.plans)

    def _add_rows(self, table: Table) -> None:
        self._add(table, self.new[table.name])

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
        rows = self.new["transaction_history"]
        if self.repairs:  # compaction may have deleted what is stored, so that it stays, and only what follows is added
            stored = self.store.load("transaction_history", TRANSACTION_HISTORY).where("is_final")
            known = stored.groupBy("log", "transactional_id").agg(sf.max("last_offset").alias("known"))
            rows = rows.join(known, ["log", "transactional_id"], "left")
            rows = rows.where("coalesce(last_offset > known, true)").select(*self.new["transaction_history"].columns)
        rows = rows.unionByName(current)
        self._add(TRANSACTION_HISTORY, rows, keeps_provisional=False)

    def _add(self, table: Table, rows: DataFrame, *, keeps_provisional: bool = True) -> None:
        keeps_all = bool(self.repairs) and table.name == TRANSACTION_HISTORY.name
        of_table = {
            log: plan
            for log, plan in self.plans.items()
            if log.endswith(IDS) is (table.name == TRANSACTION_HISTORY.name)
        }
        self.store.write(
            table.name,
            table,
            rows,
            run_id=self.states.run_id,
            last_run=self.states.last_run,
            read={log: NEVER if keeps_all else plan.obsolete_from for log, plan in of_table.items()},
            changed=[log for log, plan in of_table.items() if plan.remembered == TRUNCATED],
            keeps_provisional=keeps_provisional,
        )

    def _count(self) -> None:
        """Count the rows of the tables that are not merged."""
        merged = {"findings", "lso_holds", "logs"} if self.has_news else ()
        self.counts |= count_rows(self.store, run_id=self.states.run_id, without=merged)

    # Findings.

    def _make_findings(self) -> list[StoredFinding]:
        """Make all findings and holds of the LSO from the stored tables, and change those stored."""
        made = TopicFindings(
            store=self.store,
            states=self.states,
            listings=self.listings,
            is_consistent=self.logs is not None and self.logs.is_consistent,
            min_held_ms=self.min_held_ms,
        )
        holds, findings = made.stored(with_samples=self._has_samples)
        records: dict[str, Sequence[StoredRecord | StoredFinding]]
        records = {"logs": log_rows(self.states.all.values()), "lso_holds": holds, "findings": findings}
        for name, of_table in records.items():
            rows = [each.row() for each in of_table]
            written = self.store.merge(name, KEPT[name], rows, run_id=self.states.run_id)
            errors = sum(row.get("error") is not None for row in rows)
            self.counts[name] = TableCounts(rows=len(rows), errors=errors, new=written)
        return findings

    @property
    def _has_samples(self) -> bool:
        return bool(self.recordings) or any(log.startswith("recording:") for log in self.states.before)

    # State.

    def _save(self) -> None:
        """Store the states, which completes the run."""
        if self.store.schema is not None:
            make_views(self.store)
        for each in self.new_samples:
            self.states.put(StoredState(log=each.log, latest=each.newest))
        self.states.put(StoredState(log=COUNTS, listing=counts_to_json(self.counts)))
        self.states.save()
