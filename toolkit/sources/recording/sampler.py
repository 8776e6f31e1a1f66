"""Samples of a cluster: each an observation that is diagnosed with the previous one; `Sampler` reconnects."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.case import DEFAULTS, DiagnoseOptions
from toolkit.analysis.diagnosis.consumer_lag import group_lag
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, Observation
from toolkit.analysis.history.findings_over_time import LATE_PADDING_MS, first_seen, late_transactions, with_earlier
from toolkit.errors import ToolkitError
from toolkit.schema import RECORDED, Row
from toolkit.schema.live import Finding, GroupLag
from toolkit.schema.recorded import LateTransaction, RecordedSample
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.sources.diagnose import LogReading, diagnose
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import row_text
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.live_evidence import LiveEvidence
from toolkit.sources.live.state.broker_configs import longest_timeout_ms
from toolkit.sources.live.state.group_offsets import offsets_of_groups
from toolkit.sources.recording.recorded_samples import AFTER, BEFORE, recorded_sample

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ExcerptStart


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOptions:
    """How samples are taken."""

    interval_ms: int  # time between samples; only recorded
    # older live transactions are ``long``, and whether the log around held LSOs is read: at most once a minute for the
    # same transaction and verdict
    diagnosis: DiagnoseOptions = DEFAULTS
    late_padding_ms: int = LATE_PADDING_MS  # as for `analysis.history.findings_over_time.late_transactions`
    with_held_groups: bool = False  # read the committed offsets of the groups while an LSO is held


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
    options: SampleOptions
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
            return failed_sample(error, self.options, due=due, before=before, seconds=seconds)
        sample = take_sample(cluster, self.options, due=due, before=before, longest_timeout_ms=self._longest_timeout_ms)
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
    options: SampleOptions,
    *,
    due: dt.datetime,
    before: Sample | None = None,
    longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> Sample:
    """Observe a cluster once and diagnose the observation with the previous one, without waiting for a recheck.

    Returns: with an error instead of rows if the cluster cannot be reached.
    `cluster`: its timeout bounds each round of requests; a sample takes several rounds.
    `due`: when the sample is due, with time zone.
    `before`: the previous sample, successful or failed. Without one no verdict is `hanging`.
    `longest_timeout_ms`: as for `analysis.history.findings_over_time.late_transactions`.
    """
    started = time.monotonic()
    due = due.astimezone(dt.UTC)
    evidence = SampleEvidence(cluster, before.observation if before else None)
    diagnosis = replace(options.diagnosis, recheck_after=0, is_sample=True)
    try:
        diagnosed = diagnose(evidence, diagnosis, before=before.log_readings if before else {})
    except ToolkitError as error:
        return failed_sample(error, options, due=due, before=before, seconds=time.monotonic() - started)
    findings, observation = diagnosed.findings, diagnosed.observations[-1]
    groups = held_groups(cluster.client, findings) if options.with_held_groups else None
    times = first_seen(observation, before.first_seen if before else {})
    late = late_transactions(
        findings,
        observation,
        sampled_at=due,
        first_seen=times,
        padding_ms=options.late_padding_ms,
        longest_timeout_ms=longest_timeout_ms,
    )
    return Sample(
        due=due,
        row=recorded_sample(
            observation,
            due=due,
            interval_ms=options.interval_ms,
            seconds=time.monotonic() - started,
            cluster_id=cluster.cluster_id,
        ),
        findings=findings,
        late_transactions=list(late),
        observation=observation,
        first_seen=times,
        log_readings=diagnosed.log_readings,
        held_groups=groups,
    )


class SampleEvidence(LiveEvidence):
    """What a cluster gives to a sample: all of it is observed, and what fails after that does not fail the sample."""

    def __init__(self, cluster: Cluster, before: Observation | None) -> None:
        super().__init__(cluster.client)
        self._cluster = cluster
        self._before = before
        self._read: Container[TopicPartition] = ()

    def observations(self) -> Sequence[Observation]:
        return with_earlier(self._cluster.observe(), self._before)

    def excerpts(self, starts: Sequence[ExcerptStart]) -> Mapping[TopicPartition, Excerpt]:
        self._read = {each.tp for each in starts}
        return super().excerpts(starts)

    def with_groups(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Of partitions whose logs were read now: those of others are known."""
        with suppress(ToolkitError):
            of_read = iter(super().with_groups([each for each in findings if each.tp in self._read]))
            return [next(of_read) if each.tp in self._read else each for each in findings]
        return findings


def failed_sample(
    error: ToolkitError, options: SampleOptions, *, due: dt.datetime, before: Sample | None = None, seconds: float = 0.0
) -> Sample:
    """A sample with an error instead of rows; it keeps what the previous sample knows for the next one.

    `error`: why the cluster cannot be reached.
    `options`, `due`, `before`: as for `take_sample`.
    `seconds`: duration until the error.
    """
    row = RecordedSample(
        sampled_at=due.astimezone(dt.UTC),
        observed_at=dt.datetime.now(dt.UTC),
        interval_ms=options.interval_ms,
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
