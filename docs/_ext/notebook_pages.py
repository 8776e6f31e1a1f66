"""The notebooks as the site renders them: their stored outputs, and a picture where a widget would be."""

from __future__ import annotations

import nbformat
from nbformat import NotebookNode

from tests.notebooks.books import BOOKS, read

__all__ = ["notebook_pages"]

PICTURES = {  # widgets need a kernel
    "panel": "![The panel, right before the marker is written](../panel.png)"
}


def notebook_pages() -> dict[str, str]:
    """File name to text."""
    return {path.name: nbformat.writes(_page(read(path))) for path in BOOKS}  # type: ignore[no-untyped-call]


def _page(book: NotebookNode) -> NotebookNode:
    cells = []
    for cell in book.cells:
        cells.append(cell)
        if cell.id in PICTURES:
            picture = {"cell_type": "markdown", "id": f"{cell.id}-picture", "metadata": {}, "source": PICTURES[cell.id]}
            cells.append(nbformat.from_dict(picture))  # type: ignore[no-untyped-call]
    book.cells = cells
    return book
