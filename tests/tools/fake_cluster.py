"""Brokers that respond like Kafka 4.3.1 over real sockets: a cluster of any size in one process.

    python -m tests.tools.fake_cluster --brokers 100 --partitions 200000 --ids 1000000

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

from tests.messages import by_topic, message, named
from toolkit.formats.coordinator_records import STATE_TOPIC, coordinator_partition

PER_TOPIC = 100
COORDINATORS = 50
HELD_EVERY = 1000
END, HELD_FROM = 1000, 500
NOT_FOUND, SECURITY_DISABLED = 105, 54


class FakeCluster:
    """What every broker knows."""

    def __init__(self, brokers: int, partitions: int, ids: int) -> None:
        self.ports: list[int] = [0] * brokers
        self.topics = [f"orders-{number:05}" for number in range(partitions // PER_TOPIC)]
        self.names = frozenset(self.topics)
        self.ids = ids
        # Of what is open: some seconds ago in all tests; what is overdue would have to be proven by logs.
        self.started = int(time.time() * 1000) - 20_000
        self._encoded: dict[tuple[Any, ...], bytes] = {}

    def number(self, topic: str, partition: int) -> int:
        return int(topic[-5:]) * PER_TOPIC + partition

    def leader(self, topic: str, partition: int) -> int:
        number = partition if topic == STATE_TOPIC else self.number(topic, partition)
        return number % len(self.ports)

    @property
    def registered(self) -> Sequence[int]:
        """The brokers."""
        return range(len(self.ports))

    def leader_epoch(self, topic: str, partition: int) -> int:
        return 0

    def is_held(self, topic: str, partition: int) -> bool:
        return topic != STATE_TOPIC and self.number(topic, partition) % HELD_EVERY == 0

    def is_open(self, number: int) -> bool:
        return number % HELD_EVERY == 0 and 0 <= number < len(self.topics) * PER_TOPIC

    def state(self, number: int) -> str:
        return "Ongoing" if self.is_open(number) else "CompleteCommit"

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
        if cached not in self._encoded or key == admin.DescribeQuorumRequest.API_KEY:  # which has the time
            request_class = BY_KEY[key]
            request = request_class.decode(frame, version=version, header=True)
            kind, answer = ANSWERS[request_class]
            response = message(kind, version, **answer(self, broker, request))
            response.with_header(correlation_id=0)
            self._encoded[cached] = bytes(response.encode(header=True, framed=True))
        encoded = self._encoded[cached]
        return encoded[:4] + struct.pack(">i", correlation_id) + encoded[8:]


def api_versions(cluster: FakeCluster, broker: int, request: Any) -> Any:
    return {"api_keys": [named("api_key min_version max_version", (int(key), *APIS[key])) for key in APIS]}


def metadata_answer(cluster: FakeCluster, broker: int, request: Any) -> Any:
    names = [*cluster.topics, STATE_TOPIC] if request.topics is None else [each.name for each in request.topics]
    brokers = [named("node_id host port", (node, "127.0.0.1", cluster.ports[node])) for node in cluster.registered]
    return {"brokers": brokers, "cluster_id": "fake", "controller_id": 0, "topics": [_topic(cluster, n) for n in names]}


def _topic(cluster: FakeCluster, name: str) -> Any:
    is_there = name == STATE_TOPIC or name in cluster.names
    count = (COORDINATORS if name == STATE_TOPIC else PER_TOPIC) if is_there else 0
    of_topic = {"error_code": 0 if is_there else 3, "name": name, "is_internal": name == STATE_TOPIC}
    return {**of_topic, "partitions": [_partition(cluster, name, number) for number in range(count)]}


def _partition(cluster: FakeCluster, topic: str, number: int) -> Any:
    leader = cluster.leader(topic, number)
    replicas = [(leader + each) % len(cluster.ports) for each in range(min(3, len(cluster.ports)))]
    nodes = {"replica_nodes": replicas, "isr_nodes": replicas, "offline_replicas": []}
    epoch = cluster.leader_epoch(topic, number)
    return {"partition_index": number, "leader_id": leader, "leader_epoch": epoch, **nodes}


def list_offsets(cluster: FakeCluster, broker: int, request: Any) -> Any:
    def offset(name: str, spec: Any) -> int:
        if spec.timestamp == -2:
            return 0
        return HELD_FROM if request.isolation_level == 1 and cluster.is_held(name, spec.partition_index) else END

    topics = ((of.name, [(spec.partition_index, offset(of.name, spec), 0) for spec in of.partitions])
              for of in request.topics)  # fmt: skip
    return {"topics": by_topic("partition_index offset leader_epoch", topics)}


def describe_producers(cluster: FakeCluster, broker: int, request: Any) -> Any:
    names = "producer_id producer_epoch last_sequence last_timestamp coordinator_epoch current_txn_start_offset"

    def producers(name: str, number: int) -> list[dict[str, Any]]:
        start = HELD_FROM if cluster.is_held(name, number) else -1
        fields = (cluster.number(name, number), 0, 9, cluster.started, 0, start) if name != STATE_TOPIC else ()
        return [named(names, fields)] if fields else []

    topics = ((of.name, [(number, producers(of.name, number)) for number in of.partition_indexes])
              for of in request.topics)  # fmt: skip
    return {"topics": by_topic("partition_index active_producers", topics)}


def list_transactions(cluster: FakeCluster, broker: int, request: Any) -> Any:
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    found = [
        (f"writer-{number:07}", number, cluster.state(number))
        for number in cluster.ids_by_broker[broker]
        if (not states or cluster.state(number) in states) and (not producer_ids or number in producer_ids)
    ]
    return {"transaction_states": [named("transactional_id producer_id transaction_state", each) for each in found]}


def describe_transactions(cluster: FakeCluster, broker: int, request: Any) -> Any:
    names = "transaction_state transaction_timeout_ms transaction_start_time_ms producer_id"
    found = []
    for name in request.transactional_ids:
        number = int(name[7:]) if name.startswith("writer-") else -1
        is_there = 0 <= number < cluster.ids
        fields = (cluster.state(number), 900_000, cluster.started, number) if is_there else ("", 0, 0, number)
        tps = {"topic": f"orders-{number // PER_TOPIC:05}", "partitions": [number % PER_TOPIC]}
        error = {"error_code": 0 if is_there else NOT_FOUND, "transactional_id": name}
        found.append({**error, **named(names, fields), "topics": [tps] if cluster.is_open(number) else []})
    return {"transaction_states": found}


def describe_configs(cluster: FakeCluster, broker: int, request: Any) -> Any:
    names = "resource_type resource_name configs"
    return {"results": [named(names, (each.resource_type, each.resource_name, [])) for each in request.resources]}


def fetch(cluster: FakeCluster, broker: int, request: Any) -> Any:
    """Nothing: a held partition is reported without its first batch."""
    fields = {"high_watermark": END, "last_stable_offset": HELD_FROM, "log_start_offset": 0, "records": b""}
    return {
        "responses": [
            {
                "topic": each.topic,
                "topic_id": each.topic_id,
                "partitions": [
                    {"partition_index": wanted.partition, "aborted_transactions": [], **fields}
                    for wanted in each.partitions
                ],
            }
            for each in request.topics
        ]
    }


def describe_quorum(cluster: FakeCluster, broker: int, request: Any) -> Any:
    now = int(time.time() * 1000)
    names = "replica_id log_end_offset last_fetch_timestamp last_caught_up_timestamp"
    leader = named(names, (0, 1, now, now))
    partition = {"leader_id": 0, "leader_epoch": 1, "high_watermark": 1, "current_voters": [leader], "observers": []}
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}]}


ANSWERS: Mapping[Any, tuple[Any, Callable[[FakeCluster, int, Any], Any]]] = {
    metadata.ApiVersionsRequest: (metadata.ApiVersionsResponse, api_versions),
    metadata.MetadataRequest: (metadata.MetadataResponse, metadata_answer),
    consumer.ListOffsetsRequest: (consumer.ListOffsetsResponse, list_offsets),
    consumer.FetchRequest: (consumer.FetchResponse, fetch),
    admin.DescribeProducersRequest: (admin.DescribeProducersResponse, describe_producers),
    admin.ListTransactionsRequest: (admin.ListTransactionsResponse, list_transactions),
    admin.DescribeTransactionsRequest: (admin.DescribeTransactionsResponse, describe_transactions),
    admin.DescribeAclsRequest: (admin.DescribeAclsResponse, lambda *_: {"error_code": SECURITY_DISABLED}),
    admin.DescribeConfigsRequest: (admin.DescribeConfigsResponse, describe_configs),
    admin.ListGroupsRequest: (admin.ListGroupsResponse, lambda *_: {"groups": []}),
    admin.DescribeQuorumRequest: (admin.DescribeQuorumResponse, describe_quorum),
}
BY_KEY = {each.API_KEY: each for each in ANSWERS}
# All that a real broker lists, so that it passes for Apache Kafka; a client of this server sends only `ANSWERS`.
APIS = json.loads(Path(__file__).parents[1].joinpath("sources", "recorded_apis.json").read_text())["4.3.1"]


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
