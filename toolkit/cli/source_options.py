"""From the options to a source: a cluster, files, or a recording."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import typer

from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording

    AnySource: TypeAlias = Cluster | LogDir | Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadingOptions:
    """Connection options that precede the command, where ``kafka-transactions.sh`` has them."""

    bootstrap_server: str | None = None
    command_config: str | None = None


def connect(ctx: typer.Context, bootstrap_server: str | None, command_config: str | None, *, timeout: float) -> Cluster:
    """Return the cluster that the options name; those after the command win over those before it.

    Raises
    ------
    UsageError
        If they name none.
    """
    check_source_options(ctx, bootstrap_server=bootstrap_server, command_config=command_config)
    server = bootstrap_server or ctx.obj.bootstrap_server
    path = command_config or ctx.obj.command_config

    from toolkit.config import ClientConfig
    from toolkit.sources.live.cluster import Cluster

    config = ClientConfig.from_properties(path, bootstrap_servers=server) if path else ClientConfig(server or "")
    return Cluster(config, timeout=timeout)


def cluster_is_named(ctx: typer.Context, bootstrap_server: str | None, command_config: str | None) -> bool:
    """Whether an option names a cluster, before the command or after it."""
    return bool(bootstrap_server or command_config or ctx.obj.bootstrap_server or ctx.obj.command_config)


def check_source_options(
    ctx: typer.Context,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    log_dir: Sequence[Path] | None = None,
    consistent_copy: bool = False,
    txn_state_partitions: int | None = None,
    recording: Path | None = None,
    at: str | None = None,
) -> None:
    """Check that the options name one source: a cluster, log directories or a recording.

    Raises
    ------
    UsageError
        If they name none or several, or one of them applies to another source.
    """
    cluster = cluster_is_named(ctx, bootstrap_server, command_config)
    if at and not recording:
        raise UsageError("--at is a time of a recording.", do="Add --recording DIR.")
    if recording and (cluster or log_dir):
        raise UsageError("--recording cannot be combined with a cluster or --log-dir.", do="Use one of them.")
    if consistent_copy and not log_dir:
        raise UsageError("--consistent-copy applies to files.", do="Add --log-dir PATH.")
    if txn_state_partitions is not None and not log_dir:
        raise UsageError("--txn-state-partitions applies to files.", do="Add --log-dir PATH.")
    if cluster and log_dir:
        raise UsageError("--bootstrap-server names a cluster, --log-dir names files.", do="Use one of them.")
    if not (cluster or log_dir or recording):
        raise UsageError("No cluster is named.", do="Add --bootstrap-server HOST:PORT, or --log-dir PATH for files.")


def source_from_options(
    ctx: typer.Context,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    timeout: float,
    log_dir: Sequence[Path] | None = None,
    consistent_copy: bool = False,
    txn_state_partitions: int | None = None,
    recording: Path | None = None,
    at: str | None = None,
) -> AnySource:
    """Return the source that the options name.

    Raises
    ------
    UsageError
        As `check_source_options`.
    """
    check_source_options(
        ctx,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
        log_dir=log_dir,
        consistent_copy=consistent_copy,
        txn_state_partitions=txn_state_partitions,
        recording=recording,
        at=at,
    )
    if not recording:
        return logs_from_options(
            ctx,
            bootstrap_server=bootstrap_server,
            command_config=command_config,
            timeout=timeout,
            log_dir=log_dir,
            consistent_copy=consistent_copy,
            txn_state_partitions=txn_state_partitions,
        )
    from toolkit.sources.recording import Recording

    return Recording(recording)


def logs_from_options(
    ctx: typer.Context,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    timeout: float,
    log_dir: Sequence[Path] | None,
    consistent_copy: bool = False,
    txn_state_partitions: int | None = None,
) -> Cluster | LogDir:
    """Return the cluster or the log directories that the options name, for tables that a recording does not have.

    Raises
    ------
    UsageError
        As `check_source_options`.
    """
    check_source_options(
        ctx,
        bootstrap_server=bootstrap_server,
        command_config=command_config,
        log_dir=log_dir,
        consistent_copy=consistent_copy,
        txn_state_partitions=txn_state_partitions,
    )
    if not log_dir:
        return connect(ctx, bootstrap_server, command_config, timeout=timeout)
    from toolkit.sources.logdir import LogDir

    return LogDir(*log_dir, consistent_copy=consistent_copy, txn_state_partitions=txn_state_partitions)


def time_option(text: str | None) -> dt.datetime | None:
    """Return the time of an option.

    Raises
    ------
    UsageError
        If it is none, or has no zone.
    """
    try:
        time = None if text is None else dt.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a time.", do="Write it as 2026-11-21T12:00:00Z.") from None
    if time is not None and time.tzinfo is None:
        raise UsageError(
            f"The time {text} has no zone.", do="Write it as 2026-11-21T12:00:00Z, or with +02:00 at its end."
        )
    return time


def offset_spec(text: str) -> int | dt.datetime | str:
    """Return an offset, a time, or a named offset, which is checked where it is used."""
    if text.isdigit():
        return int(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return text


def partition_options(topics: list[str] | None, partitions: list[int] | None) -> None:
    """Refuse partition numbers of no topic.

    Raises
    ------
    UsageError
        If there are `partitions` without `topics`.
    """
    if partitions and not topics:
        raise UsageError("--partition is a number within a topic.", do="Add --topic TOPIC.")
