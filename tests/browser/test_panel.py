"""An action of the panel is cancelled in a browser; what it shows and does without one is in `tests.views.panel`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import on_cluster
from tests.browser.opened import browser
from tests.browser.panel_page import panel_on
from tests.browser.test_notebook_10 import STEP_TIMEOUT_MS, needs_browser
from toolkit.actions.audit import Audit
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS

pytestmark = [pytest.mark.full, *needs_browser]


@pytest.mark.parametrize("lab", [on_cluster("4.3.1", EVERYDAY, id="4.3.1")], indirect=True)
def test_an_abort_that_waits_for_another_is_cancelled(lab: Kafka, tmp_path: Path) -> None:
    """A kernel handles a click on Cancel only if the click before it has returned."""
    from playwright.sync_api import expect

    expect.set_options(timeout=STEP_TIMEOUT_MS)
    staged = INCIDENTS["never_added"](lab)
    with browser() as chromium, panel_on(chromium, lab, [staged.topic], tmp_path / "panel") as panel:
        panel.get_by_role("button", name=f"HANGING · {staged.topic}-0 at offset {staged.start_offset}").click()
        panel.get_by_role("button", name="Dry run").click()
        expect(panel.get_by_role("heading", name="The dry run passed.")).to_be_visible()
        cancel = panel.get_by_role("button", name="Cancel")
        expect(cancel).to_be_hidden()
        with Audit(tmp_path / "panel" / "audit.jsonl").exclusive():
            panel.get_by_label("To do it, type").fill(f"{staged.topic}-0@{staged.start_offset}")
            panel.get_by_role("button", name="Write the abort marker").click()
            cancel.click()
            expect(panel.get_by_role("alert")).to_contain_text("The action was cancelled.")
        expect(panel.get_by_role("alert")).to_contain_text("Nothing was written.")
        expect(cancel).to_be_hidden()
