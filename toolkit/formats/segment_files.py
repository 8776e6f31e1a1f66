"""Index files of a segment: aborted transactions (``.txnindex``), offsets (``.index``) and times (``.timeindex``).

Sources: ``AbortedTxn``, ``TransactionIndex``, ``OffsetIndex``, ``TimeIndex`` and ``LogSegment`` in Kafka, 2.8 to 4.3.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toolkit.errors import DecodeError
from toolkit.formats.log.headers import DamagedRange

Buffer = bytes | bytearray | memoryview

ABORTED_TXN = struct.Struct(">hqqqq")
OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])  # the offset relative to the segment's base offset
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])

OFFSETS = np.dtype([("offset", "i8"), ("position", "i8")])
"""An entry of an offset index: the byte of the segment at which a batch begins; all before it have lower offsets."""

TIMES = np.dtype([("timestamp", "i8"), ("offset", "i8")])
"""An entry of a time index: newest record time (ms) of the segment up to this offset."""


class AbortedTxn(NamedTuple):
    """An aborted transaction of a segment, as Fetch returns it to read_committed consumers.

    Parameters
    ----------
    position
        Byte of the file where the entry starts.
    version
        Version of the entry: 0.
    producer_id
        Producer of the transaction.
    first_offset, last_offset
        Of its first record, which may be in an earlier segment, and of its marker.
    last_stable_offset
        LSO right after that marker.
    """

    position: int
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_txn_index(buf: Buffer) -> tuple[list[AbortedTxn], list[DamagedRange]]:
    """The aborted transactions of a segment in the order of their markers, and damaged bytes.

    The entries have no checksum. An entry that is contradictory, out of order or of an unknown version is damage
    (``CORRUPT_ENTRY``); the next one is still read. A crash can leave an incomplete last entry, and zeros at the end
    (``TORN_TAIL``).
    """
    view = memoryview(buf).cast("B")
    end = _end_of_entries(view)
    found = [AbortedTxn(at, *ABORTED_TXN.unpack_from(view, at)) for at in range(0, end, ABORTED_TXN.size)]
    wrong = {txn.position: why for txn in found if (why := _contradiction(txn))}
    plausible = [txn for txn in found if txn.position not in wrong]
    fitting = {plausible[i].position for i in _longest_rise([txn.last_offset for txn in plausible])}
    for txn in plausible:
        if txn.position not in fitting:
            wrong[txn.position] = f"its marker at offset {txn.last_offset} is out of order"
    damage = [
        DamagedRange(at, ABORTED_TXN.size, f"CORRUPT_ENTRY: The entry at byte {at} is no aborted transaction: {why}.")
        for at, why in sorted(wrong.items())
    ]
    if left := len(view) - end:
        what = "zeros" if left >= ABORTED_TXN.size else "an incomplete entry"
        damage.append(DamagedRange(end, left, f"TORN_TAIL: The last {left} bytes are {what}, as a crash leaves them."))
    return [txn for txn in plausible if txn.position in fitting], damage


def read_offset_index(buf: Buffer, *, base_offset: int) -> npt.NDArray[Any]:
    """The entries of an offset index that rise in offset and in position, as an array of `OFFSETS`.

    To find an offset, read from the position of the last entry at or below it; from byte 0 below the first entry.
    There is no checksum, and brokers rebuild damaged indexes: entries that do not rise are left out silently, and the
    caller must check that a batch begins at a position.

    `buf`: the complete file; it ends in zeros while a broker has it open, and after a crash.
    """
    entries = np.frombuffer(buf, OFFSET_ENTRY, count=len(memoryview(buf).cast("B")) // OFFSET_ENTRY.itemsize)
    entries = entries[(entries["offset"] > 0) & (entries["position"] > 0)]  # the first batch has no entry
    intact = entries[_rises(entries["offset"]) & _rises(entries["position"])]
    index = np.empty(len(intact), OFFSETS)
    index["offset"] = base_offset + intact["offset"].astype("i8")
    index["position"] = intact["position"]
    return index


def read_time_index(buf: Buffer, *, base_offset: int) -> npt.NDArray[Any]:
    """The entries of a time index that rise in time and in offset, as an array of `TIMES`.

    No record with a newer time than an entry's has a lower offset, so the last entry below a time has the offset to
    search from. Entries that do not rise are left out, as in `read_offset_index`.

    `buf`: the complete file; it ends in zeros while a broker has it open, and after a crash.
    """
    entries = np.frombuffer(buf, TIME_ENTRY, count=len(memoryview(buf).cast("B")) // TIME_ENTRY.itemsize)
    entries = entries[(entries["timestamp"] > 0) & (entries["offset"] >= 0)]
    intact = entries[_rises(entries["timestamp"]) & _rises(entries["offset"])]
    index = np.empty(len(intact), TIMES)
    index["timestamp"] = intact["timestamp"]
    index["offset"] = base_offset + intact["offset"].astype("i8")
    return index


def _end_of_entries(view: memoryview) -> int:
    """End of the last complete entry that is not all zeros."""
    end = len(view) - len(view) % ABORTED_TXN.size
    while end and not any(view[end - ABORTED_TXN.size : end]):
        end -= ABORTED_TXN.size
    return end


def _contradiction(txn: AbortedTxn) -> str | None:
    if txn.version != 0:
        return f"it has version {txn.version}, and 0 is known here"
    if min(txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset) < 0:
        return "an id or offset is negative"
    if txn.first_offset > txn.last_offset:
        return f"it starts at offset {txn.first_offset} and ends at {txn.last_offset}"
    if not any(txn[2:]):
        return "it is all zeros"
    return None


def _longest_rise(numbers: Sequence[int]) -> list[int]:
    """Indices of a longest strictly rising subsequence: one wrong number removes only itself."""
    if all(a < b for a, b in pairwise(numbers)):
        return list(range(len(numbers)))
    lowest: list[int] = []  # lowest[k]: the lowest number at the end of a rising run of k + 1 numbers
    where: list[int] = []  # its index
    before: list[int] = []  # by index: the one before it in such a run
    for i, number in enumerate(numbers):
        k = bisect_left(lowest, number)
        before.append(where[k - 1] if k else -1)
        lowest[k : k + 1], where[k : k + 1] = [number], [i]
    rise = [where[-1]]
    while before[rise[-1]] >= 0:
        rise.append(before[rise[-1]])
    return rise[::-1]


def _rises(numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each number is higher than all before it; true for the first."""
    rises = np.ones(len(numbers), bool)
    rises[1:] = numbers[1:] > np.maximum.accumulate(numbers)[:-1]
    return rises


