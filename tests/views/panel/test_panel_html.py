"""The panel's content without a broker: external text never becomes markup, and figures are self-contained."""

import base64
import datetime as dt
import gzip
import html
import json
import re
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from toolkit.actions.abort import AbortResult
from toolkit.errors import ActionRefused, ToolkitError
from toolkit.schema.live import Finding, Partition
from toolkit.views.panel.panel_html import (
    answer_html,
    choice,
    done_html,
    evidence_html,
    next_actionable,
    problem_html,
    rank_findings,
    tone,
    traceback_html,
    why_not_html,
)
from toolkit.views.panel.timeline_picture import FigureFrame, TimelinePicture
from toolkit.views.report.gap_chart import gap_chart

NOW = dt.datetime(2026, 11, 21, 9, 0, tzinfo=dt.UTC)
EVIL = "<img src=x onerror=alert(1)>"


def finding(**changed: object) -> Finding:
    known = {
        "topic": "orders",
        "partition": 0,
        "queue_position": 1,
        "producer_id": 7,
        "producer_epoch": 0,
        "start_offset": 100,
        "verdict": "hanging",
        "outcome": "undecided",
        "action": "abort",
        "reason": "nobody will ever end it",
        "remedy": "an abort marker",
        "missing": [],
        "evidence": [],
        "records_held": 23,
        "held_ms": 120_000,
        "observed_at": NOW,
        "groups_held": ["billing"],
    }
    return Finding.of({**known, **changed})


def test_a_choice_starts_with_its_verdict() -> None:
    assert choice(finding()) == (
        "HANGING · orders-0 at offset 100 · 23 records held · for 2 min · billing cannot read on"
    )
    idle = finding(
        verdict="clear", start_offset=None, records_held=None, held_ms=None, groups_held=None, queue_position=None
    )
    assert choice(idle) == "clear · orders-0"
    assert choice(finding(topic=None, verdict="unknown", records_held=None, offsets_held=5)).startswith(
        "unknown · the whole cluster at offset 100 · 5 offsets held"
    )


def test_the_most_urgent_finding_is_first() -> None:
    found = [
        finding(verdict="ongoing", records_held=900, action=None),
        finding(topic="small", records_held=1),
        finding(topic="big", records_held=50),
        finding(verdict="unknown", action=None),
    ]
    assert [each.topic for each in rank_findings(found)][:2] == ["big", "small"]
    assert [each.verdict for each in rank_findings(found)] == ["hanging", "hanging", "unknown", "ongoing"]
    following = next_actionable(found)
    assert following
    assert following.topic == "big"
    assert next_actionable(found[:1]) is None
    assert [tone(each) for each in rank_findings(found)] == ["alarm", "alarm", "warn", "calm"]


def test_the_queue_position_is_in_the_choice() -> None:
    """It crashed the panel: the column was renamed, and no type knew of it."""
    assert "behind 1 other" in choice(finding(queue_position=2))
    assert "behind 4 others" in choice(finding(queue_position=5))


def test_a_choice_names_the_missing_marker() -> None:
    assert "committed, its marker is missing" in choice(
        finding(verdict="stuck_ending", outcome="commit", action="complete")
    )


def test_external_text_never_becomes_markup() -> None:
    names = ("reason", "remedy", "cause", "transactional_id", "error")
    row = finding(**dict.fromkeys(names, EVIL), groups_held=[EVIL], missing=[EVIL], verdict="unknown")
    for text in (answer_html(row), why_not_html(row), evidence_html(row), problem_html(ActionRefused(EVIL, do=EVIL))):
        assert "<img" not in text
        assert "&lt;img" in text


def test_every_error_has_a_heading_and_only_bugs_a_traceback() -> None:
    for kind in ToolkitError.__subclasses__():
        error = kind.__new__(kind)
        ToolkitError.__init__(error, "It is so.", means="It means this.", do="Do that.")
        for reported in ("It is so.", "It means this.", "Do that."):
            assert reported in problem_html(error)
        assert traceback_html(error) == ""
    assert "ZeroDivisionError" in traceback_html(ZeroDivisionError("x"))


def test_a_figure_is_self_contained_with_one_script() -> None:
    frame = FigureFrame()
    figure = go.Figure(go.Scatter(x=[1], y=[2], name=f"</script>{EVIL}<!--"))
    frame.show(TimelinePicture(figures={"light": figure, "dark": figure}, still=None, problems=[]))
    script, data = frame.children
    page = re.sub(r'<script type="text/plain" id="packed">.*?</script>', "", _srcdoc(script.value), flags=re.DOTALL)
    assert not re.search(r"https?:|//[a-z]|\bsrc=|\bimport\b", page), "it asks nobody for anything"
    packed = re.search(r'id="packed">([^<]*)<', _srcdoc(script.value))
    assert packed
    assert gzip.decompress(base64.b64decode(packed[1])).decode() == get_plotlyjs()
    assert len(script.value) < 2_500_000
    inside = re.fullmatch(r'<script type="application/json">(.*)</script>', data.value, flags=re.DOTALL)
    assert inside
    assert "<" not in inside[1]
    assert json.loads(inside[1])["dark"]["data"][0]["name"].startswith("</script>")
    frame.show(TimelinePicture(figures={"light": figure, "dark": figure}, still=None, problems=[]))
    assert frame.children == (script, data)


def test_without_scripts_a_static_chart_is_shown() -> None:
    samples = [
        Partition(
            topic="orders",
            partition=0,
            last_stable_offset=100,
            observed_at=NOW + dt.timedelta(seconds=each),
            high_watermark=100 + each,
        )
        for each in (0, 9)
    ]
    frame = FigureFrame()
    frame.show(
        TimelinePicture(
            figures={}, still=gap_chart(finding(), steps=[], log_transactions=[], samples=samples), problems=[]
        )
    )
    still = frame.children[1].value.partition("</script>")[2]
    assert "LSO and end of the log of orders-0" in still
    assert still.count("<path") == 5  # three, and two in the key
    frame.clear()
    assert frame.children[1].value == ""


def test_an_unmoved_lso_is_reported_as_unmoved() -> None:
    plan: Any = SimpleNamespace(topic="orders", partition=0)
    done = AbortResult(
        last_stable_offset_before=5,
        last_stable_offset_after=5,
        high_watermark=9,
        next_start_offset=5,
        observed_at=NOW,
    )
    assert "The LSO is still at 5" in done_html(plan, done, "audit.jsonl")


def _srcdoc(value: str) -> str:
    found = re.search(r'srcdoc="([^"]*)"', value)
    assert found
    return html.unescape(found[1])
