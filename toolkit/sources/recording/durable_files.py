"""Atomic, durable file operations: a file is complete or absent after a crash."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolkit.sources.recording.recording_folder import HIDDEN

WORKING_DIRECTORY = {"linux": -100, "darwin": -2}  # AT_FDCWD
EXCHANGE = 2  # RENAME_EXCHANGE of renameat2, RENAME_SWAP of renameatx_np
UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Open a hidden file for writing; on success it is flushed and renamed to `path`, replacing it.

    On an error the hidden file is removed and `path` is unchanged.
    """
    hidden = path.with_name(f"{HIDDEN}{path.name}.part")
    try:
        with hidden.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def flush(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link(path: Path, new: Path) -> None:
    """Hard-link a file; copy it if the file system has no hard links."""
    try:
        os.link(path, new)
    except OSError as error:
        if error.errno not in UNSUPPORTED | {errno.EPERM}:
            raise
        shutil.copy2(path, new)


def remove(folder: Path) -> None:
    """Remove a folder and its content, if it exists."""
    if folder.exists():
        shutil.rmtree(folder)


def exchange(first: Path, second: Path) -> bool:
    """Swap two folders atomically; false if this system cannot."""
    sys.audit("toolkit.exchange", str(first), str(second))
    library = ctypes.CDLL(None, use_errno=True)
    name = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform, "")
    rename = getattr(library, name, None)
    if rename is None:
        return False
    working_directory = WORKING_DIRECTORY[sys.platform]
    if (
        rename(working_directory, os.fsencode(first), working_directory, os.fsencode(second), ctypes.c_uint(EXCHANGE))
        == 0
    ):
        return True
    code = ctypes.get_errno()
    if code in UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))
