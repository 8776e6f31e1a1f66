"""The dashboard: who holds LSOs now, who held them, incidents by cause, late transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.spark.bundle.bundle_sql import DATASETS

WIDTH = 6  # columns of a page

Widget = dict[str, Any]


def dashboard() -> dict[str, Any]:
    """The definition of the dashboard, as Databricks stores it (``.lvdash.json``)."""
    counters = [
        _counter("totals", "partitions", "Partitions with a held LSO"),
        _counter("totals", "hanging", "Hanging transactions"),
        _counter("totals", "longest_minutes", "Longest hold, minutes"),
    ]
    rows: list[tuple[int, list[Widget]]] = [
        (3, counters),
        (8, [_table("held_now", "Held now, and what is safe to do")]),
        (7, [_bars("held_by_day", "day", "held_minutes", "topic", "Minutes that LSOs were held, by day and topic")]),
        (7, [_bars("incidents", "day", "transactions", "cause", "Transactions that held an LSO, by cause")]),
        (7, [_table("holders", "Who held LSOs longest"), _table("endings", "Timeouts and fences by id")]),
        (6, [_table("late", "Late: open past their own timeout")]),
    ]
    return {
        "datasets": [
            {"name": name, "displayName": name, "queryLines": [query]} for name, query in sorted(DATASETS.items())
        ],
        "pages": [
            {"name": "lso", "displayName": "Last stable offset", "pageType": "PAGE_TYPE_CANVAS", "layout": _grid(rows)}
        ],
    }


def _grid(rows: Sequence[tuple[int, Sequence[Widget]]]) -> list[dict[str, Any]]:
    placed: list[dict[str, Any]] = []
    y = 0
    for height, widgets in rows:
        width = WIDTH // len(widgets)
        for i, widget in enumerate(widgets):
            position = {"x": i * width, "y": y, "width": width, "height": height}
            placed.append({"widget": widget, "position": position})
        y += height
    return placed


def _widget(dataset: str, fields: Sequence[str], spec: dict[str, Any], title: str, *, name: str) -> Widget:
    query = {
        "datasetName": dataset,
        "fields": [{"name": each, "expression": f"`{each}`"} for each in fields],
        "disaggregated": True,
    }
    frame = {"showTitle": True, "title": title}
    return {"name": name, "queries": [{"name": "main_query", "query": query}], "spec": {**spec, "frame": frame}}


def _counter(dataset: str, field: str, title: str) -> Widget:
    spec = {"version": 2, "widgetType": "counter", "encodings": {"value": {"fieldName": field, "displayName": title}}}
    return _widget(dataset, [field], spec, title, name=f"{dataset}_{field}")


def _table(dataset: str, title: str) -> Widget:
    columns = columns_of(DATASETS[dataset])
    encodings = {"columns": [{"fieldName": each, "displayName": each.replace("_", " ")} for each in columns]}
    spec = {"version": 1, "widgetType": "table", "encodings": encodings}
    return _widget(dataset, columns, spec, title, name=f"{dataset}_table")


def _bars(dataset: str, x: str, y: str, color: str, title: str) -> Widget:
    encodings = {
        axis: {"fieldName": field, "displayName": field.replace("_", " "), "scale": {"type": kind}}
        for axis, field, kind in (("x", x, "temporal"), ("y", y, "quantitative"), ("color", color, "categorical"))
    }
    spec = {"version": 3, "widgetType": "bar", "encodings": encodings}
    return _widget(dataset, [x, y, color], spec, title, name=f"{dataset}_bars")


def columns_of(query: str) -> list[str]:
    """Names of the columns that a query of `DATASETS` selects."""
    selected, depth, parts = query[len("SELECT ") : query.index(" FROM ")], 0, [""]
    for character in selected:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.split()[-1] for part in parts]
