"""One look at a large cluster: processor time and memory of the client by size.

    python tests/bench/bench_large.py [--sizes 1000:1000:1 20000:100000:100 200000:1000000:100]

A size is partitions, transactional ids and brokers. The brokers are those of `fake_cluster`, in a process of their own.
Prints of each size: seconds of the first look and of the second one, processor seconds of the client in the second one,
and the client's peak memory. The first look waits while the server encodes its answers.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from toolkit import Cluster

SIZES = ["1000:1000:1", "3000:10000:10", "20000:100000:100", "200000:1000000:100"]
SERVER = Path(__file__).with_name("fake_cluster.py")


def look(cluster: Cluster) -> tuple[float, float]:
    """Wall and processor seconds."""
    start, used = time.perf_counter(), time.process_time()
    cluster.finding_rows(looks_apart=0)
    return time.perf_counter() - start, time.process_time() - used


def child(server: str) -> None:
    with Cluster(server, timeout=300) as cluster:
        (first, _), (second, used) = look(cluster), look(cluster)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"first": first, "second": second, "used": used, "peak": peak}))


def measure(size: str) -> None:
    partitions, ids, brokers = size.split(":")
    options = ["--partitions", partitions, "--ids", ids, "--brokers", brokers]
    server = subprocess.Popen([sys.executable, str(SERVER), *options], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        command = [sys.executable, __file__, "--child", address]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    finally:
        server.kill()
        server.wait()
    print(
        f"{int(partitions):9,} {int(ids):9,} {brokers:>7} {found['first']:8.2f} s {found['second']:8.2f} s"
        f" {found['used']:8.2f} s {found['peak']:8.0f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    print("partitions       ids brokers      first     second  processor     memory")
    for size in arguments.sizes:
        measure(size)


if __name__ == "__main__":
    main()
