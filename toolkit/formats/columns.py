"""Arrow columns from arrays, with null for what is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.schema import Table, arrow_type
from toolkit.schema.table import LAST_TIME

__all__ = ["arrow_table", "labels", "numbers", "times"]

Array = npt.NDArray[Any]


def numbers(values: Array, *, null: Array | None = None) -> pa.Array:
    """Integers; null where `null` says so, else where they are negative. Booleans are null only where it says so."""
    if null is None and values.dtype != np.bool_:
        null = values < 0
    return pa.array(np.ascontiguousarray(values), mask=null)


def times(milliseconds: Array) -> pa.Array:
    """Epoch milliseconds as UTC times; null where they are negative or after the year 9999."""
    null = (milliseconds < 0) | (milliseconds > LAST_TIME)
    return numbers(milliseconds, null=null).cast(pa.timestamp("ms", tz="UTC"))


def labels(codes: Array, names: Sequence[str | None]) -> pa.Array:
    """The name at each code; null where there is none."""
    outside = (codes < 0) | (codes >= len(names))
    indices = pa.array(codes.astype(np.int32), mask=outside)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string())).dictionary_decode()


def arrow_table(table: Table, columns: Mapping[str, Any], *, rows: int) -> pa.Table:
    """An Arrow table with exactly the declared columns.

    Parameters
    ----------
    table
        The declaration.
    columns
        By column name: an Arrow array, or one value for every row. A column that is missing is null.
    rows
        How many rows there are.
    """
    arrays = []
    for column in table.columns:
        given, type_ = columns.get(column.name), arrow_type(column.type)
        arrays.append(given.cast(type_) if isinstance(given, pa.Array) else pa.repeat(pa.scalar(given, type_), rows))
    return pa.Table.from_arrays(arrays, schema=table.arrow_schema)
