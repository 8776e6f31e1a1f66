"""Offsets of a live partition, and its log around them, from its leader (`OffsetReader`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from toolkit.analysis.log.offset_status import AbortedRange, LogSlice
from toolkit.errors import BrokerError, ConnectionFailed, DecodeError
from toolkit.formats.log.batch_records import partial_batches, record_offsets
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import row_text
from toolkit.sources.live.logs.offset_lookup import offset_of
from toolkit.sources.live.logs.partition_log import FetchedChunk, read_offsets
from toolkit.sources.live.state.broker_configs import compacted_topics
from toolkit.sources.live.state.leader_producers import producer_rows
from toolkit.sources.live.state.transaction_listing import TransactionFilters
from toolkit.sources.live.transactional_ids import filtered_rows
from toolkit.sources.offset_queries.offset_spec import OffsetSpec

if TYPE_CHECKING:
    from toolkit.config import ClientConfig

FETCH_BYTES = 1 << 20  # most ranges are small; a long one takes several requests


class LiveOffsetReader:
    """A partition, read from its current leader.

    Parameters
    ----------
    client, config
        The cluster.
    partition
        The partition's row of ``schema.PARTITIONS``.
    """

    truncated_end: int | None = None  # a leader does not know offsets that it never had

    def __init__(self, client: BrokerClient, config: ClientConfig, partition: Row) -> None:
        self.partition = partition
        self._client, self._config = client, config

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.partition["topic"], self.partition["partition"])

    @cached_property
    def is_compacted(self) -> bool | None:
        topic = self.partition["topic"]
        return compacted_topics(self._client, [topic]).get(topic)

    @cached_property
    def opened(self) -> Mapping[int, int]:
        rows = producer_rows(self._client, {self.tp: self.partition}, idle_producers=False)
        return {
            row["producer_id"]: row["current_txn_start_offset"]
            for row in rows
            if row["producer_id"] is not None and row["current_txn_start_offset"] is not None
        }

    def offset(self, bound: OffsetSpec) -> int:
        return offset_of(self._client, bound, self.partition)

    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        """Read with read_committed up to the LSO, for the broker's list of aborted transactions; then uncommitted."""
        lso = min(max(self.partition["last_stable_offset"], start), stop)
        for first, last, read_committed in ((start, lso, True), (lso, stop, False)):
            if first < last:
                fetched = read_offsets(
                    self._client, self.partition, first, last, read_committed=read_committed, max_bytes=FETCH_BYTES
                )
                yield from map(_slice, fetched.chunks)

    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        try:
            rows = filtered_rows(self._client, self._config, TransactionFilters(producer_ids=(producer_id,)))
        except (BrokerError, ConnectionFailed) as error:  # the other columns are valid without it
            return None, row_text(error)
        found = next((row["transactional_id"] for row in rows if row["producer_id"] == producer_id), None)
        return found, None if found else next((row["error"] for row in rows if row["error"]), None)


def _slice(chunk: FetchedChunk) -> LogSlice:
    headers = chunk.scanned.headers
    found = LogSlice(
        headers=[headers],
        aborted={AbortedRange(producer, first) for producer, firsts in chunk.aborted.items() for first in firsts},
        errors=[*([chunk.error] if chunk.error else []), *(damage.reason for damage in chunk.scanned.damage)],
    )
    for header in headers[partial_batches(headers)]:
        try:
            found.record_offsets[int(header["base_offset"])] = record_offsets(chunk.records, int(header["position"]))
        except DecodeError as error:
            found.errors.append(f"CORRUPT_BATCH: {error}")
    return found
