"""What a recorder has to know of the samples before, when it starts again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from pathlib import Path

from toolkit.analysis.late import OpenTransaction, first_seen
from toolkit.errors import NotFound
from toolkit.schema import Row
from toolkit.sources.recording.folder import read
from toolkit.sources.recording.looks import look_of
from toolkit.sources.recording.sample import Sample
from toolkit.sources.recording.samples import find_samples, read_sample

__all__ = ["resume"]

AS_FAR_BACK = dt.timedelta(days=1)  # who was open for longer before it stopped is late by what was recorded of that


def resume(directory: Path) -> Sample | None:
    """The last sample that saw something, as what the next one is judged with; null where there is none."""
    try:
        found = find_samples(directory)
    except NotFound:
        return None
    tables = read_sample(directory, found.sample)
    look = look_of(tables)
    assert look
    seen = first_seen(look, {})
    told = {_key(row) for row in tables["findings"] if row["opened_at"] is not None}
    recorded = {_key(row): row["opened_at"] for row in tables["late_transactions"] if row["opened_by"] == "recorder"}
    untold = seen.keys() - told - recorded.keys()
    return Sample(
        due=found.sample["sample"],
        tables=tables,
        look=look,
        first_seen=seen | recorded | (_earliest(directory, untold, found.sample) if untold else {}),
    )


def _earliest(
    directory: Path, transactions: Collection[OpenTransaction], last: Row
) -> dict[OpenTransaction, dt.datetime]:
    """When each was first seen open within the last day of the recording."""
    import pyarrow.compute as pc

    names = ["topic", "partition", "producer_id", "current_txn_start_offset"]
    start = last["sample"] - AS_FAR_BACK
    rows = read(directory, "producers", start=start, columns=["sample", *names])
    rows = rows.filter(pc.is_valid(rows["current_txn_start_offset"]))
    samples = read(directory, "samples", start=start, columns=["sample", "observed_at"]).to_pylist()
    observed = {row["sample"]: row["observed_at"] for row in samples}
    firsts = rows.group_by(names).aggregate([("sample", "min")]).to_pylist()
    found = {tuple(row[name] for name in names): observed.get(row["sample_min"]) for row in firsts}
    return {key: at for key in transactions if (at := found.get(key)) is not None}


def _key(row: Row) -> OpenTransaction:
    return row["topic"], row["partition"], row["producer_id"], row["start_offset"]
