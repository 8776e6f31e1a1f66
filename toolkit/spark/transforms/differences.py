"""Whether Spark gave the rows that the library gives."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from toolkit.schema import Row, Table

__all__ = ["differences"]


def differences(found: DataFrame, expected: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Rows that only one of the two has, in any order; all are collected to the driver.

    Parameters
    ----------
    found
        Rows of a declared table, of Spark.
    expected
        The same, of the library.
    table
        Which table.

    Returns
    -------
    pandas.DataFrame
        Rows of the table, and before them ``only_in``: spark or pandas; empty where both are the same.
    """
    import pandas as pd

    of_spark = _by_text(found.select(*table.names).toArrow().to_pylist(), table)
    of_pandas = _by_text(table.rows(expected), table)
    rows: list[Row] = []
    names: list[str] = []
    for name, mine, other in (("spark", of_spark, of_pandas), ("pandas", of_pandas, of_spark)):
        counts = Counter({text: len(each) for text, each in mine.items()})
        for text, count in (counts - Counter({text: len(each) for text, each in other.items()})).items():
            rows += mine[text][:count]
            names += [name] * count
    frame = table.frame(rows)
    frame.insert(0, "only_in", pd.Series(names, dtype="string"))
    return frame


def _by_text(rows: list[Row], table: Table) -> dict[str, list[Row]]:
    """Rows by all of their values, through Arrow, so that equal ones have equal keys."""
    by_text: dict[str, list[Row]] = {}
    for row in table.arrow(rows).to_pylist():
        by_text.setdefault(repr(row), []).append(row)
    return by_text
