"""Notebook 4 in a real browser: opened and run under JupyterLab or Voila, until its panel is there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.servers import jupyter_lab, voila

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

__all__ = ["CHROMIUM", "NOTEBOOK", "SERVERS", "browser", "panel_in"]

CHROMIUM = "/usr/bin/chromium"
NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks/04_abort.ipynb"
SERVERS = {"JupyterLab": jupyter_lab, "Voila": voila}
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
START = 90_000  # ms, for a Kafka to start and all cells to run


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(QUIET)) as chromium,
    ):
        yield chromium


@contextmanager
def panel_in(
    server: str,
    chromium: Browser,
    folder: Path,
    *,
    notebook: Path = NOTEBOOK,
    width: int = 1440,
    height: int = 1000,
    dark: bool = False,
) -> Iterator[Locator]:
    """Open a notebook, run it, and return its panel.

    Parameters
    ----------
    server
        One of `SERVERS`.
    folder
        For a copy of the notebook, settings and the log.
    width, height
        Of the window in pixels.
    dark
        In dark colours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copy = Path(shutil.copy(notebook, folder))
    with (
        chromium.new_context(viewport={"width": width, "height": height}) as context,
        SERVERS[server](copy, folder / "server", dark=dark) as address,
    ):
        page = context.new_page()
        page.goto(address, timeout=START)
        if server == "JupyterLab":
            _run_all(page)
        panel = page.locator(".kafka-txn-panel")
        failed = page.locator("[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedText.jp-mod-error")
        panel.or_(failed).first.wait_for(timeout=START)
        assert not failed.count(), failed.first.inner_text()[-2000:]
        panel.get_by_role("button", name="Refresh").wait_for()
        yield panel


def _run_all(page: Page) -> None:
    """Run all cells; a kernel that is not quite connected loses the request, so it is repeated."""
    from playwright.sync_api import TimeoutError as NothingRuns

    page.get_by_text("| Idle").wait_for(timeout=START)  # of the kernel, in the status bar
    ran = page.locator(".jp-InputPrompt").filter(has_text=re.compile(r"\[[*\d]")).first
    for _ in range(5):
        page.locator(".lm-MenuBar-itemLabel").get_by_text("Run", exact=True).click()
        page.locator(".lm-Menu-itemLabel").get_by_text("Run All Cells", exact=True).click()
        try:
            return ran.wait_for(timeout=3_000)
        except NothingRuns:
            continue
    raise AssertionError("No cell runs.")
