"""Views of the stored tables, in SQL that Spark, DuckDB and DataFusion (deltalake) understand.

A run makes them in a catalog. For tables in a folder, `create_views` makes them in the session, and `VIEWS` has their
queries for other engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolkit.spark.pipeline.tables.stored_tables import KEPT
from toolkit.spark.pipeline.tables.table_store import TableStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS: Mapping[str, str] = {
    "best_transactions": (
        "SELECT t.* FROM {log_transactions} AS t JOIN {logs} AS l ON t.log = l.log WHERE l.is_best AND t.error IS NULL"
    ),
    "best_lso_timeline": "SELECT t.* FROM {lso_timeline} AS t JOIN {logs} AS l ON t.log = l.log WHERE l.is_best",
    "longest_lso_holds": (
        "SELECT topic, transactional_id, producer_id, count(*) AS holds, "
        "max(coalesce(held_ms, least_ms)) / 1e3 AS longest_s, sum(coalesce(held_ms, least_ms)) / 1e3 AS total_s, "
        "sum(records_held) AS records_held, max(held_to) AS last_held_to "
        "FROM {lso_holds} GROUP BY topic, transactional_id, producer_id"
    ),
    "lso_held_now": (
        "SELECT topic, partition, queue_position, verdict, outcome, transactional_id, owner, producer_id, "
        "start_offset, held_from, held_ms, records_held, cause, reason, remedy, action, observed_at, "
        "cluster_id, topic_id "
        "FROM {findings} WHERE is_current AND verdict <> 'ended'"
    ),
}
"""Queries of the views; names of tables are in braces.

Transactions and LSO steps of the best replica of each partition; who held LSOs, how often and how long; and who holds
one now, with the remedy."""


def create_views(spark: SparkSession, target: str, *, format: str = "delta") -> None:
    """Make the views of a target, in its catalog, or of a folder in the session, with the tables themselves.

    Parameters
    ----------
    spark
        The session.
    target
        Target of the pipeline: a folder (with a slash in it), or ``catalog.schema``.
    format
        Format of its tables: ``delta`` or ``parquet``.

    Raises
    ------
    UsageError, NotFound
        If the target or the format is invalid, or the catalog has no such schema.
    """
    make_views(open_store(spark, target, format=format))


def make_views(store: TableStore) -> None:
    """`create_views` of a store."""
    found = {name: frame for name in KEPT if (frame := store.find(name)) is not None}
    if store.schema is None:
        for name, frame in found.items():
            frame.createOrReplaceTempView(name)
        verb, prefix = "CREATE OR REPLACE TEMPORARY VIEW ", ""
    else:
        verb, prefix = "CREATE OR REPLACE VIEW ", f"{store.schema}."
    tables = {name: prefix + name for name in found}
    for name, query in VIEWS.items():
        if all(f"{{{table}}}" not in query or table in tables for table in KEPT):
            store.spark.sql(f"{verb}{prefix}{name} AS {query.format(**tables)}")
