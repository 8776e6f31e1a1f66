"""Alerts on the metrics of ``kafka-txn record``, as rules of Prometheus; and a Grafana dashboard.

`docs/alerts.md` has a section for each alert, by its name. What is recorded is cheap to query over months; ``without``
keeps labels of the installation, such as the cluster. The dashboard is Grafana's JSON of schema version 41, which
Grafana 11.6 and all later ones import.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from toolkit.schema.verdict import RUNBOOK_URL, Verdict
from toolkit.views.renderers import package_text

DASHBOARD, RULES = "grafana_dashboard.json", "prometheus_rules.yml"
# Colours of series by panel: Grafana's matcher, its colour mode, and the colour of each match.
SERIES_COLOURS = {
    "Open transactions by verdict": (
        "byName",
        "fixed",
        {verdict.value: verdict.colour for verdict in Verdict if verdict.is_open},
    ),
    "Hanging, late and committed transactions by partition (top 10)": (
        "byFrameRefID",
        "shades",
        {"A": "red", "B": "yellow", "C": "orange"},
    ),
}
UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Seconds before an alert fires, and names that differ between installations."""

    lso_held: float = 900  # for how long a transaction may hold an LSO; the brokers' default maximum is 15 minutes
    # hanging, late, group_held: for how long a transaction is hanging (or committed without its marker) or late, or a
    # consumer group held
    hanging: float = 60
    late: float = 300
    group_held: float = 600
    recorder_blind: float = 120  # for how long the recorder is down, or takes no successful sample
    recorder_incomplete: float = 900  # for how long samples are incomplete, or cannot be written
    job: str = "kafka-txn"  # Prometheus' job that scrapes the recorder
    runbook_url: str = RUNBOOK_URL  # address of `docs/alerts.md`


# Of each alert, the setting that says for how long its expression must hold before it fires; without one, at once.
PENDING = {
    "KafkaTxnHanging": "hanging",
    "KafkaTxnCommitNotVisible": "hanging",
    "KafkaTxnGroupHeld": "group_held",
    "KafkaTxnLate": "late",
    "KafkaTxnRecorderDown": "recorder_blind",
    "KafkaTxnRecorderBlind": "recorder_blind",
    "KafkaTxnRecorderIncomplete": "recorder_incomplete",
    "KafkaTxnRecorderUnwritten": "recorder_incomplete",
}


def prometheus_rules(settings: AlertSettings | None = None) -> str:
    """The rules, for ``rule_files`` of Prometheus 2 or 3: the stored ones, with these settings."""
    import yaml

    settings = settings or AlertSettings()
    rules = yaml.safe_load(package_text(__package__, RULES))
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    for name, rule in alerts.items():
        rule["annotations"]["runbook_url"] = f"{settings.runbook_url}#{name.lower()}"
    for name, setting in PENDING.items():
        alerts[name]["for"] = _duration(getattr(settings, setting))
    alerts["KafkaTxnLsoHeld"]["expr"] = f"kafka_txn_partition_lso_held_seconds > {settings.lso_held:.15g}"
    up, down = f"up{{job={json.dumps(settings.job)}}}", alerts["KafkaTxnRecorderDown"]
    down["expr"] = f"{up} == 0 or absent({up})"
    text = down["annotations"]
    text["description"] = text["description"].replace("kafka-txn", settings.job, 1)
    return str(yaml.safe_dump(rules, sort_keys=False, width=math.inf))


def grafana_dashboard(settings: AlertSettings | None = None) -> str:
    """The dashboard, for Grafana's import or provisioning; its data source is a variable.

    `settings`: those of the rules: its colours change at the thresholds of the alerts.
    """
    settings = settings or AlertSettings()
    thresholds = {
        "Longest held LSO": {"yellow": settings.lso_held / 3, "red": settings.lso_held},
        "Held LSO by partition (top 10)": {"red": settings.lso_held},
        "Age of the last sample": {"yellow": settings.recorder_blind / 2, "red": settings.recorder_blind},
    }
    dashboard = json.loads(package_text(__package__, DASHBOARD))
    for panel in dashboard["panels"]:
        for step in panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", ()):
            step["value"] = thresholds.get(panel["title"], {}).get(step["color"], step["value"])
        matcher, mode, colours = SERIES_COLOURS.get(panel["title"], ("byName", "fixed", {}))
        panel["fieldConfig"]["overrides"] = [
            {
                "matcher": {"id": matcher, "options": match},
                "properties": [{"id": "color", "value": {"mode": mode, "fixedColor": colour}}],
            }
            for match, colour in colours.items()
        ]
    return json.dumps(dashboard, indent=2) + "\n"


def _duration(seconds: float) -> str:
    """``900`` as ``15m``; Prometheus does not allow fractions."""
    ms = round(seconds * 1000)
    unit = next(unit for unit, length in UNITS_MS.items() if ms % length == 0 and (ms or unit == "s"))
    return f"{ms // UNITS_MS[unit]}{unit}"
