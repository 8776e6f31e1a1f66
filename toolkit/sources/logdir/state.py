"""The end of a replica's log: its offsets, its producers, and which transactions are open there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from toolkit.analysis.producers import NOTHING, Replay, join, replay, resume
from toolkit.analysis.producers import producer_rows as replayed_rows
from toolkit.analysis.spans import EMPTY, Piece, begin, finish, merge, piece
from toolkit.schema import Row
from toolkit.sources.log_tables import Part
from toolkit.sources.logdir.log import Log, Snapshot
from toolkit.sources.logdir.marks import Marks

__all__ = ["State", "opened_before", "partition_row", "producer_rows", "read_state"]

NO_HIGH_WATERMARK = (
    "NO_HIGH_WATERMARK: no replication-offset-checkpoint tells it, so last_stable_offset is that of a log that is "
    "replicated to its end"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a replica holds at its end.

    Parameters
    ----------
    log
        The replica.
    log_start_offset, log_end_offset, leader_epoch
        Null where nothing tells.
    high_watermark
        By the checkpoint, which lags behind a broker that runs or crashed; null without one.
    last_stable_offset
        As the broker computes it, bounded by that high watermark.
    producers
        Producer state.
    snapshot
        Offset of the snapshot that it was read from; null where it was replayed from the segments alone.
    is_whole
        Whether the producer state is that of the log's whole past.
    problems
        What of the segments could not be read on the way (``NAME: sentence``), a torn tail apart.
    snapshot_errors
        Snapshots that could not be used, so that an older one, or none, stood in; a broker does the same.
    torn
        Whether the log ends within a batch.
    topic_id
        By ``partition.metadata``: a topic that was deleted and created again is another one.
    observed_at
        When the newest of its files was written.
    """

    log: Log
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    leader_epoch: int | None = None
    producers: Replay = NOTHING
    snapshot: int | None = None
    is_whole: bool = False
    problems: Sequence[str] = ()
    snapshot_errors: Sequence[str] = ()
    torn: bool = False
    topic_id: str | None = None
    observed_at: dt.datetime

    @property
    def error(self) -> str | None:
        """What is wrong with it, in one line."""
        return self.log.error or (self.problems[0] if self.problems else None)


def read_state(log: Log, marks: Marks) -> State:
    """Replay a log from its newest sound snapshot on; from its first segment where there is none.

    Parameters
    ----------
    log
        The replica.
    marks
        The checkpoints of its log directory.
    """
    observed_at = log.modified or dt.datetime.now(dt.UTC)
    if log.error or not (log.base_offsets or any(True for _ in log.snapshots())):
        return State(log=log, observed_at=observed_at, problems=() if log.error else ("EMPTY: it holds no segment.",))
    place = (log.where.topic or "", log.where.partition or 0)
    written = marks.high_watermark.get(place)
    # After an end in good order the checkpoint is final: then what the LSO waits for may lie behind it.
    needed = written if marks.ended_in_good_order else None
    end, snapshot_errors = _read_end(log, needed)
    beside = list(log.checkpoint_rows())
    first = log.base_offsets[0] if log.base_offsets else end.log_end_offset
    log_start = max(first, marks.log_start.get(place, 0))
    high_watermark = None if written is None else min(max(written, log_start), end.log_end_offset)
    return State(
        log=log,
        log_start_offset=log_start,
        log_end_offset=end.log_end_offset,
        high_watermark=high_watermark,
        last_stable_offset=_last_stable_offset(end, log_start, high_watermark, final=needed is not None),
        leader_epoch=_leader_epoch(beside, end),
        producers=end.producers,
        snapshot=end.snapshot,
        is_whole=end.snapshot is not None or first == 0,
        problems=end.problems,
        snapshot_errors=snapshot_errors,
        torn=end.torn,
        topic_id=next((row["value"] for row in beside if row.get("key") == "topic_id" and not row["error"]), None),
        observed_at=observed_at,
    )


def opened_before(snapshot: Snapshot) -> dict[int, tuple[int, int]]:
    """Start offset and epoch of the transactions that are open at a snapshot, by producer id."""
    return {
        entry.producer_id: (entry.current_txn_first_offset, entry.producer_epoch)
        for entry in snapshot.producers
        if entry.current_txn_first_offset is not None
    }


