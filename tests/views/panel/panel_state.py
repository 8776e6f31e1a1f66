"""A panel of staged incidents, and what it shows as text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import ipywidgets as widgets

from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.lab.incidents import StagedIncident
from toolkit.schema.live import Finding
from toolkit.views.panel import AbortPanel


def panel_on(cluster: Cluster, trail: Audit, *staged: StagedIncident) -> AbortPanel:
    return AbortPanel(cluster, topics=[each.topic for each in staged], audit=trail, recheck_after=1.1)


def finding_of(panel: AbortPanel, staged: StagedIncident) -> Finding:
    return next(
        each for each in panel.findings if (each.topic, each.start_offset) == (staged.topic, staged.start_offset)
    )


def selected(panel: AbortPanel) -> Finding:
    assert panel.selected is not None
    return panel.selected


def checked(panel: AbortPanel, staged: StagedIncident) -> None:
    """Choose it, and do the dry run."""
    panel.select(finding_of(panel, staged))
    panel.dry_run()
    assert panel.step == "checked", panel.error


def is_checked(panel: AbortPanel) -> bool:
    """Do the dry run again; the brokers may not have loaded everything yet."""
    panel.dry_run()
    return panel.step == "checked"


def is_refreshed(panel: AbortPanel) -> bool:
    """Diagnose again; false if that failed."""
    panel.refresh()
    return panel.error is None


def is_done(panel: AbortPanel) -> bool:
    """Whether the action is done, without an error."""
    return panel.step == "done" and panel.error is None


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
