"""The command that writes a postmortem."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.connection import connect, files_instead, partitions_asked, recording_instead, time_asked
from toolkit.cli.findings import verdict_exit_code
from toolkit.cli.options import (
    AtRest,
    AtTime,
    BootstrapServer,
    CommandConfig,
    LogDirs,
    LooksApart,
    MaxTransactionTimeout,
    Partitions,
    RecordingDir,
    Timeout,
    Topics,
)
from toolkit.cli.output import progress, remark
from toolkit.errors import ToolkitError, UsageError

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.sources.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording

__all__ = ["report"]

AROUND = dt.timedelta(minutes=10)  # what a recorder saw that long before and after is told, too
BEFORE, BEHIND = 2_000, 200_000  # offsets of the log that are told around where a transaction starts

Tables = Mapping[str, "list[Row]"]


def report(
    ctx: typer.Context,
    *,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="Write to this .html file, or as Markdown to a .md file.")
    ],
    topic: Topics = None,
    partition: Partitions = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Heading of the page.")] = None,
    audit_file: Annotated[
        Path | None,
        typer.Option(
            "--audit-file",
            metavar="FILE",
            help="What was done, as abort and fence wrote it. Default, of a live cluster only: where they write.",
        ),
    ] = None,
    min_held: Annotated[
        float | None,
        typer.Option(
            "--min-held",
            metavar="SECONDS",
            min=0,
            help="With --log-dir, tell also who held an LSO for so long and is over: every log is read whole.",
        ),
    ] = None,
    interactive: Annotated[
        bool,
        typer.Option("--interactive", help="A timeline of plotly, to zoom and point at: some megabytes."),
    ] = False,
    looks_apart: LooksApart = 5,
    max_transaction_timeout: MaxTransactionTimeout = 15,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
    at_rest: AtRest = False,
    recording: RecordingDir = None,
    at: AtTime = None,
) -> None:
    """Write the postmortem: what was held, since when, by whom, why, whom it hit, and what was done.

    One page that needs nothing else, with light and dark colours and ready to print; keys and values of records are
    never in it.
    """
    from toolkit.views.report import report as made_of

    partitions_asked(topic, partition)
    _check_output(output, [*(log_dir or ()), *([recording] if recording else ())])
    time, long_ms = time_asked(at), int(max_transaction_timeout * 60_000)
    recorded = recording_instead(
        ctx, recording, at=at, log_dirs=log_dir, bootstrap_server=bootstrap_server, command_config=command_config
    )
    files = None if recorded else files_instead(
        ctx, log_dir, at_rest=at_rest, bootstrap_server=bootstrap_server, command_config=command_config
    )  # fmt: skip
    if min_held is not None and not files:
        raise UsageError("--min-held asks what logs tell of the past.", do="Add --log-dir PATH.")
    actions = _actions(audit_file)
    if recorded:
        rows = recorded.finding_rows(topic, partition, at=time, max_transaction_timeout_ms=long_ms)
        tables = _recorded(rows, recorded)
    elif files:
        held = None if min_held is None else int(min_held * 1000)
        rows = files.finding_rows(topic, partition, max_transaction_timeout_ms=long_ms, min_held_ms=held)
        tables = _told(rows, files)
    else:
        with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
            progress(f"Looking; whatever is in doubt is looked at again {looks_apart:g} s later ...")
            rows = cluster.finding_rows(topic, partition, looks_apart=looks_apart, max_transaction_timeout_ms=long_ms)
            tables = _told(rows, cluster)
            actions = actions or _own_actions(cluster)
    page = made_of(
        rows,
        spans=tables.get("spans"),
        lso_timeline=tables.get("lso_timeline"),
        histories=tables.get("histories"),
        partitions=tables.get("partitions"),
        actions=actions,
        figure=_figure(rows, tables) if interactive else None,
        title=title,
    )
    written = page.save(output)
    remark(f"{written}: {written.stat().st_size:,} bytes")
    raise typer.Exit(verdict_exit_code(rows))


def _figure(rows: Sequence[Row], tables: Tables) -> Callable[[str], object] | None:
    """The timeline of the partition that is told of first, by theme; null where nothing is."""
    from toolkit.views.report.report import told_whole

    try:
        from toolkit.views.plots import plot_timeline
    except ImportError:
        raise UsageError("plotly is not installed.", do="pip install 'kafka-txn-toolkit[notebooks]'.") from None
    first = next(iter(told_whole(rows)), None)
    if first is None or first["topic"] is None:
        return None
    seen = tables.get("partitions")
    until_then = None if seen is None else [row for row in seen if row["observed_at"] <= first["observed_at"]]
    return lambda theme: plot_timeline(
        tables.get("spans", []),
        lso_timeline=tables.get("lso_timeline"),
        partitions=until_then,  # what came later would be drawn under a verdict of before
        histories=tables.get("histories"),
        findings=rows,
        topic=first["topic"],
        partition=first["partition"],
        theme="dark" if theme == "dark" else "light",
    )


def _check_output(output: Path, read_only: Sequence[Path]) -> None:
    """Refuse at once what cannot be written, or lies where only reading is allowed."""
    from toolkit.views.report.report import SUFFIXES

    if output.suffix not in SUFFIXES:
        raise UsageError(f"{output} ends in none of {', '.join(SUFFIXES)}.", do="The name says how it is written.")
    for path in read_only:
        if path.resolve() in output.resolve().parents:
            raise UsageError(f"{output} lies in {path}, which is only read.", do="Write to another folder.")


def _told(rows: Sequence[Row], source: LogDir | Cluster) -> Tables:
    """What logs hold around the findings that the page tells of; what cannot be read is said, and left out."""
    from toolkit.schema import HISTORIES, LSO_TIMELINE, SPANS
    from toolkit.views.report.report import told_whole

    shown = [row for row in told_whole(rows) if row["start_offset"] is not None]
    places: dict[tuple[str, int], list[int]] = {}
    for row in shown:
        places.setdefault((row["topic"], row["partition"]), []).append(row["start_offset"])
    tables: dict[str, list[Row]] = {name: [] for name in ("spans", "lso_timeline", "histories")}
    for (topic, partition), starts in places.items():
        start, stop = max(0, min(starts) - BEFORE), max(starts) + BEHIND
        with _left_out(f"the log of {topic}-{partition}"):
            tables["spans"] += SPANS.rows(source.spans(topic, partition, start=start, stop=stop))
            tables["lso_timeline"] += LSO_TIMELINE.rows(source.lso_timeline(topic, partition, start=start, stop=stop))
    names = sorted({row["transactional_id"] for row in shown if row["transactional_id"] is not None})
    if names:
        with _left_out("what the coordinators wrote"):
            tables["histories"] = HISTORIES.rows(source.histories(names))
    return tables


@contextmanager
def _left_out(what: str) -> Iterator[None]:
    try:
        yield
    except ToolkitError as error:
        remark(f"Left out, {what}: {error}")


def _recorded(rows: Sequence[Row], recording: Recording) -> Tables:
    """The partitions that the page tells of, as the recorder saw them around the time of the findings."""
    from toolkit.schema import RECORDED
    from toolkit.views.report.report import told_whole

    places = {(row["topic"], row["partition"]) for row in told_whole(rows)}
    times = [row["held_from"] or row["opened_at"] or row["observed_at"] for row in rows]
    if not times:
        return {}
    start, stop = min(times) - AROUND, max(row["observed_at"] for row in rows) + AROUND
    seen = RECORDED["partitions"].rows(recording.history("partitions", start=start, stop=stop))
    return {"partitions": [row for row in seen if (row["topic"], row["partition"]) in places]}


def _actions(audit_file: Path | None) -> list[Row] | None:
    """Rows of the audit trail that is named."""
    from toolkit.actions.audit import Audit

    if audit_file is not None and not audit_file.exists():
        raise UsageError(f"{audit_file} does not exist.", do="Name the file that abort and fence were told.")
    return Audit(audit_file).rows() if audit_file is not None else None


def _own_actions(cluster: Cluster) -> list[Row] | None:
    """What was done to this cluster from here, as it was addressed; null where nothing ever was."""
    from toolkit.actions.audit import Audit

    audit = Audit()
    if not audit.path.exists():
        return None
    return [row for row in audit.rows() if row["bootstrap_servers"] == cluster.bootstrap_servers]
