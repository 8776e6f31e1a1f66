"""Producer state files (``.snapshot``): every producer of a partition at the offset in the file's name.

Sources: ``ProducerStateManager`` and ``ProducerSnapshot.json`` in Kafka's storage, 2.8 to 4.3: one version, 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from toolkit.errors import DecodeError

VERSION = 1
HEADER = struct.Struct(">hIi")  # version, CRC32C of the bytes after it, number of entries
COVERED = 6  # start of those bytes
ENTRY = struct.Struct(">qhiqiqiq")
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

    Parameters
    ----------
    buf
        The complete file.

    Raises
    ------
    DecodeError
        If the file is empty, too short or too long, of another version, or does not match its CRC.
    """
    from google_crc32c import value as crc32c

    count, crc = _read_header(memoryview(buf))
    data = bytes(buf)
    computed: int = crc32c(data[COVERED:])
    if crc != computed:
        raise DecodeError(
            f"The producer snapshot does not match its CRC: {crc:#010x} is written, {computed:#010x} is right.",
            position=COVERED,
            means=DAMAGED,
        )
    entries = struct.iter_unpack(ENTRY.format, data[HEADER.size : HEADER.size + count * ENTRY.size])
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
    if size >= 2 and version != VERSION:
        raise DecodeError(
            f"The producer snapshot has version {version}; {VERSION} is known here.", position=0, means=DAMAGED
        )
    if size < HEADER.size:
        raise DecodeError(
            f"The producer snapshot ends early: {size} of the {HEADER.size} bytes before its entries are there.",
            position=size,
            means=DAMAGED,
        )
    _, crc, count = HEADER.unpack_from(view)
    right = HEADER.size + count * ENTRY.size
    if count < 0 or size != right:
        raise DecodeError(
            f"The producer snapshot has {size} bytes; {count} producers take {right}.",
            position=min(size, right) if count >= 0 else COVERED,
            means=DAMAGED,
        )
    return count, crc


def _known(number: int) -> int | None:
    return None if number < 0 else number
