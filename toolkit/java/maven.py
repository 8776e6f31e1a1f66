"""The Maven repository of the jars, and a lock for their cache."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

CENTRAL = "https://repo1.maven.org/maven2/"


def repository_url() -> str:
    """The repository: KAFKA_TXN_MAVEN, the mirror that ``~/.m2/settings.xml`` names, or Maven Central."""
    return os.environ.get("KAFKA_TXN_MAVEN") or _mirror() or CENTRAL


def _mirror() -> str | None:
    settings = Path.home() / ".m2" / "settings.xml"
    if not settings.is_file():
        return None
    for mirror in ElementTree.parse(settings).iterfind(".//{*}mirror"):  # noqa: S314  the user's own file
        names = (mirror.findtext("{*}mirrorOf") or "").split(",")
        if {"central", "*", "external:*"} & {name.strip() for name in names}:
            return mirror.findtext("{*}url")
    return None


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Hold a lock on a file; wait while another process holds it."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
