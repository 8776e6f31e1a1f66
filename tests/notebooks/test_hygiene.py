"""Form of the notebooks in git: readable, comparable and reviewable."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.notebooks.books import BOOKS, DRAWN, cleaned, code_cells, is_checked, read, write
from tests.notebooks.claims import claimed_cells

if TYPE_CHECKING:
    from nbformat import NotebookNode

MAX_BYTES = 300_000
MAX_LINES = 12
LOCAL = "08_databricks"  # it has its own switch instead of a source

by_name = pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)


def lines(cell: NotebookNode) -> list[str]:
    """Lines of code: neither empty nor only a comment."""
    return [line for line in cell.source.splitlines() if line.strip() and not line.strip().startswith("#")]


def test_notebooks_are_numbered_and_the_first_one_names_all() -> None:
    assert [path.stem[:3] for path in BOOKS] == [f"{number:02}_" for number in range(len(BOOKS))]
    start = read(BOOKS[0]).cells[-1].source
    assert [path.name for path in BOOKS[1:] if f"]({path.name})" not in start] == []


@by_name
def test_a_notebook_begins_with_number_and_parameters(path: Path) -> None:
    title, parameters, *_ = read(path).cells
    assert title.cell_type == "markdown"
    assert re.match(rf"# {int(path.stem[:2])}\. \w", title.source)
    assert (parameters.cell_type, parameters.metadata.get("tags")) == ("code", ["parameters"])
    if path.stem != LOCAL:
        assert re.search(r'(?m)^source = "lab"', parameters.source)
    statements = ast.parse(parameters.source).body
    assert all(isinstance(each, ast.Assign) for each in statements), "parameters only, so that others can be injected"


@by_name
def test_stored_outputs_are_drawn_by_every_page(path: Path, tmp_path: Path) -> None:
    assert path.stat().st_size < MAX_BYTES
    book = read(path)
    import nbformat

    nbformat.validate(book)
    assert not book.metadata.get("widgets")
    for cell in code_cells(book):
        assert bool(cell.outputs) == (cell.execution_count is not None) >= is_checked(cell), cell.source
        for output in cell.outputs:
            kinds = output.get("data", {"text/plain": ""}).keys()
            assert kinds <= DRAWN, cell.source
    expected = write(cleaned(book), tmp_path / path.name)
    assert path.read_text() == expected.read_text(), f"python -m tests.notebooks.clean {path}"


@by_name
def test_cells_are_short(path: Path) -> None:
    cells = code_cells(read(path))
    assert [cell.source for cell in cells if len(lines(cell)) > MAX_LINES] == []
    assert [line for cell in cells for line in cell.source.splitlines() if len(line) > 120] == []


@by_name
def test_a_reader_sees_no_assertion_and_every_claim_has_its_cell(path: Path) -> None:
    cells = code_cells(read(path))
    assert [cell.id for cell in cells if re.search(r"(?m)^\s*assert |AssertionError|^# NBVAL", cell.source)] == []
    claims = claimed_cells(path.stem)
    assert set(claims) <= {cell.id for cell in cells}
    assert claims or any(is_checked(cell) for cell in cells), "something is checked"


@by_name
def test_every_cell_has_a_stable_id(path: Path) -> None:
    """Readable ids make the diff of a notebook readable, and stay when it is refreshed."""
    ids = [cell.id for cell in read(path).cells]
    assert len(ids) == len(set(ids))
    assert [each for each in ids if not re.fullmatch(r"[a-z][a-z0-9-]*", each)] == []


@by_name
def test_a_notebook_ends_with_what_to_do_next(path: Path) -> None:
    """Nothing is closed, so that a cell can be run again."""
    *_, last = read(path).cells
    assert last.cell_type == "markdown"
    assert re.match(r"## (Next|What to do next)\n", last.source) or path == BOOKS[0]
    assert not any(re.search(r"(?m)^\w+\.(close|stop)\(", cell.source) for cell in code_cells(read(path)))
