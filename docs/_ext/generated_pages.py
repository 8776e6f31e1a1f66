"""What is written from the code at each build: tables, commands, symptoms, drawings, examples; and the notebooks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from command_pages import command_pages
from drawings import drawings
from notebook_pages import notebook_pages
from symptom_pages import symptom_pages
from table_pages import table_pages

from tests.golden.examples import example_text, examples

__all__ = ["setup"]


def setup(app: Any) -> dict[str, bool]:
    """Write them before Sphinx looks for its sources."""
    app.connect("config-inited", lambda app, config: _write(Path(app.srcdir)))
    app.connect("source-read", _link_notebooks)
    app.connect("html-page-context", _link_outputs)
    return {"parallel_read_safe": True}


def _link_outputs(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Outputs of notebooks name other notebooks by their files, which are pages here."""
    if page.startswith("notebooks/") and "body" in context:
        context["body"] = re.sub(r'href="(\d\d_\w+)\.ipynb"', r'href="../\1/"', context["body"])


def _write(source: Path) -> None:
    for folder, pages in {
        "reference/tables": table_pages(),
        "reference/commands": command_pages(),
        "symptoms": symptom_pages(),
        "drawings": drawings(),
        "output": {f"{name}.txt": example_text(row) for name, row in examples().items()},
        "notebooks": notebook_pages(),
    }.items():
        _fill(source / folder, pages)


def _fill(folder: Path, pages: Mapping[str, str]) -> None:
    """The folder with these pages and no others; what has not changed keeps its time, so that Sphinx reads it once."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in {path.name for path in folder.iterdir()} - pages.keys():
        shutil.rmtree(folder / left, ignore_errors=True) if (folder / left).is_dir() else (folder / left).unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _link_notebooks(app: Any, docname: str, source: list[str]) -> None:
    """In the repository the notebooks are beside docs/; in the site, in it."""
    if "/" not in docname:
        source[0] = source[0].replace("](../notebooks/", "](notebooks/")
