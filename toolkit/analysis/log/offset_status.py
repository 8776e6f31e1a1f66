"""What each offset of a partition holds, and thus which consumers receive it; and which offsets are missing.

Below the LSO the broker's transaction index decides, as it does for consumers (a ``Fetcher`` with read_committed
receives ``abortedTransactions`` and drops their batches): compaction may have removed the marker. From the LSO on, the
producer's next marker decides.

Offsets are contiguous from segment to segment and from batch to batch, except where the cleaner removed batches. The
cleaner never passes an open transaction, and its checkpoint shows how far it came. A segment that was not copied, or
not completely, leaves missing offsets before the next one; damaged bytes leave them anywhere. Within a file no copy
omits intact bytes, so without damage the offsets that are missing there are the cleaner's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from toolkit.analysis.log.log_transactions import LogArray, finish, log_transaction_table, markers, partial_transactions
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import (
    ABORT,
    COMMIT,
    UNREAD_MARKER,
    Array,
    DamagedRange,
    Headers,
    LogChunk,
    LostOffsets,
    concatenate,
)
from toolkit.formats.log_dir_files import segment_base_offset
from toolkit.schema.live import OffsetVisibility, Partition
from toolkit.schema.log import LogTransaction
from toolkit.schema.table import UNKNOWN_LOG

STATUSES = (
    "non_transactional",  # a record outside transactions
    "committed",  # a record of a committed transaction
    "aborted",  # a record of an aborted transaction
    "open",  # a record of a transaction without a marker below the high watermark
    "marker",  # a COMMIT or ABORT marker
    "control",  # another control record
    "compacted",  # removed by the log cleaner
    "deleted",  # before the log start offset: by retention or DeleteRecords
    "truncated",  # written by an old leader, and truncated by a newer one
    "beyond_high_watermark",  # not replicated yet
    "beyond_log_end",  # not written
    "unexplained",  # missing, for an unknown reason
)
"""What an offset holds."""

COMMITTED_RECORDS = frozenset({"non_transactional", "committed"})
"""Statuses of offsets that read_committed consumers receive once the LSO has passed them."""

RECORDS = COMMITTED_RECORDS | {"aborted", "open"}
"""Statuses of offsets that read_uncommitted consumers receive."""

BEYOND_LSO = "beyond_lso"
"""A record beyond the LSO that is part of no open transaction."""

NON_TRANSACTIONAL, COMMITTED, ABORTED, OPEN, MARKER, CONTROL_RECORD, COMPACTED = range(7)
UNKNOWN = -1
NO_END = np.iinfo(np.int64).max


class AbortedRange(NamedTuple):
    """An aborted transaction in the broker's index; `last_offset` is its marker's, null if unknown."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None


class StatusRange(NamedTuple):
    """Consecutive offsets of one status, null if unknown."""

    first: int
    last: int
    status: str | None


@dataclass(kw_only=True, eq=False)
class LogSlice:
    """Consecutive batches of one partition, and what else was read about them."""

    batches: Headers = field(default_factory=lambda: concatenate(()))  # headers, in the order of the log
    # offsets of the remaining records of each partly compacted batch, by base offset
    record_offsets: dict[int, Sequence[int]] = field(default_factory=dict)
    aborted: set[AbortedRange] = field(default_factory=set)  # aborted transactions that overlap the batches
    is_index_complete: bool = True  # whether `aborted` has all of them with data below the LSO
    # of files: offsets of the markers in the transaction indexes, of which one may be missing; null if a broker sent
    # what is aborted
    indexed: Collection[int] | None = None
    errors: list[str] = field(default_factory=list)  # read errors

    @classmethod
    def joined(cls, slices: Sequence[LogSlice]) -> LogSlice:
        """Consecutive slices as one."""
        joined = cls(batches=concatenate(each.batches for each in slices))
        for each in slices:
            joined.indexed = each.indexed
            joined.record_offsets |= each.record_offsets
            joined.aborted |= each.aborted
            joined.is_index_complete &= each.is_index_complete
            joined.errors += [error for error in each.errors if error not in joined.errors]
        return joined


