"""Sorting and selection of arrays, against numpy's."""

import numpy as np
import pytest

from toolkit.analysis.log.stable_sort import run_starts, stable_order, take_rows
from toolkit.formats.log.headers import HEADER

MINIMUM, MAXIMUM = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [3, 1, 3, 1, 2],
        [-1, -5, 0, -5],
        [2**16, 0, 2**16 - 1, 2**16, 0],
        [2**17 + 1, 1, 2**17, 2**16 + 1, 1],
        [2**40, 2**33, 5, 2**40, -(2**40)],
        [1_000_000_007, 1_000_000_000, 1_000_065_536, 1_000_000_000],
        [MAXIMUM, 0, MINIMUM, -1, MAXIMUM, MINIMUM],
    ],
)
def test_integers_are_sorted_stably(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    assert stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()


def test_random_integers_are_sorted_stably() -> None:
    random = np.random.default_rng(7)
    for bits in (4, 16, 17, 32, 48, 63):
        array = random.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 500)
        assert stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()


def test_a_run_starts_at_the_first_element_and_at_each_change() -> None:
    assert run_starts(changes=np.array([False, True, False, True])).tolist() == [0, 2, 4]
    assert run_starts(changes=np.array([], np.bool_)).tolist() == [0]


def test_rows_are_taken_in_the_order_of_their_indices() -> None:
    rows = np.zeros(3, HEADER)
    rows["base_offset"] = [10, 20, 30]
    assert take_rows(rows, np.array([2, 0, 2]))["base_offset"].tolist() == [30, 10, 30]
