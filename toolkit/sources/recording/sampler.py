"""Samples of a cluster: each an observation that is diagnosed with the previous one; `Sampler` reconnects."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolkit.analysis.diagnosis.consumer_lag import group_lag
from toolkit.analysis.diagnosis.diagnose import Diagnosis, transaction_key
from toolkit.analysis.diagnosis.evidence_kinds import LogFacts, OpenEvidence
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, Observation
from toolkit.analysis.history.sample_findings import (
    LATE_PADDING_MS,
    first_seen,
    late_transactions,
    sample_diagnoses,
    sample_findings,
    with_log_evidence,
)
from toolkit.errors import ToolkitError
from toolkit.schema import RECORDED, Row
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.offsets import GroupLag
from toolkit.schema.recorded import LateTransaction, RecordedSample
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.sources.live.blocked_groups import with_groups
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import row_text
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.state.broker_configs import longest_timeout_ms
from toolkit.sources.live.state.group_offsets import offsets_of_groups
from toolkit.sources.recording.recorded_samples import AFTER, BEFORE, recorded_sample

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.evidence.diagnosis_context import DiagnosisContext

MAX_LOG_AGE = dt.timedelta(seconds=60)  # after which logs are read again


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """What the logs showed of an open transaction when they were read."""

    facts: LogFacts  # for the decision
    finding: Finding  # as it was explained
    explanation: Sequence[EvidenceEntry]  # the evidence that this added
    owner: tuple[object, ...]  # what was known of its owner and producer
    read_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An observation of a cluster and its findings at one time."""

    due: dt.datetime  # when it was due; `sampled_at` of every row
    row: RecordedSample  # its row of ``samples``; if it failed, `error` says why
    findings: Sequence[Finding] = ()
    late_transactions: Sequence[LateTransaction] = ()
    # the newest observation, of this sample or an earlier one; the next sample is diagnosed with it
    observation: Observation | None = None
    # when each open transaction was first observed
    first_seen: Mapping[TransactionKey, dt.datetime] = field(default_factory=dict)
    # what the logs showed of open transactions, for the next sample
    log_readings: Mapping[TransactionKey, LogReading] = field(default_factory=dict)
    # the lag of groups with offsets beyond a held LSO; null if they were not requested or could not be read
    held_groups: Sequence[GroupLag] | None = None

    @property
    def error(self) -> str | None:
        """Why the sample failed, as ``"NAME: sentence"``; null on success."""
        return self.row.error

    @property
    def tables(self) -> Mapping[str, Sequence[Row]]:
        """Its rows by the names of ``schema.RECORDED``; ``samples`` has one, the others have none if it failed."""
        found, due = self.observation, self.due
        tables: dict[str, list[Row]] = {name: [] for name in RECORDED} | {"samples": [self.row.row()]}
        if self.error is None and found is not None:
            after = (AFTER, found.partitions_after, found.producers_after)
            for phase, partitions, producers in ((BEFORE, found.partitions, found.producers), after):
                tables["partitions"] += [{"sampled_at": due, "phase": phase, **each.row()} for each in partitions]
                tables["producers"] += [{"sampled_at": due, "phase": phase, **each.row()} for each in producers]
            tables["transactions"] = [{"sampled_at": due, **each.row()} for each in found.transactions]
            tables["findings"] = [{"sampled_at": due, **each.row()} for each in self.findings]
            tables["late_transactions"] = [each.row() for each in self.late_transactions]
        return tables


@dataclass(kw_only=True)
class Sampler:
    """Takes samples; reconnects after a failed one."""

    connect: Callable[[], Cluster]  # returns the cluster, with a timeout of at most the interval
    interval_ms: int  # time between samples; only recorded
    options: Mapping[str, Any] = field(default_factory=dict)  # other arguments of `take_sample`
    _cluster: Cluster | None = None
    _longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS

    def take(self, due: dt.datetime, before: Sample | None) -> Sample:
        """Take a sample, with an error instead of rows if the cluster cannot be reached.

        `due`, `before`: as for `take_sample`.
        """
        started = time.monotonic()
        try:
            cluster = self.cluster()
        except ToolkitError as error:
            seconds = time.monotonic() - started
            return failed_sample(error, due=due, interval_ms=self.interval_ms, before=before, seconds=seconds)
        sample = take_sample(
            cluster,
            due=due,
            interval_ms=self.interval_ms,
            before=before,
            longest_timeout_ms=self._longest_timeout_ms,
            **self.options,
        )
        if sample.error is not None:
            self.close()  # brokers may have moved
        return sample

    def cluster(self) -> Cluster:
        """The cluster; connects if needed.

        Raises ConnectionFailed or AuthenticationFailed if no broker can be reached, or it rejects the credentials.
        """
        if self._cluster is None:
            self._cluster = self.connect()
            self._longest_timeout_ms = longest_timeout_ms(self._cluster.client) or self._longest_timeout_ms
        return self._cluster

    def close(self) -> None:
        """Close the connections; the next sample makes new ones."""
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = None


