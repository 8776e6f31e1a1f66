"""Resume a recording: what a recorder needs from earlier samples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from pathlib import Path

from toolkit.analysis.history.sample_findings import first_seen
from toolkit.errors import NotFound
from toolkit.schema import Row
from toolkit.schema.table import TransactionKey
from toolkit.sources.recording.sample_files.observation_rows import observation_of
from toolkit.sources.recording.sample_files.recording_folder import read
from toolkit.sources.recording.sample_files.sample_reader import find_samples, read_sample
from toolkit.sources.recording.sampling.sample import Sample

MAX_LOOKBACK = dt.timedelta(days=1)  # transactions open for longer are already recorded as late


def resume(directory: Path) -> Sample | None:
    """The last successful sample, which the next one is diagnosed with; null if there is none."""
    try:
        found = find_samples(directory)
    except NotFound:
        return None
    tables = read_sample(directory, found.sample)
    observation = observation_of(tables)
    assert observation
    observed = first_seen(observation, {})
    with_opening_time = {_key(row) for row in tables["findings"] if row["opened_at"] is not None}
    recorded = {
        _key(row): row["opened_at"] for row in tables["late_transactions"] if row["opened_at_clock"] == "recorder"
    }
    undated = observed.keys() - with_opening_time - recorded.keys()
    return Sample(
        due=found.sample["sampled_at"],
        tables=tables,
        observation=observation,
        first_seen=observed | recorded | (_earliest(directory, undated, found.sample) if undated else {}),
    )


def _earliest(
    directory: Path, transactions: Collection[TransactionKey], last: Row
) -> dict[TransactionKey, dt.datetime]:
    """When each was first observed open within the last day of the recording."""
    import pyarrow.compute as pc

    names = ["topic", "partition", "producer_id", "current_txn_start_offset"]
    start = last["sampled_at"] - MAX_LOOKBACK
    rows = read(directory, "producers", start=start, columns=["sampled_at", *names])
    rows = rows.filter(pc.is_valid(rows["current_txn_start_offset"]))
    samples = read(directory, "samples", start=start, columns=["sampled_at", "observed_at"]).to_pylist()
    observed = {row["sampled_at"]: row["observed_at"] for row in samples}
    firsts = rows.group_by(names).aggregate([("sampled_at", "min")]).to_pylist()
    earliest = {tuple(row[name] for name in names): observed.get(row["sampled_at_min"]) for row in firsts}
    return {key: time for key in transactions if (time := earliest.get(key)) is not None}


def _key(row: Row) -> TransactionKey:
    return TransactionKey(row["topic"], row["partition"], row["producer_id"], row["start_offset"])
