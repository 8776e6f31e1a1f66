"""Reading segments: spans in process, and ``kafka-txn txn-stat`` against Kafka's own DumpLogSegments.

    python tests/bench/bench_scan.py [--gigabytes 1] [--record-size 200] [--runs 5] [--keep DIR]

A real producer (ProducerPerformance, transactions of a few milliseconds) writes a topic on a
broker started for it. On its segment, page-cached: spans in process with and without every CRC; ``cat`` of the same
file beside them; the command over a directory of four such partitions against DumpLogSegments --deep-iteration writing
its text to a file; and peak memory of the command over one, four and ten (hard links of the same segment). Prints
minimum, median and maximum of the runs, and ratios in the same run. Reading a live partition is measured by
bench_live_log.py.
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

from toolkit.analysis.spans import finish, merge, piece
from toolkit.formats.scan import scan_file
from toolkit.lab import Kafka
from toolkit.lab.java import find_java

KAFKA_TXN = Path(sys.executable).parent / "kafka-txn"
TOPIC = "bench"
SETTINGS = {"log.retention.check.interval.ms": 10_000_000, "log.segment.bytes": 1 << 30}


def fill(kafka: Kafka, gigabytes: float, record_size: int) -> None:
    """Transactions of a few milliseconds, batches of 4 KB."""
    admin = AdminClient({**kafka.client_config()})
    admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])[TOPIC].result()
    records = int(gigabytes * 1.08e9 / (record_size + 8))
    done = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(records), "--record-size", str(record_size)),
        *("--throughput", "-1", "--transactional-id", TOPIC, "--transaction-duration-ms", "4"),
        *("--producer-props", f"bootstrap.servers={kafka.bootstrap_servers}", "batch.size=4096", "linger.ms=0"),
        timeout=3600,
    )
    print(done.stdout.splitlines()[-1])


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


def spans(path: Path, *, crc: bool) -> int:
    whole = None
    for scanned in scan_file(path, crc=crc):
        one = piece(scanned.headers)
        whole = one if whole is None else merge(whole, one)
    return 0 if whole is None else len(finish(whole, from_start=True, opened_before=None))


def partitions(folder: Path, segment: Path, count: int) -> Path:
    """A log directory of so many partitions, each with the segment."""
    for number in range(count):
        place = folder / f"{TOPIC}-{number}"
        place.mkdir(parents=True)
        os.link(segment, place / f"{0:020}.log")
    return folder


def files(runs: int, segment: Path, scratch: Path, java: Sequence[str]) -> None:
    size = segment.stat().st_size
    print(f"\none segment of {size / 1e9:.2f} GB, page-cached, {runs} runs: min, median, max")
    cat = [timed(lambda: subprocess.run(["cat", str(segment)], stdout=subprocess.DEVNULL)) for _ in range(runs + 1)][1:]
    row("cat > /dev/null", cat, size)
    found = spans(segment, crc=True)  # compiled, and in memory
    row("spans in process", [timed(lambda: spans(segment, crc=False)) for _ in range(runs)], size)
    row("spans in process, every CRC checked", [timed(lambda: spans(segment, crc=True)) for _ in range(runs)], size)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--record-size", type=int, default=200, help="bytes")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--segment", type=Path, help="a segment made earlier")
    parser.add_argument("--keep", type=Path, help="folder to keep the segment in")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kafka-txn-bench-") as scratch,
        Kafka("4.3.1", properties=SETTINGS) as kafka,
    ):
        java = [str(find_java()), "-Xmx512M", "-cp", kafka.classpath]
        segment = arguments.segment
        if segment is None:
            fill(kafka, arguments.gigabytes, arguments.record_size)
            source = max((kafka.log_dirs[1] / f"{TOPIC}-0").glob("*.log"), key=lambda path: path.stat().st_size)
            segment = Path(shutil.copy(source, arguments.keep or scratch))
        kafka.stop_broker(1)
        if Path(scratch).stat().st_dev != segment.stat().st_dev:
            segment = Path(shutil.copy(segment, scratch))
        files(arguments.runs, segment, Path(scratch), java)


if __name__ == "__main__":
    main()
