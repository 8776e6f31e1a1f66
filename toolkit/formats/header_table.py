"""Scanned headers and damage as rows of the table ``batches``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toolkit.formats.batches import CODECS, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, Damage, Headers
from toolkit.schema import BATCHES, Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["damage_rows", "header_table"]

Mask = npt.NDArray[np.bool_]

COMPRESSION = (*CODECS, *(f"unknown ({codec})" for codec in range(len(CODECS), 8)))
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MARKERS = ("ABORT", "COMMIT")


def header_table(
    headers: Headers,
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker_id: int | None = None,
    file: str | None = None,
) -> pa.Table:
    """Headers as an Arrow table with exactly the columns of ``schema.BATCHES``, in the order given.

    Parameters
    ----------
    headers
        Structured array of `HEADER`.
    topic, partition, broker_id, file
        Where they come from; the same on every row, null if not known.
    """
    import pyarrow as pa

    attributes, magic = headers["attributes"], headers["magic"]
    in_transactions = magic == 2
    horizon = in_transactions & (attributes & DELETE_HORIZON != 0)
    log_append = (attributes & LOG_APPEND_TIME != 0).astype(np.int8)
    is_marker = (headers["marker"] == ABORT) | (headers["marker"] == COMMIT)
    columns = {
        "topic": _same(topic, len(headers), pa.string()),
        "partition": _same(partition, len(headers), pa.int32()),
        "broker_id": _same(broker_id, len(headers), pa.int32()),
        "file": _same(file, len(headers), pa.string()),
        "error": _same(None, len(headers), pa.string()),
        "is_transactional": _values(in_transactions & (attributes & TRANSACTIONAL != 0)),
        "is_control": _values(in_transactions & (attributes & CONTROL != 0)),
        "marker": _names(headers["marker"], MARKERS, null=~is_marker),
        "coordinator_epoch": _values(headers["coordinator_epoch"], null=headers["coordinator_epoch"] == -1),
        "base_timestamp": _times(headers["base_timestamp"], null=horizon),
        "max_timestamp": _times(headers["max_timestamp"]),
        "delete_horizon": _times(headers["base_timestamp"], null=~horizon),
        "timestamp_type": _names(log_append, TIMESTAMP_TYPES, null=magic == 0),  # magic 0 has no time
        "compression": _names(attributes & 0x07, COMPRESSION),
        "crc": _values(headers["crc"].astype(np.int64)),
        "crc_ok": _values(headers["crc_ok"] == 1, null=headers["crc_ok"] == -1),
    }
    schema = BATCHES.arrow_schema
    numbers = (name for name in schema.names if name not in columns)
    columns |= {name: _values(headers[name], null=headers[name] == -1) for name in numbers}
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def damage_rows(
    damage: Iterable[Damage],
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker_id: int | None = None,
    file: str | None = None,
) -> list[Row]:
    """Damage as rows of ``schema.BATCHES``: position, size and error, every field of a header null.

    Parameters
    ----------
    damage
        Stretches of one file or partition.
    topic, partition, broker_id, file
        Where they come from, as for `header_table`.
    """
    place = {"topic": topic, "partition": partition, "broker_id": broker_id, "file": file}
    return [place | {"position": each.position, "size": each.size, "error": each.reason} for each in damage]


def _same(value: str | int | None, count: int, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(value, type_), count)


def _values(numbers: npt.NDArray[Any], *, null: Mask | None = None) -> pa.Array:
    import pyarrow as pa

    return pa.array(np.ascontiguousarray(numbers), mask=null)


def _times(milliseconds: npt.NDArray[Any], *, null: Mask | None = None) -> pa.Array:
    import pyarrow as pa

    unknown = milliseconds < 0
    return _values(milliseconds, null=unknown if null is None else unknown | null).cast(pa.timestamp("ms", tz="UTC"))


def _names(codes: npt.NDArray[Any], names: tuple[str, ...], *, null: Mask | None = None) -> pa.Array:
    import pyarrow as pa

    indices = codes if null is None else np.where(null, 0, codes)
    return pa.DictionaryArray.from_arrays(
        _values(indices.astype(np.int8), null=null), pa.array(names)
    ).dictionary_decode()
