"""What a run of the pipeline read, made and found."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.schema import FINDINGS, Row
from toolkit.spark.store import RUN_ID, Store
from toolkit.spark.tables import KEPT, RECORDED_AS

__all__ = ["Counts", "Read", "Summary", "summarised"]

ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows of a table.

    Parameters
    ----------
    rows, errors
        All that are kept, and those of them with error.
    new
        Those that this run wrote.
    """

    rows: int = 0
    errors: int = 0
    new: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What there was to be read of one kind, and what of it was.

    Parameters
    ----------
    what
        Name of what is counted: ``logs`` in files, ``partitions`` of a cluster, ``samples`` of a recording.
    listed, new
        How many there are, and how many of them are new or have changed.
    bytes_listed
        How large all of them are, where that is known.
    bytes_read
        How large the batches are that were read.
    """

    what: str
    listed: int
    new: int
    bytes_listed: int | None = None
    bytes_read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run did.

    Parameters
    ----------
    target, format
        Where the tables are, and how they are kept.
    read
        What was read.
    tables
        Rows of each table that has any.
    findings
        Those that are about now, in the order of ``schema.FINDINGS``.
    verdicts
        How many findings there are by verdict; all that are over are ``ended``.
    seconds
        How long it took.
    """

    target: str
    format: str
    read: Sequence[Read]
    tables: Mapping[str, Counts]
    findings: Sequence[Row]
    verdicts: Mapping[str, int]
    seconds: float

    @property
    def errors(self) -> int:
        """Transactions of which something could not be read, and what else could not be read of the logs."""
        return self.tables["spans"].errors if "spans" in self.tables else 0


def summarised(store: Store, run_id: int, read: Sequence[Read], *, started: float) -> Summary:
    """What a run did that began at this time of `time.monotonic`, by what is kept now."""
    samples = store.find(RECORDED_AS["samples"])
    names = [name for name in KEPT if samples is not None or not name.startswith("recorded_")]
    found = {name: frame for name in names if (frame := store.find(name)) is not None}
    tables = _counts(found, run_id=run_id)
    now = _now(store, samples)
    verdicts = Counter(row["verdict"] for row in now)
    over = tables["findings"].rows - len(now) if "findings" in tables else 0
    return Summary(
        target=store.target,
        format=store.format,
        read=read,
        tables=tables,
        findings=now,
        verdicts={**({ENDED: over} if over else {}), **dict(sorted(verdicts.items()))},
        seconds=time.monotonic() - started,
    )


def _counts(tables: Mapping[str, DataFrame], *, run_id: int) -> dict[str, Counts]:
    """How many rows tables have, counted in one stage: each more costs a new session a quarter of a second."""
    if not tables:
        return {}
    rows = reduce(DataFrame.unionByName, (_marked(frame, name, run_id) for name, frame in tables.items()))
    sums = rows.groupBy("name").agg(
        sf.count(sf.lit(1)).alias("rows"), sf.count_if("is_error").alias("errors"), sf.count_if("is_new").alias("new")
    )
    found = {row["name"]: row for row in sums.collect()}
    return {
        name: Counts(rows=found[name]["rows"], errors=found[name]["errors"], new=found[name]["new"])
        for name in tables
        if name in found
    }


def _marked(rows: DataFrame, name: str, run_id: int) -> DataFrame:
    failed = sf.col("error").isNotNull() if "error" in rows.columns else sf.lit(False)
    is_new = (sf.col(RUN_ID) == run_id).alias("is_new")
    return rows.select(sf.lit(name).alias("name"), failed.alias("is_error"), is_new)


def _now(store: Store, samples: DataFrame | None) -> list[Row]:
    """The findings that are not over, as of the newest answers or of the newest sample."""
    times = [store.load("answers", KEPT["answers"]).agg(sf.min("observed_at").alias("since"))]
    if samples is not None:
        times.append(samples.where("error is null").agg(sf.max("sample").alias("since")))
    since = reduce(DataFrame.unionByName, times).agg(sf.max("since").alias("since"))
    findings = store.load("findings", KEPT["findings"])
    is_open = sf.col("held_to").isNull() & (sf.col("verdict") != ENDED)
    is_newest = sf.col("observed_at") >= sf.coalesce("since", sf.lit(0).cast("timestamp"))
    open_now = findings.where(is_open).crossJoin(since).where(is_newest)
    found = open_now.select(*FINDINGS.names).toArrow().cast(FINDINGS.arrow_schema)
    rows: list[Row] = found.sort_by([(name, "ascending") for name in FINDINGS.sort]).to_pylist()
    return rows
