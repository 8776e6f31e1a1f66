"""The page of the docs that explains a finding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.evidence.cause_table import CAUSES
from toolkit.schema import FINDINGS, Column, Table
from toolkit.schema.docs_links import cause_page, verdict_page
from toolkit.schema.table import STRING

if TYPE_CHECKING:
    from toolkit.schema import Row

_NAMES = re.compile(r"\(([a-z-]+(?:, [a-z-]+)*)\)$")  # at the end of a cause

LINKED_FINDINGS = Table(
    FINDINGS.name,
    FINDINGS.row,
    (*FINDINGS.columns, Column("docs", STRING, "Page of the docs about its cause, or about its verdict.")),
    FINDINGS.key,
    FINDINGS.sort,
)
"""Findings with the page of the docs, for JSON and CSV."""


def finding_page(row: Row) -> str:
    """Address of the page about a finding's deciding cause, or about its verdict if the cause has no name."""
    found = _NAMES.search(row.get("cause") or "")
    names = [name for name in found[1].split(", ") if name in CAUSES] if found else []
    return cause_page(names[0]) if names else verdict_page(row["verdict"])


def with_page(row: Row) -> Row:
    """A row of `LINKED_FINDINGS`."""
    return {**row, "docs": finding_page(row)}
