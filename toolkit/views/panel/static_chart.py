"""LSO and log end as a static picture, for pages that forbid the script of the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.views.panel.html import line

__all__ = ["still_html"]


def still_html(chart: Mapping[str, Any] | None) -> str:
    """A chart of `gap_chart` as SVG; empty for null."""
    if chart is None:
        return ""
    frame, width, height = chart["frame"], chart["width"], chart["height"]
    box = 'x="{x}" y="{y}" width="{width}" height="{height}"'
    held = f'<rect class="held" {box.format(**chart["held"])}/>' if chart["held"] else ""
    paths = "".join(f'<path class="{name}" d="{chart[name]}"/>' for name in ("gap", "ends", "stable"))
    times = "".join(
        f'<text x="{each["x"]}" y="{height - 16}" text-anchor="{each["anchor"]}">{line(each["text"])}</text>'
        for each in chart["times"]
    )
    offsets = "".join(
        f'<text x="{frame["x"] - 8}" y="{each["y"]}" text-anchor="end">{line(each["text"])}</text>'
        for each in chart["offsets"]
    )
    key = (
        f'<g transform="translate({width - 330} 12)"><path class="stable" d="M0 0H24"/><text x="30" y="4">LSO</text>'
        '<path class="ends" d="M70 0H94"/><text x="100" y="4">end of the log</text>'
        '<rect class="gap" x="196" y="-6" width="24" height="12"/><text x="226" y="4">held back</text></g>'
    )
    title = f'<text class="title" x="{frame["x"]}" y="16">{line(chart["title"])}</text>'
    return (
        f'<svg class="still" viewBox="0 0 {width} {height}" role="img" aria-label="{line(chart["title"])}">'
        f'{held}{paths}<rect class="frame" {box.format(**frame)}/>{title}{key}{times}{offsets}</svg>'
    )
