"""Mutation testing: does a test fail if a comparison, an operand, a filter or a guard of a module is another one?

    python -m tests.mutation toolkit.analysis.diagnosis.decision
    python -m tests.mutation toolkit.analysis.diagnosis.decision tests/analysis/test_rules.py --all

Without files it runs those that `mutation.toml` has for the module. It prints the mutants that survive and that the
table does not explain (``--all``: these too), and fails if there is one. It also prints what the table explains and a
test kills.

Each mutant runs in a forked process in which everything but the mutated module is already imported: 0.2 to 1 s.
Only the tests that call the mutated function run, those that killed most mutants first; all of them if the module
caches results. Lambdas and class bodies are mutated, too, as rules are written in them. Texts, annotations and
assertions are not.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).with_name("mutation.toml")
UNUSED = ("anyio", "cacheprovider", "hypothesispytest", "nbval", "threadexception", "unraisableexception")
OTHER: Mapping[type[ast.AST], Sequence[type[ast.AST]]] = {
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Add],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
    ast.Continue: [ast.Break],
    ast.Break: [ast.Continue],
}
SWAPPED = {"any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list"}


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    Parameters
    ----------
    at
        The function, and the line as it is.
    change
        What is other in it.
    line
        Number of the line.
    function
        First and last line of the outermost function around it; null outside of functions.
    code
        The changed module.
    """

    at: str
    change: str
    line: int
    function: tuple[int, int] | None
    code: CodeType


def mutants(path: Path) -> Iterator[Mutant]:
    """The mutants of a module."""
    source = path.read_text()
    tree, lines = ast.parse(source), source.splitlines()
    for place in _places(tree, "", None):
        for change, changed in changes(place.child):
            place.put(changed)
            try:
                code = compile(ast.fix_missing_locations(tree), str(path), "exec")
            except (SyntaxError, TypeError, ValueError):
                continue  # not Python
            finally:
                place.put(place.child)
            yield Mutant(place.at(lines), change, place.line, place.function, code)


def possible_survivors(path: Path) -> set[tuple[str, str]]:
    """What an entry of the table may name: a function with its line, and a change."""
    source = path.read_text()
    places, lines = _places(ast.parse(source), "", None), source.splitlines()
    return {(place.at(lines), change) for place in places for change, _ in changes(place.child)}


def explained_survivors(module: str) -> set[tuple[str, str]]:
    """What the table explains of a module."""
    table = tomllib.loads(TABLE.read_text()).get(module, {})
    return {(each["at"], change) for each in table.get("survivors", ()) for change in each["changes"]}


@dataclass(frozen=True)
class _Place:
    """A node, where it stands in the tree, and in which function."""

    node: ast.AST
    attribute: str
    number: int | None
    child: ast.AST
    name: str
    function: tuple[int, int] | None

    @property
    def line(self) -> int:
        return int(getattr(self.child, "lineno", getattr(self.node, "lineno", 1)))

    def at(self, lines: Sequence[str]) -> str:
        """The function, and the line as it is."""
        return f"{self.name}: {lines[self.line - 1].strip()}".removeprefix(": ")

    def put(self, child: ast.AST) -> None:
        if self.number is None:
            setattr(self.node, self.attribute, child)
        else:
            getattr(self.node, self.attribute)[self.number] = child


