"""From which offset each log is read that has changed since the last run, and what its stored rows are then worth.

A log only grows at its end, so earlier reads stay valid, even after retention and the cleaner have deleted data. A
truncation invalidates them, when a replica follows a new leader. The leader epochs in the log's folder show the first
changed offset, as they do for the replicas themselves. Without leader epochs, a changed log is read again completely.

A copy does not grow like a log: a segment may arrive late, or be incomplete or damaged at first. So the state has the
size of each segment and whether it was damaged. A log is read again if a segment appears below the end that was read,
an older one grew by more than the cleaner can have merged into it, a damaged one changed, or a snapshot or the
cleaner's checkpoint now explains what was unknown. A segment that shrank or is gone is the work of the cleaner or of
retention.

The records of ``__transaction_state`` are of a partition, whichever replica has them, and its log is compacted: what
was read of it is not there to be read again. So only what is proven false, or was not read, is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from toolkit.schema.live import Partition
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline.tables.staging_table import IDS, StoredState

NEVER = (1 << 63) - 1
LOST_SENTENCE = "OFFSETS_LOST: Offsets {:,} to {:,} were deleted from the log before they were read."
REMEMBERED = "remembered"  # the log continues at the end of the last read
LOST = "lost"  # the log continues after offsets deleted before they were read
TRUNCATED = "truncated"  # the log changed from an offset on, and is read again


class LogPlan(NamedTuple):
    """How to read the new data of a log."""

    start: int | None = None  # first offset to read; null for the beginning of the log
    stop: int | None = None  # end offset, exclusive; null for the end of the log
    remembered: str | None = None  # how to use the stored state: `REMEMBERED`, `LOST` or `TRUNCATED`; null without one
    offset: int | None = None  # the first one whose stored rows are obsolete, if it is not `start`
    error: str | None = None  # for `LOST`: the lost offsets

    @property
    def obsolete_from(self) -> int:
        """The first offset that is read now, so that what a run has stored of it that was killed is obsolete."""
        return (self.start or 0) if self.offset is None else self.offset


def plan_logs(listed: Mapping[str, LogListing], states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
    """How to read the new data of each changed log in files. `listed`, `states`: by name of the log."""
    found = {}
    for name, row in listed.items():
        state = states.get(name)
        if state is None:
            found[name] = LogPlan(offset=row.begin)
        elif row.listing != state.listing or state.is_unread:
            found[name] = _plan_records(row, state) if name.endswith(IDS) else _plan_changed(row, state)
    return found


def read_again(row: LogListing) -> LogPlan:
    """Read all that a log still has: rows of what it has not are kept."""
    begin = row.begin or 0
    return LogPlan(
        start=None if row.high_watermark is None else begin, stop=row.high_watermark, remembered=TRUNCATED, offset=begin
    )


def plan_live(partition: Partition, state: StoredState | None) -> LogPlan | None:
    """How to read the new data of a partition, null if there is none."""
    begin, end = partition.log_start_offset, partition.high_watermark
    if partition.error or begin is None or end is None:
        return None
    last_end = None if state is None else state.log_end_offset
    if last_end is None:
        remembered = None if state is None else REMEMBERED  # state from before the lost offsets
        return LogPlan(start=begin, stop=end, remembered=remembered) if begin < end else None
    if last_end > end:  # committed records are gone, by an unclean election
        return LogPlan(start=begin, stop=end, remembered=TRUNCATED, offset=0)
    if last_end < begin:
        return LogPlan(start=begin, stop=end, remembered=LOST, error=LOST_SENTENCE.format(last_end, begin - 1))
    return LogPlan(start=last_end, stop=end, remembered=REMEMBERED) if last_end < end else None


def _plan_changed(row: LogListing, state: StoredState) -> LogPlan:
    begin, end = row.begin or 0, state.log_end_offset
    if end is None:
        return LogPlan(remembered=TRUNCATED, offset=begin)
    if row.begin is None:  # its folder cannot be read
        return LogPlan(start=end, remembered=REMEMBERED)
    newer = _first_newer(row, state)
    has_epoch = state.leader_epoch is not None and state.leader_epoch >= 0
    is_unchanged = newer is not None and newer >= end and (has_epoch or end <= begin)
    if state.is_unread or not is_unchanged or _first_incomplete(row, state) is not None:
        first = begin if newer is None else min(begin, newer)
        return LogPlan(remembered=TRUNCATED, offset=0 if ~begin in state.damaged_bases else min(first, end))
    if begin > end:
        return LogPlan(remembered=LOST, offset=begin, error=LOST_SENTENCE.format(end, begin - 1))
    return LogPlan(start=end, remembered=REMEMBERED)


def _plan_records(row: LogListing, state: StoredState) -> LogPlan:
    """How to read the records of a partition of ``__transaction_state``."""
    end = state.log_end_offset
    if end is None:
        return LogPlan(remembered=TRUNCATED, offset=0)
    if row.begin is None:
        return LogPlan(start=end, remembered=REMEMBERED)
    changed = [_first_newer(row, state)]
    if row.log == state.replica:
        changed.append(_first_incomplete(row, state))
    if state.is_unread or (state.damaged_bases and row.log != state.replica):
        changed.append(min((each if each >= 0 else ~each for each in state.damaged_bases), default=0))
    first = min((each for each in changed if each is not None), default=NEVER)
    if first < end:
        return LogPlan(remembered=TRUNCATED, offset=first)
    return LogPlan(start=end, remembered=REMEMBERED)


def _first_newer(row: LogListing, state: StoredState) -> int | None:
    """Where the first leader epoch after those of the last read begins, or else its end; null without leader epochs."""
    epochs = {int(epoch): offset for epoch, offset in json.loads(row.leader_epochs or "{}").items()}
    last_epoch = -1 if state.leader_epoch is None else state.leader_epoch
    newer = (offset for epoch, offset in epochs.items() if 0 <= last_epoch < epoch)
    return min(newer, default=state.log_end_offset) if epochs else None


def _first_incomplete(row: LogListing, state: StoredState) -> int | None:
    """The first segment that was missing, incomplete or damaged when it was read, and now is not what it was."""
    if state.segment_sizes is None:
        return 0 if state.is_damaged else None
    known = {base: (size, modified) for base, size, modified in json.loads(state.segment_sizes)}
    damaged, begin = state.damaged_bases, row.begin or 0
    lost_before = (~each for each in damaged if each < 0)
    found = [base for base in lost_before if (row.has_snapshot if base == begin else begin < base <= row.cleaned)]
    newest, log_end = max(known, default=0), state.log_end_offset or 0
    listed = json.loads(row.segment_sizes or "[]")
    ends = [*(base for base, _, _ in listed[1:]), NEVER]
    for (base, size, modified), end in zip(listed, ends, strict=True):
        is_late = base not in known and (base < newest or end <= log_end)
        merged = sum(before for each, (before, _) in known.items() if base <= each < end)
        has_grown = base < newest and size > merged
        if is_late or has_grown or (base in damaged and known.get(base) != (size, modified)):
            found.append(base)
    return min(found, default=None)
