"""Rows in which no two columns have the same value, so that one in a wrong place is noticed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import count
from typing import Any

from toolkit.schema.table import ListOf, StructOf, Table, Type
from toolkit.schema.verdict import Verdict

START = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
ROWS = 4  # a boolean has two values; so many tell 15 columns of them apart


def distinct_rows(table: Table) -> list[dict[str, Any]]:
    """Rows of a table, in its order; the values of each row differ in all columns, and booleans over all rows."""
    numbers = count(1)
    flags = [column.name for column in table.columns if column.type == "bool"]
    assert len(flags) < 2**ROWS
    rows = [{column.name: _value(column.name, column.type, numbers) for column in table.columns} for _ in range(ROWS)]
    for number, row in enumerate(rows):
        row |= {name: bool((1 + order) >> number & 1) for order, name in enumerate(flags)}
    return [dict(row) for row in table.ordered(rows)]


def _value(name: str, type_: Type, numbers: Iterator[int]) -> Any:
    match type_:
        case "string" if name == "verdict":
            return list(Verdict)[next(numbers) % len(Verdict)].value
        case ListOf(item):
            return [_value(name, item, numbers) for _ in range(2)]
        case StructOf(fields):
            return {inner: _value(inner, each, numbers) for inner, each in fields}
        case "string":
            return f"{name} {next(numbers)}"
        case "binary":
            return b"%d" % next(numbers)
        case "bool":
            return bool(next(numbers) % 2)
        case "float64":
            return next(numbers) + 0.5
        case "timestamp[ms, UTC]":
            return START + dt.timedelta(milliseconds=1001 * next(numbers))
    return next(numbers)
