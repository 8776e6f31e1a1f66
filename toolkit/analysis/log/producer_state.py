"""Producer state of a partition, replayed from its batches as the broker does, in mergeable ranges.

The rules are those of ``ProducerStateEntry`` and ``ProducerAppendInfo``, the same from Kafka 3.5 to 4.3. A batch or
marker of another epoch resets the sequence numbers, a marker sets the time as data does, and idempotent producers
without transactions are included. A broker drops a producer after ``producer.id.expiration.ms`` without a batch or
marker: the caller decides by ``last_timestamp`` which producers the broker still has.

If compaction removes a producer's last batch, the cleaner leaves an empty one. For a removed marker the empty batch has
the epoch and time, but not the coordinator epoch.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from toolkit.analysis.log.log_transactions import last_sequences, markers
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import Array, Headers, take_rows
from toolkit.formats.log_dir_files import SnapshotEntry
from toolkit.schema import utc
from toolkit.schema.live import Producer

PRODUCER = np.dtype(
    [
        ("producer_id", "i8"),
        ("last_timestamp", "i8"),  # ms
        ("last_offset", "i8"),  # of the last data batch, if its epoch is the newest
        ("current_txn_start_offset", "i8"),
        ("last_sequence", "i4"),
        ("offset_delta", "i4"),  # last_offset less the first offset of that batch
        ("coordinator_epoch", "i4"),
        ("producer_epoch", "i2"),
        ("first_epoch", "i2"),  # of the first batch; this and the rest are for merges only
        ("epoch_changed", "?"),
        ("has_data", "?"),
        ("has_marker", "?"),
    ]
)
"""One row per producer, as `schema.PRODUCERS`, sorted by producer id; -1 is unknown or none."""

NO_PRODUCERS: Array = np.zeros(0, PRODUCER)
NO_DATA = {"last_sequence": -1, "last_offset": -1, "offset_delta": 0}


def replay(headers: Headers) -> Array:
    """The producer state after batches of one partition, as an array of `PRODUCER`, for `join`.

    `headers`: structured array of `toolkit.formats.headers.HEADER` in the order of the log.
    """
    ends, data = markers(headers), (headers["attributes"] & CONTROL) == 0
    cleaned = ~data & (headers["record_count"] == 0)
    producers = headers["producer_id"].copy()  # contiguous, for a faster sort
    rows = np.flatnonzero((ends | data | cleaned) & (producers >= 0))
    if rows.size == 0:
        return NO_PRODUCERS
    rows = rows[np.argsort(producers[rows], kind="stable")]
    data, ends, epochs = data[rows], ends[rows], headers["producer_epoch"][rows]
    opens = data & ((headers["attributes"][rows] & TRANSACTIONAL) != 0)
    found = _DecidingRows.of(producers[rows], data=data, ends=ends, opens=opens, new_epoch=epochs[1:] != epochs[:-1])

    states = np.full(len(found.first), -1, PRODUCER)
    newest = take_rows(headers, rows[found.last])
    states["producer_id"], states["producer_epoch"] = newest["producer_id"], newest["producer_epoch"]
    states["last_timestamp"] = newest["max_timestamp"]
    states["first_epoch"] = epochs[found.first]
    states["epoch_changed"] = found.last_change > found.first
    states["has_data"], states["has_marker"] = found.data_counts, found.last_marker >= 0

    states["offset_delta"] = 0
    last_data = take_rows(headers, rows[found.last_data[found.data_counts]])
    states["last_sequence"][found.data_counts] = last_sequences(last_data)
    states["last_offset"][found.data_counts] = last_data["last_offset"]
    states["offset_delta"][found.data_counts] = last_data["last_offset"] - last_data["base_offset"]
    ended, opened = found.last_marker >= 0, found.opening >= 0
    states["coordinator_epoch"][ended] = headers["coordinator_epoch"][rows[found.last_marker[ended]]]
    states["current_txn_start_offset"][opened] = headers["base_offset"][rows[found.opening[opened]]]
    return states


def join(*replays: Array) -> Array:
    """Join the states after consecutive ranges in log order; many at once cost one sort.

    It is associative, and `NO_PRODUCERS` changes nothing.
    """
    parts = [each for each in replays if each.size]
    if len(parts) < 2:
        return parts[0] if parts else NO_PRODUCERS
    states: Array = np.concatenate(parts)
    states = take_rows(states, np.argsort(states["producer_id"], kind="stable"))
    found = _DecidingRows.of(
        states["producer_id"],
        data=states["has_data"],
        ends=states["has_marker"],
        opens=states["current_txn_start_offset"] >= 0,
        new_epoch=states["first_epoch"][1:] != states["producer_epoch"][:-1],
        changed=states["epoch_changed"],
    )
    joined = take_rows(states, found.last)
    joined["first_epoch"] = states["first_epoch"][found.first]
    joined["epoch_changed"] = (found.last_change > found.first) | states["epoch_changed"][found.first]
    joined["has_data"], joined["has_marker"] = found.data_counts, found.last_marker >= 0
    for name, none in NO_DATA.items():
        joined[name] = np.where(found.data_counts, states[name][found.last_data], none)
    joined["coordinator_epoch"] = np.where(found.last_marker >= 0, states["coordinator_epoch"][found.last_marker], -1)
    start = states["current_txn_start_offset"][found.opening]
    joined["current_txn_start_offset"] = np.where(found.opening >= 0, start, -1)
    return joined


def resume(entries: Iterable[SnapshotEntry]) -> Array:
    """The state after everything before a ``.snapshot``; join it to the left of later ranges."""
    entries = sorted(entries, key=lambda entry: entry.producer_id)
    states = np.full(len(entries), -1, PRODUCER)
    columns = ("producer_id", "producer_epoch", "last_timestamp", "coordinator_epoch", *NO_DATA)
    for name, source in (*zip(columns, columns, strict=True), ("current_txn_start_offset", "current_txn_first_offset")):
        values = (getattr(entry, source) for entry in entries)
        states[name] = [-1 if value is None else value for value in values]
    states["first_epoch"] = states["producer_epoch"]
    states["epoch_changed"] = False
    states["has_data"] = states["last_offset"] >= 0
    states["has_marker"] = True  # earlier state ends with it
    return states


def producer_records(
    producers: Array, *, topic: str, partition: int, broker_id: int | None = None, observed_at: dt.datetime
) -> list[Producer]:
    """The producers of a whole log, in their order."""
    names = ("producer_id", "producer_epoch", "last_sequence", "coordinator_epoch", "current_txn_start_offset")
    numbers = [[each if each >= 0 else None for each in producers[name].tolist()] for name in names]
    where = Producer(topic=topic, partition=partition, broker_id=broker_id, observed_at=observed_at)
    return [
        replace(where, last_timestamp=utc(time), **dict(zip(names, values, strict=True)))
        for time, *values in zip(producers["last_timestamp"].tolist(), *numbers, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _DecidingRows:
    """The rows that decide each producer's state: indices into rows sorted by producer; -1 for none."""

    first: Array
    last: Array
    last_data: Array
    last_marker: Array
    last_change: Array  # of epoch: against the row before, or within the row
    opening: Array  # first data of the open transaction
    data_counts: Array  # whether no change of epoch followed the last data

    @staticmethod
    def of(
        producers: Array, *, data: Array, ends: Array, opens: Array, new_epoch: Array, changed: Array | bool = False
    ) -> _DecidingRows:
        index = np.arange(len(producers))
        other = producers[1:] != producers[:-1]
        first = np.flatnonzero(np.concatenate(([True], other)))

        def last_of(which: Array) -> Array:
            return np.maximum.reduceat(np.where(which, index, -1), first)

        entered = np.concatenate(([False], new_epoch & ~other))
        last_data, last_marker, last_change = last_of(data), last_of(ends), last_of(entered | changed)
        since = np.repeat(np.maximum(last_marker, first), np.diff(np.append(first, len(producers))))
        opening = np.minimum.reduceat(np.where(opens & (index >= since), index, len(producers)), first)
        return _DecidingRows(
            first=first,
            last=np.append(first[1:], len(producers)) - 1,
            last_data=last_data,
            last_marker=last_marker,
            last_change=last_change,
            opening=np.where(opening < len(producers), opening, -1),
            data_counts=(last_data >= 0) & (last_change <= last_data),
        )
