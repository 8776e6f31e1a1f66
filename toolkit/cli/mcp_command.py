"""The command that lets an agent ask: a Model Context Protocol server."""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import typer

from toolkit.cli.common_options import (
    BootstrapServer,
    CommandConfig,
    ConsistentCopy,
    LogDirs,
    RecheckAfter,
    RecordingDir,
    Timeout,
)
from toolkit.cli.source_options import check_cluster_is_named, connect, files_instead, recording_instead
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.views.agent.agent_tools import AnySource

__all__ = ["mcp"]


def mcp(
    ctx: typer.Context,
    *,
    recheck_after: RecheckAfter = 5,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    consistent_copy: ConsistentCopy = False,
    recording: RecordingDir = None,
) -> None:
    """Serve agents over the Model Context Protocol on stdin and stdout: read-only tools over one source.

    diagnose, explain, history, lag, report, and plan_abort, which gives a command for a person to run and never acts.
    The options say what is read; the agent cannot.
    """
    try:
        from toolkit.views.agent.mcp_server import mcp_server
    except ModuleNotFoundError as error:
        if error.name not in {"mcp", "mcp_types"}:
            raise
        raise UsageError("mcp is not installed.", do="pip install 'kafka-txn-toolkit[mcp]'.") from None
    from toolkit.views.agent.agent_tools import AgentTools

    def recorded_or_files() -> AnySource | None:
        found = recording_instead(
            ctx, recording, at=None, log_dirs=log_dir, bootstrap_server=bootstrap_server, command_config=command_config
        )
        return found or files_instead(
            ctx,
            log_dir,
            consistent_copy=consistent_copy,
            bootstrap_server=bootstrap_server,
            command_config=command_config,
        )

    def source() -> AbstractContextManager[AnySource]:
        return recorded_or_files() or connect(ctx, bootstrap_server, command_config, timeout=timeout)

    if not recorded_or_files():  # wrong use ends it here, not in an answer to the agent
        check_cluster_is_named(ctx, bootstrap_server, command_config)
    server = bootstrap_server or ctx.obj.bootstrap_server
    config = command_config or ctx.obj.command_config
    named = {"--bootstrap-server": server, "--command-config": config}
    address = " ".join(f"{option} {shlex.quote(value)}" for option, value in named.items() if value)
    mcp_server(AgentTools(source, address=address, recheck_after=recheck_after)).run("stdio")
