"""A figure is drawn by every page: by plotly, as HTML, as SVG, or as text."""

import base64
import dataclasses
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest

from tests.views.plots.busy import busy, finding, history
from toolkit.schema.verdict import Verdict
from toolkit.views.plots import figure_html, plot_lag, plot_overview, plot_timeline
from toolkit.views.plots.notebook_figure import MAX_TICKS, WIDTH, Axis, figure_svg, theme_style, ticks_of
from toolkit.views.plots.plot_theme import THEMES

SVG = "{http://www.w3.org/2000/svg}"
LAG = {"group_id": "billing", "topic": "orders", "partition": 0, "lag": 25, "behind": 1, "held": 21, "markers": 3}


def _timeline() -> go.Figure:
    log_transactions, findings = busy(500, hanging=2)
    return plot_timeline(log_transactions, findings=findings, transaction_history=[history()])


FIGURES: dict[str, Callable[[], go.Figure]] = {
    "overview": lambda: plot_overview([finding(), finding(topic="a & <b>", verdict=Verdict.UNKNOWN)]),
    "timeline": _timeline,
    "lag": lambda: plot_lag([LAG]),
    "empty": lambda: plot_timeline([]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_picture_with_all_that_plotly_draws(name: str) -> None:
    figure = FIGURES[name]()
    picture = ET.fromstring(figure_svg(figure))
    written = "".join("".join(text.itertext()) for text in picture.iter(f"{SVG}text"))
    notes = [note.text for note in figure.layout.annotations if note.text]
    for text in [figure.layout.title.text.replace("<br>", ""), *notes]:
        plain = re.sub(r"</?b>", "", text).replace("<br>", "").replace("&lt;", "<").replace("&gt;", ">")
        assert plain.replace("&amp;", "&") in written
    named = [trace.name for trace in figure.data if trace.name and trace.showlegend is not False]
    assert len(named) < 2 or all(each in written for each in named)
    bars = sum(len(trace.x) for trace in figure.data if trace.type == "bar")
    assert len(list(picture.iter(f"{SVG}path"))) >= bars
    numbers = [
        float(number) for path in picture.iter(f"{SVG}rect") for number in (path.get("x", "0"), path.get("y", "0"))
    ]
    assert all(-100 < number < max(WIDTH, figure.layout.height) + 100 for number in numbers)
    assert not list(picture.iter(f"{SVG}script"))


def test_the_parts_of_a_lag_are_drawn_one_after_another() -> None:
    """Each part began at zero, over the one before."""
    picture = ET.fromstring(figure_svg(plot_lag([LAG])))
    bars = [path.get("d", "") for path in picture.iter(f"{SVG}path") if path.get("stroke", "none") != "none"]
    ends = [found.groups() for each in bars if (found := re.match(r"M([\d.]+) [\d.]+H([\d.]+)V", each))]
    starts = [start for start, end in ends if start != end]
    assert starts[1:] == [end for start, end in ends if start != end][:-1]
    assert len(starts) == 3


@pytest.mark.parametrize("name", FIGURES)
def test_every_colour_of_a_picture_in_a_widget_follows_the_theme(name: str) -> None:
    style, _, picture = figure_html(FIGURES[name]()).partition("</style>")
    colours = set(re.findall(r'(?:fill|stroke)="([^"]*)"', picture))
    variables = {each for each in colours if each.startswith("var(--kafka-txn-")}
    assert {each for each in colours - variables if not each.startswith("url(")} <= {"none"}
    assert all(each.removeprefix("var(").partition(",")[0] + ":" in style for each in variables)


def test_the_output_of_a_notebook_is_drawn_without_plotly_too() -> None:
    """Only plotly's own type was stored: nbconvert, nbviewer and forges drew nothing."""
    data: dict[str, Any] = plot_overview([finding()])._repr_mimebundle_()
    assert data["text/plain"] == "1 partition hangs, longest orders-0 for 3 h. partitions by verdict: 1 hanging"
    assert f'alt="{data["text/plain"]}"' in data["text/html"]
    (packed,) = re.findall(r"base64,([^\"]+)", data["text/html"])
    picture = base64.b64decode(packed).decode()
    assert picture.startswith("<svg")
    assert "light) { defs+rect{fill:none}text{paint-order" in picture, "no white slab in a dark notebook without trust"
    assert "image/svg+xml" not in data, "the picture is stored once"
    assert data["application/vnd.plotly.v1+json"]["data"]


def test_every_light_colour_has_a_rule_for_dark_pages() -> None:
    """Figures stayed white in JupyterLab's dark theme."""
    style = theme_style()
    for field in dataclasses.fields(THEMES["light"]):
        if field.name != "held":
            red, green, blue = bytes.fromhex(THEMES["light"][field.name][1:])
            assert f'[style*="fill: rgb({red}, {green}, {blue})"]' in style
            assert f"{{fill:{THEMES['dark'][field.name]}!important}}" in style


@pytest.mark.parametrize(
    ("rough", "step"), [(0.1, 1), (1, 1), (2, 2), (3, 5), (5, 5), (6, 10), (11, 20), (70, 100)], ids=str
)
def test_ticks_are_round_numbers(rough: float, step: int) -> None:
    ticks = ticks_of(Axis(kind="linear", low=1, high=1 + rough * MAX_TICKS, start=0, end=700), {})
    assert [value for value, _ in ticks[:2]] in ([step, 2 * step], [step])
    assert [label for _, label in ticks] == [f"{value:,.0f}" for value, _ in ticks]
