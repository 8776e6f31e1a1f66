"""The names of causes in a finding's sentence."""

import re

from toolkit.analysis.diagnosis.decision import CAUSES
from toolkit.schema import Row


def cause_names(row: Row) -> list[str]:
    """Those in parentheses at its end, the deciding one first."""
    found = re.search(r"\(([a-z-]+(?:, [a-z-]+)*)\)$", row["cause"] or "")
    names = found[1].split(", ") if found else []
    assert set(names) <= CAUSES.keys()
    return names
