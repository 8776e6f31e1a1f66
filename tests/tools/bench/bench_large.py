"""One observation of a large cluster, and a recording of it: client processor time and memory by size.

    python tests/tools/bench/bench_large.py [--sizes 1000:1000:1 20000:100000:100 200000:1000000:100] [--record SAMPLES]

A size is partitions, transactional ids and brokers. The brokers are those of `fake_cluster`, in a separate process.
Prints for each size: seconds of the first and second observation, the client's processor seconds in the second one, and
the client's peak memory. The first observation waits while the server encodes its responses. With ``--record``: for so
many samples of ``kafka-txn record --interval 10``, processor seconds and bytes on disk of each, and peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from toolkit import Cluster

SIZES = ["1000:1000:1", "3000:10000:10", "20000:100000:100", "200000:1000000:100"]
KAFKA_TXN = Path(sys.executable).with_name("kafka-txn")
SERVER = Path(__file__).with_name("fake_cluster.py")


def timed_observation(cluster: Cluster) -> tuple[float, float]:
    """Wall and processor seconds."""
    start, used = time.perf_counter(), time.process_time()
    cluster.finding_rows(recheck_after=0)
    return time.perf_counter() - start, time.process_time() - used


def child(server: str) -> None:
    with Cluster(server, timeout=300) as cluster:
        (first, _), (second, used) = timed_observation(cluster), timed_observation(cluster)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"first": first, "second": second, "used": used, "peak": peak}))


def observation_times(server: str) -> str:
    command = [sys.executable, __file__, "--child", server]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    times = "".join(f"{found[name]:9.2f} s" for name in ("first", "second", "used"))
    return f"{times} {found['peak']:8.0f} MB"


def recording(server: str, samples: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(KAFKA_TXN), "record", "--bootstrap-server", server, "--output", f"{folder}/recording"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--interval", "10", "--samples", str(samples)], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{used / samples:9.2f} s {written / samples / 1e6:8.2f} MB {after.ru_maxrss / 1024:8.0f} MB"


def measure(size: str, samples: int) -> None:
    partitions, ids, brokers = size.split(":")
    options = ["--partitions", partitions, "--ids", ids, "--brokers", brokers]
    server = subprocess.Popen([sys.executable, str(SERVER), *options], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        found = recording(address, samples) if samples else observation_times(address)
    finally:
        server.kill()
        server.wait()
    print(f"{int(partitions):9,} {int(ids):9,} {brokers:>7} {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--record", metavar="SAMPLES", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    figures = "processor    on disk      memory" if arguments.record else "    first     second  processor     memory"
    print(f"partitions       ids brokers  {figures}")
    for size in arguments.sizes:
        measure(size, arguments.record)


if __name__ == "__main__":
    main()
