"""The panel in a browser, on clusters whose partitions have several open transactions, or one that lacks its marker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actions.test_abort import read_committed
from tests.brokers import on_cluster
from tests.browser.opened import browser
from tests.browser.panel_page import panel_on
from tests.browser.test_notebook_10 import STEP_TIMEOUT_MS, needs_browser
from toolkit.actions.audit import Audit
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, REPLICATED

pytestmark = [pytest.mark.full, *needs_browser]


@pytest.mark.parametrize("lab", [on_cluster("4.3.1", EVERYDAY, id="4.3.1")], indirect=True)
@pytest.mark.parametrize("count", [2, 5])
def test_several_transactions_are_open_on_one_partition(lab: Kafka, count: int, tmp_path: Path) -> None:
    """The panel failed with a KeyError once two transactions were open on any partition, healthy ones, too."""
    from playwright.sync_api import expect

    expect.set_options(timeout=STEP_TIMEOUT_MS)
    first = INCIDENTS["open_young"](lab)
    staged = [first, *(INCIDENTS["open_young"](lab, topic=first.topic) for _ in range(count - 1))]
    with browser() as chromium, panel_on(chromium, lab, [first.topic], tmp_path / "panel") as panel:
        for place, each in enumerate(staged):
            name = f"ongoing · {each.topic}-0 at offset {each.start_offset}"
            choice = panel.get_by_role("button", name=name)
            expect(choice).to_contain_text("held" if not place else f"behind {place} other")
            choice.click()
            expect(panel.get_by_role("heading", name=f"{each.topic}-0 at offset {each.start_offset}")).to_be_visible()
            expect(panel.get_by_text("No action here: ongoing")).to_be_visible()
            expect(panel.get_by_role("button", name="Dry run")).to_be_hidden()
        expect(panel.get_by_role("alert")).to_be_hidden()
        expect(panel.get_by_text("Traceback")).to_be_hidden()
    for each in staged:
        each.close()


@pytest.mark.parametrize("lab", [on_cluster("4.3.1", REPLICATED, id="4.3.1")], indirect=True)
def test_a_commit_whose_marker_was_skipped_is_completed(lab: Kafka, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=STEP_TIMEOUT_MS)
    staged = INCIDENTS["skipped_marker"](lab)
    target = f"{staged.topic}-0@{staged.start_offset}"
    received = read_committed(lab, staged.topic, staged.partition)
    with browser() as chromium, panel_on(chromium, lab, [staged.topic], tmp_path / "panel") as panel:
        execute = panel.get_by_role("button", name="Write the COMMIT marker")
        panel.get_by_role("button", name=f"stuck_ending · {staged.topic}-0 at offset {staged.start_offset}").click()
        expect(panel.get_by_role("heading", name=f"{staged.topic}-0 at offset {staged.start_offset}")).to_be_visible()
        expect(panel.locator("iframe[data-drawn]")).to_be_visible()
        expect(panel.get_by_text("Never an abort marker: these records are committed.").first).to_be_visible()
        expect(execute).to_be_disabled()
        panel.get_by_role("button", name="Dry run").click()
        expect(panel.get_by_role("heading", name="The dry run passed.")).to_be_visible()
        expect(panel.get_by_text("its records, which become visible to read_committed consumers: 1")).to_be_visible()
        panel.get_by_label("To do it, type").fill("orders-0@1")
        execute.click()
        expect(panel.get_by_role("alert")).to_contain_text(f"does not name '{target}'")
        panel.get_by_label("To do it, type").fill(target)
        execute.click()
        expect(
            panel.locator("p.moved", has_text=f"the LSO moved from {staged.start_offset} to {staged.start_offset + 2}")
        ).to_be_visible()
        expect(panel.get_by_text("A read_committed consumer received 1 of 1 records of it.")).to_be_visible()
        expect(panel.get_by_role("alert")).to_be_hidden()
    assert read_committed(lab, staged.topic, staged.partition) == received + 1


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
