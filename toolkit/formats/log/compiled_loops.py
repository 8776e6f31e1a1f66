"""Loops over many gigabytes, compiled by numba, which this module imports.

Compiled code is cached on disk. To load it takes half a second of processor time, to compile it some seconds.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic, register_jitable

from toolkit.formats.log.batch_positions import (
    MESSAGE_HELPERS,
    FoundBatches,
    first_bytes,
    is_whole,
    readable_size,
    usual_size,
)
from toolkit.formats.log.batches import CRC_END, HEADER_SIZE, LENGTH_END, MAGIC_AT

_compiling = threading.Lock()


def compiled(function: Callable[..., Any], *, example: tuple[Any, ...], helpers: tuple[Any, ...] = ()) -> Any:
    """Compile a function for arguments of the example's types; the result releases the GIL.

    `function`: a function that numba can compile; it is not changed.
    `example`: arguments of one call, which compiles it.
    `helpers`: functions of its module that it calls.
    """
    for helper in helpers:
        register_jitable(helper)
    with _compiling:
        try:
            jitted = njit(nogil=True, cache=True)(function)
            jitted(*example)
        except (OSError, RuntimeError):  # no writable folder for compiled code, beside the source or in the home
            jitted = njit(nogil=True)(function)
            jitted(*example)
    return jitted


def find_batches(window: npt.NDArray[np.uint8], position: int, end: int, *, at_most: int) -> FoundBatches:
    """As `batch_positions.find_batches`."""
    found = np.empty(at_most, np.int64)
    count, stop, in_doubt = _find_loop()(window, position, end, found)
    return FoundBatches(found[:count], first_bytes(window, found[:count]), stop, in_doubt)


@functools.cache
def _find_loop() -> Any:
    helpers = (readable_size, usual_size, is_whole, *MESSAGE_HELPERS)
    return compiled(find_loop, example=(np.empty(0, np.uint8), 0, 0, np.empty(0, np.int64)), helpers=helpers)


def find_loop(data: Any, position: int, end: int, found: Any) -> tuple[int, int, bool]:
    """Positions of consecutive batches, one after the other, into `found`; their number, `stop` and `in_doubt`."""
    count = 0
    size = readable_size(data, position, end)
    while size > 0 and count < len(found):
        follower = position + size
        if follower + HEADER_SIZE > end:
            return count, position, False
        size = usual_size(data, follower, end)
        magic = data[position + MAGIC_AT]
        if size == 0 or (magic < 2 and not is_whole(data, position, follower - position, follower)):
            return count, position, True
        if magic == 2 and data[follower + MAGIC_AT] < 2:  # logs hardly ever return to an old format
            return count, position, True
        found[count] = position
        count += 1
        position = follower
    return count, position, size == 0


@functools.cache
def checksum_loop() -> Callable[..., None]:
    """`_checksum_loop`, compiled."""
    example = (0, np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.uint32))
    return compiled(_checksum_loop, example=example, helpers=(_uint32,))  # type: ignore[no-any-return]


@intrinsic
def _crc32c(_typing: Any, _address: Any, _crc: Any, _pointer: Any, _size: Any) -> Any:
    """Call the C function at an address, which cached compiled code can contain, unlike a function of ctypes."""

    def call(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, crc, pointer, size = arguments
        byte_pointer = ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.IntType(32), [ir.IntType(32), byte_pointer, size.type]).as_pointer()
        return builder.call(builder.inttoptr(address, function), [crc, builder.inttoptr(pointer, byte_pointer), size])

    return types.uint32(types.intp, types.uint32, types.intp, types.intp), call


def _checksum_loop(address: Any, data: Any, positions: Any, computed: Any) -> None:
    """The checksum of each batch of magic 2."""
    start = data.ctypes.data
    for i in range(len(positions)):
        p = positions[i]
        size = LENGTH_END + _uint32(data, p + 8) - CRC_END
        computed[i] = _crc32c(address, 0, start + p + CRC_END, size)  # type: ignore[call-arg]


def _uint32(data: Any, p: Any) -> Any:
    return data[p] << 24 | data[p + 1] << 16 | data[p + 2] << 8 | data[p + 3]
