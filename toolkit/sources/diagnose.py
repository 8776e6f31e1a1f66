"""`diagnose`: the findings of any source: observe, observe again what is in doubt, read the logs, decide, explain.

`EvidenceSource` is what it needs of a cluster, a log directory, a recording or the next sample of one. `gather` reads
logs, each if those before it leave something open. The order matters: a partition's log is read after its last
observation, and whether a transaction is still open after the coordinators' log, so that a marker that came before a
decision is no missing one.
"""

from __future__ import annotations

import datetime as dt
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.case import DEFAULTS, Case, DiagnoseOptions
from toolkit.analysis.diagnosis.decision import UNKNOWN, Outcome
from toolkit.analysis.diagnosis.diagnose import Diagnosis, explained_by
from toolkit.analysis.diagnosis.observation import BEFORE_OPENING, Observation
from toolkit.errors import ToolkitError
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.log import ClusterEvent
from toolkit.schema.table import TopicPartition, TransactionKey

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ExcerptStart
    from toolkit.analysis.diagnosis.markers import MarkerSearch
    from toolkit.analysis.transaction_history import CoordinatorLog


class EvidenceSource(ABC):
    """What a source gives to a diagnosis."""

    requested: Collection[TopicPartition] = ()  # partitions that get a finding even if nothing is held
    recorded: Sequence[Finding] = ()  # of a recording, with the observation: its logs cannot be read again
    # whether markers are looked for even if a verdict does not need them: not where that reads a gigabyte
    searches_in_doubt: bool = True

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, once it was observed; null if it is not known."""
        return None

    @abstractmethod
    def observations(self) -> Sequence[Observation]:
        """The observations, in order of time; the last one is diagnosed."""

    def observe_again(self, partitions: Sequence[TopicPartition]) -> Observation:
        """A later observation of some partitions; for sources that change (`recheck_after`)."""
        raise NotImplementedError

    def excerpts(self, starts: Sequence[ExcerptStart]) -> Mapping[TopicPartition, Excerpt]:
        """The log around open transactions, by partition; for sources that have logs (`log_evidence`), as what follows.

        One that was not read is left out.
        """
        raise NotImplementedError

    def coordinator_logs(self, cases: Sequence[Case]) -> Iterator[CoordinatorLog]:
        """The coordinators' records of their owners, or of former ones, at least once; each time further back."""
        raise NotImplementedError

    def cluster_events(self, since: dt.datetime) -> Sequence[ClusterEvent]:
        """What happened to the cluster since then, in order; none if the source does not show it."""
        return ()

    def search_markers(self, cases: Sequence[Case]) -> MarkerSearch:
        """The markers of the transactions' producers on other partitions."""
        raise NotImplementedError

    def ended(self, cases: Sequence[Case]) -> Collection[TransactionKey]:
        """Those that are not open any more; none if nothing changes."""
        return ()

    def with_groups(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """The findings with the groups that wait, as far as the source shows them."""
        return findings

    def owners(self, ids: Collection[str], observations: Sequence[Observation]) -> Mapping[str, str | None]:
        """Whose some transactional ids are, as far as the source shows it."""
        return {}


def gather(source: EvidenceSource, to_read: Sequence[Case], *, search_all: bool = False) -> dict[TransactionKey, Case]:
    """Read the logs of open transactions.

    Returns: each with what its logs show.
    `to_read`: from `Diagnosis.to_read`.
    `search_all`: look for markers on other partitions for those that a coordinator owns, too.
    """
    from toolkit.analysis.diagnosis.log_excerpts import excerpt_starts  # imports numpy

    excerpts = source.excerpts(excerpt_starts(to_read))
    # In doubt, too, unlike `Case.needs_markers`: a recorder keeps the outcome for later samples, a fence needs no more.
    disowned = {each.key for each in to_read if each.is_disowned}
    cases = {each.key: replace(each, excerpt=excerpts.get(each.tp)) for each in to_read}
    for coordinators in source.coordinator_logs(list(cases.values())):
        cases = {key: replace(each, coordinators=coordinators) for key, each in cases.items()}
        if all(cases[key].outcome.name != UNKNOWN for key in disowned):
            break
    written = [time for each in cases.values() if (time := each.written_at) is not None]
    if written and (events := source.cluster_events(min(written) - BEFORE_OPENING)):
        cases = {key: replace(each, cluster_log=events) for key, each in cases.items()}
    sought = [
        each
        for key, each in cases.items()
        if search_all or (source.searches_in_doubt and key in disowned) or each.needs_markers
    ]
    if sought:
        search = source.search_markers(sought)
        cases |= {each.key: replace(each, marker_search=search) for each in sought}
    decided = [each for each in cases.values() if each.outcome.is_decided]
    ended = source.ended(decided) if decided else ()
    return {key: replace(each, has_ended=True) if key in ended else each for key, each in cases.items()}


MAX_LOG_AGE = dt.timedelta(seconds=60)  # after which the logs of a sample are read again


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """What the logs showed of an open transaction when they were read."""

    outcome: Outcome  # for the decision
    finding: Finding  # as it was explained
    explanation: Sequence[EvidenceEntry]  # the evidence that this added
    owner: tuple[object, ...]  # what was known of its owner and producer
    gaps: Sequence[str]  # what the coordinators did not answer then: their log may not have been read either
    read_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """The findings of a source, and what they were made from."""

    findings: Sequence[Finding]
    observations: Sequence[Observation]
    log_readings: Mapping[TransactionKey, LogReading] = field(default_factory=dict)  # for the next sample


def diagnose(
    source: EvidenceSource,
    options: DiagnoseOptions = DEFAULTS,
    *,
    before: Mapping[TransactionKey, LogReading] | None = None,
) -> Diagnosed:
    """Diagnose a source.

    Of a sample, logs are read of a partition with a transaction that is new or decided otherwise, whose owner has
    changed, that now holds the LSO, or whose logs were read a minute ago, or while other coordinators did not answer.

    `before`: for a sample, what the logs showed up to the previous one.
    """
    diagnosis = Diagnosis.of(source.observations(), options)
    if options.recheck_after and (to_recheck := diagnosis.to_recheck()):
        threading.Event().wait(options.recheck_after)
        diagnosis = Diagnosis.of([source.observe_again(to_recheck)], options, earlier=diagnosis.indexed)
    to_read = {each.key: each for each in diagnosis.to_read()} if options.log_evidence else {}
    known = _still_known(source, diagnosis, to_read, before or {})
    unread = [each for each in to_read.values() if each.key not in known]
    read: Mapping[TransactionKey, Case] = {}
    readings = {**known}
    if unread:
        from toolkit.analysis.diagnosis.causes import explain  # imports numpy and Arrow

        try:
            read = gather(source, unread)
        except ToolkitError:
            if before is None:
                raise  # the observation of a sample is valid without its logs
    cases = {**_as_known(to_read, known), **read}
    decided = diagnosis.findings(requested=source.requested, read=cases, recorded=source.recorded)
    explained = explain(decided, read) if read else decided
    owners = source.owners({each.transactional_id for each in decided if each.transactional_id}, diagnosis.observations)
    findings = [
        replace(each, owner=owners.get(each.transactional_id or ""), cluster_id=source.cluster_id)
        for each in source.with_groups(explained)
    ]
    if before is None:
        return Diagnosed(findings=findings, observations=diagnosis.observations)
    for number, (unexplained, finding) in enumerate(zip(decided, findings, strict=True)):
        key = finding.key
        if (reading := known.get(key)) is not None:
            evidence = (*unexplained.evidence, *reading.explanation)
            findings[number] = explained_by(unexplained, replace(reading.finding, evidence=evidence))
        elif (case := read.get(key)) is not None and case.excerpt is not None and not case.excerpt.error:
            readings[key] = LogReading(  # where the log around it could not be read, the next sample reads it
                outcome=case.outcome,
                finding=finding,
                explanation=finding.evidence[len(unexplained.evidence) :],
                owner=_owner(case),
                gaps=diagnosis.observations[-1].coverage.gaps,
                read_at=diagnosis.observations[-1].observed_at,
            )
    return Diagnosed(findings=findings, observations=diagnosis.observations, log_readings=readings)


def _still_known(
    source: EvidenceSource,
    diagnosis: Diagnosis,
    to_read: Mapping[TransactionKey, Case],
    before: Mapping[TransactionKey, LogReading],
) -> dict[TransactionKey, LogReading]:
    """What an earlier sample's logs still show, of partitions where they show it of every transaction."""
    observation = diagnosis.observations[-1]
    now, gaps = observation.observed_at, observation.coverage.gaps
    known = {
        key: each
        for key, each in before.items()
        if key in to_read
        and (each.owner, each.gaps) == (_owner(to_read[key]), gaps)
        and abs(now - each.read_at) < MAX_LOG_AGE  # a clock that was set back makes nothing younger
    }
    if not known:
        return known
    for finding in diagnosis.findings(read=_as_known(to_read, known), recorded=source.recorded):
        earlier = known.get(key := finding.key)
        if earlier and _decided(finding) != _decided(earlier.finding):
            del known[key]
    unread = {each.tp for key, each in to_read.items() if key not in known}
    return {key: each for key, each in known.items() if to_read[key].tp not in unread}


def _as_known(
    to_read: Mapping[TransactionKey, Case], known: Mapping[TransactionKey, LogReading]
) -> dict[TransactionKey, Case]:
    """The transactions whose logs were read for an earlier sample."""
    return {key: replace(to_read[key], known_outcome=each.outcome) for key, each in known.items()}


def _owner(case: Case) -> tuple[object, ...]:
    """What is known of the owner, the producer and the log of a transaction; if nobody will end it, also what it wrote.

    What joins it may be of a commit whose marker is missing.
    """
    producer = case.producer
    last = (producer.last_sequence, producer.last_timestamp) if case.is_disowned else None
    return producer.producer_epoch, last, case.transactional_id, case.owner_epoch, case.state, case.listed, *case.log


def _decided(finding: Finding) -> tuple[object, ...]:
    """What decides how much of the logs explains it: what holds the LSO is explained in more detail."""
    return finding.verdict, finding.queue_position == 1
