"""Folders as archives: the same bytes for the same files; unpacked once for all processes."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from platformdirs import user_cache_path

from toolkit.errors import UsageError

READ_ONLY = 0o444


def unpacked(archive: bytes, *, name: str) -> Path:
    """The folder with the files of an archive, unpacked on first use.

    Parameters
    ----------
    archive
        An archive of `packed`.
    name
        Part of the folder's name, next to the hash of the content.

    Raises
    ------
    UsageError
        If neither the user's cache nor the temporary folder is writable.
    """
    label = f"{name}-{hashlib.sha256(archive).hexdigest()[:16]}"
    problem = ""
    for home in _homes():
        folder = home / label
        if folder.is_dir():
            return folder
        try:
            return _unpack(archive, folder)
        except OSError as error:
            problem = f"{folder}: {error.strerror}"
    raise UsageError(
        f"The sample {name} cannot be unpacked: {problem}.", do="Let XDG_CACHE_HOME or TMPDIR name a writable folder."
    )


def _homes() -> Iterator[Path]:
    yield user_cache_path("kafka-txn-toolkit") / "samples"
    yield Path(tempfile.gettempdir()) / f"kafka-txn-toolkit-{os.getuid() if hasattr(os, 'getuid') else 0}" / "samples"


def _unpack(archive: bytes, folder: Path) -> Path:
    """Unpack next to the target and rename: another process may be doing the same."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz") as members:
            for member in members:
                _write(members, member, partial)
        partial.chmod(0o755)
        with suppress(OSError):  # it already exists
            partial.rename(folder)
        if not folder.is_dir():
            raise OSError(0, "it did not appear")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Accept a regular file below `folder`, with its own time; these archives contain nothing else."""
    name = PurePosixPath(member.name)
    content = members.extractfile(member) if member.isreg() else None
    if content is None or name.is_absolute() or ".." in name.parts:
        raise UsageError(f"The sample's archive is damaged: {member.name!r} has no place in it.")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.read())
    path.chmod(READ_ONLY)
    os.utime(path, (member.mtime, member.mtime))
