"""A page for each table: what a row is, its columns with types, units and meaning, its key and order."""

from __future__ import annotations

from toolkit.schema import CLUSTER_EVENTS, TABLES, Column, ListOf, StructOf, Table
from toolkit.schema.log import EVENTS
from toolkit.schema.table import Type

__all__ = ["table_pages"]


def table_pages() -> dict[str, str]:
    """File name to text."""
    pages = {f"{name}.md": _page(table) for name, table in TABLES.items()}
    lines = [f"| [`{name}`]({name}.md) | {table.row} |" for name, table in sorted(TABLES.items())]
    tree = ["```{toctree}", ":hidden:", "", *sorted(TABLES), "```"]
    intro = (
        "Every table has the same columns from a cluster, from files and from a recording. Ids and offsets are "
        "nullable integers: an unknown is null, never -1. Times are UTC, in milliseconds. What could not be read is a "
        "row with its `error`."
    )
    index = ["# Tables", "", intro, "", "| table | one row is |", "| --- | --- |", *lines, "", *tree, ""]
    return {"index.md": "\n".join(index), **pages}


def _page(table: Table) -> str:
    lines = ["| column | type | meaning |", "| --- | --- | --- |", *map(_line, table.columns)]
    key = f"Key: {_names(table.key)}. Sorted by {_names(table.sort)}." if table.sort else f"Key: {_names(table.key)}."
    if table is CLUSTER_EVENTS:
        lines += [
            "",
            "| `event` | meaning |",
            "| --- | --- |",
            *(f"| `{name}` | {what} |" for name, what in EVENTS.items()),
        ]
    return "\n".join([f"# `{table.name}`", "", f"One row is {table.row}.", "", key, "", *lines, ""])


def _line(column: Column) -> str:
    kind = ", ".join(filter(None, [_type(column.type), column.unit, "" if column.nullable else "not null"]))
    return f"| `{column.name}` | {kind} | {column.doc.replace('|', chr(92) + '|')} |"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _type(type_: Type) -> str:
    match type_:
        case ListOf(item):
            return f"list of {_type(item)}"
        case StructOf(fields):
            return "struct (" + ", ".join(f"`{name}` {_type(inner)}" for name, inner in fields) + ")"
    return str(type_).replace("timestamp[ms, UTC]", "timestamp, ms, UTC")
