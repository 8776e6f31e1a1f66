"""Open notebook 10 in a real browser under JupyterLab or Voila, run it, and wait for its panel."""

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

CHROMIUM = "/usr/bin/chromium"
NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks/10_panel.ipynb"
SERVERS = {"JupyterLab": jupyter_lab, "Voila": voila}
CHROMIUM_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
START_TIMEOUT_MS = 90_000  # to start Kafka and run all cells


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(CHROMIUM_ARGUMENTS)) as chromium,
    ):
        yield chromium


@contextmanager
def open_panel(
    server: str,
    chromium: Browser,
    folder: Path,
    *,
    notebook: Path = NOTEBOOK,
    width: int = 1440,
    height: int = 1000,
    dark: bool = False,
) -> Iterator[Locator]:
    """Open a notebook by one of `SERVERS`, run it, and return its panel."""
    folder.mkdir(parents=True, exist_ok=True)
    notebook_copy = Path(shutil.copy(notebook, folder))
    with (
        chromium.new_context(viewport={"width": width, "height": height}) as context,
        SERVERS[server](notebook_copy, folder / "server", dark=dark) as address,
    ):
        page = context.new_page()
        page.goto(address, timeout=START_TIMEOUT_MS)
        if server == "JupyterLab":
            _run_all_cells(page)
        panel = page.locator(".kafka-txn-panel")
        errors = page.locator("[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedText.jp-mod-error")
        panel.or_(errors).first.wait_for(timeout=START_TIMEOUT_MS)
        assert not errors.count(), errors.first.inner_text()[-2000:]
        panel.get_by_role("button", name="Refresh").wait_for()
        yield panel


def _run_all_cells(page: Page) -> None:
    """Run all cells; a kernel that is still connecting loses the request, so it is repeated."""
    from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

    page.get_by_text("| Idle").wait_for(timeout=START_TIMEOUT_MS)  # of the kernel, in the status bar
    first_started = page.locator(".jp-InputPrompt").filter(has_text=re.compile(r"\[[*\d]")).first
    for _ in range(5):
        page.locator(".lm-MenuBar-itemLabel").get_by_text("Run", exact=True).click()
        page.locator(".lm-Menu-itemLabel").get_by_text("Run All Cells", exact=True).click()
        try:
            return first_started.wait_for(timeout=3_000)
        except PlaywrightTimeoutError:
            continue
    raise AssertionError("No cell was started.")
