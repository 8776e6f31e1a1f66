"""The schemas of ``kafka_log``: those of the declared tables, and that of the internal one."""

from __future__ import annotations

from pyspark.sql.types import StructType

from toolkit.schema import TABLES
from toolkit.spark.log_options import PIECES
from toolkit.spark.types import struct_type

__all__ = ["schema_of"]


def schema_of(table: str) -> StructType:
    """Spark's schema of a table."""
    if table == PIECES:
        from toolkit.spark import pieces

        return pieces.PIECES
    return struct_type(TABLES[table])
