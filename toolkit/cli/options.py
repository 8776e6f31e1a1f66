"""The options that commands share, spelled as Kafka's own tools spell them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AtRest",
    "AtTime",
    "BootstrapServer",
    "Brokers",
    "CommandConfig",
    "Format",
    "LogDirs",
    "LogEvidence",
    "LooksApart",
    "MaxTransactionTimeout",
    "Output",
    "Partition",
    "Partitions",
    "RecordingDir",
    "Timeout",
    "Topic",
    "Topics",
]


class Format(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


CONNECTION, FILES = "Connection", "Files"

BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Broker to start from; several with commas.",
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
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="How long to wait for the cluster before giving up.",
        rich_help_panel=CONNECTION,
    ),
]
LogDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        metavar="PATH",
        help="Read files and no cluster: a log directory, a partition's folder, segments, dumps; may be repeated.",
        rich_help_panel=FILES,
    ),
]
AtRest = Annotated[
    bool,
    typer.Option(
        "--at-rest",
        help="Your word that the files are of one moment: taken from brokers that were stopped in good order, replicas "
        "in sync.",
        rich_help_panel=FILES,
    ),
]
RecordingDir = Annotated[
    Path | None,
    typer.Option(
        "--recording",
        metavar="DIR",
        help="Read what kafka-txn record wrote, and no cluster: its newest look, or that of --at.",
        rich_help_panel=FILES,
    ),
]
AtTime = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="The last look of a recording by this time, with its zone: 2026-11-21T12:00:00Z.",
        rich_help_panel=FILES,
    ),
]
Output = Annotated[
    Format, typer.Option("--format", help="table for a person; json and csv with every column, and nothing else.")
]
Topic = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Topic.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Only this topic; may be repeated. Default: all, internal ones too."),
]
Partition = Annotated[int, typer.Option("--partition", metavar="N", min=0, help="Partition number.")]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", metavar="N", min=0, help="Only this partition; may be repeated. Needs --topic."),
]
Brokers = Annotated[int | None, typer.Option("--broker-id", metavar="ID", help="Broker id.")]
LooksApart = Annotated[
    float,
    typer.Option(
        "--looks-apart",
        metavar="SECONDS",
        min=0,
        help="Time between the two looks that have to agree; 0 is a single look.",
    ),
]
LogEvidence = Annotated[
    bool,
    typer.Option(
        "--log-evidence/--no-log-evidence",
        help="Read the log around what is held, for its cause and impact: a few megabytes, nothing where all is well.",
    ),
]
MaxTransactionTimeout = Annotated[
    float,
    typer.Option(
        "--max-transaction-timeout",
        metavar="MINUTES",
        min=0,
        help="Treat older live transactions as `long`.",
    ),
]
