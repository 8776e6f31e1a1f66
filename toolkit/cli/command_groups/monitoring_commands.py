"""Commands that print what Prometheus and Grafana read: rules and a dashboard for the metrics of ``record``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from toolkit.cli.common_options import duration_option
from toolkit.schema.docs_links import RUNBOOK_URL

LsoHeld = Annotated[
    float, duration_option("--lso-held", "Alert when a transaction holds an LSO for longer.", default="15m")
]
RecorderBlind = Annotated[
    float, duration_option("--recorder-blind", "Alert when the recorder reads nothing for longer.", default="2m")
]


def prometheus_rules(
    *,
    lso_held: LsoHeld = 900,
    hanging: Annotated[
        float,
        duration_option(
            "--hanging", "Alert when a transaction hangs, or lacks the marker of its commit, for longer.", default="1m"
        ),
    ] = 60,
    late: Annotated[
        float, duration_option("--late", "Alert when a transaction is late for longer.", default="5m")
    ] = 300,
    group_held: Annotated[
        float, duration_option("--group-held", "Alert when a consumer group is blocked for longer.", default="10m")
    ] = 600,
    recorder_blind: RecorderBlind = 120,
    recorder_incomplete: Annotated[
        float,
        duration_option(
            "--recorder-incomplete", "Alert when samples are incomplete, or not written, for longer.", default="15m"
        ),
    ] = 900,
    job: Annotated[
        str, typer.Option("--job", metavar="NAME", help="Prometheus' job that scrapes the recorder.")
    ] = "kafka-txn",
    runbook_url: Annotated[
        str, typer.Option("--runbook-url", metavar="URL", help="Address of the alerts' runbook pages.")
    ] = RUNBOOK_URL,
) -> None:
    """Print recording and alerting rules for the metrics of record, for rule_files of Prometheus."""
    from toolkit.views.monitoring import AlertSettings
    from toolkit.views.monitoring import prometheus_rules as rules

    settings = AlertSettings(
        lso_held=lso_held,
        hanging=hanging,
        late=late,
        group_held=group_held,
        recorder_blind=recorder_blind,
        recorder_incomplete=recorder_incomplete,
        job=job,
        runbook_url=runbook_url,
    )
    sys.stdout.write(rules(settings))


def grafana_dashboard(*, lso_held: LsoHeld = 900, recorder_blind: RecorderBlind = 120) -> None:
    """Print a dashboard for the metrics of record, to import into Grafana 11.6 or newer."""
    from toolkit.views.monitoring import AlertSettings
    from toolkit.views.monitoring import grafana_dashboard as dashboard

    sys.stdout.write(dashboard(AlertSettings(lso_held=lso_held, recorder_blind=recorder_blind)))
