"""The content of a report from one or several sources: findings, and the tables around them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, cast

from toolkit.analysis.diagnosis.decision import Decision
from toolkit.analysis.findings_over_time import (
    close_by_log,
    close_by_observation,
    is_open,
    merge_findings,
    without_short,
    without_stale,
)
from toolkit.errors import NotFound, ToolkitError, UsageError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema import FINDINGS, RECORDED, Row
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.live import Finding
from toolkit.schema.log import LogTransaction
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.sources.logdir import LogDir
from toolkit.sources.recording import Recording
from toolkit.views.report.incident_facts import Figure
from toolkit.views.report.report import findings_in_full, report

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster

AROUND = dt.timedelta(minutes=10)  # of the recording, before and after
BEFORE, BEHIND = 2_000, 200_000  # offsets of the log around the start of a transaction


class IncidentTables(TypedDict, total=False):
    """Rows around findings, by the names of `toolkit.views.report.report`."""

    log_transactions: list[Row]
    lso_timeline: list[Row]
    transaction_history: list[Row]
    partitions: list[Row]
    recorded_findings: list[Row]
    offsets_log: list[Row]
    exposure: list[Row]
    cluster_events: list[Row]
    problems: list[str]
    no_coordinators: str


class IncidentFindings(IncidentTables):
    """The same rows, with the findings."""

    findings: list[Row]


ProblemListener = Callable[[str], object]


def collect_incident(
    *sources: Cluster | LogDir | Recording,
    topics: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
    min_held_ms: int = 60_000,
    at: dt.datetime | None = None,
    recheck_after: float | None = None,
    max_transaction_timeout_ms: int | None = None,
    remark: ProblemListener = print,
) -> IncidentFindings:
    """Collect the tables of one incident from several sources: ``report(**collect_incident(log_dir, recording))``.

    A transaction in a log directory and in a recording is one finding: with times and amounts of the log, verdict and
    groups of the recorder. One that has ended by the end of either has the verdict ``ended``.

    Parameters
    ----------
    *sources
        Of the same cluster: a log directory, a recording, both, or the running cluster.
    topics, partitions
        As for their findings; all if null.
    min_held_ms
        Of ended transactions, include only those that held an LSO for at least so long, and those that a recorder did
        not find healthy.
    at
        Of a recording, the findings of the newest sample at or before this time; those of all samples if null.
    recheck_after, max_transaction_timeout_ms
        As for the findings of a cluster and of files; their defaults if null, and the recorder's age of a recording.
    remark
        Called with a sentence about data that cannot be read and is left out.

    Raises
    ------
    NotFound
        If a source has none of these partitions.
    """
    options: dict[str, Any] = {"topics": topics, "partitions": partitions}
    timeout: dict[str, Any] = {"max_transaction_timeout_ms": max_transaction_timeout_ms}

    def own_findings(source: Cluster | LogDir | Recording) -> list[Finding]:
        if isinstance(source, Recording) and at is None:
            sampled_at = source.sample_row()["sampled_at"]  # first: a sample may be written meanwhile
            over_time = records_of(source.finding_over_time_rows(**options), Finding)
            found = without_stale(over_time, sampled_at=sampled_at)
            if all(isinstance(each, LogDir | Recording) for each in sources):
                found += source.unreachable()
            if max_transaction_timeout_ms is None:
                return found
            newest = records_of(source.finding_rows(**options, **timeout), Finding)
            return _aged(found, {each.key: each for each in newest})
        if isinstance(source, Recording):
            rows = source.finding_rows(**options, **timeout, at=at, min_held_ms=min_held_ms)
        elif isinstance(source, LogDir):
            rows = source.finding_rows(**options, **timeout, min_held_ms=min_held_ms)
        else:
            rows = source.finding_rows(**options, **timeout, recheck_after=recheck_after)
        return records_of(rows, Finding)

    with ExitStack() as stack:
        for source in sources:
            if isinstance(source, LogDir):
                stack.enter_context(source)
        return _collect(sources, own_findings, min_held_ms=min_held_ms, remark=remark)


def _aged(recorded: Sequence[Finding], newest: Mapping[TransactionKey, Finding]) -> list[Finding]:
    """With the verdict that live transactions of the newest sample have by another age than the recorder's."""
    found = []
    for each in recorded:
        now = newest.get(each.key)
        if now is not None and each.verdict.is_live and now.verdict.is_live and each.verdict is not now.verdict:
            each = Decision.of(now).applied_to(each)
        found.append(each)
    return found


