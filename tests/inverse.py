"""Rows of tables as the arrays that they were made from: what a table keeps is shown by making it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.spans import AS_IN_TABLE, CLOCKS, MARKER_NAMES, OUTCOMES, SPAN, SUMS, Spans
from toolkit.formats.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.columns import integers, milliseconds
from toolkit.formats.header_table import AS_WRITTEN, COMPRESSION, MARKERS, TIMESTAMP_TYPES
from toolkit.formats.headers import HEADER, NO_MARKER, UNREAD_MARKER, Headers
from toolkit.schema import BATCHES, SPANS

__all__ = ["headers_of", "spans_of"]

Array = npt.NDArray[Any]


def headers_of(table: pa.Table | pa.RecordBatch) -> Headers:
    """Rows of ``schema.BATCHES`` as headers, in the order given: those that `header_table` was made from.

    What that table does not keep is lost: bits and times that mean nothing, and the type of a control batch that ends
    no transaction, which is `NO_MARKER` here.

    Parameters
    ----------
    table
        Rows without ``error``, with times in milliseconds or microseconds. A column that is missing is as if it were
        null.
    """

    def column(name: str) -> pa.Array | pa.ChunkedArray:
        there = name in table.schema.names
        return table.column(name) if there else pa.nulls(table.num_rows, BATCHES.arrow_schema.field(name).type)

    headers = np.empty(table.num_rows, HEADER)
    for name in (*AS_WRITTEN, "crc_ok"):
        headers[name] = integers(column(name))
    headers["crc"] = integers(column("crc"), null=0)
    horizon = milliseconds(column("delete_horizon"))
    headers["base_timestamp"] = np.where(horizon < 0, milliseconds(column("base_timestamp")), horizon)
    headers["max_timestamp"] = milliseconds(column("max_timestamp"))
    control = integers(column("is_control"), null=0)
    headers["attributes"] = (
        np.maximum(codes(column("compression"), COMPRESSION), 0)
        | (codes(column("timestamp_type"), TIMESTAMP_TYPES) == 1) * LOG_APPEND_TIME
        | integers(column("is_transactional"), null=0) * TRANSACTIONAL
        | control * CONTROL
        | (horizon >= 0) * DELETE_HORIZON
    )
    # A control batch of a producer is a marker, whatever was read of it; the controllers' own have no producer.
    unread = (control != 0) & (headers["producer_id"] >= 0) & (headers["record_count"] != 0)
    marker = codes(column("marker"), MARKERS)
    headers["marker"] = np.where(marker >= 0, marker, np.where(unread, UNREAD_MARKER, NO_MARKER))
    return headers


def spans_of(table: pa.Table | pa.RecordBatch) -> Spans:
    """Rows of ``schema.SPANS`` as spans, in the order given: those that `span_table` was made from.

    What could not be read, a row without producer, is left out. Of a pandas DataFrame ``pyarrow.Table.from_pandas``
    makes such a table.

    Parameters
    ----------
    table
        Of any logs, with times in milliseconds or microseconds. A column that is missing is as if it were null.

    Returns
    -------
    numpy.ndarray
        Structured array of `SPAN`; ``file`` numbers the files in the order in which they come.
    """
    table = table.filter(table.column("producer_id").is_valid())

    def column(name: str) -> pa.Array | pa.ChunkedArray:
        there = name in table.schema.names
        return table.column(name) if there else pa.nulls(table.num_rows, SPANS.arrow_schema.field(name).type)

    spans = np.empty(table.num_rows, SPAN)
    for name in AS_IN_TABLE:
        spans[name] = integers(column(name))
    for name in SUMS:
        spans[name] = integers(column(name), null=0)
    for name in ("start", "end"):
        spans[name] = milliseconds(column(name))
    last = integers(column("first_batch_last_offset"))
    spans["first_batch_end"] = np.where(last < 0, -1, last + 1)
    spans["start_by"] = codes(column("start_by"), CLOCKS)
    marker, outcome = codes(column("marker"), MARKER_NAMES), codes(column("outcome"), OUTCOMES)
    spans["marker"] = np.where((marker < 0) & (spans["marker_offset"] >= 0), UNREAD_MARKER, marker)
    spans["outcome"] = np.where(outcome < 0, UNREAD_MARKER, outcome)
    spans["file"] = _numbered(column("file"))
    return spans


def _numbered(names: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    whole = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    return np.asarray(whole.dictionary_encode(null_encoding="encode").indices)


def codes(column: pa.Array | pa.ChunkedArray, names: Sequence[str]) -> Array:
    """The index of each value among the names, -1 for null and for all others: from `labels`."""
    return np.asarray(pc.index_in(column, pa.array(names, column.type)).fill_null(-1))
