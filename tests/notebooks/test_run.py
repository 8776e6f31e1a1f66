"""Every notebook runs from a clean start, its assertions hold, and its outputs match the stored ones."""

from pathlib import Path

import pytest

from tests.notebooks.books import BOOKS, code_cells, read
from tests.notebooks.running import run


@pytest.mark.lab
@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=pytest.mark.xdist_group(path.stem)) for path in BOOKS]
)
def test_a_notebook_runs_unchanged(path: Path, tmp_path: Path) -> None:
    outcome = run(path, tmp_path, compares_words=True)
    assert outcome.failed == {}, outcome.output
    assert len(outcome.cells) == len(code_cells(read(path)))
