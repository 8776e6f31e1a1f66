"""Figures that every page draws: plotly in a notebook, in its theme; elsewhere an SVG with an alternative text.

plotly exports pictures through a browser, which most kernels lack. The SVG draws what the plots here use: lines, areas,
markers and horizontal bars on linear, logarithmic, time and category axes, with annotations and a legend.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import plotly.graph_objects as go

from toolkit.views.plots.plot_theme import DARK_VARIABLES, THEMES, Theme, apply_theme, follow_theme
from toolkit.views.renderers import DARK_PAGE
from toolkit.views.row_formats import plain

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


MAX_TICKS = 6
STEPS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12, 24, 48, 168)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis."""

    kind: str  # ``linear``, ``log``, ``date`` or ``category``
    # low, high: the drawn range: of times in milliseconds, of a logarithmic axis as exponents, of categories as indexes
    low: float
    high: float
    # start, end: pixels of both
    start: float
    end: float
    categories: Sequence[str] = ()  # names of the categories

    def number(self, value: Any) -> float:
        """A value as a number of this axis."""
        return _number(value, self.kind, self.categories)

    def at(self, number: float) -> float:
        """The pixel of a number."""
        return self.start + (self.end - self.start) * (number - self.low) / ((self.high - self.low) or 1)


def axis_of(settings: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], letter: str, start: float,
            end: float) -> Axis:  # fmt: skip
    """The axis of traces, in its part of the pixels from `start` to `end`.

    `traces`: traces on the axis; their values are its range if it has none.
    `letter`: ``x`` or ``y``.
    `start`, `end`: pixels of the whole figure's area.
    """
    kind = settings.get("type", "linear")
    values = [value for trace in traces for value in _values(trace, letter) if value is not None]
    categories = list(settings.get("categoryarray") or dict.fromkeys(values)) if kind == "category" else []
    limits = settings.get("range")
    if limits is None:
        numbers = [_number(value, kind, categories) for value in values] or [0, 1]
        pad = (max(numbers) - min(numbers)) * 0.04 or 1
        low, high = min(numbers) - pad, max(numbers) + pad
    else:
        low, high = (_number(each, kind, ()) if kind == "date" else float(each) for each in limits)
    first, last = settings.get("domain", (0, 1))
    return Axis(
        kind=kind,
        low=low,
        high=high,
        start=start + (end - start) * first,
        end=start + (end - start) * last,
        categories=categories,
    )


