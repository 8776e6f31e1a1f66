"""The protocol of a source of logs, and from which offset to read each log that has changed since the last run.

A log only grows at its end, so earlier reads stay valid, even after retention and the cleaner have deleted data. A
truncation invalidates them, when a replica follows a new leader. The leader epochs in the log's folder show the first
changed offset, as they do for the replicas themselves. Without leader epochs, a changed log is read again completely.

A copy does not grow like a log: a segment may arrive late, or be incomplete or damaged at first. So the state has the
size of each segment and whether it was damaged. A log is read again if a segment appears below the end that was read,
an older one grew by more than the cleaner can have merged into it, a damaged one changed, or a snapshot or the
cleaner's checkpoint now explains what was unknown. A segment that shrank or is gone is the work of the cleaner or of
retention.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from toolkit.schema.live import Partition
from toolkit.spark.datasources.log_identity import LogIdentity
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.datasources.partial_transactions import (
    LOST,
    PARTIAL_TRANSACTIONS_ARROW,
    REMEMBERED,
    TRUNCATED,
    PartialRecord,
    record_batch,
)
from toolkit.spark.pipeline.tables.staging_table import IDS, LOG, StoredState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from toolkit.spark.datasources.batches_reader import BatchesReader
    from toolkit.spark.datasources.log_reader import LogReader

AT_ONCE = 2  # partitions read in parallel by this process, as in the library
NEVER = 1 << 63
LOST_SENTENCE = "OFFSETS_LOST: Offsets {:,} to {:,} were deleted from the log before they were read."


class LogPlan(NamedTuple):
    """How to read the new data of a log."""

    start: int | None = None  # first offset to read; null for the beginning of the log
    stop: int | None = None  # end offset, exclusive; null for the end of the log
    remembered: str | None = None  # how to use the stored state: `REMEMBERED`, `LOST` or `TRUNCATED`; null without one
    offset: int | None = None  # for `TRUNCATED`: the first offset whose stored rows are obsolete
    error: str | None = None  # for `LOST`: the lost offsets


def plan_logs(listed: Iterable[LogListing], states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
    """How to read the new data of each changed log in files. `states`: the stored states, by log."""
    found = {}
    for row in listed:
        state = states.get(row.log)
        if state is None:
            found[row.log] = LogPlan()
        elif state.broker_id is None and LogIdentity.of(row.log).broker is not None:  # meta.properties was missing
            found[row.log] = LogPlan(remembered=TRUNCATED, offset=0)
        elif row.listing != state.listing or state.is_unread:
            found[row.log] = _plan_changed(row, state)
    return found


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
    epochs = {int(epoch): offset for epoch, offset in json.loads(row.leader_epochs or "{}").items()}
    last_epoch = -1 if state.leader_epoch is None else state.leader_epoch
    newer = min((offset for epoch, offset in epochs.items() if 0 <= last_epoch < epoch), default=end)
    is_comparable = bool(epochs) and (last_epoch >= 0 or end <= begin)
    if state.is_unread or not is_comparable or newer < end or _was_incomplete(row, state):
        return LogPlan(remembered=TRUNCATED, offset=0 if ~begin in state.damaged_bases else min(begin, newer))
    if begin > end:
        return LogPlan(remembered=LOST, error=LOST_SENTENCE.format(end, begin - 1))
    return LogPlan(start=end, remembered=REMEMBERED)


def _was_incomplete(row: LogListing, state: StoredState) -> bool:
    """Whether segments that were read were missing, incomplete or damaged, and now are not what they were."""
    if state.segment_sizes is None:  # of a release that did not note them
        return bool(state.is_damaged)
    known = {base: (size, modified) for base, size, modified in json.loads(state.segment_sizes)}
    damaged, begin = state.damaged_bases, row.begin or 0
    lost_before = [~each for each in damaged if each < 0]
    if any(row.has_snapshot if base == begin else begin < base <= row.cleaned for base in lost_before):
        return True
    newest, log_end = max(known, default=0), state.log_end_offset or 0
    listed = json.loads(row.segment_sizes or "[]")
    ends = [*(base for base, _, _ in listed[1:]), NEVER]
    for (base, size, modified), end in zip(listed, ends, strict=True):
        if base in damaged and known.get(base) != (size, modified):
            return True
        if base not in known and (base < newest or end <= log_end):
            return True
        merged = sum(before for each, (before, _) in known.items() if base <= each < end)
        if base < newest and size > merged:
            return True
    return False


def remembered_partials(states: pa.Table, plans: Mapping[str, LogPlan]) -> pa.Table:
    """The states of logs, as rows of ``partial_transactions`` that precede those of the new ranges.

    `states`: rows of `staging_table.STATE`, with at least the columns `REMEMBERED_COLUMNS`.
    `plans`: the plan of each log.
    """
    rows = []
    for state in StoredState.of_table(states):
        plan = plans[state.log]
        row = PartialRecord(log=state.log, kind=plan.remembered or REMEMBERED, range_order=-1, packed=state.remembered)
        row = replace(row, topic=state.topic, partition=state.partition, broker_id=state.broker_id)
        rows.append(replace(row, log_end_offset=plan.offset, error=plan.error))
    return pa.Table.from_batches(map(record_batch, rows), PARTIAL_TRANSACTIONS_ARROW)


def read_here(reader: LogReader | BatchesReader) -> pa.Table:
    """Read a table in this process, with a data source's reader but without Spark."""
    batches: list[pa.RecordBatch] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for found in pool.map(lambda work: list(reader.read(work)), reader.partitions()):
            batches += found
    return pa.Table.from_batches(batches, reader.columns)


