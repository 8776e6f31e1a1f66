"""The panel on a lab cluster, in a notebook of one cell that a browser has open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.opened import open_panel
from tests.notebooks.books import write
from toolkit.lab import Kafka

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

OPEN_PANEL = """
from toolkit import Cluster, FlinkCheckpoints
from toolkit.actions.audit import Audit
from toolkit.views.panel import AbortPanel

AbortPanel(
    Cluster({servers!r}, timeout={timeout}, flink_checkpoints=FlinkCheckpoints(*{checkpoints!r})),
    topics={topics!r}, audit=Audit({audit!r}), recheck_after=1.1)
"""


@contextmanager
def panel_on(
    chromium: Browser,
    kafka: Kafka,
    topics: Sequence[str],
    folder: Path,
    *,
    server: str = "Voila",
    timeout: float = 30,
    checkpoints: Sequence[str] = (),
    dark: bool = False,
    height: int = 1000,
) -> Iterator[Locator]:
    """The panel of some topics."""
    source = OPEN_PANEL.format(
        servers=kafka.bootstrap_servers,
        timeout=timeout,
        checkpoints=list(checkpoints),
        topics=list(topics),
        audit=str(folder / "audit.jsonl"),
    )
    import nbformat  # it takes a second, and every worker imports this module

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source.strip())])  # type: ignore[no-untyped-call]
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}  # JupyterLab asks for one otherwise
    folder.mkdir()
    notebook = write(book, folder / "panel.ipynb")
    served = open_panel(server, chromium, folder / "served", notebook=notebook, dark=dark, height=height)
    with served as panel:
        yield panel
