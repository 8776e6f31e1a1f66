"""The command that explains a pasted error."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, BinaryIO, NoReturn

import typer

from toolkit.cli.command_groups.diagnose_commands import verdict_exit_code
from toolkit.cli.common_options import (
    BootstrapServer,
    CommandConfig,
    ConsistentCopy,
    Format,
    LogDirs,
    Output,
    RecheckAfter,
    Timeout,
    TxnStatePartitions,
)
from toolkit.cli.output import answer, progress, show, width
from toolkit.cli.source_options import cluster_is_named, partition_options, source_from_options
from toolkit.errors import ConnectionFailed

if TYPE_CHECKING:
    from toolkit.views.symptoms import ExplainedError

UNREACHABLE, INCOMPLETE, UNKNOWN_TEXT = 2, 3, 4
STDIN = "-"
CHUNK = 1 << 20  # bytes; twice of it are kept of whatever is piped in: the start and the end


def explain(
    ctx: typer.Context,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The error or log lines, in quotes; stdin without it, or with -.")
    ] = STDIN,
    *,
    transactional_id: Annotated[
        list[str] | None,
        typer.Option("--transactional-id", metavar="ID", help="Check this id, too; may be repeated."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="Check this group, too; may be repeated.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Check this topic, too; may be repeated.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", min=0, help="Only this partition of --topic; may be repeated."),
    ] = None,
    recheck_after: RecheckAfter = 5,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    consistent_copy: ConsistentCopy = False,
    txn_state_partitions: TxnStatePartitions = None,
) -> None:
    """Explain a pasted error: its causes, what to check, what is safe, and what not to do.

    Knows the wordings of Java clients, Kafka Streams, Connect, librdkafka, franz-go, Flink, Spark and brokers. With
    --bootstrap-server or --log-dir it looks up what the text names, and answers with the findings.

    Exit code 4: the text is unknown. Otherwise as for diagnose.
    """
    partition_options(topic, partition)
    pasted = _stdin() if text == STDIN else text

    from toolkit.sources.resource_checks import ResourceChecks
    from toolkit.views.symptoms import explain as explain_text

    explain_pasted = partial(
        explain_text,
        pasted,
        transactional_ids=transactional_id or (),
        groups=group or (),
        topics=topic or (),
        partitions=partition or (),
        recheck_after=recheck_after,
    )
    files = log_dir or consistent_copy or txn_state_partitions
    if not (files or cluster_is_named(ctx, bootstrap_server, command_config)):
        _answer(explain_pasted(), output)
    try:
        with source_from_options(
            ctx,
            bootstrap_server=bootstrap_server,
            command_config=command_config,
            timeout=timeout,
            log_dir=log_dir,
            consistent_copy=consistent_copy,
            txn_state_partitions=txn_state_partitions,
        ) as source:
            progress("Looking up what the text names ...")
            explained = explain_pasted(source)
    except ConnectionFailed as error:  # the text is explained all the same
        explained = replace(explain_pasted(), checks=ResourceChecks(not_checked=(str(error),)))
        _answer(explained, output, code=UNREACHABLE)
    _answer(explained, output)


def explained_exit_code(explained: ExplainedError) -> int:
    """Return 1 where something hangs, 4 where the text is unknown, 3 where evidence is missing, else 0."""
    code = verdict_exit_code(explained.checks.findings) if explained.checks else 0
    if code == 1:
        return code
    if not explained.recognized:
        return UNKNOWN_TEXT
    return INCOMPLETE if explained.checks and explained.checks.not_checked else code


def _answer(explained: ExplainedError, output: Format, *, code: int | None = None) -> NoReturn:
    if output is Format.TABLE:
        show(explained.lines(width=width()))
    else:
        from toolkit.views.symptoms.explained_error import EXPLANATIONS

        answer(EXPLANATIONS, explained.rows(), output)
    raise typer.Exit(explained_exit_code(explained) if code is None else code)


def _stdin() -> str:
    if sys.stdin.isatty():
        progress("Paste the error, then press Ctrl-D.")
    return _both_ends(sys.stdin.buffer).decode(errors="replace")


def _both_ends(stream: BinaryIO) -> bytes:
    start = stream.read(CHUNK)
    end = b""
    while chunk := stream.read(CHUNK):
        end = (end + chunk)[-CHUNK:]
    return start + end
