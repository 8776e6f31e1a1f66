"""Transactions from batches, however many tasks the batches of a log are spread over.

Batches are packed where they are, and those of the same stretch of a log are brought together and folded into a piece
(`toolkit.analysis.spans.piece`). What is finished goes on as it is; only what may continue in the next stretch, the
edges, comes together for the whole log. So one large partition is worked on by many tasks, and none holds all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.ordering import stable_order, taken
from toolkit.analysis.spans import begin, piece
from toolkit.formats.batches import HEADER_SIZE
from toolkit.formats.folders import segment_base_offset
from toolkit.formats.header_table import headers_of
from toolkit.formats.headers import HEADER, Headers
from toolkit.schema import SPANS
from toolkit.spark.merging import merged
from toolkit.spark.packing import pack, pack_groups, pack_starts, runs, unpack, whole_runs
from toolkit.spark.pieces import (
    ANCHOR,
    BEGIN,
    CLOSED,
    DAMAGE,
    EDGES,
    GROUP,
    HEADERS,
    OF_LOG,
    PIECES,
    PIECES_SCHEMA,
    PLACE,
    log_name,
    piece_rows,
    span_rows,
    together,
)
from toolkit.spark.types import struct_type

__all__ = ["merged_spans", "spans"]

Array = npt.NDArray[Any]

BATCHES_PER_TASK = 1 << 19  # 45 MB of headers
NEEDED = (  # of BATCHES; the fewer, the less is moved
    *(*PLACE, "base_offset", "last_offset", "position", "size", "producer_id", "producer_epoch", "base_sequence"),
    *("leader_epoch", "is_transactional", "is_control", "marker", "coordinator_epoch", "base_timestamp"),
    *("max_timestamp", "delete_horizon", "timestamp_type", "record_count", "error"),
)


def spans(
    batches: DataFrame, *, snapshots: DataFrame | None = None, batches_per_task: int = BATCHES_PER_TASK
) -> DataFrame:
    """Transactions on partitions, rebuilt from their batches, and what could not be read.

    Parameters
    ----------
    batches
        Rows of ``schema.BATCHES``, of any number of logs, in any order. What was read from files is one log for each
        folder; what brokers sent is one log for each partition, whichever broker sent it, and a batch that was sent
        twice counts once.
    snapshots
        Rows of ``schema.SNAPSHOTS``: what was open where the first batch stands, for logs whose beginning is gone.
        Without them ``truncated`` is null there.
    batches_per_task
        At most so many are held in memory at a time, most often far fewer.

    Returns
    -------
    DataFrame
        Rows of ``schema.SPANS``; with ``error`` for what of the batches has one.
    """
    transactional = (sf.col("is_transactional") | sf.col("is_control")) & (sf.col("producer_id") >= 0)
    first = (sf.col("position") == 0) | (sf.col("base_offset") == 0)  # it tells where the log begins
    needed = batches.where(transactional | first | sf.col("error").isNotNull()).select(*NEEDED)
    packed = needed.mapInArrow(partial(_packed, batches_per_task=batches_per_task), PIECES)
    pieces = together(packed).mapInArrow(_folded, PIECES)
    if snapshots is not None:
        pieces = pieces.unionByName(snapshots.mapInArrow(_opened, PIECES))
    return merged_spans(pieces)


def merged_spans(pieces: DataFrame) -> DataFrame:
    """Transactions on partitions from parts of their logs, and what could not be read.

    Parameters
    ----------
    pieces
        Rows of `toolkit.spark.pieces.PIECES`, in any order.

    Returns
    -------
    DataFrame
        Rows of ``schema.SPANS``.
    """
    return together(pieces).mapInArrow(merged, struct_type(SPANS))


# Batches to packed headers: row by row, wherever they are.


def _packed(batches: Iterable[pa.RecordBatch], *, batches_per_task: int) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        yield from _anchors(rows)
        unread = rows.column("error").is_valid()
        if unread.true_count:
            yield _damage_rows(rows.filter(unread))
        if unread.false_count:
            yield _header_rows(rows.filter(pc.invert(unread)), batches_per_task)


def _header_rows(batch: pa.RecordBatch, batches_per_task: int) -> pa.RecordBatch:
    headers = headers_of(batch)
    slots = pa.array(_slots(headers, batches_per_task))
    packed, like = pack_groups(headers, [*batch.select(PLACE).columns, slots])
    like_rows = batch.take(like)
    columns = {name: like_rows.column(name) for name in (*PLACE, "position")}
    columns |= {"first_offset": like_rows.column("base_offset"), "log": _logs(like_rows), "slot": slots.take(like)}
    return piece_rows({**columns, "kind": HEADERS, "packed": packed}, rows=len(packed))


def _slots(headers: Headers, batches_per_task: int) -> Array:
    """Stretches of a file, or of offsets where a broker sent them: a batch has some bytes, and an offset, at least."""
    position = headers["position"]
    place = np.where(position < 0, headers["base_offset"], position // HEADER_SIZE)
    slots: Array = np.maximum(place // batches_per_task, 0)
    return slots


def _logs(rows: pa.RecordBatch) -> pa.Array:
    files, brokers = rows.column("file").to_pylist(), rows.column("broker_id").to_pylist()
    return pa.array(map(log_name, files, brokers), pa.string())


def _damage_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in (*PLACE, "position", "error")}
    return piece_rows({**columns, "log": _logs(batch), "slot": OF_LOG, "kind": DAMAGE}, rows=batch.num_rows)


def _anchors(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Where nothing is missing before the first batch: at the beginning of a segment, and at offset 0."""
    wanted = pc.or_kleene(pc.equal(batch.column("position"), 0), pc.equal(batch.column("base_offset"), 0))
    found = []
    for row in batch.filter(wanted).select([*PLACE, "base_offset"]).to_pylist():
        is_first = row.pop("base_offset") == 0
        name = (row["file"] or "").replace("\\", "/").rpartition("/")[2]
        offset = 0 if is_first else segment_base_offset(name)
        if offset is not None:
            log = log_name(row["file"], row["broker_id"])
            found.append({**row, "log": log, "slot": OF_LOG, "kind": ANCHOR, "first_offset": offset})
    if found:
        yield pa.RecordBatch.from_pylist(found, schema=PIECES_SCHEMA)


