"""The postmortems in ``docs/examples``, made from samples: ``python -m tests.report_examples`` writes them again."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from toolkit.lab import samples
from toolkit.views.plots import plot_timeline
from toolkit.views.plots.notebook_figure import figure_svg, image_svg
from toolkit.views.report import Redaction, Report, collect_incident, report

EXAMPLES = Path(__file__).resolve().parent.parent / "docs/examples"
TIMELINE = EXAMPLES.parent / "timeline.svg"
MADE_AT = dt.datetime(2026, 11, 26, 9, tzinfo=dt.UTC)


def example_reports() -> dict[str, Report]:
    """The examples by the names of their files."""
    over, is_open = samples.load("flight-recording"), samples.load("several-open")
    recording, audit = over.recording(), over.audit()
    assert recording
    assert audit
    tables = collect_incident(over.log_dir(), recording, min_held_ms=1_000)
    held = collect_incident(is_open.log_dir())
    return {
        "postmortem.html": report(**tables, actions=audit.rows(), generated_at=MADE_AT),
        "postmortem-redacted.html": report(**Redaction(held).applied(held), generated_at=MADE_AT),
    }


def example_timeline() -> str:
    """``docs/timeline.svg``, of the README: an LSO that stands still while the log grows, and goes on."""
    tables = collect_incident(samples.load("long-history").log_dir(), min_held_ms=10_000)
    names = ("lso_timeline", "findings", "transaction_history", "cluster_events")
    drawn = {name: rows for name, rows in tables.items() if name in names}
    return image_svg(figure_svg(plot_timeline(tables["log_transactions"], **drawn, most=60)))  # type: ignore[arg-type]


if __name__ == "__main__":
    TIMELINE.write_text(example_timeline())
    for name, made in example_reports().items():
        print(made.save(EXAMPLES / name))
