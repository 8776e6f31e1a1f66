"""Tables as a notebook shows them: sortable, with verdicts coloured and explained."""

from __future__ import annotations

from toolkit.views.tables.shown import Shown, show

__all__ = ["Shown", "show"]
