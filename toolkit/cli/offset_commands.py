"""Commands about single offsets: what one holds and who receives it, and why some of a range are missing."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from toolkit.cli.common_options import Format, Output, offset_spec
from toolkit.cli.output import answer, exit_code, show, width
from toolkit.cli.source_options import SourceOptions, takes_source
from toolkit.errors import UsageError
from toolkit.schema import MISSING_OFFSETS, OFFSET_VISIBILITY, Row


class IsolationLevel(StrEnum):
    """What a consumer reads (``isolation.level``)."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@takes_source("log_dir", "recording", "at")
def why(
    *,
    offset: Annotated[
        str, typer.Argument(metavar="TOPIC-PARTITION@OFFSET", help="The offset: orders-0@4711.", show_default=False)
    ],
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """Show what an offset holds, whose it is, and why read_committed consumers receive it or not.

    A record with its transaction, transactional id and marker; or a marker, an aborted record, an offset that
    compaction or retention took, or one beyond the LSO, the high watermark or the log end.
    """
    name, _, number = offset.rpartition("@")
    if not number.isdigit():
        raise UsageError(f"{offset!r} is not TOPIC-PARTITION@OFFSET.", do="For example orders-0@4711.")
    topic, partition = topic_partition(name)
    options = {"at": source_options.sample_time()} if source_options.recording else {}
    with source_options.open() as source:
        rows = source.offset_visibility_rows(topic, partition, int(number), **options)
    _answer_visibility(rows, output)
    raise typer.Exit(exit_code(rows))


@takes_source("log_dir")
def gaps(
    *,
    partition: Annotated[
        str, typer.Argument(metavar="TOPIC-PARTITION", help="The partition: orders-0.", show_default=False)
    ],
    start_offset: Annotated[
        str,
        typer.Option(
            "--start-offset",
            metavar="OFFSET|TIME",
            help="First offset: a number, a time with its zone (2026-11-21T12:00:00Z), log_start, lso or "
            "high_watermark.",
        ),
    ] = "log_start",
    stop_offset: Annotated[
        str, typer.Option("--stop-offset", metavar="OFFSET|TIME", help="First offset to leave out; as --start-offset.")
    ] = "high_watermark",
    isolation_level: Annotated[
        IsolationLevel, typer.Option("--isolation-level", help="Of the consumer that misses them.")
    ] = IsolationLevel.READ_COMMITTED,
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """Account for every offset of a range that a consumer does not receive: markers, aborted records, compaction, ...

    For an alarm of lost records, as "Failed to get records ... after polling" of Spark. Exit code 3 if an offset is
    unexplained or could not be read.
    """
    topic, number = topic_partition(partition)
    start, stop = offset_spec(start_offset), offset_spec(stop_offset)
    read_committed = isolation_level is IsolationLevel.READ_COMMITTED
    with source_options.open_logs() as source:
        rows = source.missing_offset_rows(topic, number, start=start, stop=stop, read_committed=read_committed)
    answer(MISSING_OFFSETS, rows, output, without=("topic", "partition", "isolation_level", "broker_id"))
    raise typer.Exit(3 if any(row["status"] == "unexplained" for row in rows) else exit_code(rows))


def topic_partition(text: str) -> tuple[str, int]:
    """Return the topic and partition that ``orders-0`` names.

    Raises
    ------
    UsageError
        If it names none.
    """
    topic, _, number = text.rpartition("-")
    if not topic or not number.isdigit():
        raise UsageError(f"{text!r} is not TOPIC-PARTITION.", do="For example orders-0.")
    return topic, int(number)


def _answer_visibility(rows: list[Row], output: Format) -> None:
    if output is not Format.TABLE:
        answer(OFFSET_VISIBILITY, rows, output)
        return
    from toolkit.views.table_text import visibility_lines

    show([line for row in rows for line in visibility_lines(row, width=width())])
