"""Commands that diagnose: who holds an LSO, why, and what is safe."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
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
    TxnStatePartitions,
)
from toolkit.cli.output import answer, progress, show, width
from toolkit.cli.source_options import partition_options, source_from_options, time_option
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.cli.source_options import AnySource
    from toolkit.schema import Row


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
    txn_state_partitions: TxnStatePartitions = None,
    recording: RecordingDir = None,
    at: AtTime = None,
) -> None:
    """Diagnose every open transaction and every held LSO, healthy ones included.

    Checks doubtful partitions twice, so that a transaction that is ending is not taken for a hanging one. With
    --log-dir it reads files, as of the time they were written; with --recording, a sample of the recorder.
    """
    partition_options(topic, partition)
    with source_from_options(
        ctx,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
        timeout=timeout,
        log_dir=log_dir,
        consistent_copy=consistent_copy,
        txn_state_partitions=txn_state_partitions,
        recording=recording,
        at=at,
    ) as source:
        rows = read_findings(
            source,
            log_dir=log_dir,
            recording=recording,
            at=at,
            recheck_after=recheck_after,
            max_transaction_timeout=max_transaction_timeout,
            topics=topic,
            partitions=partition,
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
    txn_state_partitions: TxnStatePartitions = None,
    recording: RecordingDir = None,
    at: AtTime = None,
) -> None:
    """Find hanging transactions, and those that cannot be ruled out.

    Searches the whole cluster, internal topics included, unless --topic narrows it; with --log-dir or --recording,
    files.
    """
    if log_dir and broker_id is not None:
        raise UsageError("--broker-id applies to a cluster.", do="With --log-dir, name that broker's log directory.")
    partition_options(topic, partition)
    with source_from_options(
        ctx,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
        timeout=timeout,
        log_dir=log_dir,
        consistent_copy=consistent_copy,
        txn_state_partitions=txn_state_partitions,
        recording=recording,
        at=at,
    ) as source:
        rows = read_findings(
            source,
            log_dir=log_dir,
            recording=recording,
            at=at,
            recheck_after=recheck_after,
            max_transaction_timeout=max_transaction_timeout,
            topics=topic,
            partitions=partition,
            log_evidence=log_evidence,
            broker_id=broker_id,
        )
    answer_findings(in_doubt(rows), rows, output)
    raise typer.Exit(verdict_exit_code(rows))


def read_findings(
    source: AnySource,
    *,
    log_dir: list[Path] | None,
    recording: Path | None,
    at: str | None,
    recheck_after: float,
    max_transaction_timeout: float,
    **options: Any,
) -> list[Row]:
    """Findings of a source; before them a line on stderr about the second check, or about the time of the sample."""
    options["max_transaction_timeout_ms"] = int(max_transaction_timeout * 1000)
    if recording:
        from toolkit.sources.recording import Recording

        assert isinstance(source, Recording)
        options["at"] = time_option(at)
        progress(f"Sample of {source.sample_row(at=options['at'])['observed_at']:%Y-%m-%d %H:%M:%S} UTC:")
    elif not log_dir:
        options["recheck_after"] = recheck_after
        if recheck_after:
            progress(f"Checking; doubtful partitions are checked again {recheck_after:g} s later ...")
    return source.finding_rows(**options)


def answer_findings(rows: Sequence[Row], of: Sequence[Row], output: Format) -> None:
    """Write `rows`; for a person with all else that is open on their partitions, and the sum of all that was seen."""
    if output is not Format.TABLE:
        from toolkit.views.findings_text import LINKED_FINDINGS, with_page

        answer(LINKED_FINDINGS, [with_page(row) for row in rows], output)
        return
    from toolkit.views.findings_text import finding_lines, summary

    as_of = max((row["observed_at"] for row in rows), default=dt.datetime.now(dt.UTC))
    partitions = {(row["topic"], row["partition"]) for row in rows}
    whole = [row for row in of if (row["topic"], row["partition"]) in partitions]
    lines = finding_lines(whole, now=as_of, width=width())
    show([*lines, *([""] if lines else []), summary(of)])


def in_doubt(rows: Sequence[Row]) -> list[Row]:
    """Findings that need action: hanging ones, and those that may be."""
    return [row for row in rows if row["verdict"] in {"hanging", "unknown"}]


def verdict_exit_code(rows: Sequence[Row]) -> int:
    """Return 1 where something hangs, 3 where that cannot be known, else 0."""
    verdicts = {row["verdict"] for row in rows}
    return 1 if "hanging" in verdicts else 3 if "unknown" in verdicts else 0
