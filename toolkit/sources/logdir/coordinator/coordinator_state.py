"""``__transaction_state`` in files: the newest record of each id, and whether the topic is complete."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolkit.analysis.coordinator.transaction_history import newest
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.schema import Row, utc
from toolkit.sources.logdir.contents import Contents, ReplicaWithCheckpoints
from toolkit.sources.logdir.state.log_window import ReadLimit

USUAL_COUNT = 50  # transaction.state.log.num.partitions
CLOCKS_APART = dt.timedelta(seconds=60)  # assumed maximum difference between the clocks of two brokers


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
        Time of the newest record below the high watermark, by the coordinator's clock: the partition is complete at
        least up to then. Null if there is no such record or no high watermark.
    clock_set_back
        Offset of the last record before which the clock went back by more than `CLOCKS_APART`; -1 for none.
    errors
        Read errors.
    """

    read: ReplicaWithCheckpoints
    newest: dict[str, Row] = field(default_factory=dict)
    as_of: dt.datetime | None = None
    clock_set_back: int = -1
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorState:
    """The partitions of ``__transaction_state``.

    Parameters
    ----------
    partitions
        By number.
    count
        Expected number of partitions.
    is_counted
        Whether the caller passed `count`, or all partitions exist and every id is where its hash puts it.
    gaps
        What is missing, a phrase each; while there are any, an id without a record proves nothing.
    """

    partitions: Mapping[int, TransactionLogPartition]
    count: int
    is_counted: bool
    gaps: Sequence[str]

    def rows(self, *, consistent_copy: dt.datetime | None, observed_at: dt.datetime) -> list[Row]:
        """Rows of ``schema.TRANSACTIONS``; `observed_at` is the time up to which their partition is complete.

        Parameters
        ----------
        consistent_copy
            When the files were last written, if the caller asserts a consistent copy.
        observed_at
            For ids without any such time.
        """
        rows: list[Row] = []
        for partition in self.partitions.values():
            as_of = consistent_copy or partition.as_of
            for row in newest(partition.newest.values(), observed_at=observed_at):
                event = partition.newest[row["transactional_id"]]
                rows.append({**row, "observed_at": as_of or event["timestamp"] or observed_at})
        return rows


def read_coordinator_side(contents: Contents, *, count: int | None) -> CoordinatorState:
    """Read every partition of ``__transaction_state`` among the files.

    Parameters
    ----------
    contents
        The files.
    count
        Number of partitions of the topic, if the caller knows it; else 50, or more if there is one with a higher
        number.
    """
    read = {number: _read(each) for number, each in sorted(contents.best(STATE_TOPIC, reach=ReadLimit.RECORDS).items())}
    expected = count if count is not None else max([USUAL_COUNT, *(number + 1 for number in read)])
    gaps = [*_gaps(read, expected)]
    is_counted = count is not None or not gaps
    for number, partition in read.items():
        gaps += [f"a complete {STATE_TOPIC}-{number}: {error}" for error in partition.errors[:1]]
    topic_ids = {partition.read.state.topic_id for partition in read.values()} - {None}
    if len(topic_ids) > 1:
        gaps.append(f"a single {STATE_TOPIC}: its partitions have {len(topic_ids)} topic ids")
    return CoordinatorState(partitions=read, count=expected, is_counted=is_counted, gaps=gaps)


def _read(read: ReplicaWithCheckpoints) -> TransactionLogPartition:
    state = read.state
    found = TransactionLogPartition(read=read, errors=[state.error] if state.error else [])
    for event in (*state.window.records.errors, *state.window.records.newest()):
        if not event["error"]:
            found.newest[event["transactional_id"]] = event
        elif not event["error"].startswith("TORN_TAIL"):  # the replica's state has it
            found.errors.append(event["error"])
    offsets, times = state.window.batch_times.T
    if len(times):
        latest = np.maximum.accumulate(times)
        back = np.flatnonzero(times[1:] < latest[:-1] - CLOCKS_APART / dt.timedelta(milliseconds=1))
        found.clock_set_back = int(offsets[back[-1] + 1]) if back.size else -1
    replicated = times[offsets < (state.high_watermark or 0)]
    found.as_of = utc(int(replicated[-1])) if len(replicated) else None
    return found


def _gaps(partitions: Mapping[int, TransactionLogPartition], expected: int) -> Iterator[str]:
    """What contradicts the expected number of partitions: missing ones, more, or ids that do not hash to theirs."""
    if not partitions:
        yield f"the coordinators' state: no partition of {STATE_TOPIC} is among the files"
    elif missing := sorted(set(range(expected)) - partitions.keys()):
        numbers = ", ".join(map(str, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        yield (
            f"a complete {STATE_TOPIC}: {len(partitions)} of its {expected} partitions are among the files, not "
            f"{numbers} (if transaction.state.log.num.partitions is not {expected}, set txn_state_partitions)"
        )
    elif (highest := max(partitions)) >= expected:
        yield (
            f"the number of partitions of {STATE_TOPIC}: partition {highest} exists, so there are more than {expected}"
        )
    else:
        ids = ((number, name) for number, partition in partitions.items() for name in partition.newest)
        for number, name in ids:
            if (hashed := coordinator_partition(name, expected)) != number:
                yield (
                    f'the number of partitions of {STATE_TOPIC}: id "{name}" is in partition {number}, but with '
                    f"{expected} partitions it would be in {hashed}"
                )
                return
