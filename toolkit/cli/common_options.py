"""The options that commands share, spelled as Kafka's own tools spell them."""

from __future__ import annotations

import datetime as dt
import errno
import math
import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer

from toolkit.errors import UsageError
from toolkit.schema.coerce import in_utc
from toolkit.schema.durations import duration_s
from toolkit.schema.verdict import Verdict


class Format(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def duration_option(
    name: str,
    text: str,
    *,
    default: str | None = None,
    unit: str = "s",
    at_least: float = 0,
    unlimited: str | None = None,
    panel: str | None = None,
) -> Any:
    """An option that takes a duration, ``30s``, ``15m`` or ``2h``, and gives seconds.

    `default`: how the help shows the default, such as ``15m``.
    `unit`: unit of a bare number.
    `at_least`: the shortest one, in seconds.
    `unlimited`: the value for no limit, which gives infinity.
    """

    def seconds(value: str | float) -> float:
        if not isinstance(value, str):
            return value  # the default
        if value == unlimited:
            return math.inf
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


Output = Annotated[
    Format, typer.Option("--format", help="table for people; json and csv for programs, with every column.")
]
Verdicts = Annotated[
    list[Verdict] | None,
    typer.Option(
        "--verdict",
        metavar="VERDICT",
        help=f"Show only findings with this verdict ({', '.join(Verdict)}); may be repeated. The exit code and the sum "
        "are of all findings.",
    ),
]
Short = Annotated[
    bool,
    typer.Option(
        "--short",
        help="A line each, the most urgent first: partition, offset, verdict, id, how long, action; then the sum.",
    ),
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
    float, duration_option("--recheck-after", "Delay before the confirming second check; 0 disables it.", default="5s")
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


def time_option(text: str | None) -> dt.datetime | None:
    """Return the time of an option. Raises UsageError if it is none, or has no zone."""
    return None if text is None else in_utc(text)


def offset_spec(text: str) -> int | str:
    """Return an offset, or the text of a time or a named offset, which is checked where it is used."""
    return int(text) if text.isdigit() else text


def key_values(option: str, pairs: list[str] | None) -> dict[str, str]:
    """Return the settings of an option that may be repeated, each ``KEY=VALUE``.

    Raises UsageError if one has no value.
    """
    if wrong := [pair for pair in pairs or () if "=" not in pair]:
        raise UsageError(f"{option} {wrong[0]} is not KEY=VALUE.")
    return dict(pair.split("=", 1) for pair in pairs or ())


def check_output_path(output: Path, read_only: Iterable[str]) -> None:
    """Refuse, before anything is read, an output that cannot be written, or that is where files are only read.

    Raises UsageError if the output is in one of these folders, is a folder, or no file can be made beside it.
    """
    for path in read_only:
        if Path(path).resolve() in output.resolve().parents:
            raise UsageError(f"{output} is in {path}, which is never written to.", do="Write to another folder.")
    try:
        if output.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with TemporaryFile(dir=output.parent):
            pass
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from None


def partition_options(topics: list[str] | None, partitions: list[int] | None) -> None:
    """Refuse partition numbers of no topic. Raises UsageError if there are `partitions` without `topics`."""
    if partitions and not topics:
        raise UsageError("--partition is a number within a topic.", do="Add --topic TOPIC.")
