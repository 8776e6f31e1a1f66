"""A path of this machine or the URI of an object store: how files of logs are named and opened, wherever they lie."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from toolkit.errors import UsageError
from toolkit.formats.object_store import ANONYMOUS, AZURE_HOST, CREDENTIALS, FAMILY, URI, ObjectEntry, ObjectPath

LogPath: TypeAlias = Path | ObjectPath
"""A file or folder of this machine, or of an object store."""


def log_path(path: str | os.PathLike[str] | ObjectPath) -> LogPath:
    """The file or folder at a path of this machine, or at a URI of an object store.

    Parameters
    ----------
    path
        A path; or ``s3://bucket/key``, ``gs://bucket/key``, ``abfss://container@account.dfs.core.windows.net/key``.

    Raises
    ------
    UsageError
        For a URI with credentials or options, or without a bucket.

    Examples
    --------
    >>> log_path("s3://backup/broker-1/") / "orders-0"
    ObjectPath(store='s3://backup', key='broker-1/orders-0')
    """
    if isinstance(path, ObjectPath):
        return path
    text = os.fspath(path)
    scheme = text.partition("://")[0]
    if scheme not in FAMILY or text == scheme:
        return Path(path)
    found = URI.fullmatch(text)
    if not found:
        raise UsageError(f"A URI of {scheme} has a bucket and a key.", do="Write s3://bucket/key, gs://bucket/key or "
                         "abfss://container@account.dfs.core.windows.net/key.")  # fmt: skip
    user, host, key = found["user"], found["host"], (found["key"] or "").strip("/")
    if FAMILY[scheme] == "abfss":
        if not user or ":" in user or not AZURE_HOST.fullmatch(host):
            raise UsageError(
                f"A URI of {scheme} names a container and an account, and no key of the account.",
                do=f"Write {scheme}://container@account.dfs.core.windows.net/key. {CREDENTIALS['abfss']}",
            )
    elif user not in (None, ANONYMOUS):
        raise UsageError(
            f"The URI of {host} has credentials, which tables and reports would repeat.",
            do=f"Write {scheme}://{host}/key. {CREDENTIALS[FAMILY[scheme]]}",
        )
    if "?" in key:
        raise UsageError(
            f"The URI of {host} has options, which are not read.",
            do="Use the environment of the store: AWS_ENDPOINT_URL, AWS_REGION, STORAGE_EMULATOR_HOST, "
            "AZURE_STORAGE_ENDPOINT.",
        )
    return ObjectPath(f"{scheme}://{f'{user}@' if user else ''}{host}", key)


def scandir(path: LogPath) -> Iterator[os.DirEntry[str] | ObjectEntry]:
    """The entries of a folder, in any order. Raises OSError if it cannot be listed."""
    return path.scandir() if isinstance(path, ObjectPath) else iter(os.scandir(path))


def other_kind(path: LogPath) -> str | None:
    """What a path of this machine names, if that is no file; opening a pipe would wait for its writer."""
    if isinstance(path, ObjectPath):
        return None
    mode = path.stat().st_mode
    return None if stat.S_ISREG(mode) else "directory" if stat.S_ISDIR(mode) else "pipe or device"


def real_path(path: LogPath) -> str:
    """The path behind links, of which an object store has none."""
    return str(path) if isinstance(path, ObjectPath) else os.path.realpath(path)
