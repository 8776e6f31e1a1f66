"""The table of explained mutants has no entry for a line that is gone."""

import tomllib

import pytest

from tests.mutation import ROOT, TABLE, explained_survivors, possible_survivors

MODULES = tomllib.loads(TABLE.read_text())


@pytest.mark.parametrize("module", MODULES)
def test_each_explained_mutant_is_one(module: str) -> None:
    path = ROOT / f"{module.replace('.', '/')}.py"
    assert path.exists()
    assert explained_survivors(module) <= possible_survivors(path)
    assert [each for each in MODULES[module]["tests"] if each.startswith("tests/") and not (ROOT / each).exists()] == []
