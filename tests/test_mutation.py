"""The tool that seeds faults: the text that it writes has the fault, and the table explains no line that is gone."""

import ast
import tomllib
from contextlib import suppress

import pytest

from tests.tools.mutation import ROOT, TABLE
from tests.tools.mutation.__main__ import explained_survivors
from tests.tools.mutation.faults import DECISIONS, Module, faults, modules

MODULES = tomllib.loads(TABLE.read_text())


@pytest.mark.parametrize("module", MODULES)
def test_each_explained_mutant_is_one(module: str) -> None:
    path = ROOT / f"{module.replace('.', '/')}.py"
    possible = {(fault.at, fault.change) for fault in faults(Module.read(path), DECISIONS)}
    assert explained_survivors(module) <= possible
    assert [each for each in MODULES[module]["tests"] if each.startswith("tests/") and not (ROOT / each).exists()] == []


def test_the_text_of_a_fault_has_this_one_change() -> None:
    kinds = set[str]()
    for module in modules()[::60]:
        for fault in list(faults(module))[::20]:
            with suppress(SyntaxError):
                changed = ast.dump(ast.parse(fault.text()))
                fault.place.put(fault.changed)
                assert changed == ast.dump(ast.parse(ast.unparse(module.tree)))
                kinds.add(fault.kind)
            fault.place.put(fault.place.child)
    assert len(kinds) > 10
