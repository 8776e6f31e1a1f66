"""Atomic, durable file operations: a file is complete or absent after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolkit.sources.recording.recording_folder import HIDDEN


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
