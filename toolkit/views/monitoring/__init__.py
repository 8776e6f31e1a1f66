"""What turns the metrics of ``kafka-txn record`` into pages: Prometheus rules and a Grafana dashboard."""

from __future__ import annotations

from toolkit.views.monitoring.alerts import AlertSettings, prometheus_rules
from toolkit.views.monitoring.grafana_dashboard import grafana_dashboard

__all__ = ["AlertSettings", "grafana_dashboard", "prometheus_rules"]
