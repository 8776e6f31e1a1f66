"""Offset ranges of a live partition, read in parallel: each batch is in exactly one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.partition_log import FetchedChunk, FetchedRange, read_offsets
from toolkit.sources.live.state.cluster_metadata import read_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Batches of a partition whose base offset is in ``start <= offset < stop``.

    Parameters
    ----------
    tp
        The partition.
    start, stop
        Bounds of the base offsets.
    is_first
        Whether this is the first range, which also has the batch that contains `start`.
    """

    tp: TopicPartition
    start: int
    stop: int
    is_first: bool = True


def split(tp: TopicPartition, start: int, stop: int, *, log_start: int, max_offsets: int) -> list[LogRange]:
    """Divide offsets into ranges of equal size.

    Parameters
    ----------
    tp
        The partition.
    start, stop
        The offsets.
    log_start
        Log start offset; deleted offsets before it are not divided.
    max_offsets
        Maximum number of offsets per range.
    """
    first = max(start, log_start)
    if first >= stop:
        return [LogRange(tp=tp, start=start, stop=stop)] if start < stop else []
    count = -(-(stop - first) // max_offsets)
    bounds = [start, *(first + (stop - first) * index // count for index in range(1, count)), stop]
    return [LogRange(tp=tp, start=low, stop=high, is_first=low == start) for low, high in pairwise(bounds)]


def read_range(client: BrokerClient, log_range: LogRange, *, crc: bool = False) -> FetchedRange:
    """Read a range of a log, lazily; offsets deleted since `split` are a chunk with `error`.

    Parameters
    ----------
    client
        The connection to the brokers.
    log_range
        The range.
    crc
        Verify every batch's checksum.

    Raises
    ------
    ConnectionFailed, BrokerError
        If no broker returns the metadata of the topic.
    """
    tp = log_range.tp
    row = read_metadata(client, [tp[0]]).at([tp])[tp]
    fetched = read_offsets(client, row, log_range.start, log_range.stop, crc=crc)
    if log_range.is_first:
        return fetched
    return replace(fetched, chunks=_from_base_offset(fetched.chunks, log_range.start))


def _from_base_offset(chunks: Iterator[FetchedChunk], start: int) -> Iterator[FetchedChunk]:
    """Drop the batch that begins before the range: it belongs to the range before."""
    for chunk in chunks:
        headers = chunk.scanned.headers
        headers = headers[headers["base_offset"] >= start]
        yield replace(chunk, scanned=replace(chunk.scanned, headers=headers))
