"""The end of a replica's log: offsets, producers, and open transactions; offset specifications resolved in it."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from toolkit.analysis.log.producer_state import producer_records
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import utc
from toolkit.schema.live import Partition, Producer
from toolkit.schema.table import EPOCH
from toolkit.sources.logdir.replica.log_dir_layout import METADATA_TOPIC, PartitionCheckpoints
from toolkit.sources.logdir.replica.log_window import LogWindow, ReadLimit, read_window
from toolkit.sources.logdir.replica.replica_log import ReplicaLog
from toolkit.sources.offset_queries.offset_spec import NAMED, OffsetSpec, milliseconds

NO_HIGH_WATERMARK = (
    "NO_HIGH_WATERMARK: no replication-offset-checkpoint has it, so last_stable_offset assumes a log that is "
    "replicated to its end"
)


WRITTEN_BY_BROKERS = {STATE_TOPIC, OFFSETS_TOPIC, METADATA_TOPIC}
EMPTY_FOLDER = "EMPTY: it contains no segment."
REMOTE = (
    "REMOTE_STORAGE: the segments in remote storage end before the log does; its end is in the leader's log directory"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """The state of a replica at its log end."""

    log: ReplicaLog
    # log_start_offset, log_end_offset, leader_epoch: of these files, those in remote storage included; null if unknown
    log_start_offset: int | None = None
    # the log start offset by the checkpoint, if it lies before these files: the segments between are in remote storage,
    # or were not copied
    remote_log_start: int | None = None
    log_end_offset: int | None = None
    # by the checkpoint, which lags if the broker is running or crashed; null without checkpoint
    high_watermark: int | None = None
    # as the broker computes it, bounded by that high watermark; null if offsets are missing that decide it
    last_stable_offset: int | None = None
    leader_epoch: int | None = None
    window: LogWindow = field(default_factory=LogWindow)  # the data that was read
    # of its log directory; empty for a text
    checkpoints: PartitionCheckpoints = field(default_factory=PartitionCheckpoints)
    is_whole: bool = False  # whether the producer state covers the complete log, deleted segments included
    # unusable snapshots, for which an older one or none was used; a broker does the same
    snapshot_errors: Sequence[str] = ()
    topic_id: str | None = None  # by ``partition.metadata``; differs if the topic was deleted and created again
    # newest time in it that a broker set; null if there is none. Its files are not older.
    written_at: dt.datetime | None = None
    # the later one of that time and of when it was copied; else the newest time in it by producers' clocks; 1970 if it
    # has no time at all
    observed_at: dt.datetime
    error: str | None = None  # why the replica could not be read completely


def read_state(
    log: ReplicaLog,
    checkpoints: PartitionCheckpoints,
    *,
    limit: ReadLimit = ReadLimit.TAIL,
    copied_at: dt.datetime | None = None,
) -> ReplicaState:
    """Replay a log from its newest intact snapshot on, or from its first segment.

    `checkpoints`: the checkpoints of its log directory.
    `limit`: how far back to read for the other data of the window.
    `copied_at`: when its files were copied; null if unknown.
    """
    observed_at = copied_at or EPOCH
    if log.error or not (log.base_offsets or any(True for _ in log.snapshots())):
        return ReplicaState(log=log, checkpoints=checkpoints, observed_at=observed_at, error=log.error or EMPTY_FOLDER)
    tp = log.where.tp
    written = checkpoints.high_watermark.get(tp)
    # After a clean shutdown the checkpoint is final: a marker at or after it still holds the LSO.
    needed = written if checkpoints.clean_shutdown else None
    log_start = listed_start = checkpoints.log_start.get(tp, 0)
    count_at = [log_start, *log.base_offsets[:1], *([] if written is None else [written])]
    window, snapshot_errors = _read(log, needed, limit, count_at, cleaned=checkpoints.cleaned.get(tp, -1))
    entries = list(log.checkpoint_rows())
    # leader-epoch-checkpoint has a new epoch before any batch does.
    epochs = [entry.leader_epoch for entry in entries if entry.leader_epoch is not None]
    leader_epoch = max([window.fold.leader_epoch, *epochs])
    log_end = max(window.fold.log_end_offset, window.snapshot or 0, *log.base_offsets[-1:])
    first = log.base_offsets[0] if log.base_offsets else log_end
    log_start = max(first, log_start)
    damage = [each for each in window.damage if not each.is_torn and each.reaches(window.snapshot or 0)]
    unread = [f"{each.reason.rstrip('.')} ({each.place})." for each in damage]
    unread += [each.error for each in window.missing if each.error is not None]
    unread += [each.error for each in window.records.errors if each.error and not each.error.startswith("TORN_TAIL")]
    high_watermark = None if written is None else min(max(written, log_start), log_end)
    last_time = window.last_time if log.where.topic in WRITTEN_BY_BROKERS else window.last_broker_time
    written_at = utc(last_time)
    by_producers = min(utc(window.last_time) or EPOCH, dt.datetime.now(dt.UTC))  # their clocks may be ahead
    observed_at = max(filter(None, (written_at, copied_at)), default=by_producers)
    return ReplicaState(
        log=log,
        log_start_offset=log_start,
        remote_log_start=listed_start if tp in checkpoints.log_start and listed_start < first else None,
        log_end_offset=log_end,
        high_watermark=high_watermark,
        last_stable_offset=_last_stable_offset(
            window, log_start, log_end if high_watermark is None else high_watermark, final=needed is not None
        )
        if not window.missing
        else None,
        leader_epoch=None if leader_epoch < 0 else leader_epoch,
        window=window,
        checkpoints=checkpoints,
        is_whole=window.snapshot is not None or first == 0,
        snapshot_errors=snapshot_errors,
        topic_id=next((entry.value for entry in entries if entry.key == "topic_id" and not entry.error), None),
        written_at=written_at,
        observed_at=observed_at,
        error=REMOTE if log.is_remote else next(iter(unread), None),
    )


def _read(
    log: ReplicaLog, needed: int | None, limit: ReadLimit, count_at: Sequence[int], *, cleaned: int
) -> tuple[LogWindow, list[str]]:
    """Try the snapshots, newest first; one beyond the end of the log does not belong to it.

    `needed` is the highest usable snapshot offset; null for any.
    """
    errors: list[str] = []
    first = log.base_offsets[0] if log.base_offsets else None
    for snapshot in log.snapshots():
        if snapshot.error:
            errors.append(snapshot.error)
            continue
        if needed is not None and snapshot.offset > needed:
            continue
        if first is not None and snapshot.offset < first:
            break
        window = read_window(log, snapshot, limit=limit, count_at=count_at, cleaned=cleaned)
        if first is None or max(window.fold.log_end_offset, *log.base_offsets[-1:]) >= snapshot.offset:
            return window, errors
        errors.append(f"FOREIGN_SNAPSHOT: the snapshot at {snapshot.offset} lies beyond the end of the log.")
    return read_window(log, None, limit=limit, count_at=count_at, cleaned=cleaned), errors


def _last_stable_offset(window: LogWindow, log_start: int, bound: int, *, final: bool) -> int:
    """``UnifiedLog.fetchLastStableOffsetMetadata``: the first unstable offset, if it is below the high watermark.

    A transaction whose marker is not below the high watermark is unstable, too. This counts only with a `final` high
    watermark: a lagging checkpoint would make ended transactions appear to hold the LSO.
    """
    unstable = window.open_starts
    if final:
        log_transactions = window.ranges[-1].log_transactions
        waiting = log_transactions[
            (log_transactions["marker_offset"] >= bound) & (log_transactions["first_offset"] >= 0)
        ]
        unstable += waiting["first_offset"].tolist()
    return min(max(min(unstable), log_start), bound) if unstable else bound


def producers_of(state: ReplicaState) -> list[Producer]:
    """The producers, and one without id if they may be incomplete."""
    (topic, partition), broker_id, observed_at = state.log.where.tp, state.log.where.broker_id, state.observed_at
    found = producer_records(
        state.window.producers, topic=topic, partition=partition, broker_id=broker_id, observed_at=observed_at
    )
    for error in [state.error] if state.error else state.snapshot_errors[:1]:
        found.append(
            Producer(topic=topic, partition=partition, broker_id=broker_id, observed_at=observed_at, error=error)
        )
    return found


def partition_of(state: ReplicaState) -> Partition:
    """The partition; leader, replicas and ISR are null, as no file has them."""
    error = state.error
    if error is None and state.high_watermark is None:
        error = NO_HIGH_WATERMARK
    return Partition(
        topic=state.log.where.tp.topic,
        partition=state.log.where.tp.partition,
        broker_id=state.log.where.broker_id,
        leader_epoch=state.leader_epoch,
        log_start_offset=state.log_start_offset if state.remote_log_start is None else state.remote_log_start,
        local_log_start_offset=None if state.log.is_remote else _local_start(state),
        last_stable_offset=state.last_stable_offset,
        high_watermark=state.high_watermark,
        log_end_offset=state.log_end_offset,
        observed_at=state.observed_at,
        error=error,
    )


def _local_start(state: ReplicaState) -> int | None:
    offsets = state.log.local_start, state.log_start_offset
    return max((each for each in offsets if each is not None), default=None)


def offset_of(log: ReplicaLog, bound: OffsetSpec | None, state: ReplicaState | None) -> int | None:
    """The offset of a specification in a log; null if the specification is null or the offset is unknown.

    `bound`: an offset; a time with time zone, for the first batch with a record at or after it; or ``"log_start"``,
        ``"lso"``, ``"high_watermark"``, ``"log_end"``.
    `state`: the log's state, for the named offsets.
    """
    if bound is None:
        return None
    if isinstance(bound, str):
        offset: int | None = getattr(state, NAMED[bound]) if state else None
        return offset
    if isinstance(bound, dt.datetime):
        return _offset_at(log, milliseconds(bound))
    return operator.index(bound)


def _offset_at(log: ReplicaLog, time_ms: int) -> int:
    """Offset of the first batch with a record at or after a time; the log end offset if there is none."""
    end = 0
    for part in log.parts():
        headers = part.scanned.headers
        newer = np.flatnonzero(headers["max_timestamp"] >= time_ms)
        if newer.size:
            return int(headers["base_offset"][newer[0]])
        if len(headers):
            end = int(headers["last_offset"][-1]) + 1
    return end
