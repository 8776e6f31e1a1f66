"""The notebooks of the project, their form in git, and copies with other parameters.

nbformat takes a second to import, and every worker imports this module: functions import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
CHECK = "nbval-check-output"  # the tag of cells whose output nbval compares
PLOTLY = "application/vnd.plotly.v1+json"
DRAWN = {"text/html", "text/markdown", "text/plain"}
OF_PLOTLY = "js-plotly-plot"  # its picture is stored: without trust, its figure would be white on a dark page
TABLES_AGAIN = "<script>window.kafkaTxnTables?.()</script>"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read(path: Path) -> NotebookNode:
    """Return the notebook of a file."""
    import nbformat

    book: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return book


def write(book: NotebookNode, path: Path) -> Path:
    """Write a notebook to a file, and return the file."""
    import nbformat

    nbformat.validate(book)
    nbformat.write(book, path)  # type: ignore[no-untyped-call]
    return path


def code_cells(book: NotebookNode) -> list[NotebookNode]:
    """Code cells in order; nbval calls the first one ``Cell 0``."""
    return [cell for cell in book.cells if cell.cell_type == "code"]


def is_checked(cell: NotebookNode) -> bool:
    """Whether nbval compares the output of the cell with the stored one."""
    return cell.cell_type == "code" and CHECK in cell.metadata.get("tags", ())


def cleaned(book: NotebookNode) -> NotebookNode:
    """The notebook as stored in git: outputs that every page draws, with a count, but no warning and no widget."""
    book, seen = _copy({**book, "metadata": METADATA}), set[str]()
    for number, cell in enumerate(code_cells(book), start=1):
        outputs = [_drawn(output, seen) for output in cell.outputs]
        cell.outputs = [output for output in outputs if output is not None]
        cell.execution_count = number if cell.outputs else None  # nbval compares nothing without a count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    for cell in book.cells:
        cell.metadata = {"tags": cell.metadata.tags} if cell.metadata.get("tags") else {}
    return book


def with_parameters(book: NotebookNode, **values: object) -> NotebookNode:
    """A copy without stored outputs and with other parameters."""
    copy = _copy(book)
    for cell in code_cells(copy):
        cell.outputs, cell.execution_count = [], None
    (parameters,) = (cell for cell in copy.cells if "parameters" in cell.metadata.get("tags", ()))
    for name, value in values.items():
        parameters.source, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value!r}", parameters.source)
        assert count == 1, f"the parameters cell has no {name}"
    return copy


def _drawn(output: NotebookNode, seen: set[str]) -> NotebookNode | None:
    """The output without its metadata; None for warnings, for widgets, which need a kernel, and for what is empty.

    `seen`: styles and scripts of earlier outputs, which the page has once: an output that is made alone has its own.
    """
    if output.output_type == "stream":
        return _copy(output) if output.name == "stdout" else None
    data = {kind: content for kind, content in output.get("data", {}).items() if kind in DRAWN}
    is_widget = any(kind.startswith("application/vnd.jupyter.widget") for kind in output.get("data", {}))
    if "text/html" in data:
        data["text/html"] = "" if OF_PLOTLY in data["text/html"] else _without_copies(data["text/html"], seen)
        if not data["text/html"].strip() and not data.get("text/plain"):
            return None
    return None if is_widget or not data else _copy({**output, "data": data, "metadata": {}})


def _without_copies(page: str, seen: set[str]) -> str:
    """HTML without the styles and scripts that an earlier output has; tables are made to work by its script."""

    def first(found: re.Match[str]) -> str:
        is_known = found[0] in seen
        seen.add(found[0])
        if not is_known or found[0] == TABLES_AGAIN:
            return found[0]
        return TABLES_AGAIN if "kafkaTxnTables" in found[0] else ""

    return re.sub(r"<(style|script)>.*?</\1>", first, page, flags=re.DOTALL)


def _copy(content: Mapping[str, object]) -> NotebookNode:
    """A deep copy, as a NotebookNode."""
    import nbformat

    node: NotebookNode = nbformat.from_dict(content)  # type: ignore[no-untyped-call]
    return node
