"""Brokers that respond like Kafka 4.3.1 over real sockets: a cluster of any size in one process.

    python tests/tools/bench/fake_cluster.py --brokers 100 --partitions 200000 --ids 1000000

One partition in a thousand is held by an open transaction; all other ids have committed. A response is encoded once for
each request, so that a second observation waits for the client, not for this server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kafka.protocol import admin, consumer, metadata

from toolkit.formats.coordinator_records import STATE_TOPIC, coordinator_partition

PER_TOPIC = 100
COORDINATORS = 50
HELD_EVERY = 1000
END, HELD_FROM = 1000, 500
NOT_FOUND, SECURITY_DISABLED = 105, 54
REQUESTS = (
    metadata.ApiVersionsRequest,
    metadata.MetadataRequest,
    metadata.FindCoordinatorRequest,
    consumer.ListOffsetsRequest,
    consumer.FetchRequest,
    admin.DescribeProducersRequest,
    admin.ListTransactionsRequest,
    admin.DescribeTransactionsRequest,
    admin.DescribeAclsRequest,
    admin.DescribeConfigsRequest,
    admin.ListGroupsRequest,
    admin.DescribeQuorumRequest,
)
BY_KEY = {each.API_KEY: each for each in REQUESTS}
# All that a real broker lists, so that it passes for Apache Kafka; a client of this server sends only `REQUESTS`.
APIS = json.loads(Path(__file__).parents[2].joinpath("sources", "recorded_apis.json").read_text())["4.3.1"]


class FakeCluster:
    """What every broker knows."""

    def __init__(self, brokers: int, partitions: int, ids: int) -> None:
        self.ports: list[int] = [0] * brokers
        self.topics = [f"orders-{number:05}" for number in range(partitions // PER_TOPIC)]
        self.names = frozenset(self.topics)
        self.ids = ids
        self.started = int(time.time() * 1000)  # of what is open; what is overdue would have to be proven by logs
        self._encoded: dict[tuple[Any, ...], bytes] = {}

    def number(self, topic: str, partition: int) -> int:
        return int(topic[-5:]) * PER_TOPIC + partition

    def leader(self, topic: str, partition: int) -> int:
        number = partition if topic == STATE_TOPIC else self.number(topic, partition)
        return number % len(self.ports)

    def is_held(self, topic: str, partition: int) -> bool:
        return topic != STATE_TOPIC and self.number(topic, partition) % HELD_EVERY == 0

    def id_of(self, topic: str, partition: int) -> str:
        return f"writer-{self.number(topic, partition):07}"

    @cached_property
    def ids_by_broker(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.ports]
        for number in range(self.ids):
            partition = coordinator_partition(f"writer-{number:07}", COORDINATORS)
            found[self.leader(STATE_TOPIC, partition)].append(number)
        return found

    def answer(self, broker: int, frame: bytes) -> bytes:
        """The response to a request, framed."""
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        (client,) = struct.unpack_from(">h", frame, 8)
        cached = broker, key, version, frame[10 + client :]
        if cached not in self._encoded:
            request_class = BY_KEY[key]
            request = request_class.decode(frame, version=version, header=True)
            response = ANSWERS[request_class](self, broker, request, version)
            response.API_VERSION = version
            response.with_header(correlation_id=0)
            self._encoded[cached] = bytes(response.encode(header=True, framed=True))
        encoded = self._encoded[cached]
        return encoded[:4] + struct.pack(">i", correlation_id) + encoded[8:]


def api_versions(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    response = metadata.ApiVersionsResponse
    keys = [
        response.ApiVersion(api_key=int(key), min_version=low, max_version=high) for key, (low, high) in APIS.items()
    ]
    return response(error_code=0, api_keys=keys, throttle_time_ms=0)


def metadata_answer(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    response = metadata.MetadataResponse
    nodes = response.MetadataResponseBroker
    wanted = request.topics
    names = [*cluster.topics, STATE_TOPIC] if wanted is None else [each.name for each in wanted]
    brokers = [
        nodes(node_id=number, host="127.0.0.1", port=port, rack=None) for number, port in enumerate(cluster.ports)
    ]
    return response(
        throttle_time_ms=0,
        brokers=brokers,
        cluster_id="fake",
        controller_id=0,
        topics=[_topic(cluster, name) for name in names],
        error_code=0,
    )


def _topic(cluster: FakeCluster, name: str) -> Any:
    topic = metadata.MetadataResponse.MetadataResponseTopic
    count = COORDINATORS if name == STATE_TOPIC else PER_TOPIC
    is_there = name == STATE_TOPIC or name in cluster.names
    return topic(
        error_code=0 if is_there else 3,
        name=name,
        is_internal=name == STATE_TOPIC,
        partitions=[_partition(cluster, name, number) for number in range(count if is_there else 0)],
    )


def _partition(cluster: FakeCluster, topic: str, number: int) -> Any:
    leader = cluster.leader(topic, number)
    replicas = [(leader + each) % len(cluster.ports) for each in range(min(3, len(cluster.ports)))]
    return metadata.MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        error_code=0,
        partition_index=number,
        leader_id=leader,
        leader_epoch=0,
        replica_nodes=replicas,
        isr_nodes=replicas,
        offline_replicas=[],
    )


def _by_topic(message: Any, request: Any, partitions: Callable[[Any], list[Any]]) -> list[Any]:
    """Of each topic that a request names, the message with its partitions."""
    return [message(name=each.name, partitions=partitions(each)) for each in request.topics]


def list_offsets(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    topic = consumer.ListOffsetsResponse.ListOffsetsTopicResponse
    partition = topic.ListOffsetsPartitionResponse

    def offset(name: str, spec: Any) -> int:
        if spec.timestamp == -2:
            return 0
        return HELD_FROM if request.isolation_level == 1 and cluster.is_held(name, spec.partition_index) else END

    def partitions(of: Any) -> list[Any]:
        return [
            partition(
                partition_index=spec.partition_index,
                error_code=0,
                timestamp=-1,
                offset=offset(of.name, spec),
                leader_epoch=0,
            )
            for spec in of.partitions
        ]

    return consumer.ListOffsetsResponse(throttle_time_ms=0, topics=_by_topic(topic, request, partitions))


def describe_producers(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    topic = admin.DescribeProducersResponse.TopicResponse
    partition = topic.PartitionResponse
    state = partition.ProducerState

    def producer(name: str, number: int) -> Any:
        return state(
            producer_id=cluster.number(name, number),
            producer_epoch=0,
            last_sequence=9,
            last_timestamp=cluster.started,
            coordinator_epoch=0,
            current_txn_start_offset=HELD_FROM if cluster.is_held(name, number) else -1,
        )

    def partitions(of: Any) -> list[Any]:
        return [
            partition(
                partition_index=number,
                error_code=0,
                error_message=None,
                active_producers=[] if of.name == STATE_TOPIC else [producer(of.name, number)],
            )
            for number in of.partition_indexes
        ]

    return admin.DescribeProducersResponse(throttle_time_ms=0, topics=_by_topic(topic, request, partitions))


def list_transactions(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    state = admin.ListTransactionsResponse.TransactionState
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    return admin.ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=0,
        unknown_state_filters=[],
        transaction_states=[
            state(transactional_id=f"writer-{number:07}", producer_id=number, transaction_state=_state(cluster, number))
            for number in cluster.ids_by_broker[broker]
            if (not states or _state(cluster, number) in states) and (not producer_ids or number in producer_ids)
        ],
    )


def _state(cluster: FakeCluster, number: int) -> str:
    return "Ongoing" if _is_open(cluster, number) else "CompleteCommit"


def _is_open(cluster: FakeCluster, number: int) -> bool:
    return number % HELD_EVERY == 0 and number < len(cluster.topics) * PER_TOPIC


def describe_transactions(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    state = admin.DescribeTransactionsResponse.TransactionState
    found = []
    for name in request.transactional_ids:
        number = int(name[7:]) if name.startswith("writer-") else -1
        is_there, is_open = 0 <= number < cluster.ids, _is_open(cluster, number)
        topic = f"orders-{number // PER_TOPIC:05}"
        found.append(
            state(
                error_code=0 if is_there else NOT_FOUND,
                transactional_id=name,
                transaction_state=_state(cluster, number) if is_there else "",
                transaction_timeout_ms=900_000 if is_there else 0,
                transaction_start_time_ms=cluster.started if is_there else 0,
                producer_id=number,
                producer_epoch=0,
                topics=[state.TopicData(topic=topic, partitions=[number % PER_TOPIC])] if is_open else [],
            )
        )
    return admin.DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=found)


def describe_acls(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    return admin.DescribeAclsResponse(
        throttle_time_ms=0, error_code=SECURITY_DISABLED, error_message=None, resources=[]
    )


def describe_configs(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    result = admin.DescribeConfigsResponse.DescribeConfigsResult
    return admin.DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[
            result(
                error_code=0,
                error_message=None,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=[],
            )
            for each in request.resources
        ],
    )


def list_groups(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    return admin.ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[])


def fetch(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    """Nothing: a held partition is reported without its first batch."""
    topic = consumer.FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData
    return consumer.FetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[
            topic(
                topic=each.topic,
                topic_id=each.topic_id,
                partitions=[
                    partition(
                        partition_index=wanted.partition,
                        error_code=0,
                        high_watermark=END,
                        last_stable_offset=HELD_FROM,
                        log_start_offset=0,
                        aborted_transactions=[],
                        preferred_read_replica=-1,
                        records=b"",
                    )
                    for wanted in each.partitions
                ],
            )
            for each in request.topics
        ],
    )


def describe_quorum(cluster: FakeCluster, broker: int, request: Any, version: int) -> Any:
    response, now = admin.DescribeQuorumResponse, int(time.time() * 1000)
    leader = response.TopicData.PartitionData.ReplicaState(
        replica_id=0, log_end_offset=1, last_fetch_timestamp=now, last_caught_up_timestamp=now
    )
    partition = response.TopicData.PartitionData(
        partition_index=0, error_code=0, leader_id=0, leader_epoch=1, high_watermark=1, current_voters=[leader],
        observers=[],
    )  # fmt: skip
    return response(error_code=0, topics=[response.TopicData(topic_name="__cluster_metadata", partitions=[partition])])


ANSWERS: Mapping[Any, Callable[[FakeCluster, int, Any, int], Any]] = {
    metadata.ApiVersionsRequest: api_versions,
    metadata.MetadataRequest: metadata_answer,
    consumer.ListOffsetsRequest: list_offsets,
    consumer.FetchRequest: fetch,
    admin.DescribeProducersRequest: describe_producers,
    admin.ListTransactionsRequest: list_transactions,
    admin.DescribeTransactionsRequest: describe_transactions,
    admin.DescribeAclsRequest: describe_acls,
    admin.DescribeConfigsRequest: describe_configs,
    admin.ListGroupsRequest: list_groups,
    admin.DescribeQuorumRequest: describe_quorum,
}


async def serve(cluster: FakeCluster) -> Sequence[asyncio.Server]:
    """A listener for each broker, on a free port of 127.0.0.1."""

    def connection(broker: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    writer.write(cluster.answer(broker, await reader.readexactly(size)))
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        return handle

    servers = []
    for broker in range(len(cluster.ports)):
        server = await asyncio.start_server(connection(broker), "127.0.0.1", 0)
        cluster.ports[broker] = server.sockets[0].getsockname()[1]
        servers.append(server)
    return servers


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--ids", type=int, default=1_000_000)
    arguments = parser.parse_args()
    cluster = FakeCluster(arguments.brokers, arguments.partitions, arguments.ids)
    await serve(cluster)
    print(f"127.0.0.1:{cluster.ports[0]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
