"""The command that writes a postmortem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.command_groups.diagnose_commands import read_findings, verdict_exit_code
from toolkit.cli.common_options import (
    AtTime,
    BootstrapServer,
    CommandConfig,
    ConsistentCopy,
    LogDirs,
    MaxTransactionTimeout,
    Partitions,
    RecheckAfter,
    RecordingDir,
    Timeout,
    Topics,
    TxnStatePartitions,
    duration_option,
)
from toolkit.cli.output import remark
from toolkit.cli.source_options import partition_options, source_from_options
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.report.incident import IncidentFindings
    from toolkit.views.report.report_parts import Figure


def report(
    ctx: typer.Context,
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
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    consistent_copy: ConsistentCopy = False,
    txn_state_partitions: TxnStatePartitions = None,
    recording: RecordingDir = None,
    at: AtTime = None,
) -> None:
    """Write a postmortem: what was held, since when, by whom, why, its impact, and what was done.

    One page that needs nothing else, with light and dark colours and ready to print; keys and values of records are
    never in it.
    """
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.report import report as made_of
    from toolkit.views.report.incident import tables_around

    partition_options(topic, partition)
    _check_output(output, [*(log_dir or ()), *([recording] if recording else ())])
    if min_held is not None and not (log_dir or recording):
        raise UsageError(
            "--min-held needs the past, which brokers do not keep.", do="Add --log-dir PATH or --recording DIR."
        )
    source = source_from_options(
        ctx,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
        timeout=timeout,
        log_dir=log_dir,
        consistent_copy=consistent_copy,
        txn_state_partitions=txn_state_partitions,
        recording=recording,
        at=at,
    )
    actions = _actions(audit_file)
    with source:
        rows = read_findings(
            source,
            log_dir=log_dir,
            recording=recording,
            at=at,
            recheck_after=recheck_after,
            max_transaction_timeout=max_transaction_timeout,
            topics=topic,
            partitions=partition,
            min_held_ms=None if min_held is None else int(min_held * 1000),
        )
        tables = tables_around(rows, source, remark=remark)
        if isinstance(source, Cluster) and not actions:
            actions = _own_actions(source)
    page = made_of(
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


def _check_output(output: Path, read_only: Sequence[Path]) -> None:
    """Refuse at once what cannot be written, or lies where only reading is allowed."""
    from toolkit.views.report.report import SUFFIXES

    if output.suffix not in SUFFIXES:
        raise UsageError(f"{output} ends in none of {', '.join(SUFFIXES)}.", do="The suffix selects the format.")
    for path in read_only:
        if path.resolve() in output.resolve().parents:
            raise UsageError(f"{output} is in {path}, which is never written to.", do="Write to another folder.")


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
