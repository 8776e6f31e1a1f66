"""nbval compares stored outputs: on notebooks without execution counts it compares nothing and passes."""

from pathlib import Path

from nbformat import NotebookNode

from tests.notebooks.books import FOLDER, code_cells, is_checked, read, with_parameters, write
from tests.notebooks.running import run

BOOK = FOLDER / "02_lso_timeline.ipynb"
SAMPLE = "sample:late-message"  # staged by its lab by default: its stored outputs are right, and no broker is needed


def of_the_sample() -> NotebookNode:
    """The notebook with its stored outputs, and the sample as its source."""
    book, other = read(BOOK), with_parameters(read(BOOK), source=SAMPLE)
    for cell, changed in zip(code_cells(book), code_cells(other), strict=True):
        cell.source = changed.source
    return book


def numbered(book: NotebookNode, cell_id: str) -> tuple[str, NotebookNode]:
    """What nbval calls a cell, and the cell."""
    return next((f"Cell {number}", cell) for number, cell in enumerate(code_cells(book)) if cell.id == cell_id)


def test_only_changed_outputs_claims_and_warnings_fail(tmp_path: Path) -> None:
    """A checked cell without count is not compared either, which is why the hygiene test requires counts."""
    book = of_the_sample()
    output, cell = numbered(book, "transactions-table")
    assert is_checked(cell)
    text = cell.outputs[0].data["text/plain"]
    cell.outputs[0].data["text/plain"] = text.replace("commit        20", "commit        21")
    assert cell.outputs[0].data["text/plain"] != text
    claimed, cell = numbered(book, "steps-claims")
    cell.source, claim = cell.source.replace('== known["start_offset"]', '!= known["start_offset"]'), cell.source
    assert cell.source != claim
    stripped, cell = numbered(book, "lag-rows")
    cell.outputs, cell.execution_count = [], None
    warned, cell = numbered(book, "live-claims")
    cell.source += '\nimport warnings\nwarnings.warn("an old name")'
    outcome = run(write(book, tmp_path / "altered.ipynb"), tmp_path)
    assert outcome.failed.keys() == {output, claimed, warned}, outcome.printed
    assert stripped in outcome.cells
    assert "Cell outputs differ" in outcome.failed[output]
    assert "AssertionError" in outcome.failed[claimed]
    assert "UserWarning: an old name" in outcome.failed[warned]
