"""What a panel shows, as text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import ipywidgets as widgets

from toolkit.views.panel import AbortPanel


def panel_text(panel: AbortPanel) -> str:
    """Every text that is not hidden, without markup and pictures."""
    texts = (re.sub(r"<(style|script|svg).*?</\1>", "", each, flags=re.DOTALL) for each in _texts(panel))
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", " ".join(texts))))


def button(panel: AbortPanel, text: str) -> Any:
    """The first button that is not hidden and has this text in it."""
    return next(each for each in _widgets(panel) if isinstance(each, widgets.Button) and text in each.description)


def is_visible(panel: AbortPanel, widget: Any) -> bool:
    """Whether a widget, and all around it, is not hidden."""
    return any(each is widget for each in _widgets(panel))


def _widgets(widget: Any) -> Iterator[Any]:
    if widget.layout.display == "none":
        return
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _widgets(child)


def _texts(panel: AbortPanel) -> Iterator[str]:
    for each in _widgets(panel):
        if isinstance(each, widgets.Button):
            yield each.description
        elif isinstance(each, widgets.HTML) and "<iframe" not in each.value:
            yield each.value
