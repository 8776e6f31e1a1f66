"""The panel's content without a broker: external text never becomes markup, and figures are self-contained."""

import base64
import datetime as dt
import gzip
import html
import json
import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from plotly.offline import get_plotlyjs

from tests.actions.rows import RowCluster, abort_plan
from tests.views.panel.panel_state import panel_text
from toolkit.actions.audit import Audit
from toolkit.actions.plan import Plan, Result
from toolkit.actions.transaction import MarkerImpact, PartitionResult
from toolkit.errors import ActionFailed, ActionRefused, BrokerError, NotFound, ToolkitError, UsageError
from toolkit.schema import Row
from toolkit.schema.coerce import Scope, Seen, SeenBrokers
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict
from toolkit.views.finding_document import by_urgency
from toolkit.views.panel.abort_panel import AbortPanel
from toolkit.views.panel.layout import (
    PAGE,
    FigureFrame,
    FindingList,
    PanelLayout,
    TimelinePicture,
    answer_section,
    evidence_section,
    next_actionable,
    problem_section,
    tone,
    traceback_parts,
    why_not_section,
)
from toolkit.views.plots import figure_html, plot_overview
from toolkit.views.renderers import html_text

NOW = dt.datetime(2026, 11, 21, 9, 0, tzinfo=dt.UTC)
EVIL = "<img src=x onerror=alert(1)>"


def finding(**changed: object) -> Finding:
    known = {
        "topic": "orders", "partition": 0, "queue_position": 1, "producer_id": 7, "producer_epoch": 0,
        "start_offset": 100, "verdict": "hanging", "outcome": "undecided", "action": "abort",
        "reason": "nobody will ever end it", "remedy": "an abort marker", "missing": [], "evidence": [],
        "records_held": 23, "held_ms": 120_000, "observed_at": NOW, "groups_held": ["billing"],
    }  # fmt: skip
    return Finding.of({**known, **changed})


def test_the_most_urgent_finding_is_first() -> None:
    found = [
        finding(verdict=Verdict.ONGOING, held_ms=900_000, action=None),
        finding(topic="young", held_ms=1_000),
        finding(topic="old", held_ms=50_000),
        finding(verdict=Verdict.UNKNOWN, action=None),
    ]
    ranked = by_urgency(found)
    assert [each.topic for each in ranked][:2] == ["old", "young"]
    assert [each.verdict for each in ranked] == ["hanging", "hanging", "unknown", "ongoing"]
    following = next_actionable(found)
    assert following
    assert following.topic == "old"
    assert next_actionable(found[:1]) is None
    assert [tone(each) for each in ranked] == ["alarm", "alarm", "warn", "calm"]


def test_external_text_never_becomes_markup() -> None:
    names = ("reason", "remedy", "cause", "transactional_id", "error")
    entry = {"source": EVIL, "broker_id": 1, "observed_at": NOW, "name": EVIL, "value": EVIL}
    said = {"groups_held": [EVIL], "missing": [EVIL], "evidence": [entry]}
    row = finding(**dict.fromkeys(names, EVIL), **said, verdict=Verdict.UNKNOWN)
    for text in (
        html_text([answer_section(row)]),
        html_text([why_not_section(row)]),
        html_text([evidence_section(row)]),
        html_text([problem_section(ActionRefused(EVIL, do=EVIL))]),
    ):
        assert "<img" not in text
        assert "&lt;img" in text


def test_every_error_has_a_heading_and_only_bugs_a_traceback() -> None:
    for kind in ToolkitError.__subclasses__():
        error = kind.__new__(kind)
        ToolkitError.__init__(error, "It is so.", means="It means this.", do="Do that.")
        for reported in ("It is so.", "It means this.", "Do that."):
            assert reported in html_text([problem_section(error)])
        assert html_text(traceback_parts(error)) == ""
    assert "ZeroDivisionError" in html_text(traceback_parts(ZeroDivisionError("x")))


def test_a_figure_is_self_contained_with_one_script() -> None:
    frame = FigureFrame()
    figure = plot_overview([finding()])
    figure.data[0].name = f"</script>{EVIL}<!--"
    frame.show(TimelinePicture(figures={"light": figure, "dark": figure}, problems=[]))
    script, data = frame.children
    page = re.sub(r'<script type="text/plain" id="packed">.*?</script>', "", _srcdoc(script.value), flags=re.DOTALL)
    assert not re.search(r"https?:|//[a-z]|\bsrc=|\bimport\b", page), "it asks nobody for anything"
    packed = re.search(r'id="packed">([^<]*)<', _srcdoc(script.value))
    assert packed
    assert gzip.decompress(base64.b64decode(packed[1])).decode() == get_plotlyjs()
    assert len(script.value) < 2_500_000
    inside, _, still = data.value.removeprefix('<script type="application/json">').partition("</script>")
    assert "<" not in inside
    assert json.loads(inside)["dark"]["data"][0]["name"].startswith("</script>")
    assert EVIL not in still
    frame.show(TimelinePicture(figures={"light": figure, "dark": figure}, problems=[]))
    assert frame.children == (script, data)


