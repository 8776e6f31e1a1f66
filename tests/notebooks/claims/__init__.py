"""What must hold after the cells of a notebook: a module for each notebook, a function named like each cell's id.

The parameters of a function are variables of the notebook. `tests.notebooks.plain` calls it in the notebook's kernel
right after the cell, which fails if an assertion does.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent


def claimed_cells(notebook: str) -> list[str]:
    """Ids of cells with a claim; the module is not imported, as it imports what its notebook does."""
    file = FOLDER / f"{_module(notebook)}.py"
    body = ast.parse(file.read_text()).body if file.is_file() else []
    names = [each.name for each in body if isinstance(each, ast.FunctionDef)]
    return [name.replace("_", "-") for name in names if not name.startswith("_")]


def check(notebook: str, cell_id: str, variables: Mapping[str, object]) -> None:
    """Check the claims of a cell; a parameter with a default is a variable that only some sources have."""
    claim = getattr(import_module(f"{__name__}.{_module(notebook)}"), cell_id.replace("-", "_"))
    parameters = inspect.signature(claim).parameters.values()
    present = (each for each in parameters if each.name in variables or each.default is inspect.Parameter.empty)
    claim(**{each.name: variables[each.name] for each in present})


def _module(notebook: str) -> str:
    return notebook.partition("_")[2]
