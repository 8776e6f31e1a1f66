"""Commands that show a table as the brokers answer it."""

from __future__ import annotations

from typing import Annotated

import typer

from toolkit.cli.connection import connect, partitions_asked
from toolkit.cli.options import (
    BootstrapServer,
    Brokers,
    CommandConfig,
    Format,
    Output,
    Partitions,
    Timeout,
    Topics,
)
from toolkit.cli.output import answer, exit_code
from toolkit.errors import NotFound, UsageError

__all__ = ["coordinator", "describe", "describe_producers", "list_transactions", "partitions"]

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
) -> None:
    """Find the coordinator of an id or a group: by hash, by FindCoordinator, and whether both agree."""
    if not transactional_id and not group:
        raise UsageError("coordinator needs an id or a group.", do="Add --transactional-id ID or --group GROUP.")
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        rows = cluster.coordinator_rows(transactional_ids=transactional_id or (), groups=group or ())
    from toolkit.schema import COORDINATORS

    answer(COORDINATORS, rows, output)
    raise typer.Exit(exit_code(rows))