def test_without_scripts_a_static_picture_is_shown() -> None:
    figure = plot_overview([finding()])
    frame = FigureFrame()
    frame.show(TimelinePicture(figures={"light": figure, "dark": figure}, problems=[]))
    still = frame.children[1].value.partition("</script>")[2]
    assert f'<div class="still">{figure_html(figure)}</div>' == still
    frame.clear()
    assert frame.children[1].value == ""


def impact(**changed: Any) -> MarkerImpact:
    known = {"records": 1, "size": 80, "first_offset": 5, "last_offset": 5, "records_released": 3, "groups": ()}
    lso = {"last_stable_offset": 5, "next_stable_offset": 9, "next_start_offset": None, "next_producer_id": None}
    return MarkerImpact(**{**known, **lso, **changed})


def result(after: int, *, next_start_offset: int | None = None) -> PartitionResult:
    return PartitionResult(
        topic="orders",
        partition=0,
        last_stable_offset_before=5,
        last_stable_offset_after=after,
        high_watermark=12,
        next_start_offset=next_start_offset,
        observed_at=NOW,
    )


def plan(planned: MarkerImpact, **more: Any) -> Plan:
    cluster: Any = RowCluster()
    return abort_plan(cluster, impact=planned, start_offset=5, **more)


def many(number: int) -> list[Finding]:
    return [
        finding(topic="orders", partition=each, records_held=each, transactional_id=f"writer-{each}")
        for each in range(number)
    ]


def test_every_one_of_five_hundred_findings_can_be_found_and_chosen() -> None:
    """440 of 500 hanging ones were left out as "less urgent"."""
    chosen: list[Finding] = []
    said: list[str] = []
    listed = FindingList(chosen.append, said.append)
    healthy = finding(topic="alive", verdict=Verdict.ONGOING, records_held=9_000, action=None)
    listed.show([healthy, *many(499)], None)
    buttons = listed.choices.children
    assert len(buttons) == PAGE, "the page, and not one for each finding"
    assert buttons[0].description.startswith("HANGING · orders-0"), "of one age by partition"
    listed.search.value = "writer-17 HANGING"
    assert "11 of 500 findings match." in said
    assert [each.partition for each in listed.matches] == [17, *range(170, 180)]
    buttons[0].click()
    assert [each.partition for each in chosen] == [17]
    listed.search.value = ""
    for _ in range(30):
        listed.next_page.click()
    assert (listed.page, listed.next_page.disabled, listed.previous_page.disabled) == (19, True, False)
    assert buttons is listed.choices.children, "the same buttons, so that the focus stays"
    buttons[PAGE - 1].click()
    assert chosen[-1] is healthy, "the least urgent is on the last page"
    assert "476 to 500 of 500, the most urgent first" in listed._count.value
    listed.search.value = "no such topic"
    assert "none of 500" in listed._count.value
    listed.search.value = ""
    listed.show(many(2), None)
    assert [each.layout.display for each in buttons[:3]] == [None, None, "none"]


def test_findings_that_are_alike_are_a_group_and_the_search_shows_what_it_found() -> None:
    """500 findings of one application were 20 pages of buttons, and a search for a producer id showed none."""
    listed = FindingList(lambda chosen: None, lambda said: None)
    other = finding(topic="refunds", transactional_id=None, producer_id=987_654, cause=None)
    listed.show([*many(499), other], None)
    label, *_ = [each for each in listed.group.options if each.startswith("499 partitions: hanging")]
    listed.group.value = label
    assert len(listed.matches) == 499
    assert other not in listed.matches
    listed.search.value = "writer-17"
    assert len(listed.matches) == 11
    listed.search.value, listed.group.value = "987654", listed.group.options[0]
    assert "producer 987654" in listed.choices.children[0].description
    listed.show([other], None)
    assert (listed.group.value, listed.group.layout.display) == ("all findings", "none")


def _srcdoc(value: str) -> str:
    found = re.search(r'srcdoc="([^"]*)"', value)
    assert found
    return html.unescape(found[1])


def test_what_has_no_action_in_the_panel_may_need_one() -> None:
    """After an abort, a transaction of which evidence was missing was `Nothing else needs an action.`"""
    unknown = finding(verdict="unknown", action=None)
    said = {}
    for listed in (unknown, finding(verdict="ongoing", action=None)):
        panel: Any = SimpleNamespace(
            step="done",
            ended=plan(impact()),
            result=Result(partitions=[result(9)]),
            findings=[listed],
            audit=SimpleNamespace(path="audit.jsonl"),
            _html=lambda *parts: html_text(parts),
        )
        said[listed.verdict] = "Nothing else needs an action." in PanelLayout._done(panel)
    assert said == {"unknown": False, "ongoing": True}


