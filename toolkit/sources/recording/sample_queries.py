"""Queries on a recorded observation: selected partitions, named ids, coordinators, visibility of an offset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.log.offset_status import visibility_reason
from toolkit.errors import NotFound
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.schema import OFFSET_VISIBILITY, Row
from toolkit.schema.offsets import OffsetVisibility
from toolkit.schema.table import TopicPartition
from toolkit.sources.offset_queries.offset_reader import PARTITION_COLUMNS
from toolkit.sources.partition_selection import requested_partitions

NOT_RECORDED = "NOT_RECORDED: a recording has no records; only the cluster or its files show the content of an offset"


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
    replicas = {TopicPartition(each.topic, each.partition): each.replicas or () for each in observation.partitions}
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


def named_rows(observation: Observation, transactional_ids: Sequence[str]) -> Iterator[Row]:
    """Rows of ``schema.TRANSACTIONS`` of exactly these ids; one that was not recorded has `error`."""
    found = {each.transactional_id: each.row() for each in observation.transactions}
    for name in dict.fromkeys(transactional_ids):
        yield found.get(name) or {
            "transactional_id": name,
            "source": "ListTransactions",
            "observed_at": observation.observed_at,
            "error": "TRANSACTIONAL_ID_NOT_FOUND: this id had no open transaction, so its state was not recorded",
        }


def coordinator_rows(
    observation: Observation, transactional_ids: Iterable[str], groups: Iterable[str]
) -> Iterator[Row]:
    """Rows of ``schema.COORDINATORS``: partition by hash, its leader, and the broker that returned an id."""
    coordinators = {each.transactional_id: each.coordinator_id for each in observation.transactions}
    for name in dict.fromkeys(transactional_ids):
        yield _row(observation, "transaction", name, STATE_TOPIC, coordinators.get(name))
    for name in dict.fromkeys(groups):
        yield _row(observation, "group", name, OFFSETS_TOPIC, None)


def _row(observation: Observation, key_type: str, key: str, topic: str, coordinator_id: int | None) -> Row:
    leaders = {each.partition: each.leader for each in observation.partitions if each.topic == topic}
    partition = coordinator_partition(key, len(leaders)) if leaders else None
    leader = None if partition is None else leaders[partition]
    return {
        "key_type": key_type,
        "key": key,
        "topic": topic,
        "partition": partition,
        "leader": leader,
        "coordinator_id": coordinator_id,
        "agrees": None if leader is None or coordinator_id is None else leader == coordinator_id,
        "broker_id": coordinator_id,
        "observed_at": observation.observed_at,
        "error": None if leaders else f"UNKNOWN_TOPIC_OR_PARTITION: {topic} is not in the recording",
    }


def recorded_visibility(observation: Observation, offset: int) -> Row:
    """Row of ``schema.OFFSET_VISIBILITY``.

    Parameters
    ----------
    observation
        A sample's observation of one partition.
    offset
        The offset.
    """
    partition = (*observation.partitions, *observation.partitions_after)[-1]
    row: dict[str, Any] = dict.fromkeys(OFFSET_VISIBILITY.names)
    row |= {name: getattr(partition, name) for name in PARTITION_COLUMNS}
    row["offset"] = offset
    lso, high_watermark = partition.last_stable_offset, partition.high_watermark
    log_start, log_end = partition.log_start_offset, partition.log_end_offset
    if log_start is not None and offset < log_start:
        row["status"] = "deleted"
    elif log_end is not None and offset >= log_end:
        row["status"] = "beyond_log_end"
    elif high_watermark is not None and offset >= high_watermark:
        row["status"] = "beyond_high_watermark"
    if row["status"] is not None:
        return row | {
            "read_committed": False,
            "read_uncommitted": False,
            "reason": visibility_reason(OffsetVisibility.of({**row, "reason": ""})),
        }
    row["error"] = row["error"] or NOT_RECORDED
    if lso is None:
        return row | {"reason": "The LSO at that time is unknown."}
    if offset < lso:
        received = "read_committed consumers received it unless it is a marker or was aborted"
        return row | {"reason": f"It was below the LSO {lso}: {received}."}
    opened = {
        each.producer_id: each.current_txn_start_offset
        for each in (*observation.producers, *observation.producers_after)
        if each.current_txn_start_offset is not None
    }
    held = "and no transaction was open, so the LSO waited for replication"
    if opened:
        holder = min(opened, key=lambda each: opened[each])
        row |= {"holder_producer_id": holder, "holder_first_offset": opened[holder]}
        held = f"held by the transaction of producer {holder} that began at offset {opened[holder]}"
    return row | {"read_committed": False, "reason": f"It was beyond the LSO {lso}, {held}."}
