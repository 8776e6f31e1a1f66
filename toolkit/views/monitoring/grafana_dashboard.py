"""The dashboard as Grafana's JSON: schema version 41, which Grafana 11.6 and all later ones import."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from toolkit.sources.recording.sampling.metrics import LATE
from toolkit.views.monitoring.alerts import AlertSettings
from toolkit.views.monitoring.dashboard_panels import SELECTED, DashboardPanel, dashboard_panels

COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
METRIC = re.compile(rf"\b((?:{LATE}|kafka_txn_\w+)\b)(?:{{(.*?)}})?")


def grafana_dashboard(settings: AlertSettings | None = None) -> str:
    """The dashboard, for Grafana's import or provisioning; its data source is a variable.

    Parameters
    ----------
    settings
        Those of the rules: its colours change at the thresholds of the alerts.
    """
    placed = _placed(dashboard_panels(settings or AlertSettings()))
    dashboard = {
        "title": "Kafka transactions",
        "description": "Who holds which last stable offset, as recorded by kafka-txn record.",
        "tags": ["kafka", "transactions"],
        "schemaVersion": 41,
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": [_panel(panel, position, number=number) for number, (panel, position) in enumerate(placed, start=1)],
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _variables() -> list[dict[str, Any]]:
    def values(name: str, label: str, query: str) -> dict[str, Any]:
        return {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": DATASOURCE,
            "query": query,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": ["All"], "value": ["$__all"]},
        }

    metric = "kafka_txn_samples_taken_total"
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        values("job", "Job", f"label_values({metric}, job)"),
        values("instance", "Recorder", f'label_values({metric}{{job=~"$job"}}, instance)'),
    ]


def _placed(panels: Iterable[DashboardPanel]) -> Iterator[tuple[DashboardPanel, dict[str, int]]]:
    """Each panel with its position in the grid: beside the previous one if the row has room."""
    x = y = height = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        yield panel, {"h": panel.height, "w": panel.width, "x": x, "y": y}
        x, height = x + panel.width, max(height, panel.height)


def _panel(panel: DashboardPanel, position: dict[str, int], *, number: int) -> dict[str, Any]:
    options, custom = _timeseries(panel) if panel.kind == "timeseries" else (_stat(), {})
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": position,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": DATASOURCE,
                "expr": METRIC.sub(_selected, expr),
                "legendFormat": legend,
                "editorMode": "code",
                "instant": panel.kind == "stat",
                "range": panel.kind != "stat",
            }
            for at, (legend, expr) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": _steps(panel)},
                "custom": custom,
            },
            "overrides": [],
        },
        "options": options,
    }


def _selected(found: re.Match[str]) -> str:
    """A metric of an expression, of the selected recorders only."""
    metric, matchers = found.groups()
    return f"{metric}{{{', '.join(filter(None, (SELECTED, matchers)))}}}"


def _steps(panel: DashboardPanel) -> list[dict[str, Any]]:
    colours = {"yellow": panel.yellow_from, "red": panel.red_from}
    above = [{"color": colour, "value": value} for colour, value in colours.items() if value is not None]
    return [{"color": "green", "value": None}, *above]


def _stat() -> dict[str, Any]:
    return {
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }


def _timeseries(panel: DashboardPanel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the plugin, and of its fields."""
    options = {
        "legend": {"displayMode": "table", "placement": "right", "showLegend": True, "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    custom = {
        "drawStyle": "line",
        "lineWidth": 2,
        "fillOpacity": 30 if panel.stacked else 0,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if panel.red_from is None else "dashed"},
    }
    return options, custom
