"""Benchmarks, each beside a peer in the same run: ``python -m tests.tools.bench NAME [--runs 5] [--size N ...]``.

``live``: find-hanging against Kafka's own tool on one broker; size: partitions. ``cluster``: one diagnosis, and with
``--record`` a sample, of brokers that `tests.tools.fake_cluster` simulates; size: partitions:ids:brokers.
``live-log``: the log of a live partition against Kafka's consumer; size: megabytes. ``files``: segments and log
directories against DumpLogSegments; ``records``: histories of ids against kafka-python's decoder; size: records.
``spark``: the pipeline against DumpLogSegments; size of both: gigabytes. Prints minimum, median and maximum of the
runs, processor time with that of all processes that were started, and the median ratio to the peer.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka.record import MemoryRecords

from tests.builders import create_topics
from toolkit import Cluster, LogDir
from toolkit.analysis.log.log_transactions import begin, finish, merge, partial_transactions
from toolkit.analysis.transaction_history import transaction_history
from toolkit.formats.coordinator_log_rows import transaction_log
from toolkit.formats.coordinator_records import STATE_TOPIC, STATES
from toolkit.formats.scan import scan, scan_file
from toolkit.java import find_java
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, config_of
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema.log import TransactionLogRecord
from toolkit.sources.live.broker_client import BrokerClient, write_batch

Cases = Mapping[str, Callable[[], object]]
KAFKA_TXN = str(Path(sys.executable).with_name("kafka-txn"))
PR_SET_CHILD_SUBREAPER = 36  # prctl.h: processes whose parent has ended become children of this one
SHIPPED = ["-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
QUICK = ["-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
DUMP = "org.apache.kafka.tools.DumpLogSegments"
PER_TOPIC, COPIES = 100, 4
HEALTHY, OPEN, HELD = "healthy", "open", "held"
BIG_SEGMENTS = {
    **EVERYDAY.properties,
    "log.retention.check.interval.ms": 10_000_000,
    "log.segment.bytes": 1 << 30,
    "log.index.size.max.bytes": 10 << 20,
    "message.max.bytes": 2_000_000,
}


def compare(title: str, cases: Cases, *, runs: int, peer: str = "", size: int = 0) -> None:
    """Run the cases in turns; the first round, which warms caches, does not count."""
    rounds = [{name: _measured(run) for name, run in cases.items()} for _ in range(runs + 1)][1:]
    print(f"\n{title}, {runs} runs: min, median, max; processor time; of {peer or 'no peer'}")
    for name in cases:
        clock, processor = zip(*(each[name] for each in rounds), strict=True)
        median = statistics.median(clock)
        ratio = statistics.median(each[name][0] / each[peer][0] for each in rounds) if peer else 1
        speed = f"{size / median / 1e9:8.2f} GB/s" if size else ""
        seconds = f"{min(clock):8.3f} {median:8.3f} {max(clock):8.3f} s {statistics.median(processor):8.2f} s"
        print(f"  {name:<48}{seconds} {ratio:6.2f}x{speed}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"  the largest process so far: {peak:,.0f} MB")


def _measured(run: Callable[[], object]) -> tuple[float, float]:
    before, start = _processor_seconds(), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return seconds, _processor_seconds() - before


def _processor_seconds() -> float:
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def process(*command: object, output: Path = Path(os.devnull)) -> None:
    """Run a command; 1 and 3 say that something hangs or is not known."""
    with output.open("wb") as out:
        code = subprocess.run([*map(str, command)], stdout=out, stderr=subprocess.DEVNULL, check=False).returncode
    assert code in {0, 1, 3}, f"{command} ended with {code}"


def java(kafka: Kafka, *options: str) -> list[str]:
    return [str(find_java()), *(options or ["-Xmx512M"]), "-cp", kafka.classpath]


def perf_test(kafka: Kafka, topic: str, records: int, size: int, *options: str, props: Sequence[str] = ()) -> None:
    """Records that ProducerPerformance writes."""
    done = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1", *options),
        *("--producer-props", f"bootstrap.servers={kafka.bootstrap_servers}", *props),
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr


def live(sizes: Sequence[str], runs: int) -> None:
    """Clusters in which one partition in a hundred has an open transaction."""
    small = {f"{name}.num.partitions": 1 for name in ("offsets.topic", "transaction.state.log")}
    producers, done = [], 0
    with Kafka("4.3.1", properties={"log.index.size.max.bytes": 65_536, **small}, heap="2g") as kafka:
        for count in map(int, sizes or ["1000", "3000", "15000"]):
            for number in range(done, count // PER_TOPIC):
                create_topics(kafka, topic := f"bench-{number}", partitions=PER_TOPIC)
                own = {"transactional.id": topic, "transaction.timeout.ms": 900_000, "log_level": 0}
                producers.append(Producer(kafka.client_config() | own))
                producers[-1].init_transactions()
                producers[-1].begin_transaction()
                producers[-1].produce(topic, b"value", partition=0)
                producers[-1].flush()
            done = count // PER_TOPIC
            where = ["--bootstrap-server", kafka.bootstrap_servers]
            theirs = ["org.apache.kafka.tools.TransactionsCommand", *where, "find-hanging", "--broker-id", "1"]
            with Cluster(kafka.bootstrap_servers) as cluster:
                while any(row["error"] for row in cluster.partition_rows()):
                    pass  # the broker is still creating their logs
                cases: Cases = {
                    "kafka-txn find-hanging": partial(
                        process, KAFKA_TXN, "find-hanging", *where, "--recheck-after", "0"
                    ),
                    "Kafka's tool, as shipped": partial(process, *java(kafka, *SHIPPED), *theirs),
                    "Kafka's tool, quick start": partial(process, *java(kafka, *QUICK), *theirs),
                    "Cluster.findings() in process": partial(cluster.findings, recheck_after=0),
                }
                compare(f"{count:,} partitions", cases, runs=runs, peer="Kafka's tool, quick start")
    imports: Cases = {
        each or "nothing": partial(process, sys.executable, "-c", each) for each in ("", "import toolkit")
    }
    compare("imports", imports, runs=runs, peer="nothing")


def cluster(sizes: Sequence[str], runs: int, *, record: bool = False) -> None:
    """In a process of its own, whose peak memory counts; the first observation waits while the server encodes."""
    code = (
        "import sys; from toolkit import Cluster\n"
        "with Cluster(sys.argv[1], timeout=300) as cluster: cluster.finding_rows(recheck_after=0)"
    )
    for size in sizes or ["1000:1000:1", "3000:10000:10", "20000:100000:100", "200000:1000000:100"]:
        options = zip(("--partitions", "--ids", "--brokers"), size.split(":"), strict=True)
        command = [sys.executable, "-m", "tests.tools.fake_cluster", *(word for each in options for word in each)]
        with (
            tempfile.TemporaryDirectory() as folder,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        ):
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            once = partial(process, sys.executable, "-c", code, address)
            sample = [KAFKA_TXN, "record", "--bootstrap-server", address, "--output", folder, "--samples", "1"]
            compare(size, {"a sample": partial(process, *sample)} if record else {"a diagnosis": once}, runs=runs)
            written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
            print(f"  {written / (runs + 1) / 1e6:.2f} MB written each time")
            server.kill()


def live_log(sizes: Sequence[str], runs: int) -> None:
    """Transactions of a few milliseconds in small batches, and large plain batches."""
    records = int((sizes or ["1000"])[0]) * 1000
    with Kafka("4.3.1", properties=BIG_SEGMENTS, heap="1g") as kafka, Cluster(kafka.bootstrap_servers) as cluster:
        create_topics(kafka, "transactions", "plain")
        ids = ["--transactional-id", "bench", "--transaction-duration-ms", "5"]
        perf_test(kafka, "transactions", records, 1000, *ids, props=["batch.size=4096"])
        large = ["batch.size=1000000", "linger.ms=20", "max.request.size=2000000"]
        perf_test(kafka, "plain", records, 1000, props=large)
        for topic in ("transactions", "plain"):
            consumer = ["--topic", topic, "--messages", str(records), "--timeout", "60000"]
            theirs = ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", kafka.bootstrap_servers]
            cases: Cases = {
                "Cluster.batches()": partial(cluster.batches, topics=topic, partitions=0),
                "Cluster.log_transactions()": partial(cluster.log_transactions, topics=topic, partitions=0),
                "ConsumerPerformance": partial(process, *java(kafka), *theirs, *consumer),
            }
            size = int(cluster.batches(topics=topic, partitions=0)["size"].sum())
            compare(topic, cases, runs=runs, peer="ConsumerPerformance", size=size)


def fill(kafka: Kafka, topic: str, gigabytes: float) -> None:
    """Transactions of a few milliseconds; `HELD` begins with one that was never added, `OPEN` ends with three open."""
    create_topics(kafka, topic)
    with BrokerClient(config_of(kafka)) as client:
        if topic == HELD:
            TxnProducer(client, "hung").init().send(topic, 0)
        ids = ["--transactional-id", topic, "--transaction-duration-ms", "4"]
        perf_test(kafka, topic, int(gigabytes * 1.08e9 / 208), 200, *ids, props=["batch.size=4096", "linger.ms=0"])
        for number in range(3 if topic == OPEN else 0):
            producer = TxnProducer(client, f"open-{number}").init()
            producer.add(topic, 0)
            producer.send(topic, 0)


def log_directory(folder: Path, logs: Path, topic: str) -> Path:
    """A log directory with four partitions of a topic (hard links), and all that its broker left beside them."""
    folder.mkdir()
    for path in logs.iterdir():
        if path.name.startswith("__transaction_state"):
            shutil.copytree(path, folder / path.name, copy_function=os.link)
        elif path.name == f"{topic}-0":
            for number in range(COPIES):
                shutil.copytree(path, folder / f"{topic}-{number}", copy_function=os.link)
        elif path.name.endswith("offset-checkpoint") and path.stat().st_size:
            version, _, *lines = path.read_text().splitlines()
            kept = [line for line in lines if not line.startswith((f"{HEALTHY} ", f"{OPEN} ", f"{HELD} "))]
            offsets = [line.split()[2] for line in lines if line.startswith(f"{topic} ")]
            kept += [f"{topic} {number} {offset}" for offset in offsets for number in range(COPIES)]
            (folder / path.name).write_text("\n".join([version, str(len(kept)), *kept, ""]))
            shutil.copystat(path, folder / path.name)
        elif path.is_file():
            shutil.copy2(path, folder)
    return folder


def left_by_broker(folder: Path, gigabytes: float, *topics: str) -> list[str]:
    """The log directory of a broker that wrote these topics; the command of Kafka's tools."""
    with Kafka("4.3.1", properties=BIG_SEGMENTS) as kafka:
        for topic in topics:
            fill(kafka, topic, gigabytes)
        kafka.stop_broker(1)
        shutil.copytree(kafka.log_dirs[1], folder, copy_function=shutil.copy2)
        return java(kafka)


