"""Both palettes are readable, and kinds are distinguishable in grey."""

import dataclasses
from typing import Any

import pytest

from tests.views.plots.busy import finding
from tests.views.plots.drawn import contrast
from toolkit.errors import UsageError
from toolkit.schema.verdict import TONES, Verdict
from toolkit.views import show
from toolkit.views.panel.layout import style_html
from toolkit.views.plots import plot_holds, plot_lag, plot_overview, plot_timeline
from toolkit.views.plots.plot_theme import KINDS, STATES, THEMES, theme_named
from toolkit.views.report import report


@pytest.mark.parametrize("name", THEMES)
def test_every_colour_has_enough_contrast(name: str) -> None:
    theme = THEMES[name]
    for role in {field.name for field in dataclasses.fields(theme)} - {"background", "grid", "held"}:
        least = 4.5 if role in {"text", "muted", "alarm", "warn"} else 3
        assert contrast(theme[role], theme.background) >= least, role


def test_every_verdict_has_its_own_symbol_and_the_worst_is_first() -> None:
    assert min(Verdict, key=lambda verdict: verdict.urgency) == "hanging"
    assert len({verdict.symbol for verdict in Verdict}) == len(Verdict)


def test_every_kind_has_its_own_symbol_and_hanging_is_the_widest() -> None:
    """An open one has the symbol and the colour of its verdict, and the dash that says that it is open."""
    assert len({(appearance.symbol, appearance.dash) for appearance in KINDS.values()}) == len(KINDS)
    for verdict in Verdict:
        assert verdict not in KINDS or (KINDS[verdict].symbol, KINDS[verdict].role) == (verdict.symbol, verdict.tone)
    assert max(KINDS, key=lambda kind: KINDS[kind].width) == "hanging"


def test_a_verdict_has_one_colour_everywhere() -> None:
    """`ongoing` was green in the report and the panel, blue in tables, and brown in the timeline."""
    panel = style_html()
    page, table = report([finding()]).html, show([finding()])._repr_html_()
    for verdict in Verdict:
        light, dark = TONES["light"][verdict.tone], TONES["dark"][verdict.tone]
        assert THEMES["light"][verdict.tone] == light
        assert f"b.{verdict} {{ background: {light}; }}" in table
        assert f".{verdict} {{ --tone: var(--{verdict.tone}); }}" in page
        assert f"--{verdict.tone}: {light};" in page
        assert f"--{verdict.tone}: {dark};" in page
        assert f"--{verdict.tone}: {light};" in panel
        assert f"--{verdict.tone}: {dark};" in panel
    assert {theme.lso for theme in THEMES.values()}.isdisjoint(
        each for tones in TONES.values() for each in tones.values()
    )


def test_every_state_has_its_own_hatch() -> None:
    assert len({appearance.hatch for appearance in STATES.values()}) == len(STATES)


def test_an_unknown_theme_is_rejected() -> None:
    with pytest.raises(UsageError, match="no theme 'blue'"):
        theme_named("blue")


@pytest.mark.parametrize("plot", [plot_overview, plot_holds, plot_lag, plot_timeline])
def test_each_plot_has_both_themes(plot: Any) -> None:
    papers = [plot([], theme=theme).layout.paper_bgcolor for theme in ("light", "dark")]
    assert papers == [plot([]).layout.paper_bgcolor, THEMES["dark"].background]
