"""Producer state of a partition, from its batches as the broker does, in mergeable ranges.

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
from dataclasses import replace

import numpy as np

from toolkit.analysis.log.log_transactions import last_sequences, markers
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import COMMIT, HEADER, Array, Headers, concatenate, take_rows
from toolkit.formats.log_dir_files import SnapshotEntry
from toolkit.schema import utc
from toolkit.schema.live import Producer
from toolkit.schema.table import LogId


def producer_state(*ranges: Headers) -> Headers:
    """The few batches of consecutive ranges of a log that decide the state of its producers, by producer id.

    Of each producer these are its last one, its last data, its last marker, the first data of its open transaction, and
    those around its last change of epoch. Of data, only the first of the open transaction is transactional, and only
    the last has a sequence number, if no change of epoch came after it.
    It is associative: a range may be the state after earlier ones.

    `ranges`: structured arrays of `toolkit.formats.headers.HEADER` in the order of the log.
    """
    headers = concatenate(ranges)
    ends, data = markers(headers), (headers["attributes"] & CONTROL) == 0
    cleaned = ~data & (headers["record_count"] == 0)
    producers = headers["producer_id"].copy()  # contiguous, for a faster sort
    rows = np.flatnonzero((ends | data | cleaned) & (producers >= 0))
    if rows.size == 0:
        return concatenate(())
    rows = rows[np.argsort(producers[rows], kind="stable")]
    producers, data, ends, epochs = producers[rows], data[rows], ends[rows], headers["producer_epoch"][rows]
    index, is_same = np.arange(len(rows)), producers[1:] == producers[:-1]
    first = np.flatnonzero(np.append(True, ~is_same))
    counts = np.diff(np.append(first, len(rows)))

    def last_of(which: Array) -> Array:
        """For each row, the index of its producer's last one of these; -1 for none."""
        return np.repeat(np.maximum.reduceat(np.where(which, index, -1), first), counts)

    is_new_epoch = np.append(False, (epochs[1:] != epochs[:-1]) & is_same)
    new_epoch = last_of(is_new_epoch)
    is_last_data = index == last_of(data)
    has_sequence = is_last_data & (index >= new_epoch)
    opens = data & ((headers["attributes"][rows] & TRANSACTIONAL) != 0) & (index > last_of(ends))
    opening = np.repeat(np.minimum.reduceat(np.where(opens, index, len(rows)), first), counts)
    decides = is_last_data | (index == opening) | (index == last_of(ends)) | np.append(~is_same, True)
    decides |= (index == new_epoch) | (index == new_epoch - 1)
    state = take_rows(headers, rows[decides])
    state["base_sequence"] = np.where(has_sequence[decides], state["base_sequence"], -1)
    is_data_of_others = (data & (index != opening))[decides]
    state["attributes"] = np.where(is_data_of_others, state["attributes"] & ~TRANSACTIONAL, state["attributes"])
    return state


def open_batches(state: Headers) -> Headers:
    """The first batches of open transactions."""
    return state[_opens(state)]


def _opens(state: Headers) -> Array:
    return (state["attributes"] & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL


def resume(entries: Iterable[SnapshotEntry]) -> Headers:
    """The state after everything before a ``.snapshot``, as batches that decide it; the first of later ranges."""
    entries = list(entries)

    def column(name: str) -> Array:
        return np.array([-1 if (value := getattr(each, name)) is None else value for each in entries], np.int64)

    rows: Array = np.zeros((3, len(entries)), HEADER)
    for name, source in (("producer_id",) * 2, ("producer_epoch",) * 2, ("max_timestamp", "last_timestamp")):
        rows[name] = column(source)
    marker, opening, last = rows
    marker["attributes"], marker["marker"], marker["record_count"] = CONTROL, COMMIT, 1
    marker["coordinator_epoch"] = column("coordinator_epoch")
    opening["attributes"], opening["base_offset"] = TRANSACTIONAL, column("current_txn_start_offset")
    last["base_sequence"] = column("last_sequence")
    return producer_state(marker, opening[opening["base_offset"] >= 0], last)


def producer_records(state: Headers, where: LogId, *, observed_at: dt.datetime) -> list[Producer]:
    """The producers of a whole log, by producer id."""
    if not len(state):
        return []
    producers = state["producer_id"]
    first = np.flatnonzero(np.append(True, producers[1:] != producers[:-1]))
    last = np.append(first[1:], len(producers)) - 1
    of_some_batch = {
        "last_sequence": last_sequences(state),
        "coordinator_epoch": np.where(markers(state), state["coordinator_epoch"], -1),
        "current_txn_start_offset": np.where(_opens(state), state["base_offset"], -1),
    }
    columns = {name: np.maximum.reduceat(values, first) for name, values in of_some_batch.items()}
    columns |= {"producer_id": producers[last], "producer_epoch": state["producer_epoch"][last]}
    numbers = [[each if each >= 0 else None for each in values.tolist()] for values in columns.values()]
    (topic, partition), broker_id = where.tp, where.broker_id
    one = Producer(topic=topic, partition=partition, broker_id=broker_id, observed_at=observed_at)
    return [
        replace(one, last_timestamp=utc(time), **dict(zip(columns, values, strict=True)))
        for time, *values in zip(state["max_timestamp"][last].tolist(), *numbers, strict=True)
    ]
