"""Queries on a recorded observation: selected partitions, named ids, coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.errors import NotFound
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.schema.live import Coordinator, Transaction
from toolkit.schema.table import TopicPartition
from toolkit.sources.partition_selection import requested_partitions


def select_partitions(
    observation: Observation,
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[tuple[str, int]] | None,
    *,
    broker_id: int | None = None,
) -> Observation:
    """An observation of the selected partitions; with `broker_id`, of those with a replica on it.

    Raises
    ------
    NotFound
        If the observation does not have one of them.
    UsageError
        If `partitions` are numbers without topics, or pairs with topics.
    """
    topics = [topics] if isinstance(topics, str) else topics
    if topics is None and partitions is None and broker_id is None:
        return observation
    replicas = {each.tp: each.replicas or () for each in observation.partitions}
    selected = _selected(observation, set(replicas), topics, partitions)
    if broker_id is not None:
        selected = {tp for tp in selected if broker_id in replicas[tp]}

    hidden_topics = replace(observation.coverage, topic_gaps=())  # a gap of the whole cluster only
    return replace(observation.on(selected), coverage=hidden_topics)


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
