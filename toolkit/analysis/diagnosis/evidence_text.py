"""Facts of a finding as short texts and as rows of the evidence column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from toolkit.analysis.diagnosis.observation import BrokersTime, Observation, between
from toolkit.analysis.transaction_owners import OPEN_STATES
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema.coerce import Scope, Seen, SeenBrokers
from toolkit.schema.durations import duration
from toolkit.schema.live import EvidenceEntry, Partition, Producer, Transaction
from toolkit.schema.log import ClusterEvent, TransactionLogRecord
from toolkit.schema.table import Error, TopicPartition

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case

NO_ANSWER = {"BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"}  # errors of a broker that is silent
_TIMES = {1: "seen once", 2: "seen twice"}


class _Sources(NamedTuple):
    """Names of the sources of values in the evidence."""

    offsets: str
    producers: str
    log: str


REQUESTS = _Sources("ListOffsets", "DescribeProducers", "Fetch")
FILES = _Sources("log and checkpoints", "log and .snapshot", "log")


@lru_cache(maxsize=1024)  # the findings of a sample share their times
def at(time: dt.datetime | None) -> str:
    """A time to the second: ``2026-11-21 09:58:11 UTC``; null is ``an unknown time``."""
    return "an unknown time" if time is None else f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def number(value: object) -> str:
    """A value, the length of a list, or ``unknown`` for null."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return str(len(value))
    return "unknown" if value is None else str(value)


def coordinator_says(owner: Transaction) -> str:
    """``coordinator 3: id "payments-7" is CompleteAbort``; names the log's partition if the log was read instead."""
    who = f"coordinator {number(owner.coordinator_id)}"
    if owner.source == STATE_TOPIC:
        who = f"__transaction_state-{number(owner.txn_state_partition)}"
    return f'{who}: id "{owner.transactional_id}" is {owner.state or "in no known state"}'


def by_observations(observations: Sequence[Observation]) -> str:
    """``seen twice, 5 s apart; all 3 brokers answered``; for files, whose they are and their age."""
    if observations[-1].from_files:
        return f"read from the files of {_brokers(observations[-1])} as of {at(observations[-1].observed_at)}"
    times_text = _TIMES.get(len(observations), f"seen {len(observations)} times")
    if len(observations) > 1:
        times_text += f", {duration(between(observations[0], observations[-1]))} apart"
    brokers = len(observations[-1].coverage.brokers)
    return f"{times_text}; {'the only broker' if brokers == 1 else f'all {brokers} brokers'} answered"


def scope(observation: Observation, partitions: int, *, brokers: Collection[int] = ()) -> Scope:
    """What was seen of so many partitions, and what was not.

    `brokers`: those with replicas of the partitions; one that is down is not in the metadata's list.
    """
    ids = [each for each in observation.transactions if each.transactional_id is not None]
    opened = [each for each in ids if each.state in OPEN_STATES]
    seen = {each.tp for each in observation.partitions} if opened else set()
    # Files have all ids; coordinators were asked for open ones only.
    read = [each for each in (ids if observation.from_files else opened) if not each.error]
    coverage = observation.coverage
    unread = {each.tp for each in observation.partitions if each.error}
    unread |= {each.tp for each in observation.producers if each.error}
    answers: list[Partition | Transaction] = [*observation.partitions, *observation.transactions]
    silent = {*brokers} - {*coverage.brokers}
    for each in answers:
        if each.broker_id is not None and Error.of(each.error).code in NO_ANSWER:
            silent.add(each.broker_id)
    return Scope(
        partitions=Seen(seen=partitions - len(unread), not_seen=len({*unread, *observation.unseen})),
        brokers=SeenBrokers(seen=[each for each in coverage.brokers if each not in silent], not_seen=sorted(silent)),
        transactional_ids=Seen(seen=len(read), not_seen=len({each.transactional_id for each in ids if each.error})),
        open_elsewhere=sum(seen.isdisjoint(each.topic_partitions or ()) for each in opened),
        open_only=not observation.from_files,
        missing=[*coverage.gaps, *coverage.topic_gaps],
    )


def _brokers(observation: Observation) -> str:
    ids = [str(broker_id) for broker_id in observation.coverage.brokers]
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(ids)}" if ids else "an unknown broker"


def case_evidence(case: Case) -> tuple[EvidenceEntry, ...]:
    """Observed values of an open transaction, of its partition and of its coordinator."""
    sources = FILES if case.observation.from_files else REQUESTS
    of_partition = _partition_entries(case.leader, sources)
    return (
        *of_partition,
        *_of_case(case, sources),
        *_of_observations(case.tp, case.observations, sources, now=case.brokers_time),
    )


def partition_evidence(partition: Partition, observations: Sequence[Observation]) -> tuple[EvidenceEntry, ...]:
    """Observed values of a partition."""
    sources = FILES if observations[-1].from_files else REQUESTS
    tp = partition.tp
    return (*_partition_entries(partition, sources), *_of_observations(tp, observations, sources))


