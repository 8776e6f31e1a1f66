"""The notebooks as the site renders them: without the comment that nbval reads, with figures that a page can show."""

from __future__ import annotations

import nbformat
from nbformat import NotebookNode

from tests.notebooks.books import BOOKS, code_cells, read

__all__ = ["notebook_pages"]

PICTURES = {  # widgets need a kernel
    "panel": "![The panel, right before the marker is written](../panel.png)",
    "page": "![The live page: all partitions, and the timeline and evidence of the worst one](../live_page.png)",
}

SETUP = """\
import plotly.graph_objects as go
from IPython.display import HTML, display

def show_figure(figure):
    options = {
        "config": {"displaylogo": False, "responsive": True},
        "default_height": figure.layout.height or 480,
        "full_html": False,
        "include_plotlyjs": "../../_static/plotly.min.js",
        "post_script": "window.addEventListener('load', () => Plotly.Plots.resize('{plot_id}'));",
    }
    display(HTML(figure.to_html(**options)))

get_ipython().display_formatter.ipython_display_formatter.for_type(go.Figure, show_figure)
"""


def notebook_pages() -> dict[str, str]:
    """File name to text."""
    return {path.name: nbformat.writes(_page(read(path))) for path in BOOKS}  # type: ignore[no-untyped-call]


def _page(book: NotebookNode) -> NotebookNode:
    for cell in code_cells(book):
        for output in cell.outputs:  # of an earlier run; the picture beside it is shown
            output.get("data", {}).pop("application/vnd.plotly.v1+json", None)
    title, *rest = book.cells
    cells = [title, _cell("code", "figures", SETUP, tags=["remove-cell"])]
    for cell in rest:
        cells.append(cell)
        if cell.id in PICTURES:
            cell.metadata["tags"] = ["remove-output"]
            cells.append(_cell("markdown", f"{cell.id}-picture", PICTURES[cell.id]))
    book.cells = cells
    return book


def _cell(kind: str, name: str, source: str, **metadata: list[str]) -> NotebookNode:
    code: dict[str, object] = {"outputs": [], "execution_count": None} if kind == "code" else {}
    cell: NotebookNode = nbformat.from_dict(  # type: ignore[no-untyped-call]
        {"cell_type": kind, "id": name, "metadata": metadata, "source": source, **code}
    )
    return cell
