"""Rows of structured arrays in binary columns, and runs of rows."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.spark.packing import ROWS_PER_PACK, pack, pack_groups, pack_starts, runs, unpack, whole_runs

PAIR = np.dtype([("key", "i8"), ("number", "i4")])


def pairs(keys: Sequence[int | None]) -> npt.NDArray[Any]:
    return np.array([(-1 if key is None else key, number) for number, key in enumerate(keys)], PAIR)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3 * ROWS_PER_PACK)), max_size=6), st.data())
def test_runs_are_packed_into_small_rows_and_come_out_again(
    stretches: list[tuple[int, int]], data: st.DataObject
) -> None:
    keys = [key for key, length in stretches for _ in range(length)]
    rows = pairs(keys)
    starts = np.cumsum([0, *(length for _, length in stretches)])[:-1].astype(np.int64)
    packs = pack_starts(starts, len(rows))
    assert set(starts.tolist()) <= set(packs.tolist())
    column = pack(rows, packs)
    first = data.draw(st.integers(0, len(column)))
    found, counts = unpack(column.slice(first), PAIR)
    assert found.tolist() == rows[len(rows) - counts.sum() :].tolist()
    assert all(0 < count <= ROWS_PER_PACK for count in counts)


@given(
    st.lists(st.sampled_from([1, 2, 3, None]), max_size=200), st.lists(st.sampled_from(["a", "b", None]), max_size=200)
)
def test_what_is_equal_in_every_key_is_packed_together_in_its_order(
    numbers: list[int | None], letters: list[str | None]
) -> None:
    both = list(zip(numbers, letters, strict=False))
    keys = [pa.array([number for number, _ in both], pa.int64()), pa.array([letter for _, letter in both], pa.string())]
    packed, like = pack_groups(pairs([number for number, _ in both]), keys)
    found, counts = unpack(packed, PAIR)
    assert sorted(found["number"].tolist()) == list(range(len(both)))
    assert len(set(both)) <= len(packed) <= len(set(both)) + len(both) // ROWS_PER_PACK
    ends = np.cumsum(counts)
    for start, end, one in zip(ends - counts, ends, like.to_pylist(), strict=True):
        rows = found[start:end]
        assert {both[number] for number in rows["number"]} == {both[one]}
        assert rows["number"].tolist() == sorted(rows["number"].tolist())


def test_a_null_holds_no_rows() -> None:
    column = pa.array([None, pairs([1, 2]).tobytes(), None, b""], pa.binary())
    found, counts = unpack(column, PAIR)
    assert (found["key"].tolist(), counts.tolist()) == ([1, 2], [0, 2, 0, 0])
    assert unpack(column[:0], PAIR)[0].size == 0


@given(st.lists(st.tuples(st.sampled_from([1, None]), st.sampled_from(["a", None])), max_size=30), st.data())
def test_runs_are_cut_where_any_of_the_columns_changes_and_put_together_over_batches(
    rows: list[tuple[int | None, str | None]], data: st.DataObject
) -> None:
    schema = pa.schema([("number", pa.int64()), ("letter", pa.string()), ("at", pa.int64())])
    listed = [{"number": number, "letter": letter, "at": at} for at, (number, letter) in enumerate(rows)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    batches = [
        pa.RecordBatch.from_pylist(listed[start:stop], schema=schema)
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True)
    ]
    for cut in (list(runs(batches, ["number", "letter"])), list(whole_runs(batches, ["number", "letter"]))):
        assert [row for part in cut for row in part.to_pylist()] == listed
        keys = [{(row["number"], row["letter"]) for row in part.to_pylist()} for part in cut]
        assert all(len(key) == 1 for key in keys)
    assert all(one != other for one, other in pairwise(keys))
