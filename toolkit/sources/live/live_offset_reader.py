"""Offsets of a live partition, and its log around them, from its leader (`OffsetReader`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from toolkit.analysis.log.offset_status import AbortedRange, LogSlice
from toolkit.errors import BrokerError, ConnectionFailed, DecodeError
from toolkit.formats.batch_records import partial_batches, record_offsets
from toolkit.schema.live import Partition, open_starts
from toolkit.sources.live.broker_client import BrokerClient, row_text
from toolkit.sources.live.coordinators import compacted_topics
from toolkit.sources.live.leaders import offset_of, read_producers
from toolkit.sources.live.partition_log import FetchedChunk, read_offsets
from toolkit.sources.live.transactions import TransactionFilters, filtered_transactions
from toolkit.sources.offset_queries import OffsetSpec

FETCH_BYTES = 1 << 20  # most ranges are small; a long one takes several requests


class LiveOffsetReader:
    """A partition, read from its current leader. `partition`: the partition as its leader has it."""

    truncated_end: int | None = None  # a leader does not know offsets that it never had

    def __init__(self, client: BrokerClient, partition: Partition) -> None:
        self.partition = partition
        self._client = client

    @cached_property
    def is_compacted(self) -> bool | None:
        return compacted_topics(self._client, [self.partition.topic]).get(self.partition.topic)

    @cached_property
    def opened(self) -> Mapping[int, int]:
        return open_starts(read_producers(self._client, {self.partition.tp: self.partition}, idle_producers=False))

    def offset(self, bound: OffsetSpec) -> int:
        return offset_of(self._client, bound, self.partition)

    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        """Read with read_committed up to the LSO, for the broker's list of aborted transactions; then uncommitted."""
        lso = min(max(self.partition.last_stable_offset or 0, start), stop)
        for first, last, read_committed in ((start, lso, True), (lso, stop, False)):
            if first < last:
                fetched = read_offsets(
                    self._client, self.partition, first, last, read_committed=read_committed, max_bytes=FETCH_BYTES
                )
                yield from map(_slice, fetched.chunks)

    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        try:
            filters = TransactionFilters(producer_ids=(producer_id,))
            found = filtered_transactions(self._client, filters)
        except (BrokerError, ConnectionFailed) as error:  # the other columns are valid without it
            return None, row_text(error)
        owner = next((each.transactional_id for each in found if each.producer_id == producer_id), None)
        return owner, None if owner else next((each.error for each in found if each.error), None)


def _slice(chunk: FetchedChunk) -> LogSlice:
    headers = chunk.headers
    found = LogSlice(
        headers=[headers],
        aborted={AbortedRange(producer, first) for producer, firsts in chunk.aborted.items() for first in firsts},
        errors=[*([chunk.error] if chunk.error else []), *(damage.reason for damage in chunk.damage)],
    )
    for header in headers[partial_batches(headers)]:
        try:
            found.record_offsets[int(header["base_offset"])] = record_offsets(chunk.records, int(header["position"]))
        except DecodeError as error:
            found.errors.append(f"CORRUPT_BATCH: {error}")
    return found
