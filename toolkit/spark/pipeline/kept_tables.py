"""The tables that a pipeline keeps, and how they are read.

Every table has the columns that ``toolkit.schema`` declares, in their order; then `run_id`, the number of the run that
wrote the row, ``log``, the log it is of, and ``is_final``: the next run replaces other rows. Nothing but Delta Lake
is needed to read them.
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

__all__ = ["KEPT", "RECORDED_AS", "read"]

RECORDED_AS = {name: f"recorded_{name}" for name in schema.RECORDED}
"""Names of the tables of a recording, as they are kept: most of them are tables of a cluster, too."""

KEPT: Mapping[str, Table] = {
    "batches": schema.BATCHES,
    "log_transactions": schema.LOG_TRANSACTIONS,
    "lso_timeline": schema.LSO_TIMELINE,
    "transaction_history": schema.TRANSACTION_HISTORY,
    **{RECORDED_AS[name]: table for name, table in schema.RECORDED.items()},
    "findings": schema.FINDINGS,
}
"""By name."""


def read(spark: SparkSession, target: str, table: str, *, format: str = "delta") -> DataFrame:
    """A table that was written, with exactly the columns that are declared; empty if it is not there.

    Parameters
    ----------
    target
        Where tables are: a folder (with a slash in it), or ``catalog.schema``.
    table
        Name of the table.
    format
        ``delta`` or ``parquet``, as it was written.

    Raises
    ------
    UsageError, NotFound
        If there is no such table, format, or schema.
    """
    if table not in KEPT:
        raise UsageError(f"There is no table {table}.", do=f"Use one of {', '.join(KEPT)}.")
    return open_store(spark, target, format=format).load(table, KEPT[table]).select(*KEPT[table].names)
