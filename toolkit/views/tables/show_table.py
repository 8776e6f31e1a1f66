"""`show`: display a table of the toolkit, in a notebook and in a terminal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.verdicts import VERDICTS
from toolkit.errors import UsageError
from toolkit.schema import FINDINGS, TABLES, Row, Table
from toolkit.schema.coerce import rows_of
from toolkit.views.findings_text import finding_lines, summary
from toolkit.views.html_page import page
from toolkit.views.report.finding_sections import by_weight
from toolkit.views.row_formats import row_lines
from toolkit.views.tables.table_cells import answer_cells, column_cells, reason_lines

if TYPE_CHECKING:
    import pandas as pd

TEXT_WIDTH = 120
MAX_ROWS = 200  # in a page that scrolls; the frame has all of them
TEMPLATE = "table.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """Rows of a table, as HTML in a notebook, otherwise as text.

    Parameters
    ----------
    table, rows
        The rows to show.
    columns
        Columns to show; null for those with values; for findings, for a summary of each row.
    now
        Time up to which ages are counted; null for the time at which each row was observed.
    """

    table: Table
    rows: Sequence[Row]
    columns: Sequence[str] | None
    now: dt.datetime | None

    def __repr__(self) -> str:
        if self._is_answer:
            now = self.now or max((row["observed_at"] for row in self.rows), default=dt.datetime.now(dt.UTC))
            ordered = FINDINGS.arrow(self.rows).to_pylist()  # by partition: each has a block
            return "\n".join([*finding_lines(ordered, now=now, width=TEXT_WIDTH), "", summary(self.rows)])
        return "\n".join(row_lines(self.table, self.rows, columns=self._names()))

    def _repr_html_(self) -> str:
        """A table that can be sorted by its headings, without network access.

        Raises
        ------
        UsageError
            If jinja2 is not installed.
        """
        rows = self.rows[:MAX_ROWS]
        headings, cells = (
            answer_cells(rows, now=self.now) if self._is_answer else column_cells(self.table, rows, self._names())
        )
        verdicts_here = {row.get("verdict") for row in rows}
        return page(
            __name__.rpartition(".")[0],
            TEMPLATE,
            what="A table",
            table=self.table,
            is_answer=self._is_answer,
            headings=headings,
            lines=[
                (line, list(reason_lines(row)) if self._is_answer else [], row.get("error"))
                for line, row in zip(cells, rows, strict=True)
            ],
            left_out=len(self.rows) - len(rows),
            verdicts={name: text for name, text in VERDICTS.items() if name in verdicts_here},
        )

    @property
    def _is_answer(self) -> bool:
        return self.table is FINDINGS and self.columns is None

    def _names(self) -> Sequence[str]:
        """The selected columns, or else those with a value, those of error rows included."""
        if self.columns is not None:
            return self.columns
        with_value = [name for name in self.table.names if any(row[name] not in (None, []) for row in self.rows)]
        return with_value or list(self.table.names)


def show(
    data: pd.DataFrame | Iterable[Row],
    table: Table | None = None,
    *,
    columns: Sequence[str] | None = None,
    now: dt.datetime | None = None,
) -> TableView:
    """Show a table of the toolkit: sortable, columns explained, verdicts coloured, the most urgent first.

    Parameters
    ----------
    data
        A frame of a declared table, or rows of it; some of its columns are enough.
    table
        The table; recognized by its columns if null.
    columns
        Columns to show, in this order; for findings, null shows a summary in each row.
    now
        Time up to which ages are counted; by default each row's ``observed_at``.

    Returns
    -------
    Shown
        With HTML for a notebook, and text for everything else.

    Raises
    ------
    UsageError
        If it is none of `toolkit.schema.TABLES`, or has no such columns.

    Examples
    --------
    >>> show(cluster.findings())  # doctest: +SKIP
    """
    source = data if hasattr(data, "columns") else list(data)  # an iterator is read once
    names = _names_in(source)
    known = table or table_of(names)
    if known is None:
        raise UsageError(
            "These are not columns of one of the toolkit's tables.",
            do="Show the frame as it is; or name its table: show(frame, schema.LOG_TRANSACTIONS).",
        )
    unknown = [name for name in columns or () if name not in known.names]
    if unknown:
        raise UsageError(f"{known.name} has no column {', '.join(unknown)}.", do=f"It has {', '.join(known.names)}.")
    rows = rows_of(source, known)
    is_whole = set(known.names) <= set(names)
    selected = columns if columns is not None or is_whole or not names else [n for n in known.names if n in set(names)]
    return TableView(table=known, rows=by_weight(rows) if known is FINDINGS else rows, columns=selected, now=now)


def table_of(names: Sequence[str], *, tables: Mapping[str, Table] = TABLES) -> Table | None:
    """The declared table that has these columns, the one with the fewest other columns; null if there is none."""
    fitting = [table for table in tables.values() if set(names) <= set(table.names)]
    return min(fitting, key=lambda table: len(table.names), default=None) if names else FINDINGS


def _names_in(data: object) -> list[str]:
    columns = getattr(data, "columns", None)
    if columns is not None:
        return [str(name) for name in columns]
    rows: list[Row] = list(data)  # type: ignore[call-overload]
    return list(dict.fromkeys(name for row in rows for name in row))
