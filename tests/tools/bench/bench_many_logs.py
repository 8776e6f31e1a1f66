"""Many small logs: ``python -m tests.tools.bench.bench_many_logs [--logs 2000] [--master local[2]]``.

Prints the seconds of a first run of the pipeline, of one that finds nothing new, and the processor time of both with
all that they start. `--parts`: the seconds of the parts of a first run, without Spark.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.sources.log_files import after, data, marker, write_log, write_root

Result = TypeVar("Result")
TRANSACTIONS = 100  # in each log: 33 KB


def write_logs(folder: Path, count: int) -> Path:
    """A log directory with logs of one content."""
    root = write_root(folder)
    batches = []
    for number in range(TRANSACTIONS):
        producer_id, at = 7 + number % 3, after(seconds=number)
        batches += [data(2 * number, producer_id, at), marker(2 * number + 1, producer_id, at)]
    content = [b"".join(batch[:12] + bytes(4) + batch[16:] for batch in batches)]
    for number in range(count):
        log = write_log(root, f"orders-{number}", content)
        (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return root


def timed(what: str, do: Callable[[], Result]) -> Result:
    """Print how long something takes."""
    start, cpu = time.perf_counter(), time.process_time()
    found = do()
    print(f"{what}: {time.perf_counter() - start:.1f} s, {time.process_time() - cpu:.1f} s of processor", flush=True)
    return found


def parts(root: Path) -> None:
    """What the driver does for each log, and what a task does."""
    from toolkit.sources.logdir.contents import found_in
    from toolkit.spark.datasources.log_reader import listings
    from toolkit.spark.pipeline.log_fold import LogWork, WorkOptions, fold_work
    from toolkit.spark.pipeline.log_states import plan_logs

    contents = timed("list folders", lambda: found_in([root]))
    listed = timed("listing", lambda: {row.log: row for row in listings(contents, contents.replica_logs())})
    plans = timed("plans", lambda: plan_logs(listed, {}))
    works = [LogWork(log=log, listing=listed[log], plan=plan, state=None) for log, plan in plans.items()]
    options = WorkOptions(min_held_ms=60_000)
    timed("first log", lambda: list(fold_work(works[0], options)))
    timed("fold", lambda: [list(fold_work(work, options)) for work in works[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--parts", action="store_true", help="only the parts, without Spark")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = timed("write", lambda: write_logs(Path(folder, "logs"), options.logs))
        if options.parts:
            parts(root)
            return
        from pyspark import SparkContext

        from toolkit.spark.pipeline.pipeline_run import run
        from toolkit.spark.spark_session import delta_settings, local_session

        spark = local_session(master=options.master, config=delta_settings())
        for what in ("first run", "run without news"):
            timed(what, lambda: run(spark, str(root), f"{folder}/out", consistent_copy=True))
        spark.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()  # ends Java, so that its processor time counts
        gateway.proc.wait(60)
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        print(f"processor time: {sum(each.ru_utime + each.ru_stime for each in used):.0f} s")


if __name__ == "__main__":
    main()
