"""``%load_ext toolkit``: frames of declared tables are displayed as by `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from toolkit.schema import TABLES
from toolkit.views.tables.show_table import show

if TYPE_CHECKING:
    from toolkit.schema import Table


def load(ipython: Any) -> None:
    """Let an IPython shell display frames of declared tables as `show` does; others stay as in pandas."""
    ipython.display_formatter.formatters["text/html"].for_type(pd.DataFrame, _html)


def unload(ipython: Any) -> None:
    """Let pandas display them again."""
    ipython.display_formatter.formatters["text/html"].pop(pd.DataFrame, None)


def _html(frame: pd.DataFrame) -> str | None:
    table = _whole_table(frame)
    if table is None:
        return frame._repr_html_()  # type: ignore[operator, no-any-return]
    return show(frame, table)._repr_html_()


def _whole_table(frame: pd.DataFrame) -> Table | None:
    names = list(frame.columns)
    return next((table for table in TABLES.values() if table.names == names), None)
