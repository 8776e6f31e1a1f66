"""Figures that every page draws: plotly in a notebook, in its theme; elsewhere a picture with an alternative text."""

from __future__ import annotations

import base64
import dataclasses
import html
from functools import cache
from typing import Any

import plotly.graph_objects as go

from toolkit.views.plots.figure_svg import figure_svg, figure_text
from toolkit.views.plots.plot_theme import DARK_VARIABLES, THEMES, Theme, apply_theme, follow_theme

OWN_RENDERERS = {"plotly_mimetype", "plotly_mimetype+notebook"}  # plotly's choice in Jupyter; others are the user's


DARK_PAGE = ':is([data-jp-theme-light="false"], [data-vscode-theme-kind="vscode-dark"])'  # JupyterLab, Voila; VS Code


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

        picture, text = figure_svg(self).replace(">", f">{_dark_picture()}", 1), figure_text(self)
        packed = base64.b64encode(picture.encode()).decode("ascii")
        alternative = html.escape(text, quote=True)
        return {
            **renderers["plotly_mimetype"].to_mimebundle(self.to_dict()),
            "text/html": f'<img alt="{alternative}" style="max-width:100%" src="data:image/svg+xml;base64,{packed}">',
            "text/plain": text,
        }


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
def _dark_picture() -> str:
    """Rules inside a picture that is alone on its page, as in a notebook that is not trusted: the browser's theme."""
    light, dark = THEMES["light"], THEMES["dark"]
    names = [field.name for field in dataclasses.fields(light)]
    rules = (f'[{key}="{light[name]}"]{{{key}:{dark[name]}}}' for name in names for key in ("fill", "stroke"))
    return f"<style>@media (prefers-color-scheme: dark) {{ {''.join(dict.fromkeys(rules))} }}</style>"


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
