"""Figures of plotly from rows: what holds a partition's LSO, over time and offsets; none shows itself."""

from __future__ import annotations

from toolkit.views.plots.notebook_figure import figure_html
from toolkit.views.plots.partition_plots import number_tiles, plot_holds, plot_lag, plot_overview
from toolkit.views.plots.timeline_plot import plot_timeline

__all__ = ["figure_html", "number_tiles", "plot_holds", "plot_lag", "plot_overview", "plot_timeline"]
