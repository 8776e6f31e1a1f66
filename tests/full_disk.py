"""A disk of its own that fills up: a small tmpfs, which needs the right to mount."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

PAGE = 4096  # a tmpfs gives out pages


class Disk:
    """A tmpfs of so many bytes."""

    def __init__(self, size: int) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="kafka-txn-disk-"))
        self._filler = self.path / ".filler"
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.path)], check=True, timeout=60)

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        # Spark's Java, which goes on, keeps files open that it could not write.
        subprocess.run(["umount", "--lazy", str(self.path)], check=True, timeout=60)
        self.path.rmdir()

    def leave(self, free: int) -> None:
        """Fill it up to so many free bytes."""
        self.clear()
        state = os.statvfs(self.path)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(PAGE, state.f_bavail * state.f_frsize - free))

    def clear(self) -> None:
        """Remove what fills it."""
        self._filler.unlink(missing_ok=True)


def can_mount() -> bool:
    """Whether this process may mount."""
    try:
        with Disk(16 * PAGE):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
