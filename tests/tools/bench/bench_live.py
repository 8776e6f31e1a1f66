"""The whole-cluster search as a process against Kafka's own tool, on the same broker in the same run.

    python tests/tools/bench/bench_live.py [--partitions 1000 3000 10000] [--runs 7]

Prints, per number of partitions: wall time of ``kafka-txn find-hanging --recheck-after 0`` and of Kafka's
TransactionsCommand with the flags of kafka-run-class and with quick-start flags (minimum, median, maximum, taken in
turns), the ratio of the medians, and ``Cluster.findings()`` in process. Both tools search the same partitions, of which
one in a hundred has an open transaction. Last: the time of ``import toolkit``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from toolkit import Cluster
from toolkit.java import find_java
from toolkit.lab import Kafka

KAFKA_TXN = Path(sys.executable).parent / "kafka-txn"
AS_SHIPPED = "-Xmx256M -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
QUICK = "-Xmx256M -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PER_TOPIC = 100
BROKER = {
    "log.index.size.max.bytes": 65_536,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


def create(kafka: Kafka, topics: range) -> None:
    """Topics of a hundred partitions, one with an open transaction each."""
    admin = AdminClient({**kafka.client_config()})
    names = [f"bench-{i}" for i in topics]
    for future in admin.create_topics(
        [NewTopic(n, num_partitions=PER_TOPIC, replication_factor=1) for n in names]
    ).values():
        future.result()
    producer = Producer(
        kafka.client_config()
        | {"transactional.id": f"bench-{topics}", "transaction.timeout.ms": 900_000, "log_level": 0}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for name in names:
        producer.produce(name, b"value", partition=0)
    producer.flush()
    HELD_OPEN.append(producer)
    with Cluster(kafka.bootstrap_servers) as cluster:
        while any(row["error"] for row in cluster.partition_rows(topics=names)):
            pass  # the broker is still creating their logs


HELD_OPEN: list[Producer] = []


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def process(command: Sequence[str]) -> Callable[[], object]:
    def run() -> object:
        return subprocess.run(command, check=True, capture_output=True, env=os.environ)

    return run


def row(name: str, times: Sequence[float], peer: float | None = None) -> str:
    figures = f"{min(times):8.3f} {statistics.median(times):8.3f} {max(times):8.3f} s"
    ratio = "" if peer is None else f"   {statistics.median(times) / peer:5.2f}x"
    return f"  {name:<44}{figures}{ratio}"


def measure(kafka: Kafka, runs: int) -> None:
    server = kafka.bootstrap_servers
    java = [str(find_java()), "-cp", kafka.classpath, "org.apache.kafka.tools.TransactionsCommand"]
    java += ["--bootstrap-server", server, "find-hanging", "--broker-id", "1"]
    ours = [str(KAFKA_TXN), "find-hanging", "--bootstrap-server", server, "--recheck-after", "0"]
    commands = {
        "kafka-txn find-hanging --recheck-after 0": process(ours),
        "TransactionsCommand find-hanging, as shipped": process([java[0], *AS_SHIPPED.split(), *java[1:]]),
        "TransactionsCommand find-hanging, quick start": process([java[0], *QUICK.split(), *java[1:]]),
    }
    with Cluster(server) as cluster:
        commands["Cluster.findings(recheck_after=0) in process"] = lambda: cluster.findings(recheck_after=0)
        times = {name: [timed(run) for _ in range(1)] for name, run in commands.items()}  # a warm page cache for all
        times = {name: [] for name in commands}
        for _ in range(runs):
            for name, run in commands.items():
                times[name].append(timed(run))
    shipped, quick = (statistics.median(times[name]) for name in list(commands)[1:3])
    for name, measured in times.items():
        print(row(name, measured, min(shipped, quick)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 3000, 10_000])
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    with Kafka("4.3.1", properties=BROKER, heap="2g") as kafka:
        done = 0
        for partitions in arguments.partitions:
            for first in range(done, partitions // PER_TOPIC, 10):
                create(kafka, range(first, min(first + 10, partitions // PER_TOPIC)))
            done = partitions // PER_TOPIC
            print(f"{partitions} partitions, {done} with an open transaction, {arguments.runs} runs: min, median, max")
            measure(kafka, arguments.runs)
    imports = [timed(process([sys.executable, "-c", "import toolkit"])) for _ in range(arguments.runs)]
    bare = [timed(process([sys.executable, "-c", "pass"])) for _ in range(arguments.runs)]
    print(row("python -c 'import toolkit'", imports))
    print(row("python -c 'pass'", bare))


if __name__ == "__main__":
    main()
