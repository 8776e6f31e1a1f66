"""Histories of transactional ids and findings over time: processor time by number of records, against peers.

    python tests/tools/bench/bench_records.py [--records 90000] [--findings 100000] [--runs 5]

`transaction_history` of a log of ``__transaction_state`` whose ids have transactions of three records, some of them
open or hanging at its end: of the bytes in memory, and of a log directory, by all ids and by half of them; against
kafka-python's decoder of the same batches, which yields keys and values undecoded. Findings over time of a recording
whose findings are of a transaction each, most of them gone in the next sample, the rest open or hanging: as records,
and as a frame; against pandas, which takes the first and last row of each transaction from the same table. Prints
minimum, median and maximum of the runs in seconds of processor time, and the median ratio to the peer, round by round.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from kafka.record import MemoryRecords

from toolkit.analysis.coordinator.transaction_history import transaction_history
from toolkit.analysis.history.findings_over_time import observation_times, over_time
from toolkit.formats.batches import write_batch
from toolkit.formats.coordinator_log_rows import transaction_log
from toolkit.formats.coordinator_records import STATE_TOPIC, STATES
from toolkit.formats.scan import scan
from toolkit.schema import FINDINGS, RECORDED
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.recorded import RecordedSample
from toolkit.sources.logdir import LogDir

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
STEP = dt.timedelta(milliseconds=100)  # between two records: the last transactions of some ids pass their timeout
INTERVAL = dt.timedelta(seconds=10)  # between two samples
IDS = 500
OPEN, STUCK = 10, 10  # ids whose last transaction has no end, and no markers


def state_batches(count: int) -> Iterator[bytes]:
    """Batches of ``__transaction_state``, one record each: transactions that commit, every tenth aborts."""
    for number in range(count // 3):
        name, round_ = number % IDS, number // IDS
        end = "Abort" if number % 10 == 0 else "Commit"
        states = ["Ongoing", f"Prepare{end}", f"Complete{end}"]
        if number >= count // 3 - IDS:
            states = states[:1] if name < OPEN else states[:2] if name < OPEN + STUCK else states
        start = NOON + 3 * number * STEP
        for step, state in enumerate(states):
            decided = start + min(step, 1) * STEP
            partitions = [number % 12, 12 + round_ % 12] if step < 2 else []
            value = state_value(name, round_ % 30_000, state, start=start, changed=decided, partitions=partitions)
            key = f"payments-{name}".encode()
            records = [(struct.pack(">hh", 0, len(key)) + key, value)]
            yield write_batch(records, timestamp=start + step * STEP, base_offset=3 * number + step)


def state_value(
    producer_id: int, epoch: int, state: str, *, start: dt.datetime, changed: dt.datetime, partitions: list[int]
) -> bytes:
    """``TransactionLogValue``, version 1: the partitions of one topic, tag 2 is the client's transaction version."""
    value = struct.pack(">hqhib", 1, producer_id, epoch, 60_000, STATES.index(state))
    if partitions:
        numbers = struct.pack(f">{len(partitions)}i", *partitions)
        value += b"\x02\x07orders" + bytes([len(partitions) + 1]) + numbers + b"\0"
    else:
        value += b"\0"
    times = (int(each.timestamp() * 1000) for each in (changed, start))
    return value + struct.pack(">qq", *times) + b"\x01\x02\x02\x00\x00"


def sampled_findings(count: int) -> pa.Table:
    """Findings of a recording: each is of a transaction of its own; those of the last sample are open or hanging."""
    rows = []
    per_sample = 100
    for number in range(count):
        sample, place = divmod(number, per_sample)
        seen = NOON + sample * INTERVAL
        hanging = place % 4 == 0
        rows.append(
            {
                "sampled_at": seen,
                "topic": "orders",
                "partition": place % 50,
                "broker_id": place % 3,
                "queue_position": 1 if place < 50 else 2,
                "producer_id": number,
                "producer_epoch": 0,
                "start_offset": 1_000 * number,
                "transactional_id": None if hanging else f"payments-{number % IDS}",
                "verdict": "hanging" if hanging else "open",
                "reason": "No coordinator owns it." if hanging else "Its producer may still end it.",
                "remedy": "Abort it." if hanging else "Wait for its end.",
                "missing": [],
                "evidence": [
                    {"source": "leader", "broker_id": place % 3, "observed_at": seen, "name": name, "value": "1"}
                    for name in ("start_offset", "last_sequence", "coordinator_epoch")
                ],
                "observed_at": seen,
            }
        )
    return RECORDED["findings"].arrow(rows)


