"""From logs and recordings to findings: raw rows, what follows from them, and the answers, kept in one place.

`run` does everything, and only what is new. Whoever composes themselves finds each step here by its name: `spans`,
`lso_timeline`, `histories`, `findings`, `findings_over_time` and `joined_findings` take and return DataFrames of the
declared tables.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from toolkit.errors import UsageError
from toolkit.sources.cluster import Cluster
from toolkit.spark.bronze import Bronze
from toolkit.spark.findings import findings, findings_over_time, joined_findings
from toolkit.spark.from_cluster import list_partitions
from toolkit.spark.from_files import list_files
from toolkit.spark.from_recording import RecordedDays, is_recording, list_days
from toolkit.spark.gold import AT_REST, all_findings
from toolkit.spark.histories import histories
from toolkit.spark.ledger import Ledger, digest
from toolkit.spark.lso import lso_timeline
from toolkit.spark.silver import Silver
from toolkit.spark.source import Source
from toolkit.spark.sources import register
from toolkit.spark.spans import spans
from toolkit.spark.store import RUN, Store, open_store
from toolkit.spark.summary import Read, Summary, summarised
from toolkit.spark.tables import KEPT, RECORDED_AS
from toolkit.spark.told import plainly_told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["findings", "findings_over_time", "histories", "joined_findings", "lso_timeline", "run", "spans"]

Place = str | os.PathLike[str]
Progress = Callable[[str, bool], object]
AT_ONCE = 4  # tables: while one job is planned, or ends with a single task, another one works


def run(
    spark: SparkSession,
    source: Place | Sequence[Place] | Cluster,
    target: str,
    *,
    format: str = "parquet",
    topics: Sequence[str] | None = None,
    min_held_ms: int = 60_000,
    at_rest: bool = False,
    txn_state_partitions: int | None = None,
    progress: Progress = lambda table, done: None,
) -> Summary:
    """Read what is new, and make of it who held which partition's LSO from when to when, and who holds it now.

    A run that finds nothing new in files writes nothing. After a crash, run it again: the tables are then those of a
    single run. What brokers or the recorder have deleted since it was read stays. One run at a time may write to a
    target.

    Parameters
    ----------
    spark
        The session.
    source
        Paths, as executors see them: of log directories, folders of partitions, segments or texts, and of recordings.
        Or a live cluster.
    target
        Where the tables go: a folder (with a slash in it), or ``catalog.schema``.
    format
        ``parquet`` or ``delta``.
    topics
        Only these topics of logs; all if null.
    min_held_ms
        Leave out what held an LSO for less and has ended.
    at_rest, txn_state_partitions
        As `toolkit.LogDir` takes them.
    progress
        Is told of each table when it is begun, and when it is done.

    Returns
    -------
    Summary
        What was read, made and found.

    Raises
    ------
    UsageError, NotFound
        If the source or the target is none.
    ConnectionFailed, BrokerError
        If a live cluster cannot be asked.
    """
    started = time.monotonic()
    with plainly_told():
        store = open_store(spark, target, format=format)
        store.sweep()
        with store.writing():
            sources = _sources(spark, source, topics=topics, at_rest=at_rest, txn_state_partitions=txn_state_partitions)
            going = _Run(store=store, ledger=Ledger.load(store), progress=progress)
            read = going.raw(sources)
            going.derived()
            going.findings(min_held_ms=min_held_ms)
        return summarised(store, going.ledger, read, started=started)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Where raw rows come from: logs, recordings, or both."""

    logs: Source | None = None
    recordings: Sequence[RecordedDays] = ()


