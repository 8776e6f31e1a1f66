"""nbval compares stored outputs: on notebooks without execution counts it compares nothing and passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.notebooks.books import FOLDER, code_cells, is_checked, read, with_parameters, write
from tests.notebooks.running import run

if TYPE_CHECKING:
    from nbformat import NotebookNode

BOOK = FOLDER / "02_lso_timeline.ipynb"
SAMPLE = "sample:late-message"  # the incident that the lab stages by default: the stored outputs match without a broker


def read_with_sample_as_source() -> NotebookNode:
    """The notebook with its stored outputs and the sample as its source."""
    book, parametrized = read(BOOK), with_parameters(read(BOOK), source=SAMPLE)
    for cell, changed in zip(code_cells(book), code_cells(parametrized), strict=True):
        cell.source = changed.source
    return book


def find_cell(book: NotebookNode, cell_id: str) -> tuple[str, NotebookNode]:
    """The name of a cell in nbval, and the cell."""
    return next((f"Cell {number}", cell) for number, cell in enumerate(code_cells(book)) if cell.id == cell_id)


def test_only_wrong_outputs_false_claims_and_warnings_fail_cells(tmp_path: Path) -> None:
    """A checked cell without count is not compared: therefore the hygiene tests require counts.

    Stored advice that the code had corrected since stayed, as only tagged cells were compared.
    """
    book = read_with_sample_as_source()
    with_wrong_output, cell = find_cell(book, "transactions-table")
    assert is_checked(cell)
    text = cell.outputs[0].data["text/plain"]
    cell.outputs[0].data["text/plain"] = text.replace("commit        20", "commit        21")
    assert cell.outputs[0].data["text/plain"] != text
    with_false_claim, cell = find_cell(book, "steps")
    cell.source = cell.source.replace("show(steps", "shown = show(steps") + "\nlso += 1\nshown"  # a claim compares it
    without_count, cell = find_cell(book, "lag-rows")
    cell.outputs, cell.execution_count = [], None
    with_old_advice, cell = find_cell(book, "lag")
    cell.outputs[0].data["text/plain"] += " Set its offsets first."
    _, cell = find_cell(book, "cause")
    cell.outputs, cell.execution_count = [], None  # files have another reason than the lab's cluster
    with_warning, cell = find_cell(book, "picture")
    cell.source = 'import warnings\nwarnings.warn("an old name")\n' + cell.source
    outcome = run(write(book, tmp_path / BOOK.name), tmp_path, compares_words=True)
    failed = {with_wrong_output, with_false_claim, with_old_advice, with_warning}
    assert outcome.failed.keys() == failed, outcome.output
    assert "stored: ['first', 'offsets']; now: []" in outcome.failed[with_old_advice]
    assert without_count in outcome.cells
    assert "Cell outputs differ" in outcome.failed[with_wrong_output]
    assert "A claim does not hold" in outcome.failed[with_false_claim]
    assert "AssertionError" in outcome.failed[with_false_claim]
    assert "UserWarning: an old name" in outcome.failed[with_warning]
