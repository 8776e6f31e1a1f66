"""From logs and recordings to findings, kept in Delta tables: a run reads what is new and adds it.

What a run remembers for the next one is small: of each log what is open, who held its LSO, and how far it was read
(``state``). It is written last. So a run that was killed has left some tables as before and some as after, and the next
run, which goes on from the same state, writes the rows of both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.errors import UsageError
from toolkit.schema import BATCHES, FINDINGS, HISTORIES, LSO_TIMELINE, RECORDED, SPANS, Row
from toolkit.sources.cluster import Cluster
from toolkit.spark.findings import (
    closed_findings,
    findings,
    findings_over_time,
    joined_findings,
    without_short_findings,
)
from toolkit.spark.from_cluster import list_partitions
from toolkit.spark.from_files import list_files
from toolkit.spark.from_recording import RecordedSamples, is_recording, list_samples, store_samples
from toolkit.spark.history_fold import current_histories, fold_histories, remembered_records
from toolkit.spark.ingest_plan import LogPlan
from toolkit.spark.log_fold import fold
from toolkit.spark.log_holds import best_logs, holds_of
from toolkit.spark.pieces import TRUNCATED, remembered_pieces
from toolkit.spark.source import IDS, Source
from toolkit.spark.sources import register
from toolkit.spark.stage import LOG, STATE, rows_of
from toolkit.spark.store import RUN_ID, Store, open_store
from toolkit.spark.summary import Read, Summary, summarised
from toolkit.spark.tables import KEPT, RECORDED_AS
from toolkit.spark.told import plainly_told
from toolkit.spark.types import spark_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["findings", "findings_over_time", "fold", "joined_findings", "rows_of", "run"]

Place = str | os.PathLike[str]
Progress = Callable[[str, bool], object]
AT_ONCE = 4  # tables: while one job is planned, or ends with a single task, another one works
ANSWERS = "answers"
STAGE = "stage"


def run(
    spark: SparkSession,
    source: Place | Sequence[Place] | Cluster,
    target: str,
    *,
    format: str = "delta",
    topics: Sequence[str] | None = None,
    min_held_ms: int = 60_000,
    at_rest: bool = False,
    txn_state_partitions: int | None = None,
    with_batches: bool = False,
    progress: Progress = lambda table, done: None,
) -> Summary:
    """Read what is new, and make of it who held which partition's LSO from when to when, and who holds it now.

    A run that finds nothing new in files writes nothing. After a crash, run it again: the tables are then those of a
    single run. What brokers or the recorder have deleted since it was read stays. One run at a time may write to a
    target.

    Parameters
    ----------
    spark
        The session; one of your own gets Delta Lake by `toolkit.lab.delta.delta_settings`.
    source
        Paths, as executors see them: of log directories, folders of partitions, segments or texts, and of recordings.
        Or a live cluster.
    target
        Where the tables go: a folder (with a slash in it), or ``catalog.schema``.
    format
        ``delta``; or ``parquet``, for a single run into an empty folder.
    topics
        Only these topics of logs; all if null.
    min_held_ms
        Leave out what held an LSO for less and has ended. What an earlier run has left out stays out.
    at_rest, txn_state_partitions
        As `toolkit.LogDir` takes them.
    with_batches
        Keep the header of every batch, too.
    progress
        Is told of each table when it is begun, and when it is done.

    Returns
    -------
    Summary
        What was read, made and found.

    Raises
    ------
    UsageError, NotFound
        If the source or the target is none, or Parquet tables are there already.
    ConnectionFailed, BrokerError
        If a live cluster cannot be asked.
    """
    started = time.monotonic()
    with plainly_told():
        store = open_store(spark, target, format=format)
        if format == "parquet" and any(store.find(name) is not None for name in KEPT):
            raise UsageError(
                f"There are Parquet tables in {target} already.",
                means="Parquet is written once, by a single run: only Delta tables are added to.",
                do="Write to an empty folder, or leave the format out.",
            )
        sources = _sources(
            spark, source, topics=topics, is_consistent=at_rest, txn_state_partitions=txn_state_partitions
        )
        going = _Run.begin(store, sources, min_held_ms=min_held_ms, progress=progress)
        if going.has_news:
            going.logs(with_batches=with_batches)
            going.recordings()
            going.findings()
            going.end()
        return summarised(store, going.run_id, going.read(), started=started)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """What is read: logs, recordings, or both."""

    logs: Source | None = None
    recordings: Sequence[RecordedSamples] = ()


def _sources(
    spark: SparkSession,
    source: Place | Sequence[Place] | Cluster,
    *,
    topics: Sequence[str] | None,
    is_consistent: bool,
    txn_state_partitions: int | None,
) -> _Sources:
    if isinstance(source, Cluster):
        if is_consistent or txn_state_partitions:
            raise UsageError("at_rest and txn_state_partitions are said of files.", do="Leave them out.")
        register(spark, config=source.config)
        return _Sources(logs=list_partitions(spark, source, topics=topics))
    register(spark)
    paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    recorded = [path for path in paths if is_recording(spark, path)]
    others = [path for path in paths if path not in recorded]
    logs = None
    if others:
        logs = list_files(
            spark, others, topics=topics, is_consistent=is_consistent, txn_state_partitions=txn_state_partitions
        )
    return _Sources(logs=logs, recordings=[list_samples(spark, path) for path in recorded])


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run.

    Parameters
    ----------
    store
        Where tables are kept.
    sources
        What is read.
    states
        What is remembered: rows of `toolkit.spark.stage.STATE` by log, without what is only for executors.
    run_id
        Its number.
    plans
        How each log is read on.
    known
        What was listed, by log.
    """

    store: Store
    sources: _Sources
    states: Mapping[str, Row]
    run_id: int
    plans: Mapping[str, LogPlan]
    known: Mapping[str, Row]
    min_held_ms: int
    progress: Progress
    new_states: list[DataFrame] = field(default_factory=list)
    bytes_read: int = 0

    @staticmethod
    def begin(store: Store, sources: _Sources, *, min_held_ms: int, progress: Progress) -> _Run:
        """See what is remembered, and what is new."""
        stored = store.load(STATE.name, STATE)
        rows: list[Row] = stored.drop("remembered").toArrow().to_pylist()
        states = {row["log"]: row for row in rows}
        plans = sources.logs.plans(states) if sources.logs else {}
        run_id = max((row[RUN_ID] for row in rows), default=0) + 1
        return _Run(
            store=store,
            sources=sources,
            states=states,
            run_id=run_id,
            plans=plans,
            known=sources.logs.known if sources.logs else {},
            min_held_ms=min_held_ms,
            progress=progress,
        )

    @property
    def asks(self) -> bool:
        """Whether the files or brokers are to be asked who holds what now."""
        logs, before = self.sources.logs, self.states.get(ANSWERS, {})
        return logs is not None and (bool(self.plans) or before.get("listing") != self._signature(logs))

    @property
    def has_news(self) -> bool:
        """Whether there is anything to do."""
        return self.asks or any(each.has_new(self.states) for each in self.sources.recordings)

    def read(self) -> Sequence[Read]:
        """What was read, for the summary."""
        found = []
        if logs := self.sources.logs:
            new = sum(not log.endswith(IDS) for log in self.plans)
            found.append(
                Read(
                    what=logs.what,
                    listed=logs.listed,
                    new=new,
                    bytes_listed=logs.bytes_listed,
                    bytes_read=self.bytes_read,
                )
            )
        for each in self.sources.recordings:
            new = each.count_new(self.states) if each.has_new(self.states) else 0
            found.append(Read(what="samples", listed=each.listed, new=new))
        return found

    def logs(self, *, with_batches: bool) -> None:
        """Read the logs that have changed, and ask who holds what now."""
        logs = self.sources.logs
        if logs is None or not self.asks:
            return
        jobs: dict[str, Callable[[], object]] = {ANSWERS: lambda: self._answers(logs)}
        if self.plans:
            jobs["logs"] = lambda: self._read_logs(logs)
        if self.plans and with_batches:
            jobs["batches"] = lambda: self._batches(logs)
        self._together(jobs)

    def recordings(self) -> None:
        """Add the samples that are new."""
        new = [each for each in self.sources.recordings if each.has_new(self.states)]
        if new:
            self._together(
                {
                    RECORDED_AS[name]: partial(store_samples, self.store, name, new, self.states, run_id=self.run_id)
                    for name in RECORDED
                }
            )

    def findings(self) -> None:
        """Make the findings anew, of all that is kept."""
        self._together({"findings": self._findings})

    def end(self) -> None:
        """Write down what is remembered: from here on this run counts."""
        rows = [
            {"log": each.log, "latest": each.newest, "is_held": False}
            for each in self.sources.recordings
            if each.has_new(self.states)
        ]
        logs = self.sources.logs
        if logs is not None and self.asks:
            rows.append({"log": ANSWERS, "listing": self._signature(logs), "is_held": False})
        others = self.store.spark.createDataFrame(spark_table(STATE.arrow(rows)))
        written = self._all_states(others.select(*STATE.names))
        self._together({"state": lambda: self.store.replace(STATE.name, STATE, written, run_id=self.run_id)})

    def _signature(self, logs: Source) -> str:
        return f"{logs.signature} {self.min_held_ms}"

    # Logs.

    def _read_logs(self, logs: Source) -> None:
        """New sections of logs, folded by one job; its rows are written down once, and shared out to their tables."""
        spark, plans = self.store.spark, self.plans
        known = self.store.load(STATE.name, STATE)
        of_ids = [log for log, plan in plans.items() if log.endswith(IDS) and plan.remembered not in (None, TRUNCATED)]
        frames = []
        if (pieces := logs.pieces(plans)) is not None:
            remembered = {log: plan for log, plan in plans.items() if plan.remembered and not log.endswith(IDS)}
            if remembered:
                pieces = pieces.unionByName(remembered_pieces(known, remembered))
            frames.append(fold(pieces, min_held_ms=self.min_held_ms))
        if (events := logs.events(plans)) is not None:
            frames.append(fold_histories(events, remembered_records(_of(known, of_ids))))
        staged = self.store.replace_plain(STAGE, reduce(DataFrame.unionByName, frames))
        state = rows_of(staged, STATE.name)
        named = [(log, row["listing"], row["topic_id"]) for log, row in self.known.items() if log in plans]
        beside = spark.createDataFrame(named, "log string, new_listing string, new_topic_id string")
        state = state.join(sf.broadcast(beside), "log").withColumns(
            {"listing": sf.col("new_listing"), "topic_id": sf.col("new_topic_id")}
        )
        self.new_states.append(state.select(*STATE.names))
        changed = spark.createDataFrame([(log,) for log in plans], f"{LOG} string")
        jobs: dict[str, Callable[[], object]] = {
            name: partial(self._add, name, table, rows_of(staged, name), changed)
            for name, table in (("spans", SPANS), ("lso_timeline", LSO_TIMELINE))
        }
        jobs["histories"] = lambda: self._histories(rows_of(staged, "histories"))
        jobs["sizes"] = self._count_bytes
        self._together(jobs)

    def _add(self, name: str, table: Any, rows: DataFrame, changed: DataFrame | None) -> None:
        self.store.write(name, table, rows, run_id=self.run_id, changed=changed, obsolete=self._obsolete(name))

    def _histories(self, final: DataFrame) -> None:
        """Rows that stay, and the last one of each id, which depends on the newest time of all."""
        states = self._all_states().where(sf.col("log").endswith(IDS))
        (newest,) = states.agg(sf.max("latest").alias("latest")).toArrow().to_pylist()
        rows = final.unionByName(current_histories(states, latest=newest["latest"]))
        self._add("histories", HISTORIES, rows, None)

    def _batches(self, logs: Source) -> None:
        rows = logs.batches(self.plans)
        if rows is not None:
            changed = self.store.spark.createDataFrame([(log,) for log in self.plans], f"{LOG} string")
            is_final = ~sf.coalesce(sf.col("error").startswith("TORN_TAIL"), sf.lit(False))
            self._add("batches", BATCHES, rows.withColumn("is_final", is_final), changed)

    def _answers(self, logs: Source) -> None:
        self.store.replace(ANSWERS, FINDINGS, logs.answers(), run_id=self.run_id)

    def _count_bytes(self) -> None:
        (row,) = self.new_states[0].agg(sf.sum("bytes_read").alias("bytes")).collect()
        self.bytes_read = row["bytes"] or 0

    def _obsolete(self, name: str) -> list[str]:
        """Conditions on stored rows of logs that are others now, from some offset on."""
        found = []
        for log, plan in self.plans.items():
            if plan.remembered == TRUNCATED and log.endswith(IDS) is (name == "histories"):
                found.append(f"{_is_of(log)} AND {BEHIND[name].format(offset=plan.offset)}")
        if name == "histories":
            found += [_is_of(log) for log in self._left_logs()]
        return found

    def _left_logs(self) -> list[str]:
        """Replicas of ``__transaction_state`` that do not have most of their partition any more."""
        read = {self.known[log]["partition"]: log for log in self.plans if log.endswith(IDS)}
        return [
            log for log, state in self.states.items() if log.endswith(IDS) and read.get(state["partition"], log) != log
        ]

    def _all_states(self, *others: DataFrame) -> DataFrame:
        """What is remembered of all logs, with what this run has learnt."""
        before = self.store.load(STATE.name, STATE).select(*STATE.names)
        new = [*self.new_states, *others]
        if not new:
            return before
        known = reduce(DataFrame.unionByName, new)
        gone = _of(before, self._left_logs(), wanted=False)
        return gone.join(sf.broadcast(known.select("log")), "log", "left_anti").select(*STATE.names).unionByName(known)

    # Findings.

    def _findings(self) -> None:
        self.store.replace("findings", FINDINGS, self._all_findings(), run_id=self.run_id)

    def _all_findings(self) -> DataFrame:
        """What logs tell, what recordings tell, and where both do one row: `ended` where either shows it."""
        found = []
        states = self._all_states().where("remembered is not null")
        has_logs = self.sources.logs is not None or ANSWERS in self.states
        if has_logs:
            answers = self._stored(ANSWERS)
            held = self._to_judge(holds_of(best_logs(states), min_held_ms=self.min_held_ms), answers)
            histories = self._stored("histories")
            found.append(findings(held, histories=histories, answers=answers, min_held_ms=self.min_held_ms))
        has_samples = self.sources.recordings or any(log.startswith("recording:") for log in self.states)
        if has_samples:
            seen = findings_over_time(self._stored(RECORDED_AS["findings"]), self._stored(RECORDED_AS["samples"]))
            found.append(closed_findings(seen, self._stored("spans")) if has_logs else seen)
        told = found[0] if len(found) == 1 else joined_findings(*found)
        return without_short_findings(told, min_held_ms=self.min_held_ms)

    def _to_judge(self, held: DataFrame, answers: DataFrame) -> DataFrame:
        """What has ended; and of what is open by the log, what there was an answer to be had for.

        A partition may be gone, or not have been asked about now. And while a broker runs, what it did not tell of has
        ended since its log was read.
        """
        logs = self.sources.logs
        is_open = sf.col("marker_offset").isNull()
        if logs is not None and logs.is_consistent:
            places = {(row["topic"], row["partition"]) for row in self.known.values()}
            known = self.store.spark.createDataFrame(sorted(places, key=str), "topic string, partition int")
        else:
            known = answers.select(
                "topic", "partition", "producer_id", sf.col("start_offset").alias("first_offset")
            ).distinct()
        still = held.where(is_open).join(sf.broadcast(known), known.columns, "left_semi")
        return held.where(~is_open).unionByName(still.select(*held.columns))

    def _stored(self, name: str) -> DataFrame:
        return self.store.load(name, KEPT[name]).select(*KEPT[name].names)

    def _together(self, jobs: Mapping[str, Callable[[], object]]) -> None:
        """Make tables that do not need each other."""

        def make(name: str) -> None:
            self.progress(name, False)
            jobs[name]()
            self.progress(name, True)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(make, jobs):
                pass


BEHIND = {
    "spans": "coalesce(greatest(marker_offset, first_offset) >= {offset}, true)",
    "lso_timeline": "offset > {offset}",
    "histories": "last_offset >= {offset}",
    "batches": "coalesce(base_offset >= {offset}, true)",
}
"""Which rows lie at an offset or behind it."""


def _is_of(log: str) -> str:
    return "{} = '{}'".format(LOG, log.replace("\\", "\\\\").replace("'", "\\'"))


def _of(states: DataFrame, logs: Iterable[str], *, wanted: bool = True) -> DataFrame:
    names = states.sparkSession.createDataFrame([(log,) for log in logs], "log string")
    return states.join(sf.broadcast(names), "log", "left_semi" if wanted else "left_anti")
