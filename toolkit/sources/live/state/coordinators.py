"""Coordinators of ids and groups, by hash and metadata and by FindCoordinator; whether they have loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Self

from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.schema.live import Coordinator
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import TOO_OLD, BrokerResponse, error_name, error_text, omitted_text
from toolkit.sources.live.state.broker_configs import broker_configs
from toolkit.sources.live.state.leaders import ClusterMetadata, is_missing, read_metadata

GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
NAMES = {GROUP: ("group", OFFSETS_TOPIC), TRANSACTION: ("transaction", STATE_TOPIC)}
FACTOR = "transaction.state.log.replication.factor"
KEYS_PER_REQUEST = 1000
NOT_YET = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}


def partition_numbers(partitions: Sequence[int]) -> str:
    """``partition 3`` or ``partitions 3, 7``."""
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"


@dataclass(frozen=True)
class CoordinatorTopic:
    """A coordinators' topic: the partition that a key hashes to, and its leader."""

    topic: str  # ``__transaction_state`` or ``__consumer_offsets``
    metadata: ClusterMetadata  # metadata of this topic

    @classmethod
    def read(cls, client: BrokerClient, topic: str) -> Self:
        """Read the metadata of a coordinators' topic."""
        return cls(topic, read_metadata(client, [topic]))

    @classmethod
    def of(cls, topic: str, metadata: ClusterMetadata) -> Self:
        """A coordinators' topic from the metadata of several: whoever reads all of its partitions reads no other's."""
        own = {tp: each for tp, each in metadata.partitions.items() if tp.topic == topic}
        errors = {name: error for name, error in metadata.errors.items() if name == topic}
        return cls(topic, replace(metadata, partitions=own, errors=errors))

    @cached_property
    def count(self) -> int:
        """Partitions of the topic; 0 if it does not exist or may not be described."""
        return sum(topic == self.topic for topic, _ in self.metadata.partitions)

    @property
    def hidden(self) -> str | None:
        """``"NAME: text"`` if the topic may not be described; null if it is visible or not created yet."""
        error = self.metadata.errors.get(self.topic)
        return None if is_missing(error) else error

    def missing(self, client: BrokerClient, error: str | None) -> str | None:
        """An error of FindCoordinator; if ``__transaction_state`` does not exist, what its creation takes."""
        is_absent = self.topic == STATE_TOPIC and is_missing(self.metadata.errors.get(self.topic))
        if not is_absent or Error.of(error).code != "COORDINATOR_NOT_AVAILABLE":
            return error
        values = {config.values.get(FACTOR) for config in broker_configs(client, sorted(client.brokers), [FACTOR])}
        factor = ", ".join(sorted(filter(None, values)))
        return (
            f"COORDINATOR_NOT_AVAILABLE: {self.topic} does not exist. The first client that needs it has it created, "
            f"on as many brokers as {FACTOR} says{factor and f' ({factor})'}; {len(client.brokers)} registered"
        )

    @property
    def hidden_gap(self) -> str | None:
        """What is missing to see whether each partition has a leader: the right; null if it is visible or not there."""
        return self.hidden and f"DESCRIBE on Topic '{self.topic}', to see that each of its partitions has a leader"

    def gaps_until(self, after: CoordinatorTopic) -> list[str]:
        """What is missing for answers of all coordinators between two reads of it: a right, leaders, no election."""
        if gap := self.hidden_gap or after.hidden_gap:
            return [gap]
        before, now = self.metadata.partitions, after.metadata.partitions
        leaderless = [
            tp.partition for tp in sorted(now) if now[tp].leader is None or before.get(tp, now[tp]).leader is None
        ]
        gaps = []
        if leaderless:
            gaps.append(f"a leader of {self.topic} {partition_numbers(leaderless)}: no broker answers for its ids")
        if moved := sorted(set(self.moved_until(after)) - set(leaderless)):
            numbers = partition_numbers(moved)
            gaps.append(f"a stable coordinator: leadership of {self.topic} {numbers} moved during the observation")
        return gaps

    def moved_until(self, after: CoordinatorTopic) -> list[int]:
        """Partitions whose leader or leader epoch is another one in a later read."""
        return [
            tp.partition
            for tp, now in sorted(after.metadata.partitions.items())
            if (earlier := self.metadata.partitions.get(tp, now)) is not now
            and (now.leader, now.leader_epoch) != (earlier.leader, earlier.leader_epoch)
        ]

    @property
    def leaderless(self) -> str | None:
        """Its partitions without a leader, whose ids or groups no broker lists; null if there are none."""
        numbers = sorted(tp.partition for tp, each in self.metadata.partitions.items() if each.leader is None)
        return f"a leader of {self.topic} {partition_numbers(numbers)}" if numbers else None

    def partition(self, key: str) -> int | None:
        """The partition that a key hashes to; null if the topic is not visible."""
        return coordinator_partition(key, self.count) if self.count else None

    def leader(self, partition: int | None) -> int | None:
        """Broker id of a partition's leader; null if it has none."""
        if partition is None:
            return None
        found = self.metadata.partitions.get(TopicPartition(self.topic, partition))
        return found.leader if found else None


