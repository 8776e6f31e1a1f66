"""What a run of the pipeline read, made and found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from toolkit.schema import FINDINGS, Row
from toolkit.spark.store import RUN, Store
from toolkit.spark.tables import KEPT, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Counts", "Summary", "count_rows", "open_findings", "verdict_counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows of a table.

    Parameters
    ----------
    rows, errors
        All that are stored, and those of them with error.
    new
        Those that this run wrote.
    """

    rows: int = 0
    errors: int = 0
    new: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run did.

    Parameters
    ----------
    target, format
        Where the tables are, and how.
    listed, read
        Segments, or live partitions, that are there, and those that had something new to read.
    bytes_listed, bytes_read
        How large those are, null of live partitions; and the batches that were read.
    tables
        Rows of each table.
    verdicts
        Findings by verdict.
    findings
        Those that are about now, in the order of ``schema.FINDINGS``.
    seconds
        How long it took.
    """

    target: str
    format: str
    listed: int
    read: int
    bytes_listed: int | None = None
    bytes_read: int = 0
    tables: Mapping[str, Counts] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[Row] = ()
    seconds: float = 0.0

    @property
    def errors(self) -> int:
        """Raw rows that tell of what could not be read."""
        return sum(counts.errors for name, counts in self.tables.items() if name in KEPT and KEPT[name].is_raw)


def count_rows(store: Store, names: Sequence[str], *, run: int) -> dict[str, Counts]:
    """How many rows tables have, counted in one job."""
    found = {row["name"]: row for row in reduce(_union, (_counted(store, name, run) for name in names)).collect()}
    return {
        name: Counts(rows=found[name]["rows"], errors=found[name]["errors"], new=found[name]["new"]) for name in names
    }


def verdict_counts(store: Store) -> dict[str, int]:
    """Findings by verdict."""
    found = stored(store, "findings").groupBy("verdict").agg(sf.count(sf.lit(1)).alias("rows")).collect()
    return {row["verdict"]: row["rows"] for row in sorted(found)}


def open_findings(store: Store) -> list[Row]:
    """The findings that are about now, in their order."""
    found = stored(store, "findings").where("verdict <> 'ended'").select(*FINDINGS.names).toArrow()
    ordered = found.cast(FINDINGS.arrow_schema).sort_by([(name, "ascending") for name in FINDINGS.sort])
    rows: list[Row] = ordered.to_pylist()
    return rows


def _counted(store: Store, name: str, run: int) -> DataFrame:
    rows = stored(store, name)
    failed = sf.count("error") if "error" in rows.columns else sf.lit(0)
    return rows.agg(
        sf.lit(name).alias("name"),
        sf.count(sf.lit(1)).alias("rows"),
        failed.cast("long").alias("errors"),
        sf.count(sf.when(sf.col(RUN) == run, 1)).alias("new"),
    )


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other)