def batch_statuses(log: LogSlice, *, last_stable_offset: int, opened: Mapping[int, int], reaches_end: bool) -> Array:
    """Index in `STATUSES` of each batch; -1 where the marker that decides was not read.

    `log`: the batches and the aborted transactions.
    `opened`: known start offsets of open transactions, by producer id.
    `reaches_end`: whether the batches reach the high watermark, so that a transaction without a marker in them is open.
    """
    batches = log.batches
    statuses = np.full(len(batches), NON_TRANSACTIONAL, np.int8)
    attributes, ends = batches["attributes"], markers(batches)
    statuses[(attributes & CONTROL) != 0] = CONTROL_RECORD
    statuses[ends] = MARKER
    data = (attributes & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL
    aborted: dict[int, list[AbortedRange]] = {}
    for each in log.aborted:
        aborted.setdefault(each.producer_id, []).append(each)
    for producer_id in np.unique(batches["producer_id"][data]).tolist():
        own = np.flatnonzero((batches["producer_id"] == producer_id) & (data | ends))
        is_marker = ends[own]
        statuses[own[~is_marker]] = _of_producer(
            batches["base_offset"][own[~is_marker]],
            batches[own[is_marker]],
            aborted.get(producer_id, ()),
            lso=last_stable_offset,
            is_index_complete=log.is_index_complete,
            indexed=log.indexed,
            opened_at=opened.get(producer_id),
            reaches_end=reaches_end,
        )
    statuses[batches["record_count"] == 0] = COMPACTED  # the cleaner leaves the header of a producer's last batch
    return statuses


def _of_producer(
    base: Array,
    ends: Headers,
    aborted: Collection[AbortedRange],
    *,
    lso: int,
    is_index_complete: bool,
    indexed: Collection[int] | None,
    opened_at: int | None,
    reaches_end: bool,
) -> Array:
    """Status of one producer's transactional batches, from their base offsets and the headers of its markers."""
    offsets, types = ends["base_offset"], ends["marker"]
    following = np.searchsorted(offsets, base)
    is_last = following == len(offsets)
    marker = np.append(types, UNREAD_MARKER)[following]
    by_marker = np.select([is_last, marker == COMMIT, marker == ABORT], [UNKNOWN, COMMITTED, ABORTED], UNKNOWN)
    is_open = reaches_end | (base >= (NO_END if opened_at is None else opened_at))
    by_marker[is_last & is_open] = OPEN
    below = base < lso
    has_index: Array = np.full(len(base), is_index_complete)
    if indexed is not None:  # that of the segment with the ABORT marker may not have been copied
        has_index &= (marker != ABORT) | np.isin(np.append(offsets, NO_END)[following], list(indexed))
    statuses = np.where(below & (has_index | (by_marker == OPEN)), COMMITTED, by_marker)
    for first, last in _intervals(aborted, offsets[types == ABORT]):
        if not is_index_complete:  # earlier data ended with a marker that compaction removed
            statuses[below & (np.append(offsets, NO_END)[following] == last)] = COMMITTED
        statuses[(base >= first) & (base <= last)] = ABORTED
    return statuses


def _intervals(aborted: Collection[AbortedRange], aborts: Array) -> Iterator[tuple[int, int]]:
    """First offset and marker offset of each aborted transaction; `NO_END` if the marker was not read."""
    for each in sorted(aborted, key=lambda one: one.first_offset):
        if each.last_offset is not None:
            yield each.first_offset, each.last_offset
        else:
            following = aborts[aborts >= each.first_offset]
            yield each.first_offset, int(following[0]) if len(following) else int(NO_END)


def status_ranges(
    log: LogSlice,
    *,
    start: int,
    stop: int,
    last_stable_offset: int,
    opened: Mapping[int, int],
    reaches_end: bool,
    is_compacted: bool | None,
) -> list[StatusRange]:
    """The status of every offset of ``start <= offset < stop``.

    `log`: the batches with those offsets, and later batches that decide them.
    `start`, `stop`: offsets between log start offset and high watermark.
    `last_stable_offset`, `opened`, `reaches_end`: as for `batch_statuses`.
    `is_compacted`: whether the log cleaner may have cleaned the log: a gap between batches is then `compacted`,
        otherwise `unexplained`. Null if unknown.
    """
    batches = log.batches
    statuses = batch_statuses(log, last_stable_offset=last_stable_offset, opened=opened, reaches_end=reaches_end)
    inside = (batches["last_offset"] >= start) & (batches["base_offset"] < stop)
    gap_status = None if log.errors or is_compacted is None else "compacted" if is_compacted else "unexplained"
    found: list[StatusRange] = []
    at = start
    selected: Headers = batches[inside]
    for header, status in zip(selected, statuses[inside].tolist(), strict=True):
        base, last = max(int(header["base_offset"]), at), min(int(header["last_offset"]), stop - 1)
        if at < base:
            found.append(StatusRange(at, base - 1, gap_status))
        is_known = status != UNKNOWN and header["crc_ok"] != 0  # a consumer stops at a wrong checksum
        name = STATUSES[status] if is_known else None
        found += _of_batch(base, last, name, log.record_offsets.get(int(header["base_offset"])))
        at = last + 1
    if at < stop:
        found.append(StatusRange(at, stop - 1, gap_status))
    return _joined(found)


def _of_batch(base: int, last: int, status: str | None, records: Sequence[int] | None) -> Iterator[StatusRange]:
    """The offsets of a batch: those of its records, and those that compaction removed."""
    at = base
    for offset in () if records is None else records:
        if base <= offset <= last:
            if at < offset:
                yield StatusRange(at, offset - 1, "compacted")
            yield StatusRange(offset, offset, status)
            at = offset + 1
    if at <= last:
        yield StatusRange(at, last, status if records is None else "compacted")


def _joined(ranges: Sequence[StatusRange]) -> list[StatusRange]:
    joined: list[StatusRange] = []
    for each in ranges:
        if joined and joined[-1].status == each.status and joined[-1].last + 1 == each.first:
            joined[-1] = joined[-1]._replace(last=each.last)
        else:
            joined.append(each)
    return joined


def transactions_at(batches: Headers, offset: int) -> dict[int, LogTransaction]:
    """The transactions that were open at an offset, by producer id, including one whose marker is at the offset.

    `batches`: headers around the offset, in the order of the log.
    """
    found = finish(partial_transactions(batches))
    first, marker = found["first_offset"], found["marker_offset"]
    has_begun = ((first >= 0) & (first <= offset)) | (marker == offset)
    at_offset = found[has_begun & ((marker < 0) | (marker >= offset))]
    rows = LogTransaction.of_table(log_transaction_table(LogArray(at_offset, UNKNOWN_LOG)))
    return {each.producer_id: each for each in rows if each.producer_id is not None}


MISSING = {
    "non_transactional": "Records outside transactions; consumers receive them.",
    "committed": "Records of committed transactions; consumers receive them.",
    "aborted": "Records of aborted transactions: read_committed consumers never receive them.",
    "open": "Records of open transactions: read_committed consumers wait for their markers.",
    "beyond_lso": "Records beyond the LSO {last_stable_offset}: read_committed consumers receive them once the "
    "transaction that holds it ends.",
    "marker": "Transaction markers: consumers skip them.",
    "control": "Control records: consumers skip them.",
    "compacted": "Removed by the log cleaner: a newer record has the key, or the transaction was aborted.",
    "deleted": "Before the log start offset {log_start_offset}: deleted by retention or DeleteRecords.",
    "truncated": "Beyond the log end offset {log_end_offset}: written by an old leader and truncated by a newer one.",
    "beyond_high_watermark": "Beyond the high watermark {high_watermark}: not replicated to all in-sync replicas yet.",
    "beyond_log_end": "Beyond the log end offset {log_end_offset}: not written, or truncated by a new leader.",
    "unexplained": "Missing from the log of a topic that is not compacted; the cause is unknown.",
}
UNKNOWN_REASON = "Unknown: the data that decides it could not be read."


def missing_reason(status: str | None, partition: Partition) -> str:
    """Why offsets of a status are missing.

    `status`: one of `offset_status.STATUSES`, or `offset_status.BEYOND_LSO`; null if unknown.
    """
    return UNKNOWN_REASON if status is None else MISSING[status].format_map(partition.row())


def visibility_reason(row: OffsetVisibility) -> str:
    """What an offset holds, and which consumers receive it; its `reason` is not used."""
    match row.status:
        case None:
            return UNKNOWN_REASON
        case "non_transactional":
            return f"A record outside transactions. {_visibility(row)}"
        case "committed":
            return f"A record of the committed transaction of {_owner(row)}{_ended(row)}. {_visibility(row)}"
        case "aborted":
            aborted = f"A record of the aborted transaction of {_owner(row)}{_ended(row)}."
            return f"{aborted} read_committed consumers never receive it, read_uncommitted ones do."
        case "open":
            return f"A record of an open transaction of {_owner(row)}{_begun(row)}. {_waits(row)}"
        case "marker":
            kind = "ABORT" if row.outcome == "abort" else "COMMIT" if row.outcome == "commit" else "transaction"
            return f"The {kind} marker of {_owner(row)}{_begun(row)}. No consumer receives it: its offset is skipped."
    return MISSING[row.status].format_map(row.row())


def _visibility(row: OffsetVisibility) -> str:
    """Since when the LSO is past the offset, or what the record waits for."""
    if row.read_committed is None:
        return "Whether read_committed consumers receive it is unknown, as the LSO is."
    if not row.read_committed:
        return _waits(row)
    receive = f"have been able to receive it since {_time(row.visible_at)}" if row.visible_at else "receive it"
    return f"read_committed consumers {receive}: the LSO is {row.last_stable_offset}."


def _waits(row: OffsetVisibility) -> str:
    lso, holder = row.last_stable_offset, row.holder_producer_id
    if holder is None and row.error is not None:
        held = "and what holds it is not known"
    elif holder is None:
        held = "and no transaction is open, so it waits for replication"
    else:
        held = f"held by the transaction of producer {holder} that began at {row.holder_first_offset}"
    return f"read_committed consumers do not receive it yet: the LSO is {lso}, {held}."


def _owner(row: OffsetVisibility) -> str:
    producer = f"producer {row.producer_id}, epoch {row.producer_epoch}"
    if row.transactional_id is None:
        return f"{producer} (transactional id unknown)"
    return f"{row.transactional_id!r} ({producer})"


def _ended(row: OffsetVisibility) -> str:
    if row.marker_offset is None:
        return ", whose marker was not found"
    return f", ended by the marker at {row.marker_offset}, {_time(row.marker_time)}"


def _begun(row: OffsetVisibility) -> str:
    if row.first_offset is None:
        return ", whose start is deleted or was not read"
    log_start = row.log_start_offset or 0
    deleted = f", before the log start offset {log_start}" if row.first_offset < log_start else ""
    return f", which began at {row.first_offset}{deleted}"


def _time(time: dt.datetime | None) -> str:
    return "time unknown" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"


NEVER = np.iinfo(np.int64).max


def clip(chunks: Iterable[LogChunk], *, start: int | None = None, stop: int | None = None) -> Iterator[LogChunk]:
    """The batches with an offset in ``start <= offset < stop``; null means unbounded.

    Damage is kept unless neighbouring batches prove it outside the range. Nothing if `start` is after `stop`.
    """
    if start is not None and stop is not None and start > stop:
        return
    has_begun = start is None
    for chunk in chunks:
        headers, damage = chunk.headers, chunk.damage
        base_offsets = _with_base_offsets(chunk, None).headers["base_offset"]
        in_range = np.ones(len(headers), np.bool_)
        if start is not None:
            in_range &= np.logical_or.accumulate(headers["last_offset"] >= start) | has_begun
            has_begun |= bool(in_range.any())
            before = headers["position"][base_offsets <= start]
            damage = tuple(item for item in damage if not (before > item.position).any())
        if stop is not None:
            in_range &= base_offsets < stop
            behind = headers["position"][headers["last_offset"] + 1 >= stop]
            damage = tuple(item for item in damage if not (behind < item.position).any())
        unchanged = bool(in_range.all()) and len(damage) == len(chunk.damage)
        yield (chunk if unchanged else replace(chunk, headers=headers[in_range], damage=damage))


def at_missing_offsets(
    chunks: Iterable[LogChunk],
    *,
    is_within_file: bool = False,
    expected: int | None = None,
    end: int | None = None,
    cleaned: int = -1,
) -> Iterator[LogChunk]:
    """The chunks of a log, divided where offsets are missing.

    `chunks`: consecutive chunks of one log, in order.
    `is_within_file`: whether the first one does not begin its segment.
    `expected`: end of an earlier read that the chunks continue; null for none.
    `end`: base offset of the newest segment, which may be empty, if the chunks end there.
    `cleaned`: offset up to which the log was cleaned, as in `missing_between`.
    """
    start, files = expected, set[str | None]()
    damaged: DamagedRange | None = None  # the last range of bytes after the last batch
    for chunk in chunks:
        base_offset = segment_base_offset(chunk.file)
        if not files and start is not None:
            is_within_file = base_offset is None or base_offset < start
        if chunk.file not in files and base_offset is not None and (files or not is_within_file):
            if expected is not None:
                missing = missing_between(expected, base_offset, cleaned=cleaned, damaged=damaged)
                if missing is not None:
                    yield LogChunk(file=chunk.file, missing=missing)
            expected, damaged = base_offset, None
        files.add(chunk.file)
        if len(chunk.headers):
            if expected == start and is_within_file and chunk.headers["base_offset"][0] < (start or 0):
                expected = None  # the first batch begins before the end of the earlier read
            chunk = _with_base_offsets(chunk, expected)
            expected = _expected(chunk.headers, expected, base_offset)
            chunk = _in_order(chunk, expected)
        headers, damage = chunk.headers, chunk.damage
        if expected is None or not len(headers):
            damaged = damage[-1] if damage else damaged
            yield chunk
            continue
        yield from _divided(chunk, missing_in(headers, damage, expected=expected, damaged=damaged))
        expected = max(int(headers["last_offset"].max()) + 1, expected)
        after = [each for each in damage if each.position > headers["position"][-1]]
        damaged = after[-1] if after else None
    if expected is not None and end is not None and end > expected:
        missing = missing_between(expected, end, cleaned=cleaned, damaged=damaged)
        if missing is not None:
            yield LogChunk(missing=missing)


def _with_base_offsets(chunk: LogChunk, expected: int | None) -> LogChunk:
    """A chunk whose compressed messages of magic 0 and 1, which have only their last offset, begin after the last."""
    unknown = np.flatnonzero(chunk.headers["base_offset"] < 0)
    if not len(unknown):
        return chunk
    headers = chunk.headers.copy()
    last = headers["last_offset"]
    due = np.append(last[0] if expected is None else expected, last[:-1] + 1)
    headers["base_offset"][unknown] = np.minimum(due, last)[unknown]
    return replace(chunk, headers=headers)


def _expected(headers: Headers, expected: int | None, base_offset: int | None) -> int:
    """The offset that the first batch should have."""
    first, last = int(headers["base_offset"][0]), int(headers["last_offset"][0])
    if expected is None or (first < expected <= last and expected == base_offset):
        return first  # a follower begins its log where the leader's began, which may be within a batch
    return expected


def _in_order(chunk: LogChunk, expected: int) -> LogChunk:
    """A chunk in which batches with a damaged offset are damage."""
    return _as_damage(chunk, out_of_order(chunk.headers, expected=expected), "its base offset {:,} is out of order")


def intact(chunk: LogChunk) -> LogChunk:
    """A chunk in which batches with a wrong checksum are damage: whose they are, and whether markers, is not known."""
    return _as_damage(chunk, chunk.headers["crc_ok"] == 0, "the checksum at offset {} is wrong")


def _as_damage(chunk: LogChunk, wrong: Array, reason: str) -> LogChunk:
    if not wrong.any():
        return chunk
    columns = (chunk.headers[name][wrong].tolist() for name in ("position", "size", "base_offset"))
    found = [
        DamagedRange(position, size, f"CORRUPT_BATCH: {reason.format(offset)}.")
        for position, size, offset in zip(*columns, strict=True)
    ]
    damage = tuple(sorted([*chunk.damage, *found]))
    return replace(chunk, headers=chunk.headers[~wrong], damage=damage)


def _divided(chunk: LogChunk, missing: Sequence[tuple[int, LostOffsets]]) -> Iterator[LogChunk]:
    if not missing:
        yield chunk
        return
    headers, damage = chunk.headers, chunk.damage
    by_row = dict(missing)
    bounds = [*sorted({0, *by_row}), len(headers)]
    for row, stop in pairwise(bounds):
        # Damage before a batch after which offsets are missing belongs to the chunk before it.
        low = headers["position"][row] if row else -1
        high = headers["position"][stop] if stop < len(headers) else NEVER
        inside = tuple(each for each in damage if low <= each.position < high)
        yield replace(chunk, headers=headers[row:stop], damage=inside, missing=by_row.get(row))


def missing_between(expected: int, found: int, *, cleaned: int, damaged: DamagedRange | None) -> LostOffsets | None:
    """The missing offsets before a segment; null if there are none, or the cleaner may have removed them.

    `expected`, `found`: the offset after the batches of earlier segments, and the segment's base offset.
    `cleaned`: offset up to which the log was cleaned, by the cleaner's checkpoint; -1 for never or unknown.
    `damaged`: the last unreadable bytes after those batches; null if there are none.
    """
    if found == expected or (expected < found <= cleaned and damaged is None):
        return None
    return LostOffsets(expected, found, _error(expected, found) if damaged is None else None, damaged)


def out_of_order(headers: Headers, *, expected: int) -> Array:
    """Which batches of a file have an offset that is damaged, as no checksum covers it: those that go back, or far on.

    `headers`: consecutive batches of the file, at least one. `expected`: the offset after the batches before them.
    """
    begins, ends = headers["base_offset"].copy(), headers["last_offset"] + 1
    due = np.maximum.accumulate(np.append(expected, ends[:-1]))
    if (begins >= due).all():
        return np.zeros(len(headers), np.bool_)
    is_ahead = np.append((begins[:-1] > begins[1:]) & (begins[1:] >= due[:-1]), False)
    due = np.maximum.accumulate(np.append(expected, np.where(is_ahead, -1, ends)[:-1]))
    return is_ahead | (begins < due)


def missing_in(
    headers: Headers, damage: tuple[DamagedRange, ...], *, expected: int, damaged: DamagedRange | None
) -> list[tuple[int, LostOffsets]]:
    """The batches of a file before which offsets are missing, by row.

    `headers`: consecutive batches of the file, at least one, without those `out_of_order`.
    `damage`: unreadable bytes between and around them.
    `expected`: the offset after the batches before them.
    `damaged`: the last unreadable bytes before them in the file, after those batches; null if there are none.
    """
    begins, ends = headers["base_offset"].copy(), headers["last_offset"] + 1
    due = np.append(expected, ends[:-1])
    jumps = np.flatnonzero(begins != due)
    if not jumps.size:
        return []
    damaged_before: Array = np.searchsorted([each.position for each in damage], headers["position"])
    after_damage = np.diff(damaged_before, prepend=0) > 0
    after_damage[0] |= damaged is not None
    last = [damaged, *damage]  # by the number of damaged ranges before a batch
    lost = jumps[after_damage[jumps]].tolist()
    return [(row, LostOffsets(int(due[row]), int(begins[row]), None, last[int(damaged_before[row])])) for row in lost]


def _error(expected: int, found: int) -> str:
    if found < expected:
        return f"CORRUPT_BATCH: Offset {found:,} follows offset {expected - 1:,}."
    return (
        f"OFFSETS_LOST: No segment has offsets {expected:,} to {found - 1:,}: one is missing or incomplete, or this is "
        "a new replica of a compacted log."
    )
