"""A report as one self-contained HTML page, with styles, picture and figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.views.html_page import page
from toolkit.views.report.report_parts import ReportSection

Figure = Any
"""A plotly Figure, or a function that returns one for ``"light"`` and for ``"dark"``; plotly is not imported here."""

TEMPLATE = "page.html"


def html(title: str, summary: Sequence[str], sections: Sequence[ReportSection], *, figure: Figure | None = None) -> str:
    """The page of a report.

    Parameters
    ----------
    title, summary, sections
        As for `markdown`.
    figure
        Figure under the findings.

    Raises
    ------
    UsageError
        If jinja2 is not installed.
    """
    values = {"title": title, "summary": summary, "sections": sections, "figures": _figures(figure)}
    return page(__name__.rpartition(".")[0], TEMPLATE, what="A page", **values) + "\n"


def _figures(figure: Figure | None) -> dict[str, str]:
    """HTML of the figure by theme, plotly's script in the first one only."""
    if figure is None:
        return {}
    made = {theme: figure(theme) for theme in ("light", "dark")} if callable(figure) else {"": figure}
    options = {"full_html": False, "config": {"responsive": True, "displaylogo": False}}
    return {
        theme: each.to_html(include_plotlyjs=number == 0, **options)
        for number, (theme, each) in enumerate(made.items())
    }
