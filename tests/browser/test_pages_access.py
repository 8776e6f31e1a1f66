"""axe and the width of what is stored: every notebook as a page, and a postmortem, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.notebook_pictures import OUTPUTS, THEMES, Theme, take_pictures
from tests.browser.opened import browser
from tests.browser.test_panel_access import pytestmark, violations
from tests.notebooks.books import BOOKS
from tests.report_examples import EXAMPLES
from tests.views.plots.busy import finding
from toolkit.views import show
from toolkit.views.report import report

__all__ = ["pytestmark"]

NARROW = 900
NARROWEST_LABEL = 40  # pixels
LONGEST = 249  # letters in a topic's name


def found_in(page_file: Path, within: str, theme: Theme) -> list[str]:
    """Violations, and whether the page or a table of findings is wider than the window, or a label too narrow.

    Labels of documents had a fifth of their column in nbconvert's style, and broke letter by letter; with long names
    the group and the transaction were beyond the edge of the table.
    """
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": NARROW, "height": 900}, color_scheme=theme)
        page.goto(page_file.as_uri())
        found = violations(page, within, without=".jp-OutputPrompt")
        width = page.evaluate("document.documentElement.scrollWidth")
        labels = page.locator(".kafka-txn-document dt").evaluate_all("all => all.map(each => each.clientWidth)")
        tables = page.locator(".kafka-txn.answers .scroll").evaluate_all("all => all.map(each => each.scrollWidth)")
    torn = [f"a label of {label} px" for label in labels if label < NARROWEST_LABEL]
    return [*found, *torn, *[f"{each} px" for each in (width, *tables) if each > NARROW]]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_as_a_page(path: Path, theme: Theme, tmp_path: Path) -> None:
    """Two tables of one kind were landmarks of one name."""
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter(theme=theme).from_filename(str(path))  # type: ignore[no-untyped-call]
    (tmp_path / "page.html").write_text(html)
    assert found_in(tmp_path / "page.html", OUTPUTS, theme) == []


def test_notebooks_in_jupyterlab_that_does_not_trust_them(tmp_path: Path) -> None:
    """As a fresh clone opens them, in a narrow window, light and dark."""
    pictures = list(take_pictures(tmp_path, BOOKS, kinds={"lab"}, width=NARROW))
    assert len(pictures) == len(THEMES) * len(BOOKS)
    assert {each.file.name: each.violations for each in pictures if each.violations} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_a_postmortem_and_names_as_long_as_kafka_allows(theme: Theme, tmp_path: Path) -> None:
    assert found_in(EXAMPLES / "postmortem.html", "body", theme) == []
    name = "a" * LONGEST
    # a paragraph, the cause, made the page 2,240 px wide
    rows = [
        finding(topic=name, transactional_id=name, groups_held=[name], cause=f"none includes {name}-0 (never-added)")
    ]
    saved = report(rows).save(tmp_path / "report.html")
    assert found_in(saved, "body", theme) == []
    (tmp_path / "table.html").write_text(f"<html lang=en><title>x</title><main>{show(rows)._repr_html_()}</main>")
    assert found_in(tmp_path / "table.html", "main", theme) == []
