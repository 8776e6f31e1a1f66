"""Rows to what a person looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.views.tables import show

__all__ = ["show"]


def __getattr__(name: str) -> object:
    if name == "show":
        from toolkit.views.tables import show

        return show
    raise AttributeError(f"module 'toolkit.views' has no attribute {name!r}")
