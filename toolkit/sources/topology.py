"""Which broker leads which partition, by the cluster's metadata."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.errors import BrokerError, NotFound
from toolkit.schema import Row
from toolkit.sources import wire as kafka
from toolkit.sources.asked import Place, asked_places
from toolkit.sources.wire import Wire, error_text

__all__ = ["Place", "Topology", "as_places", "batches", "by_leader", "read_topology", "with_fresh_leaders"]


PARTITIONS_PER_REQUEST = 2000
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"

# A leader that has moved answers with one of these; the metadata that we asked by was old.
MOVED = ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", UNKNOWN)


@dataclass(frozen=True, slots=True)
class Topology:
    """One Metadata answer.

    Parameters
    ----------
    partitions
        The metadata columns of ``schema.PARTITIONS`` by topic and partition; `error` set where there is no leader.
    errors
        ``"NAME: text"`` by topic, for topics that were asked for and not shown.
    """

    partitions: Mapping[Place, Row]
    errors: Mapping[str, str]

    def at(self, places: Iterable[Place]) -> dict[Place, Row]:
        """The rows of some partitions; one that is not there any more has a row that says so."""
        return {place: self.partitions.get(place) or self._gone(place) for place in places}

    def _gone(self, place: Place) -> Row:
        error = self.errors.get(place[0]) or f"{UNKNOWN}: the cluster has no such partition"
        return _row(*place, None, None, None, None, dt.datetime.now(dt.UTC), error)


def read_topology(wire: Wire, topics: Iterable[str] | None = None) -> Topology:
    """Ask any broker for the metadata of topics, of all that this principal may see where none are named.

    Raises
    ------
    ConnectionFailed, BrokerError
        If no broker answers.
    """
    named = kafka.Metadata.MetadataRequestTopic
    asked = None if topics is None else [named(name=name) for name in topics]
    message = wire.ask(kafka.Metadata(topics=asked, allow_auto_topic_creation=False))
    now = dt.datetime.now(dt.UTC)
    partitions: dict[Place, Row] = {}
    errors: dict[str, str] = {}
    for topic in message.topics:
        if topic.error_code:
            errors[topic.name] = error_text(topic.error_code)
        for part in topic.partitions:
            led = part.leader_id >= 0
            partitions[topic.name, part.partition_index] = _row(
                topic.name,
                part.partition_index,
                part.leader_id if led else None,
                part.leader_epoch if part.leader_epoch >= 0 else None,
                part.replica_nodes,
                part.isr_nodes,
                now,
                None if led else "LEADER_NOT_AVAILABLE: the partition has no leader",
            )
    return Topology(partitions, errors)


def _row(
    topic: str,
    partition: int,
    leader: int | None,
    leader_epoch: int | None,
    replicas: Sequence[int] | None,
    isr: Sequence[int] | None,
    observed_at: dt.datetime,
    error: str | None,
) -> Row:
    return {
        "topic": topic,
        "partition": partition,
        "leader": leader,
        "leader_epoch": leader_epoch,
        "replicas": replicas,
        "isr": isr,
        "broker_id": leader,
        "observed_at": observed_at,
        "error": error,
    }


def as_places(
    topology: Topology, topics: Sequence[str] | None, partitions: Sequence[int] | Sequence[Place] | None
) -> list[Place]:
    """The partitions that were asked for, in order.

    Parameters
    ----------
    topics
        Topic names; all topics if null.
    partitions
        Numbers, which stand for these partitions of each of `topics`; or pairs of topic and number, which stand for
        themselves, without `topics`.

    Raises
    ------
    NotFound
        If the cluster does not have one of them.
    BrokerError
        If this principal may not see one of the topics.
    UsageError
        If `partitions` are numbers without topics, or pairs with topics.
    """
    for name, error in topology.errors.items():
        _refuse(name, error)
    if partitions is None:
        return sorted(place for place in topology.partitions if topics is None or place[0] in set(topics))
    asked = asked_places(topics, partitions)
    for topic, number in asked:
        if (topic, number) not in topology.partitions:
            count = sum(name == topic for name, _ in topology.partitions)
            raise NotFound(f"Topic {topic!r} has no partition {number}; it has {count}, counted from 0.")
    return sorted(set(asked))


def _refuse(topic: str, error: str) -> None:
    """Raise for a topic that was asked for by name."""
    name, _, text = error.partition(": ")
    if name == UNKNOWN:
        raise NotFound(f"The cluster has no topic {topic!r}.")
    raise BrokerError(f"Topic {topic!r} cannot be seen: {name} ({text.rstrip('.')}).", code=name)


def by_leader(bases: Mapping[Place, Row]) -> dict[int, list[Place]]:
    """Leader's broker id to its partitions, of those that have a leader."""
    led: dict[int, list[Place]] = {}
    for place, base in bases.items():
        if base["leader"] is not None:
            led.setdefault(base["leader"], []).append(place)
    return led


def batches(places: Sequence[Place]) -> Iterator[dict[str, list[int]]]:
    """Topic to partition numbers, for one request each."""
    for start in range(0, len(places), PARTITIONS_PER_REQUEST):
        batch: dict[str, list[int]] = {}
        for topic, partition in places[start : start + PARTITIONS_PER_REQUEST]:
            batch.setdefault(topic, []).append(partition)
        yield batch


def with_fresh_leaders(
    wire: Wire, bases: Mapping[Place, Row], ask: Callable[[Wire, Mapping[Place, Row]], list[Row]]
) -> list[Row]:
    """Ask the leaders; where one has moved, read the metadata again and ask the new one, once."""
    rows = ask(wire, bases)
    failed = {(row["topic"], row["partition"]): row["error"] for row in rows if row["error"]}
    if not failed:
        return rows
    fresh = read_topology(wire, {topic for topic, _ in failed}).partitions
    again = {
        place: fresh[place]
        for place, error in failed.items()
        if place in fresh and (error.startswith(MOVED) or fresh[place]["leader"] != bases[place]["leader"])
    }
    if not again:
        return rows
    return [row for row in rows if (row["topic"], row["partition"]) not in again] + ask(wire, again)


def is_missing(error: str | None) -> bool:
    """Whether an error of a topic says that the cluster does not have it."""
    return error is not None and error.startswith(UNKNOWN)
