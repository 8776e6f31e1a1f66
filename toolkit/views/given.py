"""Rows as views take them in: a frame of a declared table, or rows of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.schema import Row, Table

__all__ = ["Data", "rows_of"]

Data: TypeAlias = "pd.DataFrame | Iterable[Row] | None"
"""A frame of a declared table, or rows of it."""


def rows_of(data: Data, table: Table) -> list[Row]:
    """Rows of a table from a frame, or from rows; a column that is not there is null, one that is not known is left."""
    if data is None:
        return []
    columns = getattr(data, "columns", None)
    if columns is not None:
        return table.rows(data.reindex(columns=table.names))  # type: ignore[union-attr]
    nothing: dict[str, object] = dict.fromkeys(table.names)
    return [{**nothing, **row} for row in cast("Iterable[Row]", data)]
