"""From the connection options to a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.sources.cluster import Cluster

__all__ = ["Given", "connect", "partitions_asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
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
    server = bootstrap_server or ctx.obj.bootstrap_server
    path = command_config or ctx.obj.command_config
    if not server and not path:
        raise UsageError("No cluster is named.", do="Add --bootstrap-server HOST:PORT.")

    from toolkit.config import ClientConfig
    from toolkit.sources.cluster import Cluster

    config = ClientConfig.from_properties(path, bootstrap_servers=server) if path else ClientConfig(server or "")
    return Cluster(config, timeout=timeout)


def partitions_asked(topics: list[str] | None, partitions: list[int] | None) -> None:
    """Refuse partition numbers of no topic.

    Raises
    ------
    UsageError
        If `partitions` are given and `topics` are not.
    """
    if partitions and not topics:
        raise UsageError("--partition is a number within a topic.", do="Add --topic TOPIC.")
