"""The log of a live partition over the network, against Kafka's own consumer, on the same topics in the same run.

    python tests/tools/bench/bench_live_log.py [--megabytes 1000] [--runs 5]

Makes two topics with real producers: transactions of a few milliseconds in small batches, and large plain batches.
Prints for each, taken in turns: seconds (minimum, median, maximum) and MB/s of ``fetch_range()``, ``batches()`` and
``log_transactions()`` in process, and of Kafka's ConsumerPerformance by its own clock, from its first fetch on, and
as a process.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.sources.fetched_chunks import fetched_chunks
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.sources.live.partition_log import FetchedChunk

RECORD = 1000  # bytes
TOPICS: Mapping[str, Sequence[str]] = {
    "transactions": ("--transactional-id", "bench", "--transaction-duration-ms", "5"),
    "plain": (),
}
PROPS = {
    "transactions": ("batch.size=4096",),
    "plain": ("batch.size=1000000", "linger.ms=20", "max.request.size=2000000"),
}
SETTINGS = {"log.segment.bytes": 1 << 30, "message.max.bytes": 2_000_000}


def produce(kafka: Kafka, topic: str, records: int) -> None:
    server = f"bootstrap.servers={kafka.bootstrap_servers}"
    sizes = ("--num-records", str(records), "--record-size", str(RECORD), "--throughput", "-1")
    done = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, *sizes, *TOPICS[topic], "--producer-props", server, *PROPS[topic]),
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr


def consume(kafka: Kafka, topic: str, records: int) -> float:
    """Seconds that ConsumerPerformance itself counts, without its start and the group's rebalance."""
    done = kafka.run_tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--messages", str(records)),
        *("--timeout", "60000"),
        timeout=3600,
    )
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("start.time"))
    found = dict(zip(lines[at].split(", "), lines[at + 1].split(", "), strict=True))
    assert int(found["data.consumed.in.nMsg"]) == records, found
    return float(found["fetch.time.ms"]) / 1000


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def count(chunks: Iterable[FetchedChunk]) -> int:
    return sum(len(chunk.headers) for chunk in chunks)


def measure(kafka: Kafka, topic: str, records: int, runs: int) -> None:
    times: dict[str, list[float]] = {}
    with Cluster(kafka.bootstrap_servers) as cluster:
        size = int(cluster.batches(topics=topic, partitions=0)["size"].sum())  # and a warm cache for all
        ours: Mapping[str, Callable[[], object]] = {
            "fetch_range()": lambda: sum(len(piece.headers) for piece in fetched_chunks(cluster, topic)),
            "fetch_range(crc=True)": lambda: sum(len(p.headers) for p in fetched_chunks(cluster, topic, crc=True)),
            "Cluster.batches()": lambda: cluster.batches(topics=topic, partitions=0),
            "Cluster.log_transactions()": lambda: cluster.log_transactions(topics=topic, partitions=0),
        }
        for _ in range(runs):
            for name, run in ours.items():
                times.setdefault(name, []).append(timed(run))
            start = time.perf_counter()
            times.setdefault("ConsumerPerformance, fetching only", []).append(consume(kafka, topic, records))
            times.setdefault("ConsumerPerformance, as a process", []).append(time.perf_counter() - start)
    print(f"{topic}: {size / 1e6:,.0f} MB, {runs} runs: min, median, max")
    for name, taken in times.items():
        figures = f"{min(taken):7.2f} {statistics.median(taken):7.2f} {max(taken):7.2f} s"
        print(f"  {name:<36}{figures}{size / 1e6 / statistics.median(taken):9,.0f} MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    records = arguments.megabytes * 1_000_000 // RECORD
    with Kafka("4.3.1", properties=SETTINGS, heap="1g") as kafka:
        admin = AdminClient({**kafka.client_config()})
        new = [NewTopic(topic, num_partitions=1, replication_factor=1) for topic in TOPICS]
        for created in admin.create_topics(new).values():
            created.result()
        for topic in TOPICS:
            produce(kafka, topic, records)
            measure(kafka, topic, records, arguments.runs)
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
