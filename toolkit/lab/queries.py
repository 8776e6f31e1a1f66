"""Small queries of a cluster, repeated until they succeed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from toolkit.config import ClientConfig
from toolkit.errors import ConnectionFailed, LabError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.lab.server.broker import Kafka
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import error_name
from toolkit.sources.live.state.coordinators import CoordinatorTopic, loading_coordinators

ALWAYS_UP = 1  # broker that no incident stops; with fewer than three brokers it is the only controller, too

T = TypeVar("T")

ClusterAddress: TypeAlias = Kafka | ClientConfig | str | Mapping[str, object]
"""A lab cluster, or the client configuration of another one."""

# Transient errors.
PASSING = {
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "LEADER_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN_TOPIC_OR_PARTITION",
}

VERIFIED = (
    "The broker verified with the coordinator whether this transaction is open on this partition: it is not, so it "
    "refused the write: KIP-890 at work, which is what makes hanging transactions rare from Kafka 3.6 on.",
    "Start the broker with transaction.partition.verification.enable=false to stage this all the same.",
)
FENCED = ("A newer epoch of this producer is known: this one is fenced.", "")

# Meaning and remedy of an error, in general or of one API, while an incident is staged.
EXPLAINED = {
    "EndTxn: INVALID_TXN_STATE": ("There is no open transaction to end.", ""),
    "INVALID_PRODUCER_EPOCH": FENCED,
    "INVALID_PRODUCER_ID_MAPPING": ("The coordinator does not know the transactional id any more: it has expired.", ""),
    "INVALID_TRANSACTION_TIMEOUT": ("The broker allows no timeout as long.", "Raise transaction.max.timeout.ms."),
    "INVALID_TXN_STATE": VERIFIED,
    "PRODUCER_FENCED": FENCED,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "The user may not write under this id, or used two-phase commit where it is disabled.",
        "Grant WRITE on the id, or start the broker with transaction.two.phase.commit.enable=true.",
    ),
    "TRANSACTION_ABORTABLE": VERIFIED,
}


class RequestRefused(LabError):
    """A broker refused a request.

    `api`, `whose`: the request, and the topic or id that it is about.
    `error`: Kafka's name of the error.
    """

    def __init__(self, api: str, whose: str, *, error: str) -> None:
        self.error = error
        means, do = EXPLAINED.get(f"{api}: {error}") or EXPLAINED.get(error) or ("", "")
        super().__init__(f"{api} of {whose} was refused with {error}.", means=means, do=do)


@dataclass(frozen=True, slots=True)
class LeaderTransaction:
    """An open transaction in the producer state of its partition's leader."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    coordinator_epoch: int


def config_of(kafka: ClusterAddress) -> ClientConfig:
    """The client configuration of a cluster."""
    return ClientConfig(kafka.client_config() if isinstance(kafka, Kafka) else kafka)


def until(condition: Callable[[], T | None], *, awaited: str, timeout: float = 180) -> T:
    """Repeat a query until it returns a result.

    Raises LabError if there is none in time.
    `condition`: returns None while there is no result.
    `awaited`: description of the result, for the error.
    `timeout`: seconds.
    """
    deadline = time.monotonic() + timeout
    while (found := condition()) is None:
        if time.monotonic() > deadline:
            raise LabError(f"Waited {timeout:g} s in vain for {awaited}.")
        time.sleep(0.05)
    return found


def send_until_accepted(
    cluster: BrokerClient,
    request: Callable[[], Any],
    *,
    of: str,
    codes: Callable[[Any], Iterable[int]],
    to: Callable[[], int | None] = lambda: None,
) -> Any:
    """Send a request until its response has no transient error.

    Raises RequestRefused if the response has another error, or still an error at the end of the timeout.
    `cluster`: the client to send it with.
    `request`: makes the request.
    `of`: topic or id of the request, for the error.
    `codes`: returns the error codes of a response.
    `to`: returns the broker, before every attempt; any broker if null.
    """
    api = str(request().name).removesuffix("Request")
    passing: set[str] = set()

    def accepted() -> Any:
        message = cluster.send_one(request(), broker_id=to())
        errors = {error_name(code) for code in codes(message)} - {"NONE"}
        for error in sorted(errors - PASSING):
            raise RequestRefused(api, of, error=error)
        passing.clear()
        passing.update(errors)
        return None if errors else message

    try:
        return until(accepted, awaited=f"an answer to {api}")
    except RequestRefused:
        raise
    except LabError as waited:
        raise RequestRefused(api, of, error=", ".join(sorted(passing))) from waited