# Snapshots to what was open at each.


def _opened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sound = batch.filter(batch.column("error").is_null())
        for rows in runs([sound], [*PLACE, "snapshot_offset"]):
            opened = {
                row["producer_id"]: (row["current_txn_start_offset"], row["producer_epoch"])
                for row in rows.to_pylist()
                if row["current_txn_start_offset"] is not None
            }
            first = rows.slice(0, 1).to_pylist()[0]
            place = {name: first[name] for name in PLACE}
            place |= {"log": log_name(first["file"], first["broker_id"]), "slot": OF_LOG, "kind": BEGIN}
            edges = begin(opened_before=opened).edges
            packed = pack(edges, pack_starts(np.zeros(min(len(edges), 1), np.int64), len(edges)))
            columns = {**place, "first_offset": first["snapshot_offset"]}
            if len(packed):
                columns["packed"] = packed
            yield piece_rows(columns, rows=max(len(packed), 1))


# Packed headers to pieces: stretch by stretch.


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What is of the whole log passes through."""
    for rows in whole_runs(batches, (*GROUP, "file")):
        if rows.column("slot")[0].as_py() == OF_LOG:
            yield from rows.to_batches()
        else:
            yield from _fold(rows)


def _fold(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    headers, _ = unpack(rows.column("packed").combine_chunks(), HEADER)
    place = {name: rows.column(name)[-1].as_py() for name in (*GROUP, "broker_id", "file")}
    if place["log"] is None:
        headers = headers[np.unique(headers["base_offset"], return_index=True)[1]]
    else:
        headers = taken(headers, stable_order(headers["position"]))
    closed, rest = piece(headers).take_closed()
    files = [place["file"]]
    if len(closed):
        yield span_rows(closed, {**place, "kind": CLOSED}, files=files)
    if len(rest.edges):
        yield span_rows(rest.edges, {**place, "kind": EDGES, "slot": OF_LOG}, files=files)
