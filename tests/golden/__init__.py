"""Recorded tables of real brokers, and their expected presentation."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from toolkit.schema import FINDINGS, Row
from toolkit.schema.table import TIME
from toolkit.views.finding_document import finding_lines, paint, summary

__all__ = ["FOLDER", "finding_rows", "picture", "text"]

FOLDER = Path(__file__).parent
WIDTH = 106
TIMES = [column.name for column in FINDINGS.columns if column.type == TIME]


def finding_rows() -> list[Row]:
    """``findings.json``: what ``kafka-txn diagnose --format json`` answered on the cluster of `record`."""
    return [
        {**row, **{name: row[name] and dt.datetime.fromisoformat(row[name]) for name in TIMES}}
        for row in json.loads((FOLDER / "findings.json").read_text())
    ]


def text(rows: list[Row]) -> Iterator[str]:
    """The rows as a person reads them, ages counted to when they were observed."""
    yield from finding_lines(rows, width=WIDTH)
    yield from ("", summary(rows))


def picture(lines: list[str]) -> str:
    """Lines as an SVG of a terminal; it loads no fonts from anywhere."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(paint(lines), soft_wrap=True)
    plain = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="kafka-txn diagnose", code_format=plain, unique_id="findings")
