"""The live page: overview and worst partition of a cluster or a recording, redrawn every few seconds (ipywidgets)."""

from __future__ import annotations

from toolkit.views.live.live_page import LivePage

__all__ = ["LivePage"]
