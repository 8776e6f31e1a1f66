"""The schemas of ``kafka_log``: those of the declared tables, and those of the internal ones."""

from __future__ import annotations

from pyspark.sql.types import StructType

from toolkit.schema import TABLES
from toolkit.spark.log_options import LISTING, PIECES
from toolkit.spark.types import struct_type

__all__ = ["schema_of"]


def schema_of(table: str) -> StructType:
    """Spark's schema of a table."""
    if table == PIECES:
        from toolkit.spark import pieces

        return pieces.PIECES
    if table == LISTING:
        from toolkit.spark import log_listing

        return log_listing.LISTING
    return struct_type(TABLES[table])
