"""Offsets of partitions from their leaders (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text
from toolkit.sources.live.state.cluster_metadata import LeaderQuery, Requests, RowsOf, batches, by_leader, query_leaders

OffsetQuery = tuple[str, int, int, int]  # column, replica id, isolation level, timestamp

LATEST, EARLIEST = -1, -2
CONSUMER, DEBUGGING = -1, -2  # a debugging replica gets the log end
UNCOMMITTED, COMMITTED = 0, 1

# In this order on each connection: the high watermark before the LSO, so that LSO >= high watermark proves that the LSO
# was not held at that moment; the log end last.
OFFSET_QUERIES = (
    ("log_start_offset", CONSUMER, UNCOMMITTED, EARLIEST),
    ("high_watermark", CONSUMER, UNCOMMITTED, LATEST),
    ("last_stable_offset", CONSUMER, COMMITTED, LATEST),
    ("log_end_offset", DEBUGGING, UNCOMMITTED, LATEST),
)
LSO_QUERIES = tuple(query for query in OFFSET_QUERIES if query[0] in {"high_watermark", "last_stable_offset"})
NO_OFFSETS = {column: None for column, *_ in OFFSET_QUERIES}


def partition_rows(client: BrokerClient, partition_metadata: Mapping[TopicPartition, Row]) -> list[Row]:
    """Rows of ``schema.PARTITIONS``, one per partition; offsets are null where `error` is set.

    Parameters
    ----------
    client
        The connection to the brokers.
    partition_metadata
        Rows of `ClusterMetadata`; where a leader has changed, the metadata is read again.
    """
    (rows,) = query_leaders(client, partition_metadata, offsets_query(client))
    return rows


def offsets_query(client: BrokerClient) -> LeaderQuery:
    """The query behind `partition_rows`, to be sent together with others."""
    return partial(_query, columns=OFFSET_QUERIES, timeout=client.timeout)


def lso_query(client: BrokerClient) -> LeaderQuery:
    """The same rows with the high watermark and the LSO only, in half the requests."""
    return partial(_query, columns=LSO_QUERIES, timeout=client.timeout)


def _query(
    partition_metadata: Mapping[TopicPartition, Row], *, columns: Sequence[OffsetQuery], timeout: float
) -> tuple[Requests, RowsOf]:
    sent = [
        (leader, batch, column)
        for leader, topic_partitions in by_leader(partition_metadata).items()
        for batch in batches(topic_partitions)
        for column in columns
    ]

    def rows_of(responses: Sequence[BrokerResponse]) -> list[Row]:
        rows: dict[TopicPartition, dict[str, Any]] = {
            tp: {**row, **NO_OFFSETS} for tp, row in partition_metadata.items()
        }
        for (_, batch, (column, *_)), response in zip(sent, responses, strict=True):
            _fill(rows, column, batch, response)
        return [row if row["error"] is None else {**row, **NO_OFFSETS} for row in rows.values()]

    return [(leader, _request(batch, column, timeout)) for leader, batch, column in sent], rows_of


def _request(batch: Mapping[str, list[int]], query: OffsetQuery, timeout: float) -> Any:
    _, replica_id, isolation_level, timestamp = query
    return messages.ListOffsets(
        partitions=batch,
        timestamp=timestamp,
        replica_id=replica_id,
        isolation_level=isolation_level,
        timeout_ms=int(timeout * 1000),  # used for tiered storage only
    )


def _fill(
    rows: Mapping[TopicPartition, dict[str, Any]], column: str, batch: Mapping[str, list[int]], response: BrokerResponse
) -> None:
    if response.error:
        for name, numbers in batch.items():
            for number in numbers:
                rows[TopicPartition(name, number)].update(error=response.error_text, observed_at=response.observed_at)
        return
    for name, number, error_code, _, offset, leader_epoch in response.message.partitions:
        row = rows[TopicPartition(name, number)]
        row["observed_at"] = response.observed_at
        if error_code == 0:
            row[column] = offset if offset >= 0 else None
        elif column != "log_end_offset":  # not every compatible broker returns it
            row["error"] = error_text(error_code)
        if column == "high_watermark" and leader_epoch >= 0:
            row["leader_epoch"] = leader_epoch  # newer than the metadata's
