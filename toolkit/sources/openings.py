"""The first batch of open transactions, read from the log of the partition's leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from toolkit.analysis.evidence import Opening
from toolkit.errors import DecodeError
from toolkit.formats.batches import BatchHeader, read_header
from toolkit.schema import Row, utc
from toolkit.sources.fetch import Spot, fetch
from toolkit.sources.wire import Wire

__all__ = ["read_openings"]

MOST = 200  # a batch is read whole for its header, and can be a megabyte


def read_openings(wire: Wire, rows: Sequence[Row], *, per_partition: int) -> Mapping[tuple[str, int, int], Opening]:
    """Read the batch at the start offset of open transactions.

    A batch that retention has deleted gives no opening. On a compacted topic the batch that is found may belong to
    another producer: it is returned as what it is.

    Parameters
    ----------
    rows
        Rows of ``schema.PRODUCERS`` with an open transaction, sorted by partition and start offset.
    per_partition
        How many of the lowest of each partition are read.
    """
    spots = [
        Spot((row["topic"], row["partition"]), row["current_txn_start_offset"], row["broker_id"])
        for _, group in groupby(rows, key=lambda row: (row["topic"], row["partition"]))
        for row in list(group)[:per_partition]
    ][:MOST]
    found = fetch(wire, spots, max_bytes=1)
    openings = {(*spot.place, spot.offset): _opening(one.records) for spot, one in zip(spots, found, strict=True)}
    return {key: opening for key, opening in openings.items() if opening is not None}


def _opening(records: bytes) -> Opening | None:
    try:
        header = read_header(records)
    except DecodeError:
        return None
    if header.producer_id is None or header.producer_epoch is None:
        return None
    log_append_time = header.timestamp_type == "LogAppendTime"
    return Opening(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_timestamp=utc(_time(header, log_append_time=log_append_time)),
        log_append_time=log_append_time,
    )


def _time(header: BatchHeader, *, log_append_time: bool) -> int | None:
    """Milliseconds. The broker's own time of a batch stands in its maximum; the base stays the producer's."""
    if log_append_time:
        return header.max_timestamp
    return None if header.has_delete_horizon else header.base_timestamp
