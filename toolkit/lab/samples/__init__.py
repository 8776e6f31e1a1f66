"""Recorded incidents: real segments of the lab's brokers, small enough for the package, so that no broker is needed.

>>> load("late-message").log_dir().findings(topics=["orders"]).verdict[0]  # doctest: +SKIP
'hanging'

``python -m tests.record_samples``, in the repository, records them again.
"""

from __future__ import annotations

from toolkit.lab.samples.incident_sample import IncidentSample, load, names

__all__ = ["IncidentSample", "load", "names"]
