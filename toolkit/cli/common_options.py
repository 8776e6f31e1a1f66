"""The options that commands share, spelled as Kafka's own tools spell them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from toolkit.schema.durations import duration_s


class Format(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def duration_option(
    name: str, text: str, *, default: str | None = None, unit: str = "s", at_least: float = 0, panel: str | None = None
) -> Any:
    """An option that takes a duration, ``30s``, ``15m`` or ``2h``, and gives seconds.

    Parameters
    ----------
    name
        Its name.
    text
        Its help.
    default
        How the help shows the default, such as ``15m``.
    unit
        Unit of a bare number.
    at_least
        The shortest one, in seconds.
    panel
        Its panel of the help.
    """

    def seconds(value: str | float) -> float:
        if not isinstance(value, str):
            return value  # the default
        try:
            found = duration_s(value, unit=unit)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not a duration. Use 30s, 15m or 2h.") from None
        if found < at_least:
            raise typer.BadParameter(f"{value!r} is too short. Use {at_least:g}s or more.")
        return found

    return typer.Option(
        name, metavar="DURATION", parser=seconds, help=text, show_default=default or False, rich_help_panel=panel
    )


CONNECTION, FILES = "Connection", "Files"

BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Brokers to bootstrap from, separated by commas.",
        rich_help_panel=CONNECTION,
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client properties, with Java's or librdkafka's keys: security.protocol, sasl.*, ssl.*.",
        rich_help_panel=CONNECTION,
    ),
]
Timeout = Annotated[
    float,
    duration_option("--timeout", "How long to wait for the cluster.", default="30s", at_least=0.1, panel=CONNECTION),
]
LogDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        metavar="PATH",
        help="Read files instead of a cluster: log directories, partition folders, segments, dumps. May be repeated.",
        rich_help_panel=FILES,
    ),
]
ConsistentCopy = Annotated[
    bool,
    typer.Option(
        "--consistent-copy",
        help="Assert that this is a consistent copy: brokers shut down cleanly, replicas in sync.",
        rich_help_panel=FILES,
    ),
]
TxnStatePartitions = Annotated[
    int | None,
    typer.Option(
        "--txn-state-partitions",
        metavar="N",
        min=1,
        help="Partitions of __transaction_state, if transaction.state.log.num.partitions of the brokers is not 50.",
        rich_help_panel=FILES,
    ),
]
RecordingDir = Annotated[
    Path | None,
    typer.Option(
        "--recording",
        metavar="DIR",
        help="Read a recording by kafka-txn record instead of a cluster: its newest sample, or that of --at.",
        rich_help_panel=FILES,
    ),
]
AtTime = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Newest sample at or before this time, with its time zone: 2026-11-21T12:00:00Z.",
        rich_help_panel=FILES,
    ),
]
Output = Annotated[
    Format, typer.Option("--format", help="table for people; json and csv for programs, with every column.")
]
Topic = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Topic.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="Only this topic. May be repeated. Default: all, internal topics included."
    ),
]
Partition = Annotated[int, typer.Option("--partition", metavar="N", min=0, help="Partition number.")]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", metavar="N", min=0, help="Only this partition. May be repeated. Needs --topic."),
]
Brokers = Annotated[int | None, typer.Option("--broker-id", metavar="ID", help="Broker id.")]
RecheckAfter = Annotated[
    float,
    duration_option("--recheck-after", "Delay before the confirming second check; 0 disables it.", default="5s"),
]
LogEvidence = Annotated[
    bool,
    typer.Option(
        "--log-evidence/--no-log-evidence",
        help="Read the log around a held LSO for its cause and impact: a few megabytes, nothing if no LSO is held.",
    ),
]
MaxTransactionTimeout = Annotated[
    float,
    duration_option(
        "--max-transaction-timeout",
        "Treat older live transactions as `long`. A bare number is minutes, as in kafka-transactions.sh.",
        default="15m",
        unit="m",
    ),
]
