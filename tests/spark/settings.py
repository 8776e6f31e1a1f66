"""Settings of the Sparks that tests start: little data, so nothing is compiled or planned anew for it."""

from toolkit.spark.session.local_session import SMALL

__all__ = ["QUICK"]

QUICK = {
    **SMALL,
    "spark.sql.shuffle.partitions": "2",  # more than one, as rows come in any order then
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""A fifth less of processor time; `tests.spark.rows` plans and compiles as Spark does."""