def segments(folder: Path, topic: str) -> list[Path]:
    return sorted(folder.glob(f"{topic}-*/*.log"))


def transactions(path: Path, *, crc: bool) -> None:
    parts = [partial_transactions(scanned.headers) for scanned in scan_file(path, crc=crc)]
    finish(merge(begin(), *parts))


def files(sizes: Sequence[str], runs: int) -> None:
    """All is well, three transactions are open at the end, or the first batch opened one that hangs."""
    with tempfile.TemporaryDirectory(prefix="kafka-txn-bench-") as scratch:
        logs = Path(scratch, "logs")
        tool = left_by_broker(logs, float((sizes or ["1"])[0]), HEALTHY, OPEN, HELD)
        segment = max(segments(logs, HEALTHY), key=lambda path: path.stat().st_size)
        cases: Cases = {
            "cat": partial(process, "cat", segment),
            "transactions": partial(transactions, segment, crc=False),
            "transactions, every CRC checked": partial(transactions, segment, crc=True),
        }
        compare("one segment, page-cached", cases, runs=runs, peer="cat", size=segment.stat().st_size)
        for topic in (HEALTHY, OPEN, HELD):
            folder = log_directory(Path(scratch, topic), logs, topic)
            size = sum(path.stat().st_size for path in segments(folder, topic))
            dump = [*tool, DUMP, "--deep-iteration", "--files", ",".join(map(str, segments(folder, topic)))]
            if topic == HEALTHY:
                tools: Cases = {
                    "kafka-txn txn-stat": partial(process, KAFKA_TXN, "txn-stat", folder),
                    "DumpLogSegments": partial(process, *dump, output=Path(scratch, "dump.txt")),
                }
                compare("four partitions", tools, runs=1, peer="DumpLogSegments", size=size)
            directory = LogDir(folder, consistent_copy=True)
            found: Cases = {
                "log_transactions": partial(directory.log_transactions, topics=[topic]),
                "findings": partial(directory.findings, topics=[topic]),
                "findings, min_held_ms=60000": partial(directory.findings, topics=[topic], min_held_ms=60_000),
            }
            compare(f"{topic}, four partitions", found, runs=runs, peer="log_transactions", size=size)