def _sources(
    spark: SparkSession,
    source: Place | Sequence[Place] | Cluster,
    *,
    topics: Sequence[str] | None,
    **of_files: Any,
) -> _Sources:
    if isinstance(source, Cluster):
        if any(of_files.values()):
            raise UsageError("at_rest and txn_state_partitions are said of files.", do="Leave them out.")
        register(spark, config=source.config)
        return _Sources(logs=list_partitions(spark, source, topics=topics))
    register(spark)
    paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    recorded = [path for path in paths if is_recording(spark, path)]
    others = [path for path in paths if path not in recorded]
    return _Sources(
        logs=list_files(spark, others, topics=topics, **of_files) if others else None,
        recordings=[list_days(spark, path) for path in recorded],
    )


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run.

    Parameters
    ----------
    store, ledger
        Where tables are kept, and what is known of them.
    progress
        Who is told.
    """

    store: Store
    ledger: Ledger
    progress: Progress

    def raw(self, sources: _Sources) -> Sequence[Read]:
        """Store the raw rows that are new, and the answers of now."""
        logs, ledger = sources.logs, self.ledger
        bronze = Bronze(self.store, ledger, logs.intakes(ledger) if logs else ())
        asks, given = False, ""
        if logs:
            given = f"{'' if logs.may_go_on else AT_REST} {logs.signature}".lstrip()
            asks = bronze.changes or not ledger.is_made("answers", None, given=given)
        days = [(recording, recording.changed(ledger)) for recording in sources.recordings]
        if asks or any(changed for _, changed in days):
            if asks:
                ledger.begin_made("answers", [None])
                bronze.note()
            for recording, _ in days:
                recording.begin(ledger)
            ledger.save(self.store)
            if logs and asks:
                bronze.take_out()
                self._logs(logs, bronze)
                ledger.end_made("answers", {None: given})
            for recording, changed in days:
                self._recording(recording, changed)
            ledger.save(self.store)
        read = [Read(what="looks", listed=each.listed, new=sum(map(len, new.values()))) for each, new in days]
        if logs:
            of_logs = Read(
                what=logs.what,
                listed=logs.listed,
                new=len(bronze.parts),
                bytes_listed=logs.bytes_listed,
                bytes_read=bronze.bytes_read,
            )
            read.insert(0, of_logs)
        return read

    def _logs(self, logs: Source, bronze: Bronze) -> None:
        def read(table: str, are_segments: bool) -> DataFrame:
            return logs.rows(table, bronze, are_segments=are_segments)

        jobs: dict[str, Callable[[str], object]] = {}
        if bronze.parts:
            self._together({"batches": lambda table: bronze.store_batches(read)})
            jobs |= dict.fromkeys(logs.records, lambda table: bronze.store_records(table, read))
            jobs |= dict.fromkeys(logs.beside, lambda table: bronze.store_files(table, logs.rows_beside(table, bronze)))
        jobs |= dict.fromkeys(logs.now, lambda table: self._replace(table, logs.answers(table, self.ledger)))
        self._together(jobs)

    def _recording(self, recording: RecordedDays, days: Mapping[str, Sequence[dt.datetime]]) -> None:
        def store(table: str) -> None:
            recording.store(self.store, table, days, run=self.ledger.run)

        if days:
            self._together(dict.fromkeys(RECORDED_AS.values(), store))
            recording.end(self.ledger, days)

    def derived(self) -> None:
        """Make what follows from raw rows that have changed."""
        silver = Silver.begin(self.store, self.ledger)
        if not any(silver.changed.values()):
            return
        self.ledger.save(self.store)
        for tables in (("spans",), ("lso_timeline", "histories")):
            wanted = [table for table in tables if silver.changed[table]]
            self._together(dict.fromkeys(wanted, silver.make))
            for table in wanted:
                silver.end(table)

    def findings(self, *, min_held_ms: int) -> None:
        """Make the findings, unless they were made from just what is there."""
        told = sorted([made.table, made.unit or "", made.given] for made in self.ledger.made.values())
        given = digest([min_held_ms, [each for each in told if each[0] != "findings"]])
        if self.ledger.is_made("findings", None, given=given):
            return
        self.ledger.begin_made("findings", [None])
        self.ledger.save(self.store)
        self._together(
            {
                "findings": lambda table: self._replace(
                    table, all_findings(self.store, self.ledger, min_held_ms=min_held_ms)
                )
            }
        )
        self.ledger.end_made("findings", {None: given})
        self.ledger.save(self.store)

    def _replace(self, table: str, rows: DataFrame) -> None:
        numbered = rows.select(*KEPT[table].table.names, sf.lit(self.ledger.run).cast("long").alias(RUN))
        self.store.replace(table, numbered)

    def _together(self, jobs: Mapping[str, Callable[[str], object]]) -> None:
        """Make tables that do not need each other."""

        def make(table: str) -> None:
            self.progress(table, False)
            jobs[table](table)
            self.progress(table, True)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(make, jobs):
                pass
