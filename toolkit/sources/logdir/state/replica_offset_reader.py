"""Offsets of a partition in files: those of the replica that has most of its log (`OffsetReader`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from toolkit.analysis.log.offset_status import AbortedRange, LogSlice
from toolkit.errors import DecodeError
from toolkit.formats.log.record_offsets import partial_batches, record_offsets
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.log_tables import ScanChunk
from toolkit.sources.logdir.contents import Contents, ReplicaWithCheckpoints
from toolkit.sources.logdir.coordinator import latest_by_key
from toolkit.sources.logdir.coordinator.coordinator_state import read_coordinator_side
from toolkit.sources.logdir.files.offset_bounds import offset_of
from toolkit.sources.logdir.files.replica_batches import bytes_at
from toolkit.sources.logdir.replica_tables import COMPACTED
from toolkit.sources.logdir.state.replica_state import partition_row
from toolkit.sources.offset_spec import NAMED, OffsetSpec

__all__ = ["ReplicaOffsetReader"]

NO_RECORDS = "NO_RECORDS: compaction took records of the batch at {}, and which ones a text does not show"


class ReplicaOffsetReader:
    """A partition as its files have it.

    Parameters
    ----------
    contents
        The files.
    replicas
        The partition's replicas, the one that has most of its log first.
    txn_state_partitions
        How many partitions ``__transaction_state`` has, where it is not 50.
    """

    def __init__(
        self, contents: Contents, replicas: Sequence[ReplicaWithCheckpoints], *, txn_state_partitions: int | None
    ) -> None:
        self._contents, self._replicas = contents, replicas
        self._state = replicas[0].state
        self._txn_state_partitions = txn_state_partitions
        row = partition_row(self._state)
        if row["high_watermark"] is None:  # the LSO is that of a log which is replicated to its end then
            row = {**row, "high_watermark": row["log_end_offset"]}
        self.partition: Row = row

    @property
    def tp(self) -> TopicPartition:
        return self.partition["topic"], self.partition["partition"]

    @cached_property
    def is_compacted(self) -> bool | None:
        """By the cleaner's checkpoint: where that is not among the files, nothing tells."""
        log, marks = self._state.log, self._replicas[0].marks
        if log.where.topic in COMPACTED:
            return True
        if log.root is None or not marks.tells_cleaned:
            return None
        return (log.where.topic, log.where.partition) in marks.cleaned

    @cached_property
    def opened(self) -> Mapping[int, int]:
        producers = self._state.window.producers.producers
        open_producers = producers[producers["current_txn_start_offset"] >= 0]
        return dict(
            zip(
                open_producers["producer_id"].tolist(), open_producers["current_txn_start_offset"].tolist(), strict=True
            )
        )

    @property
    def truncated_end(self) -> int | None:
        """By the replicas of an older leader epoch with a longer log; a follower of the same epoch is only ahead."""
        return max((_cut_off(self._replicas[0], each) for each in self._replicas[1:]), default=0) or None

    def offset(self, bound: OffsetSpec) -> int:
        if isinstance(bound, str):
            return int(self.partition[NAMED[bound]])
        return offset_of(self._state.log, bound, self._state) or 0

    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        aborted, is_complete, errors = self._aborted
        touching = {each for each in aborted if each.last_offset is None or each.last_offset >= start}
        for part in self._state.log.parts(start=start, stop=stop):
            found = self._slice(part)
            found.aborted, found.is_index_complete = touching, is_complete
            found.errors += errors
            yield found

    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        rows = latest_by_key.transaction_rows(read_coordinator_side(self._contents, count=self._txn_state_partitions))
        found = next((row["transactional_id"] for row in rows if row["producer_id"] == producer_id), None)
        return found, None

    @cached_property
    def _aborted(self) -> tuple[set[AbortedRange], bool, Sequence[str]]:
        """What the transaction indexes name, whether that is all, and what could not be read of them.

        Files that were copied without them tell nothing; markers decide then.
        """
        rows = list(self._state.log.aborted_rows())
        errors = [row["error"] for row in rows if row.get("error")]
        whole = [row for row in rows if not row.get("error")]
        aborted = {AbortedRange(row["producer_id"], row["first_offset"], row["last_offset"]) for row in whole}
        return aborted, bool(whole) and not errors, errors

    def _slice(self, part: ScanChunk) -> LogSlice:
        headers = part.scanned.headers
        errors = [damage.reason for damage in part.scanned.damage if not damage.is_torn]
        found = LogSlice(headers=[headers], errors=errors)
        for header in headers[partial_batches(headers)]:
            base = int(header["base_offset"])
            if self._state.log.is_text or part.file is None:
                found.errors.append(NO_RECORDS.format(base))
                continue
            try:
                buf = bytes_at(part.file, int(header["position"]), int(header["size"]))
                found.record_offsets[base] = record_offsets(buf, 0)
            except (DecodeError, OSError) as error:
                found.errors.append(f"CORRUPT_BATCH: {error}")
        return found


def _cut_off(newest: ReplicaWithCheckpoints, other: ReplicaWithCheckpoints) -> int:
    epoch, end = newest.state.leader_epoch, newest.state.log_end_offset
    older, far = other.state.leader_epoch, other.state.log_end_offset
    if epoch is None or end is None or older is None or far is None:
        return 0
    return far if older < epoch and far > end else 0
