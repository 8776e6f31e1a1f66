"""Pictures of all notebooks with their stored outputs, light and dark.

``python -m tests.browser.notebook_pictures FOLDER [--run] [NUMBER ...]`` writes ``04-page-dark.png``, what nbconvert
makes of the notebook, and ``04-lab-dark.png``, the notebook in JupyterLab; with ``--run`` only ``04-run-dark.png``,
JupyterLab after all cells have run.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.browser.opened import START_TIMEOUT_MS, browser
from tests.browser.opened import _run_all_cells as run_all_cells
from tests.browser.servers import jupyter_lab
from tests.notebooks.books import FOLDER

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTH = 1280
MAX_HEIGHT = 16_000  # of a picture of chromium
RUN_TIMEOUT_MS = 900_000
THEMES = {"light": False, "dark": True}


def take_pictures(folder: Path, books: Sequence[Path], *, is_run: bool) -> Iterator[Path]:
    """Take them one after another; the name of each says what it shows."""
    with browser() as chromium, TemporaryDirectory() as temporary:
        for theme, dark in THEMES.items():
            if not is_run:
                yield from _of_pages(chromium, folder, books, theme=theme)
            copies = Path(temporary) / theme
            copies.mkdir()
            for book in books:
                shutil.copy(book, copies)
            with jupyter_lab(copies / books[0].name, Path(temporary) / f"server-{theme}", dark=dark) as address:
                for book in books:
                    target = folder / f"{book.name[:2]}-{'run' if is_run else 'lab'}-{theme}.png"
                    _of_lab(chromium, address.replace(books[0].name, book.name), target, is_run=is_run)
                    yield target


def _of_pages(chromium: Browser, folder: Path, books: Sequence[Path], *, theme: str) -> Iterator[Path]:
    from nbconvert import HTMLExporter

    for book in books:
        html, _ = HTMLExporter(theme=theme).from_filename(str(book))  # type: ignore[no-untyped-call]
        written = folder / f"{book.stem}-{theme}.html"
        written.write_text(html)
        page = chromium.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(written.as_uri())
        target = folder / f"{book.name[:2]}-page-{theme}.png"
        _screenshot(page, target, height=page.evaluate("document.documentElement.scrollHeight"))
        yield target


def _of_lab(chromium: Browser, address: str, target: Path, *, is_run: bool) -> None:
    page = chromium.new_page(viewport={"width": WIDTH, "height": MAX_HEIGHT})  # so that every cell is drawn
    page.goto(address, timeout=START_TIMEOUT_MS)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=START_TIMEOUT_MS)
    page.get_by_text("| Idle").wait_for(timeout=START_TIMEOUT_MS)
    if is_run:
        run_all_cells(page)
        page.get_by_text("| Idle").wait_for(timeout=RUN_TIMEOUT_MS)
    last = page.locator(".jp-Notebook .jp-Cell").last.bounding_box()
    assert last is not None
    _screenshot(page, target, height=round(last["y"] + last["height"]) + 60)


def _screenshot(page: Page, target: Path, *, height: int) -> None:
    page.set_viewport_size({"width": WIDTH, "height": min(height, MAX_HEIGHT)})
    page.wait_for_timeout(1_000)  # what is drawn by scripts
    page.screenshot(path=target, animations="disabled")
    page.close()


if __name__ == "__main__":
    target_folder = Path(sys.argv[1]).resolve()
    target_folder.mkdir(parents=True, exist_ok=True)
    numbers = [each for each in sys.argv[2:] if each != "--run"]
    chosen = [each for each in sorted(FOLDER.glob("*.ipynb")) if not numbers or each.name[:2] in numbers]
    for picture in take_pictures(target_folder, chosen, is_run="--run" in sys.argv):
        print(f"{picture.name}: {picture.stat().st_size:,} bytes", flush=True)
