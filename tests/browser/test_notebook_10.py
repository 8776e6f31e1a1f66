"""Notebook 10 in a browser: the panel aborts a hanging transaction in a few clicks, and loads nothing from elsewhere.

What it refuses is in `tests.views.panel`; ``python -m tests.browser.screenshot`` takes the screenshot for the README.
"""

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.browser.opened import CHROMIUM, browser, open_panel
from toolkit.lab.incidents import INCIDENTS, StagedIncident

if TYPE_CHECKING:
    from playwright.sync_api import Locator

MISSING_PACKAGES = [name for name in ("playwright", "jupyterlab", "voila") if importlib.util.find_spec(name) is None]
STEP_TIMEOUT_MS = 120_000  # for a step of the panel on a busy machine

needs_browser = [
    pytest.mark.lab,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no {CHROMIUM}: apt-get install chromium"),
    pytest.mark.skipif(bool(MISSING_PACKAGES), reason=f"not installed: {', '.join(MISSING_PACKAGES)}"),
]
pytestmark = needs_browser


@pytest.mark.full
@pytest.mark.parametrize("server", ["JupyterLab", "Voila"])
def test_the_abort_panel_releases_the_lso(server: str, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=STEP_TIMEOUT_MS)
    with browser() as chromium, open_panel(server, chromium, tmp_path) as panel:
        expect(panel.page.locator(".kafka-txn-earlier")).to_be_hidden()
        requests: list[str] = []
        panel.page.on("request", lambda request: requests.append(request.url))
        bootstrap_servers = panel.get_by_text("checked").inner_text().split()[0]
        hanging = INCIDENTS["never_added"](bootstrap_servers, topic="left-alone")
        panel.get_by_role("button", name="Refresh").click()
        select_and_dry_run(panel, hanging)
        abort_and_release_lso(panel, hanging)
        assert not [url for url in requests if urlsplit(url).hostname not in (None, "127.0.0.1")]


def select_and_dry_run(panel: "Locator", staged: StagedIncident) -> None:
    """Select a finding, check its timeline, and do the dry run."""
    from playwright.sync_api import expect

    execute = panel.get_by_role("button", name="Write the abort marker")
    panel.get_by_role("button", name=f"HANGING · {staged.topic}-0").click()
    expect(panel.get_by_role("heading", name=f"{staged.topic}-0 at offset {staged.start_offset}")).to_be_visible()
    expect(panel.locator("iframe[data-drawn]")).to_be_visible()
    timeline = panel.frame_locator("iframe.drawn").locator("#figure")
    expect(timeline.get_by_text(f"{staged.topic}-0: LSO held at {staged.start_offset}")).to_be_visible()
    expect(execute).to_be_disabled()
    panel.get_by_role("button", name="Dry run").click()
    expect(panel.get_by_role("heading", name="The dry run passed.")).to_be_visible()
    expect(execute).to_be_enabled()


def abort_and_release_lso(panel: "Locator", staged: StagedIncident) -> None:
    """Confirm correctly; the LSO moves."""
    from playwright.sync_api import expect

    panel.get_by_label("To do it, type").fill(f"{staged.topic}-0@{staged.start_offset}")
    panel.get_by_role("button", name="Write the abort marker").click()
    lso_moved = re.compile(rf"the LSO moved from {staged.start_offset} to \d+")
    expect(panel.locator("p.moved", has_text=lso_moved)).to_be_visible()
    expect(panel.get_by_role("alert")).to_be_hidden()
    expect(panel.get_by_role("button", name=f"HANGING · {staged.topic}-0")).to_be_hidden()
