"""Notebook 4 in a browser: a refusal is shown, and a hanging transaction is aborted with a few clicks.

``python -m tests.browser.screenshot`` takes the picture of it that the README shows.
"""

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.browser.opened import CHROMIUM, browser, panel_in
from toolkit.config import ClientConfig
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.lab.producer import TxnProducer
from toolkit.sources.live.client.broker_client import BrokerClient

if TYPE_CHECKING:
    from playwright.sync_api import Locator

MISSING = [name for name in ("playwright", "jupyterlab", "voila") if importlib.util.find_spec(name) is None]
WORKS = 30_000  # ms, for a step of the panel on a machine that does other things, too

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no {CHROMIUM}: apt-get install chromium"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


@pytest.mark.full
@pytest.mark.parametrize("server", ["JupyterLab", "Voila"])
def test_the_abort_panel_from_finding_to_released_lso(server: str, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=WORKS)
    with browser() as chromium, panel_in(server, chromium, tmp_path) as panel:
        requests: list[str] = []
        panel.page.on("request", lambda request: requests.append(request.url))
        bootstrap_servers = panel.get_by_text("checked").inner_text().split()[0]
        back = INCIDENTS["never_added"](bootstrap_servers, topic="back-to-life")
        gone = INCIDENTS["never_added"](bootstrap_servers, topic="left-alone")
        panel.get_by_role("button", name="Refresh").click()
        choose_and_check(panel, back)
        refused_by_a_wrong_confirmation(panel, back)
        refused_because_it_came_back_to_life(panel, back, bootstrap_servers)
        choose_and_check(panel, gone)
        ended(panel, gone)
        assert not [url for url in requests if urlsplit(url).hostname not in (None, "127.0.0.1")]


def choose_and_check(panel: "Locator", staged: StagedIncident) -> None:
    """Selection, with its timeline; then the dry run."""
    from playwright.sync_api import expect

    execute = panel.get_by_role("button", name="Write the abort marker")
    panel.get_by_role("button", name=f"HANGING · {staged.topic}-0").click()
    expect(panel.get_by_role("heading", name=f"{staged.topic}-0 at offset {staged.start_offset}")).to_be_visible()
    expect(panel.locator("iframe[data-drawn]")).to_be_visible()
    timeline = panel.frame_locator("iframe.drawn").locator("#figure")
    expect(timeline.get_by_text(f"{staged.topic}-0: LSO held at {staged.start_offset}")).to_be_visible()
    expect(execute).to_be_disabled()
    panel.get_by_role("button", name="Dry run").click()
    expect(panel.get_by_text("The dry run passed. Nothing was written.")).to_be_visible()
    expect(execute).to_be_enabled()


def refused_by_a_wrong_confirmation(panel: "Locator", staged: StagedIncident) -> None:
    from playwright.sync_api import expect

    confirmed(panel, "orders-0@1")
    refusal = panel.get_by_role("alert")
    expect(refusal).to_contain_text(f"does not name '{staged.topic}-0@{staged.start_offset}'")
    expect(refusal).to_contain_text("Nothing was written.")
    expect(panel.get_by_role("textbox")).to_have_value("")


def refused_because_it_came_back_to_life(panel: "Locator", staged: StagedIncident, bootstrap_servers: str) -> None:
    """Its owner adds the partition between plan and execute, and can commit all of it afterwards."""
    from playwright.sync_api import expect

    with BrokerClient(ClientConfig(bootstrap_servers)) as client:
        owner = TxnProducer(client, staged.transactional_id)
        owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
        owner.add(staged.topic, staged.partition)
        confirmed(panel, f"{staged.topic}-0@{staged.start_offset}")
        refusal = panel.get_by_role("alert")
        expect(refusal).to_contain_text("is ongoing now, not proven to be hanging")
        expect(refusal).to_contain_text("Nothing was written.")
        expect(panel.get_by_role("button", name=f"ongoing · {staged.topic}-0")).to_be_visible()
        expect(panel.get_by_role("button", name="Write the abort marker")).to_be_hidden()
        owner.end(commit=True)


def ended(panel: "Locator", staged: StagedIncident) -> None:
    """The right confirmation, and the LSO moves."""
    from playwright.sync_api import expect

    confirmed(panel, f"{staged.topic}-0@{staged.start_offset}")
    moved = re.compile(rf"The LSO moved: {staged.start_offset} → \d+")
    expect(panel.get_by_text(moved)).to_be_visible()
    expect(panel.get_by_role("alert")).to_be_hidden()
    expect(panel.get_by_role("button", name=f"HANGING · {staged.topic}-0")).to_be_hidden()


def confirmed(panel: "Locator", text: str) -> None:
    panel.get_by_role("textbox").fill(text)
    panel.get_by_role("button", name="Write the abort marker").click()