def read_coordinators(client: BrokerClient, keys: Sequence[str], key_type: int) -> list[Coordinator]:
    """The coordinators of ids of one type (`GROUP` or `TRANSACTION`)."""
    type_name, topic = NAMES[key_type]
    coordinator_topic = CoordinatorTopic.read(client, topic)
    hidden = coordinator_topic.hidden and f"{coordinator_topic.hidden} ({topic}, so its partition is not known)"
    found: list[Coordinator] = []
    for key, (response, result) in zip(keys, find_coordinators(client, keys, key_type), strict=True):
        partition = coordinator_topic.partition(key)
        leader = coordinator_topic.leader(partition)
        coordinator = result.node_id if result and result.error_code == 0 else None
        error: str | None = response.error_text or omitted_text("FindCoordinator", f"this {type_name}")
        if result is not None:
            error = error_text(result.error_code, result.error_message) if result.error_code else None
        found.append(
            Coordinator(
                key_type=type_name,
                key=key,
                topic=topic,
                partition=partition,
                leader=leader,
                coordinator_id=coordinator,
                agrees=None if leader is None or coordinator is None else leader == coordinator,
                broker_id=response.broker_id,
                observed_at=response.observed_at,
                error=coordinator_topic.missing(client, error) or hidden,
            )
        )
    return found


def find_coordinators(client: BrokerClient, keys: Sequence[str], key_type: int) -> list[tuple[BrokerResponse, Any]]:
    """Find the coordinator of each key through any broker.

    Returns: per key, in order: the response, and the coordinator in it (``node_id``, ``error_code``,
    ``error_message``), null without a response.
    """
    if not keys:
        return []
    batches = [keys[start : start + KEYS_PER_REQUEST] for start in range(0, len(keys), KEYS_PER_REQUEST)]
    request = messages.FindCoordinator
    responses = client.send(
        [(None, request(key_type=key_type, coordinator_keys=list(batch), min_version=4)) for batch in batches]
    )
    if any(response.is_too_old for response in responses):
        responses = client.send([(None, request(key_type=key_type, key=key, max_version=3)) for key in keys])
        return [(response, response.message) for response in responses]
    results = []
    for batch, response in zip(batches, responses, strict=True):
        by_key = {result.key: result for result in response.message.coordinators} if response.message else {}
        results += [(response, by_key.get(key)) for key in batch]
    return results


def loading_coordinators(client: BrokerClient, coordinator_topic: CoordinatorTopic) -> list[str]:
    """Gaps, one for each broker that has not loaded a partition of ``__transaction_state`` that it leads.

    A loading coordinator silently lists none of the ids that it has not loaded, so their producers seem to have no
    owner. DescribeTransactions, even of an unused id, returns an error until the id's partition is loaded
    (TransactionStateManager.getTransactionState).
    """
    by_leader: dict[int, list[str]] = {}
    for partition, name in enumerate(_probe_ids(coordinator_topic.count)):
        leader = coordinator_topic.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader, []).append(name)
    responses = client.send(
        [(leader, messages.DescribeTransactions(transactional_ids=names)) for leader, names in by_leader.items()]
    )
    gaps = []
    for response, names in zip(responses, by_leader.values(), strict=True):
        if response.error_text:
            code = Error.of(response.error_text).code
            if code != TOO_OLD:  # ListTransactions reports it, too
                gaps.append(f"broker {response.broker_id} did not show whether it has loaded its partitions: {code}")
            continue
        states = {state.transactional_id: error_name(state.error_code) for state in response.message.transaction_states}
        codes = Counter(states.values())
        if omitted := len(set(names) - states.keys()):
            gaps.append(
                f"broker {response.broker_id} did not show whether it has loaded {omitted} of the "
                f"{coordinator_topic.topic} partitions that it leads"
            )
        for name in sorted(codes.keys() & NOT_YET):
            count = f"{codes[name]} of the {coordinator_topic.topic} partitions that it leads"
            gaps.append(f"broker {response.broker_id} has not loaded {count}: {name}")
    return gaps


@cache
def _probe_ids(partitions: int) -> tuple[str, ...]:
    """An unused id that hashes to each partition."""
    ids: dict[int, str] = {}
    number = 0
    while len(ids) < partitions:
        name = f"kafka-txn-toolkit-probe-{number}"
        ids.setdefault(coordinator_partition(name, partitions), name)
        number += 1
    return tuple(ids[partition] for partition in range(partitions))
