"""A table that `show` drew, in a browser without a server."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.browser.opened import browser
from tests.browser.test_notebook_10 import needs_browser
from toolkit.lab.samples import load
from toolkit.schema import FINDINGS, STATISTICS
from toolkit.views import show

pytestmark = [pytest.mark.full, *needs_browser]


def test_a_saved_cell_is_no_formula(tmp_path: Path) -> None:
    """A spreadsheet ran a transactional id that begins with an equals sign; numbers stay numbers."""
    (row,) = load("orphan").finding_rows()
    ids = ["=1+1", "+cmd", "@sum", "-x", "plain", "-5"]
    rows = [{**row, "partition": place, "transactional_id": each} for place, each in enumerate(ids * 2)]
    page_file = tmp_path / "table.html"
    page_file.write_text(
        f"<!doctype html>{show(rows, FINDINGS, columns=['transactional_id', 'partition'])._repr_html_()}"
    )
    with browser() as chromium:
        page = chromium.new_page()
        page.goto(page_file.as_uri())
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        saved = list(csv.reader(Path(download.value.path()).read_text().splitlines()))
    assert [cells[0] for cells in saved[1:7]] == ["'=1+1", "'+cmd", "'@sum", "'-x", "plain", "-5"]
    assert saved[0] == ["transactional_id", "partition"]


def test_a_column_of_fractions_is_sorted(tmp_path: Path) -> None:
    """BigInt takes no fraction: a click on the heading did nothing."""
    means = [1234.5, 9.0, 20.25] * 4
    rows = [{"topic": "orders", "partition": number, "duration_ms_mean": each} for number, each in enumerate(means)]
    page_file = tmp_path / "table.html"
    columns = ["partition", "duration_ms_mean"]
    page_file.write_text(f"<!doctype html>{show(rows, STATISTICS, columns=columns)._repr_html_()}")
    with browser() as chromium:
        page = chromium.new_page()
        page.goto(page_file.as_uri())
        page.get_by_role("button", name="duration").click()
        page.wait_for_selector('th[aria-sort="ascending"]')
        shown = page.locator("tbody td:nth-child(2)").all_inner_texts()
    assert shown == ["9.0"] * 4 + ["20.25"] * 4 + ["1,234.5"] * 4
