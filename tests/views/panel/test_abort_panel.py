"""The abort panel on a real broker, by its buttons and traits: the road to a moved LSO, and everything that refuses."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.views.panel.panel_state import button, checked, finding_of, is_visible, panel_on, panel_text, selected
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.errors import ActionRefused, UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema import Row
from toolkit.views.panel import AbortPanel

pytestmark = pytest.mark.lab


def write_marker(panel: AbortPanel) -> None:
    """Click, and wait for the end."""
    button(panel, "Write the abort marker").click()
    for thread in executing():
        thread.join()


def executing() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "kafka-txn-panel"]


def test_an_abort_moves_the_lso_and_selects_the_next_finding(kafka: Kafka, cluster: Cluster, trail: Audit) -> None:
    one, other = INCIDENTS["late_message"](kafka), INCIDENTS["never_added"](kafka)
    with INCIDENTS["open_young"](kafka) as healthy:
        panel = panel_on(cluster, trail, one, other, healthy)
        assert [row.verdict for row in panel.findings if row.producer_id] == [
            each.expected for each in sorted((one, other, healthy), key=lambda each: each.topic)
        ]
        assert "2 partitions hang, 1 ongoing" in panel_text(panel)
        assert kafka.bootstrap_servers in panel_text(panel)

        button(panel, f"HANGING · {one.topic}-0 at offset {one.start_offset}").click()
        assert panel.step == "chosen"
        assert selected(panel).reason in panel_text(panel)
        assert panel.buttons["execute"].disabled
        assert panel.picture
        assert panel.picture.figures.keys() == {"light", "dark"}

        button(panel, "Dry run").click()
        plan = panel.plan
        assert plan
        assert not panel.buttons["execute"].disabled
        assert "The dry run passed. Nothing was written." in panel_text(panel)
        own = f"kafka-txn abort --bootstrap-server {panel.cluster.bootstrap_servers} --topic {one.topic} --partition 0"
        assert f"{own} --start-offset {one.start_offset}" in panel_text(panel)
        assert "kafka-transactions.sh" not in panel_text(panel), "no command without these checks beside it"
        assert trail.rows() == []
        assert plan.check(recheck_after=0.1).verdict == "hanging"

        panel.confirmation.value = plan.target
        write_marker(panel)
        assert (panel.step, panel.error, panel.ended) == ("done", None, plan)
        assert panel.result
        after = panel.result.last_stable_offset_after
        assert panel.result.last_stable_offset_before == one.start_offset
        assert after is not None
        assert after > one.start_offset
        assert f"the LSO moved from {one.start_offset} to {after}" in panel_text(panel)
        assert panel.picture, "before and after the action"
        assert f"LSO was held at {one.start_offset} for" in panel.picture.figures["light"].layout.title.text
        assert list(panel.audit.frame()["step"]) == ["intent", "outcome"] == [row["step"] for row in panel.actions]

        button(panel, "Next: HANGING").click()
        assert selected(panel).topic == other.topic
        assert "the LSO moved from" not in panel_text(panel)
        panel.dry_run()
        panel.execute(f"{other.topic}-0@{other.start_offset}")
        assert "Nothing else needs an action." in panel_text(panel)
        assert not is_visible(panel, panel.buttons["next"])
        assert [row.verdict for row in panel.findings if row.start_offset is not None] == ["ongoing"]


def test_an_abort_is_cancelled_while_it_waits(kafka: Kafka, cluster: Cluster, trail: Audit) -> None:
    staged = INCIDENTS["never_added"](kafka)
    panel = panel_on(cluster, trail, staged)
    checked(panel, staged)
    assert not is_visible(panel, panel.buttons["cancel"])
    panel.confirmation.value = f"{staged.topic}-0@{staged.start_offset}"
    with trail.exclusive():  # another abort has the audit trail
        button(panel, "Write the abort marker").click()
        until(lambda: (not panel.typed and is_visible(panel, panel.buttons["cancel"])) or None, awaited="the button")
        button(panel, "Cancel").click()
        for thread in executing():
            thread.join()
    assert isinstance(panel.error, ActionRefused)
    assert "The action was cancelled. Means Nothing was written." in panel_text(panel)
    assert not is_visible(panel, panel.buttons["cancel"])
    assert (finding_of(panel, staged).verdict, panel.step, panel.result) == ("hanging", "chosen", None)
    checked(panel, staged)
    panel.execute(f"{staged.topic}-0@{staged.start_offset}")
    assert panel.step == "done", "an earlier cancel does not count"


def test_the_panel_works_without_plotly(
    kafka: Kafka, cluster: Cluster, trail: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = INCIDENTS["never_added"](kafka)
    panel = panel_on(cluster, trail, staged)
    monkeypatch.setitem(sys.modules, "toolkit.views.plots", None)
    panel.select(finding_of(panel, staged))
    assert (panel.error, panel.step) == (None, "chosen")
    assert "The timeline is not known" in panel_text(panel)


class Faulty(Cluster):
    """It raises an unexpected error as often as requested."""

    fails: BaseException | None = None
    requests = 0

    def finding_rows(self, **arguments: Any) -> list[Row]:
        self.requests += 1
        if self.fails:
            raise self.fails
        return super().finding_rows(**arguments)


@pytest.fixture
def faulty(kafka: Kafka) -> Iterator[Faulty]:
    with Faulty(kafka.bootstrap_servers) as connected:
        yield connected


def test_an_unexpected_error_is_shown_and_logged(
    kafka: Kafka, faulty: Faulty, trail: Audit, caplog: pytest.LogCaptureFixture
) -> None:
    staged = INCIDENTS["never_added"](kafka)
    panel = panel_on(faulty, trail, staged)
    checked(panel, staged)
    faulty.fails = RuntimeError("<b>what</b> is this?")
    button(panel, "Refresh").click()
    assert panel.error is faulty.fails
    assert "Unexpected error RuntimeError: <b>what</b> is this?" in panel_text(panel)
    assert "in finding_rows" in panel_text(panel)
    assert "RuntimeError" in caplog.text
    faulty.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        panel.refresh()
    assert "Interrupted KeyboardInterrupt" in panel_text(panel)
    assert not panel.buttons["refresh"].disabled
    faulty.fails = None
    panel.refresh()
    assert panel.error is None
    assert "Unexpected" not in panel_text(panel)


def test_a_button_does_not_run_twice(kafka: Kafka, faulty: Faulty, trail: Audit) -> None:
    staged = INCIDENTS["never_added"](kafka)
    panel = panel_on(faulty, trail, staged)
    before = faulty.requests
    panel.buttons["refresh"].click()
    panel.buttons["refresh"].click()  # the second half of a double click has waited for the first
    assert faulty.requests == before + 1

    going = threading.Event()

    def watch(_: object) -> None:
        if panel.busy:
            going.set()

    panel.observe(watch, "busy")
    worker = threading.Thread(target=panel.refresh)  # as JupyterLab does, which has a thread for callbacks
    worker.start()
    assert going.wait(10)
    with pytest.raises(UsageError, match="at work: Reading the cluster"):
        panel.refresh()
    panel.buttons["dry_run"].click()
    worker.join(30)
    assert faulty.requests == before + 2
    assert panel.error is None
