"""The result of a pipeline run: counts of read data, stored rows and findings."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.schema import FINDINGS
from toolkit.schema.live import Finding
from toolkit.spark.pipeline.stored_findings import StoredFinding
from toolkit.spark.pipeline.stored_tables import KEPT, RECORDED_AS, RUN_ID, TableCounts
from toolkit.spark.pipeline.table_store import TableStore

ENDED = "ended"


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

    @property
    def errors(self) -> int:
        """Number of error rows in ``log_transactions``: unreadable data of transactions and logs."""
        return self.tables["log_transactions"].errors if "log_transactions" in self.tables else 0


def count_rows(store: TableStore, *, run_id: int, without: Collection[str]) -> dict[str, TableCounts]:
    """Row counts of the tables, but for some; in one stage, as each further one costs 0.25 s."""
    names = [name for name in KEPT if name not in without and not name.startswith("recorded_")]
    if store.find(RECORDED_AS["samples"]) is not None:
        names += RECORDED_AS.values()
    found = [_marked(frame, name, run_id) for name in names if (frame := store.find(name)) is not None]
    if not found:
        return {}
    sums = (
        reduce(DataFrame.unionByName, found)
        .groupBy("name")
        .agg(
            sf.count(sf.lit(1)).alias("rows"),
            sf.count_if("is_error").alias("errors"),
            sf.count_if("is_new").alias("new"),
            sf.max(RUN_ID).alias("newest_run"),
        )
    )
    return {
        name: TableCounts(name=name, rows=rows, errors=errors, new=new, newest_run=run or 0)
        for name, rows, errors, new, run in sums.collect()
    }


def newest_runs(store: TableStore, names: Iterable[str]) -> dict[str, int]:
    """The number of the last run that wrote rows of each table; 0 for a table without any."""
    frames = {name: frame for name in names if (frame := store.find(name)) is not None}
    found = [frame.select(sf.lit(name).alias("name"), RUN_ID) for name, frame in frames.items()]
    if not found:
        return {}
    newest = reduce(DataFrame.unionByName, found).groupBy("name").agg(sf.max(RUN_ID).alias("run"))
    return {row.name: row.run or 0 for row in newest.collect()}


def summarised(
    store: TableStore,
    read: Sequence[ReadCounts],
    counts: Mapping[str, TableCounts],
    *,
    findings: Sequence[StoredFinding],
    started: float,
) -> RunSummary:
    """The result of a run, from the stored tables.

    `store`: the stored tables.
    `read`: what was read of each source.
    `counts`: row counts of each stored table.
    `findings`: all stored findings.
    `started`: start of the run, by `time.monotonic`.
    """
    current = FINDINGS.in_order(each.finding for each in findings if each.is_current)
    verdicts = Counter(each.verdict for each in current)
    ended = len(findings) - len(current)
    return RunSummary(
        target=store.target,
        format=store.format,
        read=read,
        tables={name: counts[name] for name in KEPT if name in counts},
        findings=current,
        verdicts={**({ENDED: ended} if ended else {}), **dict(sorted(verdicts.items()))},
        seconds=time.monotonic() - started,
    )


def _marked(rows: DataFrame, name: str, run_id: int) -> DataFrame:
    failed = sf.col("error").isNotNull() if "error" in rows.columns else sf.lit(False)
    is_new = (sf.col(RUN_ID) == run_id).alias("is_new")
    return rows.select(sf.lit(name).alias("name"), failed.alias("is_error"), is_new, RUN_ID)
