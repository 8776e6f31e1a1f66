"""The rows of a sample in a recording: from an observation, and back; the samples of a time; queries on them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from toolkit.analysis.diagnosis.observation import BrokersTime, Coverage, Observation
from toolkit.analysis.log.offset_status import visibility_reason
from toolkit.errors import NotFound
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.schema.live import Coordinator, Finding, OffsetVisibility, Partition, Producer, Transaction, open_starts
from toolkit.schema.recorded import LateTransaction, RecordedSample
from toolkit.schema.table import TopicPartition
from toolkit.sources.offset_queries.offset_reader import of_partition
from toolkit.sources.recording.recording_folder import AN_INSTANT, files_of, read, sample_times
from toolkit.sources.source_table import TableArguments, requested_partitions

BEFORE, AFTER = "before", "after"  # the coordinators' responses


def recorded_sample(
    observation: Observation, *, due: dt.datetime, interval_ms: int, seconds: float, cluster_id: str | None
) -> RecordedSample:
    """The row of ``samples`` of an observation that was `due` at a time and took some `seconds`."""
    coverage = observation.coverage
    return RecordedSample(
        sampled_at=due,
        observed_at=observation.observed_at,
        brokers_time=observation.brokers_time.time,
        brokers_clock=observation.brokers_time.clock,
        cluster_id=cluster_id,
        interval_ms=interval_ms,
        seconds=seconds,
        brokers=tuple(coverage.brokers),
        proofs=tuple(coverage.proofs),
        gaps=tuple(coverage.gaps),
        topic_gaps=tuple(coverage.topic_gaps),
        absent_partitions=tuple(tp for tp, error in observation.absent.items() if error is None),
        first_batches=tuple(observation.first_batches),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSamples:
    """The newest samples up to a time."""

    sample: RecordedSample  # the newest successful one
    before: RecordedSample | None  # the successful one before it; null if there is none
    failed: Sequence[RecordedSample]  # failed ones after `sample`, in order


def find_samples(directory: Path, *, at: dt.datetime | None = None) -> FoundSamples:
    """Find the samples of a time; null for the newest. Raises NotFound if there is no successful sample by then."""
    failed: list[RecordedSample] = []
    successful: list[RecordedSample] = []
    for sample in _backwards(directory, at):
        if sample.error is None:
            successful.append(sample)
        elif not successful:
            failed.insert(0, sample)
        if len(successful) == 2:
            break
    if not successful:
        when = "" if at is None else f" by {at.isoformat()}"
        raise NotFound(f"No successful sample in {directory}{when}.")
    return FoundSamples(sample=successful[0], before=successful[1] if len(successful) > 1 else None, failed=failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleContent:
    """What a successful sample recorded."""

    observation: Observation
    findings: Sequence[Finding]
    late_transactions: Sequence[LateTransaction]


def read_sample(directory: Path, sample: RecordedSample, *, idle_producers: bool = True) -> SampleContent:
    """What a successful sample recorded.

    `idle_producers`: include producers without an open transaction: most of the rows, and no verdict needs them.
    Raises NotFound if it expires meanwhile.
    """
    import pyarrow.compute as pc

    due = sample.sampled_at
    partitions, producers, transactions, findings, late = (
        read(directory, name, start=due, stop=due + AN_INSTANT)
        for name in ("partitions", "producers", "transactions", "findings", "late_transactions")
    )
    if not idle_producers:
        selected = pc.or_(pc.is_valid(producers["current_txn_start_offset"]), pc.is_valid(producers["error"]))
        producers = producers.filter(selected)
    if not sample_times(directory, due, due + AN_INSTANT):
        raise NotFound(f"The sample of {due.isoformat()} expired while it was read.", do="Try again.")
    before, after = pc.field("phase") == BEFORE, pc.field("phase") == AFTER
    observation = Observation(
        partitions=Partition.of_table(partitions.filter(before)),
        producers=Producer.of_table(producers.filter(before)),
        transactions=Transaction.of_table(transactions),
        partitions_after=Partition.of_table(partitions.filter(after)),
        producers_after=Producer.of_table(producers.filter(after)),
        coverage=Coverage(
            brokers=sample.brokers or (),
            proofs=sample.proofs or (),
            gaps=sample.gaps or (),
            topic_gaps=sample.topic_gaps or (),
        ),
        observed_at=sample.observed_at,
        brokers_time=BrokersTime.recorded(sample.brokers_time, sample.brokers_clock),
        absent=dict.fromkeys(sample.absent_partitions or ()),
        first_batches=sample.first_batches or (),
    )
    return SampleContent(
        observation=observation, findings=Finding.of_table(findings), late_transactions=LateTransaction.of_table(late)
    )


def _backwards(directory: Path, at: dt.datetime | None) -> Iterator[RecordedSample]:
    """The samples, newest first, one file at a time, since one or two rows suffice."""
    stop = None if at is None else at + AN_INSTANT
    while files := [file for file in files_of(directory, "samples") if stop is None or file.start < stop]:
        start = files[-1].start
        yield from reversed(RecordedSample.of_table(read(directory, "samples", start=start, stop=stop)))
        stop = start


NOT_RECORDED = "NOT_RECORDED: a recording has no records; only the cluster or its files show the content of an offset"


def select_partitions(
    observation: Observation,
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[tuple[str, int]] | None,
    *,
    broker_id: int | None = None,
) -> Observation:
    """An observation of the selected partitions; with `broker_id`, of those with a replica on it.

    Raises NotFound if the observation does not have one of them. Raises UsageError if `partitions` are numbers without
    topics, or pairs with topics.
    """
    topics = [topics] if isinstance(topics, str) else topics
    if topics is None and partitions is None and broker_id is None:
        return observation
    replicas = {each.tp: each.replicas or () for each in observation.partitions}
    selected = _selected(observation, set(replicas), topics, partitions)
    if broker_id is not None:
        selected = {tp for tp in selected if broker_id in replicas[tp]}

    hidden_topics = replace(observation.coverage, topic_gaps=())  # a gap of the whole cluster only
    arguments = TableArguments(topics=topics, partitions=partitions, broker_id=broker_id)
    return replace(observation.on(selected), coverage=hidden_topics, selection=arguments.selection(selected))


def _selected(
    observation: Observation,
    recorded: set[TopicPartition],
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[tuple[str, int]] | None,
) -> set[TopicPartition]:
    name = f"The sample of {observation.observed_at.isoformat(timespec='seconds')}"
    for topic in topics or ():
        if all(tp[0] != topic for tp in recorded):
            raise NotFound(f"{name} has no topic {topic!r}.")
    if partitions is None:
        return {tp for tp in recorded if topics is None or tp[0] in topics}
    requested = set(requested_partitions(topics, partitions))
    for topic, number in sorted(requested - recorded):
        raise NotFound(f"{name} has no partition {topic}-{number}.")
    return requested


def named_transactions(observation: Observation, transactional_ids: Sequence[str]) -> Iterator[Transaction]:
    """The transactions of exactly these ids; one that was not recorded has `error`."""
    found = {each.transactional_id: each for each in observation.transactions}
    for name in dict.fromkeys(transactional_ids):
        yield found.get(name) or Transaction(
            transactional_id=name,
            source="ListTransactions",
            observed_at=observation.observed_at,
            error="TRANSACTIONAL_ID_NOT_FOUND: this id had no open transaction, so its state was not recorded",
        )


def coordinators(
    observation: Observation, transactional_ids: Iterable[str], groups: Iterable[str]
) -> Iterator[Coordinator]:
    """Coordinators of ids and groups: partition by hash, its leader, and the broker that returned an id."""
    returned_by = {each.transactional_id: each.coordinator_id for each in observation.transactions}
    for name in dict.fromkeys(transactional_ids):
        yield _coordinator(observation, "transaction", name, STATE_TOPIC, returned_by.get(name))
    for name in dict.fromkeys(groups):
        yield _coordinator(observation, "group", name, OFFSETS_TOPIC, None)


def _coordinator(
    observation: Observation, key_type: str, key: str, topic: str, coordinator_id: int | None
) -> Coordinator:
    leaders = {each.partition: each.leader for each in observation.partitions if each.topic == topic}
    partition = coordinator_partition(key, len(leaders)) if leaders else None
    leader = None if partition is None else leaders[partition]
    return Coordinator(
        key_type=key_type,
        key=key,
        topic=topic,
        partition=partition,
        leader=leader,
        coordinator_id=coordinator_id,
        agrees=None if leader is None or coordinator_id is None else leader == coordinator_id,
        broker_id=coordinator_id,
        observed_at=observation.observed_at,
        error=None if leaders else f"UNKNOWN_TOPIC_OR_PARTITION: {topic} is not in the recording",
    )


def recorded_visibility(observation: Observation, offset: int) -> OffsetVisibility:
    """Where an offset was. `observation`: a sample's observation of one partition."""
    partition = (*observation.partitions, *observation.partitions_after)[-1]
    found = of_partition(partition, offset)
    if (status := _outside_log(partition, offset)) is not None:
        outside = replace(found, status=status, read_committed=False, read_uncommitted=False)
        return replace(outside, reason=visibility_reason(outside))
    found = replace(found, error=partition.error or NOT_RECORDED)
    lso = partition.last_stable_offset
    if lso is None:
        return replace(found, reason="The LSO at that time is unknown.")
    if offset < lso:
        received = "read_committed consumers received it unless it is a marker or was aborted."
        return replace(found, reason=f"It was below the LSO {lso}: {received}")
    opened = open_starts((*observation.producers, *observation.producers_after))
    why = "and no transaction was open, so the LSO waited for replication"
    if opened:
        holder, first = min(opened.items(), key=itemgetter(1))
        found = replace(found, holder_producer_id=holder, holder_first_offset=first)
        why = f"held by the transaction of producer {holder} that began at offset {first}"
    return replace(found, read_committed=False, reason=f"It was beyond the LSO {lso}, {why}.")


def _outside_log(partition: Partition, offset: int) -> str | None:
    if partition.log_start_offset is not None and offset < partition.log_start_offset:
        return "deleted"
    if partition.log_end_offset is not None and offset >= partition.log_end_offset:
        return "beyond_log_end"
    if partition.high_watermark is not None and offset >= partition.high_watermark:
        return "beyond_high_watermark"
    return None
