"""Shapes of a figure as SVG: plotly's symbols, dashes and hatches."""

from __future__ import annotations

import math
from collections.abc import Mapping

DASHES: Mapping[str | None, str] = {"dot": "2 4", "dash": "8 5", "longdash": "12 6"}
CORNERS: Mapping[str, tuple[tuple[float, float], ...]] = {
    "diamond": ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)),
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle-up": ((0, -1.1), (1.1, 0.8), (-1.1, 0.8)),
    "triangle-down": ((0, 1.1), (1.1, -0.8), (-1.1, -0.8)),
    "hexagon": tuple((math.sin(step * math.pi / 3), math.cos(step * math.pi / 3)) for step in range(6)),
    "x": ((-1, -0.6), (-0.6, -1), (0, -0.4), (0.6, -1), (1, -0.6), (0.4, 0),
          (1, 0.6), (0.6, 1), (0, 0.4), (-0.6, 1), (-1, 0.6), (-0.4, 0)),
    "cross": ((-0.35, -1), (0.35, -1), (0.35, -0.35), (1, -0.35), (1, 0.35), (0.35, 0.35),
              (0.35, 1), (-0.35, 1), (-0.35, 0.35), (-1, 0.35), (-1, -0.35), (-0.35, -0.35)),
    "line-ns": ((0, -1), (0, 1)),
    "line-ew": ((-1, 0), (1, 0)),
}  # fmt: skip
HATCHES: Mapping[str, str] = {
    "/": "M0 {0}L{0} 0",
    "\\": "M0 0L{0} {0}",
    "x": "M0 {0}L{0} 0M0 0L{0} {0}",
    "-": "M0 {1}H{0}",
    "|": "M{1} 0V{0}",
    "+": "M0 {1}H{0}M{1} 0V{0}",
    ".": "M{1} {1}h1.5",
}


def marker_path(symbol: str, x: float, y: float, *, radius: float) -> str:
    """The outline of a symbol of plotly around a point."""
    name = symbol.removesuffix("-open")
    if name not in CORNERS:
        return (
            f"M{x - radius:.1f} {y:.1f}a{radius} {radius} 0 1 0 {2 * radius} 0a{radius} {radius} 0 1 0 {-2 * radius} 0"
        )
    places = (f"{x + radius * across:.1f} {y + radius * along:.1f}" for across, along in CORNERS[name])
    return f"M{'L'.join(places)}Z"


def hatch_pattern(shape: str, colour: str, *, size: int) -> str:
    """Attributes and content of an SVG pattern."""
    path = HATCHES[shape or "/"].format(size, size / 2)
    return (
        f'width="{size}" height="{size}" patternUnits="userSpaceOnUse">'
        f'<path d="{path}" stroke="{colour}" stroke-width="1.2" fill="none"/></pattern>'
    )
