"""Offsets of a partition in files, from the replica with most of the log (`OffsetReader`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from toolkit.analysis.log.offset_status import AbortedRange, LogSlice
from toolkit.errors import DecodeError
from toolkit.formats.log.batch_records import partial_batches, record_offsets
from toolkit.formats.log.headers import LogChunk
from toolkit.formats.log.scan import bytes_at
from toolkit.sources.logdir.contents import COMPACTED, Contents
from toolkit.sources.logdir.coordinator_state import read_state_topic, transactions_of
from toolkit.sources.logdir.replica.replica_state import ReplicaState, offset_of, partition_of
from toolkit.sources.offset_queries.offset_spec import OffsetSpec, named_offset

NO_RECORDS = (
    "NO_RECORDS: compaction removed records of the batch at {}; the output of kafka-dump-log.sh does not show which"
)


class ReplicaOffsetReader:
    """A partition in files.

    `replicas`: the partition's replicas, the one with most of the log first.
    """

    def __init__(self, contents: Contents, replicas: Sequence[ReplicaState]) -> None:
        self._contents, self._replicas = contents, replicas
        self._state = replicas[0]
        self.partition = partition_of(self._state)
        if self.partition.high_watermark is None:  # the LSO then assumes a log that is replicated to its end
            self.partition = replace(self.partition, high_watermark=self.partition.log_end_offset)

    @cached_property
    def is_compacted(self) -> bool | None:
        """By the cleaner's checkpoint; null if it is not among the files."""
        log, checkpoints = self._state.log, self._state.checkpoints
        if log.where.topic in COMPACTED:
            return True
        if log.root is None or not checkpoints.has_cleaned:
            return None
        return log.where.tp in checkpoints.cleaned

    @cached_property
    def opened(self) -> Mapping[int, int]:
        producers = self._state.window.producers
        open_producers = producers[producers["current_txn_start_offset"] >= 0]
        return dict(
            zip(
                open_producers["producer_id"].tolist(), open_producers["current_txn_start_offset"].tolist(), strict=True
            )
        )

    @property
    def truncated_end(self) -> int | None:
        """The longest log of a replica with an older leader epoch; a longer replica of the same epoch is only ahead."""
        return max((_truncated_end(self._replicas[0], each) for each in self._replicas[1:]), default=0) or None

    def offset(self, bound: OffsetSpec) -> int:
        if isinstance(bound, str):
            return named_offset(self.partition, bound) or 0
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
        found = transactions_of(read_state_topic(self._contents))
        return next((each.transactional_id for each in found if each.producer_id == producer_id), None), None

    @cached_property
    def _aborted(self) -> tuple[set[AbortedRange], bool, Sequence[str]]:
        """Aborted transactions in the transaction indexes, whether these are complete, and read errors.

        If the indexes were not copied, the markers decide.
        """
        entries = list(self._state.log.aborted_rows())
        errors = [entry.error for entry in entries if entry.error]
        aborted = {
            AbortedRange(entry.producer_id, entry.first_offset, entry.last_offset)
            for entry in entries
            if entry.producer_id is not None and entry.first_offset is not None and not entry.error
        }
        return aborted, bool(aborted) and not errors, errors

    def _slice(self, part: LogChunk) -> LogSlice:
        headers = part.headers
        errors = [damage.reason for damage in part.damage if not damage.is_torn]
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


def _truncated_end(newest: ReplicaState, other: ReplicaState) -> int:
    """Log end offset of the other replica if its end was truncated by a newer leader, else 0."""
    epoch, end = newest.leader_epoch, newest.log_end_offset
    other_epoch, other_end = other.leader_epoch, other.log_end_offset
    if epoch is None or end is None or other_epoch is None or other_end is None:
        return 0
    return other_end if other_epoch < epoch and other_end > end else 0
