"""Every known incident, staged on a real broker without mocks.

>>> with Kafka("4.3.1", properties=INCIDENTS["late_message"].properties) as kafka:  # doctest: +SKIP
...     staged = INCIDENTS["late_message"](kafka)
"""

from __future__ import annotations

from collections.abc import Mapping

from toolkit.lab.incidents.hanging import (
    stage_busy_elsewhere,
    stage_future_clock,
    stage_head_deleted,
    stage_late_after_commit,
    stage_late_message,
    stage_never_added,
    stage_offsets_never_added,
    stage_orphan,
    stage_several_open,
    stage_superseded_elsewhere,
    stage_superseded_same_partition,
)
from toolkit.lab.incidents.owned import (
    stage_committing,
    stage_coordinator_gone,
    stage_fenced_by_timeout,
    stage_lost_marker,
    stage_marker_only,
    stage_old_event_times,
    stage_open_long,
    stage_open_young,
    stage_overdue,
    stage_prepared,
    stage_skipped_marker,
    stage_superseded_written,
    stage_unreplicated,
)
from toolkit.lab.staging import (
    EVERYDAY,
    NEGLECTFUL,
    REPLICATED,
    STANDSTILL,
    TWO_PHASE,
    UNCLEAN,
    ClusterSetup,
    Incident,
    StagedIncident,
)

__all__ = [
    "EVERYDAY",
    "INCIDENTS",
    "NEGLECTFUL",
    "REPLICATED",
    "STANDSTILL",
    "TWO_PHASE",
    "UNCLEAN",
    "ClusterSetup",
    "Incident",
    "StagedIncident",
    "stage_busy_elsewhere",
    "stage_committing",
    "stage_coordinator_gone",
    "stage_fenced_by_timeout",
    "stage_future_clock",
    "stage_head_deleted",
    "stage_late_after_commit",
    "stage_late_message",
    "stage_lost_marker",
    "stage_marker_only",
    "stage_never_added",
    "stage_offsets_never_added",
    "stage_old_event_times",
    "stage_open_long",
    "stage_open_young",
    "stage_orphan",
    "stage_overdue",
    "stage_prepared",
    "stage_several_open",
    "stage_skipped_marker",
    "stage_superseded_elsewhere",
    "stage_superseded_same_partition",
    "stage_superseded_written",
    "stage_unreplicated",
]

INCIDENTS: Mapping[str, Incident] = {
    each.name: each
    for each in (
        stage_never_added,
        stage_late_message,
        stage_late_after_commit,
        stage_offsets_never_added,
        stage_superseded_elsewhere,
        stage_superseded_same_partition,
        stage_superseded_written,
        stage_busy_elsewhere,
        stage_several_open,
        stage_head_deleted,
        stage_future_clock,
        stage_orphan,
        stage_old_event_times,
        stage_open_young,
        stage_open_long,
        stage_overdue,
        stage_prepared,
        stage_committing,
        stage_skipped_marker,
        stage_lost_marker,
        stage_unreplicated,
        stage_coordinator_gone,
        stage_marker_only,
        stage_fenced_by_timeout,
    )
}
"""Incident by name, those that hang first."""
