"""The style of plots: two palettes, styles of verdicts, outcomes and states, and escaped texts.

Colour is never the only difference: each kind has its own dash, symbol, hatch or word, so a plot is readable in
grey. Colours are distinct for colour-blind people, with a contrast of 3:1 (WCAG 2.1, 1.4.11).
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import plotly.graph_objects as go

from toolkit.errors import UsageError
from toolkit.schema.verdict import TONES, Verdict
from toolkit.views.document import Count
from toolkit.views.row_formats import cell_text, plain, printable, shortened

if TYPE_CHECKING:
    from toolkit.schema.live import Finding


ThemeName = Literal["light", "dark"]

TITLE_WIDTH, SUBTITLE_WIDTH = 62, 98  # characters that fit into 800 pixels
ENTRIES_PER_ROW = 3  # of the legend, likewise
SHOWN = dt.timedelta(seconds=1)  # the least that a text says of how long something lasted, up to now
FONT = "Inter, Segoe UI, Helvetica Neue, Arial, DejaVu Sans, sans-serif"


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """A palette: colours by meaning."""

    background: str
    text: str
    muted: str
    grid: str
    alarm: str  # hanging
    warn: str  # not healthy, and not proven to hang
    calm: str  # healthy and open
    done: str  # committed
    undone: str  # aborted
    lso: str  # the colour of the text: no verdict has it
    held: str  # fill between the LSO and the high watermark

    def __getitem__(self, role: str) -> str:
        colour: str = getattr(self, role)
        return colour


THEMES: Mapping[str, Theme] = {
    "light": Theme(
        background="#ffffff",
        text="#1b1f24",
        **TONES["light"],
        grid="#e3e7eb",
        done="#00735a",
        undone="#8a3b7b",
        lso="#1b1f24",
        held="rgba(184, 58, 0, 0.12)",
    ),
    "dark": Theme(
        background="#14181d",
        text="#e8ebee",
        **TONES["dark"],
        grid="#2d343c",
        done="#4fd1a5",
        undone="#e39bd3",
        lso="#e8ebee",
        held="rgba(255, 138, 76, 0.16)",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Appearance:
    """The style of a kind; `role` names its colour in the theme."""

    role: str
    symbol: str = "circle"
    dash: str = "solid"
    hatch: str = ""
    width: float = 2


KINDS: Mapping[str, Appearance] = {
    "commit": Appearance(role="done", symbol="triangle-up", dash="solid"),
    "abort": Appearance(role="undone", symbol="x", dash="dot"),
    "empty": Appearance(role="muted", symbol="line-ns-open", dash="solid"),
    "undecided": Appearance(role="muted", symbol="square-open", dash="longdash"),
    "open": Appearance(role="muted", symbol="circle", dash="dash", width=3),
    **{
        verdict: Appearance(role=verdict.tone, symbol=verdict.symbol, dash="dash", width=3)
        for verdict in reversed(Verdict)
        if verdict.is_open and verdict is not Verdict.HANGING
    },
    "hanging": Appearance(role=Verdict.HANGING.tone, symbol=Verdict.HANGING.symbol, dash="solid", width=7),
}
"""Transactions in a timeline; ``undecided`` are those whose marker was not read, ``open`` those without a finding."""

STATES: Mapping[str, Appearance] = {
    "Empty": Appearance(role="muted", hatch="."),
    "Ongoing": Appearance(role="calm"),
    "PrepareCommit": Appearance(role="warn", hatch="/"),
    "PrepareAbort": Appearance(role="warn", hatch="\\"),
    "PrepareEpochFence": Appearance(role="warn", hatch="|"),
    "CompleteCommit": Appearance(role="done", hatch="-"),
    "CompleteAbort": Appearance(role="undone", hatch="x"),
    "Dead": Appearance(role="muted", hatch="+"),
}
"""States of a transactional id; each has a hatch of its own, Ongoing is the solid one."""


def follow_theme(svg: str) -> str:
    """Make the colours of a light picture CSS variables, to which `DARK_VARIABLES` gives those of the dark one."""
    return re.sub(r'="([^"]+)"', lambda found: _VARIABLES.get(found[1], found[0]), svg)


_ROLES = [field.name for field in fields(Theme)]
_VARIABLES = {THEMES["light"][role]: f'="var(--kafka-txn-{role}, {THEMES["light"][role]})"' for role in _ROLES}
DARK_VARIABLES = "".join(f"--kafka-txn-{role}: {THEMES['dark'][role]}; " for role in _ROLES)


def theme_named(name: str) -> Theme:
    """The palette of a name. Raises UsageError if there is no such theme."""
    if name not in THEMES:
        raise UsageError(f"There is no theme {name!r}.", do=f"Take one of {', '.join(THEMES)}.")
    return THEMES[name]


def apply_theme(figure: go.Figure, theme: Theme, *, title: str, subtitle: str = "", height: int) -> go.Figure:
    """Set title, margins and colours of a figure; the title is already escaped."""
    title = "<br>".join(textwrap.wrap(title, TITLE_WIDTH, break_on_hyphens=False))
    lines = subtitle.count("<br>") + (1 if subtitle else 0)
    heads = title.count("<br>") + 1
    entries = sum(trace.showlegend is not False and trace.name is not None for trace in figure.data)
    legend_rows = -(-entries // ENTRIES_PER_ROW) if entries > 1 else 0  # one entry is no legend
    figure.update_layout(
        title={
            "text": f"<b>{title}</b>",
            "font": {"size": 18, "color": theme.text},
            "subtitle": {"text": subtitle, "font": {"size": 12.5, "color": theme.text}},
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "pad": {"l": 16, "t": 13 * heads},
            "y": 1,
            "yref": "container",
            "yanchor": "top",
        },
        height=height + 17 * max(lines - 3, 0),
        margin={
            "l": 16,
            "r": 24,
            "t": 34 + 22 * heads + 17 * lines,
            "b": 18 + (22 + 20 * legend_rows if legend_rows else 0),
        },
        font={"family": FONT, "size": 13, "color": theme.text},
        paper_bgcolor=theme.background,
        plot_bgcolor=theme.background,
        hoverlabel={"align": "left", "font": {"size": 12, "family": FONT}, "namelength": -1},
        hovermode="closest",
        barmode="overlay",
        legend={
            "orientation": "h",
            "x": 0,
            "xref": "container",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "font": {"size": 12},
            "itemsizing": "trace",
        },
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": theme.muted, "activecolor": theme.text},
    )
    lines_of: dict[str, Any] = {
        "gridcolor": theme.grid,
        "linecolor": theme.muted,
        "zeroline": False,
        "automargin": True,
        "title_font_size": 13,
    }
    figure.update_xaxes(**lines_of)
    figure.update_yaxes(**lines_of)
    return figure


@cache
def packed_script() -> str:
    """plotly.js as gzip in base64: 2.0 MB instead of 4.8 (plotly 7.1), which any browser since 2023 unpacks itself."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode("ascii")


