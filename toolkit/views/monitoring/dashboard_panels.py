"""The panels of the dashboard as data, from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.sources.recording.sampling.metrics import LATE
from toolkit.views.monitoring.alerts import AlertSettings

SELECTED = 'job=~"$job", instance=~"$instance"'
SEEN = "0 * max(kafka_txn_last_sample_timestamp_seconds > 0)"  # 0 for a recorder with a sample
PARTITION = "{{topic}}-{{partition}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPanel:
    """A panel.

    Parameters
    ----------
    kind
        stat or timeseries, which every Grafana has.
    title, description
        What it shows, and what it means.
    queries
        PromQL by legend. The dashboard adds the selection of recorders.
    width, height
        In Grafana's grid of 24 columns.
    unit
        Grafana's name of the unit.
    yellow_from, red_from
        Lowest value in that colour; null for never.
    stacked
        Whether the series add up.
    """

    kind: str
    title: str
    description: str
    queries: Mapping[str, str]
    width: int
    height: int
    unit: str = "short"
    yellow_from: float | None = None
    red_from: float | None = None
    stacked: bool = False


def dashboard_panels(settings: AlertSettings) -> list[DashboardPanel]:
    """Every panel, in rows from left to right: now, over time, and the state of the recorder."""
    return [*_now(settings), *_over_time(settings), *_recorder()]


def _now(settings: AlertSettings) -> list[DashboardPanel]:
    def stat(
        title: str, expr: str, description: str, *, unit: str = "short", yellow: float | None = None, red: float | None
    ) -> DashboardPanel:
        return DashboardPanel(
            kind="stat",
            title=title,
            description=description,
            queries={title: expr},
            width=4,
            height=4,
            unit=unit,
            yellow_from=yellow,
            red_from=red,
        )

    return [
        stat(
            "Longest held LSO",
            f"max(kafka_txn_partition_lso_held_seconds) or {SEEN}",
            "For how long the oldest of all transactions that hold a last stable offset has held it.",
            unit="s",
            yellow=settings.lso_held / 3,
            red=settings.lso_held,
        ),
        stat(
            "Hanging transactions",
            'sum(kafka_txn_transactions{verdict="hanging"})',
            "No coordinator will end them. What was decided about their records, and the remedy: kafka-txn diagnose.",
            red=1,
        ),
        stat(
            "Partitions with late transactions",
            f"sum({LATE})",
            "Open past their own timeout (KIP-664): check the coordinator.",
            yellow=1,
            red=None,
        ),
        stat(
            "Consumer groups blocked",
            f"count(count by (group) (kafka_txn_group_held_partitions)) or {SEEN}",
            "Groups that are blocked at the LSO of at least one partition.",
            red=1,
        ),
        stat(
            "Unknown transactions",
            'sum(kafka_txn_transactions{verdict="unknown"})',
            "A response is missing, so whether they hang is unknown: do not abort them.",
            yellow=1,
            red=None,
        ),
        stat(
            "Age of the last sample",
            "max(time() - kafka_txn_last_sample_timestamp_seconds)",
            "Every other panel is as old as this. No data: no recorder responds.",
            unit="s",
            yellow=settings.recorder_blind / 2,
            red=settings.recorder_blind,
        ),
    ]


def _over_time(settings: AlertSettings) -> list[DashboardPanel]:
    return [
        DashboardPanel(
            kind="timeseries",
            title="Held LSO by partition (top 10)",
            description="For how long one transaction has held it: a line that climbs is a partition whose "
            "read_committed consumers stop. The horizontal line is the alert KafkaTxnLsoHeld.",
            queries={PARTITION: "topk(10, kafka_txn_partition_lso_held_seconds > 0)"},
            width=24,
            height=10,
            unit="s",
            red_from=settings.lso_held,
        ),
        DashboardPanel(
            kind="timeseries",
            title="Open transactions by verdict",
            description="Of the whole cluster. ongoing and ending are normal; the others need a check.",
            queries={"{{verdict}}": "sum by (verdict) (kafka_txn_transactions)"},
            width=8,
            height=8,
            stacked=True,
        ),
        DashboardPanel(
            kind="timeseries",
            title="Open transactions by outcome",
            description="What was decided about their records. commit and abort are normal for a moment, while the "
            "markers are written; later, a commit lacks its marker.",
            queries={"{{outcome}}": "sum by (outcome) (kafka_txn_open_outcomes)"},
            width=8,
            height=8,
            stacked=True,
        ),
        DashboardPanel(
            kind="timeseries",
            title="Hanging, late and committed transactions by partition (top 10)",
            description="A late one that does not hang is overdue, or its markers cannot be written. A committed one "
            "lacks its marker, and no read_committed consumer receives its records: never abort it.",
            queries={
                f"hanging {PARTITION}": "topk(10, kafka_txn_partition_hanging_transactions > 0)",
                f"late {PARTITION}": "topk(10, kafka_txn_partition_late_transactions > 0)",
                f"committed {PARTITION}": "topk(10, kafka_txn_partition_commits_without_marker > 0)",
            },
            width=8,
            height=8,
            stacked=True,
        ),
        DashboardPanel(
            kind="timeseries",
            title="Records held by partition (top 10)",
            description="Offsets from the LSO to the high watermark, markers included: what read_committed consumers "
            "cannot read yet, and their clients do not count as lag.",
            queries={PARTITION: "topk(10, kafka_txn_partition_lso_lag_offsets > 0)"},
            width=12,
            height=8,
        ),
        DashboardPanel(
            kind="timeseries",
            title="Partitions on which a group is blocked (top 10)",
            description="By consumer group.",
            queries={"{{group}}": "topk(10, kafka_txn_group_held_partitions)"},
            width=12,
            height=8,
            stacked=True,
        ),
        DashboardPanel(
            kind="timeseries",
            title="Offsets that a group cannot read (top 10)",
            description="Offsets from the LSO on, which no client counts as lag; and those the group can read now.",
            queries={
                "held {{group}} {{topic}}-{{partition}}": "topk(10, kafka_txn_group_held_offsets)",
                "readable {{group}} {{topic}}-{{partition}}": "topk(10, kafka_txn_group_behind_offsets)",
            },
            width=24,
            height=8,
        ),
    ]


def _recorder() -> list[DashboardPanel]:
    counts = {name: f"increase(kafka_txn_samples_{name}_total[5m])" for name in ("failed", "skipped", "unwritten")}
    return [
        DashboardPanel(
            kind="timeseries",
            title="Recorder: age and duration of samples",
            description="An age of more than three intervals is the alert KafkaTxnRecorderBlind.",
            queries={
                "age {{instance}}": "time() - kafka_txn_last_sample_timestamp_seconds",
                "duration {{instance}}": "kafka_txn_last_sample_duration_seconds",
                "interval {{instance}}": "kafka_txn_sample_interval_seconds",
            },
            width=12,
            height=8,
            unit="s",
        ),
        DashboardPanel(
            kind="timeseries",
            title="Recorder: what is missing",
            description="Samples of the last 5 minutes that read nothing (failed), were left out (skipped) or could "
            "not be written; and what the last sample misses, without which a verdict is unknown.",
            queries={
                **{f"{name} {{{{instance}}}}": expr for name, expr in counts.items()},
                "responses missing {{instance}}": "kafka_txn_last_sample_gaps",
                "partitions unread {{instance}}": "kafka_txn_last_sample_unread_partitions",
                "partitions not listed {{instance}}": "kafka_txn_last_sample_omitted_partitions",
                "groups not listed {{instance}}": "kafka_txn_group_series_omitted",
            },
            width=12,
            height=8,
        ),
    ]
