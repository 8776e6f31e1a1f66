"""The pipeline on Spark where a transaction is open at the start of each log, beside Kafka's tool and the library.

    python tests/tools/bench/bench_spark.py [--gigabytes 1] [--runs 3] [--logs DIR | --keep DIR] [--only NAME ...]

A real producer (ProducerPerformance: 200-byte records in batches of 4 KB, transactions of a few milliseconds) writes a
topic behind a transaction that hangs, on a broker started for it; what the broker leaves becomes a log directory of
four such partitions (hard links), page-cached. As whole processes, on local[2], by the clock and by processor time:
DumpLogSegments over the same bytes, the start of Spark's session alone, `kafka-txn pipeline` for the first time and
with nothing new, the same over 30 MB, and its memory over 4 and 40 GB. Within a session, after the first job: findings
in one read beside those of the library, and ranges that merge (`fold`) on one core and on two.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_scan import HELD, KAFKA_TXN, SETTINGS, fill, log_directory, timed  # type: ignore[import-not-found]

from toolkit import LogDir
from toolkit.java import class_archive_options, find_java
from toolkit.lab import Kafka
from toolkit.spark.spark_session import SMALL, class_archive, delta_settings, local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
SMALL_GB = 0.03
PR_SET_CHILD_SUBREAPER = 36  # prctl.h: processes whose parent has ended become children of this one
Figures = dict[str, list[float]]


def findings_read(spark: SparkSession, logs: str) -> DataFrame:
    """Findings within the tasks that read: one for each log."""
    read = spark.read.format("kafka_log_dir").options(table="findings", consistentCopy="true", minHeld="1m")
    return read.load(logs)


def folded(spark: SparkSession, logs: str) -> DataFrame:
    """Transactions, steps and holds of the LSO, as the pipeline folds them: each log in one task."""
    from toolkit.spark.pipeline.log_fold import LogWork, WorkOptions, folded_by_tasks
    from toolkit.spark.pipeline.run_sources import list_files

    files = list_files(spark, [logs])
    plans = files.plans({})
    works = [LogWork(log=log, listing=files.listings[log], plan=plan, state=None) for log, plan in plans.items()]
    return folded_by_tasks(spark, works, WorkOptions(min_held_ms=60_000))


CASES: dict[str, Callable[[SparkSession, str], DataFrame]] = {"read": findings_read, "fold": folded}


def child(case: str, master: str, path: str, runs: int) -> None:
    """Print how long the session, the first job and each run took."""
    from toolkit.spark import register

    start = time.perf_counter()
    spark = local_session(master=master, config=SPARK)
    register(spark)
    session = time.perf_counter() - start

    def run() -> None:
        CASES[case](spark, path).write.format("noop").mode("overwrite").save()

    first = timed(run)
    print(json.dumps({"session": session, "first": first, "runs": [timed(run) for _ in range(runs)]}))
    spark.stop()


def in_session(case: str, cores: int, path: Path, runs: int) -> list[float]:
    """Seconds of each run, on as many cores: local[1] alone would use two, for Java works beside its Python worker."""
    pinned = ["taskset", "--cpu-list", ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))]
    command = [*pinned, sys.executable, __file__, "--child", case, f"local[{cores}]", str(path), str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    runs_of: list[float] = json.loads(done.stdout.splitlines()[-1])["runs"]
    return runs_of


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


def processor_time(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time of all processes started, also those that outlive their parent."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pipeline(logs: Path, out: Path) -> tuple[float, float, str]:
    """Seconds, peak megabytes and output of the command."""
    command = [str(KAFKA_TXN), "pipeline", "--input", str(logs), "--consistent-copy", "--output", str(out)]
    start = time.perf_counter()
    process = subprocess.Popen([*command, "--master", "local[2]"], stdout=subprocess.PIPE, text=True)
    memory = Memory(process.pid)
    memory.start()
    output, _ = process.communicate()
    if process.returncode not in {0, 1, 3}:  # 3: evidence incomplete, as where no coordinator is among the files
        raise SystemExit(output)
    return time.perf_counter() - start, memory.peak, output


def start_session() -> None:
    subprocess.run([sys.executable, __file__, "--session"], check=True)


def row(name: str, times: Sequence[float], size: int = 0, peer: float | None = None) -> float:
    median = statistics.median(times)
    speed = f"{size / median / 1e9:8.2f} GB/s" if size else " " * 13
    ratio = "" if peer is None else f"   {median / peer:5.2f} of the peer"
    print(f"  {name:<56}{min(times):8.2f} {median:8.2f} {max(times):8.2f} s {speed}{ratio}", flush=True)
    return median


def size_of(logs: Path) -> int:
    return sum(path.stat().st_size for path in logs.glob(f"{HELD}-*/*.log"))


def processes(logs: Path, small: Path, runs: int, scratch: Path, java: Sequence[str]) -> None:
    size = size_of(logs)
    print(f"\n{size / 1e9:.2f} GB in 4 logs, each behind an open transaction, as processes: min, median, max")
    segments = ",".join(str(path) for path in sorted(logs.glob(f"{HELD}-*/*.log")))
    dump = [*java, "org.apache.kafka.tools.DumpLogSegments", "--files", segments]
    pipeline(small, scratch / "before")  # the first one of an installation writes Java's classes down when it has ended
    while class_archive_options(class_archive(), new=class_archive())[0].startswith("-XX:Archive"):
        time.sleep(1)
    by_clock: Figures = {name: [] for name in ("dump", "deep", "session", "first", "again", "small")}
    by_processor: Figures = {name: [] for name in by_clock}
    outputs = []

    def dumped(*options: str) -> None:
        with Path(scratch / "dump.txt").open("wb") as out:
            subprocess.run([*dump, *options], stdout=out, check=True)

    for number in range(runs):
        target = scratch / f"tables{number}"
        cases: Mapping[str, Callable[[], object]] = {
            "dump": dumped,
            "deep": lambda: dumped("--deep-iteration"),
            "session": start_session,
            "first": lambda target=target: outputs.append(pipeline(logs, target)),  # type: ignore[misc]
            "again": lambda target=target: pipeline(logs, target),  # type: ignore[misc]
            "small": lambda number=number: pipeline(small, scratch / f"small{number}"),  # type: ignore[misc]
        }
        for name, run in cases.items():
            seconds, processor = processor_time(run)
            by_clock[name].append(seconds)
            by_processor[name].append(processor)
    many = sum(1 for _ in small.glob("*/*.log"))
    megabytes = sum(path.stat().st_size for path in small.glob("*/*.log")) / 1e6
    output = outputs[-1][2]
    for times in (by_clock, by_processor):
        print("  by the clock" if times is by_clock else "  processor time of all processes")
        row("DumpLogSegments > file, batches only", times["dump"], size)
        peer = row("DumpLogSegments --deep-iteration > file", times["deep"], size)
        session = row("the start of Spark's session", times["session"])
        row("kafka-txn pipeline, first run", times["first"], size, peer)
        again = row("kafka-txn pipeline, nothing new", times["again"])
        print(f"    {again - session:.1f} s more than the session")
        row(f"kafka-txn pipeline, {megabytes:.0f} MB in {many} segments", times["small"])
    print(f"  peak memory of the first run: {max(each[1] for each in outputs):.0f} MB")
    stored = sum(path.stat().st_size for path in (scratch / "tables0").rglob("*.parquet"))
    print(f"    stored {stored / 1e6:.1f} MB\n{output}")


def linked(logs: Path, folder: Path, count: int) -> Path:
    """The first partition so many times, by hard links."""
    for number in range(count):
        shutil.copytree(logs / f"{HELD}-0", folder / f"{HELD}-{number}", copy_function=os.link)
    return folder


def sessions(logs: Path, scratch: Path, runs: int) -> None:
    size = size_of(logs)
    print(f"\n{size / 1e9:.2f} GB, within a session, {runs} runs after the first job: min, median, max")
    files = LogDir(logs, consistent_copy=True)
    files.findings(topics=[HELD], min_held_ms=60_000)
    library = [timed(lambda: files.findings(topics=[HELD], min_held_ms=60_000)) for _ in range(runs)]
    peer = row("findings of the library, in this process", library, size)
    row("findings in one read, local[2]", in_session("read", 2, logs, runs * 3), size, peer)
    many = linked(logs, scratch / "many", 16)  # of little Spark's planning, half a second, is most
    one = row("fold, one core", in_session("fold", 1, many, runs), size_of(many))
    two = row("fold, two cores", in_session("fold", 2, many, runs), size_of(many))
    print(f"    two are {one / two:.2f}x one")


def memory(logs: Path, scratch: Path) -> None:
    print("\npeak memory of all processes of kafka-txn pipeline")
    for count in (4, 40):
        folder = linked(logs, scratch / f"of{count}", count)
        seconds, megabytes, _ = pipeline(folder, scratch / f"tables-of{count}")
        print(f"  {size_of(folder) / 1e9:6.2f} GB: {megabytes:6.0f} MB, {seconds:6.1f} s", flush=True)


def left_by_broker(folder: Path, gigabytes: float) -> Path:
    """What a broker leaves that wrote `HELD`."""
    with Kafka("4.3.1", properties=SETTINGS) as kafka:
        fill(kafka, HELD, gigabytes, 200)
        kafka.stop_broker(1)
        shutil.copytree(kafka.log_dirs[1], folder, copy_function=shutil.copy2)
        kafka.start_broker(1)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--logs", type=Path, help="what an earlier run kept")
    parser.add_argument("--keep", type=Path, help="folder to keep the broker's log directories in")
    parser.add_argument("--only", nargs="+", choices=["processes", "sessions", "memory"])
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--session", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session:
        local_session(master="local[2]", config={**SMALL, **SPARK, **delta_settings()}).range(1).count()
        return
    if arguments.child:
        case, master, path, runs = arguments.child
        child(case, master, path, int(runs))
        return
    wanted: Any = arguments.only or ["processes", "sessions", "memory"]
    with tempfile.TemporaryDirectory(prefix="kafka-txn-bench-", dir=arguments.logs or arguments.keep) as folder:
        scratch = Path(folder)
        kept = arguments.logs or arguments.keep or scratch
        for name, gigabytes in (("logs", arguments.gigabytes), ("small", SMALL_GB)):
            if not (kept / name).is_dir():
                left_by_broker(kept / name, gigabytes)
        logs = log_directory(scratch / "four", kept / "logs", HELD)
        for path in logs.glob("*/*.log"):
            subprocess.run(["cat", str(path)], stdout=subprocess.DEVNULL, check=True)
        with Kafka("4.3.1") as kafka:
            java = [str(find_java()), "-Xmx512M", "-cp", kafka.classpath]
        if "processes" in wanted:
            processes(logs, kept / "small", arguments.runs, scratch, java)
        if "sessions" in wanted:
            sessions(logs, scratch, arguments.runs)
        if "memory" in wanted:
            memory(logs, scratch)


if __name__ == "__main__":
    main()
