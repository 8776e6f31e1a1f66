"""Samples of a recording, read back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.analysis.evidence import Look
from toolkit.errors import NotFound
from toolkit.schema import RECORDED, Row
from toolkit.sources.recording.folder import files_of, read, sample_times
from toolkit.sources.recording.looks import look_of
from toolkit.sources.recording.names import AN_INSTANT

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Found", "find_samples", "read_look", "read_sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a recording has up to some time; rows of ``samples``.

    Parameters
    ----------
    sample
        The newest that saw something.
    before
        The one before it, of those that saw something; null where there is none.
    failed
        Those after it, which saw nothing, in order.
    """

    sample: Row
    before: Row | None
    failed: Sequence[Row]


def find_samples(directory: Path, *, at: dt.datetime | None = None) -> Found:
    """Find the samples that tell how things stood at a time; the newest if null.

    Raises
    ------
    NotFound
        If none saw anything by then.
    """
    failed: list[Row] = []
    seen: list[Row] = []
    for row in _backwards(directory, at):
        if row["error"] is None:
            seen.append(row)
        elif not seen:
            failed.insert(0, row)
        if len(seen) == 2:
            break
    if not seen:
        when = "" if at is None else f" by {at.isoformat()}"
        raise NotFound(f"No sample in {directory} has seen anything{when}.")
    return Found(sample=seen[0], before=seen[1] if len(seen) > 1 else None, failed=failed)


def read_sample(directory: Path, row: Row, *, idle_producers: bool = True) -> Mapping[str, list[Row]]:
    """The rows of a whole sample by table.

    Parameters
    ----------
    directory
        The recording.
    row
        The sample's row of ``samples``.
    idle_producers
        With the producers that had nothing open: most of what is recorded, and no verdict needs them.

    Raises
    ------
    NotFound
        If it expired meanwhile.
    """
    due = row["sample"]
    found = {name: _rows(directory, name, due) for name in RECORDED if name != "samples"}
    if not idle_producers:
        import pyarrow.compute as pc

        rows = found["producers"]
        wanted = pc.or_(pc.is_valid(rows["current_txn_start_offset"]), pc.is_valid(rows["error"]))
        found["producers"] = rows.filter(wanted)
    if not sample_times(directory, due, due + AN_INSTANT):
        raise NotFound(f"The sample of {due.isoformat()} has expired while it was read.", do="Ask again.")
    return {name: table.to_pylist() for name, table in found.items()} | {"samples": [row]}


def read_look(directory: Path, row: Row, *, idle_producers: bool = True) -> Look:
    """The look that a sample is of, which has no error; arguments and errors as of `read_sample`."""
    look = look_of(read_sample(directory, row, idle_producers=idle_producers))
    assert look is not None
    return look


def _rows(directory: Path, table: str, due: dt.datetime) -> pa.Table:
    return read(directory, table, start=due, stop=due + AN_INSTANT)


def _backwards(directory: Path, at: dt.datetime | None) -> Iterator[Row]:
    """Rows of ``samples``, the newest first; a file at a time, as one or two rows are what is wanted."""
    stop = None if at is None else at + AN_INSTANT
    while files := [file for file in files_of(directory, "samples") if stop is None or file.start < stop]:
        start = files[-1].start
        yield from reversed(read(directory, "samples", start=start, stop=stop).to_pylist())
        stop = start