LONGEST = 60  # characters of a name in a title, and of a word below it


def place_name(topic: str | None, partition: int | None) -> str:
    """``orders-0``; a long name is cut in the middle."""
    return "all topics" if topic is None else plain(f"{topic}-{partition}", longest=LONGEST)


def row_axis(names: Sequence[str], *, longest: int, margin: float = 0.7) -> dict[str, Any]:
    """A vertical axis with a row for each name from top to bottom; names that are equal after the cut stay separate."""
    rows = [plain(name) for name in reversed(names)]
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": rows,
        "tickmode": "array",
        "tickvals": rows,
        "ticktext": [plain(name, longest=longest) for name in reversed(names)],
        "range": [-margin, max(len(rows), 1) - 1 + margin],
        "showgrid": False,
    }


def number(value: int | None) -> str:
    """``913,095,344``."""
    return "unknown" if value is None else f"{value:,}"


def lines(text: str) -> str:
    """A text below a title in lines, all of it; of a long name in it, the middle is left out."""
    words = " ".join(shortened(word, LONGEST) for word in printable(text).split())
    return "<br>".join(map(plain, textwrap.wrap(words, SUBTITLE_WIDTH, break_on_hyphens=False)))


def when(time: dt.datetime | None) -> str | None:
    """A time for plotly, in UTC."""
    if time is None:
        return None
    return time.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def hover(facts: Sequence[tuple[str, object]]) -> str:
    """A line for each label and value; null values are left out."""
    return "<br>".join(f"{label} <b>{_value_text(value)}</b>" for label, value in facts if value is not None)


def _value_text(value: object) -> str:
    if isinstance(value, dt.datetime):
        return f"{cell_text(value, is_precise=True)} UTC"
    if isinstance(value, list | tuple):
        more = f" and {len(value) - 5:,} more" if value[5:] else ""
        return ", ".join(map(_value_text, value[:5])) + more
    text = cell_text(Count(value) if isinstance(value, int) and not isinstance(value, bool) else value)
    return "<br>   ".join(map(plain, textwrap.wrap(text, 70, break_on_hyphens=False)))


def finding_facts(finding: Finding) -> list[tuple[str, object]]:
    """The text of a finding for a hover; ids are without separators."""
    return [
        ("verdict", finding.verdict),
        ("producer", id_text(finding.producer_id)),
        ("epoch", id_text(finding.producer_epoch)),
        ("transactional id", finding.transactional_id),
        ("start offset", finding.start_offset),
        ("opened", finding.opened_at),
        ("by the clock of", finding.opened_at_clock),
        ("expires", finding.expires_at),
        ("LSO", finding.last_stable_offset),
        ("high watermark", finding.high_watermark),
        ("records held", finding.records_held),
        ("groups held", finding.groups_held or None),
        ("why", finding.reason),
        ("cause", finding.cause),
        ("missing", finding.missing or None),
        ("remedy", finding.remedy.replace("\n", " ")),
    ]


def id_text(value: int | None) -> str | None:
    """An id or an epoch, without separators."""
    return None if value is None else str(value)
