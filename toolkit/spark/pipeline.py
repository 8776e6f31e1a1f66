"""From logs and recordings to findings, kept in Delta tables: a run reads what is new and adds it.

What a run remembers for the next one is small: of each log what is open, who held its LSO, and how far it was read
(``state``). It is written last. So a run that was killed has left some tables as before and some as after, and the next
run, which goes on from the same state, writes the rows of both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.closing import close_by_log, without_short
from toolkit.analysis.joined import joined
from toolkit.errors import UsageError
from toolkit.schema import BATCHES, FINDINGS, HISTORIES, LSO_TIMELINE, RECORDED, SPANS, Row
from toolkit.sources.cluster import Cluster
from toolkit.spark.findings import best_logs, findings, findings_over_time, holds_of, markers, near_histories
from toolkit.spark.from_cluster import list_partitions
from toolkit.spark.from_files import list_files
from toolkit.spark.from_recording import RecordedSamples, is_recording, list_samples, store_samples
from toolkit.spark.history_fold import (
    CURRENT,
    RECORDS,
    current_histories,
    fold_histories,
    fold_history_table,
    remembered_records,
)
from toolkit.spark.ingest_plan import LogPlan
from toolkit.spark.log_fold import fold, fold_table
from toolkit.spark.pieces import PIECES, REMEMBERED_COLUMNS, TRUNCATED, remembered_pieces
from toolkit.spark.source import IDS, Source
from toolkit.spark.sources import register
from toolkit.spark.stage import LOG, STATE, rows_of, staged_rows
from toolkit.spark.store import RUN_ID, Store, open_store
from toolkit.spark.summary import Counts, Read, Summary, count_rows, summarised
from toolkit.spark.tables import KEPT, RECORDED_AS
from toolkit.spark.told import plainly_told
from toolkit.spark.types import mapped, spark_table, struct_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["findings_over_time", "fold", "rows_of", "run"]

Place = str | os.PathLike[str]
Progress = Callable[[str, bool], object]
AT_ONCE = 4  # tables: while one job is planned, or ends with a single task, another one works
ANSWERS = "answers"
STAGE_NAME = "stage"


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
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(count_rows, store, run_id=going.run_id)
            if going.has_news:
                going.findings()
                going.end()
            found, answers = going.kept("findings"), going.kept(ANSWERS)
        counts = {
            **counting.result(),
            "answers": Counts.of(answers, is_new=going.asks),
            "findings": Counts.of(found, is_new=going.has_news),
        }
        return summarised(store, going.read(), counts, findings=found, answers=answers, started=started)


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
        What is remembered: rows of `toolkit.spark.stage.STATE` by log, without what is only for tasks.
    run_id
        Its number.
    plans
        How each log is read on.
    known
        What was listed, by log.
    staged
        Rows of `toolkit.spark.stage.STAGE` that it has made: Arrow data where this process has made them.
    new_states
        As `states`, of the logs that it has read; with what is remembered where this process has made them.
    small
        Rows of the tables ``answers`` and ``findings``, as far as they are known here.
    """

    store: Store
    sources: _Sources
    states: Mapping[str, Row]
    run_id: int
    plans: Mapping[str, LogPlan]
    known: Mapping[str, Row]
    min_held_ms: int
    progress: Progress
    staged: DataFrame | pa.Table | None = None
    new_states: dict[str, Row] = field(default_factory=dict)
    small: dict[str, list[Row]] = field(default_factory=dict)

    @staticmethod
    def begin(store: Store, sources: _Sources, *, min_held_ms: int, progress: Progress) -> _Run:
        """See what is remembered, and what is new."""
        small = (name for name in STATE.names if name != "remembered")
        rows = store.rows(STATE.name, STATE, *small, RUN_ID)
        states = {row["log"]: row for row in rows}
        return _Run(
            store=store,
            sources=sources,
            states=states,
            run_id=max((row[RUN_ID] for row in rows), default=0) + 1,
            plans=sources.logs.plans(states) if sources.logs else {},
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
            found.append(
                Read(
                    what=logs.what,
                    listed=logs.listed,
                    new=sum(not log.endswith(IDS) for log in self.plans),
                    bytes_listed=logs.bytes_listed,
                    bytes_read=sum(row["bytes_read"] or 0 for row in self.new_states.values()),
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
        recorded = ({"log": each.log, "latest": each.newest} for each in self.sources.recordings)
        rows = [*self.new_states.values(), *recorded]
        logs = self.sources.logs
        if logs is not None and self.asks:
            rows.append({"log": ANSWERS, "listing": self._signature(logs)})
        known = self.store.spark.createDataFrame(spark_table(STATE.arrow(rows)))
        if isinstance(self.staged, DataFrame):
            remembered = rows_of(self.staged, STATE.name).select("log", "remembered")
            known = known.drop("remembered").join(remembered, "log", "left").select(*STATE.names)
        if self.states:
            before = self.store.load(STATE.name, STATE).select(*STATE.names)
            gone = [*(row["log"] for row in rows), *self._left_logs()]
            known = known.unionByName(_of(before, gone, how="left_anti"))
        self._together({"state": lambda: self.store.replace(STATE.name, STATE, known, run_id=self.run_id)})

    def _signature(self, logs: Source) -> str:
        return f"{logs.signature} {self.min_held_ms}"

    # Logs.

    def _read_logs(self, logs: Source) -> None:
        """New sections of logs, folded at once, and shared out to their tables."""
        spark = self.store.spark
        self.staged = staged = self._stage(logs)
        if isinstance(staged, DataFrame):
            states = rows_of(staged, STATE.name).drop("remembered").toArrow()
        else:
            states = staged_rows(staged, STATE.name)
        for row in states.to_pylist():
            listed = self.known[row["log"]]
            self.new_states[row["log"]] = {**row, "listing": listed["listing"], "topic_id": listed["topic_id"]}
        changed = spark.createDataFrame([(log,) for log in self.plans], f"{LOG} string")
        jobs: dict[str, Callable[[], object]] = {
            name: partial(self._add, name, table, self._rows(name), changed)
            for name, table in (("spans", SPANS), ("lso_timeline", LSO_TIMELINE))
        }
        jobs["histories"] = lambda: self._histories(self._rows("histories"))
        self._together(jobs)

    def _rows(self, name: str) -> DataFrame:
        """The rows of a table that this run has made."""
        if isinstance(self.staged, DataFrame):
            return rows_of(self.staged, name)
        return self.store.spark.createDataFrame(staged_rows(self.staged, name))

    def _stage(self, logs: Source) -> DataFrame | pa.Table:
        """Rows of all tables: by this process where there is little to read, else by Spark, written down once."""
        plans = self.plans
        of_logs = [log for log, plan in plans.items() if plan.remembered and not log.endswith(IDS)]
        of_ids = [log for log, plan in plans.items() if plan.remembered not in (None, TRUNCATED) and log.endswith(IDS)]
        remember = partial(remembered_pieces, plans={log: plans[log] for log in of_logs})
        tables = logs.tables(plans)
        if tables is not None:
            pieces, events = tables
            pieces = pa.concat_tables([pieces, remember(self._remembered_here(of_logs))])
            known = remembered_records(self._remembered_here(of_ids))
            folded = fold_table(pieces, min_held_ms=self.min_held_ms), fold_history_table(events, known)
            return pa.concat_tables(folded)
        frames = []
        if (read := logs.pieces(plans)) is not None:
            remembered = mapped(self._remembered(of_logs), remember, PIECES)
            frames.append(fold(read.unionByName(remembered), min_held_ms=self.min_held_ms))
        if (records := logs.events(plans)) is not None:
            remembered = mapped(self._remembered(of_ids), remembered_records, RECORDS)
            frames.append(fold_histories(records, remembered))
        return self.store.replace_plain(STAGE_NAME, reduce(DataFrame.unionByName, frames))

    def _add(self, name: str, table: Any, rows: DataFrame, changed: DataFrame | None) -> None:
        self.store.write(name, table, rows, run_id=self.run_id, changed=changed, obsolete=self._obsolete(name))

    def _histories(self, final: DataFrame) -> None:
        """Rows that stay, and the last one of each id, which depends on the newest time of all."""
        states = {log: row for log, row in self._all_states().items() if log.endswith(IDS)}
        latest = max((row["latest"] for row in states.values() if row["latest"] is not None), default=None)
        make = partial(current_histories, latest=latest)
        if isinstance(self.staged, DataFrame):
            current = mapped(self._remembered(states), make, CURRENT)
        else:
            current = self.store.spark.createDataFrame(make(self._remembered_here(states)), CURRENT)
        self._add("histories", HISTORIES, final.unionByName(current), None)

    def _batches(self, logs: Source) -> None:
        rows = logs.batches(self.plans)
        if rows is not None:
            changed = self.store.spark.createDataFrame([(log,) for log in self.plans], f"{LOG} string")
            is_final = ~sf.coalesce(sf.col("error").startswith("TORN_TAIL"), sf.lit(False))
            self._add("batches", BATCHES, rows.withColumn("is_final", is_final), changed)

    def _answers(self, logs: Source) -> None:
        self._keep(ANSWERS, logs.answers())

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

    def _all_states(self) -> dict[str, Row]:
        """What is remembered of all logs, with what this run has learnt."""
        left = set(self._left_logs())
        return {**{log: row for log, row in self.states.items() if log not in left}, **self.new_states}

    def _remembered(self, logs: Collection[str]) -> DataFrame:
        """`REMEMBERED_COLUMNS` of the states of some logs, the newest of each."""
        new = [log for log in logs if log in self.new_states]
        old = [log for log in logs if log in self.states and log not in self.new_states]
        frames = [_of(self.store.load(STATE.name, STATE), old)] if old else []
        if new and isinstance(self.staged, DataFrame):
            frames.append(_of(rows_of(self.staged, STATE.name), new))
        if not frames:
            return self.store.spark.createDataFrame([], struct_type(STATE)).select(*REMEMBERED_COLUMNS)
        return reduce(DataFrame.unionByName, [frame.select(*REMEMBERED_COLUMNS) for frame in frames])

    def _remembered_here(self, logs: Collection[str]) -> pa.Table:
        """The same in this process."""
        here = [log for log in logs if "remembered" in self.new_states.get(log, ())]
        schema = pa.schema([STATE.arrow_schema.field(name) for name in REMEMBERED_COLUMNS])
        rows = pa.Table.from_pylist([self.new_states[log] for log in here], schema=schema)
        others = set(logs).difference(here)
        return pa.concat_tables([rows, self._remembered(others).toArrow().cast(schema)]) if others else rows

    # Findings.

    def _findings(self) -> None:
        self._keep("findings", FINDINGS.arrow(self._all_findings()))

    def _keep(self, name: str, rows: pa.Table) -> None:
        """Write a table that is small."""
        self.small[name] = rows.to_pylist()
        frame = self.store.spark.createDataFrame(spark_table(rows))
        self.store.replace(name, FINDINGS, frame, run_id=self.run_id)

    def kept(self, name: str) -> list[Row]:
        """The rows of a table that is small."""
        if name not in self.small:
            self.small[name] = self.store.rows(name, FINDINGS)
        return self.small[name]

    def _all_findings(self) -> list[Row]:
        """What logs tell, what recordings tell, and where both do one row: `ended` where either shows it."""
        found: list[Row] = []
        has_logs = self.sources.logs is not None or ANSWERS in self.states
        if has_logs:
            answers = self.kept(ANSWERS)
            logs = best_logs(row for log, row in self._all_states().items() if log != ANSWERS)
            states = self._remembered_here(logs).to_pylist()
            held = self._to_judge(holds_of(states, min_held_ms=self.min_held_ms), answers)
            histories = near_histories(held, self._stored("histories"))
            found = findings(held, histories=histories, answers=answers, min_held_ms=self.min_held_ms)
        has_samples = self.sources.recordings or any(log.startswith("recording:") for log in self.states)
        if has_samples:
            over = findings_over_time(self._stored(RECORDED_AS["findings"]), self._stored(RECORDED_AS["samples"]))
            seen: list[Row] = over.toArrow().to_pylist()
            found = joined(found, close_by_log(seen, markers(seen, self._stored("spans")))) if has_logs else seen
        return without_short(found, min_held_ms=self.min_held_ms)

    def _to_judge(self, held: Iterable[Row], answers: Iterable[Row]) -> list[Row]:
        """What has ended; and of what is open by the log, what there was an answer to be had for.

        A partition may be gone, or not have been asked about now. And while a broker runs, what it did not tell of has
        ended since its log was read.
        """
        logs = self.sources.logs
        if logs is not None and logs.is_consistent:
            names: tuple[str, ...] = ("topic", "partition")
            known = {tuple(row[name] for name in names) for row in self.known.values()}
        else:
            names = ("topic", "partition", "producer_id", "first_offset")
            known = {(row["topic"], row["partition"], row["producer_id"], row["start_offset"]) for row in answers}
        return [row for row in held if row["marker_offset"] is not None or tuple(row[name] for name in names) in known]

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


def _of(states: DataFrame, logs: Iterable[str], *, how: str = "left_semi") -> DataFrame:
    names = states.sparkSession.createDataFrame([(log,) for log in logs], "log string")
    return states.join(sf.broadcast(names), "log", how)
