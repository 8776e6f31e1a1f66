"""Open notebook 9 in a browser; ``python -m tests.browser.live_page`` writes ``docs/live_page.png``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.browser.opened import SERVERS, START_TIMEOUT_MS, browser
from tests.browser.opened import _run_all_cells as run_all_cells
from tests.notebooks.books import FOLDER, read, with_parameters, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

TARGET = FOLDER.parent / "docs/live_page.png"


@contextmanager
def open_live_page(server: str, chromium: Browser, folder: Path, *, dark: bool = False) -> Iterator[Locator]:
    """The live page of the lab, once both pictures are drawn.

    Parameters
    ----------
    server
        ``JupyterLab`` or ``Voila``.
    folder
        For a copy of the notebook, settings and the log of the server.
    dark
        Use the dark theme.
    """
    notebook = write(with_parameters(read(FOLDER / "09_live.ipynb")), folder / "09_live.ipynb")
    with (
        chromium.new_context(viewport={"width": 1200, "height": 2000}) as context,
        SERVERS[server](notebook, folder / "server", dark=dark) as address,
    ):
        page = context.new_page()
        page.goto(address, timeout=START_TIMEOUT_MS)
        if server == "JupyterLab":
            run_all_cells(page)
        live = page.locator(".kafka-txn-live")
        live.locator("svg >> visible=true").nth(1).wait_for(timeout=START_TIMEOUT_MS)
        yield live


if __name__ == "__main__":
    with (
        TemporaryDirectory() as temporary,
        browser() as started,
        open_live_page("Voila", started, Path(temporary)) as it,
    ):
        it.screenshot(path=TARGET, animations="disabled")
    sys.stdout.write(f"{TARGET}: {TARGET.stat().st_size:,} bytes\n")
