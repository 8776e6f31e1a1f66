"""The tables that the pipeline stores, and how to read them.

Every table has the columns that ``toolkit.schema`` declares, in that order; then `run_id`, the number of the run that
wrote the row; ``log``, the row's log; and ``is_final``: false if the next run replaces the row. Only Delta Lake is
needed to read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.errors import UsageError
from toolkit.schema import Table
from toolkit.spark.pipeline.table_store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDED_AS = {name: f"recorded_{name}" for name in schema.RECORDED}
"""Stored names of the tables of a recording; most of the plain names are tables of a cluster, too."""

KEPT: Mapping[str, Table] = {
    "batches": schema.BATCHES,
    "log_transactions": schema.LOG_TRANSACTIONS,
    "lso_timeline": schema.LSO_TIMELINE,
    "transaction_history": schema.TRANSACTION_HISTORY,
    **{RECORDED_AS[name]: table for name, table in schema.RECORDED.items()},
    "findings": schema.FINDINGS,
}
"""The stored tables by name."""


def read(spark: SparkSession, target: str, table: str, *, format: str = "delta") -> DataFrame:
    """A stored table with exactly the declared columns; empty if it does not exist.

    Parameters
    ----------
    target
        Target of the pipeline: a folder (with a slash in it), or ``catalog.schema``.
    table
        Name of the table.
    format
        Its format: ``delta`` or ``parquet``.

    Raises
    ------
    UsageError, NotFound
        If the table, the format or the schema does not exist.
    """
    if table not in KEPT:
        raise UsageError(f"There is no table {table}.", do=f"Use one of {', '.join(KEPT)}.")
    return open_store(spark, target, format=format).load(table, KEPT[table]).select(*KEPT[table].names)
