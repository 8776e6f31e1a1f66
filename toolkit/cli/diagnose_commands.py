"""Commands that diagnose: who holds an LSO, why, and what is safe; of a pasted error, for a postmortem, an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NoReturn, cast

import typer

from toolkit.cli.options import (
    FILE_OPTIONS,
    Brokers,
    FindingOptions,
    MaxTransactionTimeout,
    Output,
    Partitions,
    RecheckAfter,
    SourceOptions,
    Topics,
    check_output_path,
    duration_option,
    option,
    partition_options,
    takes_source,
    time_option,
)
from toolkit.cli.output import INCOMPLETE, NOT_FOUND, Answer, Format, answer_sources, progress, remark
from toolkit.errors import ConnectionFailed, UsageError
from toolkit.views.document import NOWHERE, Paragraph, Quote

if TYPE_CHECKING:
    from toolkit.cli.options import AnySource
    from toolkit.schema.live import Finding, GroupLag
    from toolkit.sources.logdir import LogDir
    from toolkit.views.document import Part
    from toolkit.views.explained_error import ExplainedError

STDIN = "-"
CHUNK = 1 << 20  # bytes; twice of it are kept of whatever is piped in: the start and the end


@takes_source("all_clusters", *FILE_OPTIONS, "recording", "at", "flink_checkpoint")
def diagnose(*, finding_options: FindingOptions, source_options: SourceOptions) -> None:
    """Diagnose every open transaction and every held LSO, healthy ones included.

    Checks doubtful partitions twice, so that a transaction that is ending is not taken for a hanging one. With
    --log-dir it reads files, and first says what they prove; with --recording, a sample of the recorder.
    """
    answer_findings(finding_options, source_options)


@takes_source("all_clusters", *FILE_OPTIONS, "recording", "at", "flink_checkpoint")
def find_hanging(*, broker_id: Brokers = None, finding_options: FindingOptions, source_options: SourceOptions) -> None:
    """Find hanging transactions, and those that cannot be ruled out.

    Searches the whole cluster, internal topics included, unless --topic narrows it; with --log-dir or --recording,
    files.
    """
    if source_options.log_dir and broker_id is not None:
        raise UsageError("--broker-id applies to a cluster.", do="With --log-dir, name that broker's log directory.")
    answer_findings(finding_options, source_options, in_doubt_only=True, broker_id=broker_id)


@takes_source(*FILE_OPTIONS, "flink_checkpoint")
def explain(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The error or log lines, in quotes; stdin without it, or with -.")
    ] = STDIN,
    *,
    transactional_id: Annotated[
        list[str] | None, option("--transactional-id ID", "Check this id, too; may be repeated.")
    ] = None,
    group: Annotated[list[str] | None, option("--group GROUP", "Check this group, too; may be repeated.")] = None,
    topic: Annotated[list[str] | None, option("--topic TOPIC", "Check this topic, too; may be repeated.")] = None,
    partition: Annotated[
        list[int] | None, option("--partition N", "Only this partition of --topic; may be repeated.", min=0)
    ] = None,
    recheck_after: RecheckAfter = 5,
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """Explain a pasted error: its causes, what to check, what is safe, and what not to do.

    Knows the wordings of Java clients, Kafka Streams, Connect, librdkafka, franz-go, Flink, Spark and brokers. With
    --bootstrap-server or --log-dir it looks up what the text names, and answers with the findings.

    Exit code 4: the text is unknown. Otherwise as for diagnose.
    """
    partition_options(topic, partition)
    if text == STDIN and sys.stdin.isatty():
        progress("Paste the error, then press Ctrl-D.")
    pasted = _both_ends(sys.stdin.buffer).decode(errors="replace") if text == STDIN else text

    from toolkit.sources.resource_checks import ResourceChecks
    from toolkit.views.explained_error import explain as explain_text

    explain_pasted = partial(
        explain_text,
        pasted,
        transactional_ids=transactional_id or (),
        groups=group or (),
        topics=topic or (),
        partitions=partition or (),
        recheck_after=recheck_after,
    )
    if source_options == SourceOptions():
        _answer_explained(explain_pasted(), output, source=None)
    try:
        with source_options.open_logs() as source:
            progress("Looking up what the text names ...")
            explained = explain_pasted(source)
            assert explained.checks is not None
            explained = replace(explained, connection=source_options.connection)
    except ConnectionFailed as error:  # the text is explained all the same
        explained = replace(explain_pasted(), checks=ResourceChecks(not_checked=(str(error),)))
        _answer_explained(explained, output, source=None, code=INCOMPLETE)
    _answer_explained(explained, output, source=source)


@takes_source(*FILE_OPTIONS, "recording", "at", "flink_checkpoint")
def report(
    *,
    output: Annotated[
        Path, option("--output FILE", "A .html page; .md with its pictures beside it; or .ipynb, a notebook to edit.")
    ],
    topic: Topics = None,
    partition: Partitions = None,
    title: Annotated[str | None, option("--title TEXT", "Title of the page.")] = None,
    audit_file: Annotated[
        Path | None,
        option(
            "--audit-file FILE",
            "Audit trail of actions to include. Default, for a live cluster: the one that they write.",
        ),
    ] = None,
    min_held: Annotated[
        float | None,
        duration_option(
            "--min-held",
            "With --log-dir or --recording: leave out healthy transactions that have ended and held an LSO for less. "
            "Default: 1m.",
        ),
    ] = None,
    redact: Annotated[
        bool,
        option(
            "--redact",
            "Replace topics, ids, groups, people, hosts and paths: topic-1, id-1. Producer ids and offsets stay.",
        ),
    ] = False,
    interactive: Annotated[
        bool, option("--interactive", "Add an interactive plotly timeline (some megabytes).")
    ] = False,
    recheck_after: RecheckAfter = 5,
    max_transaction_timeout: MaxTransactionTimeout = 900,
    source_options: SourceOptions,
) -> None:
    """Write a postmortem: what happened, its impact and cause, what was done, what prevents it.

    --recording together with --log-dir or a cluster gives the most: who waited and when it was seen, and the log.
    Keys and values of records are never in it.
    """
    from toolkit.actions.audit import Audit, is_on
    from toolkit.schema.coerce import records_of
    from toolkit.schema.live import Finding
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.report import Redaction, collect_incident, timeline_of
    from toolkit.views.report import report as write_report
    from toolkit.views.report.report import SUFFIXES

    partition_options(topic, partition)
    if output.suffix not in SUFFIXES:
        raise UsageError(f"{output} ends in none of {', '.join(SUFFIXES)}.", do="The suffix selects the format.")
    check_output_path(output, source_options.paths)
    if interactive and find_spec("plotly") is None:
        raise UsageError("plotly is not installed.", do="pip install plotly")
    if min_held is not None and not source_options.paths:
        raise UsageError(
            "--min-held needs the past, which brokers do not keep.", do="Add --log-dir PATH or --recording DIR."
        )
    sources = source_options.open_incident()
    if audit_file is not None and not audit_file.exists():
        raise UsageError(
            f"{audit_file} does not exist.", do="Use the --audit-file of abort, complete, commit and fence."
        )
    actions = Audit(audit_file).rows() if audit_file is not None else None
    with ExitStack() as stack:
        clusters = [stack.enter_context(source) for source in sources if isinstance(source, Cluster)]
        progress("Reading ...")
        tables: dict[str, Any] = {
            **collect_incident(
                *sources,
                topics=topic,
                partitions=partition,
                min_held_ms=int((60 if min_held is None else min_held) * 1000),
                at=time_option(source_options.at),
                recheck_after=recheck_after,
                max_transaction_timeout_ms=int(max_transaction_timeout * 1000),
                remark=remark,
            )
        }
    if clusters and actions is None:
        audit = Audit()  # of what was done to this cluster from here
        own = [row for row in audit.rows() if is_on(clusters[0], row)]
        actions = own if audit.path.exists() else None
    if actions is not None:
        tables["actions"] = actions
    connection = source_options.connection
    if redact:
        connection = NOWHERE  # it has hosts and paths
        redaction = Redaction(tables)
        tables, title = redaction.applied(tables), redaction.applied(title)
    figure = timeline_of(tables) if interactive else None  # type: ignore[arg-type]
    page = write_report(**tables, figure=figure, title=title, connection=connection)
    written = page.save(output)
    remark(f"{written}: {written.stat().st_size:,} bytes")
    code = verdict_exit_code(records_of(tables["findings"], Finding))
    raise typer.Exit(code or (INCOMPLETE if tables.get("problems") else 0))


@takes_source(*FILE_OPTIONS, "recording", "flink_checkpoint")
def mcp(*, recheck_after: RecheckAfter = 5, source_options: SourceOptions) -> None:
    """Serve agents over the Model Context Protocol on stdin and stdout: read-only tools over one source.

    diagnose, explain, history, lag, report, why, and plan_abort and plan_complete, which give a command
    for a person to run and never act. The options select the source; the agent cannot.
    """
    try:
        from toolkit.views.mcp_server import mcp_server
    except ModuleNotFoundError as error:
        if error.name not in {"mcp", "mcp_types"}:
            raise
        raise UsageError("mcp is not installed.", do="pip install mcp") from None
    from toolkit.views.agent_tools import AgentTools

    source_options.check()  # invalid usage ends it here, not in a result for the agent
    if source_options.paths:
        source_options.open()
    tools = AgentTools(source_options.open, connection=source_options.connection, recheck_after=recheck_after)
    mcp_server(tools).run("stdio")


def answer_findings(
    options: FindingOptions, source_options: SourceOptions, *, in_doubt_only: bool = False, **more: Any
) -> NoReturn:
    """Write the findings of a source: all, or those that need an action or of which that is not known."""
    read = partial(_findings_answer, options, in_doubt_only=in_doubt_only, more=more)
    answer_sources(read, source_options, options.output, watch=options.watch)


def _findings_answer(
    options: FindingOptions, source_options: SourceOptions, *, in_doubt_only: bool, more: Mapping[str, Any]
) -> Answer:
    """Findings, of files with what they prove. On stderr a line about the second check, or the time of the sample."""
    from toolkit.schema.live import Finding
    from toolkit.sources.source import FILES
    from toolkit.views.finding_document import LINKED_FINDINGS, linked_row

    how = {
        "topics": options.topic,
        "partitions": options.partition,
        "log_evidence": options.log_evidence,
        "max_transaction_timeout_ms": int(options.max_transaction_timeout * 1000),
        **more,
    }
    with source_options.open() as source:
        if source_options.recording:
            from toolkit.sources.recording import Recording

            assert isinstance(source, Recording)
            how["at"] = time_option(source_options.at)
            progress(f"Sample of {source.sample_row(at=how['at'])['observed_at']:%Y-%m-%d %H:%M:%S} UTC:")
        elif not source_options.log_dir:
            how["recheck_after"] = options.recheck_after
            if seconds := options.recheck_after:
                progress(f"Checking; doubtful partitions are checked again {seconds:g} s later ...")
        findings = source.records(Finding, **how)
        proves = options.output is Format.TABLE and source.kind == FILES
        proof = cast("LogDir", source).proof().line if proves else None
    shown = in_doubt(findings) if in_doubt_only else findings
    if options.verdict:
        shown = [each for each in shown if each.verdict in options.verdict]
    connection = source_options.connection
    key = [
        (each.tp, each.start_offset, each.producer_id, each.verdict, each.cause, each.outcome, each.action, each.error)
        for each in findings
    ]
    return Answer(
        table=LINKED_FINDINGS,
        rows=[] if options.output is Format.TABLE else [linked_row(each, connection) for each in shown],
        source=source,
        scope=source.scope,
        parts=partial(answer_parts, shown, findings, proof=proof, seen=source.scope_text, is_short=options.short),
        connection=connection,
        code=verdict_exit_code(findings),
        key=tuple(sorted(key, key=str)),
    )


def answer_parts(
    findings: Sequence[Finding],
    of: Sequence[Finding],
    *,
    proof: str | None = None,
    seen: str | None = None,
    is_short: bool = False,
) -> list[Part]:
    """`findings` with all else that is open on their partitions, and the sum of all that was seen.

    `proof` is the first line; an all-clear names what was `seen`. `is_short`: a line each.
    """
    from toolkit.views.finding_document import finding_parts, short_lines, summary

    total = Paragraph(summary(of, scope=seen))
    if is_short:
        return [Quote("\n".join(short_lines(findings))), total]
    partitions = {(each.topic, each.partition) for each in findings}
    whole = [each for each in of if (each.topic, each.partition) in partitions]
    return [*([] if proof is None else [Paragraph(proof)]), *finding_parts(whole), total]


def in_doubt(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that need an action, and those of which that is not known."""
    return [each for each in findings if each.action or each.verdict.exit_code]