@dataclass(slots=True, kw_only=True)
class _End:
    """A log as it is replayed to its end."""

    log_end_offset: int
    producers: Replay
    piece: Piece
    snapshot: int | None
    leader_epoch: int = -1
    torn: bool = False
    problems: list[str]

    def add(self, part: Part, *, after: int) -> None:
        headers = part.scanned.headers
        if len(headers):
            self.log_end_offset = int(headers["last_offset"][-1]) + 1
            self.leader_epoch = int(headers["leader_epoch"][-1])
        for each in part.scanned.damage:
            if each.is_torn:
                self.torn = True
            else:
                self.problems.append(f"{each.reason.rstrip('.')} (byte {each.position} of {part.file}).")
        new = headers[headers["base_offset"] >= after]
        self.producers = join(self.producers, replay(new))
        self.piece = merge(self.piece, piece(new))


def _read_end(log: Log, needed: int | None) -> tuple[_End, list[str]]:
    """Try the snapshots, the newest first; one beyond the end of the log is not of this log.

    `needed` is an offset at or below which to start, where more than the end is asked for.
    """
    errors: list[str] = []
    first = log.base_offsets[0] if log.base_offsets else None
    for snapshot in _usable(log, errors, needed):
        if first is not None and snapshot.offset < first:
            break
        end = _replay(log, snapshot)
        if end.log_end_offset >= snapshot.offset or first is None:
            end.log_end_offset = max(end.log_end_offset, snapshot.offset)
            return end, errors
        errors.append(f"FOREIGN_SNAPSHOT: the snapshot at {snapshot.offset} lies beyond the end of the log.")
    return _replay(log, None), errors


def _usable(log: Log, errors: list[str], needed: int | None) -> Iterator[Snapshot]:
    for snapshot in log.snapshots():
        if snapshot.error:
            errors.append(snapshot.error)
        elif needed is None or snapshot.offset <= needed:
            yield snapshot


def _replay(log: Log, snapshot: Snapshot | None) -> _End:
    starts_whole = snapshot is not None or log.base_offsets[:1] == [0]
    end = _End(
        log_end_offset=0,
        producers=resume(snapshot.producers) if snapshot else NOTHING,
        piece=begin(opened_before=opened_before(snapshot) if snapshot else None) if starts_whole else EMPTY,
        snapshot=snapshot.offset if snapshot else None,
        problems=[],
    )
    for part in log.parts_near(snapshot.offset) if snapshot else log.parts():
        end.add(part, after=snapshot.offset if snapshot else 0)
    end.log_end_offset = max(end.log_end_offset, *log.base_offsets[-1:])
    return end


def _last_stable_offset(end: _End, log_start: int, high_watermark: int | None, *, final: bool) -> int:
    """``UnifiedLog.fetchLastStableOffsetMetadata``: the first unstable offset, if it lies below the high watermark.

    A transaction whose marker is not yet below the high watermark is unstable, too; where the checkpoint lags that
    would make much look held that is not.
    """
    starts = end.producers.producers["current_txn_start_offset"]
    unstable = starts[starts >= 0]
    bound = end.log_end_offset if high_watermark is None else high_watermark
    if final:
        spans = finish(end.piece)
        waiting = spans[(spans["marker_offset"] >= bound) & (spans["first_offset"] >= 0)]
        unstable = np.concatenate((unstable, waiting["first_offset"]))
    first_unstable = max(int(unstable.min()), log_start) if unstable.size else bound
    return min(first_unstable, bound)


def _leader_epoch(beside: Sequence[Row], end: _End) -> int | None:
    """The newest epoch of a batch, or of ``leader-epoch-checkpoint``, which has it before anything is written."""
    epochs = [row["leader_epoch"] for row in beside if row.get("leader_epoch") is not None]
    newest = max([end.leader_epoch, *epochs])
    return None if newest < 0 else newest


def producer_rows(state: State) -> list[Row]:
    """Rows of ``schema.PRODUCERS``; what keeps them from being whole is a row without producer."""
    where, observed_at = state.log.where, state.observed_at
    rows = replayed_rows(state.producers, **where.columns, observed_at=observed_at)
    errors = [state.error] if state.error else list(state.snapshot_errors[:1])
    return rows + [{**where.columns, "observed_at": observed_at, "error": error} for error in errors]


def partition_row(state: State) -> Row:
    """Row of ``schema.PARTITIONS``; who leads, and which replicas there are, no file tells."""
    error = state.error
    if error is None and state.high_watermark is None:
        error = NO_HIGH_WATERMARK
    return {
        **state.log.where.columns,
        "leader": None,
        "leader_epoch": state.leader_epoch,
        "replicas": None,
        "isr": None,
        "log_start_offset": state.log_start_offset,
        "last_stable_offset": state.last_stable_offset,
        "high_watermark": state.high_watermark,
        "log_end_offset": state.log_end_offset,
        "observed_at": state.observed_at,
        "error": error,
    }
