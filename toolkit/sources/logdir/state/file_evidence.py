"""Evidence from files for findings: cause, opening time, and amount of held data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from toolkit.analysis.diagnosis.explanation import explain
from toolkit.analysis.diagnosis.log_excerpts import Excerpt, LogEvidence, is_to_explain
from toolkit.analysis.diagnosis.producer_evidence import have_ended
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import Headers, concatenate
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.contents import ReplicaWithCheckpoints
from toolkit.sources.logdir.coordinator.coordinator_state import CoordinatorState
from toolkit.sources.logdir.observe_files import FileObservation
from toolkit.sources.logdir.replica_tables import COMPACTED
from toolkit.sources.logdir.state.log_window import BACK, FORWARD

__all__ = ["with_log_evidence"]

MAX_PARTITIONS = 50
FAR_BACK = 100_000  # offsets before the first one to search if `BACK` contains no marker of the producers


def with_log_evidence(observed: FileObservation, rows: Sequence[Row]) -> list[Row]:
    """Rows of ``schema.FINDINGS``; those that need an explanation have the evidence of the logs."""
    excerpts = dict(_excerpts(observed, rows))
    to_explain = [row for row in rows if (row["topic"], row["partition"]) in excerpts and is_to_explain(row)]
    if not to_explain:
        return list(rows)
    events = list(_events(observed.side, to_explain))
    errors = sorted({row["error"].partition(":")[0] for row in events if row.get("error")})
    unread = [*observed.side.gaps, *([f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else [])]
    readable = [row for row in events if not row.get("error")]
    return explain(rows, [observed.observation], LogEvidence(excerpts=excerpts, events=readable, unread=unread))


def _excerpts(observed: FileObservation, rows: Sequence[Row]) -> Iterator[tuple[TopicPartition, Excerpt]]:
    """Excerpts around the lowest open transaction, for the first `MAX_PARTITIONS` partitions that need explanation."""
    count = 0
    for tp, group in groupby(rows, key=lambda row: (row["topic"], row["partition"])):
        found = [row for row in group if row["start_offset"] is not None]
        producer_ids = {row["producer_id"] for row in found if is_to_explain(row)}
        if not producer_ids or tp not in observed.replicas:
            continue
        read = observed.replicas[tp][0]
        offset = max(read.state.log_start_offset or 0, min(row["start_offset"] for row in found))
        yield tp, _excerpt(read, offset, producer_ids)
        count += 1
        if count == MAX_PARTITIONS:
            return


def _excerpt(read: ReplicaWithCheckpoints, offset: int, producer_ids: Collection[int]) -> Excerpt:
    """From a marker of the producers before an offset up to the high watermark, within the size limits."""
    state = read.state
    log_start, end = state.log_start_offset or 0, state.high_watermark
    stop = (state.log_end_offset or 0) if end is None else end
    after, errors = _headers(read, offset, stop, most=FORWARD)
    if len(after) and after["last_offset"][-1] + 1 < stop:
        stop = int(after["last_offset"][-1]) + 1
    before, start = after[:0], offset
    for distance in (BACK, FAR_BACK):
        if start > log_start and not have_ended(before, producer_ids):
            start = max(log_start, offset - distance)
            before, earlier_errors = _headers(read, start, offset)
            errors = errors or earlier_errors
    before = before[before["last_offset"] < (after["base_offset"][0] if len(after) else offset)]
    where = state.log.where
    tp = where.topic or "", where.partition or 0
    open_range = None  # records and bytes from the LSO, or the log start if that is higher, to the high watermark
    if state.last_stable_offset is not None and end is not None:
        open_range = state.window.totals.between(max(state.last_stable_offset, log_start), end)
    return Excerpt(
        headers=concatenate((before, after)) if len(before) else after,
        start=start,
        stop=stop,
        log_start_offset=state.log_start_offset,
        observed_at=state.observed_at,
        held=open_range,
        is_compacted=True if tp in read.checkpoints.cleaned or where.topic in COMPACTED else None,  # null: unknown
        groups=_groups(read, after, producer_ids) if where.topic == OFFSETS_TOPIC else {},
        source="log",
        broker_id=where.broker_id,
        error=errors[0] if errors else None,
    )


def _headers(
    read: ReplicaWithCheckpoints, start: int, stop: int, *, most: int | None = None
) -> tuple[Headers, list[str]]:
    """Batches with an offset in ``start <= offset < stop``, and read errors; from the window if it has them."""
    window = read.state.window
    if (batches := window.neighbourhood.between(start, stop, most=most)) is not None:
        return batches, [each.reason for each in window.damage if each.reaches(start) and not each.is_torn]
    parts, errors, count = [], [], 0
    for part in read.state.log.parts(start=start, stop=stop):
        parts.append(part.scanned.headers)
        errors += [damage.reason for damage in part.scanned.damage if not damage.is_torn]
        count += len(part.scanned.headers)
        if most is not None and count >= most:
            break
    return concatenate(parts)[:most], errors


def _groups(
    read: ReplicaWithCheckpoints, headers: Headers, producer_ids: Collection[int]
) -> Mapping[int, Sequence[str]]:
    """Groups with pending offset commits, by producer id."""
    found: dict[int, set[str]] = {}
    data = np.isin(headers["producer_id"], list(producer_ids)) & (headers["attributes"] & CONTROL == 0)
    for row in read.state.log.offsets_log_in(headers[data]):
        if row.get("producer_id") is not None and row.get("group_id") is not None:
            found.setdefault(row["producer_id"], set()).add(row["group_id"])
    return {producer_id: sorted(groups) for producer_id, groups in found.items()}


def _events(side: CoordinatorState, rows: Iterable[Row]) -> Iterator[Row]:
    """Records of the transactions' owners; of former owners, if no id owns a transaction."""
    rows = list(rows)
    owners = {row["transactional_id"] for row in rows} - {None}
    orphans = {row["producer_id"] for row in rows if row["transactional_id"] is None}
    for partition in side.partitions.values():
        ids = (owners & partition.newest.keys()) | partition.read.state.window.records.ids_of(orphans)
        if ids:
            yield from partition.read.state.window.records.records(ids)
