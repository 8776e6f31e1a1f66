"""The sentences of each test, whole: a test names a part of one, and the rest of it is stored here by test.

Those of the errors that are raised, and of the fields of the toolkit's dataclasses: reasons, remedies, evidence, error
rows, steps of plans. ``python -m tests.sentences [FILE ...]`` runs these tests twice, on two days, and stores what both
have: of each file its sentences, with numbers masked, and of each test a digest of its own. There numbers are masked,
too, where they differ between the two days, or the test does not only compute. If sentences differ, nothing is stored.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.stored import GOLDEN
from toolkit.errors import ToolkitError

ROOT = Path(__file__).parent.parent
STORED = GOLDEN / "sentences"
FOLDER = "KAFKA_TXN_TEST_SENTENCES"  # where the sentences of each test are written instead of being compared
SEEN = set[str]()
COMPUTING = ("tests/analysis/", "tests/formats/", "tests/views/")  # no broker, and nothing that takes a while
LATER = "+37 days 5 hours"
_FOLDERS = re.compile(r"/tmp/\S*?pytest-of-[^/\s]+/pytest-\d+(/popen-gw\d+)?")
_NUMBERS = re.compile(r"\d+")
_modules = set[str]()


def _note(text: str) -> None:
    if text.count(" ") > 1:  # a sentence, and no name
        SEEN.add(text)


def _note_value(value: Any) -> None:
    if isinstance(value, str):
        _note(value)
    elif isinstance(value, tuple | list):
        for each in value:
            if isinstance(each, str):
                _note(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            if isinstance(each, str | tuple | list):
                _note_value(each)


_init = ToolkitError.__init__


def _noting_error(self: ToolkitError, what: str, *, means: str = "", do: str = "") -> None:
    _init(self, what, means=means, do=do)
    SEEN.add(f"{type(self).__name__}: {' | '.join((what, means, do))}")


ToolkitError.__init__ = _noting_error  # type: ignore[method-assign]


def _noting(init: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    @functools.wraps(init)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        for name in names:
            if (value := getattr(self, name)) is not None:
                _note_value(value)

    return noting


def _note_dataclasses() -> None:
    """Wrap the dataclasses of the modules that were imported since the last test, where a field has texts."""
    for name in sorted(sys.modules.keys() - _modules):
        _modules.add(name)
        if not name.startswith("toolkit."):
            continue
        for each in list(vars(sys.modules[name]).values()):
            if isinstance(each, type) and each.__module__ == name and is_dataclass(each) and "__init__" in vars(each):
                names = tuple(field.name for field in fields(each) if "str" in str(field.type))
                if names:
                    each.__init__ = _noting(each.__init__, names)  # type: ignore[method-assign]


def checked(test: str) -> Iterator[None]:
    """Around a test: its sentences are those that are stored."""
    _note_dataclasses()
    SEEN.clear()
    yield
    found = sorted({_FOLDERS.sub("#", each) for each in SEEN})
    if folder := os.environ.get(FOLDER):
        with Path(folder, f"{os.getpid()}.jsonl").open("a") as results:
            results.write(json.dumps([test, found]) + "\n")
        return
    file, _, name = test.partition("::")
    stored = _stored(file)
    if stored is not None and stored["tests"].get(name) not in (None, _digest(found), _digest(_masked(found))):
        new = sorted(set(_masked(found)) - set(stored["sentences"]))
        texts = [f"+ {each}" for each in new] or ["others of the file, or other numbers, than before", *found]
        pytest.fail("\n".join(["python -m tests.sentences stores them again:", *texts]), pytrace=False)


def _masked(found: list[str]) -> list[str]:
    return sorted({_NUMBERS.sub("#", each) for each in found})


def _digest(found: list[str]) -> str:
    return hashlib.sha256("\n".join(found).encode(errors="backslashreplace")).hexdigest()[:10]


def _path(file: str) -> Path:
    return STORED / f"{file.removesuffix('.py').replace('/', '.')}.json"


@cache
def _stored(file: str) -> dict[str, Any] | None:
    path = _path(file)
    return dict(json.loads(path.read_text())) if path.exists() else None


def main(files: list[str]) -> None:
    """Store what these tests say, in two runs with other orders of sets."""
    now, later = _run(files, "-n4"), _run(files, "-n2", "faketime", "-f", LATER)
    same = dict[str, list[str]]()
    for test, found in now.items():
        if found and test in later and _masked(found) == _masked(later[test]):
            is_exact = found == later[test] and test.startswith(COMPUTING)
            same[test] = found if is_exact else _masked(found)
    by_file: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for test, texts in sorted(same.items()):
        by_file[test.partition("::")[0]][test] = texts
    for file in {test.partition("::")[0] for test in now} - by_file.keys():
        _path(file).unlink(missing_ok=True)
    for path in STORED.glob("*.json"):
        if not (ROOT / f"{path.stem.replace('.', '/')}.py").exists():
            path.unlink()
    STORED.mkdir(exist_ok=True)
    for file, tests in by_file.items():
        sentences = sorted(set(_masked(list(chain.from_iterable(tests.values())))))
        digests = {test.partition("::")[2]: _digest(found) for test, found in tests.items()}
        stored = {"sentences": sentences, "tests": digests}
        _path(file).write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", errors="backslashreplace")
    differ = sorted(test for test, found in now.items() if found and test not in same)
    print(f"{len(same)} tests, {sum(map(len, same.values()))} sentences; those of {len(differ)} differ: {differ}")


def _run(files: list[str], workers: str, *before: str) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", workers, "-p", "no:cacheprovider", "-m", "not lab and not full", *files]
        environment = {**os.environ, FOLDER: folder, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}  # threads wait by it
        subprocess.run([*before, sys.executable, "-m", "pytest", *options], cwd=ROOT, env=environment, check=False)
        lines = [line for each in Path(folder).iterdir() for line in each.read_text().splitlines()]
        return dict(map(json.loads, lines))


if __name__ == "__main__":
    main(sys.argv[1:])
