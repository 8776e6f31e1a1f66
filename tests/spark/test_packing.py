"""Packing rows of structured arrays into binary columns, and splitting rows into runs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from toolkit.spark.datasources.partial_transactions import ROWS_PER_PACK, pack, pack_starts, runs, unpack, whole_runs

PAIR = np.dtype([("key", "i8"), ("number", "i4")])


def pairs(keys: Sequence[int | None]) -> npt.NDArray[Any]:
    return np.array([(-1 if key is None else key, number) for number, key in enumerate(keys)], PAIR)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3 * ROWS_PER_PACK)), max_size=6), st.data())
def test_runs_are_packed_into_small_rows_and_unpacked(key_runs: list[tuple[int, int]], data: st.DataObject) -> None:
    keys = [key for key, length in key_runs for _ in range(length)]
    rows = pairs(keys)
    starts = np.cumsum([0, *(length for _, length in key_runs)])[:-1].astype(np.int64)
    packs = pack_starts(starts, len(rows))
    assert set(starts.tolist()) <= set(packs.tolist())
    column = pack(rows, packs)
    first = data.draw(st.integers(0, len(column)))
    unpacked, counts = unpack(column.slice(first), PAIR)
    assert unpacked.tolist() == rows[len(rows) - counts.sum() :].tolist()
    assert all(0 < count <= ROWS_PER_PACK for count in counts)


def test_a_null_unpacks_to_no_rows() -> None:
    column = pa.array([None, pairs([1, 2]).tobytes(), None, b""], pa.binary())
    unpacked, counts = unpack(column, PAIR)
    assert (unpacked["key"].tolist(), counts.tolist()) == ([1, 2], [0, 2, 0, 0])
    assert unpack(column[:0], PAIR)[0].size == 0


@given(st.lists(st.tuples(st.sampled_from([1, None]), st.sampled_from(["a", None])), max_size=30), st.data())
def test_runs_are_split_by_column_changes_and_joined_over_batches(
    rows: list[tuple[int | None, str | None]], data: st.DataObject
) -> None:
    schema = pa.schema([("number", pa.int64()), ("letter", pa.string()), ("at", pa.int64())])
    records = [{"number": number, "letter": letter, "at": at} for at, (number, letter) in enumerate(rows)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    batches = [
        pa.RecordBatch.from_pylist(records[start:stop], schema=schema)
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True)
    ]
    for split_runs in (list(runs(batches, ["number", "letter"])), list(whole_runs(batches, ["number", "letter"]))):
        assert [row for run in split_runs for row in run.to_pylist()] == records
        keys = [{(row["number"], row["letter"]) for row in run.to_pylist()} for run in split_runs]
        assert all(len(key) == 1 for key in keys)
    assert all(first != second for first, second in pairwise(keys))
