"""Arrow columns from arrays, with nulls, and back; Arrow IPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from toolkit.formats.log.headers import Array
from toolkit.schema import Table, arrow_type
from toolkit.schema.table import LAST_TIME


def numbers(values: Array, *, null: Array | None = None) -> pa.Array:
    """Integers or booleans; null where `null` is true; without `null`, negative integers are null."""
    if null is None and values.dtype != np.bool_:
        null = values < 0
    return pa.array(np.ascontiguousarray(values), mask=null)


def times(milliseconds: Array) -> pa.Array:
    """Epoch milliseconds as UTC times; null if negative or after the year 9999."""
    null = (milliseconds < 0) | (milliseconds > LAST_TIME)
    return numbers(milliseconds, null=null).cast(pa.timestamp("ms", tz="UTC"))


def labels(codes: Array, names: Sequence[str | None]) -> pa.Array:
    """The name of each code; null for an unknown code."""
    outside = (codes < 0) | (codes >= len(names))
    indices = pa.array(codes.astype(np.int32), mask=outside)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string())).dictionary_decode()


def integers(column: pa.Array | pa.ChunkedArray, *, null: int = -1) -> Array:
    """The numbers of a column of `numbers` (0 and 1 for booleans), with `null` for null."""
    column = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    return np.asarray(column.fill_null(null))


def milliseconds(column: pa.Array | pa.ChunkedArray) -> Array:
    """The times of a column of `times`, in any unit, as epoch milliseconds; -1 for null."""
    in_ms = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    return np.asarray(in_ms.cast(pa.int64()).fill_null(-1))


def arrow_table(table: Table, columns: Mapping[str, Any], *, rows: int) -> pa.Table:
    """An Arrow table with exactly the declared columns.

    Parameters
    ----------
    table
        The declaration.
    columns
        By column name: an Arrow array, or one value for every row. A column that is missing is null.
    rows
        Number of rows.
    """
    arrays = []
    for column in table.columns:
        values, type_ = columns.get(column.name), arrow_type(column.type)
        if isinstance(values, pa.Array | pa.ChunkedArray):
            arrays.append(values.cast(type_))
        else:
            arrays.append(pa.repeat(pa.scalar(values, type_), rows))
    return pa.Table.from_arrays(arrays, schema=table.arrow_schema)


def to_ipc(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_ipc(data: bytes) -> pa.Table:
    """The table in an Arrow IPC stream."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
