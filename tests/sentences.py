"""The sentences of tests, whole: a test names a part of one, and the rest of it is stored here.

Those of the errors that are raised, and of the fields of the toolkit's dataclasses: reasons, remedies, evidence, error
rows, steps of plans. ``python -m tests.sentences [FILE ...]`` runs these tests twice and stores what both have, with
numbers masked, by file. A test may only have sentences that are stored, of any file: which test makes what is cached
depends on their order. Tests whose sentences differ between the two runs are not checked.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.stored import GOLDEN
from toolkit.command_line import command_line
from toolkit.errors import ToolkitError

ROOT = Path(__file__).parent.parent
STORED = GOLDEN / "sentences"
FOLDER = "KAFKA_TXN_TEST_SENTENCES"  # where the sentences of each test are written instead of being compared
SEEN = set[str]()
_VARIES = re.compile(r"/tmp/\S*?pytest-of-[^/\s]+/pytest-\d+(/popen-gw\d+)?|\d+")
_modules = set[str]()


def _note(text: str) -> None:
    if str.count(text, " ") > 1:  # a sentence, and no name
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


def _noting_error(self: ToolkitError, what: str, *, means: str = "", do: str = "", command: Sequence[str] = ()) -> None:
    _init(self, what, means=means, do=do, command=command)
    own = [command_line(command)] if command else []
    SEEN.add(f"{type(self).__name__}: {' | '.join((what, means, do, *own))}")


ToolkitError.__init__ = _noting_error  # type: ignore[method-assign]


def _noting(init: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    values_of = attrgetter(*names, names[0])  # of two or more names, a tuple

    @functools.wraps(init)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        for value in values_of(self):
            if type(value) is str:  # most are: the exploration makes a million
                if value.count(" ") > 1:
                    SEEN.add(value)
            elif value is not None:
                _note_value(value)

    return noting


def _note_dataclasses() -> None:
    """Wrap the dataclasses of the modules that were imported since the last test, where a field has texts."""
    for name in sorted(sys.modules.keys() - _modules):
        _modules.add(name)
        if not name.startswith("toolkit.") or name == "toolkit.views.document":  # the corpus has its texts
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
    found = sorted({_VARIES.sub("#", each) for each in SEEN})
    if folder := os.environ.get(FOLDER):
        with Path(folder, f"{os.getpid()}.jsonl").open("a") as results:
            results.write(json.dumps([test, found]) + "\n")
    elif test in _stored().tests and (new := set(found) - _stored().sentences):
        texts = "\n".join(f"+ {each}" for each in sorted(new))
        pytest.fail(f"python -m tests.sentences stores them again:\n{texts}", pytrace=False)


class Stored(NamedTuple):
    """The sentences of all files, and the tests that are checked."""

    sentences: Set[str]
    tests: Set[str]


def _path(file: str) -> Path:
    return STORED / f"{file.removesuffix('.py').replace('/', '.')}.json"


@cache
def _stored() -> Stored:
    files = {path: json.loads(path.read_text()) for path in STORED.glob("*.json")}
    tests = {f"{path.stem.replace('.', '/')}.py::{each}" for path, found in files.items() for each in found["tests"]}
    return Stored(set(chain.from_iterable(each["sentences"] for each in files.values())), tests)


def main(files: list[str]) -> None:
    """Store what these tests say, in two runs with other orders of sets."""
    first, second = _run(files, "-n4"), _run(files, "-n2")
    same = {test: found for test, found in first.items() if found and second.get(test) == found}
    stable = set(chain.from_iterable(first.values())) & set(chain.from_iterable(second.values()))
    by_file: dict[str, dict[str, list[str]]] = defaultdict(dict)
    sentences: dict[str, set[str]] = defaultdict(set)
    for test, texts in sorted(first.items()):
        file = test.partition("::")[0]
        sentences[file] |= stable & {*texts}
        if test in same:
            by_file[file][test] = texts
    for file in {test.partition("::")[0] for test in first} - by_file.keys():
        _path(file).unlink(missing_ok=True)
    for path in STORED.glob("*.json"):
        if not (ROOT / f"{path.stem.replace('.', '/')}.py").exists():
            path.unlink()
    STORED.mkdir(exist_ok=True)
    for file, tests in by_file.items():
        names = [test.partition("::")[2] for test in tests]
        stored = {"sentences": sorted(sentences[file]), "tests": names}
        _path(file).write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", errors="backslashreplace")
    differ = sorted(test for test, found in first.items() if found and test not in same)
    print(f"{len(same)} tests, {sum(map(len, same.values()))} sentences; those of {len(differ)} differ: {differ}")


def _run(files: list[str], workers: str) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", workers, "-p", "no:cacheprovider", "-m", "not lab and not full", *files]
        environment = {**os.environ, FOLDER: folder}
        subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT, env=environment, check=False)
        lines = [line for each in Path(folder).iterdir() for line in each.read_text().splitlines()]
        return dict(map(json.loads, lines))


if __name__ == "__main__":
    main(sys.argv[1:])
