"""The inverse of tables: arrays from rows, which shows what a table keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.log.log_transactions import CLOCKS, LOG_TRANSACTION, MARKER_NAMES, OUTCOMES, SUMS, LogTransactions
from toolkit.formats.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import (
    AS_WRITTEN,
    COMPRESSION,
    HEADER,
    MARKERS,
    NO_MARKER,
    TIMESTAMP_TYPES,
    UNREAD_MARKER,
    Array,
    Headers,
    integers,
    milliseconds,
)
from toolkit.schema import BATCHES, LOG_TRANSACTIONS


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
    # A control batch of a producer is a marker, even if its record was not read; the controllers' own have no producer.
    unread = (control != 0) & (headers["producer_id"] >= 0) & (headers["record_count"] != 0)
    marker = codes(column("marker"), MARKERS)
    headers["marker"] = np.where(marker >= 0, marker, np.where(unread, UNREAD_MARKER, NO_MARKER))
    return headers


AS_IN_TABLE = (
    *("producer_id", "first_offset", "last_offset", "marker_offset", "position", "coordinator_epoch", "first_sequence"),
    *("last_sequence", "producer_epoch", "first_epoch", "marker_epoch", "truncated"),
)


def log_transactions_of(table: pa.Table | pa.RecordBatch) -> LogTransactions:
    """Rows of ``schema.LOG_TRANSACTIONS`` as transactions, in the order given.

    What could not be read, a row without producer, is left out. Of a pandas DataFrame ``pyarrow.Table.from_pandas``
    makes such a table.

    Parameters
    ----------
    table
        Of any logs, with times in milliseconds or microseconds. A column that is missing is as if it were null.

    Returns
    -------
    numpy.ndarray
        Structured array of `LOG_TRANSACTION`; ``file`` numbers the files in the order in which they come.
    """
    table = table.filter(table.column("producer_id").is_valid())

    def column(name: str) -> pa.Array | pa.ChunkedArray:
        there = name in table.schema.names
        return table.column(name) if there else pa.nulls(table.num_rows, LOG_TRANSACTIONS.arrow_schema.field(name).type)

    log_transactions = np.empty(table.num_rows, LOG_TRANSACTION)
    for name in AS_IN_TABLE:
        log_transactions[name] = integers(column(name))
    for name in SUMS:
        log_transactions[name] = integers(column(name), null=0)
    for name in ("start", "end"):
        log_transactions[name] = milliseconds(column(name))
    last = integers(column("first_batch_last_offset"))
    log_transactions["first_batch_end"] = np.where(last < 0, -1, last + 1)
    log_transactions["start_clock"] = codes(column("start_clock"), CLOCKS)
    marker, outcome = codes(column("marker"), MARKER_NAMES), codes(column("outcome"), OUTCOMES)
    log_transactions["marker"] = np.where(
        (marker < 0) & (log_transactions["marker_offset"] >= 0), UNREAD_MARKER, marker
    )
    log_transactions["outcome"] = np.where(outcome < 0, UNREAD_MARKER, outcome)
    log_transactions["file"] = _numbered(column("file"))
    return log_transactions


def _numbered(names: pa.Array | pa.ChunkedArray) -> Array:
    whole = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    return np.asarray(whole.dictionary_encode(null_encoding="encode").indices)


def codes(column: pa.Array | pa.ChunkedArray, names: Sequence[str]) -> Array:
    """The index of each value among the names, -1 for null and for all others: from `labels`."""
    return np.asarray(pc.index_in(column, pa.array(names, column.type)).fill_null(-1))