def take_sample(
    cluster: Cluster,
    *,
    due: dt.datetime,
    interval_ms: int,
    before: Sample | None = None,
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    late_padding_ms: int = LATE_PADDING_MS,
    longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    log_evidence: bool = True,
    with_held_groups: bool = False,
) -> Sample:
    """Observe a cluster once and diagnose the observation with the previous one, without waiting for a recheck.

    Returns: with an error instead of rows if the cluster cannot be reached.
    `cluster`: its timeout bounds each round of requests; a sample takes several rounds.
    `due`: when the sample is due, with time zone.
    `interval_ms`: time between samples; only recorded.
    `before`: the previous sample, successful or failed. Without one no verdict is `hanging`.
    `max_transaction_timeout_ms`: older live transactions are ``long``.
    `late_padding_ms`, `longest_timeout_ms`: as for `analysis.history.sample_findings.late_transactions`.
    `log_evidence`: read the log around held LSOs; at most once a minute for the same transaction and verdict.
    `with_held_groups`: read the committed offsets of the groups while an LSO is held.
    """
    started = time.monotonic()
    due = due.astimezone(dt.UTC)
    try:
        observation = cluster.observe()
    except ToolkitError as error:
        return failed_sample(error, due=due, interval_ms=interval_ms, before=before, seconds=time.monotonic() - started)
    earlier = before.observation if before else None
    diagnoses = sample_diagnoses(observation, earlier, max_transaction_timeout_ms=max_transaction_timeout_ms)
    findings, log_readings = None, before.log_readings if before else {}
    if log_evidence:
        with suppress(ToolkitError):  # the observation is valid without it
            findings, log_readings = findings_with_logs(cluster.client, diagnoses, log_readings)
    if findings is None:
        findings = sample_findings(diagnoses)
    groups = held_groups(cluster.client, findings) if with_held_groups else None
    times = first_seen(observation, before.first_seen if before else {})
    late = late_transactions(
        findings,
        observation,
        sampled_at=due,
        first_seen=times,
        padding_ms=late_padding_ms,
        longest_timeout_ms=longest_timeout_ms,
    )
    return Sample(
        due=due,
        row=recorded_sample(observation, due=due, interval_ms=interval_ms, seconds=time.monotonic() - started),
        findings=findings,
        late_transactions=list(late),
        observation=observation,
        first_seen=times,
        log_readings=log_readings,
        held_groups=groups,
    )


