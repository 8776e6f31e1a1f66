"""Read samples of a recording."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.errors import NotFound
from toolkit.schema import RECORDED, Row
from toolkit.sources.recording.sample_files.observation_rows import observation_of
from toolkit.sources.recording.sample_files.recording_folder import files_of, read, sample_times
from toolkit.sources.recording.sample_files.sample_names import AN_INSTANT

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSamples:
    """The newest samples up to a time; rows of ``samples``.

    Parameters
    ----------
    sample
        The newest successful one.
    before
        The successful one before it; null if there is none.
    failed
        Failed ones after `sample`, in order.
    """

    sample: Row
    before: Row | None
    failed: Sequence[Row]


def find_samples(directory: Path, *, at: dt.datetime | None = None) -> FoundSamples:
    """Find the samples of a time; null for the newest.

    Raises
    ------
    NotFound
        If there is no successful sample by then.
    """
    failed: list[Row] = []
    successful: list[Row] = []
    for row in _backwards(directory, at):
        if row["error"] is None:
            successful.append(row)
        elif not successful:
            failed.insert(0, row)
        if len(successful) == 2:
            break
    if not successful:
        when = "" if at is None else f" by {at.isoformat()}"
        raise NotFound(f"No successful sample in {directory}{when}.")
    return FoundSamples(sample=successful[0], before=successful[1] if len(successful) > 1 else None, failed=failed)


def read_sample(directory: Path, row: Row, *, idle_producers: bool = True) -> Mapping[str, list[Row]]:
    """The rows of a sample by table.

    Parameters
    ----------
    directory
        The recording.
    row
        The sample's row of ``samples``.
    idle_producers
        Include producers without an open transaction: most of the rows, and no verdict needs them.

    Raises
    ------
    NotFound
        If it expires meanwhile.
    """
    due = row["sampled_at"]
    tables = {name: _rows(directory, name, due) for name in RECORDED if name != "samples"}
    if not idle_producers:
        import pyarrow.compute as pc

        rows = tables["producers"]
        selected = pc.or_(pc.is_valid(rows["current_txn_start_offset"]), pc.is_valid(rows["error"]))
        tables["producers"] = rows.filter(selected)
    if not sample_times(directory, due, due + AN_INSTANT):
        raise NotFound(f"The sample of {due.isoformat()} expired while it was read.", do="Try again.")
    return {name: table.to_pylist() for name, table in tables.items()} | {"samples": [row]}


def read_observation(directory: Path, row: Row, *, idle_producers: bool = True) -> Observation:
    """The observation of a successful sample; arguments and errors as for `read_sample`."""
    observation = observation_of(read_sample(directory, row, idle_producers=idle_producers))
    assert observation is not None
    return observation


def _rows(directory: Path, table: str, due: dt.datetime) -> pa.Table:
    return read(directory, table, start=due, stop=due + AN_INSTANT)


def _backwards(directory: Path, at: dt.datetime | None) -> Iterator[Row]:
    """Rows of ``samples``, newest first, one file at a time, since one or two rows suffice."""
    stop = None if at is None else at + AN_INSTANT
    while files := [file for file in files_of(directory, "samples") if stop is None or file.start < stop]:
        start = files[-1].start
        yield from reversed(read(directory, "samples", start=start, stop=stop).to_pylist())
        stop = start
