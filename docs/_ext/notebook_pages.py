"""The notebooks as the site renders them: their stored outputs, with figures that a page can show."""

from __future__ import annotations

import nbformat
from nbformat import NotebookNode
from plotly.io import to_html

from tests.notebooks.books import BOOKS, PLOTLY, code_cells, read

__all__ = ["notebook_pages"]

PICTURES = {  # widgets need a kernel
    "panel": "![The panel, right before the marker is written](../panel.png)"
}


def notebook_pages() -> dict[str, str]:
    """File name to text."""
    return {path.name: nbformat.writes(_page(read(path))) for path in BOOKS}  # type: ignore[no-untyped-call]


def _page(book: NotebookNode) -> NotebookNode:
    for cell in code_cells(book):
        for number, output in enumerate(cell.outputs):
            data = output.get("data", {})
            if figure := data.pop(PLOTLY, None):
                data["text/html"] = _figure_html(figure, div_id=f"{cell.id}-{number}")
    cells = []
    for cell in book.cells:
        cells.append(cell)
        if cell.id in PICTURES:
            picture = {"cell_type": "markdown", "id": f"{cell.id}-picture", "metadata": {}, "source": PICTURES[cell.id]}
            cells.append(nbformat.from_dict(picture))  # type: ignore[no-untyped-call]
    book.cells = cells
    return book


def _figure_html(figure: NotebookNode, *, div_id: str) -> str:
    html: str = to_html(
        figure,
        config={"displaylogo": False, "responsive": True},
        default_height=figure.layout.get("height") or 480,
        full_html=False,
        include_plotlyjs="../../_static/plotly.min.js",
        post_script="window.addEventListener('load', () => Plotly.Plots.resize('{plot_id}'));",
        div_id=div_id,
    )
    return html