class PanelCluster(RowCluster):
    """Finds a transaction on ``orders-0``; with `named`, answers about that partition by name, or raises it."""

    scope = Scope(
        partitions=Seen(seen=1, not_seen=0),
        brokers=SeenBrokers(seen=[1]),
        transactional_ids=Seen(seen=0, not_seen=0),
        open_elsewhere=0,
        open_only=True,
    )
    scope_text = scope.text()
    named: Finding | ToolkitError | None = None
    kind = "files"  # so that no command needs a connection

    def finding_rows(self, **arguments: Any) -> list[Row]:
        self._called("finding_rows", arguments)
        if "partitions" not in arguments or arguments["partitions"] is None or self.named is None:
            return [*self.findings]
        if isinstance(self.named, ToolkitError):
            raise self.named
        return [self.named.row()]

    def records(self, *_: object, **arguments: Any) -> list[Any]:
        raise BrokerError("No picture is drawn.", code="NONE", do="")


GONE = finding(verdict=Verdict.CLEAR, producer_id=None, start_offset=None, action=None)
UNREAD = finding(verdict=Verdict.UNKNOWN, producer_id=None, start_offset=None, error="LEADER_NOT_AVAILABLE: no leader")
LOST = ActionFailed("It did not answer.", effect="uncertain", do="")


def acted(cluster: PanelCluster, error: BaseException, trail: Audit, monkeypatch: pytest.MonkeyPatch) -> AbortPanel:
    """A panel about another topic in which the action on ``orders-0`` ends so."""
    panel = AbortPanel(cast("Any", cluster), topics=["payments"], audit=trail, recheck_after=0)
    panel.select(finding())
    panel.plan, panel.step = plan(impact()), "checked"
    monkeypatch.setattr(Plan, "execute", Mock(side_effect=error))
    with pytest.raises(KeyboardInterrupt) if isinstance(error, KeyboardInterrupt) else nullcontext():
        panel.execute("orders-0@5")
    assert panel.error is error
    return panel


def became(panel: AbortPanel) -> list[str]:
    """What a refresh says of it."""
    panel.refresh()
    return [each for each in panel.problems if "uncertain" in each]


@pytest.mark.parametrize(
    ("named", "now"),
    [
        (GONE, "is not open any more"),
        (finding(), "is still open"),
        (UNREAD, "may be open: its partition could not be read (LEADER_NOT_AVAILABLE)"),
        (
            NotFound("There is no topic 'orders'.", do=""),
            "may be open: its partition could not be read (There is no topic 'o",
        ),
    ],
)
def test_what_became_of_an_uncertain_action_is_read_and_said_until_it_has_ended(
    named: Any, now: str, trail: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a partition that the panel is not about, or that is hidden by now, it was `not open any more`.

    What was open in the first look was not said again, though its request could still be on its way.
    """
    cluster = PanelCluster(findings=[])
    panel = acted(cluster, LOST, trail, monkeypatch)
    panel.execute("orders-0@5")
    assert isinstance(panel.error, UsageError), "a later failure does not forget it"
    cluster.named = named
    for again in (True, named is not GONE):
        assert [
            each.startswith(f"orders-0 at offset 100, whose action was uncertain, {now}") for each in became(panel)
        ] == [True] * again


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a defect")])
def test_what_was_interrupted_may_have_been_done(
    error: BaseException, trail: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupt of the kernel the panel still said `The dry run passed. Nothing was written.`"""
    error.add_note("The ABORT marker was written.")
    cluster = PanelCluster(findings=[])
    cluster.named = GONE
    panel = acted(cluster, error, trail, monkeypatch)
    assert (panel.plan, panel.step) == (None, "chosen")
    assert "Nothing was written" not in panel_text(panel)
    assert "The ABORT marker was written." in panel_text(panel)
    assert became(panel) == ["orders-0 at offset 100, whose action was uncertain, is not open any more."]


def test_what_refused_it_leaves_nothing_uncertain(trail: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = acted(
        PanelCluster(findings=[]), ActionFailed("It did not answer.", effect="nothing", do=""), trail, monkeypatch
    )
    assert became(panel) == []


def test_an_interrupt_is_no_defect_of_the_toolkit() -> None:
    interrupted, defect = (problem_section(each) for each in (KeyboardInterrupt(), RuntimeError("no key")))
    assert interrupted.title == "Interrupted"
    assert "bug" not in str(interrupted.parts)
    assert (defect.title, defect.lead) == ("Unexpected error", "RuntimeError: no key")
    assert "This is a bug in the toolkit, not a result about the cluster." in str(defect.parts)
