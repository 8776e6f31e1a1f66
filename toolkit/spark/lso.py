"""Steps of the LSO from transactions, section by section of each log.

A section needs only the transactions that touch it (`toolkit.analysis.lso.lso_steps`). So each is sent to every section
that it touches and in which something happens, and no task holds those of a whole log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.lso import lso_steps, lso_table
from toolkit.analysis.spans import SPAN, spans_of
from toolkit.schema import LSO_TIMELINE
from toolkit.spark.log_ends import log_ends
from toolkit.spark.packing import Gathered, group_codes, pack_groups, runs, unpack, whole_runs
from toolkit.spark.pieces import (
    END,
    GROUP,
    OF_LOG,
    PIECES,
    PLACE,
    SECTIONS,
    TOUCHING,
    log_name,
    piece_rows,
    together,
)
from toolkit.spark.types import spark_table, struct_type

__all__ = ["lso_timeline"]

Array = npt.NDArray[Any]

OFFSETS_PER_TASK = 1 << 20
SPANS_AT_ONCE = STEPS_AT_ONCE = 1 << 16
NEVER = np.iinfo(np.int64).max
LOG = ["topic", "partition", "log"]
WHERE = ["topic", "partition", "broker_id"]
NEEDED = (  # of SPANS
    *(*PLACE, "producer_id", "producer_epoch", "first_offset", "first_batch_last_offset", "marker_offset", "outcome"),
    *("marker", "start", "end", "truncated"),
)


def lso_timeline(
    spans: DataFrame,
    batches: DataFrame,
    *,
    partitions: DataFrame | None = None,
    offsets_per_task: int = OFFSETS_PER_TASK,
) -> DataFrame:
    """Every step of the LSO and who held it, rebuilt from the transactions; what could not be read is passed over.

    Parameters
    ----------
    spans
        Rows of ``schema.SPANS``, of any number of logs, from `toolkit.spark.spans.spans`.
    batches
        Rows of ``schema.BATCHES`` that they were made from: they tell where each log ends.
    partitions
        Rows of ``schema.PARTITIONS``: they tell where a log ends whose newest segment is empty.
    offsets_per_task
        Transactions that touch so many offsets are held in memory at a time.

    Returns
    -------
    DataFrame
        Rows of ``schema.LSO_TIMELINE``.
    """
    with_data = spans.where(sf.col("first_offset").isNotNull()).select(*NEEDED)
    touching = with_data.mapInArrow(partial(_touching, offsets_per_task=offsets_per_task), PIECES)
    known = together(touching.unionByName(log_ends(batches, partitions)))
    sections = together(known.mapInArrow(partial(_spread, offsets_per_task=offsets_per_task), PIECES))
    return sections.mapInArrow(partial(_steps, offsets_per_task=offsets_per_task), struct_type(LSO_TIMELINE))


def _touching(batches: Iterable[pa.RecordBatch], *, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    """Each transaction in the section that it lies in; as of the log if it lies in several, or depends on its ends."""
    for rows in batches:
        spans = spans_of(rows)
        first, last = (spans[name] // offsets_per_task for name in ("first_offset", "marker_offset"))
        of_log = (first != last) | (spans["truncated"] == 1)
        names = map(log_name, rows.column("file").to_pylist(), rows.column("broker_id").to_pylist())
        columns = {name: rows.column(name) for name in WHERE} | {"log": pa.array(names, pa.string())}
        slots = pa.array(np.where(of_log, OF_LOG, first))
        packed, like = pack_groups(spans, [*columns.values(), slots])
        touching = {name: column.take(like) for name, column in (columns | {"slot": slots}).items()}
        yield piece_rows({**touching, "kind": TOUCHING, "packed": packed}, rows=len(packed))
        yield _with_events({name: columns[name] for name in LOG}, first, last)


def _with_events(logs: Mapping[str, pa.Array], first: Array, last: Array) -> pa.RecordBatch:
    """The sections in which a transaction begins or ends; in no other does the LSO make a step."""
    ends = np.flatnonzero(last >= 0)
    rows, sections = np.concatenate((np.arange(len(first)), ends)), np.concatenate((first, last[ends]))
    keys = [*(column.take(pa.array(rows)) for column in logs.values()), pa.array(sections)]
    once = np.unique(group_codes(keys, len(rows)), return_index=True)[1]
    packed, like = pack_groups(sections[once], [column.take(pa.array(once)) for column in keys[:-1]])
    columns = {name: column.take(pa.array(rows[once]).take(like)) for name, column in logs.items()}
    return piece_rows({**columns, "slot": OF_LOG, "kind": SECTIONS, "packed": packed}, rows=len(packed))


def _spread(batches: Iterable[pa.RecordBatch], *, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    """What is of the log in each section that it touches, of those in which something begins or ends."""
    log = _Log()
    for run in runs(batches, (*GROUP, "kind")):
        slot, kind = run.column("slot")[0].as_py(), run.column("kind")[0].as_py()
        name = [run.column(each)[0].as_py() for each in LOG]
        if slot != OF_LOG:
            yield run
            continue
        log = log if log.name == name else _Log(name)
        if kind == END:
            yield log.reaches(run, offsets_per_task)
        elif kind == SECTIONS:
            log.sections = np.union1d(log.sections, unpack(run.column("packed"), log.sections.dtype)[0])
        else:
            yield from log.spread(run, offsets_per_task)


@dataclass(slots=True, eq=False)
class _Log:
    """Where one log begins, and the sections of it in which something happens: its end, too."""

    name: list[Any] = field(default_factory=list)
    first_offset: int | None = None
    sections: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def reaches(self, end: pa.RecordBatch, offsets_per_task: int) -> pa.RecordBatch:
        """Take in where it begins and ends; the same row, in the section of its end."""
        row = end.select(["first_offset", "log_end_offset"]).to_pylist()[0]
        self.first_offset = row["first_offset"]
        last = max(row["first_offset"], row["log_end_offset"] - 1) // offsets_per_task
        self.sections = np.union1d(self.sections, [last])
        columns = dict(zip(end.schema.names, end.columns, strict=True))
        return piece_rows(columns | {"slot": last}, rows=end.num_rows)

    def spread(self, rows: pa.RecordBatch, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
        """What began before the log does goes to its first section."""
        spans, _ = unpack(rows.column("packed"), SPAN)
        log_first = (self.first_offset or 0) // offsets_per_task
        sections = np.unique(np.maximum(self.sections, log_first))
        marker = np.where(spans["marker_offset"] < 0, NEVER, spans["marker_offset"])
        first, last = (np.maximum(at // offsets_per_task, log_first) for at in (spans["first_offset"], marker))
        low, high = np.searchsorted(sections, first), np.searchsorted(sections, last, side="right")
        place = {name: rows.column(name)[0].as_py() for name in (*LOG, "broker_id")}
        which, numbers = _ranges(low, high)
        for start in range(0, len(which), SPANS_AT_ONCE):
            part = slice(start, start + SPANS_AT_ONCE)
            slots = pa.array(sections[numbers[part]])
            packed, like = pack_groups(spans[which[part]], [slots])
            columns = {"slot": slots.take(like), "packed": packed, "first_offset": self.first_offset}
            yield piece_rows({**place, **columns, "kind": TOUCHING}, rows=len(packed))


def _ranges(low: Array, high: Array) -> tuple[Array, Array]:
    """Every number from each low one to before the high one, and before it the index of its range."""
    counts = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(low)), counts)
    return which, low[which] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)


def _steps(batches: Iterable[pa.RecordBatch], *, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    found = Gathered()
    for rows in whole_runs(batches, GROUP):
        steps = _section_steps(rows, offsets_per_task)
        found.add(steps, np.zeros(len(steps), np.int64), rows.select(WHERE).slice(0, 1))
        if found.count >= STEPS_AT_ONCE:
            yield from _step_rows(found)
    yield from _step_rows(found)


def _section_steps(rows: pa.Table, offsets_per_task: int) -> Array:
    """Steps that batches in a section make; in the first section of a log, those of what was open before it, too."""
    spans, _ = unpack(rows.column("packed").combine_chunks(), SPAN)
    section, log_first = rows.column("slot")[0].as_py(), pc.max(rows.column("first_offset")).as_py()
    is_first = log_first is not None and log_first // offsets_per_task == section
    ends = rows.filter(pc.equal(rows.column("kind"), END)).select(["log_end_offset", "end_time"]).to_pylist()
    log_end_offset, end_time = (ends[0]["log_end_offset"], ends[0]["end_time"]) if ends else (None, None)
    return lso_steps(
        spans,
        log_end_offset=log_end_offset,
        end_time=-1 if end_time is None else end_time,
        start=None if is_first else section * offsets_per_task,
        stop=None if ends else (section + 1) * offsets_per_task,
    )


def _step_rows(found: Gathered) -> Iterator[pa.RecordBatch]:
    if found.count:
        steps, codes, places = found.take()
        where = {name: places.column(name).take(pa.array(codes)) for name in WHERE}
        yield from spark_table(lso_table(steps, **where)).to_batches()
