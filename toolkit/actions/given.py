"""What a person hands over as a finding: a row, or a row of a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from toolkit.errors import UsageError
from toolkit.schema import FINDINGS, Row

if TYPE_CHECKING:
    import pandas as pd

    Finding: TypeAlias = "Row | pd.Series[Any] | pd.DataFrame"

__all__ = ["as_row"]


def as_row(finding: Finding) -> Row:
    """One row of ``schema.FINDINGS`` as a dict of plain values.

    Raises
    ------
    UsageError
        If it is not exactly one.
    """
    if isinstance(finding, Mapping):
        return finding
    import pandas as pd

    frame = finding if isinstance(finding, pd.DataFrame) else finding.to_frame().T
    if len(frame) != 1:
        raise UsageError(f"{len(frame)} findings were given.", do="Choose one: findings.iloc[0].")
    return FINDINGS.rows(frame)[0]
