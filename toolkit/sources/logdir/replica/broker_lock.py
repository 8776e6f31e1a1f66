"""The lock of a running broker on its log directory."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

LOCK = ".lock"
FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, process


def is_locked(path: Path) -> bool:
    """Whether a process of this machine has locked a file, as Kafka's ``FileLock`` does.

    Raises OSError if the file cannot be opened.
    """
    if sys.platform != "linux" or not os.path.lexists(path):
        return False
    import fcntl

    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock = fcntl.fcntl(descriptor, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False  # a file system without locks, on which no broker starts
    finally:
        os.close(descriptor)
    return bool(FLOCK.unpack(lock)[0] != fcntl.F_UNLCK)