def state_batches(count: int) -> Iterator[bytes]:
    """Batches of ``__transaction_state``, one record each: transactions of 500 ids that commit, every tenth aborts."""
    start_of_all, step_of_time = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC), dt.timedelta(milliseconds=100)
    for number in range(count // 3):
        name, round_ = number % 500, number // 500
        end = "Abort" if number % 10 == 0 else "Commit"
        states = ["Ongoing", f"Prepare{end}", f"Complete{end}"]
        if number >= count // 3 - 500 and name < 20:  # open, or stuck
            states = states[: 1 + name // 10]
        start = start_of_all + 3 * number * step_of_time
        for step, state in enumerate(states):
            value = struct.pack(">hqhib", 1, name, round_ % 30_000, 60_000, STATES.index(state))
            partitions = struct.pack(">2i", number % 12, 12 + round_ % 12)
            value += b"\x02\x07orders\x03" + partitions + b"\0" if step < 2 else b"\0"
            times = (start + min(step, 1) * step_of_time, start)
            value += struct.pack(">qq", *(int(each.timestamp() * 1000) for each in times)) + b"\x01\x02\x02\x00\x00"
            key = f"payments-{name}".encode()
            records = [(struct.pack(">hh", 0, len(key)) + key, value)]
            yield write_batch(records, timestamp=start + step * step_of_time, base_offset=3 * number + step)


def kafka_python_records(data: bytes) -> None:
    batches = MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        assert all(record.key is not None for record in batch)


def history_in_memory(data: bytes) -> None:
    where = TransactionLogRecord(txn_state_partition=0)
    positions = scan(data).headers["position"].tolist()
    transaction_history(record for at in positions for record in transaction_log(data, at, where=where))


def records(sizes: Sequence[str], runs: int) -> None:
    data = b"".join(state_batches(int((sizes or ["90000"])[0])))
    with tempfile.TemporaryDirectory(prefix="kafka-txn-bench-") as folder:
        log = Path(folder, f"{STATE_TOPIC}-0", f"{0:020}.log")
        log.parent.mkdir()
        log.write_bytes(data)
        Path(folder, "meta.properties").write_text("node.id=1\nversion=1\ncluster.id=xRkncQT9TEa2WI1kTHANEQ\n")
        directory, half = LogDir(folder), [f"payments-{number}" for number in range(0, 500, 2)]
        cases: Cases = {
            "MemoryRecords": partial(kafka_python_records, data),
            "histories, in memory": partial(history_in_memory, data),
            "LogDir.transaction_history()": directory.transaction_history,
            "the same of half of the ids": partial(directory.transaction_history, transactional_ids=half),
            "LogDir.transaction_log()": directory.transaction_log,
        }
        compare(f"{len(data) / 1e6:.1f} MB of records", cases, runs=runs, peer="MemoryRecords")


def spark(sizes: Sequence[str], runs: int) -> None:
    """Logs with a transaction open at their start, as whole processes, of which Spark's session takes seconds."""
    session = (
        "from toolkit.spark.spark_session import *\n"
        "local_session(master='local[2]', config={**SMALL, **delta_settings()}).range(1).count()"
    )
    with tempfile.TemporaryDirectory(prefix="kafka-txn-bench-") as scratch:
        logs = Path(scratch, "logs")
        tool = left_by_broker(logs, float((sizes or ["1"])[0]), HELD)
        folder, text = log_directory(Path(scratch, "four"), logs, HELD), Path(scratch, "dump.txt")
        dump = [*tool, DUMP, "--files", ",".join(map(str, segments(folder, HELD)))]
        size = sum(path.stat().st_size for path in segments(folder, HELD))
        number = iter(range(1000))

        def pipeline(target: str) -> None:
            options = ["--input", folder, "--consistent-copy", "--output", Path(scratch, target)]
            process(KAFKA_TXN, "pipeline", *options, "--master", "local[2]")

        cases: Cases = {
            "DumpLogSegments, batches only": partial(process, *dump, output=text),
            "DumpLogSegments --deep-iteration": partial(process, *dump, "--deep-iteration", output=text),
            "the start of a session": partial(process, sys.executable, "-c", session),
            "kafka-txn pipeline, first run": lambda: pipeline(f"tables{next(number)}"),
            "kafka-txn pipeline, nothing new": lambda: pipeline("tables0"),
        }
        compare("four logs", cases, runs=runs, peer="DumpLogSegments --deep-iteration", size=size)


BENCHMARKS: Mapping[str, Callable[..., None]] = {
    "live": live, "cluster": cluster, "live-log": live_log, "files": files, "records": records, "spark": spark,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=[*BENCHMARKS])
    parser.add_argument("--size", nargs="+", default=[])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="of cluster: samples of the recorder")
    requested = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    more: dict[str, Any] = {"record": True} if requested.record else {}
    BENCHMARKS[requested.benchmark](requested.size, requested.runs, **more)


if __name__ == "__main__":
    main()