def verdict_exit_code(findings: Iterable[Finding]) -> int:
    """Return 1 where there is something to do, 3 where that is not known, else 0."""
    codes = {1 if each.action else each.verdict.exit_code for each in findings}
    return min(codes - {0}, default=0)


def explained_exit_code(explained: ExplainedError, source: AnySource | None) -> int:
    """Return 1 where there is something to do, 4 where the text is unknown, 3 where evidence is missing, else 0."""
    checks = explained.checks
    codes = {verdict_exit_code(checks.findings), beyond_end_exit_code(checks.group_lag, source)} if checks else {0}
    if 1 in codes:
        return 1
    if not explained.recognized:
        return NOT_FOUND
    return INCOMPLETE if checks and checks.is_incomplete else max(codes)


def beyond_end_exit_code(lags: Iterable[GroupLag], source: AnySource | None) -> int:
    """Return 1 where a group has committed beyond the end of a log, 3 if only a copy may end there, else 0."""
    from toolkit.sources.source import CLUSTER

    if not any(lag.beyond_end for lag in lags):
        return 0
    return 1 if source is not None and source.kind == CLUSTER else INCOMPLETE


def _answer_explained(
    explained: ExplainedError, output: Format, *, source: AnySource | None, code: int | None = None
) -> NoReturn:
    from toolkit.schema.coerce import Scope
    from toolkit.views.explained_error import EXPLANATIONS

    rows = explained.rows()
    missing = explained.checks.not_checked if explained.checks else ()
    answer = Answer(
        table=EXPLANATIONS,
        rows=rows,
        source=source,
        scope=(source.scope if source else None) or Scope.of_rows(EXPLANATIONS, rows, missing=missing),
        parts=explained.parts,
        connection=explained.connection,
        code=explained_exit_code(explained, source) if code is None else code,
    )
    raise typer.Exit(answer.write(output))


def _both_ends(stream: BinaryIO) -> bytes:
    start = stream.read(CHUNK)
    end = b""
    while chunk := stream.read(CHUNK):
        end = (end + chunk)[-CHUNK:]
    return start + end
