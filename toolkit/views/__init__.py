"""Present rows as text, HTML, plots, panel and report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.views.action_document import show_plan
    from toolkit.views.finding_steps import next_steps
    from toolkit.views.show_table import show

__all__ = ["next_steps", "show", "show_plan"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "next_steps": "toolkit.views.finding_steps",
        "show": "toolkit.views.show_table",
        "show_plan": "toolkit.views.action_document",
    },
)