def partitions(cluster: BrokerClient, topic: str) -> dict[int, Any]:
    """Metadata by partition, of those that have a leader; empty while the topic does not exist."""
    request = messages.Metadata(
        topics=[messages.Metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (found,) = cluster.send_one(request).topics
    return {each.partition_index: each for each in found.partitions if each.leader_id >= 0}


def leader(cluster: BrokerClient, topic: str, partition: int) -> int:
    """Broker id of a partition's leader, once there is one."""

    def elected() -> int | None:
        found = partitions(cluster, topic).get(partition)
        return None if found is None else int(found.leader_id)

    return until(elected, awaited=f"a leader of {topic}-{partition}")


def elect_uncleanly(cluster: BrokerClient, topic: str, numbers: Sequence[int], *, broker_id: int) -> None:
    """Let a replica that is not in sync lead partitions (ElectLeaders), as unclean.leader.election.enable does.

    Before 3.9, controllers in KRaft mode ignore that setting. They need a while to know that the last leader is gone.
    """
    of_topic = messages.ElectLeaders.TopicPartitions

    def leads_all() -> bool | None:
        found = partitions(cluster, topic)
        missing = [each for each in numbers if each not in found or found[each].leader_id != broker_id]
        if missing:
            controller_id = int(cluster.send_one(messages.Metadata(topics=[])).controller_id)
            request = messages.ElectLeaders(
                election_type=1,
                topic_partitions=[of_topic(topic=topic, partitions=missing)],
                timeout_ms=1_000,
                min_version=1,
            )
            with contextlib.suppress(ConnectionFailed):  # it may be the broker that is gone; other errors pass, too
                cluster.send_one(request, broker_id=controller_id)
        return None if missing else True

    until(leads_all, awaited=f"broker {broker_id} to lead {topic}")


def await_coordinators(cluster: BrokerClient) -> None:
    """Return when every partition of ``__transaction_state`` has a leader that has loaded it, as after a restart."""

    def are_loaded() -> bool | None:
        topic = CoordinatorTopic.read(cluster, STATE_TOPIC)
        has_leaders = all(topic.leader(number) is not None for number in range(topic.count))
        return True if has_leaders and not loading_coordinators(cluster, topic) else None

    until(are_loaded, awaited=f"the coordinators to load {STATE_TOPIC}")


def coordinator(cluster: BrokerClient, key: str, *, group: bool = False) -> int:
    """Broker id of the coordinator of a transactional id, or of a group."""
    found = send_until_accepted(
        cluster,
        lambda: messages.FindCoordinator(key=key, key_type=0 if group else 1, max_version=2),
        of=key,
        codes=lambda message: [message.error_code],
    )
    return int(found.node_id)


def open_transactions(cluster: BrokerClient, topic: str, partition: int) -> list[LeaderTransaction]:
    """Open transactions in the producer state of a partition's leader, the one that holds the LSO first."""
    described = send_until_accepted(
        cluster,
        lambda: messages.DescribeProducers(topics=[(topic, [partition])]),
        of=f"{topic}-{partition}",
        to=lambda: leader(cluster, topic, partition),
        codes=lambda message: [message.topics[0].partitions[0].error_code],
    )
    found = [
        LeaderTransaction(each.producer_id, each.producer_epoch, each.current_txn_start_offset, each.coordinator_epoch)
        for each in described.topics[0].partitions[0].active_producers
        if each.current_txn_start_offset >= 0
    ]
    return sorted(found, key=lambda each: each.start_offset)


def offsets(cluster: BrokerClient, topic: str, partition: int) -> tuple[int, int, int]:
    """Log start offset, last stable offset and high watermark of a partition (ListOffsets)."""
    return (
        _offset(cluster, topic, partition, timestamp=-2, isolation_level=0),
        _offset(cluster, topic, partition, timestamp=-1, isolation_level=1),
        _offset(cluster, topic, partition, timestamp=-1, isolation_level=0),
    )


def _offset(cluster: BrokerClient, topic: str, partition: int, *, timestamp: int, isolation_level: int) -> int:
    found = send_until_accepted(
        cluster,
        lambda: messages.ListOffsets(
            partitions={topic: [partition]},
            timestamp=timestamp,
            replica_id=-1,
            isolation_level=isolation_level,
            max_version=4,
        ),
        of=f"{topic}-{partition}",
        to=lambda: leader(cluster, topic, partition),
        codes=lambda message: [message.topics[0].partitions[0].error_code],
    )
    return int(found.topics[0].partitions[0].offset)


class SteadyClient(BrokerClient):
    """A client that sends requests for any broker to the one that no incident stops."""

    def send_one(self, request: Any, *, broker_id: int | None = None) -> Any:
        """As `BrokerClient.send_one`; without a broker id, to that broker."""
        return super().send_one(request, broker_id=ALWAYS_UP if broker_id is None else broker_id)
