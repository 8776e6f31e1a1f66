"""Notebook 10 in a browser: the panel displays refusals, and aborts a hanging transaction in a few clicks.

``python -m tests.browser.screenshot`` takes the screenshot for the README.
"""

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.browser.opened import CHROMIUM, browser, open_panel
from toolkit.config import ClientConfig
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.sources.live.broker_client import BrokerClient

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
def test_the_abort_panel_refuses_unsafe_aborts_and_releases_the_lso(server: str, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=STEP_TIMEOUT_MS)
    with browser() as chromium, open_panel(server, chromium, tmp_path) as panel:
        expect(panel.page.locator(".kafka-txn-earlier")).to_be_hidden()
        requests: list[str] = []
        panel.page.on("request", lambda request: requests.append(request.url))
        bootstrap_servers = panel.get_by_text("checked").inner_text().split()[0]
        resumed = INCIDENTS["never_added"](bootstrap_servers, topic="back-to-life")
        hanging = INCIDENTS["never_added"](bootstrap_servers, topic="left-alone")
        panel.get_by_role("button", name="Refresh").click()
        select_and_dry_run(panel, resumed)
        assert_a_wrong_confirmation_is_refused(panel, resumed)
        assert_a_resumed_transaction_is_refused(panel, resumed, bootstrap_servers)
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


def assert_a_wrong_confirmation_is_refused(panel: "Locator", staged: StagedIncident) -> None:
    from playwright.sync_api import expect

    confirm(panel, "orders-0@1")
    refusal = panel.get_by_role("alert")
    expect(refusal).to_contain_text(f"does not name '{staged.topic}-0@{staged.start_offset}'")
    expect(refusal).to_contain_text("Nothing was written.")
    expect(panel.get_by_label("To do it, type")).to_have_value("")


def assert_a_resumed_transaction_is_refused(panel: "Locator", staged: StagedIncident, bootstrap_servers: str) -> None:
    """Its owner adds the partition between plan and execute, and can still commit the transaction afterwards."""
    from playwright.sync_api import expect

    with BrokerClient(ClientConfig(bootstrap_servers)) as client:
        owner = TxnProducer(client, staged.transactional_id)
        owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
        owner.add(staged.topic, staged.partition)
        confirm(panel, f"{staged.topic}-0@{staged.start_offset}")
        refusal = panel.get_by_role("alert")
        expect(refusal).to_contain_text("is ongoing now, not proven to be hanging")
        expect(refusal).to_contain_text("Nothing was written.")
        expect(panel.get_by_role("button", name=f"ongoing · {staged.topic}-0")).to_be_visible()
        expect(panel.get_by_role("button", name="Write the abort marker")).to_be_hidden()
        owner.end(commit=True)


def abort_and_release_lso(panel: "Locator", staged: StagedIncident) -> None:
    """Confirm correctly; the LSO moves."""
    from playwright.sync_api import expect

    confirm(panel, f"{staged.topic}-0@{staged.start_offset}")
    lso_moved = re.compile(rf"the LSO moved from {staged.start_offset} to \d+")
    expect(panel.locator("p.moved", has_text=lso_moved)).to_be_visible()
    expect(panel.get_by_role("alert")).to_be_hidden()
    expect(panel.get_by_role("button", name=f"HANGING · {staged.topic}-0")).to_be_hidden()


def confirm(panel: "Locator", text: str) -> None:
    panel.get_by_label("To do it, type").fill(text)
    panel.get_by_role("button", name="Write the abort marker").click()
