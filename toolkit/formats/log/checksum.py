"""Checksums of batches: CRC32C in hardware, through the library in google-crc32c.

A call from Python takes longer than the checksum of a small batch, so compiled code calls the library's C function by
its address; without an address, Python calls it.

Sources: ``DefaultRecordBatch`` (CRC32C from attributes on), ``LegacyRecord`` (CRC32 from magic on).
"""

from __future__ import annotations

import ctypes
import functools
import zlib

import numpy as np
import numpy.typing as npt

from toolkit.formats.log.batches import CRC_END, LENGTH_END, MAGIC_AT

CHECK = (b"123456789", 0xE3069283)  # check value of CRC32C (RFC 3720)
# Position of the checksum and of the bytes it covers: before magic 2, and for magic 2.
COVERED = ((12, MAGIC_AT), (17, CRC_END))


def extend(crc: int, data: bytes | bytearray | memoryview, *, magic: int) -> int:
    """Extend a checksum by more bytes: CRC32C for magic 2, CRC32 before."""
    if magic < 2:
        return zlib.crc32(data, crc)
    from google_crc32c import extend as crc32c

    extended: int = crc32c(crc, bytes(data))
    return extended


def check(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], right: npt.NDArray[np.int8], *, jitted: bool
) -> None:
    """Check whether each batch matches its checksum.

    Parameters
    ----------
    data
        Bytes with every batch complete.
    positions
        Position of each batch in the bytes.
    right
        -1 for each batch; set to 1 or 0.
    jitted
        Whether to use compiled code, which takes time to start.
    """
    if jitted and (address := _address()):
        from toolkit.formats.log.checksum_loop import jitted_loop

        jitted_loop()(address, data, positions, right)
    view = data.data
    for i in np.flatnonzero(right < 0).tolist():
        batch = view[int(positions[i]) :]
        magic, end = batch[MAGIC_AT], LENGTH_END + int.from_bytes(batch[8:LENGTH_END])
        crc_at, covered = COVERED[magic == 2]
        right[i] = extend(0, batch[covered:end], magic=magic) == int.from_bytes(batch[crc_at : crc_at + 4])


@functools.cache
def _address() -> int:
    """Address of ``crc32c_extend(crc, data, size)`` in the C library of google-crc32c; 0 if there is none."""
    try:
        from google_crc32c import _crc32c

        function = ctypes.CDLL(_crc32c.__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):  # google-crc32c in pure Python, or linked differently
        return 0
    function.restype, function.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)
    data, expected = CHECK
    return (ctypes.cast(function, ctypes.c_void_p).value or 0) if function(0, data, len(data)) == expected else 0
