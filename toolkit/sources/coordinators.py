"""Who coordinates a transactional id or a group: by hash and metadata, and by the brokers' own word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.records import STATE_TOPIC, coordinator_partition
from toolkit.schema import Row
from toolkit.sources import wire as kafka
from toolkit.sources.topology import Topology, is_missing, read_topology
from toolkit.sources.wire import Answer, Wire, error_text

__all__ = ["GROUP", "TRANSACTION", "Places", "coordinator_rows", "find_coordinators"]

GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
NAMES = {GROUP: ("group", OFFSETS_TOPIC), TRANSACTION: ("transaction", STATE_TOPIC)}
KEYS_PER_REQUEST = 1000


@dataclass(frozen=True)
class Places:
    """The coordinators' topic: which partition an id hashes to, and who leads it.

    Parameters
    ----------
    topic
        ``__transaction_state`` or ``__consumer_offsets``.
    topology
        Metadata that was asked for this topic.
    """

    topic: str
    topology: Topology

    @cached_property
    def count(self) -> int:
        """Partitions of the topic; 0 where there is no such topic or it may not be seen."""
        return sum(topic == self.topic for topic, _ in self.topology.partitions)

    @property
    def hidden(self) -> str | None:
        """``"NAME: text"`` where the metadata of the topic was refused; null where it is there, or not created yet."""
        error = self.topology.errors.get(self.topic)
        return None if is_missing(error) else error

    def partition(self, key: str) -> int | None:
        """The partition that an id hashes to; null where the topic is not known."""
        return coordinator_partition(key, self.count) if self.count else None

    def leader(self, partition: int | None) -> int | None:
        """Broker id of a partition's leader; null where there is none."""
        row = None if partition is None else self.topology.partitions.get((self.topic, partition))
        return row["leader"] if row else None


def coordinator_rows(wire: Wire, keys: Sequence[str], key_type: int) -> list[Row]:
    """Rows of ``schema.COORDINATORS`` for ids of one type (`GROUP` or `TRANSACTION`)."""
    type_name, topic = NAMES[key_type]
    places = Places(topic, read_topology(wire, [topic]))
    rows: list[Row] = []
    for key, (answer, found) in zip(keys, find_coordinators(wire, keys, key_type), strict=True):
        partition = places.partition(key)
        leader = places.leader(partition)
        coordinator = found.node_id if found and found.error_code == 0 else None
        rows.append(
            {
                "key_type": type_name,
                "key": key,
                "topic": topic,
                "partition": partition,
                "leader": leader,
                "coordinator_id": coordinator,
                "agrees": None if leader is None or coordinator is None else leader == coordinator,
                "broker_id": answer.broker_id,
                "observed_at": answer.observed_at,
                "error": _error(answer, found),
            }
        )
    return rows


def _error(answer: Answer, found: Any) -> str | None:
    if found is None:
        return answer.error_text
    return error_text(found.error_code, found.error_message) if found.error_code else None


def find_coordinators(wire: Wire, keys: Sequence[str], key_type: int) -> list[tuple[Answer, Any]]:
    """Ask any broker for the coordinator of each key.

    Returns
    -------
    list of (Answer, message)
        By key, in order: the answer it came with, and Kafka's words on this key (``node_id``, ``error_code``,
        ``error_message``), null where nobody answered.
    """
    if not keys:
        return []
    batches = [keys[start : start + KEYS_PER_REQUEST] for start in range(0, len(keys), KEYS_PER_REQUEST)]
    request = kafka.FindCoordinator
    answers = wire.send(
        [(None, request(key_type=key_type, coordinator_keys=list(batch), min_version=4)) for batch in batches]
    )
    if any(answer.error_text and answer.error_text.startswith("UNSUPPORTED_VERSION") for answer in answers):
        answers = wire.send([(None, request(key_type=key_type, key=key, max_version=3)) for key in keys])
        return [(answer, answer.message) for answer in answers]
    found = []
    for batch, answer in zip(batches, answers, strict=True):
        by_key = {one.key: one for one in answer.message.coordinators} if answer.message else {}
        found += [(answer, by_key.get(key)) for key in batch]
    return found
