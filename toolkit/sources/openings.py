"""The first batch of open transactions, read from the log of the partition's leader (Fetch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from toolkit.analysis.evidence import Opening
from toolkit.errors import DecodeError
from toolkit.formats.batches import BatchHeader, read_header
from toolkit.schema import Row, utc
from toolkit.sources import wire as kafka
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
    lowest = [
        row
        for _, group in groupby(rows, key=lambda row: (row["topic"], row["partition"]))
        for row in list(group)[:per_partition]
    ][:MOST]
    answers = wire.send([(row["broker_id"], _request(row)) for row in lowest])
    openings = {}
    for row, answer in zip(lowest, answers, strict=True):
        opening = None if answer.error else _opening(answer.message)
        if opening:
            openings[row["topic"], row["partition"], row["current_txn_start_offset"]] = opening
    return openings


def _request(row: Row) -> Any:
    """One partition and one byte: a broker then sends exactly the first batch, whole (KIP-74)."""
    topic = kafka.Fetch.FetchTopic
    partition = topic.FetchPartition(
        partition=row["partition"],
        current_leader_epoch=-1,
        fetch_offset=row["current_txn_start_offset"],
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1,
    )
    return kafka.Fetch(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,  # no session
        topics=[topic(topic=row["topic"], partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        max_version=12,  # later ones name topics by id
    )


def _opening(message: Any) -> Opening | None:
    if message.error_code or not message.responses:
        return None
    found = message.responses[0].partitions[0]
    if found.error_code or not found.records:
        return None
    try:
        header = read_header(bytes(found.records))
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
