"""A test without the right of root to read and write everything."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

VERSION_3 = 0x20080522  # of the calls capget and capset
OVERRIDE = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextmanager
def unprivileged() -> Iterator[None]:
    """Modes of files count for this thread, also if it runs as root."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, own = (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, own) == 0
    fewer = (ctypes.c_uint32 * 6)(*own)
    fewer[0] &= ~OVERRIDE  # the effective ones
    assert libc.capset(header, fewer) == 0
    try:
        yield
    finally:
        assert libc.capset(header, own) == 0
