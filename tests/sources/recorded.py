"""Samples of a cluster that is not there, for tests of what becomes of samples."""

import datetime as dt
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.analysis.build import clock, observation, partition, producer, transaction
from tests.analysis.logged import by_logs, sample_diagnosis
from toolkit.analysis.diagnosis.decision import UNDECIDED, Outcome
from toolkit.schema import RECORDED
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.recording.recorder import Sampler, SampleWriter
from toolkit.sources.recording.recording import Sample, recorded_sample

NINE = dt.datetime(2026, 11, 21, 9, tzinfo=dt.UTC)


def sample(due: dt.datetime, *, partitions: int = 2, error: str | None = None, gaps: Sequence[str] = ()) -> Sample:
    """A sample in which a transaction hangs on partition 0 of orders, or is `unknown` for these gaps."""
    one = replace(
        observation(
            transaction(8, state="Empty", on=()),
            partitions=[
                partition(number=number, lso=100 if number == 0 else 150, observed_at=due)
                for number in range(partitions)
            ],
            producers=[producer(8, observed_at=due), producer(9, start=None, observed_at=due)],
        ),
        observed_at=due,
        brokers_time=clock(due),
    )
    one = replace(one, coverage=replace(one.coverage, gaps=[*one.coverage.gaps, *gaps]))
    undecided = Outcome(
        name=UNDECIDED, reason="the coordinators' log has all of its transactions", are_markers_sought=True
    )
    diagnosis = sample_diagnosis(one, replace(one, observed_at=due - dt.timedelta(seconds=10)))
    found = diagnosis.findings(read=by_logs(diagnosis, undecided))
    row = recorded_sample(one, due=due, interval_ms=10_000, seconds=0.5, cluster_id="of-a-test")
    return Sample(due=due, observation=one, findings=found, row=replace(row, error=error))


def take_sample(cluster: Cluster, *, due: dt.datetime, before: Sample | None = None, **options: Any) -> Sample:
    """A sample of a cluster."""
    return Sampler(connect=lambda: cluster, interval_ms=1_000, **options).take(due, before)


def rows_of(samples: Sequence[Sample], table: str) -> pa.Table:
    """The rows that all of the samples have in one table."""
    return RECORDED[table].arrow([row for each in samples for row in each.tables[table]])


def files(directory: Path) -> list[str]:
    """Every file and folder in there, hidden ones included."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


RECORDED_APIS: dict[str, dict[int, tuple[int, int]]] = {
    name: {int(key): (low, high) for key, (low, high) in apis.items()}
    for name, apis in json.loads(Path(__file__).with_name("recorded_apis.json").read_text()).items()
}
"""By release, with what is unusual: ``3.9.2 on ZooKeeper``."""


EVERY = dt.timedelta(minutes=15)


def main(directory: Path, count: int) -> None:
    with SampleWriter(directory) as writer:
        for each in range(count):
            due = NINE + each * EVERY
            writer.write(sample(due))
            writer.merge(now=due)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
