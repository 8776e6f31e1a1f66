"""From the options to a source: a cluster, files, or a recording."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording

__all__ = [
    "LeadingOptions",
    "check_cluster_is_named",
    "cluster_is_named",
    "connect",
    "files_instead",
    "offset_spec",
    "partition_options",
    "recording_instead",
    "time_option",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadingOptions:
    """Connection options that stood before the command, where ``kafka-transactions.sh`` has them."""

    bootstrap_server: str | None = None
    command_config: str | None = None


def connect(ctx: typer.Context, bootstrap_server: str | None, command_config: str | None, *, timeout: float) -> Cluster:
    """Return the cluster that the options name; those after the command win over those before it.

    Raises
    ------
    UsageError
        If they name none.
    """
    check_cluster_is_named(ctx, bootstrap_server, command_config)
    server = bootstrap_server or ctx.obj.bootstrap_server
    path = command_config or ctx.obj.command_config

    from toolkit.config import ClientConfig
    from toolkit.sources.live.cluster import Cluster

    config = ClientConfig.from_properties(path, bootstrap_servers=server) if path else ClientConfig(server or "")
    return Cluster(config, timeout=timeout)


def cluster_is_named(ctx: typer.Context, bootstrap_server: str | None, command_config: str | None) -> bool:
    """Whether an option names a cluster, before the command or after it."""
    return bool(bootstrap_server or command_config or ctx.obj.bootstrap_server or ctx.obj.command_config)


def check_cluster_is_named(ctx: typer.Context, bootstrap_server: str | None, command_config: str | None) -> None:
    """Refuse to look for a cluster that no option names.

    Raises
    ------
    UsageError
        If that is so.
    """
    if not cluster_is_named(ctx, bootstrap_server, command_config):
        raise UsageError("No cluster is named.", do="Add --bootstrap-server HOST:PORT, or --log-dir PATH for files.")


def files_instead(
    ctx: typer.Context,
    log_dirs: Sequence[Path] | None,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    consistent_copy: bool = False,
) -> LogDir | None:
    """Return the files that the options name instead of a cluster; null if they name none.

    Raises
    ------
    UsageError
        If they name both, or an option of files for a cluster.
    """
    if not log_dirs:
        if consistent_copy:
            raise UsageError("--consistent-copy applies to files.", do="Add --log-dir PATH.")
        return None
    if bootstrap_server or command_config or ctx.obj.bootstrap_server or ctx.obj.command_config:
        raise UsageError("--bootstrap-server asks a cluster, --log-dir reads files.", do="Say one of them.")

    from toolkit.sources.logdir import LogDir

    return LogDir(*log_dirs, consistent_copy=consistent_copy)


def recording_instead(
    ctx: typer.Context,
    recording: Path | None,
    *,
    at: str | None,
    log_dirs: Sequence[Path] | None,
    bootstrap_server: str | None,
    command_config: str | None,
) -> Recording | None:
    """Return the recording that the options name instead of a cluster or files; null if they name none.

    Raises
    ------
    UsageError
        If they name both, or a time of what has none.
    """
    if recording is None:
        if at:
            raise UsageError("--at is a time of a recording.", do="Add --recording DIR.")
        return None
    if bootstrap_server or command_config or ctx.obj.bootstrap_server or ctx.obj.command_config or log_dirs:
        raise UsageError("--recording reads what was recorded of a cluster, and asks nothing else.", do="Say it alone.")

    from toolkit.sources.recording import Recording

    return Recording(recording)


def time_option(text: str | None) -> dt.datetime | None:
    """Return the time that an option says.

    Raises
    ------
    UsageError
        If it is none, or has no zone.
    """
    try:
        time = None if text is None else dt.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time.", do="Say it as 2026-11-21T12:00:00Z.") from None
    if time is not None and time.tzinfo is None:
        raise UsageError(
            f"The time {text} has no zone.", do="Say it as 2026-11-21T12:00:00Z, or with +02:00 at its end."
        )
    return time


def offset_spec(text: str) -> int | dt.datetime | str:
    """Return an offset, a time, or the name of a place, which is checked where it is used."""
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
        If `partitions` are given and `topics` are not.
    """
    if partitions and not topics:
        raise UsageError("--partition is a number within a topic.", do="Add --topic TOPIC.")
