"""Tables for a notebook: sortable, with verdicts coloured and explained."""

from __future__ import annotations

from toolkit.views.tables.show_table import TableView, show

__all__ = ["TableView", "show"]
