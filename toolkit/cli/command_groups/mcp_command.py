"""The command that serves agents: a Model Context Protocol server."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

import typer

from toolkit.cli.common_options import (
    BootstrapServer,
    CommandConfig,
    ConsistentCopy,
    LogDirs,
    RecheckAfter,
    RecordingDir,
    Timeout,
    TxnStatePartitions,
)
from toolkit.cli.source_options import check_source_options, source_from_options
from toolkit.errors import UsageError


def mcp(
    ctx: typer.Context,
    *,
    recheck_after: RecheckAfter = 5,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    consistent_copy: ConsistentCopy = False,
    txn_state_partitions: TxnStatePartitions = None,
    recording: RecordingDir = None,
) -> None:
    """Serve agents over the Model Context Protocol on stdin and stdout: read-only tools over one source.

    diagnose, explain, history, lag, report, why, and plan_abort and plan_complete, which give a command
    for a person to run and never act. The options select the source; the agent cannot.
    """
    try:
        from toolkit.views.agent.mcp_server import mcp_server
    except ModuleNotFoundError as error:
        if error.name not in {"mcp", "mcp_types"}:
            raise
        raise UsageError("mcp is not installed.", do="pip install 'kafka-txn-toolkit[mcp]'.") from None
    from toolkit.views.agent.agent_tools import AgentTools

    options: dict[str, Any] = {
        "bootstrap_server": bootstrap_server,
        "command_config": command_config,
        "log_dir": log_dir,
        "consistent_copy": consistent_copy,
        "txn_state_partitions": txn_state_partitions,
        "recording": recording,
    }
    check_source_options(ctx, **options)  # invalid usage ends it here, not in a result for the agent
    source = partial(source_from_options, ctx, timeout=timeout, **options)
    if log_dir or recording:
        source()
    server = bootstrap_server or ctx.obj.bootstrap_server
    config = command_config or ctx.obj.command_config
    named = {"--bootstrap-server": server, "--command-config": config}
    address = " ".join(f"{option} {shlex.quote(value)}" for option, value in named.items() if value)
    mcp_server(AgentTools(source, address=address, recheck_after=recheck_after)).run("stdio")
