"""CRC32C of many batches in compiled code; the only module that imports numba when it is imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from toolkit.formats.log.batch_positions import compiled
from toolkit.formats.log.batches import CRC_END, LENGTH_END, MAGIC_AT


@functools.cache
def jitted_loop() -> Callable[..., None]:
    """`_loop`, compiled."""
    example = (0, np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int8))
    return compiled(_loop, example=example, helpers=(_uint32,))  # type: ignore[no-any-return]


@intrinsic
def _crc32c(_typing: Any, _address: Any, _crc: Any, _pointer: Any, _size: Any) -> Any:
    """Call the C function at an address, which cached compiled code can contain, unlike a function of ctypes."""

    def call(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, crc, pointer, size = arguments
        byte_pointer = ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.IntType(32), [ir.IntType(32), byte_pointer, size.type]).as_pointer()
        return builder.call(builder.inttoptr(address, function), [crc, builder.inttoptr(pointer, byte_pointer), size])

    return types.uint32(types.intp, types.uint32, types.intp, types.intp), call


def _loop(address: Any, data: Any, positions: Any, right: Any) -> None:
    """Set ``right`` to 1 or 0 for every batch of magic 2: whether it matches its checksum."""
    start = data.ctypes.data
    for i in range(len(positions)):
        p = positions[i]
        if data[p + MAGIC_AT] == 2:
            size = LENGTH_END + _uint32(data, p + 8) - CRC_END
            right[i] = _crc32c(address, 0, start + p + CRC_END, size) == _uint32(data, p + 17)  # type: ignore[call-arg]


def _uint32(data: Any, p: Any) -> Any:
    return data[p] << 24 | data[p + 1] << 16 | data[p + 2] << 8 | data[p + 3]
