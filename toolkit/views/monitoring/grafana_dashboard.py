"""The dashboard as Grafana's JSON: schema version 41, which Grafana 11.6 and all later ones import."""

from __future__ import annotations

import json
from importlib import resources

from toolkit.views.monitoring.alerts import AlertSettings

DASHBOARD = "grafana_dashboard.json"


def grafana_dashboard(settings: AlertSettings | None = None) -> str:
    """The dashboard, for Grafana's import or provisioning; its data source is a variable.

    Parameters
    ----------
    settings
        Those of the rules: its colours change at the thresholds of the alerts.
    """
    settings = settings or AlertSettings()
    thresholds = {
        "Longest held LSO": {"yellow": settings.lso_held / 3, "red": settings.lso_held},
        "Held LSO by partition (top 10)": {"red": settings.lso_held},
        "Age of the last sample": {"yellow": settings.recorder_blind / 2, "red": settings.recorder_blind},
    }
    dashboard = json.loads((resources.files(__package__) / DASHBOARD).read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
            step["value"] = thresholds.get(panel["title"], {}).get(step["color"], step["value"])
    return json.dumps(dashboard, indent=2) + "\n"
