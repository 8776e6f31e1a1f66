"""The visibility of an offset as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.schema import OFFSET_VISIBILITY, Row
from toolkit.views.findings_text import wrap
from toolkit.views.row_formats import cell_text

ASIDE = {"topic", "partition", "offset", "status", "reason", "broker_id", "observed_at"}
LONGEST = max(len(name) for name in OFFSET_VISIBILITY.names)


def visibility_lines(row: Row, *, width: int | None = None) -> Iterator[str]:
    """Lines of a row of ``schema.OFFSET_VISIBILITY``; unknown values are left out.

    Parameters
    ----------
    row
        The row.
    width
        Columns of the terminal; null for no limit.
    """
    status = (row["status"] or "unknown").replace("_", " ")
    yield f"{cell_text(row['topic'])}-{row['partition']}@{row['offset']}  {status}"
    yield from wrap(cell_text(row["reason"]), before="  ", width=width)
    for name in OFFSET_VISIBILITY.names:
        if name not in ASIDE and row[name] is not None:
            yield f"  {name.replace('_', ' '):<{LONGEST}}  {cell_text(row[name])}"
