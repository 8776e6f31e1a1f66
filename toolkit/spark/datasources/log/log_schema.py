"""The schemas of ``kafka_log_dir``: declared and internal tables."""

from __future__ import annotations

from pyspark.sql.types import StructType

from toolkit.schema import TABLES
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources.log.log_options import LISTING, PARTIAL_TRANSACTIONS


def schema_of(table: str) -> StructType:
    """Spark's schema of a table."""
    if table == PARTIAL_TRANSACTIONS:
        from toolkit.spark.datasources import partial_transactions

        return partial_transactions.PARTIAL_TRANSACTIONS_SCHEMA
    if table == LISTING:
        from toolkit.spark.datasources.log import log_listing

        return log_listing.LISTING
    return struct_type(TABLES[table])