def findings_with_logs(
    client: BrokerClient, diagnoses: Sequence[Diagnosis], before: Mapping[TransactionKey, LogReading]
) -> tuple[list[Finding], dict[TransactionKey, LogReading]]:
    """Decide on a sample with what the logs show of its open transactions.

    Logs are read of a partition with a transaction that is new or decided otherwise, whose owner has changed, that now
    holds the LSO, or whose logs were read a minute ago.

    Returns: the findings, and what the logs showed, for the next sample.
    `diagnoses`: from `sample_diagnoses`.
    `before`: what the logs showed up to the previous sample.
    """
    now = diagnoses[-1].observations[-1].observed_at
    to_read = {each.key: each for diagnosis in diagnoses for each in diagnosis.to_read()}
    known = {
        key: each
        for key, each in before.items()
        if key in to_read and each.owner == _owner(to_read[key]) and now - each.read_at < MAX_LOG_AGE
    }
    findings = sample_findings(diagnoses, log={key: each.facts for key, each in known.items()})
    for finding in findings:
        earlier = known.get(key := transaction_key(finding))
        if earlier and _decided(finding) != _decided(earlier.finding):
            del known[key]
    partitions = {each.txn.tp for key, each in to_read.items() if key not in known}
    known = {key: each for key, each in known.items() if to_read[key].txn.tp not in partitions}
    contexts: Mapping[TransactionKey, DiagnosisContext] = {}
    explained: Iterator[Finding] = iter(())
    if partitions:
        from toolkit.analysis.diagnosis.evidence.explanation import explain, log_facts  # imports numpy and Arrow
        from toolkit.sources.live.logs.log_evidence import read_contexts

        contexts = read_contexts(client, [each for each in to_read.values() if each.txn.tp in partitions])
        read = {key: log_facts(context) for key, context in contexts.items()}
        findings = sample_findings(diagnoses, log={key: each.facts for key, each in known.items()} | read)
        of_partitions = [each for each in findings if each.tp in partitions]
        explained = iter(with_groups(client, explain(of_partitions, contexts)))
    result: list[Finding] = []
    for finding in findings:
        key = transaction_key(finding)
        if finding.tp in partitions:
            result.append(next(explained))
            context = contexts.get(key)
            excerpt = None if context is None or context.log is None else context.log.excerpts.get(context.txn.tp)
            if excerpt is not None and not excerpt.error:  # what was not read is read again
                known[key] = LogReading(
                    facts=read[key],
                    finding=result[-1],
                    explanation=result[-1].evidence[len(finding.evidence) :],
                    owner=_owner(to_read[key]),
                    read_at=now,
                )
        elif key in known:
            evidence = (*finding.evidence, *known[key].explanation)
            result.append(replace(with_log_evidence(finding, known[key].finding), evidence=evidence))
        else:
            result.append(finding)
    return result, known


def _owner(evidence: OpenEvidence) -> tuple[object, ...]:
    """What is known of the owner and the producer of a transaction."""
    txn = evidence.txn
    return txn.producer.producer_epoch, txn.transactional_id, txn.owner_epoch, txn.state, txn.listed


def _decided(finding: Finding) -> tuple[object, ...]:
    """What decides how much of the logs explains it: what holds the LSO is explained in more detail."""
    return finding.verdict, finding.queue_position == 1


def failed_sample(
    error: ToolkitError, *, due: dt.datetime, interval_ms: int, before: Sample | None = None, seconds: float = 0.0
) -> Sample:
    """A sample with an error instead of rows; it keeps what the previous sample knows for the next one.

    `error`: why the cluster cannot be reached.
    `due`, `interval_ms`, `before`: as for `take_sample`.
    `seconds`: duration until the error.
    """
    row = RecordedSample(
        sampled_at=due.astimezone(dt.UTC),
        observed_at=dt.datetime.now(dt.UTC),
        interval_ms=interval_ms,
        seconds=seconds,
        error=row_text(error),
    )
    kept = before or Sample(due=due, row=row)
    return replace(kept, due=due, row=row, findings=(), late_transactions=(), held_groups=None)


def held_groups(client: BrokerClient, findings: Sequence[Finding]) -> list[GroupLag] | None:
    """The lag of the groups with offsets beyond a held LSO; markers count as records.

    Null if the offsets of a group could not be read.
    `findings`: the findings. Partitions whose LSO is held only briefly are left out.
    """
    held: dict[TopicPartition, Finding] = {}
    for each in findings:
        lso, high_watermark = each.last_stable_offset, each.high_watermark
        is_held = lso is not None and high_watermark is not None and lso < high_watermark
        if each.tp is not None and not each.verdict.is_brief and is_held:
            held[each.tp] = each
    if not held:
        return []
    groups = offsets_of_groups(client, sorted(held))
    if groups is None:
        return None
    return [
        _lag(group, held[tp], committed)
        for group, offsets in groups
        for tp, committed in offsets.items()
        if 0 <= committed < (held[tp].high_watermark or 0)
    ]


def _lag(group: str, finding: Finding, committed: int) -> GroupLag:
    lso, high_watermark = finding.last_stable_offset or 0, finding.high_watermark or 0
    parts = group_lag(committed, last_stable_offset=lso, high_watermark=high_watermark)
    return GroupLag(
        group_id=group,
        topic=finding.topic,
        partition=finding.partition,
        committed_offset=committed,
        last_stable_offset=lso,
        high_watermark=high_watermark,
        **parts._asdict(),
        broker_id=finding.broker_id,
        observed_at=finding.observed_at,
    )
