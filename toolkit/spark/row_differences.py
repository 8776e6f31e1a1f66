"""A comparison of Spark's rows with the library's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from toolkit.schema import Row, Table


def differences(found: DataFrame, expected: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Rows that only one of two tables has, in any order; the driver collects all rows.

    Parameters
    ----------
    found
        Rows of a declared table, from Spark.
    expected
        Its rows from the library.
    table
        The declared table.

    Returns
    -------
    pandas.DataFrame
        Rows of the table after a column ``only_in``: spark or pandas. Empty if both have the same rows.
    """
    import pandas as pd

    spark_rows = _by_text(found.select(*table.names).toArrow().to_pylist(), table)
    pandas_rows = _by_text(table.rows(expected), table)
    rows: list[Row] = []
    names: list[str] = []
    for name, present, other in (("spark", spark_rows, pandas_rows), ("pandas", pandas_rows, spark_rows)):
        counts = Counter({text: len(each) for text, each in present.items()})
        for text, count in (counts - Counter({text: len(each) for text, each in other.items()})).items():
            rows += present[text][:count]
            names += [name] * count
    frame = table.frame(rows)
    frame.insert(0, "only_in", pd.Series(names, dtype="string"))
    return frame


def _by_text(rows: list[Row], table: Table) -> dict[str, list[Row]]:
    """Rows by the text of their values, converted by Arrow so that equal rows have equal keys."""
    by_text: dict[str, list[Row]] = {}
    for row in table.arrow(rows).to_pylist():
        by_text.setdefault(repr(row), []).append(row)
    return by_text
