"""Reading logs: transactions and findings in process, and ``kafka-txn txn-stat`` against Kafka's own DumpLogSegments.

    python tests/tools/bench/bench_scan.py [--gigabytes 1] [--record-size 200] [--runs 5] [--keep DIR | --logs DIR]

A real producer (ProducerPerformance, transactions of a few milliseconds) writes three topics on a broker started for
it: one in which all is well, one that ends with three open transactions, and one whose first batch opened a
transaction that hangs. On a segment, page-cached: transactions with and without every CRC; ``cat`` of the same file
beside them; the command over a directory of four such partitions against DumpLogSegments --deep-iteration writing its
text to a file; and peak memory of the command over one, four and ten. On log directories of four partitions of each
topic: findings against the transactions of the same bytes. Partitions are hard links of one. Prints minimum, median
and maximum of the runs, and ratios in the same run. Reading a live partition is measured by bench_live_log.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from toolkit.analysis.log.log_transactions import finish, merge, partial_transactions
from toolkit.config import ClientConfig
from toolkit.formats.scan import scan_file
from toolkit.java import find_java
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.logdir import LogDir

KAFKA_TXN = Path(sys.executable).parent / "kafka-txn"
HEALTHY, OPEN, HELD = "healthy", "open", "held"
COPIES = 4
SETTINGS = {
    "log.retention.check.interval.ms": 10_000_000,
    "log.segment.bytes": 1 << 30,
    "log.index.size.max.bytes": 10 << 20,
    **EVERYDAY.properties,
}


def fill(kafka: Kafka, topic: str, gigabytes: float, record_size: int) -> None:
    """Transactions of a few milliseconds; `HELD` begins with one that was never added, `OPEN` ends with three open."""
    admin = AdminClient({**kafka.client_config()})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result()
    if topic == HELD:
        client = BrokerClient(ClientConfig(kafka.bootstrap_servers))
        TxnProducer(client, "hung").init().send(topic, 0)
        client.close()
    records = int(gigabytes * 1.08e9 / (record_size + 8))
    done = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_size)),
        *("--throughput", "-1", "--transactional-id", topic, "--transaction-duration-ms", "4"),
        *("--producer-props", f"bootstrap.servers={kafka.bootstrap_servers}", "batch.size=4096", "linger.ms=0"),
        timeout=3600,
    )
    print(done.stdout.splitlines()[-1])
    if topic == OPEN:
        client = BrokerClient(ClientConfig(kafka.bootstrap_servers))
        for number in range(3):
            producer = TxnProducer(client, f"open-{number}").init()
            producer.add(topic, 0)
            producer.send(topic, 0)
        client.close()


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak(command: Sequence[str]) -> tuple[float, float]:
    """Seconds and peak resident megabytes of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def row(name: str, times: Sequence[float], size: int, peer: float | None = None) -> None:
    median = statistics.median(times)
    ratio = "" if peer is None else f"   {peer / median:6.1f}x"
    figures = f"{min(times):8.3f} {median:8.3f} {max(times):8.3f} s   {size / median / 1e9:6.2f} GB/s"
    print(f"  {name:<52}{figures}{ratio}")


def log_transactions(path: Path, *, crc: bool) -> int:
    whole = None
    for scanned in scan_file(path, crc=crc):
        one = partial_transactions(scanned.headers)
        whole = one if whole is None else merge(whole, one)
    return 0 if whole is None else len(finish(whole, from_start=True, opened_before=None))


def log_directory(folder: Path, logs: Path, topic: str) -> Path:
    """A log directory with four partitions of a topic, and all that its broker left beside them."""
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


def partitions(folder: Path, segment: Path, count: int) -> Path:
    """A log directory of so many partitions, each with the segment."""
    for number in range(count):
        partition_folder = folder / f"{HEALTHY}-{number}"
        partition_folder.mkdir(parents=True)
        os.link(segment, partition_folder / f"{0:020}.log")
    return folder


