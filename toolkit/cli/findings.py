"""Commands that judge: who holds an LSO, why, and what is safe."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from toolkit.cli.connection import connect, files_instead, partitions_asked
from toolkit.cli.options import (
    AtRest,
    BootstrapServer,
    Brokers,
    CommandConfig,
    Format,
    LogDirs,
    LogEvidence,
    LooksApart,
    MaxTransactionTimeout,
    Output,
    Partitions,
    Timeout,
    Topics,
)
from toolkit.cli.output import answer, progress, show, width
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.sources.cluster import Cluster
    from toolkit.sources.logdir import LogDir

__all__ = ["diagnose", "find_hanging"]


def diagnose(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    partition: Partitions = None,
    looks_apart: LooksApart = 5,
    max_transaction_timeout: MaxTransactionTimeout = 15,
    log_evidence: LogEvidence = True,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    at_rest: AtRest = False,
) -> None:
    """Judge every open transaction and every partition whose LSO is held, healthy ones included.

    Looks twice at whatever is in doubt, so that a transaction that just ends is not taken for one that nobody ends.
    With --log-dir it judges what files hold, as of the time they were written.
    """
    rows = _ask(
        files_instead(ctx, log_dir, at_rest=at_rest, bootstrap_server=bootstrap_server, command_config=command_config),
        lambda: connect(ctx, bootstrap_server, command_config, timeout=timeout),
        topic,
        partition,
        max_transaction_timeout=max_transaction_timeout,
        looks_apart=looks_apart,
        log_evidence=log_evidence,
    )
    _answer(rows, rows, output)
    raise typer.Exit(_exit_code(rows))


def find_hanging(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    partition: Partitions = None,
    broker_id: Brokers = None,
    looks_apart: LooksApart = 5,
    max_transaction_timeout: MaxTransactionTimeout = 15,
    log_evidence: LogEvidence = True,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    at_rest: AtRest = False,
) -> None:
    """Find the transactions that nobody will ever end, and those where that cannot be known.

    Searches the whole cluster, internal topics included, unless told otherwise; with --log-dir, files.
    """
    if log_dir and broker_id is not None:
        raise UsageError("--broker-id asks a cluster.", do="With --log-dir, name that broker's log directory.")
    rows = _ask(
        files_instead(ctx, log_dir, at_rest=at_rest, bootstrap_server=bootstrap_server, command_config=command_config),
        lambda: connect(ctx, bootstrap_server, command_config, timeout=timeout),
        topic,
        partition,
        max_transaction_timeout=max_transaction_timeout,
        looks_apart=looks_apart,
        log_evidence=log_evidence,
        broker_id=broker_id,
    )
    _answer([row for row in rows if row["verdict"] in {"hanging", "unknown"}], rows, output)
    raise typer.Exit(_exit_code(rows))


def _ask(
    files: LogDir | None,
    connected: Callable[[], Cluster],
    topics: list[str] | None,
    partitions: list[int] | None,
    *,
    max_transaction_timeout: float,
    looks_apart: float,
    log_evidence: bool,
    **of_a_cluster: int | None,
) -> list[Row]:
    """The findings in files, or else of a cluster, which is connected to only then."""
    partitions_asked(topics, partitions)
    max_transaction_timeout_ms = int(max_transaction_timeout * 60_000)
    if files:
        return files.finding_rows(topics, partitions, max_transaction_timeout_ms=max_transaction_timeout_ms)
    with connected() as cluster:
        _announce(looks_apart)
        return cluster.finding_rows(
            topics,
            partitions,
            looks_apart=looks_apart,
            max_transaction_timeout_ms=max_transaction_timeout_ms,
            log_evidence=log_evidence,
            **of_a_cluster,
        )


def _announce(looks_apart: float) -> None:
    if looks_apart:
        progress(f"Looking; whatever is in doubt is looked at again {looks_apart:g} s later ...")


def _answer(rows: Sequence[Row], of: Sequence[Row], output: Format) -> None:
    """Write `rows`; for a person with all else that is open on their partitions, and the sum of all that was seen."""
    if output is not Format.TABLE:
        from toolkit.schema import FINDINGS

        answer(FINDINGS, rows, output)
        return
    from toolkit.views.text import finding_lines, summary

    as_of = max((row["observed_at"] for row in rows), default=dt.datetime.now(dt.UTC))
    partitions = {(row["topic"], row["partition"]) for row in rows}
    whole = [row for row in of if (row["topic"], row["partition"]) in partitions]
    lines = finding_lines(whole, now=as_of, width=width())
    show([*lines, *([""] if lines else []), summary(of)])


def _exit_code(rows: Sequence[Row]) -> int:
    verdicts = {row["verdict"] for row in rows}
    return 1 if "hanging" in verdicts else 3 if "unknown" in verdicts else 0