class PipelineSource(Protocol):
    """Logs, as listed once: `LogFiles` in `from_files`, `LivePartitions` in `from_cluster`."""

    @property
    def is_consistent(self) -> bool:
        """Whether the files are a consistent copy."""

    @property
    def what(self) -> str:
        """Name of the listed items."""

    @property
    def listed(self) -> int:
        """Number of logs."""

    @property
    def bytes_listed(self) -> int | None:
        """Total size of the logs; null if unknown."""

    @property
    def signature(self) -> str:
        """A value that changes when the logs or the selection change."""

    @property
    def listings(self) -> Mapping[str, LogListing]:
        """Each log, as listed."""

    @property
    def assumptions(self) -> Sequence[str]:
        """What is assumed because ids are missing, as sentences."""

    def plans(self, states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
        """How to read the new data of each changed log; with `IDS`, the records of ``__transaction_state``."""

    def partial_transactions(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of the table partial_transactions; null if there is nothing to read."""

    def events(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of ``schema.TRANSACTION_LOG``, with the name of their log."""

    def batches(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of ``schema.BATCHES``, with the name of their log."""

    def tables(self, plans: Mapping[str, LogPlan]) -> tuple[pa.Table, pa.Table] | None:
        """`partial_transactions` and `events`, read by this process if that is faster than Spark's jobs; else null."""

    def current_findings(self) -> pa.Table:
        """Rows of ``schema.FINDINGS`` for the present holds of the LSO."""


FROM_OFFSET = {
    "log_transactions": "coalesce(greatest(marker_offset, first_offset) >= {offset}, true)",
    "lso_timeline": "log_end_offset > {offset}",
    "transaction_history": "last_offset >= {offset}",
    "batches": "coalesce(base_offset >= {offset}, true)",
}
"""SQL conditions for the rows of a table at or after an offset."""


def obsolete_rows(table: str, plans: Mapping[str, LogPlan], obsolete_logs: Collection[str]) -> list[str]:
    """SQL conditions for the stored rows of truncated and replaced logs.

    `table`: name of the table.
    `plans`: what this run reads of each log.
    `obsolete_logs`: replicas of ``__transaction_state`` that another one replaces.
    """
    found = []
    for log, plan in plans.items():
        if plan.remembered == TRUNCATED and log.endswith(IDS) is (table == "transaction_history"):
            found.append(f"{_has_log(log)} AND {FROM_OFFSET[table].format(offset=plan.offset)}")
    if table == "transaction_history":
        found += map(_has_log, obsolete_logs)
    return found


def _has_log(log: str) -> str:
    return "{} = '{}'".format(LOG, log.replace("\\", "\\\\").replace("'", "\\'"))
