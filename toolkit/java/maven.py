"""A Maven repository: its address, files downloaded from it in parallel, and a lock for their cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tqdm.auto import tqdm

from toolkit.errors import SetupError

CENTRAL = "https://repo1.maven.org/maven2/"
CHUNK = 1 << 16
AT_ONCE = 8
TIMEOUT_S = 60


class Download(NamedTuple):
    """A file to fetch.

    Parameters
    ----------
    path
        In the repository.
    target
        Its path; written completely or not at all.
    sha256
        Its digest, in hexadecimal digits.
    """

    path: str
    target: Path
    sha256: str


def download(files: Sequence[Download], repository: str, *, title: str) -> None:
    """Fetch files, with progress; HTTPS_PROXY is honoured.

    Raises
    ------
    SetupError
        If one cannot be fetched, or does not match its digest.
    """
    with (
        tqdm(desc=title, unit="B", unit_scale=True) as bar,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        try:
            for _ in pool.map(lambda file: _fetch(file, repository, bar), files):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(file: Download, repository: str, bar: tqdm[None]) -> None:
    url = f"{repository.rstrip('/')}/{file.path}"
    digest = hashlib.sha256()
    partial = file.target.with_suffix(".partial")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response, partial.open("wb") as target:  # noqa: S310
            while chunk := response.read(CHUNK):
                target.write(chunk)
                digest.update(chunk)
                bar.update(len(chunk))
    except OSError as error:
        raise SetupError(
            f"{url} could not be fetched: {getattr(error, 'reason', error)}.",
            means="Jars are downloaded once, and this one is not in the cache yet; nothing was kept.",
            do="Go online for the first run, or name a mirror in KAFKA_TXN_MAVEN (and a proxy in HTTPS_PROXY).",
        ) from None
    if digest.hexdigest() != file.sha256:
        partial.unlink()
        raise SetupError(
            f"{url} does not match its digest.",
            means="A proxy or mirror returned another file; nothing was kept.",
            do="Try again, or name another mirror in KAFKA_TXN_MAVEN.",
        )
    partial.replace(file.target)


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
