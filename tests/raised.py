"""The errors that tests raise, whole: a test names a part of one, and the rest of its text is stored here by test.

``python -m tests.raised [FILE ...]`` runs these tests twice and stores what both runs raise: numbers are masked, and a
test whose texts differ between two runs has none.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.stored import GOLDEN
from toolkit.errors import ToolkitError

ROOT = Path(__file__).parent.parent
STORED = GOLDEN / "errors.json"
FOLDER = "KAFKA_TXN_TEST_ERRORS"  # where the texts of each test are written instead of being compared
RAISED = set[str]()
_VARIES = re.compile(r"/tmp/\S*?pytest-of-[^/\s]+/pytest-\d+(/popen-gw\d+)?|\d+")

_init = ToolkitError.__init__


def _noting(self: ToolkitError, what: str, *, means: str = "", do: str = "") -> None:
    _init(self, what, means=means, do=do)
    RAISED.add(_VARIES.sub("#", f"{type(self).__name__}: {' | '.join((what, means, do))}"))


ToolkitError.__init__ = _noting  # type: ignore[method-assign]


def checked(test: str) -> Iterator[None]:
    """Around a test: what it raises is what is stored."""
    RAISED.clear()
    yield
    found = sorted(RAISED)
    if folder := os.environ.get(FOLDER):
        with Path(folder, f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps([test, found]) + "\n")
    elif (stored := _stored().get(test)) is not None and found != stored:
        gone, new = sorted(set(stored) - set(found)), sorted(set(found) - set(stored))
        texts = [*(f"- {each}" for each in gone), *(f"+ {each}" for each in new)]
        pytest.fail("\n".join(["python -m tests.raised stores them again:", *texts]), pytrace=False)


@cache
def _stored() -> dict[str, list[str]]:
    return dict(json.loads(STORED.read_text())) if STORED.exists() else {}


def main(files: list[str]) -> None:
    """Store what these tests raise, in two runs with other orders of sets."""
    runs = [_run(files, workers) for workers in ("-n4", "-n2")]
    ran = runs[0].keys() | runs[1].keys()
    known = {test: texts for test, texts in _stored().items() if files and test not in ran and _is_there(test, files)}
    known |= {test: texts for test, texts in runs[0].items() if texts and runs[1].get(test) == texts}
    STORED.write_text(json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n")
    print(f"{len(known)} tests, {sum(map(len, known.values()))} texts")


def _is_there(test: str, files: list[str]) -> bool:
    return not test.startswith(tuple(files)) and (ROOT / test.partition("::")[0]).exists()


def _run(files: list[str], workers: str) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            workers,
            "-p",
            "no:cacheprovider",
            "-m",
            "not lab and not full",
            *files,
        ]
        subprocess.run(command, cwd=ROOT, env={**os.environ, FOLDER: folder}, check=False)  # texts of what fails differ
        lines = [line for each in Path(folder).iterdir() for line in each.read_text().splitlines()]
        return dict(map(json.loads, lines))


if __name__ == "__main__":
    main(sys.argv[1:])
