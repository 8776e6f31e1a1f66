"""One recorded table out of all of them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.errors import UsageError
from toolkit.schema import RECORDED

__all__ = ["recorded"]


def recorded(everything: DataFrame, table: str) -> DataFrame:
    """The rows of one table, flat, out of all that ``kafka_transactions`` gives.

    Parameters
    ----------
    everything
        With the columns of the table ``everything``; a stream, a micro-batch of it, or what was kept of one.
    table
        Its name in ``schema.RECORDED``.

    Raises
    ------
    UsageError
        If there is no such table.
    """
    if table not in RECORDED:
        raise UsageError(f"{table!r} is not recorded.", do=f"Say one of {', '.join(RECORDED)}.")
    return everything.where(sf.col("table") == table).select(f"{table}.*")
