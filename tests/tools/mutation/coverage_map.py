"""Which tests reach which lines of `toolkit/`: a map in ``build/mutation``, made once from a run of the tests.

coverage.py traces the run with a context for each test, and for each fixture of a class, module or session, as only the
first test that uses one sets it up. Processes that a test starts count, too.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import coverage
import pytest
from coverage.exceptions import CoverageException

from tests.tools.mutation import FOLDER, ROOT

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_PHASE = re.compile(r" \((call|teardown)\)$")  # of pytest, in the environment of a process that a test starts
SETTINGS = """
[run]
core = ctrace
source = {source}
data_file = {data_file}
parallel = true
context = ${{PYTEST_CURRENT_TEST-}}
patch =
    fork
    _exit
sigterm = true
disable_warnings = no-data-collected, module-not-imported, module-not-measured, already-imported
"""


@dataclass(frozen=True)
class ReachingTest:
    """A test, how long it takes, and the fixtures that it shares with others."""

    nodeid: str
    seconds: float
    is_lab: bool
    fixtures: Set[str]

    @property
    def file(self) -> str:
        """Where it is."""
        return self.nodeid.partition("::")[0]


@dataclass
class FileCoverage:
    """What the tests of a file reach, those marked `lab` apart from the others."""

    hashes: dict[str, str] = field(default_factory=dict)  # of the file and of the modules that it reaches, when it ran
    tests: dict[str, tuple[float, list[str]]] = field(default_factory=dict)  # seconds and shared fixtures of each test
    fixtures: dict[str, float] = field(default_factory=dict)  # seconds that each shared fixture takes
    # of functions, by module and context, which is a test or a fixture: ``3-5,9``
    lines: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> FileCoverage:
        """From JSON."""
        return cls(**json.loads(path.read_text()))

    @property
    def is_current(self) -> bool:
        """Whether all that it depends on is as it was."""
        return all(_hash(name) == was for name, was in self.hashes.items())


class CoverageMap:
    """The tests by line, of all files whose tests ran; only those whose ids start with one of the prefixes."""

    def __init__(self, prefixes: Iterable[str] = ("",), *, lab: bool = True) -> None:
        self.tests: dict[str, ReachingTest] = {}
        self.fixture_seconds: dict[str, float] = {}
        self._contexts: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._stale: dict[str, set[str]] = defaultdict(set)
        users: dict[str, set[str]] = defaultdict(set)
        for path in sorted(FOLDER.glob("reached/*.json")):
            found = FileCoverage.read(path)
            is_lab = path.stem.endswith(".lab")
            self.fixture_seconds.update(found.fixtures)
            for nodeid, (seconds, fixtures) in found.tests.items():
                exists = (ROOT / nodeid.partition("::")[0]).exists()
                if exists and nodeid.startswith(tuple(prefixes)) and (lab or not is_lab):
                    self.tests[nodeid] = ReachingTest(nodeid, seconds, is_lab, frozenset(fixtures))
                    for fixture in (*fixtures, path.stem):
                        users[fixture].add(nodeid)
            for module, contexts in found.lines.items():
                for name, lines in contexts.items():
                    # A process that started before its tests, as Spark's do, works for any test of the file.
                    context = name if name in found.tests or name.startswith("@") else path.stem
                    if _hash(module) != found.hashes[module]:
                        self._stale[module].add(context)
                    for line in _lines(lines):
                        self._contexts[module][line].add(context)
        self._users = users
        self.sizes = Counter(each.file for each in self.tests.values())

    def reaching(self, module: str, lines: Iterable[int]) -> Set[str]:
        """The tests that reach one of some lines; of a module that has changed since, all that reached it."""
        contexts = set(self._stale[module])
        for line in lines:
            contexts |= self._contexts[module].get(line, set())
        by_fixture = set[str]().union(*(self._users[each] for each in contexts))
        return (contexts & self.tests.keys()) | by_fixture

    def reaching_module(self, module: str) -> Set[str]:
        """The tests that reach anything of a module."""
        return self.reaching(module, list(self._contexts[module]))

    def seconds(self, nodeids: Iterable[str]) -> float:
        """How long tests take in one process."""
        tests = [self.tests[each] for each in nodeids]
        fixtures = set[str]().union(*(each.fixtures for each in tests))
        return sum(each.seconds for each in tests) + sum(self.fixture_seconds.get(each, 0) for each in fixtures)


@functools.cache
def _hash(name: str) -> str:
    path = ROOT / name
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


class Recorder:
    """A pytest plugin that writes a `FileCoverage` for each test file."""

    def __init__(self) -> None:
        (FOLDER / "reached").mkdir(parents=True, exist_ok=True)
        self.parts = FOLDER / f"parts-{os.getpid()}"
        (self.parts / "site").mkdir(parents=True)
        settings = self.parts / "coveragerc"
        settings.write_text(SETTINGS.format(source=ROOT / "toolkit", data_file=self.parts / "data"))
        (self.parts / "site" / "sitecustomize.py").write_text("import coverage\n\ncoverage.process_startup()\n")
        self.coverage = coverage.Coverage(data_file=None, config_file=str(settings))
        self.coverage.start()
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(self.parts / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        self.caches: list[Any] = []
        _note_caches(self.caches)
        self.found: dict[Path, FileCoverage] = defaultdict(FileCoverage)
        self.shared: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what is known already."""
        paths = {_file_of(item) for item in items}
        current = {path for path in paths if path.exists() and FileCoverage.read(path).is_current}
        config.hook.pytest_deselected(items=[item for item in items if _file_of(item) in current])
        items[:] = [item for item in items if _file_of(item) not in current]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Trace a test; what others have cached is computed again."""
        for each in self.caches:
            each.cache_clear()
        definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - pytest's own, without a type
        fixtures = [_name(each[-1]) for each in definitions.values() if each[-1].scope != "function"]
        found = self.found[_file_of(item)]
        self.shared.clear()
        before = _seconds(item)
        self.coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")
            own = _seconds(item) - before - sum(self.shared.values())
            found.tests[item.nodeid] = round(max(own, 0.001), 3), fixtures
            found.fixtures.update(self.shared)
            if nextitem is None or _file_of(nextitem) != _file_of(item):
                self._write(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[Any]:
        """Trace a fixture that tests share."""
        if fixturedef.scope == "function":
            return (yield)
        before, others = _seconds(request._pyfuncitem), sum(self.shared.values())
        self.coverage.switch_context(_name(fixturedef))
        try:
            return (yield)
        finally:
            self.coverage.switch_context(request._pyfuncitem.nodeid)
            inner = sum(self.shared.values()) - others
            self.shared[_name(fixturedef)] = round(_seconds(request._pyfuncitem) - before - inner, 3)

    def _write(self, item: pytest.Item) -> None:
        found = self.found[_file_of(item)]
        self.coverage.stop()  # a tracer that runs on writes to the data that is erased
        self._add(found, self.coverage.get_data())
        self.coverage.erase()
        self.coverage.start()
        for path in self.parts.glob("data.*"):
            data = coverage.CoverageData(str(path))
            with suppress(CoverageException):  # its process is still writing it
                data.read()
                self._add(found, data)
                path.unlink()
        found.hashes = {name: _hash(name) for name in (item.nodeid.partition("::")[0], *found.lines)}
        _file_of(item).write_text(json.dumps(asdict(found), separators=(",", ":")))

    def _add(self, found: FileCoverage, data: coverage.CoverageData) -> None:
        for path in data.measured_files():
            lines = defaultdict[str, set[int]](set)
            for line, names in data.contexts_by_lineno(path).items():
                for name in filter(None, names if line in _lines_of_functions(path) else ()):
                    lines[_PHASE.sub("", name)].add(line)
            for name, reached in lines.items():
                contexts = found.lines.setdefault(str(Path(path).relative_to(ROOT)), {})
                contexts[name] = _ranges(reached.union(_lines(contexts.get(name, ""))))


def _note_caches(caches: list[Any]) -> None:
    """Collect what the toolkit and the tests cache from now on."""
    original = functools.lru_cache

    def note(cached: Any) -> Any:
        if cached.__module__.startswith(("toolkit.", "tests.")):
            caches.append(cached)
        return cached

    def lru_cache(*arguments: Any, **options: Any) -> Any:
        made = original(*arguments, **options)
        return note(made) if hasattr(made, "cache_clear") else lambda function: note(made(function))

    functools.lru_cache = lru_cache


@functools.cache
def _lines_of_functions(path: str) -> Set[int]:
    """What does not run when the module is imported."""
    functions = (each for each in ast.walk(ast.parse(Path(path).read_text())) if isinstance(each, _FUNCTION))
    return {line for each in functions for line in range(each.body[0].lineno, (each.end_lineno or 0) + 1)}


def _ranges(lines: Iterable[int]) -> str:
    found: list[list[int]] = []
    for line in sorted(lines):
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in found)


def _lines(ranges: str) -> Iterator[int]:
    for each in filter(None, ranges.split(",")):
        first, _, last = each.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _file_of(item: pytest.Item) -> Path:
    name = item.nodeid.partition("::")[0].replace("/", "__").removesuffix(".py")
    return FOLDER / "reached" / f"{name}{'.lab' if item.get_closest_marker('lab') else ''}.json"


def _seconds(item: pytest.Item) -> float:
    """Of the processor, as the machine may be busy; of a clock if it waits for Kafka."""
    return time.monotonic() if item.get_closest_marker("lab") else sum(os.times()[:4])


def _name(fixture: Any) -> str:
    return f"@{fixture.baseid}::{fixture.argname}"


def make_map(arguments: Iterable[str]) -> int:
    """Run tests, but for those that are known and whose files have not changed."""
    recorder = Recorder()
    options = ["-q", "--assert=plain", "-oaddopts=", "-pno:anyio", "-pno:nbval", "-ra", "--strict-markers"]
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    try:
        code = int(pytest.main([*options, *arguments], plugins=[recorder]))
        return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code
    finally:
        shutil.rmtree(recorder.parts, ignore_errors=True)
