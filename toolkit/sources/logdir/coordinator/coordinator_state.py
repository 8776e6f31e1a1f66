"""``__transaction_state`` in files: what each coordinator wrote down last, and whether that is all there is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolkit.analysis.coordinator.transaction_history import newest
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.schema import Row, utc
from toolkit.sources.logdir.contents import Contents, ReplicaWithCheckpoints
from toolkit.sources.logdir.state.log_window import ReadLimit

__all__ = ["CLOCKS_APART", "USUAL_COUNT", "CoordinatorState", "TransactionLogPartition", "read_coordinator_side"]

USUAL_COUNT = 50  # transaction.state.log.num.partitions
CLOCKS_APART = dt.timedelta(seconds=60)  # how far the clocks of two brokers are taken to be apart at most


@dataclass(slots=True, kw_only=True)
class TransactionLogPartition:
    """One partition of ``__transaction_state``.

    Parameters
    ----------
    read
        The replica that was read, and its state.
    newest
        Newest record (``schema.TRANSACTION_LOG``) of each transactional id.
    as_of
        Time of the newest record below the high watermark, by the coordinator's clock: up to then, at least, this
        tells everything. Null where there is none, or no high watermark.
    clock_set_back
        Offset of the last record before which the clock went back by more than `CLOCKS_APART`; -1 for none.
    errors
        What could not be read.
    """

    read: ReplicaWithCheckpoints
    newest: dict[str, Row] = field(default_factory=dict)
    as_of: dt.datetime | None = None
    clock_set_back: int = -1
    errors: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        return self.read.state.log.where.partition or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorState:
    """What the coordinators wrote down.

    Parameters
    ----------
    partitions
        By number.
    count
        How many there should be.
    is_counted
        Whether the caller said so, or they are all there and every id lies where its hash puts it.
    gaps
        What is missing for the silence of this log to mean anything, a sentence each.
    """

    partitions: Mapping[int, TransactionLogPartition]
    count: int
    is_counted: bool
    gaps: Sequence[str]

    def rows(self, *, consistent_copy: dt.datetime | None, observed_at: dt.datetime) -> list[Row]:
        """Rows of ``schema.TRANSACTIONS`` for a look: `observed_at` is the time up to which they surely tell.

        Parameters
        ----------
        consistent_copy
            When the files were last written, where the brokers have stood still since.
        observed_at
            For ids of a partition of which no such time is known.
        """
        rows: list[Row] = []
        for partition in self.partitions.values():
            as_of = consistent_copy or partition.as_of
            for row in newest(partition.newest.values(), observed_at=observed_at):
                event = partition.newest[row["transactional_id"]]
                rows.append({**row, "observed_at": as_of or event["timestamp"] or observed_at})
        return rows


def read_coordinator_side(contents: Contents, *, count: int | None) -> CoordinatorState:
    """Read every partition of ``__transaction_state`` that is there.

    Parameters
    ----------
    contents
        The files.
    count
        How many partitions the topic has, if the caller knows; otherwise 50, or as many as are there.
    """
    read = {number: _read(each) for number, each in sorted(contents.best(STATE_TOPIC, reach=ReadLimit.RECORDS).items())}
    expected = count if count is not None else max([USUAL_COUNT, *(number + 1 for number in read)])
    gaps = _missing(sorted(read), expected) or _misplaced(read, expected)
    is_counted = count is not None or not gaps
    for partition in read.values():
        name = f"{STATE_TOPIC}-{partition.number}"
        gaps += [f"{name} as a whole: {error}" for error in partition.errors[:1]]
    topic_ids = {partition.read.state.topic_id for partition in read.values()} - {None}
    if len(topic_ids) > 1:
        gaps.append(f"one {STATE_TOPIC}: its partitions have {len(topic_ids)} topic ids")
    return CoordinatorState(partitions=read, count=expected, is_counted=is_counted, gaps=gaps)


def _read(read: ReplicaWithCheckpoints) -> TransactionLogPartition:
    state = read.state
    found = TransactionLogPartition(read=read, errors=[state.error] if state.error else [])
    for event in (*state.window.records.errors, *state.window.records.newest()):
        if not event["error"]:
            found.newest[event["transactional_id"]] = event
        elif not event["error"].startswith("TORN_TAIL"):  # which the state knows of
            found.errors.append(event["error"])
    offsets, times = state.window.batch_times.T
    if len(times):
        latest = np.maximum.accumulate(times)
        back = np.flatnonzero(times[1:] < latest[:-1] - CLOCKS_APART / dt.timedelta(milliseconds=1))
        found.clock_set_back = int(offsets[back[-1] + 1]) if back.size else -1
    replicated = times[offsets < (state.high_watermark or 0)]
    found.as_of = utc(int(replicated[-1])) if len(replicated) else None
    return found


def _missing(there: Sequence[int], expected: int) -> list[str]:
    if not there:
        return [f"the coordinator's side: no partition of {STATE_TOPIC} is among the files"]
    if missing := sorted(set(range(expected)) - set(there)):
        numbers = ", ".join(map(str, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        return [
            f"{STATE_TOPIC} as a whole: of {expected} partitions {len(there)} are among the files, not {numbers} "
            "(txn_state_partitions says how many there are)"
        ]
    if max(there) >= expected:
        return [f"the number of partitions of {STATE_TOPIC}: {max(there)} is there, so they are more than {expected}"]
    return []


def _misplaced(partitions: Mapping[int, TransactionLogPartition], count: int) -> list[str]:
    """Ids lie where their hash says, unless the topic has another number of partitions, or is not one topic."""
    for number, partition in partitions.items():
        for transactional_id in partition.newest:
            if (right := coordinator_partition(transactional_id, count)) != number:
                return [
                    f'the number of partitions of {STATE_TOPIC}: id "{transactional_id}" is in {number}, and with '
                    f"{count} partitions it would be in {right}"
                ]
    return []