def ticks_of(axis: Axis, settings: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Ticks with their labels."""
    if axis.kind == "category":
        texts = settings.get("ticktext") or [plain(each) for each in axis.categories]
        return [(axis.number(value), text) for value, text in zip(axis.categories, texts, strict=True)]
    if axis.kind == "log" or (settings.get("showticklabels") is False and not settings.get("showgrid", True)):
        return []
    return list(_times(axis) if axis.kind == "date" else _numbers(axis))


def _numbers(axis: Axis) -> Iterator[tuple[float, str]]:
    rough = max((axis.high - axis.low) / MAX_TICKS, 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(axis.low / step)
    for each in range(first, math.floor(axis.high / step) + 1):
        yield each * step, f"{round(each * step):,}"


def _times(axis: Axis) -> Iterator[tuple[float, str]]:
    rough = (axis.high - axis.low) / 1000 / MAX_TICKS
    step = next((each for each in STEPS_S if each >= rough), math.ceil(rough / 604_800) * 604_800)
    for each in range(math.ceil(axis.low / 1000 / step), math.floor(axis.high / 1000 / step) + 1):
        yield each * step * 1000, _time_text(dt.datetime.fromtimestamp(each * step, dt.UTC), step)


def _time_text(time: dt.datetime, step: float) -> str:
    if step >= 86_400:
        return f"{time:%b %d}"
    if step >= 1:
        return f"{time:%b %d, %H:%M}" if step >= 3600 else f"{time:%H:%M}" if step >= 60 else f"{time:%H:%M:%S}"
    return f"{time:%H:%M:%S.%f}"[:-3]


def _values(trace: Mapping[str, Any], letter: str) -> list[Any]:
    values = trace.get(letter)
    values = [] if values is None else list(values)
    base = trace.get("base")
    if trace["type"] != "bar" or letter == "y" or base is None:
        return values
    ends = [_number(start, "date", ()) + length for start, length in zip(base, values, strict=True)]
    return [*base, *ends]


def _number(value: Any, kind: str, categories: Sequence[str]) -> float:
    if isinstance(value, str):
        if kind == "category":
            return float(categories.index(value)) if value in categories else -9.0
        return dt.datetime.fromisoformat(value).replace(tzinfo=dt.UTC).timestamp() * 1000
    return math.log10(max(value, 1e-9)) if kind == "log" else float(value)


WIDTH = 960
LETTER = 0.55  # width of a letter by the size of its font
TAG = re.compile(r"<(/?)(b|br)\s*/?>")


def figure_svg(figure: go.Figure) -> str:
    """A figure as SVG with the title as its accessible name, and without a script."""
    return _Drawing(figure.to_plotly_json()).text()


def figure_text(figure: go.Figure) -> str:
    """Title and subtitle of a figure as plain text: the alternative text of its picture."""
    title = figure.layout.title
    texts = (_plain(text).strip().rstrip(",.") for text in (title.text, title.subtitle.text) if text)
    return ". ".join(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Area:
    """The drawing area of a pair of axes."""

    x: Axis
    y: Axis
    clip: str

    def place(self, x: Any, y: Any) -> tuple[float, float] | None:
        """Pixels of a point; null for a gap."""
        if x is None or y is None:
            return None
        return self.x.at(self.x.number(x)), self.y.at(self.y.number(y))


class _Drawing:
    """The SVG of one figure."""

    def __init__(self, figure: Mapping[str, Any]) -> None:
        self.layout = figure["layout"]
        self.traces: Sequence[Mapping[str, Any]] = figure["data"]
        self.parts: list[str] = []
        self.name = f"f{crc32(repr(figure).encode()):x}"  # ids are unique in a page
        self.patterns: dict[str, str] = {}
        self.stacked: dict[int, float] = {}  # by row, where its next bar begins
        font = self.layout["font"]
        self.family, self.size, self.colour = font["family"], font["size"], font["color"]
        self.background = self.layout["paper_bgcolor"]
        self.height = self.layout["height"]
        self.areas = self._areas()

    def text(self) -> str:
        """Draw everything, in plotly's order."""
        self._draw_axes()
        for shape in self.layout.get("shapes", ()):
            self._draw_shape(shape)
        for trace in self.traces:
            self._draw_trace(trace)
        for note in self.layout.get("annotations", ()):
            self._draw_annotation(note)
        self._draw_title()
        self._draw_legend()
        title = _escaped(_plain(self.layout["title"]["text"]))
        defs = "".join(self.patterns.values())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" style="max-width:100%;height:auto" role="img" aria-label="{title}" '
            f'font-family="{html.escape(self.family)}" font-size="{self.size}" fill="{self.colour}">'
            f"<title>{title}</title><defs>{defs}</defs>"
            f'<rect width="{WIDTH}" height="{self.height}" fill="{self.background}"/>{"".join(self.parts)}</svg>'
        )

    def _areas(self) -> dict[tuple[str, str], _Area]:
        """The area of each pair of axes that has traces."""
        pairs = {(trace.get("xaxis", "x"), trace.get("yaxis", "y")): None for trace in self.traces} or {
            ("x", "y"): None
        }
        margin = self.layout["margin"]
        below = [self._axis("x", x) for x, _ in pairs]
        has_labels = any(axis.get("showticklabels") is not False for axis in below)
        legend = 20 * len(rows) + 14 if (rows := self._legend_rows()) else margin["b"]
        bottom = legend + (46 if any(axis.get("title", {}).get("text") for axis in below) else 20 * has_labels)
        left = margin["l"] + max(self._label_width(self._axis("y", y), y) for _, y in pairs)
        box = (left, margin["t"], WIDTH - margin["r"], max(self.height - bottom, margin["t"] + 40))
        areas = {}
        for number, (x, y) in enumerate(pairs):
            of_x = [trace for trace in self.traces if trace.get("xaxis", "x") == x]
            of_y = [trace for trace in self.traces if trace.get("yaxis", "y") == y]
            across = axis_of(self._axis("x", x), of_x, "x", box[0], box[2])
            along = axis_of(self._axis("y", y), of_y, "y", box[3], box[1])
            clip = f"{self.name}-area{number}"
            self.patterns[clip] = (
                f'<clipPath id="{clip}"><rect x="{across.start:.1f}" y="{along.end:.1f}" '
                f'width="{across.end - across.start:.1f}" height="{along.start - along.end:.1f}"/></clipPath>'
            )
            areas[x, y] = _Area(x=across, y=along, clip=clip)
        return areas

    def _axis(self, letter: str, name: str) -> Mapping[str, Any]:
        axis: Mapping[str, Any] = self.layout.get(f"{letter}axis{name[1:]}", {})
        return axis

    def _label_width(self, axis: Mapping[str, Any], name: str) -> float:
        if axis.get("visible") is False or axis.get("matches") or axis.get("showticklabels") is False:
            return 0
        of_axis = [trace for trace in self.traces if trace.get("yaxis", "y") == name]
        labels = [text for _, text in ticks_of(axis_of(axis, of_axis, "y", 1, 0), axis)]
        title = 22 if axis.get("title", {}).get("text") else 0
        return title + 10 + max((_width(html.unescape(label), self.size) for label in labels), default=0)

    def _draw_axes(self) -> None:
        for (x, y), area in self.areas.items():
            for name, axis, settings in (("x", area.x, self._axis("x", x)), ("y", area.y, self._axis("y", y))):
                if settings.get("visible") is not False:
                    self._draw_axis(name, axis, settings, area)

    def _draw_axis(self, name: str, axis: Axis, settings: Mapping[str, Any], area: _Area) -> None:
        has_labels = settings.get("showticklabels") is not False and not (name == "y" and settings.get("matches"))
        for value, label in ticks_of(axis, settings):
            at = axis.at(value)
            if settings.get("showgrid") is not False:
                ends = (at, area.y.start, at, area.y.end) if name == "x" else (area.x.start, at, area.x.end, at)
                self._line(ends, settings.get("gridcolor", "#ddd"))
            if has_labels:
                place = (at, area.y.start + 18) if name == "x" else (area.x.start - 8, at + 4.5)
                self._write(label, *place, anchor="middle" if name == "x" else "end")
        foot = area.y.start if name == "x" else area.x.start
        ends = (axis.start, foot, axis.end, foot) if name == "x" else (foot, axis.start, foot, axis.end)
        self._line(ends, settings.get("linecolor", self.colour))
        title = settings.get("title", {}).get("text")
        if title and name == "x":
            self._write(title, (axis.start + axis.end) / 2, area.y.start + 38, anchor="middle")
        elif title:
            x, y = 22, (axis.start + axis.end) / 2
            self.parts.append(f'<g transform="rotate(-90 {x} {y:.1f})">')
            self._write(title, x, y, anchor="middle")
            self.parts.append("</g>")

    def _draw_shape(self, shape: Mapping[str, Any]) -> None:
        area = self.areas.get((shape.get("xref", "x"), "y")) or next(iter(self.areas.values()))
        at = area.x.at(area.x.number(shape["x0"]))
        line = shape["line"]
        self._line((at, area.y.start, at, area.y.end), line["color"], line["width"], line.get("dash"))

    def _draw_trace(self, trace: Mapping[str, Any]) -> None:
        area = self.areas[trace.get("xaxis", "x"), trace.get("yaxis", "y")]
        self.parts.append(f'<g clip-path="url(#{area.clip})">')
        if trace["type"] == "bar":
            self._draw_bars(trace, area)
        else:
            self._draw_scatter(trace, area)
        self.parts.append("</g>")

    def _draw_scatter(self, trace: Mapping[str, Any], area: _Area) -> None:
        places = [area.place(x, y) for x, y in zip(_list(trace["x"]), _list(trace["y"]), strict=True)]
        mode, line = trace.get("mode", "lines"), trace.get("line", {})
        if trace.get("fill") == "toself":
            pattern = trace.get("fillpattern", {})
            path = "".join(f"{_path(run)}Z" for run in _runs(places))
            self._box(path, trace["fillcolor"], pattern, thin=True)
        elif "lines" in mode:
            stepped = line.get("shape") == "hv"
            path = "".join(_path(run, stepped=stepped) for run in _runs(places))
            self._path(path, stroke=line["color"], width=line["width"], dash=line.get("dash"))
        if "markers" in mode:
            self._draw_markers(trace["marker"], places)
        if "text" in mode:
            self.parts.append("</g><g>")  # texts may leave the area
            size = trace["textfont"]["size"]
            for text, place in zip(_list(trace["text"]), places, strict=True):
                if place is not None:
                    self._write(text, place[0], place[1] + 4.5, size=size)

    def _draw_markers(self, marker: Mapping[str, Any], places: Sequence[tuple[float, float] | None]) -> None:
        line = marker.get("line", {})
        columns = [_each(marker.get(name, default), len(places)) for name, default in
                   (("symbol", "circle"), ("size", 6), ("opacity", 1), ("color", self.colour))]  # fmt: skip
        outlines = _each(line.get("color", self.colour), len(places))
        for place, symbol, size, opacity, colour, outline in zip(places, *columns, outlines, strict=True):
            if place is not None and opacity and size:
                fill = "none" if symbol.endswith("-open") or "-ns" in symbol or "-ew" in symbol else colour
                path = marker_path(symbol, *place, radius=size / 2)
                self._path(path, fill=fill, stroke=outline, width=line.get("width", 1.5))

    def _draw_bars(self, trace: Mapping[str, Any], area: _Area) -> None:
        marker, bases = trace["marker"], _list(trace.get("base"))
        outline = {"stroke": marker["line"]["color"], "width": marker["line"]["width"]}
        half = abs(area.y.at(trace["width"]) - area.y.at(0)) / 2
        for index, (value, row) in enumerate(zip(_list(trace["x"]), _list(trace["y"]), strict=True)):
            start = area.x.number(bases[index]) if bases else self.stacked.get(index, 0.0)
            if not bases:
                self.stacked[index] = start + value
            left, right = area.x.at(start), area.x.at(start + value)
            y = area.y.at(area.y.number(row))
            path = f"M{left:.1f} {y - half:.1f}H{right:.1f}V{y + half:.1f}H{left:.1f}Z"
            self._box(path, marker["color"], marker.get("pattern", {}), **outline)

    def _draw_annotation(self, note: Mapping[str, Any]) -> None:
        xref, yref = note.get("xref", "x"), note.get("yref", "y")
        x, y = self._place_of(note["x"], xref, "x"), self._place_of(note["y"], yref, "y")
        if xref == "paper" and note.get("xanchor", "auto") == "left" and note["x"] == 0:
            x = min(area.x.start for area in self.areas.values())
        size = note.get("font", {}).get("size", self.size)
        lines = _lines(note["text"])
        widths = [_width("".join(part for part, _ in line), size) for line in lines]
        width, height = max(widths, default=0) * 1.04, size * 1.3 * len(lines)
        anchor = {"left": "start", "right": "end"}.get(note.get("xanchor", ""), "middle")
        x += note.get("xshift", 0)
        y += {"bottom": -height / 2, "top": height / 2}.get(note.get("yanchor", ""), 0) - note.get("yshift", 0)
        left = x - {"start": 0, "end": width, "middle": width / 2}[anchor]
        if "bgcolor" in note:
            pad = note.get("borderpad", 1)
            box = (left - pad, y - height / 2 - pad, width + 2 * pad, height + 2 * pad)
            border = f' stroke="{note["bordercolor"]}"' if note.get("borderwidth") else ""
            self.parts.append('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*box))
            self.parts.append(f' fill="{note["bgcolor"]}"{border}/>')
        self._write(note["text"], x, y - height / 2 + size, size=size, anchor=anchor,
                    colour=note.get("font", {}).get("color"))  # fmt: skip

    def _place_of(self, value: Any, ref: str, letter: str) -> float:
        """Pixels of a value on an axis, on its domain, or on the paper."""
        name = ref.removesuffix(" domain")
        axes = [getattr(area, letter) for pair, area in self.areas.items() if name in (*pair, "paper")]
        axis, *_ = axes or [getattr(next(iter(self.areas.values())), letter)]
        if ref == name != "paper":
            return float(axis.at(axis.number(value)))
        start, end = axis.start, axis.end
        if ref == "paper":
            first, last = (min, max) if letter == "x" else (max, min)
            start, end = first(each.start for each in axes), last(each.end for each in axes)
        return float(start + (end - start) * value)

    def _draw_title(self) -> None:
        title = self.layout["title"]
        y = 16.0
        for text, size in ((title["text"], title["font"]["size"]), (title.get("subtitle", {}).get("text", ""), 12.5)):
            if text:
                self._write(text, 16, y + size * 1.3, size=size)
                y += size * 1.3 * len(_lines(text))

    def _legend_rows(self) -> list[list[Mapping[str, Any]]]:
        named = [trace for trace in self.traces if trace.get("name") and trace.get("showlegend") is not False]
        if len(named) < 2:
            return []
        named.sort(key=lambda trace: trace.get("legendrank", 1000))
        rows: list[list[Mapping[str, Any]]] = [[]]
        x = 16.0
        for trace in named:
            wide = 52 + _width(trace["name"], 12)
            if x + wide > WIDTH - 16 and rows[-1]:
                rows.append([])
                x = 16.0
            rows[-1].append(trace)
            x += wide
        return rows

    def _draw_legend(self) -> None:
        rows = self._legend_rows()
        for number, row in enumerate(rows):
            x, y = 16.0, self.height - 10 - 20 * (len(rows) - 1 - number)
            for trace in row:
                self._draw_key(trace, x, y - 4)
                self._write(trace["name"], x + 36, y, size=12)
                x += 52 + _width(trace["name"], 12)

    def _draw_key(self, trace: Mapping[str, Any], x: float, y: float) -> None:
        box, marker = f"M{x} {y - 6}h28v12h-28Z", trace.get("marker", {})
        if trace["type"] == "bar":
            self._box(box, marker["color"], marker.get("pattern", {}), stroke=marker["line"]["color"], width=1.5)
            return
        if trace.get("fill") == "toself":
            self._box(box, trace["fillcolor"], trace["fillpattern"], thin=True)
            return
        if "lines" in trace["mode"]:
            line = trace["line"]
            self._path(f"M{x} {y}h28", stroke=line["color"], width=line["width"], dash=line.get("dash"))
        if "markers" in trace["mode"]:
            symbols = [each for each in _each(marker["symbol"], 3) if each is not None]
            one = {**marker, "color": _each(marker["color"], 3)[0], "symbol": symbols[-1], "size": 10, "opacity": 1}
            self._draw_markers(one, [(x + 14, y)])

    def _box(self, path: str, fill: str, pattern: Mapping[str, Any], *, thin: bool = False, **outline: Any) -> None:
        """A closed path, and its hatch, if it has one."""
        self._path(path, fill=fill, **outline)
        if not pattern.get("shape"):
            return
        size = 12 if thin else 7
        hatch = HATCHES[pattern["shape"]].format(size, size / 2)
        text = (
            f'width="{size}" height="{size}" patternUnits="userSpaceOnUse">'
            f'<path d="{hatch}" stroke="{pattern["fgcolor"]}" stroke-width="1.2" fill="none"/></pattern>'
        )
        key = next((name for name, each in self.patterns.items() if each.endswith(text)), None)
        if key is None:
            key = f"{self.name}-{len(self.patterns)}"
            self.patterns[key] = f'<pattern id="{key}" {text}'
        self._path(path, fill=f"url(#{key})")

    def _path(self, path: str, *, fill: str = "none", stroke: str = "none", width: float = 1,
              dash: str | None = None) -> None:  # fmt: skip
        if not path:
            return
        outline = "" if stroke == "none" else f' stroke="{stroke}" stroke-width="{width}"'
        dashes = f' stroke-dasharray="{DASHES[dash]}"' if dash in DASHES else ""
        self.parts.append(f'<path d="{path}" fill="{fill}"{outline}{dashes}/>')

    def _line(self, ends: tuple[float, ...], colour: str, width: float = 1, dash: str | None = None) -> None:
        x0, y0, x1, y1 = ends
        self._path(f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}", stroke=colour, width=width, dash=dash)

    def _write(self, text: str, x: float, y: float, *, size: float | None = None, anchor: str = "start",
               colour: str | None = None) -> None:  # fmt: skip
        size = size or self.size
        settings = "" if size == self.size else f' font-size="{size}"'
        settings += "" if anchor == "start" else f' text-anchor="{anchor}"'
        settings += "" if colour is None else f' fill="{colour}"'
        for number, line in enumerate(_lines(text)):
            spans = "".join(
                f'<tspan font-weight="700">{_escaped(part)}</tspan>' if is_bold else _escaped(part)
                for part, is_bold in line
            )
            place = f'x="{x:.1f}" y="{y + number * size * 1.3:.1f}"'
            self.parts.append(f'<text {place} xml:space="preserve"{settings}>{spans}</text>')


def _list(values: Any) -> list[Any]:
    return [] if values is None else list(values)


def _each(value: Any, length: int) -> list[Any]:
    """A setting of each point: one for all, or a sequence."""
    return [value] * length if isinstance(value, str | int | float) else list(value)


def _runs(places: Iterable[tuple[float, float] | None]) -> Iterator[list[tuple[float, float]]]:
    """Points between gaps."""
    run: list[tuple[float, float]] = []
    for place in [*places, None]:
        if place is not None:
            run.append(place)
        elif run:
            yield run
            run = []


def _path(run: Sequence[tuple[float, float]], *, stepped: bool = False) -> str:
    (x, y), *rest = run
    step = "H{0:.1f}V{1:.1f}" if stepped else "L{0:.1f} {1:.1f}"
    return f"M{x:.1f} {y:.1f}" + "".join(step.format(*place) for place in rest)


def _lines(text: str) -> list[list[tuple[str, bool]]]:
    """Lines of plotly's markup, as parts that are bold or not."""
    lines: list[list[tuple[str, bool]]] = [[]]
    is_bold, at = False, 0
    for tag in TAG.finditer(text):
        lines[-1].append((html.unescape(text[at : tag.start()]), is_bold))
        at = tag.end()
        if tag[2] == "br":
            lines.append([])
        else:
            is_bold = not tag[1]
    lines[-1].append((html.unescape(text[at:]), is_bold))
    return [[part for part in line if part[0]] for line in lines]


def _plain(text: str) -> str:
    return " ".join("".join(part for part, _ in line) for line in _lines(text))


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)


