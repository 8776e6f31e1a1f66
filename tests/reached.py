"""Which tests reach the places that make an error row: ``pytest -n0 -p tests.reached --reached FILE ...``.

A place is an ``error=`` of a call, or an ``"error":`` of a dict; it is reached once it has a value. The file is JSON:
each place with the first tests that reach it, none for one that no test reaches.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent / "toolkit"
FEW = 3
REACHED: dict[str, list[str]] = {}


def noted(value: Any, place: str) -> Any:
    """Note that a place is reached, unless there is no error."""
    if value is not None and len(tests := REACHED[place]) < FEW:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        tests += [test] if test not in tests else []
    return value


class Noting(ast.NodeTransformer):
    """Puts `noted` around each error."""

    def __init__(self, path: str) -> None:
        self._path = path

    def visit_Call(self, node: ast.Call) -> ast.AST:
        for each in node.keywords:
            if each.arg == "error":
                each.value = self._noted(each.value)
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        for number, key in enumerate(node.keys):
            if isinstance(key, ast.Constant) and key.value == "error":
                node.values[number] = self._noted(node.values[number])
        return self.generic_visit(node)

    def _noted(self, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Constant) and value.value is None:
            return value
        place = f"{self._path}:{value.lineno}"
        REACHED.setdefault(place, [])
        call = ast.Call(ast.Name("__noted__", ast.Load()), [value, ast.Constant(place)], [])
        return ast.fix_missing_locations(ast.copy_location(call, value))


def code_of(path: Path) -> CodeType:
    tree = Noting(str(path.relative_to(ROOT))).visit(ast.parse(path.read_text(encoding="utf-8")))
    return compile(tree, str(path), "exec", dont_inherit=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reached", help="File to write which tests reach which error row.")


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path(session.config.getoption("reached")).write_text(json.dumps(REACHED, indent=1), encoding="utf-8")


for each in ROOT.rglob("*.py"):
    code_of(each)  # the places of modules that no test imports, too
builtins.__noted__ = noted  # type: ignore[attr-defined]
compiled: Any = SourceFileLoader.get_code
loader: Any = SourceFileLoader
loader.get_code = lambda self, name: code_of(Path(self.path)) if name.startswith("toolkit") else compiled(self, name)
