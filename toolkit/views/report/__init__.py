"""The postmortem: one page about what was held, since when, by whom, why, who was affected and what was done.

>>> report(**collect_incident(log_dir, recording), actions=audit.rows()).save("report.html")  # doctest: +SKIP
"""

from __future__ import annotations

from toolkit.views.report.incident import collect_incident, timeline_of
from toolkit.views.report.redaction import Redaction
from toolkit.views.report.report import Report, report

__all__ = ["Redaction", "Report", "collect_incident", "report", "timeline_of"]