def _places(node: ast.AST, name: str, function: tuple[int, int] | None) -> Iterator[_Place]:
    """Every node that decides something, from top to bottom."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        name = f"{name}.{node.name}".lstrip(".")
    if isinstance(node, ast.FunctionDef) and function is None:
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        function = first, node.end_lineno or first
    for attribute, value in ast.iter_fields(node):
        if attribute in {"annotation", "returns", "decorator_list"}:
            continue
        for number, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not _is_left_out(child):
                yield _Place(node, attribute, number, child, name, function)
                yield from _places(child, name, function)


def _has_cache(path: Path) -> bool:
    """Whether a function of a module runs only once for all tests."""
    decorators = {
        ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    }
    return not decorators.isdisjoint({"cache", "lru_cache"})


def _is_left_out(node: ast.AST) -> bool:
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return is_for_types or isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom)


def changes(node: Any) -> Iterator[tuple[str, ast.AST]]:
    """What each change of a node is called, and the changed node."""
    for other in OTHER.get(type(node), ()):
        yield f"{type(node).__name__} to {other.__name__}", other()
    yield from _without_a_part(node)
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield f"drop {'not' if isinstance(node.op, ast.Not) else '-'}", node.operand
        case ast.If() | ast.IfExp() | ast.While():
            negated = copy(node)
            negated.test = ast.UnaryOp(ast.Not(), node.test)
            yield "negate", negated
        case ast.Constant(value=bool() as value):
            yield f"{value} to {not value}", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield f"{value} to {value + 1}", ast.Constant(value + 1)
        case ast.Return(value=ast.expr()) if ast.unparse(node) != "return None":
            yield "return None", ast.Return(ast.Constant(None))
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED and not (name == "sorted" and node.keywords):
            yield f"{name} to {SWAPPED[name]}", ast.Call(ast.Name(SWAPPED[name], ast.Load()), node.args, node.keywords)


def _without_a_part(node: Any) -> Iterator[tuple[str, ast.AST]]:
    """The node without one of its operands, filters or elements; without a call, or what it yields."""
    match node:
        case ast.BoolOp():
            for operand, rest in _each(node.values):
                yield f"drop {ast.unparse(operand)}", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.comprehension():
            for condition, rest in _each(node.ifs):
                negated = [*rest, ast.UnaryOp(ast.Not(), condition)]
                for change, ifs in (("drop", rest), ("negate", negated)):
                    changed = ast.comprehension(node.target, node.iter, ifs, node.is_async)
                    yield f"{change} filter {ast.unparse(condition)}", changed
        case ast.Set(elts=[_, _, *_]):
            for element, rest in _each(node.elts):
                yield f"drop {ast.unparse(element)}", ast.Set(rest)
        case ast.Expr(value=ast.Yield()):
            yield "drop yield", ast.Expr(ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield "drop call", ast.Pass()


def _each(nodes: Sequence[ast.expr]) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Each node, and the others."""
    for number, node in enumerate(nodes):
        yield node, [*nodes[:number], *nodes[number + 1 :]]


class Mutated(MetaPathFinder, Loader):
    """Loads a module's changed code."""

    def __init__(self, name: str, code: CodeType) -> None:
        self.name, self.code = name, code

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Only for the module."""
        return spec_from_loader(fullname, self, origin=self.code.co_filename) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed code."""
        module.__file__ = self.code.co_filename
        exec(self.code, module.__dict__)


class Loaded(MetaPathFinder):
    """What is loaded when a module is imported first: it does not depend on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.modules: list[str] = []

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Find nothing."""
        if fullname == self.name and not self.modules:
            specs = {name: getattr(module, "__spec__", None) for name, module in sys.modules.items()}
            self.modules = [name for name, spec in specs.items() if not getattr(spec, "_initializing", False)]


