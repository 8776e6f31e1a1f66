"""Commands that show a table as the brokers answer it."""

from __future__ import annotations

from typing import Annotated

import typer

from toolkit.cli.connection import connect, files_instead, partitions_asked
from toolkit.cli.options import (
    BootstrapServer,
    Brokers,
    CommandConfig,
    Format,
    LogDirs,
    Output,
    Partitions,
    Timeout,
    Topics,
)
from toolkit.cli.output import answer, exit_code
from toolkit.errors import NotFound, UsageError

__all__ = ["coordinator", "describe", "describe_producers", "history", "list_transactions", "partitions"]

# What a person reads a history for is who, when, how and why; JSON and CSV have all.
DETAILS = (
    *("txn_state_partition", "broker_id", "state", "decided_at", "timeout_ms", "client_transaction_version"),
    *("previous_producer_id", "records", "first_offset", "last_offset", "truncated"),
)

TransactionalIds = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="ID", help="Transactional id; may be repeated."),
]


def list_transactions(
    ctx: typer.Context,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only ids in this state (Ongoing, ...); may be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", help="Only this producer id; may be repeated."),
    ] = None,
    duration_filter: Annotated[
        int | None,
        typer.Option("--duration-filter", metavar="MS", help="Only transactions open for longer, in milliseconds."),
    ] = None,
    transactional_id_pattern: Annotated[
        str | None,
        typer.Option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match all of it."),
    ] = None,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """List the transactional ids of all coordinators, with their state."""
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        rows = cluster.transaction_rows(
            states=state,
            producer_ids=producer_id,
            min_duration_ms=duration_filter,
            transactional_id_pattern=transactional_id_pattern,
        )
    from toolkit.schema import TRANSACTIONS

    answer(TRANSACTIONS, rows, output, without=("source", "broker_id"))
    raise typer.Exit(exit_code(rows))


def describe(
    ctx: typer.Context,
    *,
    transactional_id: TransactionalIds = None,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Describe transactional ids: state, timeout, start, partitions."""
    if not transactional_id:
        raise UsageError("describe needs an id.", do="Add --transactional-id ID.")
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        rows = cluster.transaction_rows(transactional_ids=transactional_id)
    if all((row["error"] or "").startswith("TRANSACTIONAL_ID_NOT_FOUND") for row in rows):
        raise NotFound(f"The cluster has no transactional id {', '.join(map(repr, transactional_id))}.")
    from toolkit.schema import TRANSACTIONS

    answer(TRANSACTIONS, rows, output, without=("source", "broker_id"))
    raise typer.Exit(exit_code(rows))


def describe_producers(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    partition: Partitions = None,
    broker_id: Brokers = None,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Show the producers of partitions as their leaders know them, or the replica on --broker-id."""
    partitions_asked(topic, partition)
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        rows = cluster.producer_rows(topic, partition, broker_id=broker_id)
    from toolkit.schema import PRODUCERS

    answer(PRODUCERS, rows, output)
    raise typer.Exit(exit_code(rows))


def partitions(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    partition: Partitions = None,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Show the offsets of partitions: log start, LSO, high watermark, log end."""
    partitions_asked(topic, partition)
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        rows = cluster.partition_rows(topic, partition)
    from toolkit.schema import PARTITIONS

    answer(PARTITIONS, rows, output, without=("broker_id",))
    raise typer.Exit(exit_code(rows))


def coordinator(
    ctx: typer.Context,
    *,
    transactional_id: TransactionalIds = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="Consumer group; may be repeated.")
    ] = None,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
) -> None:
    """Find the coordinator of an id or a group: by hash, by FindCoordinator, and whether both agree.

    Files only tell the partition, by hash. What became of an id's transactions is told by history.
    """
    if not transactional_id and not group:
        raise UsageError("coordinator needs an id or a group.", do="Add --transactional-id ID or --group GROUP.")
    files = files_instead(ctx, log_dir, bootstrap_server=bootstrap_server, command_config=command_config)
    if files:
        rows = files.coordinator_rows(transactional_ids=transactional_id or (), groups=group or ())
    else:
        with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
            rows = cluster.coordinator_rows(transactional_ids=transactional_id or (), groups=group or ())
    from toolkit.schema import COORDINATORS

    answer(COORDINATORS, rows, output)
    raise typer.Exit(exit_code(rows))


def history(
    ctx: typer.Context,
    *,
    transactional_id: TransactionalIds = None,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
) -> None:
    """Tell what became of transactional ids: each transaction and how it ended, new producer ids and epochs, expiry.

    Read from __transaction_state, as far back as compaction has left it: of a cluster that needs READ on that topic.
    """
    if not transactional_id:
        raise UsageError("history needs an id.", do="Add --transactional-id ID.")
    files = files_instead(ctx, log_dir, bootstrap_server=bootstrap_server, command_config=command_config)
    if files:
        frame = files.histories(transactional_id)
    else:
        with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
            frame = cluster.histories(transactional_id)
    from toolkit.schema import HISTORIES

    rows = HISTORIES.rows(frame)
    if not rows:
        raise NotFound(f"__transaction_state tells nothing of {', '.join(map(repr, transactional_id))}.")
    answer(HISTORIES, rows, output, without=DETAILS)
    raise typer.Exit(exit_code(rows))
