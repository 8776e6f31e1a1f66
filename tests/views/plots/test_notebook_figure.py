"""A figure is drawn by every page: by plotly, as HTML, as SVG, or as text."""

import base64
import re
from typing import Any

import pytest

from tests.views.plots.busy import finding
from toolkit.views.plots import plot_overview
from toolkit.views.plots.notebook_figure import MAX_TICKS, Axis, ticks_of


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


@pytest.mark.parametrize(
    ("rough", "step"), [(0.1, 1), (1, 1), (2, 2), (3, 5), (5, 5), (6, 10), (11, 20), (70, 100)], ids=str
)
def test_ticks_are_round_numbers(rough: float, step: int) -> None:
    ticks = ticks_of(Axis(kind="linear", low=1, high=1 + rough * MAX_TICKS, start=0, end=700), {})
    assert [value for value, _ in ticks[:2]] in ([step, 2 * step], [step])
    assert [label for _, label in ticks] == [f"{value:,.0f}" for value, _ in ticks]
