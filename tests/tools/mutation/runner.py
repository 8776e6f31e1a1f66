"""Runs tests on a copy of the repository that has a fault."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from tests.tools.mutation import FOLDER, ROOT
from tests.tools.mutation.coverage_map import CoverageMap, ReachingTest
from tests.tools.mutation.faults import Fault, references

LEFT_OUT = (".git", ".venv", "build", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis")
UNUSED = ("anyio", "cacheprovider", "hypothesispytest", "nbval", "threadexception", "unraisableexception")
IMPORTED = (
    "hypothesis", "jinja2", "kafka", "numpy", "pandas", "pyarrow.parquet", "rich.console", "typer", "confluent_kafka",
)  # fmt: skip
OPTIONS = ("-x", "-q", "--assert=plain", "-oaddopts=", "-otimeout=0", *(f"-pno:{name}" for name in UNUSED))
FIRST_FILES, MORE_FILES = 2, 6  # that one process of pytest collects: half a second each


@dataclass(frozen=True)
class Outcome:
    """What tests say of a fault."""

    # `caught`, `timeout`, `survived`, `unreached` (no test runs it), or `mypy`: only the full tier's mypy sees it
    outcome: str
    by: str  # the test that failed, or `ruff`
    reached: int  # how many tests reach it
    ran: int  # how many of these ran
    seconds: float  # how long that took

    @property
    def is_caught(self) -> bool:
        """Whether the tests notice it."""
        return self.outcome in {"caught", "timeout"}


class _Run(NamedTuple):
    """How a process of pytest ended."""

    code: int
    failed: str
    finished: int


class Selected:
    """A pytest plugin: some tests in an order, and which of them fails."""

    def __init__(self, nodeids: Sequence[str], results: Path) -> None:
        self.ranks = {nodeid: rank for rank, nodeid in enumerate(nodeids)}
        self.results = results

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Leave out all others."""
        session.items[:] = sorted(
            (item for item in session.items if item.nodeid in self.ranks), key=lambda item: self.ranks[item.nodeid]
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported."""
        if report.failed:
            self._write(f"failed {report.nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The test that failed, or another that has finished."""
        if report.failed:
            self._write(f"failed {report.nodeid}")
        elif report.when == "teardown":
            self._write(f"finished {report.nodeid}")

    def _write(self, line: str) -> None:
        with self.results.open("a") as file:
            file.write(f"{line}\n")


class Runner:
    """Tries faults in a copy of the repository, each by tests that took at most `limit_s` when the map was made."""

    def __init__(self, copy: Path, coverage: CoverageMap, *, limit_s: float) -> None:
        self.copy, self.coverage, self.limit_s = copy, coverage, limit_s
        self._is_sound: dict[str, bool] = {}
        self._changes = 0

    def run(self, fault: Fault, *, linters: Sequence[str] = ()) -> Outcome:
        """The outcome of a fault; of `ruff` and `mypy` if no test fails."""
        started = time.monotonic()
        reaching = self._reaching(fault)
        ran = 0
        with self._mutated(fault):
            for batch in self._batches(reaching):
                waiting = list(batch)
                while waiting:
                    found = self._run_tests(waiting)
                    ran += found.finished
                    if found.code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
                        break
                    is_over = found.code < 0 and not found.failed
                    if is_over or self._fails_only_so(found.failed, fault):
                        outcome = "timeout" if is_over else "caught"
                        return Outcome(outcome, found.failed, len(reaching), ran + 1, time.monotonic() - started)
                    waiting = [each for each in waiting if self._is_sound.get(each, True)]
            outcome = "survived" if reaching else "unreached"
            if "ruff" in linters and self._fails("ruff", "check", "--no-cache", "--select=F", fault.module):
                return Outcome("caught", "ruff", len(reaching), ran, time.monotonic() - started)
            if "mypy" in linters and self._fails("mypy", "--cache-dir", str(FOLDER / "mypy"), fault.module):
                outcome = "mypy"
        return Outcome(outcome, "", len(reaching), ran, time.monotonic() - started)

    def _reaching(self, fault: Fault) -> Set[str]:
        coverage = self.coverage
        if not fault.place.functions:
            users = references(fault)
            return set[str]().union(*(coverage.reaching(name, lines) for name, lines in users))
        found = coverage.reaching(fault.module, fault.place.lines)
        outermost = fault.place.functions[0]
        if found or coverage.reaching(fault.module, range(outermost.lineno, (outermost.end_lineno or 0) + 1)):
            return found
        return coverage.reaching_module(fault.module)  # a worker of Spark may run it, which the map does not see

    def _batches(self, nodeids: Set[str]) -> Iterator[Sequence[str]]:
        """A few files of tests after the other, those that need Kafka last.

        The nearest is the one most of whose tests reach the fault, and the fastest of these.
        """
        by_file: dict[tuple[bool, str], list[ReachingTest]] = defaultdict(list)
        for each in sorted((self.coverage.tests[nodeid] for nodeid in nodeids), key=lambda each: each.seconds):
            by_file[each.is_lab, each.file].append(each)

        def distance(key: tuple[bool, str]) -> tuple[bool, float]:
            tests = by_file[key]
            share = len(tests) / self.coverage.sizes[key[1]]
            return key[0], (1 + sum(each.seconds for each in tests) / len(tests)) / share

        files, seconds, size = sorted(by_file, key=distance), 0.0, FIRST_FILES
        while files and seconds < self.limit_s:
            together = [key for key in files[:size] if key[0] == files[0][0]]
            files, size = files[len(together) :], MORE_FILES
            tests = sorted((each for key in together for each in by_file[key]), key=lambda each: each.seconds)
            batch = list[str]()
            for each in tests:
                if seconds < self.limit_s:
                    batch.append(each.nodeid)
                    seconds += each.seconds
            yield batch

    def _fails_only_so(self, nodeid: str, fault: Fault) -> bool:
        """Whether a test passes without the fault."""
        if nodeid not in self._is_sound:
            changed = (self.copy / fault.module).read_bytes()
            self._write(fault.module, fault.place.module.source.encode())
            self._is_sound[nodeid] = "::" not in nodeid or not self._run_tests([nodeid]).code
            self._write(fault.module, changed)
        return self._is_sound[nodeid]

    @contextmanager
    def _mutated(self, fault: Fault) -> Iterator[None]:
        self._write(fault.module, fault.text().encode())
        try:
            yield
        finally:
            self._write(fault.module, fault.place.module.source.encode())

    def _write(self, name: str, content: bytes) -> None:
        """Each version is of another second, as Python compares seconds with those of what it has compiled."""
        self._changes += 1
        path = self.copy / name
        path.write_bytes(content)
        newer = ROOT.joinpath(name).stat().st_mtime + self._changes
        os.utime(path, (newer, newer))

    def _run_tests(self, nodeids: Sequence[str]) -> _Run:
        """Run tests in a fork until one fails."""
        results = self.copy / "results"
        results.write_text("")
        seconds = self.coverage.seconds(each for each in nodeids if each in self.coverage.tests)
        if (child := os.fork()) == 0:
            os.setpgid(0, 0)
            signal.setitimer(signal.ITIMER_PROF, 30 + 5 * seconds)  # of processor, as the machine may be busy
            signal.alarm(90 + round(5 * seconds))  # what waits for ever
            code = 99
            try:
                code = self._in_fork(nodeids, results)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        lines = results.read_text().splitlines()
        failed = next((each.removeprefix("failed ") for each in lines if each.startswith("failed ")), "")
        return _Run(
            os.waitstatus_to_exitcode(status),
            failed,
            len({each for each in lines if each.startswith("finished ")} - {f"finished {failed}"}),
        )

    def _fails(self, *command: str) -> bool:
        command = (sys.executable, "-m", *command)
        return bool(subprocess.run(command, cwd=self.copy, capture_output=True, check=False).returncode)

    def _in_fork(self, nodeids: Sequence[str], results: Path) -> int:
        """Run pytest as if it had been started in the copy."""
        gc.disable()
        _enter(self.copy)
        _silence()
        files = dict.fromkeys(each.partition("::")[0] for each in nodeids)
        return int(pytest.main([*OPTIONS, *files], plugins=[Selected(nodeids, results)]))


class CollectedRunner(Runner):
    """Tries faults within functions in forks of a process that has imported the toolkit and collected all tests.

    A fork puts the changed code into the functions, and what starts from it reads the changed file.
    """

    def __init__(self, copy: Path, coverage: CoverageMap, *, limit_s: float, session: pytest.Session) -> None:
        super().__init__(copy, coverage, limit_s=limit_s)
        self._items = {each.nodeid: each for each in session.items}
        self._functions: dict[str, list[types.FunctionType]] = defaultdict(list)
        self._caches = []
        for each in gc.get_objects():
            if isinstance(each, types.FunctionType):
                self._functions[each.__code__.co_filename].append(each)
            elif isinstance(each, functools._lru_cache_wrapper) and each.__module__.startswith(("toolkit", "tests")):
                self._caches.append(each)
        self._changed: dict[types.CodeType, types.CodeType] = {}
        gc.collect()
        gc.freeze()
        gc.disable()

    def takes(self, fault: Fault) -> bool:
        """Whether it is in code that runs after the import."""
        if not fault.place.functions or fault.kind == "default":
            return False
        return bool(self.coverage.reaching(fault.module, fault.place.lines) and self._changed_codes(fault))

    def run(self, fault: Fault, *, linters: Sequence[str] = ()) -> Outcome:
        """As of a `Runner`."""
        self._changed = self._changed_codes(fault)
        return super().run(fault, linters=linters)

    def _changed_codes(self, fault: Fault) -> dict[types.CodeType, types.CodeType]:
        path = str(self.copy / fault.module)
        sources = (fault.place.module.source, fault.text())
        before, after = (_codes(compile(each, path, "exec")) for each in sources)
        found = dict[types.CodeType, types.CodeType]()
        for name, codes in before.items():
            for old, new in zip(codes, after.get(name, ()), strict=False):
                if old != new and old.co_freevars == new.co_freevars:
                    found.setdefault(old, new)
        return found

    def _fails_only_so(self, nodeid: str, fault: Fault) -> bool:
        changed, self._changed = self._changed, {}
        try:
            return super()._fails_only_so(nodeid, fault)
        finally:
            self._changed = changed

    def _in_fork(self, nodeids: Sequence[str], results: Path) -> int:
        _silence()
        for old, new in self._changed.items():
            for function in self._functions[old.co_filename]:
                if function.__code__ == old:
                    function.__code__ = new
        for each in self._caches:
            each.cache_clear()
        items = [self._items[each] for each in nodeids if each in self._items]
        for item, following in zip(items, [*items[1:], None], strict=True):
            if any(each.failed for each in runtestprotocol(item, log=False, nextitem=following)):
                results.write_text(f"{results.read_text()}failed {item.nodeid}\n")
                return int(pytest.ExitCode.TESTS_FAILED)
            with results.open("a") as file:
                file.write(f"finished {item.nodeid}\n")
        return int(pytest.ExitCode.OK)


class Collected:
    """A pytest plugin: what is done with the tests once they are collected."""

    def __init__(self, work: Callable[[pytest.Session], None]) -> None:
        self.work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do it, and run no test."""
        self.work(session)
        return True


def collect(copy: Path, files: Iterable[str], work: Callable[[pytest.Session], None]) -> None:
    """Import the toolkit in a fork, collect the tests of some files of a copy, and work with them."""
    if (child := os.fork()) == 0:
        try:
            _enter(copy)
            with warnings.catch_warnings():
                pytest.main([*OPTIONS, *files], plugins=[Collected(work)])
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _codes(
    code: types.CodeType, found: dict[str, list[types.CodeType]] | None = None
) -> dict[str, list[types.CodeType]]:
    """All that a module's code has, by qualified name."""
    found = {} if found is None else found
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found.setdefault(each.co_qualname, []).append(each)
            _codes(each, found)
    return found


def _enter(copy: Path) -> None:
    """As if this process had been started in the copy."""
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path.insert(0, str(copy))
    for name in [each for each in sys.modules if each.partition(".")[0] in {"tests", "toolkit"}]:
        del sys.modules[name]


def _silence() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)


def import_others() -> None:
    """What forks need not import again; nothing of the toolkit."""
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the repository."""
    with tempfile.TemporaryDirectory(prefix="kafka-txn-mutation-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        yield copy