def coverage_evidence(observation: Observation) -> tuple[EvidenceEntry, ...]:
    """Whether the responses are complete, for a finding about the cluster."""
    return tuple(_of_observations(None, [observation], FILES if observation.from_files else REQUESTS))


def record_entry(record: TransactionLogRecord, *, name: str = "record") -> EvidenceEntry:
    """A coordinator's record as evidence."""
    partitions = ", ".join(f"{topic}-{partition}" for topic, partition in record.topic_partitions or ())
    what = f"{record.state}, producer {record.producer_id} epoch {record.producer_epoch}"
    text = f"{STATE_TOPIC}-{record.txn_state_partition} offset {record.offset}: "
    text += "tombstone" if record.tombstone else what + (f", partitions {partitions}" if partitions else "")
    return EvidenceEntry(
        source=STATE_TOPIC,
        broker_id=record.broker_id,
        observed_at=record.last_update_time or record.timestamp,
        name=name,
        value=text,
    )


def elsewhere_entry(producer: Producer, *, source: str) -> EvidenceEntry:
    """A producer's epoch on another partition as evidence."""
    epoch = f"epoch {producer.producer_epoch} on {producer.tp}"
    return EvidenceEntry.of_record(producer, source=source, name="producer_elsewhere", value=epoch)


def event_entry(event: ClusterEvent) -> EvidenceEntry:
    """An event of the cluster as evidence."""
    name = "" if event.tp is None else f"{event.topic}-{event.partition}: "
    more = f" ({event.line_count} lines, until {at(event.last_timestamp)})" if event.last_timestamp else ""
    return EvidenceEntry(
        source=event.source,
        broker_id=event.broker_id,
        observed_at=event.timestamp,
        name=event.event or "unread",
        value=name + (event.error or event.text or "") + more,
    )


def _partition_entries(partition: Partition, sources: _Sources) -> Iterator[EvidenceEntry]:
    names = ("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset")
    yield from _entries(partition, sources.offsets, *names)
    if partition.isr is not None:
        yield _entry(partition, sources.offsets, "isr", list(partition.isr))
    yield from _entries(partition, sources.offsets, "leader_epoch")


def _of_observations(
    tp: TopicPartition | None, observations: Sequence[Observation], sources: _Sources, *, now: BrokersTime | None = None
) -> Iterator[EvidenceEntry]:
    last = observations[-1]
    apart = between(observations[0], last).total_seconds()
    texts: dict[str, object] = {"observations": len(observations), "seconds_apart": f"{apart:.1f}"}
    if last.from_files:
        texts = {"as_of": last.observed_at}
    else:
        texts["brokers_time"] = (now or last.brokers_time).text
        if last.brokers_time.warning is not None:
            texts["clock"] = last.brokers_time.warning
    found = [("observations", name, value) for name, value in texts.items()]
    found += [(sources.log, "note", note) for note in (() if tp is None else last.notes.get(tp, ()))]
    found += [("coverage", "proof", proof) for proof in last.coverage.proofs]
    found += [("coverage", "gap", gap) for gap in last.coverage.gaps]
    for source, name, value in found:
        yield EvidenceEntry(source=source, observed_at=last.observed_at, name=name, value=_text(value))


def _of_case(case: Case, sources: _Sources) -> Iterator[EvidenceEntry]:
    of_producer = ("producer_epoch", "current_txn_start_offset", "coordinator_epoch", "last_sequence", "last_timestamp")
    yield from _entries(case.producer, sources.producers, *of_producer)
    for owner in case.owners:
        of_owner = ("transactional_id", "producer_epoch", "state", "timeout_ms", "start_time")
        yield from _entries(owner, owner.source, *of_owner)
        yield from _entries(owner, STATE_TOPIC, "last_update_time")
        yield _entry(owner, owner.source, "expects_marker_here", str(case.listed).lower())
    if case.as_of is not None:
        until = f"{at(case.as_of.time)}, by {case.as_of.proof}"
        yield EvidenceEntry(source=STATE_TOPIC, observed_at=case.as_of.time, name="proven_until", value=until)
    if (first := case.first_batch) is not None:
        clock = "broker" if first.log_append_time else "producer"
        texts: dict[str, object] = {
            "first_batch_producer": f"{first.producer_id} epoch {first.producer_epoch}",
            "first_batch_offsets": f"{first.base_offset}..{first.last_offset}",
            f"first_batch_time_by_{clock}": first.base_timestamp,
        }
        for name, value in texts.items():
            found = _entry(case.producer, sources.log, name, value)
            yield replace(found, observed_at=case.observation.observed_at)


def _entries(answer: Partition | Producer | Transaction, source: str, *names: str) -> Iterator[EvidenceEntry]:
    """Its columns as evidence, without those that are null."""
    for name in names:
        if (value := getattr(answer, name)) is not None:
            yield _entry(answer, source, name, value)


def _entry(answer: Partition | Producer | Transaction, source: str, name: str, value: object) -> EvidenceEntry:
    return EvidenceEntry.of_record(answer, source=source, name=name, value=_text(value))


def _text(value: object) -> str:
    return value.isoformat(timespec="milliseconds") if isinstance(value, dt.datetime) else str(value)
