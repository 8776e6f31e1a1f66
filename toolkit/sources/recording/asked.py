"""What is asked of a recorded look: some of its partitions, ids by name, and who coordinates what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from toolkit.analysis.evidence import Look
from toolkit.errors import NotFound
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.records import STATE_TOPIC, coordinator_partition
from toolkit.schema import Row
from toolkit.sources.asked import Place, asked_places

__all__ = ["coordinator_rows", "named_rows", "part_of"]


def part_of(
    look: Look,
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[Place] | None,
    *,
    broker_id: int | None = None,
) -> Look:
    """The part of a look that is of some partitions, and of those that a broker has a replica of if one is given.

    Raises
    ------
    NotFound
        If the look does not have one of them.
    UsageError
        If `partitions` are numbers without topics, or pairs with topics.
    """
    topics = [topics] if isinstance(topics, str) else topics
    if topics is None and partitions is None and broker_id is None:
        return look
    replicas = {(row["topic"], row["partition"]): row["replicas"] or () for row in look.partitions}
    wanted = _wanted(look, set(replicas), topics, partitions)
    if broker_id is not None:
        wanted = {place for place in wanted if broker_id in replicas[place]}

    def those(rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if (row["topic"], row["partition"]) in wanted]

    return replace(
        look,
        partitions=those(look.partitions),
        producers=those(look.producers),
        partitions_after=those(look.partitions_after),
        producers_after=those(look.producers_after),
        coverage=replace(look.coverage, topic_gaps=()),  # hidden topics are a gap in what is said of all
    )


def _wanted(
    look: Look, there: set[Place], topics: Sequence[str] | None, partitions: Sequence[int] | Sequence[Place] | None
) -> set[Place]:
    when = f"The sample of {look.observed_at.isoformat(timespec='seconds')}"
    for topic in topics or ():
        if all(place[0] != topic for place in there):
            raise NotFound(f"{when} has no topic {topic!r}.")
    if partitions is None:
        return {place for place in there if topics is None or place[0] in topics}
    asked = set(asked_places(topics, partitions))
    for topic, number in sorted(asked - there):
        raise NotFound(f"{when} has no partition {topic}-{number}.")
    return asked


def named_rows(look: Look, transactional_ids: Sequence[str]) -> Iterator[Row]:
    """Rows of ``schema.TRANSACTIONS`` of exactly these ids; one that was not recorded has `error`."""
    found = {row["transactional_id"]: row for row in look.transactions}
    for name in dict.fromkeys(transactional_ids):
        yield found.get(name) or {
            "transactional_id": name,
            "source": "ListTransactions",
            "observed_at": look.observed_at,
            "error": "TRANSACTIONAL_ID_NOT_FOUND: this id had nothing open, so its state was not recorded",
        }


def coordinator_rows(look: Look, transactional_ids: Iterable[str], groups: Iterable[str]) -> Iterator[Row]:
    """Rows of ``schema.COORDINATORS``: the hash and the leader it leads to, and who answered for an id."""
    answered = {row["transactional_id"]: row["coordinator_id"] for row in look.transactions}
    for name in dict.fromkeys(transactional_ids):
        yield _row(look, "transaction", name, STATE_TOPIC, answered.get(name))
    for name in dict.fromkeys(groups):
        yield _row(look, "group", name, OFFSETS_TOPIC, None)


def _row(look: Look, key_type: str, key: str, topic: str, coordinator_id: int | None) -> Row:
    leaders = {row["partition"]: row["leader"] for row in look.partitions if row["topic"] == topic}
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
        "observed_at": look.observed_at,
        "error": None if leaders else f"UNKNOWN_TOPIC_OR_PARTITION: {topic} is not in the recording",
    }
