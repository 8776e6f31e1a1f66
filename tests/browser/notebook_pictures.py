"""Pictures of all notebooks with their stored outputs, light and dark.

``python -m tests.browser.notebook_pictures FOLDER [--run] [--width PIXELS] [NUMBER ...]`` writes ``04-page-dark.png``,
what nbconvert makes of the notebook, and ``04-lab-dark.png``, the notebook in JupyterLab, which does not trust it; with
``--run`` only ``04-run-dark.png``, JupyterLab after all cells have run. It prints what axe finds in the outputs.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.browser.opened import START_TIMEOUT_MS, browser
from tests.browser.opened import _run_all_cells as run_all_cells
from tests.browser.servers import jupyter_lab
from tests.browser.test_panel_access import violations
from tests.notebooks.books import FOLDER

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

MAX_HEIGHT = 16_000  # of a picture of chromium
RUN_TIMEOUT_MS = 900_000
OUTPUTS = ".jp-Cell-outputWrapper"  # what is ours; the rest is JupyterLab or nbconvert
# Of an output that it does not trust, JupyterLab strips styles, scripts and tabindex: a wide table scrolls in its own
# container, which no key reaches unless there is a link in it. Nothing in our HTML can change that.
JUPYTERLABS = re.compile(
    r"""scrollable-region-focusable: \['[^']*\.jp-RenderedHTML\.jp-OutputArea-output\[data-mime-type="text/html"\]'\]"""
)
Theme = Literal["light", "dark"]
THEMES: dict[Theme, bool] = {"light": False, "dark": True}


class Picture(NamedTuple):
    """A picture, whose name says what it shows, and what axe finds in the outputs."""

    file: Path
    violations: Sequence[str]


def take_pictures(folder: Path, books: Sequence[Path], *, kinds: Collection[str], width: int) -> Iterator[Picture]:
    """Take them one after another. `kinds`: ``page``, ``lab``, or only ``run``."""
    is_run = "run" in kinds
    with browser() as chromium, TemporaryDirectory() as temporary:
        for theme, dark in THEMES.items():
            if "page" in kinds:
                yield from _of_pages(chromium, folder, books, theme=theme, width=width)
            copies = Path(temporary) / theme
            copies.mkdir()
            for file in (*books, *FOLDER.glob("*.png")):
                shutil.copy(file, copies)
            # JupyterLab's scripts are loaded and compiled once for the pages of a context; each is as high as to draw
            # every cell.
            viewport: ViewportSize = {"width": width, "height": MAX_HEIGHT}
            with (
                jupyter_lab(copies / books[0].name, Path(temporary) / f"server-{theme}", dark=dark) as address,
                chromium.new_context(viewport=viewport) as context,
            ):
                for book in books:
                    target = folder / f"{book.name[:2]}-{'run' if is_run else 'lab'}-{theme}.png"
                    at_book = address.replace(books[0].name, book.name)
                    found = _of_lab(context.new_page(), at_book, target, is_run=is_run)
                    yield Picture(target, found if is_run else [each for each in found if not JUPYTERLABS.match(each)])


def _of_pages(chromium: Browser, folder: Path, books: Sequence[Path], *, theme: Theme, width: int) -> Iterator[Picture]:
    from nbconvert import HTMLExporter

    for picture in FOLDER.glob("*.png"):
        shutil.copy(picture, folder)
    for book in books:
        html, _ = HTMLExporter(theme=theme).from_filename(str(book))  # type: ignore[no-untyped-call]
        written = folder / f"{book.stem}-{theme}.html"
        written.write_text(html)
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.goto(written.as_uri())
        target = folder / f"{book.name[:2]}-page-{theme}.png"
        yield Picture(target, _screenshot(page, target, height=page.evaluate("document.documentElement.scrollHeight")))


def _of_lab(page: Page, address: str, target: Path, *, is_run: bool) -> list[str]:
    page.goto(address, timeout=START_TIMEOUT_MS)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=START_TIMEOUT_MS)
    page.get_by_text("| Idle").wait_for(timeout=START_TIMEOUT_MS)
    if is_run:
        run_all_cells(page)
        page.get_by_text("| Idle").wait_for(timeout=RUN_TIMEOUT_MS)
    last = page.locator(".jp-Notebook .jp-Cell").last.bounding_box()
    assert last is not None
    return _screenshot(page, target, height=round(last["y"] + last["height"]) + 60)


def _screenshot(page: Page, target: Path, *, height: int) -> list[str]:
    width = (page.viewport_size or {"width": 0})["width"]
    page.set_viewport_size({"width": width, "height": min(height, MAX_HEIGHT)})
    page.wait_for_timeout(1_000)  # what is drawn by scripts
    page.screenshot(path=target, animations="disabled")
    found = violations(page, OUTPUTS, without=".jp-OutputPrompt")
    page.close()
    return [" ".join(each.split()) for each in found]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--width", type=int, default=1280)
    given = parser.parse_intermixed_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in sorted(FOLDER.glob("*.ipynb")) if not given.numbers or each.name[:2] in given.numbers]
    kinds = {"run"} if given.run else {"page", "lab"}
    for picture in take_pictures(given.folder.resolve(), chosen, kinds=kinds, width=given.width):
        print(
            f"{picture.file.name}: {picture.file.stat().st_size:,} bytes", *picture.violations, sep="\n  ", flush=True
        )
