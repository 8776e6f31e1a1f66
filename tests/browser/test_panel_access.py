"""The panel without a mouse and for a screen reader: from a finding to the postmortem, with axe at each step."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.brokers import on_cluster
from tests.browser.opened import browser
from tests.browser.panel_page import panel_on
from tests.browser.test_notebook_10 import STEP_TIMEOUT_MS, needs_browser
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = "axe_playwright_python"
pytestmark = [
    pytest.mark.full,
    *needs_browser,
    pytest.mark.skipif(importlib.util.find_spec(AXE) is None, reason="not installed: axe-playwright-python"),
]


def violations(page: Page, within: str = ".kafka-txn-panel", without: str = "script") -> list[str]:
    """What axe finds in parts of a page and in their frames, but for parts of these."""
    if not page.locator(within).count():
        return []
    script = (resources.files(AXE) / "axe.min.js").read_text(encoding="utf-8")
    for frame in page.frames:
        frame.evaluate(f"window.axe === undefined && (() => {{ {script} }})()")
    found = page.evaluate(f"axe.run({{include: [[{within!r}]], exclude: [[{without!r}]]}})")
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("lab", [on_cluster("4.3.1", EVERYDAY, id="4.3.1")], indirect=True)
@pytest.mark.parametrize("server", ["Voila", "JupyterLab"])
def test_from_a_finding_to_the_postmortem_by_keyboard(server: str, lab: Kafka, tmp_path: Path) -> None:
    """Accordions could not be reached, each step lost the focus, and the field had no name."""
    from playwright.sync_api import expect

    expect.set_options(timeout=STEP_TIMEOUT_MS)
    staged = INCIDENTS["never_added"](lab)
    target = f"{staged.topic}-0@{staged.start_offset}"
    folder = tmp_path / "panel"
    with browser() as chromium, panel_on(chromium, lab, [staged.topic], folder, server=server) as panel:
        press = panel.page.keyboard.press
        live = panel.get_by_role("status")
        choice = panel.get_by_role("button", name=f"HANGING · {staged.topic}-0")
        choice.focus()
        press("Enter")
        expect(panel.get_by_role("heading", name=f"{staged.topic}-0 at offset")).to_be_visible()
        expect(panel.locator("iframe[data-drawn]")).to_be_visible()
        expect(choice).to_be_focused()
        expect(choice).to_have_attribute("aria-pressed", "true")
        expect(live).to_contain_text(f"Chosen: HANGING · {staged.topic}-0")
        assert not (found := violations(panel.page)), "\n".join(found)

        press("Tab")
        if panel.get_by_role("button", name=f"clear · {staged.topic}-1").is_visible():
            press("Tab")
        expect(panel.get_by_role("button", name="Copy")).to_be_focused()
        press("Tab")
        expect(panel.get_by_role("link", name="kafka-txn-toolkit/").first).to_be_focused()
        press("Tab")
        evidence = panel.locator("summary", has_text="All evidence")
        expect(evidence).to_be_focused()
        press("Enter")
        expect(panel.get_by_role("columnheader", name="source").first).to_be_visible()
        press("Enter")
        press("Tab")
        dry_run = panel.get_by_role("button", name="Dry run")
        expect(dry_run).to_be_focused()
        press("Enter")
        expect(live).to_contain_text(f"The dry run passed. Nothing was written. To do it, type {target}.")
        expect(dry_run).to_be_focused()
        assert not (found := violations(panel.page)), "\n".join(found)

        press("Tab")
        field = panel.get_by_role("textbox", name=f"To do it, type {target}")
        expect(field).to_be_focused()
        panel.page.keyboard.type("yes")
        press("Tab")
        press("Enter")
        expect(panel.get_by_role("alert")).to_contain_text(f"does not name '{target}'")
        press("Shift+Tab")
        for _ in range(6):  # the focus is on the problem, which is behind the buttons
            if field.evaluate("each => each === document.activeElement"):
                break
            press("Shift+Tab")
        expect(field).to_be_focused()
        panel.page.keyboard.type(target)
        press("Tab")
        press("Enter")
        moved = panel.locator("p.moved", has_text=f"the LSO moved from {staged.start_offset} to")
        expect(moved).to_be_visible()
        expect(live).to_contain_text(f"Ended: {staged.topic}-0: the LSO moved")
        expect(moved).to_be_in_viewport()
        assert panel.page.evaluate("document.activeElement.innerText").startswith("ended")
        assert not (found := violations(panel.page)), "\n".join(found)

        panel.get_by_role("textbox", name="Error text").fill("ProducerFencedException: ...")
        explain = panel.get_by_role("button", name="Explain")
        explain.focus()
        press("Enter")
        expect(panel.get_by_role("heading", name="producer-fenced")).to_be_visible()
        panel.get_by_role("button", name="Make the postmortem").focus()
        press("Enter")
        page = panel.frame_locator("iframe[title^='Postmortem']")
        expect(page.get_by_role("heading", name=f"{staged.topic}-0").first).to_be_visible()
        expect(page.get_by_text("It is over: ").first).to_be_visible()
        with panel.page.expect_download() as download:
            panel.get_by_role("link", name="Download postmortem.html").press("Enter")
        assert target in Path(download.value.path()).read_text(encoding="utf-8")
        assert not (found := violations(panel.page)), "\n".join(found)
