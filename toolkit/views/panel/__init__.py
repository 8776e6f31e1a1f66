"""The abort panel: from a finding to a moved LSO in a notebook, step by step (ipywidgets)."""

from __future__ import annotations

from toolkit.views.panel.abort_panel import AbortPanel

__all__ = ["AbortPanel"]
