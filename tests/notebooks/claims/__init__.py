"""What must hold after the cells of a notebook: a module for each notebook, a function named like each cell's id.

The parameters of a function are variables of the notebook. `tests.notebooks.plain` calls it in the notebook's kernel
right after the cell, which fails if an assertion does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent


def claims_of(notebook: str) -> Mapping[str, Callable[..., None]]:
    """Claims by cell id; empty if the notebook has none.

    Parameters
    ----------
    notebook
        Name of its file, for example ``01_detection``.
    """
    module = notebook.partition("_")[2]
    if not (FOLDER / f"{module}.py").is_file():
        return {}
    return _functions(import_module(f"{__name__}.{module}"))


def check(notebook: str, cell_id: str, variables: Mapping[str, object]) -> None:
    """Check the claims of a cell.

    Raises
    ------
    AssertionError
        If one does not hold.
    """
    claim = claims_of(notebook)[cell_id]
    claim(**{name: variables[name] for name in inspect.signature(claim).parameters})


def _functions(module: ModuleType) -> dict[str, Callable[..., None]]:
    return {
        name.replace("_", "-"): function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
