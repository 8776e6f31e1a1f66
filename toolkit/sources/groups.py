"""Consumer groups that stand at a held LSO (ListGroups, OffsetFetch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolkit.sources import wire as kafka
from toolkit.sources.topology import Place
from toolkit.sources.wire import Answer, Wire

__all__ = ["group_ids", "groups_at"]

GROUPS_PER_REQUEST = 200
WITH_OFFSETS = {"consumer", ""}  # protocol types whose groups commit offsets; others are Connect, share groups ...


def group_ids(wire: Wire, brokers: Iterable[int]) -> dict[str, int] | None:
    """Group id to its coordinator's broker id, of groups that commit offsets; null if a broker did not answer."""
    groups: dict[str, int] = {}
    for answer in wire.send([(broker_id, kafka.ListGroups()) for broker_id in brokers]):
        if answer.error or answer.message.error_code or answer.broker_id is None:
            return None
        for group in answer.message.groups:
            if group.protocol_type in WITH_OFFSETS:
                groups[group.group_id] = answer.broker_id
    return groups


def groups_at(wire: Wire, brokers: Iterable[int], held: Mapping[Place, int]) -> dict[Place, list[str]] | None:
    """Groups whose committed offset is exactly the LSO of a partition.

    Parameters
    ----------
    held
        LSO by partition.

    Returns
    -------
    dict or None
        Group ids by partition, sorted; null if a group could not be asked. Groups that this principal may not
        describe are not shown by brokers at all.
    """
    coordinators = group_ids(wire, brokers)
    if coordinators is None:
        return None
    offsets = _committed(wire, coordinators, list(held))
    if offsets is None:
        return None
    return {place: sorted(group for group, at in offsets if at.get(place) == lso) for place, lso in held.items()}


def _committed(
    wire: Wire, coordinators: Mapping[str, int], places: Sequence[Place]
) -> list[tuple[str, dict[Place, int]]] | None:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    by_broker: dict[int, list[str]] = {}
    for group, broker_id in coordinators.items():
        by_broker.setdefault(broker_id, []).append(group)
    batches = [
        (broker_id, groups[start : start + GROUPS_PER_REQUEST])
        for broker_id, groups in by_broker.items()
        for start in range(0, len(groups), GROUPS_PER_REQUEST)
    ]
    answers = wire.send([(broker_id, _many(groups, topics)) for broker_id, groups in batches])
    committed: list[tuple[str, dict[Place, int]]] = []
    for (broker_id, groups), answer in zip(batches, answers, strict=True):
        if answer.error_text and answer.error_text.startswith("UNSUPPORTED_VERSION"):
            single = wire.send([(broker_id, _one(group, topics)) for group in groups])
            found = [_read(one, one.message) for one in single]
        else:
            messages = {one.group_id: one for one in answer.message.groups} if answer.message else {}
            found = [_read(answer, messages.get(group)) for group in groups]
        for group, offsets in zip(groups, found, strict=True):
            if offsets is None:
                return None
            committed.append((group, offsets))
    return committed


def _many(groups: Sequence[str], topics: Mapping[str, list[int]]) -> Any:
    group = kafka.OffsetFetch.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics
    asked = [topic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    return kafka.OffsetFetch(
        groups=[group(group_id=group_id, topics=asked) for group_id in groups], min_version=8, max_version=9
    )


def _one(group: str, topics: Mapping[str, list[int]]) -> Any:
    topic = kafka.OffsetFetch.OffsetFetchRequestTopic
    asked = [topic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    return kafka.OffsetFetch(group_id=group, topics=asked, max_version=7)


def _read(answer: Answer, message: Any) -> dict[Place, int] | None:
    if answer.error or message is None or message.error_code:
        return None
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in message.topics
        for part in topic.partitions
        if part.error_code == 0
    }
