"""Checksums of batches: CRC32C in hardware, through the library that google-crc32c brings.

A call from Python per batch takes longer than the sum of a small batch. So compiled code calls the library's C
function by its address; where that cannot be had, Python calls it.

Sources: ``DefaultRecordBatch`` (CRC32C from attributes on), ``LegacyRecord`` (CRC32 from magic on).
"""

from __future__ import annotations

import ctypes
import functools
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from toolkit.formats.batches import CRC_END, LENGTH_END, MAGIC_AT
from toolkit.formats.raw_headers import MESSAGE, RAW

__all__ = ["extend", "matches"]

CHECK = (b"123456789", 0xE3069283)  # RFC 3720's CRC32C has this well-known sum


def extend(crc: int, data: bytes | bytearray | memoryview, *, magic: int) -> int:
    """The checksum of more bytes: CRC32C for magic 2, CRC32 before."""
    if magic < 2:
        return zlib.crc32(data, crc)
    from google_crc32c import extend as crc32c

    extended: int = crc32c(crc, bytes(data))
    return extended


def matches(
    data: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.int64],
    first_bytes: npt.NDArray[Any],
    *,
    jitted: bool,
) -> npt.NDArray[np.int8]:
    """Whether each batch's bytes match its checksum: 1 or 0.

    Parameters
    ----------
    data
        Bytes that hold every batch as a whole.
    positions
        Where each batch starts in them.
    first_bytes
        Of each, as `gather` gives them.
    jitted
        Whether so many are to come that compiled code is worth its start.
    """
    right = np.zeros(len(positions), np.int8)
    raw = first_bytes.view(RAW)
    sizes = raw["length"].astype(np.int64) + LENGTH_END
    old = raw["magic"] < 2
    expected = np.where(old, raw.view(MESSAGE)["crc"], raw["crc"]).astype(np.uint32)
    if jitted and (address := _address()) and not old.any():
        from toolkit.formats.checksum_loop import jitted_loop

        jitted_loop()(address, data, positions, sizes, expected, right)
        return right
    view = data.data
    for i, (position, size, is_old) in enumerate(zip(positions.tolist(), sizes.tolist(), old.tolist(), strict=True)):
        covered = view[position + (MAGIC_AT if is_old else CRC_END) : position + size]
        right[i] = extend(0, covered, magic=1 if is_old else 2) == expected[i]
    return right


@functools.cache
def _address() -> int:
    """Of ``crc32c_extend(crc, data, size)`` in the C library that google-crc32c is linked with; 0 if there is none."""
    try:
        from google_crc32c import _crc32c

        function = ctypes.CDLL(_crc32c.__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):  # google-crc32c in pure Python, or linked in another way
        return 0
    function.restype, function.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)
    data, expected = CHECK
    return (ctypes.cast(function, ctypes.c_void_p).value or 0) if function(0, data, len(data)) == expected else 0