def _collect(
    sources: Sequence[Cluster | LogDir | Recording],
    own_findings: Callable[[Cluster | LogDir | Recording], list[Finding]],
    *,
    min_held_ms: int,
    remark: ProblemListener,
) -> IncidentFindings:
    unknown = [each for each in sources if isinstance(each, LogDir) and each.paths and each.cluster_id is None]
    if unknown and len(sources) > 1:  # another cluster's marker would end a transaction here
        raise UsageError(
            f"The cluster of {', '.join(str(path) for each in unknown for path in each.paths)} is not known.",
            means="A partition of the same name could be another cluster's.",
            do="Report on it by itself, or put the broker's meta.properties beside the partitions' folders.",
        )
    findings: list[Finding] = []
    keys: list[set[TransactionKey]] = []
    observed: list[Finding] = []
    for source in sources:
        own = own_findings(source)
        pair = (findings, own) if isinstance(source, Recording) else (own, findings)
        findings = merge_findings(*pair)
        keys.append({each.key for each in own})
        if not isinstance(source, (LogDir, Recording)):
            observed += own
    known_ids = sorted({source.cluster_id for source in sources if source.cluster_id is not None})
    if len(known_ids) > 1:  # partitions and producer ids of one name would be taken for each other
        raise UsageError(
            f"These sources are of {len(known_ids)} clusters: {', '.join(known_ids)}.",
            do="Collect from each by itself.",
        )
    for source, known in zip(sources, keys, strict=True):
        findings = _closed_by(source, findings, known)
    kept = without_short(findings, min_held_ms=min_held_ms)
    if known_ids:  # which an old recording does not know
        kept = [replace(each, cluster_id=known_ids[0]) for each in kept]
    rows = FINDINGS.ordered(finding.row() for finding in kept)
    shown = records_of(rows, Finding)
    tables: IncidentFindings = {"findings": rows}
    problems: list[str] = []
    for source in sources:
        around = tables_around(shown, source, remark=remark)
        problems += around.pop("problems", [])
        # A source that has nothing of a table, or could not read it, leaves that of another one.
        read = {
            name: any(not row.get("error") for row in rows)
            for name, rows in cast("Mapping[str, list[Row]]", around).items()
        }
        new = {name: rows for name, rows in around.items() if read[name] or name not in tables}
        tables = {**tables, **cast("IncidentTables", new)}
    if tables.get("recorded_findings"):  # a group that waits now has waited since the recorder's last sample
        tables["recorded_findings"] += [{**each.row(), "sampled_at": each.observed_at} for each in observed]
    for source in sources:
        if source.no_coordinators:
            tables["no_coordinators"] = source.no_coordinators
    return {**tables, "problems": problems}


