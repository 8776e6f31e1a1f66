"""The command that writes a postmortem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.common_options import (
    MaxTransactionTimeout,
    Partitions,
    RecheckAfter,
    Topics,
    check_output_path,
    duration_option,
    partition_options,
)
from toolkit.cli.diagnose_commands import read_findings, verdict_exit_code
from toolkit.cli.output import remark
from toolkit.cli.source_options import SourceOptions, takes_source
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.report.incident import IncidentFindings
    from toolkit.views.report.report_parts import Figure


@takes_source("log_dir", "consistent_copy", "txn_state_partitions", "recording", "at")
def report(
    *,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="Write to this .html file, or as Markdown to a .md file.")
    ],
    topic: Topics = None,
    partition: Partitions = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the page.")] = None,
    audit_file: Annotated[
        Path | None,
        typer.Option(
            "--audit-file",
            metavar="FILE",
            help="Audit trail of actions to include. Default, for a live cluster: the one that they write.",
        ),
    ] = None,
    min_held: Annotated[
        float | None,
        duration_option(
            "--min-held",
            "With --log-dir or --recording: also report transactions that held an LSO this long and have ended. "
            "Reads the whole log.",
        ),
    ] = None,
    interactive: Annotated[
        bool,
        typer.Option("--interactive", help="Add an interactive plotly timeline (some megabytes)."),
    ] = False,
    recheck_after: RecheckAfter = 5,
    max_transaction_timeout: MaxTransactionTimeout = 900,
    source_options: SourceOptions,
) -> None:
    """Write a postmortem: what was held, since when, by whom, why, its impact, and what was done.

    One page that needs nothing else, with light and dark colours and ready to print; keys and values of records are
    never in it.
    """
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.report import report as write_report
    from toolkit.views.report.incident import tables_around
    from toolkit.views.report.report import SUFFIXES

    partition_options(topic, partition)
    if output.suffix not in SUFFIXES:
        raise UsageError(f"{output} ends in none of {', '.join(SUFFIXES)}.", do="The suffix selects the format.")
    check_output_path(output, source_options.paths)
    if min_held is not None and not source_options.paths:
        raise UsageError(
            "--min-held needs the past, which brokers do not keep.", do="Add --log-dir PATH or --recording DIR."
        )
    source = source_options.open()
    actions = _actions(audit_file)
    with source:
        rows = read_findings(
            source_options,
            source,
            recheck_after=recheck_after,
            max_transaction_timeout=max_transaction_timeout,
            topics=topic,
            partitions=partition,
            min_held_ms=None if min_held is None else int(min_held * 1000),
        )
        tables = tables_around(rows, source, remark=remark)
        if isinstance(source, Cluster) and not actions:
            actions = _own_actions(source)
    page = write_report(
        rows,
        **tables,
        actions=actions,
        figure=_figure({"findings": rows, **tables}) if interactive else None,
        title=title,
    )
    written = page.save(output)
    remark(f"{written}: {written.stat().st_size:,} bytes")
    raise typer.Exit(verdict_exit_code(rows))


def _figure(tables: IncidentFindings) -> Figure | None:
    from toolkit.views.report.incident import timeline_of

    try:
        return timeline_of(tables)
    except ImportError:
        raise UsageError("plotly is not installed.", do="pip install 'kafka-txn-toolkit[notebooks]'.") from None


def _actions(audit_file: Path | None) -> list[Row] | None:
    """Rows of the audit trail that is named."""
    from toolkit.actions.audit import Audit

    if audit_file is not None and not audit_file.exists():
        raise UsageError(f"{audit_file} does not exist.", do="Use the --audit-file of abort, complete and fence.")
    return Audit(audit_file).rows() if audit_file is not None else None


def _own_actions(cluster: Cluster) -> list[Row] | None:
    """What was done to this cluster from here, as it was addressed; null where nothing ever was."""
    from toolkit.actions.audit import Audit

    audit = Audit()
    if not audit.path.exists():
        return None
    return [row for row in audit.rows() if row["bootstrap_servers"] == cluster.bootstrap_servers]