def _width(text: str, size: float) -> float:
    return len(text) * size * LETTER


OWN_RENDERERS = {"plotly_mimetype", "plotly_mimetype+notebook"}  # plotly's choice in Jupyter; others are the user's


class NotebookFigure(go.Figure):  # type: ignore[misc]
    """A figure of plotly, whose output in a notebook has a picture for pages without plotly, and follows its theme."""

    def _ipython_display_(self) -> None:
        import plotly.io
        from IPython.display import display

        if plotly.io.renderers.default not in OWN_RENDERERS:  # Databricks, Colab, a terminal, or the user's choice
            super()._ipython_display_()
            return
        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
        display({"text/html": theme_style(), "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None, **settings: object) -> dict[str, Any]:
        """The figure as data for plotly, as an SVG picture in HTML, and its title as text."""
        from plotly.io import renderers

        text, packed = figure_text(self), base64.b64encode(image_svg(figure_svg(self)).encode()).decode("ascii")
        alternative = html.escape(text, quote=True)
        return {
            **renderers["plotly_mimetype"].to_mimebundle(self.to_dict()),
            "text/html": f'<img alt="{alternative}" style="max-width:100%" src="data:image/svg+xml;base64,{packed}">',
            "text/plain": text,
        }


def image_svg(svg: str) -> str:
    """The SVG of a light figure as an image or file of its own, legible on light and dark pages."""
    return svg.replace(">", f">{_picture_style()}", 1)


def figure_html(figure: go.Figure) -> str:
    """A figure as HTML without a script, for a widget that is redrawn in place; it follows the theme of the page.

    Parameters
    ----------
    figure
        A light figure of this package.

    Examples
    --------
    >>> ipywidgets.HTML(figure_html(plot_overview(cluster.findings())))  # doctest: +SKIP
    """
    return f"<style>{DARK_PAGE} {{ {DARK_VARIABLES}}}</style>{follow_theme(figure_svg(figure))}"


@cache
def theme_style() -> str:
    """Rules that give a light figure the dark palette while the page of JupyterLab or Voila is dark.

    plotly knows no colour of the page, and writes colours of its own into each element; the rules replace these.
    """
    light, dark = THEMES["light"], THEMES["dark"]
    names = [field.name for field in dataclasses.fields(light) if field.name != "held"]  # that of `alarm`, transparent
    rules = [
        f"{DARK_PAGE} .js-plotly-plot "
        f':is([style*="{key}: {_rgb(light[name])}"],[{key}="{_rgb(light[name])}"]){{{key}:{dark[name]}!important}}'
        for name in names
        for key in ("fill", "stroke", "background")
    ]
    return f"<style>{''.join(dict.fromkeys(rules))}</style>"


@cache
def _picture_style() -> str:
    """Rules inside a picture that is alone on its page, as in a notebook that is not trusted.

    It knows the theme of the browser, but not that of the page. So the light one has no background, and what is dark
    in it has an outline that only a dark page shows.
    """
    light, dark = THEMES["light"], THEMES["dark"]
    names = [field.name for field in dataclasses.fields(light)]
    rules = (f'[{key}="{light[name]}"]{{{key}:{dark[name]}}}' for name in names for key in ("fill", "stroke"))
    outline = f"paint-order:stroke;stroke:{light.background};stroke-width:3px;stroke-linejoin:round"
    glow = f"drop-shadow(0 0 1px {light.background})"
    dark_lines = ",".join(f'[stroke="{colour}"]' for colour in dict.fromkeys((light.text, light.lso, light.muted)))
    in_light = (
        f'defs+rect{{fill:none}}text{{{outline}}}{dark_lines}{{filter:{glow}}}[stroke="{light.grid}"]{{stroke:#8884}}'
    )
    in_dark = "".join(dict.fromkeys(rules))
    return (
        f"<style>@media (prefers-color-scheme: light) {{ {in_light} }}"
        f"@media (prefers-color-scheme: dark) {{ {in_dark} }}</style>"
    )


def _rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*bytes.fromhex(colour[1:]))


def empty_figure(theme: Theme, *, title: str, missing: str) -> NotebookFigure:
    """A figure with a text about missing data."""
    figure = NotebookFigure()
    apply_theme(figure, theme, title=title, height=260)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(
        text=missing, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"size": 14, "color": theme.text}
    )
    return figure
