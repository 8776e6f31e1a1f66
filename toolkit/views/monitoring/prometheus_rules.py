"""Recording and alerting rules as a file of Prometheus; the only importer of PyYAML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toolkit.errors import UsageError
from toolkit.views.monitoring.alerts import Alert, AlertSettings, alerts

# Cheap to query over months; `without` keeps labels of the installation, such as the cluster.
RECORDING_RULES = {
    "instance:kafka_txn_partition_lso_held_seconds:max": "max without (topic, partition) "
    "(kafka_txn_partition_lso_held_seconds)",
    "instance:kafka_txn_partition_hanging_transactions:sum": "sum without (topic, partition) "
    "(kafka_txn_partition_hanging_transactions)",
    "instance:kafka_txn_samples_failed:ratio_rate5m": "rate(kafka_txn_samples_failed_total[5m]) "
    "/ (rate(kafka_txn_samples_taken_total[5m]) > 0)",
}
UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def prometheus_rules(settings: AlertSettings | None = None) -> str:
    """The rules, for ``rule_files`` of Prometheus 2 or 3.

    Raises
    ------
    UsageError
        If PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise UsageError("Prometheus rules need PyYAML.", do="pip install 'kafka-txn-toolkit[metrics]'") from error
    settings = settings or AlertSettings()
    recording = [{"record": name, "expr": expr} for name, expr in RECORDING_RULES.items()]
    alerting = [_rule(alert, settings) for alert in alerts(settings)]
    groups = [{"name": "kafka-txn-recording", "rules": recording}, {"name": "kafka-txn-alerts", "rules": alerting}]
    return str(yaml.safe_dump({"groups": groups}, sort_keys=False, width=math.inf))


def _rule(alert: Alert, settings: AlertSettings) -> Mapping[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": _duration(alert.pending),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{settings.runbook_url}#{alert.name.lower()}",
        },
    }


def _duration(seconds: float) -> str:
    """``900`` as ``15m``; Prometheus does not allow fractions."""
    ms = round(seconds * 1000)
    unit = next(unit for unit, length in UNITS_MS.items() if ms % length == 0 and (ms or unit == "s"))
    return f"{ms // UNITS_MS[unit]}{unit}"
