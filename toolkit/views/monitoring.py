"""Alerts on the metrics of ``kafka-txn record``, as data and as rules of Prometheus; and a Grafana dashboard.

`docs/alerts.md` has a section for each alert, by its name. The dashboard is Grafana's JSON of schema version 41, which
Grafana 11.6 and all later ones import.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib import resources

from toolkit.schema.verdict import RUNBOOK_URL, Verdict

DASHBOARD = "grafana_dashboard.json"
OF_CLUSTER = "{{ with $labels.cluster }} of {{ . }}{{ end }}"  # a label of the scrape configuration, if any
ON_PARTITION = f"{{{{ $labels.topic }}}}-{{{{ $labels.partition }}}}{OF_CLUSTER}"
DIAGNOSE = "kafka-txn diagnose --topic {{ $labels.topic }} --partition {{ $labels.partition }}"

# Cheap to query over months; ``without`` keeps labels of the installation, such as the cluster.
RECORDING_RULES = {
    "instance:kafka_txn_partition_lso_held_seconds:max": "max without (topic, partition) "
    "(kafka_txn_partition_lso_held_seconds)",
    "instance:kafka_txn_partition_hanging_transactions:sum": "sum without (topic, partition) "
    "(kafka_txn_partition_hanging_transactions)",
    "instance:kafka_txn_samples_failed:ratio_rate5m": "rate(kafka_txn_samples_failed_total[5m]) "
    "/ (rate(kafka_txn_samples_taken_total[5m]) > 0)",
}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alerting rule."""

    name: str  # in CamelCase; in lower case the anchor of its runbook
    expr: str  # PromQL
    pending: float  # seconds for which the expression must hold before the alert fires
    severity: str  # critical: act now; warning: act within a day
    # summary, description, command: templates of Prometheus; the command is one that shows more
    summary: str
    description: str
    command: str = ""


def alerts(settings: AlertSettings) -> list[Alert]:
    """Every alert: those of the cluster, then those of the recorder, without which the former cannot fire."""
    up = f"up{{job={json.dumps(settings.job)}}}"
    return [
        Alert(
            name="KafkaTxnHanging",
            expr="kafka_txn_partition_hanging_transactions > 0",
            pending=settings.hanging,
            severity="critical",
            summary=f"Hanging transaction on {ON_PARTITION}",
            description="No coordinator will ever end it: read_committed consumers stop and the log cannot be "
            "compacted until it is ended. Its outcome decides how.",
            command=DIAGNOSE,
        ),
        Alert(
            name="KafkaTxnCommitNotVisible",
            expr="kafka_txn_partition_commits_without_marker > 0",
            pending=settings.hanging,
            severity="critical",
            summary=f"Committed records on {ON_PARTITION} that no read_committed consumer receives",
            description="A transaction was committed, and its marker is missing on this partition. Never abort it: "
            "bring the partition's leader back, write the marker, or have the client of a live transaction over it "
            "commit, as the remedy says.",
            command=DIAGNOSE,
        ),
        Alert(
            name="KafkaTxnLsoHeld",
            expr=f"kafka_txn_partition_lso_held_seconds > {settings.lso_held:.15g}",
            pending=0,
            severity="critical",
            summary=f"LSO of {ON_PARTITION} held for {{{{ $value | humanizeDuration }}}}",
            description="An open transaction holds the last stable offset, and read_committed consumers wait behind "
            "it. It may be alive: diagnose before you abort.",
            command=DIAGNOSE,
        ),
        Alert(
            name="KafkaTxnGroupHeld",
            expr="kafka_txn_group_held_partitions > 0",
            pending=settings.group_held,
            severity="critical",
            summary=f"Consumer group {{{{ $labels.group }}}}{OF_CLUSTER} is blocked by a transaction on "
            "{{ $value }} partition(s)",
            description="The group has read everything up to the LSO; its client reports a lag of 0. "
            "Restarting it does not help: find the transaction.",
            command="kafka-txn diagnose",
        ),
        Alert(
            name="KafkaTxnLate",
            expr="kafka_txn_partition_late_transactions > 0",
            pending=settings.late,
            severity="warning",
            summary=f"Transaction on {ON_PARTITION} is open past its own timeout",
            description="Its coordinator should have aborted it: it hangs, its coordinator is in trouble, or "
            "its markers cannot be written.",
            command=DIAGNOSE,
        ),
        Alert(
            name="KafkaTxnRecorderDown",
            expr=f"{up} == 0 or absent({up})",
            pending=settings.recorder_blind,
            severity="critical",
            summary=f"kafka-txn record{OF_CLUSTER} cannot be scraped",
            description=f"Prometheus' job {settings.job} has no recorder that responds, so no other alert about "
            "transactions can fire, and firing ones have resolved although their cause may persist.",
        ),
        Alert(
            name="KafkaTxnRecorderBlind",
            # of a clock that is ahead as well: set back, it takes no sample until that time
            expr="abs(time() - kafka_txn_last_sample_timestamp_seconds) > 3 * kafka_txn_sample_interval_seconds",
            pending=settings.recorder_blind,
            severity="critical",
            summary=f"kafka-txn record{OF_CLUSTER} has not read the cluster for more than three intervals",
            description="All numbers about transactions are those of its last successful sample. It cannot reach the "
            "cluster, or takes too long to.",
        ),
        Alert(
            name="KafkaTxnRecorderIncomplete",
            expr="kafka_txn_last_sample_gaps > 0 or kafka_txn_last_sample_unread_partitions > 0",
            pending=settings.recorder_incomplete,
            severity="warning",
            summary=f"kafka-txn record{OF_CLUSTER} gets incomplete responses from the cluster",
            description="Where a response is missing the verdict is unknown, and KafkaTxnHanging cannot fire. A "
            "permission is missing, a coordinator is loading, or a partition has no leader.",
            command="kafka-txn diagnose",
        ),
        Alert(
            name="KafkaTxnRecorderUnwritten",
            expr="kafka_txn_last_sample_unwritten > 0 or increase(kafka_txn_samples_unwritten_total[5m]) > 0",
            pending=settings.recorder_incomplete,
            severity="warning",
            summary=f"kafka-txn record{OF_CLUSTER} cannot write its samples",
            description="The recording has a gap from here on, and no postmortem will show it: the disk is full or "
            "read-only. The metrics continue.",
        ),
    ]


def prometheus_rules(settings: AlertSettings | None = None) -> str:
    """The rules, for ``rule_files`` of Prometheus 2 or 3."""
    import yaml

    settings = settings or AlertSettings()
    recording = [{"record": name, "expr": expr} for name, expr in RECORDING_RULES.items()]
    alerting = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": _duration(alert.pending),
            "labels": {"severity": alert.severity},
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                **({"command": alert.command} if alert.command else {}),
                "runbook_url": f"{settings.runbook_url}#{alert.name.lower()}",
            },
        }
        for alert in alerts(settings)
    ]
    groups = [{"name": "kafka-txn-recording", "rules": recording}, {"name": "kafka-txn-alerts", "rules": alerting}]
    return str(yaml.safe_dump({"groups": groups}, sort_keys=False, width=math.inf))


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
    dashboard = json.loads((resources.files(__package__) / DASHBOARD).read_text(encoding="utf-8"))
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
