"""Arrow columns from arrays, with nulls, and back; Arrow IPC; batch headers as rows of ``batches``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from toolkit.formats.log.batches import CODECS, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.log.headers import Array, HeaderField, Headers
from toolkit.schema import BATCHES, Table, arrow_type
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


def arrow_table(table: Table, columns: Mapping[str, pa.Array | str | int | None], *, rows: int) -> pa.Table:
    """An Arrow table with exactly the declared columns.

    `columns`: by column name: an Arrow array, or one value for every row. A column that is missing is null.
    `rows`: number of rows.
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


COMPRESSION = (*CODECS, *(f"unknown ({codec})" for codec in range(len(CODECS), 8)))
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MARKERS = ("ABORT", "COMMIT")
AS_WRITTEN: tuple[HeaderField, ...] = (
    *("position", "size", "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence"),
    *("leader_epoch", "coordinator_epoch", "record_count", "magic"),
)


def header_table(
    headers: Headers,
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker_id: int | None = None,
    file: str | None = None,
) -> pa.Table:
    """Headers as an Arrow table with exactly the columns of ``schema.BATCHES``, in unchanged order.

    `topic`, `partition`, `broker_id`, `file`: location of the log; the same on every row, null if unknown.
    """
    attributes, magic = headers["attributes"], headers["magic"]
    in_transactions = magic == 2
    horizon = in_transactions & (attributes & DELETE_HORIZON != 0)
    log_append = np.where(magic == 0, -1, attributes & LOG_APPEND_TIME != 0)  # magic 0 has no time
    columns: dict[str, pa.Array] = {name: numbers(headers[name], null=headers[name] == -1) for name in AS_WRITTEN}
    columns |= {
        "is_transactional": numbers(in_transactions & (attributes & TRANSACTIONAL != 0)),
        "is_control": numbers(in_transactions & (attributes & CONTROL != 0)),
        "marker": labels(headers["marker"], MARKERS),
        "base_timestamp": times(np.where(horizon, -1, headers["base_timestamp"])),
        "max_timestamp": times(headers["max_timestamp"]),
        "delete_horizon": times(np.where(horizon, headers["base_timestamp"], -1)),
        "timestamp_type": labels(log_append, TIMESTAMP_TYPES),
        "compression": labels(attributes & 0x07, COMPRESSION),
        "crc": numbers(headers["crc"].astype(np.int64)),
        "crc_ok": numbers(headers["crc_ok"] == 1, null=headers["crc_ok"] == -1),
    }
    where = {"topic": topic, "partition": partition, "broker_id": broker_id, "file": file}
    return arrow_table(BATCHES, columns | where, rows=len(headers))
