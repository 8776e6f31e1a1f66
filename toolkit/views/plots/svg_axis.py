"""Axes of a figure as SVG: from values to pixels, and their ticks."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.views.plots.plot_text import plain

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