def files(runs: int, segment: Path, scratch: Path, java: Sequence[str]) -> None:
    size = segment.stat().st_size
    print(f"\none segment of {size / 1e9:.2f} GB, page-cached, {runs} runs: min, median, max")
    cat = [timed(lambda: subprocess.run(["cat", str(segment)], stdout=subprocess.DEVNULL)) for _ in range(runs + 1)][1:]
    row("cat > /dev/null", cat, size)
    found = log_transactions(segment, crc=True)  # compiled, and in memory
    row("transactions in process", [timed(lambda: log_transactions(segment, crc=False)) for _ in range(runs)], size)
    row(
        "transactions in process, every CRC checked",
        [timed(lambda: log_transactions(segment, crc=True)) for _ in range(runs)],
        size,
    )
    print(f"  {found:,} transactions")

    four = partitions(scratch / "four", segment, 4)
    text = scratch / "dump.txt"
    logs = ",".join(str(path) for path in sorted(four.glob("*/*.log")))
    dump = [*java, "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", logs]

    def dump_log() -> None:
        with text.open("wb") as out:
            subprocess.run(dump, stdout=out, check=True)

    print(f"\na directory of {4 * size / 1e9:.2f} GB in 4 partitions, as processes")
    dumped = timed(dump_log)
    row("DumpLogSegments --deep-iteration > file", [dumped], 4 * size)
    print(f"  its text: {text.stat().st_size / 1e9:.2f} GB")
    text.unlink()
    measured = [peak([str(KAFKA_TXN), "txn-stat", str(four)]) for _ in range(runs)]
    row("kafka-txn txn-stat", [seconds for seconds, _ in measured], 4 * size, dumped)

    print("\npeak resident memory of kafka-txn txn-stat")
    for count in (1, 4, 10):
        folder = four if count == 4 else partitions(scratch / f"{count}", segment, count)
        seconds, megabytes = peak([str(KAFKA_TXN), "txn-stat", str(folder)])
        print(f"  {count * size / 1e9:6.2f} GB: {megabytes:6.0f} MB, {seconds:6.2f} s")


def findings(runs: int, logs: Path, scratch: Path) -> None:
    """Findings against the transactions of the same bytes, round by round."""
    for topic in (HEALTHY, OPEN, HELD):
        files = LogDir(log_directory(scratch / topic, logs, topic), consistent_copy=True)
        size = sum(path.stat().st_size for path in scratch.glob(f"{topic}/{topic}-*/*.log"))
        verdicts = ", ".join(sorted(set(files.findings(topics=[topic])["verdict"])))
        print(f"\n{topic}: {size / 1e9:.2f} GB in {COPIES} partitions, in process; {verdicts}")
        runs_by_name: dict[str, Callable[[], object]] = {
            "log_transactions": lambda files=files, topic=topic: files.log_transactions(topics=[topic]),  # type: ignore[misc]
            "findings": lambda files=files, topic=topic: files.findings(topics=[topic]),  # type: ignore[misc]
            "findings, min_held_ms=60000": lambda files=files, topic=topic: files.findings(
                topics=[topic], min_held_ms=60_000
            ),  # type: ignore[misc]
        }
        times = [{name: timed(run) for name, run in runs_by_name.items()} for _ in range(runs + 1)][1:]
        for name in runs_by_name:
            ratio = statistics.median(each[name] / each["log_transactions"] for each in times)
            row(name, [each[name] for each in times], size)
            print(f"    {ratio:.2f} of the transactions, median of the rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--record-size", type=int, default=200, help="bytes")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--logs", type=Path, help="a log directory kept earlier")
    parser.add_argument("--keep", type=Path, help="folder to keep the log directory in, on the same file system")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kafka-txn-bench-", dir=arguments.logs or arguments.keep) as scratch,
        Kafka("4.3.1", properties=SETTINGS) as kafka,
    ):
        java = [str(find_java()), "-Xmx512M", "-cp", kafka.classpath]
        logs = arguments.logs
        if logs is None:
            for topic in (HEALTHY, OPEN, HELD):
                fill(kafka, topic, arguments.gigabytes, arguments.record_size)
        kafka.stop_broker(1)
        if logs is None:
            logs = Path(arguments.keep or scratch) / "logs"
            shutil.copytree(kafka.log_dirs[1], logs, copy_function=shutil.copy2)
        segment = max((logs / f"{HEALTHY}-0").glob("*.log"), key=lambda path: path.stat().st_size)
        files(arguments.runs, segment, Path(scratch), java)
        findings(arguments.runs, logs, Path(scratch))


if __name__ == "__main__":
    main()
