"""Figures of plotly from rows: what holds a partition's LSO, over time and offsets; none shows itself."""

from __future__ import annotations

from toolkit.views.plots.history import plot_history
from toolkit.views.plots.lag import plot_lag
from toolkit.views.plots.live import LiveTimeline
from toolkit.views.plots.overview import plot_overview
from toolkit.views.plots.timeline import plot_timeline

__all__ = ["LiveTimeline", "plot_history", "plot_lag", "plot_overview", "plot_timeline"]
