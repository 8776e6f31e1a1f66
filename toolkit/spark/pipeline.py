"""From logs to findings, all of it: raw rows, what follows from them, and the answers, kept in one place.

`run` does everything, and only what is new. Whoever composes themselves finds each step here by its name: `spans`,
`lso_timeline`, `histories` and `findings` take and return DataFrames of the declared tables.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as sf

from toolkit.errors import UsageError
from toolkit.sources.cluster import Cluster
from toolkit.spark.bronze import Bronze
from toolkit.spark.findings import findings
from toolkit.spark.from_cluster import list_partitions
from toolkit.spark.from_files import list_files
from toolkit.spark.histories import histories
from toolkit.spark.intake import Intake
from toolkit.spark.ledger import Ledger
from toolkit.spark.lso import lso_timeline
from toolkit.spark.silver import Silver
from toolkit.spark.sources import register
from toolkit.spark.spans import spans
from toolkit.spark.store import RUN, Store, open_store
from toolkit.spark.summary import Summary, count_rows, open_findings, verdict_counts
from toolkit.spark.tables import KEPT, stored
from toolkit.spark.told import plainly_told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["findings", "histories", "lso_timeline", "run", "spans"]

Progress = Callable[[str, bool], object]
OPEN = "open"
AT_ONCE = 4  # tables: while one job is planned, or ends with a single task, another one works


class Source(Protocol):
    """Where raw rows come from: `toolkit.spark.from_files.LogFiles`, `toolkit.spark.from_cluster.Partitions`."""

    @property
    def records(self) -> Sequence[str]:
        """Tables of records that belong to parts of logs."""

    @property
    def beside(self) -> Sequence[str]:
        """Tables of files that stand beside segments."""

    @property
    def now(self) -> Sequence[str]:
        """Tables that tell of now."""

    @property
    def may_go_on(self) -> bool:
        """Whether brokers may be writing on while it is read."""

    @property
    def listed(self) -> int:
        """How many segments, or live partitions, there are."""

    @property
    def bytes_listed(self) -> int | None:
        """How large they are, where that is known."""

    def signature(self) -> str:
        """Another one once anything has changed, or something else is asked."""

    def intakes(self, ledger: Ledger) -> Sequence[Intake]:
        """What is to be done about each log."""

    def rows(self, table: str, bronze: Bronze, *, are_segments: bool) -> DataFrame:
        """Rows that hold those of the new parts of logs."""

    def rows_beside(self, table: str, bronze: Bronze) -> DataFrame:
        """Rows of files that stand beside new segments."""

    def answers(self, table: str, ledger: Ledger) -> DataFrame:
        """Rows that tell of now."""


def run(
    spark: SparkSession,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Cluster,
    target: str,
    *,
    format: str = "parquet",
    topics: Sequence[str] | None = None,
    min_held_ms: int = 60_000,
    at_rest: bool = False,
    progress: Progress = lambda table, done: None,
) -> Summary:
    """Read what is new, and make of it who held which partition's LSO from when to when, and who holds it now.

    A run that finds nothing new does nothing. After a crash, run it again: the tables are then those of a single run.
    One run at a time may write to a target.

    Parameters
    ----------
    spark
        The session.
    source
        Log directories, folders of partitions, segments or texts, as executors see them; or a live cluster.
    target
        Where the tables go: a folder (with a slash in it), or ``catalog.schema``.
    format
        ``parquet`` or ``delta``.
    topics
        Only these; all if null.
    min_held_ms
        Leave out what held an LSO for less and has ended.
    at_rest
        As `toolkit.LogDir` takes it.
    progress
        Is told of each table when it is begun, and when it is done.

    Raises
    ------
    UsageError, NotFound
        If the source or the target is none.
    """
    started = time.monotonic()
    with plainly_told():
        store = open_store(spark, target, format=format)
        with store.writing():
            logs = _source(spark, source, topics=topics, at_rest=at_rest)
            ledger = Ledger.load(store)
            bronze = Bronze(store, ledger, logs.intakes(ledger))
            given = f"{logs.signature()} {min_held_ms}"
            if bronze.changes or not ledger.is_made("findings", None, given=given):
                _bronze(logs, bronze, progress)
                _silver(Silver.begin(store, ledger), progress)
                _gold(logs, store, ledger, min_held_ms=min_held_ms, progress=progress)
                ledger.end_made("findings", {None: given})
                ledger.save(store)
        return Summary(
            target=target,
            format=format,
            listed=logs.listed,
            read=len(bronze.parts),
            bytes_listed=logs.bytes_listed,
            bytes_read=bronze.bytes_read,
            tables=count_rows(store, list(KEPT), run=ledger.run),
            verdicts=verdict_counts(store),
            findings=open_findings(store),
            seconds=time.monotonic() - started,
        )


def _source(
    spark: SparkSession,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Cluster,
    *,
    topics: Sequence[str] | None,
    at_rest: bool,
) -> Source:
    if isinstance(source, Cluster):
        if at_rest:
            raise UsageError("at_rest is said of files.", do="Leave it out for a cluster.")
        register(spark, config=source.config)
        return list_partitions(spark, source, topics=topics)
    register(spark)
    paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    return list_files(spark, paths, topics=topics, at_rest=at_rest)


def _bronze(source: Source, bronze: Bronze, progress: Progress) -> None:
    """Raw rows; the ledger is saved once they are all there."""
    store, ledger = bronze.store, bronze.ledger
    ledger.begin_made("findings", [None])
    bronze.begin()

    def read(table: str, are_segments: bool) -> DataFrame:
        return source.rows(table, bronze, are_segments=are_segments)

    jobs: dict[str, Callable[[str], object]] = {}
    if bronze.parts:
        _together({"batches": lambda table: bronze.store_batches(read)}, progress)
        jobs |= dict.fromkeys(source.records, lambda table: bronze.store_records(table, read))
        jobs |= dict.fromkeys(source.beside, lambda table: bronze.store_files(table, source.rows_beside(table, bronze)))
    jobs |= dict.fromkeys(
        source.now, lambda table: store.replace(table, _numbered(source.answers(table, ledger), table, ledger))
    )
    _together(jobs, progress)


def _silver(silver: Silver, progress: Progress) -> None:
    """What follows from the raw rows that have changed."""
    silver.ledger.save(silver.store)
    for tables in (("spans",), ("lso_timeline", "histories")):
        wanted = [table for table in tables if silver.changed[table]]
        _together(dict.fromkeys(wanted, silver.make), progress)
        for table in wanted:
            silver.end(table)


def _gold(source: Source, store: Store, ledger: Ledger, *, min_held_ms: int, progress: Progress) -> None:
    """Findings from all that is stored: they are few."""

    def make(table: str) -> None:
        answers = _whole(store, "answers")
        rows = findings(
            _spans_to_judge(source, store, answers),
            _whole(store, "batches"),
            histories=_whole(store, "histories"),
            answers=answers,
            min_held_ms=min_held_ms,
        )
        store.replace(table, _numbered(rows, table, ledger))

    _together({"findings": make}, progress)


def _spans_to_judge(source: Source, store: Store, answers: DataFrame) -> DataFrame:
    """What has ended; and of what is open by the log, what there was an answer to be had for.

    A partition may be gone, or not have been asked about now. And while a broker runs, what it did not tell of has
    ended since its log was read.
    """
    spans = _whole(store, "spans")
    is_open = sf.coalesce(sf.col("outcome") == OPEN, sf.lit(False))
    ended_unread = sf.col("outcome").isNull() & sf.col("marker_offset").isNull() & sf.col("error").isNotNull()
    asked = answers if source.may_go_on else _whole(store, "partitions")
    key = {"topic": "topic", "partition": "partition"}
    if source.may_go_on:
        key |= {"producer_id": "producer_id", "first_offset": "start_offset"}
    known = asked.select(*(sf.col(theirs).alias(ours) for ours, theirs in key.items())).distinct()
    return spans.where(~is_open & ~ended_unread).unionByName(spans.where(is_open).join(known, list(key), "left_semi"))


def _whole(store: Store, table: str) -> DataFrame:
    return stored(store, table).select(*KEPT[table].table.names)


def _numbered(rows: DataFrame, table: str, ledger: Ledger) -> DataFrame:
    return rows.select(*KEPT[table].table.names, sf.lit(ledger.run).cast("long").alias(RUN))


def _together(jobs: Mapping[str, Callable[[str], object]], progress: Progress) -> None:
    """Make tables that do not need each other."""

    def make(table: str) -> None:
        progress(table, False)
        jobs[table](table)
        progress(table, True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(make, jobs):
            pass
