"""Files that are either there whole or not at all, whatever ends this process or the machine."""

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

from toolkit.sources.recording.names import HIDDEN

__all__ = ["exchange", "flush", "link", "remove", "writing"]

WORKING_DIRECTORY = {"linux": -100, "darwin": -2}  # AT_FDCWD
EXCHANGE = 2  # RENAME_EXCHANGE of renameat2, RENAME_SWAP of renameatx_np
CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, hidden; it gets its name, replacing what had it, when all of it is on the disk.

    Where anything is raised the hidden file goes, and `path` is as it was.
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
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link(path: Path, new: Path) -> None:
    """Give a file a second name; a copy of it where the file system has no hard links."""
    try:
        os.link(path, new)
    except OSError as error:
        if error.errno not in CANNOT | {errno.EPERM}:
            raise
        shutil.copy2(path, new)


def remove(folder: Path) -> None:
    """Remove a folder with all in it, if it is there."""
    if folder.exists():
        shutil.rmtree(folder)


def exchange(one: Path, other: Path) -> bool:
    """Have two folders change their names at one instant, or tell that this system cannot."""
    sys.audit("toolkit.exchange", str(one), str(other))
    library = ctypes.CDLL(None, use_errno=True)
    name = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform, "")
    rename = getattr(library, name, None)
    if rename is None:
        return False
    here = WORKING_DIRECTORY[sys.platform]
    if rename(here, os.fsencode(one), here, os.fsencode(other), ctypes.c_uint(EXCHANGE)) == 0:
        return True
    code = ctypes.get_errno()
    if code in CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))
