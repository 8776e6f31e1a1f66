"""Record batch headers of a log, by hopping from one to the next; damage is passed over and told.

Sources: ``DefaultRecordBatch``, ``AbstractLegacyRecordBatch`` and ``ByteBufferLogInputStream`` in Kafka's clients.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from toolkit.formats.batches import CONTROL, HEADER_SIZE, LENGTH_END
from toolkit.formats.batches import HEADER as WIRE
from toolkit.formats.header_table import damage_rows, header_table
from toolkit.formats.headers import HEADER, NO_MARKER, Damage, Scanned

__all__ = ["damage_rows", "header_table", "scan", "scan_file"]

CHUNK_BYTES = 1 << 20


def scan(buf: bytes | bytearray | memoryview, *, position: int = 0, crc: bool = False, last: bool = True) -> Scanned:
    """The batches in bytes that are at hand: a fetch response, a small file.

    Parameters
    ----------
    buf
        Bytes of a log.
    position
        Where in them to start; positions in the result count from the start of ``buf``.
    crc
        Check every batch's checksum.
    last
        Whether the log ends where the bytes do: then an incomplete batch is a torn tail. Otherwise it is left out,
        and `Scanned.end` is where it starts, to be scanned again with more bytes.
    """
    from google_crc32c import value as crc32c

    view = memoryview(buf)
    rows, damage = [], []
    while position < len(view):
        left = len(view) - position
        size = LENGTH_END + int.from_bytes(view[position + 8 : position + 12], "big", signed=True)
        magic = view[position + 16] if left >= HEADER_SIZE else 2
        if left >= HEADER_SIZE and (size < HEADER_SIZE or magic != 2):
            damage.append(Damage(position, left, "CORRUPT_BATCH: no batch starts here."))
            position = len(view)
            break
        if left < HEADER_SIZE or size > left:
            if last:
                damage.append(Damage(position, left, "TORN_TAIL: the bytes end within a batch."))
                position = len(view)
            break
        offset, _, epoch, _, sum_, attributes, delta, base, newest, pid, pepoch, sequence, count = WIRE.unpack_from(
            view, position
        )
        right = int(crc32c(bytes(view[position + 21 : position + size])) == sum_) if crc else -1
        marker, coordinator_epoch = NO_MARKER, -1
        if attributes & CONTROL:
            marker = int.from_bytes(view[position + 68 : position + 70], "big", signed=True)
            coordinator_epoch = int.from_bytes(view[position + 73 : position + 77], "big", signed=True)
        rows.append(
            (position, size, offset, offset + delta, base, newest, pid, sum_, sequence, count, epoch)
            + (coordinator_epoch, attributes, pepoch, marker, magic, right)
        )
        position += size
    return Scanned(headers=np.array(rows, HEADER), damage=tuple(damage), end=position)


def scan_file(
    path: str | os.PathLike[str],
    *,
    start: int = 0,
    stop: int | None = None,
    crc: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Scanned]:
    """The batches of a segment, in chunks and in order; positions are those of the file.

    Parameters
    ----------
    path
        A segment; one that is being written is read without harm. A file that cannot be read is one `Damage`.
    start
        Byte at which a batch starts.
    stop
        Byte from which on nothing is read; a batch that it cuts is left out.
    crc
        Check every batch's checksum.
    chunk_bytes
        Bytes read at once.
    """
    with open(path, "rb") as file:
        data = file.read()
    yield scan(data[:stop], position=start, crc=crc, last=stop is None or stop >= len(data))
