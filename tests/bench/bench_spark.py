"""The pipeline on Spark: batches -> spans -> timeline -> findings over gigabytes, and the plain ways beside it.

    python tests/bench/bench_spark.py [--gigabytes 8] [--runs 3] [--logs DIR] [--keep DIR]

A real producer (ProducerPerformance, transactions of a few milliseconds, batches of 4 KB) writes one segment on a
broker started for it; the log directory that the broker leaves gets it in several partitions (hard links), page-cached.
Each figure comes from a Spark of its own, with local[1] and local[2]: how long the first job takes, then the runs. The
peers run with the same settings: `binaryFile` with a Python function per segment that walks the headers, and the text
of DumpLogSegments through `spark.read.text` and regular expressions, the dump itself included. Then the command
`kafka-txn pipeline` over the directory, with every table stored, and the memory of all its processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_scan import SETTINGS, TOPIC, fill, timed  # type: ignore[import-not-found]

from toolkit.lab import Kafka
from toolkit.lab.java import find_java
from toolkit.lab.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_TXN = Path(sys.executable).parent / "kafka-txn"
SPARK = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
DUMP_LINE = r"^baseOffset: (\d+) lastOffset: (\d+) .*producerId: (-?\d+) .*isTransactional: (\w+) isControl: (\w+)"


def directory(out: Path, gigabytes: float) -> Path:
    """A broker's log directory with so many partitions of one gigabyte."""
    with Kafka("4.3.1", properties=SETTINGS) as kafka:
        fill(kafka, 1.0, 1000)
        kafka.stop_broker(1)
        shutil.copytree(kafka.log_dirs[1], out, copy_function=shutil.copy2)
        kafka.start_broker(1)
    first = out / f"{TOPIC}-0"
    for number in range(1, round(gigabytes)):
        folder = out / f"{TOPIC}-{number}"
        folder.mkdir()
        for file in first.iterdir():
            os.link(file, folder / file.name)
    return out


def segments(logs: Path) -> list[Path]:
    return sorted(path for path in logs.glob("*/*.log") if not path.parent.name.startswith("__"))


def size_of(logs: Path) -> int:
    return sum(path.stat().st_size for path in segments(logs))


# What is measured, in a process of its own.


def findings_read(spark: SparkSession, logs: str) -> DataFrame:
    """Batches to spans to findings within the tasks that read: one for each log."""
    read = spark.read.format("kafka_log").options(table="findings", at_rest="true", min_held_ms="60000")
    return read.load(logs)


def findings_made(spark: SparkSession, logs: str) -> DataFrame:
    """The same from parts that merge, where one log is read by many tasks."""
    from toolkit.spark.histories import histories
    from toolkit.spark.spans import merged_spans

    from toolkit.spark.findings import findings_of

    def read(table: str, **options: str) -> DataFrame:
        return spark.read.format("kafka_log").options(table=table, **options).load(logs)

    return findings_of(
        merged_spans(read("pieces")),
        read("amounts"),
        histories=histories(read("coordinator_events")),
        answers=read("findings", at_rest="true"),
    )


def spans_of_rows(spark: SparkSession, logs: str) -> DataFrame:
    """Spans from a row for each batch, as the stored tables have them."""
    from toolkit.spark.spans import spans

    return spans(spark.read.format("kafka_log").option("table", "batches").load(logs))


def binary_files(spark: SparkSession, logs: str) -> DataFrame:
    """A Python function per segment over `binaryFile`: headers of transactional batches, counted by producer."""
    import pyarrow as pa

    def walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import struct

        for batch in batches:
            for content in batch["content"]:
                buf, at, found = memoryview(content.as_buffer()), 0, 0
                while at + 61 <= len(buf):
                    (size,) = struct.unpack_from(">i", buf, at + 8)
                    (attributes,) = struct.unpack_from(">h", buf, at + 21)
                    found += (attributes & 0x30) == 0x30
                    at += 12 + size
                yield pa.RecordBatch.from_pydict({"markers": [found]})

    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", "*.log")
    return files.load(logs).select("content").mapInArrow(walk, "markers long")


def dump_text(spark: SparkSession, text: str) -> DataFrame:
    from pyspark.sql import functions

    lines = spark.read.text(text)
    names = ("base_offset", "last_offset", "producer_id", "is_transactional", "is_control")
    fields = [
        functions.regexp_extract("value", DUMP_LINE, index).alias(name) for index, name in enumerate(names, start=1)
    ]
    return lines.select(*fields).where("is_control = 'true'").groupBy("producer_id").count()


CASES: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "read": findings_read,
    "made": findings_made,
    "rows": spans_of_rows,
    "binary": binary_files,
    "text": dump_text,
}


