"""A report on paper, as a browser prints it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.browser.opened import browser
from tests.browser.test_notebook_10 import needs_browser
from tests.report_examples import EXAMPLES
from tests.views.plots.busy import finding
from toolkit.views.report import Report, report

pytestmark = [
    pytest.mark.full,
    *needs_browser,
    pytest.mark.skipif(importlib.util.find_spec("pypdfium2") is None, reason="not installed: pypdfium2"),
]
MARGIN = 14 / 25.4 * 72  # points


def printed(page_file: Path, folder: Path, paper: str) -> list[str]:
    """The text of each page; none is beyond the margins, and the first page is as large as it is meant to be."""
    import pypdfium2

    with browser() as chromium:
        page = chromium.new_page()
        page.goto(page_file.as_uri())
        page.pdf(path=folder / f"{paper}.pdf", format=paper, print_background=True)
    texts = []
    with pypdfium2.PdfDocument(folder / f"{paper}.pdf") as document:
        for sheet in document:
            text = sheet.get_textpage()
            boxes = [text.get_charbox(number) for number in range(text.count_chars())]
            drawn = [box for box in boxes if box[2] > box[0]]
            assert min(box[0] for box in drawn) > MARGIN - 2
            assert max(box[2] for box in drawn) < sheet.get_width() - MARGIN + 2, "clipped, or without a margin"
            texts.append(text.get_text_range())
    return texts


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_the_first_page_says_it_and_the_rest_proves_it(paper: str, tmp_path: Path) -> None:
    """The chart was on the fifth page, and a notebook promised one page where ten came out."""
    first, *rest = printed(EXAMPLES / "postmortem.html", tmp_path, paper)
    first = " ".join(first.split())
    for said in ("Postmortem: orders-0", "LSO", "records waited", "billing", "late-after-abort", "ABORT marker"):
        assert said in first
    assert "time (UTC)" in first, "the axis of the chart"
    assert first.index("Timeline") < first.index("Action items")
    assert rest[0].startswith("Appendix: ")
    assert len(rest) < 10


def test_names_as_long_as_kafka_allows_are_on_paper(tmp_path: Path) -> None:
    name = "a" * 249
    made: Report = report([finding(topic=name, transactional_id=name, groups_held=[name])])
    text = "".join("".join(printed(made.save(tmp_path / "report.html"), tmp_path, "A4")).split())
    assert f"{name}-0" in text
    assert f'"{name}"' in text
