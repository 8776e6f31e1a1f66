"""A log that is read in parts, wherever it is cut and in whatever order they are joined, gives the result of one read.

`FOLDS` has all that is computed from the batches of a log; each gives what the parts give together, and one read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.random_logs import Step, batches, step_lists
from tests.analysis.test_log_transactions import BASE, figures, sorted_rows
from tests.analysis.test_replayed_producers import rows_of
from tests.formats.logs import joined, logs
from tests.spark.test_log_state import WHERE, expected_holds, taken
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    OPEN,
    LogArray,
    RunningTotals,
    Statistics,
    amounts,
    begin,
    finish,
    log_transaction_table,
    lso_steps,
    merge,
    partial_transactions,
    statistics,
)
from toolkit.analysis.log.producer_state import producer_state, resume
from toolkit.formats.headers import Headers
from toolkit.formats.log_dir_files import SnapshotEntry
from toolkit.formats.scan import scan, scan_file
from toolkit.schema import LOG_TRANSACTIONS
from toolkit.sources.log_tables import placed
from toolkit.spark.pipeline.log_fold import LogState

T = TypeVar("T")
Compared = tuple[object, object]  # what the parts give together, and what one read gives

# A hold that begins where a part does, short ones, and clocks that are ahead: the first marker after them shows it.
OVERLAPPING = [
    *(Step("data", 1, records=2), Step("data", 2), Step("data", 2, records=3), Step("commit", 1, wait=5)),
    *(Step("data", 3), Step("commit", 2, wait=5), Step("plain", 0, records=2)),
]
STEPS = [
    OVERLAPPING,
    [Step("data", 1), Step("data", 2), Step("plain", 0), Step("commit", 1), Step("commit", 2, wait=9)],
    [Step("data", 1), Step("commit", 1)] * 5,
    [Step("data", 3), Step("commit", 3), Step("data", 1, wait=3_600_000), Step("commit", 1, wait=-3_590_000)],
    [
        *(Step("data", 3), Step("commit", 3), Step("data", 1, wait=10_000), Step("data", 2)),
        *(Step("commit", 2, wait=-10_000), Step("data", 2), Step("commit", 2, wait=20_000), Step("commit", 1)),
    ],
]
ENTRIES = [  # of producers before the log
    *(SnapshotEntry(1000, 1, 4, 9, 2, 7, 3, 5), SnapshotEntry(2000, 0, None, 9, 0, None, None, None)),
    SnapshotEntry(9000, 2, 0, 0, 0, 9, 0, 0),
]
any_headers = step_lists.map(partial(batches, base_offset=BASE)) | st.sampled_from(
    [*(batches(each, base_offset=BASE) for each in STEPS), batches(OVERLAPPING, base_offset=BASE)[2:]]
)


def parts_of(items: Any, chance: Random) -> list[Any]:
    """Consecutive parts of any sizes, some of them empty; or one of each item."""
    points = sorted(chance.choices(range(len(items) + 1), k=chance.randint(0, 6)))
    if len(items) < 10 and chance.random() < 0.3:
        points = [*range(len(items))]
    return [items[start:stop] for start, stop in pairwise([0, *points, len(items)])]


def joined_in_any_order(parts: Sequence[T], join: Callable[..., T], chance: Random) -> T:
    """Neighbours are joined, two or three at a time."""
    left = list(parts)
    while len(left) > 1:
        size, at = chance.randint(2, 3), chance.randrange(len(left))
        left[at : at + size] = [join(*left[at : at + size])]
    return left[0]


def opened_before(chance: Random) -> dict[int, tuple[int, int]]:
    starts = chance.sample(range(BASE), k=3)
    return {producer: (start, chance.randint(0, 2)) for producer, start in zip((1000, 3000, 9000), starts, strict=True)}


def transactions(headers: Headers, chance: Random) -> Compared:
    from_start, opened = chance.random() < 0.5, chance.choice([None, opened_before(chance)])
    before = begin(opened_before=None if from_start else opened) if from_start or opened is not None else EMPTY
    parts = [before, *map(partial_transactions, parts_of(headers, chance))]
    together = finish(joined_in_any_order(parts, merge, chance))
    return sorted_rows(together), sorted_rows(finish(before + partial_transactions(headers)))


def transactions_taken_early(headers: Headers, chance: Random) -> Compared:
    first = chance.choice([EMPTY, begin(), begin(opened_before=opened_before(chance))])
    rest, early = first, []
    for part in parts_of(headers, chance):
        closed, rest = (rest + partial_transactions(part)).take_closed()
        early.append(closed)
        assert first is EMPTY or (rest.edges["outcome"] == OPEN).all()
    return sorted_rows(np.concatenate([*early, finish(rest)])), sorted_rows(
        finish(first + partial_transactions(headers))
    )


def transaction_statistics(headers: Headers, chance: Random) -> Compared:
    rest, parts = begin(), []
    for part in parts_of(headers, chance):
        closed, rest = (rest + partial_transactions(part)).take_closed()
        parts.append(statistics(closed))
    parts.append(statistics(finish(rest)))
    together, whole = sum(parts, Statistics()), statistics(finish(begin() + partial_transactions(headers)))
    return (figures(together), together.open.tolist()), (figures(whole), whole.open.tolist())


def producers(headers: Headers, chance: Random) -> Compared:
    snapshot = resume(chance.sample(ENTRIES, k=chance.randint(0, 3)))
    parts = [snapshot, *map(producer_state, parts_of(headers, chance))]
    return rows_of(joined_in_any_order(parts, producer_state, chance)), rows_of(producer_state(snapshot, headers))


def running_totals(headers: Headers, chance: Random) -> Compared:
    """Of a log that compaction has cleaned."""
    headers = headers[[chance.random() < 0.7 for _ in headers]] if chance.random() < 0.5 else headers
    offsets = chance.choices(range(100), k=chance.randint(0, 8))
    totals = RunningTotals(offsets)
    for part in parts_of(headers, chance):
        if len(part):
            totals.add(part, np.append(part["base_offset"][::-1], 1_000))  # which is after the last batch
    counted = sorted({*offsets, *headers["base_offset"].tolist()})
    ranges = [(first, stop) for first in counted for stop in counted if first <= stop]
    whole = [amounts(headers, first, stop) for first, stop in [*ranges, (0, 2**62)]]
    return [*(totals.between(*each) for each in ranges), totals.total], whole


def stored_state(headers: Headers, chance: Random) -> Compared:
    """With the state stored in between, of a response: its positions mean nothing."""
    headers = placed(headers, None)
    least, is_stored = chance.choice([0, 3]), chance.random() < 0.5
    before = chance.choice([EMPTY, begin(), begin(opened_before=opened_before(chance))])
    state, transactions, steps = LogState(where=WHERE, min_held_ms=least), [], []
    for number, part in enumerate(parts_of(headers, chance)):
        rows = taken(state, part, EMPTY if number else before)
        transactions.append(rows.log_transactions)
        steps.append(rows.steps.rows)
        if is_stored:
            state = LogState.of(state.stored("log"), min_held_ms=least)
    rest, whole = state.open_rows(), finish(merge(before, partial_transactions(headers)))
    together = log_transaction_table(*transactions, rest.log_transactions)
    one = log_transaction_table(LogArray(whole, WHERE))
    assert one.column_names == LOG_TRANSACTIONS.names
    end, last = (int(headers[-1]["last_offset"]) + 1, headers[-1]["max_timestamp"]) if len(headers) else (None, -1)
    expected = lso_steps(whole, log_end_offset=end, end_time=last).tolist()
    holds = expected_holds(headers, [whole], least, end)
    return (
        (sorted(map(repr, together.to_pylist())), np.concatenate([*steps, rest.steps.rows]).tolist(), state.is_held,
         state.lso_holds().to_pylist()),
        (sorted(map(repr, one.to_pylist())), expected, bool(holds), holds),
    )  # fmt: skip


FOLDS = (transactions, transactions_taken_early, transaction_statistics, producers, running_totals, stored_state)


@pytest.mark.parametrize("fold", FOLDS, ids=lambda fold: fold.__name__)
@given(headers=any_headers, chance=st.randoms(use_true_random=False))
def test_parts_of_a_log_give_the_result_of_one_read(
    fold: Callable[[Headers, Random], Compared], headers: Headers, chance: Random
) -> None:
    together, whole = fold(headers, chance)
    assert together == whole


@given(log=logs, chance=st.randoms(use_true_random=False), crc=st.booleans())
def test_windows_of_a_segment_give_the_result_of_one_read(
    tmp_path_factory: pytest.TempPathFactory, log: list[bytes], chance: Random, crc: bool
) -> None:
    """Also of a damaged one."""
    data = bytearray(b"".join(log) + chance.randbytes(chance.choice([0, 0, 70])))
    for _ in range(chance.choice([0, 0, 1, 3])):
        at, size = chance.randrange(len(data) + 1), chance.choice([1, 8, 150])
        data[at : at + size] = chance.choice([b"", bytes(size), chance.randbytes(size), data[at : at + size] * 2])
    path = tmp_path_factory.getbasetemp() / f"window-{os.getpid()}.log"
    path.write_bytes(data)
    whole = scan(bytes(data), crc=crc)
    parts = joined([scan(b""), *scan_file(path, crc=crc, chunk_bytes=chance.randint(1, 3000))])
    assert (parts.headers.tolist(), parts.damage) == (whole.headers.tolist(), whole.damage)


@given(log=logs, chance=st.randoms(use_true_random=False))
def test_a_segment_that_grows_gives_the_result_of_one_read(log: list[bytes], chance: Random) -> None:
    whole, parts = b"".join(log), [scan(b"")]
    for cut in sorted(chance.choices(range(len(whole) + 1), k=5)):
        parts.append(scan(whole[:cut], position=parts[-1].end, last=False))
        assert parts[-1].damage == ()
    parts.append(scan(whole, position=parts[-1].end))
    assert joined(parts).headers.tolist() == scan(whole).headers.tolist()