class Callers:
    """A pytest plugin: the tests that call a function, those most likely to fail first; and which test calls what."""

    def __init__(self, callers: Set[str] | None, kills: Counter[str], path: Path | None) -> None:
        self.callers, self.kills, self.path = callers, kills, path
        self.calls: dict[str, list[int]] = {}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Without callers, all of them."""
        callers = self.callers
        items[:] = [item for item in items if callers is None or item.nodeid in callers]
        items.sort(key=lambda item: -self.kills[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Trace which lines of the module begin a call."""
        called: set[int] = set()

        def trace(frame: FrameType, event: str, arg: object) -> None:
            if frame.f_code.co_filename == str(self.path):
                called.add(frame.f_code.co_firstlineno)

        if self.path is not None:
            sys.settrace(trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.calls[item.nodeid] = sorted(called)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The test that failed."""
        self.failed = report.nodeid if report.failed else self.failed


class Runner:
    """Runs the tests of a module in forked processes.

    Parameters
    ----------
    module
        Its name.
    arguments
        Files and options for pytest.
    """

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self.module, self.arguments = module, arguments
        self.path = ROOT / (module.replace(".", "/") + ".py")
        self.has_cache = _has_cache(self.path)
        self.kills: Counter[str] = Counter()
        importlib.import_module(module)  # and with it all that it imports
        del sys.modules[module]
        parent, _, name = module.rpartition(".")
        vars(sys.modules[parent]).pop(name, None)
        self.timeout, started = 600, time.monotonic()
        code, result = self._fork(None, None, self.path)
        self.timeout = 10 + round(10 * (time.monotonic() - started))  # a mutant may not come to an end
        if code:
            raise SystemExit(f"The tests of {module} fail without a mutant, at {result['failed'] or 'the collection'}.")
        for name in result["loaded"]:
            with suppress(ImportError):
                importlib.import_module(name)
        self.callers: Mapping[int, set[str]] = defaultdict(set)
        for nodeid, called in result["calls"].items():
            for line in called:
                self.callers[line].add(nodeid)

    def is_killed(self, mutant: Mutant) -> bool:
        """Whether a test fails."""
        callers = None
        if mutant.function and not self.has_cache:
            first, last = mutant.function
            callers = set().union(*(ids for line, ids in self.callers.items() if first <= line <= last))
            callers = callers or None  # without a caller among the tests, a module may call it when it is imported
        code, result = self._fork(mutant.code, callers, None)
        self.kills[result["failed"]] += 1
        return bool(code)

    def _fork(self, code: CodeType | None, callers: Set[str] | None, trace: Path | None) -> tuple[int, dict[str, Any]]:
        """The exit code, the first test that failed, and the calls of each test."""
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.setpgid(0, 0)
            signal.alarm(self.timeout)
            os.close(reader)
            gc.disable()
            loaded = Loaded(self.module)
            plugin, exit_code = Callers(callers, self.kills, trace), 99
            null = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2) if code is not None else ():
                os.dup2(null, stream)
            try:
                if code is None:
                    sys.meta_path.insert(0, loaded)
                else:
                    sys.meta_path.insert(0, Mutated(self.module, code))
                options = [
                    "-x",
                    "-q",
                    "--assert=plain",
                    "-oaddopts=",
                    "-otimeout=0",
                    *(f"-pno:{name}" for name in UNUSED),
                ]
                exit_code = int(pytest.main([*options, *self.arguments], plugins=[plugin]))
            finally:
                with os.fdopen(writer, "w") as file:
                    calls = plugin.calls if trace else {}
                    json.dump({"failed": plugin.failed, "calls": calls, "loaded": loaded.modules}, file)
                os._exit(exit_code)
        os.close(writer)
        with os.fdopen(reader) as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), json.loads(text) if text else {"failed": ""}


def main() -> None:
    """Run the mutants of a module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module")
    parser.add_argument("tests", nargs="*", help="files and options for pytest; by default those of mutation.toml")
    parser.add_argument("--all", action="store_true", help="print explained survivors, too")
    parser.add_argument("--only", default="", help="only where the function or the line contains this")
    requested, options = parser.parse_known_args()
    os.environ.setdefault("KAFKA_TXN_TEST_AMOUNT", "0.1")
    table = tomllib.loads(TABLE.read_text()).get(requested.module, {})
    explained, survivors = explained_survivors(requested.module), set[tuple[str, str]]()
    runner = Runner(requested.module, [*(requested.tests or table["tests"]), *options])
    started, counts = time.monotonic(), Counter[str]()
    for mutant in mutants(runner.path):
        if requested.only not in mutant.at:
            continue
        is_killed, is_explained = runner.is_killed(mutant), (mutant.at, mutant.change) in explained
        counts["killed" if is_killed else "explained" if is_explained else "survived"] += 1
        if not is_killed:
            survivors.add((mutant.at, mutant.change))
        if not is_killed and (requested.all or not is_explained):
            print(f"{mutant.line}: {mutant.at} | {mutant.change}", flush=True)
    for at, change in sorted(explained - survivors):
        if requested.only in at:
            print(f"explained, but does not survive: {at} | {change}")
    figures = " | ".join(str(number) for number in (counts.total(), counts["killed"], counts["explained"]))
    print(f"{requested.module} | {figures} | {time.monotonic() - started:.0f} s")
    sys.exit(bool(counts["survived"]))


if __name__ == "__main__":
    main()