def tables_around(
    findings: Data, source: Cluster | LogDir | Recording, *, remark: ProblemListener = print
) -> IncidentTables:
    """Rows of a source around findings, by table: of the log and its coordinators, or of a recording.

    `findings`: ``schema.FINDINGS``; those with a section are used. `remark`: as for `collect_incident`.
    """
    records = records_of(findings, Finding)
    if isinstance(source, Recording):
        return _recorded(records, source)
    shown = [finding for finding in findings_in_full(records) if finding.start_offset is not None]
    start_offsets: dict[TopicPartition, list[int]] = {}
    for finding in shown:
        if finding.tp is not None and finding.start_offset is not None:
            start_offsets.setdefault(finding.tp, []).append(finding.start_offset)
    problems: list[str] = []
    tables: IncidentTables = {
        "log_transactions": [],
        "lso_timeline": [],
        "transaction_history": [],
        "problems": problems,
    }

    @contextmanager
    def left_out(what: str) -> Iterator[None]:
        try:
            yield
        except ToolkitError as error:
            problems.append(f"{what}: {error}")
            remark(f"Left out, {what}: {error}")

    for tp, starts in start_offsets.items():
        start, stop = max(0, min(starts) - BEFORE), max(starts) + BEHIND
        with left_out(f"the log of {tp}"):
            around: dict[str, Any] = {"partitions": [tp], "start": start, "stop": stop}
            log_transactions = source.log_transaction_rows(**around)
            steps = source.lso_timeline_rows(**around)
            if isinstance(source, LogDir):
                broker_id = _diagnosed_replica(source, tp)
                log_transactions = [row for row in log_transactions if row["broker_id"] == broker_id]
                steps = [row for row in steps if row["broker_id"] == broker_id]
            tables["log_transactions"] += log_transactions
            tables["lso_timeline"] += steps
    if isinstance(source, LogDir) and start_offsets:
        with left_out("the metadata log"):
            topics = [*{tp.topic for tp in start_offsets}, STATE_TOPIC]
            tables["cluster_events"] = source.cluster_event_rows(topics=topics)
    names = sorted({finding.transactional_id for finding in shown if finding.transactional_id is not None})
    with left_out("the settings of the brokers"):
        tables["exposure"] = source.exposure_rows()
    groups = sorted({group for finding in shown for group in finding.groups_held or ()})
    if isinstance(source, LogDir) and groups:
        with left_out("the offsets of the groups"):
            tables["offsets_log"] = source.offsets_log_rows(groups=groups)
    if names:
        with left_out("the records of the coordinators"):
            tables["transaction_history"] = source.transaction_history_rows(transactional_ids=names)
    return tables


def _diagnosed_replica(source: LogDir, tp: TopicPartition) -> int | None:
    """The broker whose replica the findings of a partition are of: a deposed leader's has what was truncated since."""
    contents = source.contents()
    logs = contents.replica_logs(partitions=[tp])
    return next(states[0].log.where.broker_id for _, states in contents.by_partition(logs))


def timeline_of(tables: IncidentFindings) -> Figure | None:
    """The timeline of the first partition of a report, for its `figure`; null if there is none, or no plotly.

    Parameters
    ----------
    tables
        From `collect_incident`.
    """
    return next(iter(report(**tables).charts), None)


def _closed_by(
    source: Cluster | LogDir | Recording, findings: list[Finding], known: Collection[TransactionKey]
) -> list[Finding]:
    """The findings, closed if the source shows their end: its own findings leave out short ones."""
    for finding in findings:
        if isinstance(source, Recording) or not is_open(finding) or finding.key in known:
            continue
        assert finding.tp is not None
        with suppress(NotFound):
            partitions = [finding.tp]
            if isinstance(source, LogDir):
                tables = source.log_transaction_tables(
                    partitions=partitions, start=finding.start_offset, producer_id=finding.producer_id
                )
                broker_id = _diagnosed_replica(source, finding.tp)
                found = (txn for table in tables for txn in LogTransaction.of_table(table))
                findings = close_by_log(findings, (txn for txn in found if txn.broker_id == broker_id))
            else:
                later = source.finding_rows(partitions=partitions, recheck_after=0, log_evidence=False)
                findings = close_by_observation(findings, map(Finding.of, later))
    return findings


def _recorded(findings: Sequence[Finding], recording: Recording) -> IncidentTables:
    """The partitions of a report in the recording, around the time of the findings."""
    if not findings:
        return {}
    topic_partitions = {(finding.topic, finding.partition) for finding in findings_in_full(findings)}
    start = min(finding.held_from or finding.opened_at or finding.observed_at for finding in findings) - AROUND
    stop = max(finding.observed_at for finding in findings) + AROUND
    samples, recorded = (
        [
            row
            for row in RECORDED[name].rows(recording.history(name, start=start, stop=stop))
            if (row["topic"], row["partition"]) in topic_partitions
        ]
        for name in ("partitions", "findings")
    )
    return {"partitions": samples, "recorded_findings": recorded}