def samples(findings: pa.Table) -> list[RecordedSample]:
    times = findings["sampled_at"].unique().to_pylist()
    return [RecordedSample(sampled_at=each, observed_at=each, interval_ms=INTERVAL // dt.timedelta(milliseconds=1))
            for each in times]  # fmt: skip


def kafka_python_records(data: bytes) -> int:
    """Keys and values of all records, as kafka-python's consumer reads them."""
    batches, count = MemoryRecords(data), 0
    while (batch := batches.next_batch()) is not None:
        count += sum(record.key is not None and record.value is not None for record in batch)
    return count


def history_in_memory(data: bytes) -> int:
    headers = scan(data).headers
    records = (
        record
        for position in headers["position"].tolist()
        for record in transaction_log(data, position, where=TransactionLogRecord(txn_state_partition=0))
    )
    return len(transaction_history(records))


def pandas_lifetimes(findings: pa.Table) -> int:
    """The first and the last finding of each transaction."""
    frame = findings.to_pandas().sort_values("sampled_at", kind="stable")
    by_transaction = frame.groupby(["topic", "partition", "start_offset", "producer_id"], sort=False)
    whole = by_transaction.tail(1).merge(
        by_transaction["sampled_at"].min().rename("held_from"), on=["topic", "partition", "start_offset", "producer_id"]
    )
    return len(whole.to_dict("records"))


def measure(title: str, peer: str, runs_by_name: Mapping[str, Callable[[], int]], runs: int) -> None:
    """Run them in turns; the first round is not measured."""
    rounds = [{name: processor_seconds(run) for name, run in runs_by_name.items()} for _ in range(runs + 1)][1:]
    print(f"\n{title}: min, median, max of {runs} runs, processor time; ratio to {peer}")
    for name in runs_by_name:
        times = [each[name] for each in rounds]
        ratio = statistics.median(each[name] / each[peer] for each in rounds)
        figures = f"{min(times):8.3f} {statistics.median(times):8.3f} {max(times):8.3f} s"
        print(f"  {name:<44}{figures}   {ratio:6.2f}")


def processor_seconds(run: Callable[[], int]) -> float:
    used = time.process_time()
    run()
    return time.process_time() - used


def histories(count: int, runs: int) -> None:
    batches = list(state_batches(count))
    data = b"".join(batches)
    with tempfile.TemporaryDirectory(prefix="kafka-txn-bench-") as folder:
        root = Path(folder)
        (root / "meta.properties").write_text("node.id=1\nversion=1\ncluster.id=xRkncQT9TEa2WI1kTHANEQ\n")
        log = root / f"{STATE_TOPIC}-0"
        log.mkdir()
        (log / f"{0:020}.log").write_bytes(data)
        files = LogDir(root)
        half = [f"payments-{number}" for number in range(0, IDS, 2)]
        title = f"transaction_history, {len(batches):,} records, {len(data) / 1e6:.1f} MB"
        runs_by_name = {
            "kafka-python MemoryRecords": lambda: kafka_python_records(data),
            "records to history, in memory": lambda: history_in_memory(data),
            "LogDir.transaction_history": lambda: len(files.transaction_history()),
            "LogDir.transaction_history of half of the ids": lambda: len(
                files.transaction_history(transactional_ids=half)
            ),
            "LogDir.transaction_log": lambda: len(files.transaction_log()),
        }
        measure(title, "kafka-python MemoryRecords", runs_by_name, runs)
        endings = files.transaction_history()["ended"].value_counts()
        print("  " + ", ".join(f"{number:,} {name}" for name, number in endings.items()))
        assert set(endings.index) >= {"open", "stuck"}


def findings_over_time(count: int, runs: int) -> None:
    findings = sampled_findings(count)
    times = observation_times(samples(findings))
    runs_by_name = {
        "pandas": lambda: pandas_lifetimes(findings),
        "over_time": lambda: len(over_time(findings, times)),
        "over_time to a frame": lambda: len(FINDINGS.frame(over_time(findings, times))),
    }
    measure(f"findings over time, {count:,} findings", "pandas", runs_by_name, runs)
    verdicts = FINDINGS.frame(over_time(findings, times))["verdict"].value_counts()
    print("  " + ", ".join(f"{number:,} {name}" for name, number in verdicts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=90_000)
    parser.add_argument("--findings", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    histories(arguments.records, arguments.runs)
    findings_over_time(arguments.findings, arguments.runs)


if __name__ == "__main__":
    main()
