"""The live page in a browser: a click on a line of the overview chooses its partition."""

from pathlib import Path

import pytest

from tests.browser.live_page import open_live_page
from tests.browser.opened import browser
from tests.browser.test_notebook_4 import STEP_TIMEOUT_MS, needs_browser

pytestmark = [pytest.mark.full, *needs_browser]


@pytest.mark.parametrize("server", ["JupyterLab", "Voila"])
def test_a_click_on_a_bar_brings_its_timeline_and_evidence(server: str, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with browser() as chromium, open_live_page(server, chromium, tmp_path) as live:
        timeline = live.locator("svg >> visible=true").nth(1)
        assert "orders-0" in (timeline.get_attribute("aria-label") or "")
        live.locator('[data-row="1"] >> visible=true').first.click()
        expect(live.get_by_role("img", name="clicks-0: LSO held").first).to_be_visible(timeout=STEP_TIMEOUT_MS)
        expect(live.get_by_text("Wait: it commits")).to_be_visible()
        expect(live.get_by_text("Evidence")).to_be_visible()
