"""The first batch of open transactions, from the partition's leader (Fetch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby, islice
from operator import itemgetter

from toolkit.analysis.diagnosis.observation import FirstBatch
from toolkit.errors import DecodeError
from toolkit.formats.log.batches import BatchHeader, read_header
from toolkit.schema import utc
from toolkit.schema.live import Producer
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.fetch import FetchPosition, fetch

MAX_BATCHES = 200  # a broker returns whole batches, which can be a megabyte


def read_first_batches(
    client: BrokerClient, producers: Iterable[Producer], *, per_partition: int
) -> Mapping[tuple[str, int, int], FirstBatch]:
    """Read the batch at the start offset of open transactions.

    A batch deleted by retention is left out. On a compacted topic the batch may be another producer's.

    Parameters
    ----------
    client
        The connection to the brokers.
    producers
        Those without an open transaction are left out.
    per_partition
        Open transactions read per partition, lowest first.
    """
    opened = sorted(
        (each.topic, each.partition, each.current_txn_start_offset, each.broker_id)
        for each in producers
        if each.current_txn_start_offset is not None and each.broker_id is not None
    )
    fetch_positions = [
        FetchPosition(tp, start_offset, broker_id)
        for tp, group in groupby(opened, key=itemgetter(0, 1))
        for _, _, start_offset, broker_id in islice(group, per_partition)
    ][:MAX_BATCHES]
    responses = fetch(client, fetch_positions, max_bytes=1)
    first_batches = {
        (*fetch_position.tp, fetch_position.offset): _first_batch(fetched.records)
        for fetch_position, fetched in zip(fetch_positions, responses, strict=True)
    }
    return {key: first_batch for key, first_batch in first_batches.items() if first_batch is not None}


def _first_batch(records: bytes) -> FirstBatch | None:
    try:
        header = read_header(records)
    except DecodeError:
        return None
    if header.producer_id is None or header.producer_epoch is None:
        return None
    log_append_time = header.timestamp_type == "LogAppendTime"
    return FirstBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_timestamp=utc(_time(header, log_append_time=log_append_time)),
        log_append_time=log_append_time,
    )


def _time(header: BatchHeader, *, log_append_time: bool) -> int | None:
    """Milliseconds. With LogAppendTime the broker sets only the max timestamp; the base stays the producer's."""
    if log_append_time:
        return header.max_timestamp
    return None if header.has_delete_horizon else header.base_timestamp
