"""A run of the pipeline: read new data of logs and recordings, and add it to Delta tables up to findings.

The state for the next run is small: the open transactions of each log, the holds of its LSO, and its last offset (table
``state``). It is written last. If a run was killed after it wrote some of the tables, the next run starts from the same
state and writes the rows again.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.dataframe import DataFrame

from toolkit.errors import UsageError
from toolkit.formats.columns import to_ipc
from toolkit.schema import BATCHES, FINDINGS, LOG_TRANSACTIONS, LSO_TIMELINE, RECORDED, TRANSACTION_HISTORY, Table
from toolkit.sources.logdir.contents import NO_ASSERTIONS, FileAssertions
from toolkit.spark.arrow_types import from_arrow, mapped
from toolkit.spark.datasources.data_sources import register
from toolkit.spark.datasources.log_identity import LogIdentity, Origin
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.datasources.partial_transactions import LOST, PARTIAL_TRANSACTIONS_SCHEMA, REMEMBERED, TRUNCATED
from toolkit.spark.pipeline.fold_states import FoldStates
from toolkit.spark.pipeline.from_files import LogFiles, list_files
from toolkit.spark.pipeline.from_recording import RecordedSamples, is_recording, list_samples, store_samples
from toolkit.spark.pipeline.history_fold import (
    CURRENT,
    RECORDS,
    current_transaction_history,
    fold_history_table,
    fold_transaction_history,
    remembered_records,
)
from toolkit.spark.pipeline.jobs import Job, Progress, run_jobs
from toolkit.spark.pipeline.log_fold import fold, fold_table
from toolkit.spark.pipeline.log_renames import renames
from toolkit.spark.pipeline.pipeline_source import LogPlan, PipelineSource, obsolete_rows, remembered_partials
from toolkit.spark.pipeline.run_summary import (
    ReadCounts,
    RunSummary,
    TableCounts,
    count_rows,
    counts_from_json,
    counts_to_json,
    summarised,
)
from toolkit.spark.pipeline.tables.staging_table import IDS, StoredState, rows_of, staged_rows
from toolkit.spark.pipeline.tables.stored_tables import CLUSTER_ID, IS_CURRENT, KEPT, RECORDED_AS, TOPIC_ID
from toolkit.spark.pipeline.tables.table_store import TableStore, open_store
from toolkit.spark.pipeline.tables.table_views import make_views
from toolkit.spark.pipeline.topic_findings import CURRENT_FINDINGS, StoredFinding, StoredRecord, TopicFindings, log_rows
from toolkit.spark.spark_errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from toolkit.sources.live.cluster import Cluster

PathLike = str | os.PathLike[str]
PROOF, COUNTS = "files_proof", "table_counts"
STAGE_NAME = "stage"


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
        sources = _sources(spark, source, topics=topics, assertions=assertions)
        this = _PipelineRun.begin(store, sources, states, min_held_ms=min_held_ms)
        done = run_jobs(this.jobs(with_batches=with_batches), progress=progress)
        if this.has_news:
            findings = done["findings"]
        else:
            columns = (*FINDINGS.names, CLUSTER_ID, TOPIC_ID, IS_CURRENT)
            findings = list(map(StoredFinding.of, store.rows("findings", FINDINGS, *columns)))
        summary = summarised(store, this.read(), this.counts, findings=findings, started=started)
        assumed = this.sources.logs.assumptions if this.sources.logs else ()
        return replace(summary, proof=this.proof(), assumptions=assumed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PipelineSources:
    """Logs, recordings, or both."""

    logs: PipelineSource | None = None
    recordings: Sequence[RecordedSamples] = ()


def _sources(
    spark: SparkSession,
    source: PathLike | Sequence[PathLike] | Cluster,
    *,
    topics: Sequence[str] | None,
    assertions: FileAssertions,
) -> _PipelineSources:
    if not isinstance(source, str | os.PathLike | Sequence):
        from toolkit.spark.pipeline.from_cluster import list_partitions  # imports kafka-python

        if assertions != NO_ASSERTIONS:
            raise UsageError("consistent_copy, as_of and txn_state_partitions apply to files.", do="Remove them.")
        register(spark, config=source.config)
        return _PipelineSources(logs=list_partitions(spark, source, topics=topics))
    paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    recorded = [path for path in paths if is_recording(spark, path)]
    others = [path for path in paths if path not in recorded]
    logs = None
    if others:
        logs = list_files(spark, others, topics=topics, assertions=assertions)
    return _PipelineSources(logs=logs, recordings=[list_samples(spark, path) for path in recorded])


@dataclass(slots=True, kw_only=True)
class _PipelineRun:
    """One run."""

    store: TableStore  # the stored tables
    sources: _PipelineSources  # the sources
    # states, plans, listings: state, plan and listing of each log
    states: FoldStates
    plans: Mapping[str, LogPlan]
    listings: Mapping[str, LogListing]
    min_held_ms: int  # shortest hold of the LSO to keep
    # new rows of `staging_table.STAGE`; Arrow data if this process made them
    staged: DataFrame | pa.Table | None = None
    # row counts of the tables; those of the last run until this one has counted
    counts: dict[str, TableCounts] = field(default_factory=dict)

    @staticmethod
    def begin(store: TableStore, sources: _PipelineSources, states: FoldStates, *, min_held_ms: int) -> _PipelineRun:
        """Plan what to read."""
        listings = sources.logs.listings if sources.logs else {}
        states.rename(renames(listings, states.all))
        plans = sources.logs.plans(states.before) if sources.logs else {}
        states.obsolete_logs = _replaced(plans, listings, states.before)
        counted = states.before.get(COUNTS)
        return _PipelineRun(
            store=store,
            sources=sources,
            states=states,
            plans=plans,
            listings=listings,
            min_held_ms=min_held_ms,
            counts={} if counted is None else counts_from_json(counted.listing or "{}"),
        )

    @property
    def needs_diagnosis(self) -> bool:
        """Whether the files or the cluster must be diagnosed again."""
        logs, before = self.sources.logs, self.states.before.get(CURRENT_FINDINGS)
        return logs is not None and (bool(self.plans) or before is None or before.listing != self._signature(logs))

    @property
    def new_samples(self) -> list[RecordedSamples]:
        """The recordings with new samples."""
        return [each for each in self.sources.recordings if each.has_new(self.states.before)]

    @property
    def has_news(self) -> bool:
        """Whether there is new data."""
        return self.needs_diagnosis or bool(self.new_samples)

    def proof(self) -> str | None:
        """What the files prove and what they do not; null without files."""
        state = self.states.all.get(PROOF)
        return None if state is None or self.sources.logs is None else state.listing

    def read(self) -> Sequence[ReadCounts]:
        """Counts of the listed and read items."""
        found = []
        if logs := self.sources.logs:
            found.append(
                ReadCounts(
                    what=logs.what,
                    listed=logs.listed,
                    new=sum(not log.endswith(IDS) for log in self.plans),
                    bytes_listed=logs.bytes_listed,
                    bytes_read=sum(state.bytes_read or 0 for state in self.states.new.values()),
                )
            )
        for each in self.sources.recordings:
            new = each.count_new(self.states.before) if each.has_new(self.states.before) else 0
            found.append(ReadCounts(what="samples", listed=each.listed, new=new))
        return found

    def jobs(self, *, with_batches: bool) -> dict[str, Job]:
        """The jobs of the run; none without new data if the last run stored its counts."""
        jobs: dict[str, Job] = {}
        logs = self.sources.logs
        if logs is not None and self.needs_diagnosis:
            jobs[CURRENT_FINDINGS] = Job(partial(self._diagnose, logs))
        if logs is not None and self.plans:
            jobs["logs"] = Job(partial(self._read_logs, logs))
            for table in (LOG_TRANSACTIONS, LSO_TIMELINE):
                jobs[table.name] = Job(partial(self._add_staged, table), after=["logs"])
            jobs["transaction_history"] = Job(self._add_transaction_history, after=["logs"])
            if with_batches:
                jobs["batches"] = Job(partial(self._add_batches, logs))
        if new := self.new_samples:
            states, run_id = self.states.before, self.states.run_id
            for name in RECORDED:
                jobs[RECORDED_AS[name]] = Job(partial(store_samples, self.store, name, new, states, run_id=run_id))
        if self.has_news or not self.counts:
            jobs["counts"] = Job(self._count, after=list(jobs))
        if self.has_news:
            needed = {CURRENT_FINDINGS, "logs", "transaction_history", *(KEPT if self._has_samples else ())}
            jobs["findings"] = Job(self._make_findings, after=needed.intersection(jobs) - {"findings"})
            jobs["state"] = Job(self._save, after=list(jobs))
        return jobs

    def _signature(self, logs: PipelineSource) -> str:
        return f"{logs.signature} {self.min_held_ms}"

    # Logs.

    def _diagnose(self, logs: PipelineSource) -> None:
        """Diagnose the current state."""
        rows = logs.current_findings()
        latest = pc.min(rows["observed_at"]).as_py()
        signature = self._signature(logs)
        self.states.put(StoredState(log=CURRENT_FINDINGS, listing=signature, latest=latest, remembered=to_ipc(rows)))
        if isinstance(logs, LogFiles):
            self.states.put(StoredState(log=PROOF, listing=logs.proof()))

    def _read_logs(self, logs: PipelineSource) -> None:
        """Read the new ranges of logs, and fold them."""
        self.staged = staged = self._stage(logs)
        continued = [log for log, plan in self.plans.items() if plan.remembered in (REMEMBERED, LOST)]
        self.states.add(staged, self.listings, continued=continued)

    def _stage(self, logs: PipelineSource) -> DataFrame | pa.Table:
        """New rows of all tables: made by this process if there is little to read, else by Spark, and stored once."""
        plans, states = self.plans, self.states
        logs_with_state = [log for log, plan in plans.items() if plan.remembered and not log.endswith(IDS)]
        id_logs_with_state = [
            log for log, plan in plans.items() if plan.remembered not in (None, TRUNCATED) and log.endswith(IDS)
        ]
        remember = partial(remembered_partials, plans={log: plans[log] for log in logs_with_state})
        tables = logs.tables(plans)
        if tables is not None:
            partials, events = tables
            partials = pa.concat_tables([partials, remember(states.remembered_table(logs_with_state))])
            records = remembered_records(states.remembered_table(id_logs_with_state))
            folded = fold_table(partials, min_held_ms=self.min_held_ms), fold_history_table(events, records)
            return pa.concat_tables(folded)
        frames = []
        if (read := logs.partial_transactions(plans)) is not None:
            remembered = mapped(states.remembered(logs_with_state), remember, PARTIAL_TRANSACTIONS_SCHEMA)
            frames.append(fold(read.unionByName(remembered), min_held_ms=self.min_held_ms))
        if (records := logs.events(plans)) is not None:
            remembered = mapped(states.remembered(id_logs_with_state), remembered_records, RECORDS)
            frames.append(fold_transaction_history(records, remembered))
        return self.store.internal.overwrite_plain(STAGE_NAME, reduce(DataFrame.unionByName, frames))

    def _staged_rows(self, name: str) -> DataFrame:
        """The new rows of a table."""
        if isinstance(self.staged, DataFrame):
            return rows_of(self.staged, name)
        return from_arrow(self.store.spark, staged_rows(self.staged, name))

    def _add_staged(self, table: Table) -> None:
        self._add(table.name, table, self._staged_rows(table.name), changed=self.plans)

    def _add_transaction_history(self) -> None:
        """Add final rows, and the last row of each id, which depends on the newest time of all ids."""
        states = {log: state for log, state in self.states.all.items() if log.endswith(IDS)}
        latest: dict[Origin, dt.datetime] = {}
        for log, state in states.items():
            if state.latest is not None:
                origin = LogIdentity.of(log).origin
                latest[origin] = max(state.latest, latest.get(origin, state.latest))
        make = partial(current_transaction_history, latest=latest)
        if isinstance(self.staged, DataFrame):
            current = mapped(self.states.remembered(states), make, CURRENT)
        else:
            current = from_arrow(self.store.spark, make(self.states.remembered_table(states)), CURRENT)
        self._add(
            "transaction_history", TRANSACTION_HISTORY, self._staged_rows("transaction_history").unionByName(current)
        )

    def _add_batches(self, logs: PipelineSource) -> None:
        rows = logs.batches(self.plans)
        if rows is not None:
            is_final = ~sf.coalesce(sf.col("error").startswith("TORN_TAIL"), sf.lit(False))
            self._add("batches", BATCHES, rows.withColumn("is_final", is_final), changed=self.plans)

    def _add(self, name: str, table: Table, rows: DataFrame, *, changed: Collection[str] | None = None) -> None:
        obsolete = obsolete_rows(name, self.plans, self.states.obsolete_logs)
        self.store.write(name, table, rows, run_id=self.states.run_id, changed=changed, obsolete=obsolete)

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
            is_consistent=self.sources.logs is not None and self.sources.logs.is_consistent,
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
        return bool(self.sources.recordings) or any(log.startswith("recording:") for log in self.states.before)

    # State.

    def _save(self) -> None:
        """Store the states, which completes the run."""
        if self.store.schema is not None:
            make_views(self.store)
        for each in self.new_samples:
            self.states.put(StoredState(log=each.log, latest=each.newest))
        self.states.put(StoredState(log=COUNTS, listing=counts_to_json(self.counts)))
        self.states.save()


def _replaced(plans: Iterable[str], listings: Mapping[str, LogListing], before: Mapping[str, StoredState]) -> list[str]:
    """Replicas of ``__transaction_state`` that another replica replaces as the best one, in the same cluster."""
    read = {(LogIdentity.of(log).origin, listings[log].partition): log for log in plans if log.endswith(IDS)}
    return [
        log
        for log, state in before.items()
        if log.endswith(IDS) and read.get((LogIdentity.of(log).origin, state.partition), log) != log
    ]