def child(case: str, master: str, path: str, runs: int, memory: str) -> None:
    """Print how long the session, the first job and each run took."""
    from toolkit.spark import register

    start = time.perf_counter()
    spark = local_session(master=master, config={**SPARK, "spark.driver.memory": memory})
    session = time.perf_counter() - start

    def run() -> None:
        CASES[case](spark, path).write.format("noop").mode("overwrite").save()

    register(spark)
    first = timed(run)
    print(json.dumps({"session": session, "first": first, "runs": [timed(run) for _ in range(runs)]}))
    spark.stop()


def measured(case: str, master: str, path: Path, runs: int, memory: str = "2g") -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", case, master, str(path), str(runs), memory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, seconds: Sequence[float], size: int) -> float:
    median = statistics.median(seconds)
    print(f"  {name:<58}{min(seconds):8.2f} {median:8.2f} {max(seconds):8.2f} s   {size / median / 1e9:6.2f} GB/s")
    return median


def compare(logs: Path, runs: int) -> None:
    size = size_of(logs)
    print(f"\n{size / 1e9:.2f} GB in {len(segments(logs))} segments, {runs} runs after the first job: min, median, max")
    for case, name, times in (
        ("read", "findings, a task for each log", 5),  # Java is still compiling itself in the first seconds
        ("made", "findings, many tasks for each log", 1),
        ("rows", "spans from a row for each batch", 1),
    ):
        medians = {}
        for master in ("local[1]", "local[2]"):
            found = measured(case, master, logs, runs * times)
            medians[master] = row(f"{name}, {master}", found["runs"], size)
            print(f"    session {found['session']:.1f} s, first job {found['first']:.1f} s")
        print(f"    local[2] is {medians['local[1]'] / medians['local[2]']:.2f}x local[1]")


def peers(logs: Path, scratch: Path) -> None:
    """One gigabyte each: they take memory or time by the gigabyte."""
    segment = segments(logs)[0]
    small = scratch / f"{TOPIC}-0"
    small.mkdir()
    os.link(segment, small / segment.name)
    size = segment.stat().st_size
    print(f"\nthe plain ways, {size / 1e9:.2f} GB, local[2]")
    row(
        "binaryFile + a Python function per segment (12 GB of memory)",
        measured("binary", "local[2]", small, 1, "12g")["runs"],
        size,
    )
    text = scratch / "dump.txt"
    with Kafka("4.3.1") as kafka:
        java = [str(find_java()), "-cp", kafka.classpath]
    dump = [*java, "org.apache.kafka.tools.DumpLogSegments", "--files", str(segment)]

    def dump_log() -> None:
        with text.open("wb") as out:
            subprocess.run(dump, stdout=out, check=True)

    dumped = timed(dump_log)
    read = statistics.median(measured("text", "local[2]", text, 1)["runs"])
    row("DumpLogSegments, then spark.read.text and regexes", [dumped + read], size)
    row("findings of the same segment", measured("read", "local[2]", small, 3)["runs"], size)


class Memory(threading.Thread):
    """Peak of the resident memory of a process and all its descendants, in MB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak = pid, 0.0

    def run(self) -> None:
        while Path(f"/proc/{self.pid}").exists():
            self.peak = max(self.peak, sum(map(resident, family(self.pid))))
            time.sleep(0.2)


def family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in family(int(child)))]


def resident(pid: int) -> float:
    """Proportional, so that pages that forked workers share count once."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def command(logs: Path, scratch: Path) -> None:
    size = size_of(logs)
    out = scratch / "tables"
    arguments = ["pipeline", "--input", str(logs), "--at-rest", "--output", str(out), "--master", "local[2]"]
    for name in ("kafka-txn pipeline, every table stored as Parquet", "the same again: nothing is new"):
        start = time.perf_counter()
        process = subprocess.Popen([str(KAFKA_TXN), *arguments], stdout=subprocess.PIPE, text=True)
        memory = Memory(process.pid)
        memory.start()
        said, _ = process.communicate()
        row(name, [time.perf_counter() - start], size)
        print(f"    exit code {process.returncode}, peak of all processes {memory.peak:.0f} MB")
    stored = sum(path.stat().st_size for path in out.rglob("*.parquet"))
    print(f"    stored {stored / 1e6:.0f} MB\n{said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--logs", type=Path, help="a log directory made earlier")
    parser.add_argument("--keep", type=Path, help="folder to keep the log directory in")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        case, master, path, runs, memory = arguments.child
        child(case, master, path, int(runs), memory)
        return
    with tempfile.TemporaryDirectory(prefix="kafka-txn-bench-") as scratch:
        logs = arguments.logs or directory((arguments.keep or Path(scratch)) / "logs", arguments.gigabytes)
        for path in segments(logs):
            subprocess.run(["cat", str(path)], stdout=subprocess.DEVNULL, check=True)
        compare(logs, arguments.runs)
        peers(logs, Path(scratch))
        command(logs, Path(scratch))


if __name__ == "__main__":
    main()