SNAPSHOT_VERSION = 1
SNAPSHOT_HEADER = struct.Struct(">hIi")  # version, CRC32C of the bytes after it, number of entries
SNAPSHOT_COVERED = 6  # start of those bytes
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
DAMAGED = "The bytes are damaged, or this is no producer snapshot; a broker would delete it and read the log instead."


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """The state of a producer on a partition; missing fields are ``None``, never -1."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None  # of its last data batch, as the next two; None if it has only markers
    last_offset: int | None
    offset_delta: int  # records of that batch less one; 0 without one
    last_timestamp: int | None  # ms; newest record time of that batch (the producer's clock), or its marker's
    coordinator_epoch: int | None  # of its last marker
    current_txn_first_offset: int | None  # first offset of its open transaction


def read_snapshot(buf: bytes | bytearray | memoryview) -> tuple[SnapshotEntry, ...]:
    """The producers in a snapshot, in the order of the file.

    A file with any error is rejected completely, as by a broker.

    Raises DecodeError if the file is empty, too short or too long, of another version, or does not match its CRC.
    """
    from google_crc32c import value as crc32c

    count, crc = _read_header(memoryview(buf))
    data = bytes(buf)
    computed: int = crc32c(data[SNAPSHOT_COVERED:])
    if crc != computed:
        raise DecodeError(
            f"The producer snapshot does not match its CRC: {crc:#010x} is written, {computed:#010x} is right.",
            position=SNAPSHOT_COVERED,
            means=DAMAGED,
        )
    entries = struct.iter_unpack(
        SNAPSHOT_ENTRY.format, data[SNAPSHOT_HEADER.size : SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.size]
    )
    return tuple(
        SnapshotEntry(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_sequence=_known(sequence),
            last_offset=_known(offset),
            offset_delta=delta,
            last_timestamp=_known(timestamp),
            coordinator_epoch=_known(coordinator_epoch),
            current_txn_first_offset=_known(first_offset),
        )
        for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset in entries
    )


def _read_header(view: memoryview) -> tuple[int, int]:
    """Number of entries and CRC; checks version and size."""
    size = len(view)
    if not size:
        raise DecodeError(
            "The producer snapshot is empty.",
            position=0,
            means="A broker that crashed right after creating it leaves it empty; it is rebuilt from the log.",
        )
    version = int.from_bytes(view[:2], "big", signed=True)
    if size >= 2 and version != SNAPSHOT_VERSION:
        raise DecodeError(
            f"The producer snapshot has version {version}; {SNAPSHOT_VERSION} is known here.", position=0, means=DAMAGED
        )
    if size < SNAPSHOT_HEADER.size:
        raise DecodeError(
            f"The producer snapshot ends early: {size} of the {SNAPSHOT_HEADER.size} bytes before its entries are "
            "there.",
            position=size,
            means=DAMAGED,
        )
    _, crc, count = SNAPSHOT_HEADER.unpack_from(view)
    right = SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.size
    if count < 0 or size != right:
        raise DecodeError(
            f"The producer snapshot has {size} bytes; {count} producers take {right}.",
            position=min(size, right) if count >= 0 else SNAPSHOT_COVERED,
            means=DAMAGED,
        )
    return count, crc


def _known(number: int) -> int | None:
    return None if number < 0 else number
