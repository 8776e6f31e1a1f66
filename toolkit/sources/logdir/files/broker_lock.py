"""Check whether a broker runs on a log directory: it locks the file ``.lock`` (Kafka's ``FileLock``)."""

from __future__ import annotations

import os
import struct
import sys

from toolkit.sources.logdir.files.log_dir_layout import LogDirRoot

__all__ = ["is_locked"]

FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, process


def is_locked(root: LogDirRoot) -> bool:
    """Whether a process of this machine holds the lock; does not take it. False on systems other than Linux."""
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        descriptor = os.open(root.path / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        lock = fcntl.fcntl(descriptor, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(FLOCK.unpack(lock)[0] != fcntl.F_UNLCK)
