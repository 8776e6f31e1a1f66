"""The table ``amounts``: what is counted of batches, packed, as rows for Spark; thousands of batches in a few rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

from toolkit.formats.batches import CONTROL
from toolkit.formats.header_table import headers_of
from toolkit.formats.headers import Damage, Headers
from toolkit.sources.log_tables import Part, Where
from toolkit.spark.packing import pack_groups, unpack

__all__ = ["AMOUNT", "AMOUNTS", "OFFSETS_PER_SLOT", "amount_batches", "amounts", "damaged", "packed_amounts"]

AMOUNTS = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("broker_id", IntegerType()),
        StructField("file", StringType()),
        StructField("slot", LongType()),  # of `OFFSETS_PER_SLOT` offsets, that all batches in the row end in
        StructField("leader_epoch", IntegerType()),
        StructField("log_end_offset", LongType()),  # behind the last of them
        StructField("is_damaged", BooleanType()),
        StructField("packed", BinaryType()),  # rows of `AMOUNT`
    ]
)
"""Spark's schema of the table."""

AMOUNTS_SCHEMA: pa.Schema = to_arrow_schema(AMOUNTS)

AMOUNT = np.dtype(
    [("base_offset", "i8"), ("last_offset", "i8"), ("size", "i8"), ("record_count", "i4"), ("is_control", "?")]
)
"""A batch, as far as it is counted."""

OFFSETS_PER_SLOT = 1 << 18
Array = npt.NDArray[Any]
PLACE = ("topic", "partition", "broker_id", "file")
NEEDED = (*PLACE, "base_offset", "last_offset", "size", "record_count", "is_control", "leader_epoch", "error")


def amounts(batches: DataFrame, *, offsets_per_slot: int = OFFSETS_PER_SLOT) -> DataFrame:
    """Batches as rows of `AMOUNTS`.

    Parameters
    ----------
    batches
        Rows of ``schema.BATCHES``.
    offsets_per_slot
        As whoever reads them takes it.
    """
    return batches.select(*NEEDED).mapInArrow(partial(packed_amounts, offsets_per_slot=offsets_per_slot), AMOUNTS)


def amount_batches(parts: Iterable[Part], where: Where) -> Iterator[pa.RecordBatch]:
    """Parts of one log as rows of `AMOUNTS`.

    Parameters
    ----------
    parts
        Stretches of the log.
    where
        Whose it is.
    """
    for part in parts:
        place = where.columns | {"file": part.file}
        if any(not each.is_torn for each in part.scanned.damage):
            yield damaged(place)
        headers = part.scanned.headers
        if len(headers):
            same = {
                name: pa.repeat(pa.scalar(place[name], AMOUNTS_SCHEMA.field(name).type), len(headers)) for name in PLACE
            }
            yield _packed(headers, same, OFFSETS_PER_SLOT)


def damaged(place: Mapping[str, Any]) -> pa.RecordBatch:
    """A row of `AMOUNTS` that tells that something of a file could not be read."""
    return pa.RecordBatch.from_pylist(
        [{name: place[name] for name in PLACE} | {"is_damaged": True}], schema=AMOUNTS_SCHEMA
    )


def packed_amounts(batches: Iterable[pa.RecordBatch], *, offsets_per_slot: int) -> Iterator[pa.RecordBatch]:
    """Rows of ``schema.BATCHES``, in Arrow batches, as rows of `AMOUNTS`; a row for each that tells of damage."""
    for rows in batches:
        for row in rows.filter(rows.column("error").is_valid()).select([*PLACE, "error"]).to_pylist():
            if not Damage(0, 0, row["error"]).is_torn:
                yield damaged(row)
        found = rows.filter(rows.column("base_offset").is_valid())
        if found.num_rows:
            yield _packed(headers_of(found), {name: found.column(name) for name in PLACE}, offsets_per_slot)


def _packed(headers: Headers, place: Mapping[str, pa.Array], offsets_per_slot: int) -> pa.RecordBatch:
    amounts = np.empty(len(headers), AMOUNT)
    for name in ("base_offset", "last_offset", "size"):
        amounts[name] = headers[name]
    amounts["record_count"] = np.maximum(headers["record_count"], 0)
    amounts["is_control"] = headers["attributes"] & CONTROL != 0
    slots = pa.array(headers["last_offset"] // offsets_per_slot)
    epochs = pa.array(headers["leader_epoch"])
    packed, like = pack_groups(amounts, [*place.values(), slots, epochs])
    columns = {name: column.take(like) for name, column in place.items()}
    columns |= {
        "slot": slots.take(like),
        "leader_epoch": epochs.take(like),
        "log_end_offset": pa.array(_ends(packed)),
        "is_damaged": pa.repeat(False, len(packed)),
        "packed": packed,
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in AMOUNTS_SCHEMA.names], schema=AMOUNTS_SCHEMA)


def _ends(packed: pa.Array) -> Array:
    """The offset behind each packed row."""
    rows, counts = unpack(packed, AMOUNT)
    return np.maximum.reduceat(rows["last_offset"], np.cumsum(counts) - counts) + 1
