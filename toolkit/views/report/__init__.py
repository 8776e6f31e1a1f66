"""The postmortem: one page of what was held, since when, by whom, why, whom it hit and what was done about it.

>>> report(**collect_incident(log_dir, recording), actions=audit.rows()).save("report.html")  # doctest: +SKIP
"""

from __future__ import annotations

from toolkit.views.report.incident import collect_incident, timeline_of
from toolkit.views.report.report import Report, report

__all__ = ["Report", "collect_incident", "report", "timeline_of"]
