"""What a figure has in it, as data."""

import math
from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go


def traces(figure: go.Figure) -> dict[str, dict[str, Any]]:
    """Traces by name."""
    return {trace["name"]: trace for trace in figure.to_dict()["data"] if "name" in trace}


def hovers(figure: go.Figure) -> list[str]:
    """Every text that a pointer finds."""
    found: list[str] = []
    for trace in figure.to_dict()["data"]:
        texts = trace.get("text") if trace.get("hoverinfo") == "text" and "hovertext" not in trace else None
        texts = [texts] if isinstance(texts, str) else texts
        found += [text for text in texts or trace.get("hovertext") or () if text]
    return found


def words(figure: go.Figure) -> str:
    """Title, subtitle and annotations."""
    layout = figure.to_dict()["layout"]
    title = layout["title"]
    notes = [note["text"] for note in layout.get("annotations", ())]
    return "\n".join([title["text"], title.get("subtitle", {}).get("text") or "", *notes]).replace("<br>", " ")


def bars(trace: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Start, end and first offset of each bar of a timeline's trace."""
    yield from zip(trace["x"][::4], trace["x"][1::4], trace["y"][::4], strict=True)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours (WCAG 2.1)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else math.pow((part + 0.055) / 1.055, 2.4) for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
