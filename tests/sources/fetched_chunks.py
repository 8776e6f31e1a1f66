"""A partition's log from its leader, chunk by chunk."""

from collections.abc import Iterator

from toolkit import Cluster
from toolkit.schema.live import Partition
from toolkit.sources.live.partition_log import FetchedChunk, fetch_range


def fetched_chunks(cluster: Cluster, topic: str, *, crc: bool = False) -> Iterator[FetchedChunk]:
    """The whole log of partition 0, read lazily."""
    (row,) = cluster.partition_rows(topics=[topic], partitions=[0])
    return fetch_range(cluster.client, Partition.of(row), "log_start", "high_watermark", crc=crc).chunks
