"""Commands that diagnose: who holds an LSO, why, and what is safe."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolkit.cli.common_options import (
    AtTime,
    BootstrapServer,
    Brokers,
    CommandConfig,
    ConsistentCopy,
    Format,
    LogDirs,
    LogEvidence,
    MaxTransactionTimeout,
    Output,
    Partitions,
    RecheckAfter,
    RecordingDir,
    Timeout,
    Topics,
)
from toolkit.cli.output import answer, progress, show, width
from toolkit.cli.source_options import connect, files_instead, partition_options, recording_instead, time_option
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.sources.live.cluster import Cluster

__all__ = ["answer_findings", "diagnose", "find_hanging", "in_doubt", "verdict_exit_code"]


def diagnose(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    partition: Partitions = None,
    recheck_after: RecheckAfter = 5,
    max_transaction_timeout: MaxTransactionTimeout = 900,
    log_evidence: LogEvidence = True,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    consistent_copy: ConsistentCopy = False,
    recording: RecordingDir = None,
    at: AtTime = None,
) -> None:
    """Diagnose every open transaction and every held LSO, healthy ones included.

    Looks twice at whatever is in doubt, so that a transaction that just ends is not taken for one that nobody ends.
    With --log-dir it reads files, as of the time they were written; with --recording, what was seen then.
    """
    rows = _diagnose_source(
        _explained_by_files(
            ctx,
            log_dir,
            consistent_copy=consistent_copy,
            recording=recording,
            at=at,
            bootstrap_server=bootstrap_server,
            command_config=command_config,
        ),
        lambda: connect(ctx, bootstrap_server, command_config, timeout=timeout),
        topic,
        partition,
        max_transaction_timeout=max_transaction_timeout,
        recheck_after=recheck_after,
        log_evidence=log_evidence,
    )
    answer_findings(rows, rows, output)
    raise typer.Exit(verdict_exit_code(rows))


def find_hanging(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    partition: Partitions = None,
    broker_id: Brokers = None,
    recheck_after: RecheckAfter = 5,
    max_transaction_timeout: MaxTransactionTimeout = 900,
    log_evidence: LogEvidence = True,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    consistent_copy: ConsistentCopy = False,
    recording: RecordingDir = None,
    at: AtTime = None,
) -> None:
    """Find hanging transactions, and those that cannot be ruled out.

    Searches the whole cluster, internal topics included, unless --topic narrows it; with --log-dir or --recording,
    files.
    """
    if log_dir and broker_id is not None:
        raise UsageError("--broker-id asks a cluster.", do="With --log-dir, name that broker's log directory.")
    rows = _diagnose_source(
        _explained_by_files(
            ctx,
            log_dir,
            consistent_copy=consistent_copy,
            recording=recording,
            at=at,
            bootstrap_server=bootstrap_server,
            command_config=command_config,
        ),
        lambda: connect(ctx, bootstrap_server, command_config, timeout=timeout),
        topic,
        partition,
        max_transaction_timeout=max_transaction_timeout,
        recheck_after=recheck_after,
        log_evidence=log_evidence,
        broker_id=broker_id,
    )
    answer_findings(in_doubt(rows), rows, output)
    raise typer.Exit(verdict_exit_code(rows))


def _explained_by_files(
    ctx: typer.Context,
    log_dir: list[Path] | None,
    *,
    consistent_copy: bool,
    recording: Path | None,
    at: str | None,
    bootstrap_server: str | None,
    command_config: str | None,
) -> Callable[..., list[Row]] | None:
    """What gives the findings where the options name files or a recording instead of a cluster."""
    time = time_option(at)
    recorded = recording_instead(
        ctx, recording, at=at, log_dirs=log_dir, bootstrap_server=bootstrap_server, command_config=command_config
    )
    if recorded:
        seen_at = recorded.sample_row(at=time)["observed_at"]
        progress(f"What was seen at {seen_at:%Y-%m-%d %H:%M:%S} UTC:")
        return partial(recorded.finding_rows, at=time)
    files = files_instead(
        ctx, log_dir, consistent_copy=consistent_copy, bootstrap_server=bootstrap_server, command_config=command_config
    )
    return files.finding_rows if files else None


def _diagnose_source(
    offline_rows: Callable[..., list[Row]] | None,
    connect_cluster: Callable[[], Cluster],
    topics: list[str] | None,
    partitions: list[int] | None,
    *,
    max_transaction_timeout: float,
    recheck_after: float,
    **options: Any,
) -> list[Row]:
    """The findings in files, or else of a cluster, which is connect_cluster to only then."""
    partition_options(topics, partitions)
    options["max_transaction_timeout_ms"] = int(max_transaction_timeout * 1000)
    if offline_rows:
        supported = {name: value for name, value in options.items() if value is not None}
        return offline_rows(topics=topics, partitions=partitions, **supported)
    with connect_cluster() as cluster:
        _announce(recheck_after)
        return cluster.finding_rows(topics=topics, partitions=partitions, recheck_after=recheck_after, **options)


def _announce(recheck_after: float) -> None:
    if recheck_after:
        progress(f"Checking; doubtful partitions are checked again {recheck_after:g} s later ...")


def answer_findings(rows: Sequence[Row], of: Sequence[Row], output: Format) -> None:
    """Write `rows`; for a person with all else that is open on their partitions, and the sum of all that was seen."""
    if output is not Format.TABLE:
        from toolkit.views.finding_links import LINKED_FINDINGS, with_page

        answer(LINKED_FINDINGS, [with_page(row) for row in rows], output)
        return
    from toolkit.views.findings_text import finding_lines, summary

    as_of = max((row["observed_at"] for row in rows), default=dt.datetime.now(dt.UTC))
    partitions = {(row["topic"], row["partition"]) for row in rows}
    whole = [row for row in of if (row["topic"], row["partition"]) in partitions]
    lines = finding_lines(whole, now=as_of, width=width())
    show([*lines, *([""] if lines else []), summary(of)])


def in_doubt(rows: Sequence[Row]) -> list[Row]:
    """Those that ask for something to be done: what hangs, and what may."""
    return [row for row in rows if row["verdict"] in {"hanging", "unknown"}]


def verdict_exit_code(rows: Sequence[Row]) -> int:
    """Return 1 where something hangs, 3 where that cannot be known, else 0."""
    verdicts = {row["verdict"] for row in rows}
    return 1 if "hanging" in verdicts else 3 if "unknown" in verdicts else 0
