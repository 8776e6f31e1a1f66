"""A producer's batches around the start of its open transaction: which is which, at the edges."""

import numpy as np
import pytest

from tests.analysis.logged import at, data, excerpt, headers, marker, milliseconds
from toolkit.analysis.diagnosis.log_excerpts import ProducerBatches, have_ended, producer_batches
from toolkit.formats.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, Headers


def batches(*rows: dict[str, object], start: int = 100, **more: int) -> ProducerBatches:
    return producer_batches(excerpt(*rows, **more), 7, start)


def offsets(found: Headers) -> list[int]:
    return [int(each) for each in found["base_offset"]]


def test_the_batches_around_the_start_offset() -> None:
    """The one that contains it may begin before it; others write in between, and outside of transactions."""
    found = batches(
        data(90), marker(91, ABORT), data(92, sequence=1), marker(93, COMMIT), data(94, records=3, sequence=2),
        data(97, pid=8), data(98, attributes=0, sequence=5), data(99, records=3, sequence=6), data(102, sequence=9),
        marker(103, COMMIT, pid=8), marker(104, ABORT),
    )  # fmt: skip
    assert offsets(found.first_batch) == [99]
    assert offsets(found.open_data) == [99, 102]
    assert offsets(found.data_before) == [94]
    assert offsets(found.markers_before) == [91, 93]
    assert offsets(found.marker_before) == [93]
    assert offsets(found.markers_after) == [104]
    assert offsets(found.foreign_opening) == []
    at_its_end = batches(data(99, records=2), data(101))
    assert (offsets(at_its_end.first_batch), offsets(at_its_end.open_data)) == ([99], [99, 101])
    assert offsets(batches(data(100, records=2)).first_batch) == [100], "its first one"
    leader_change = marker(95, 2)  # another kind of control record
    assert offsets(batches(data(90), leader_change, data(100)).markers_before) == []
    plain = data(95, marker=COMMIT)
    assert offsets(batches(plain, data(100)).markers_before) == [], "only control batches are markers"


def test_a_batch_of_another_producer_at_the_start() -> None:
    for first, records in ((100, 3), (98, 3), (98, 5)):
        assert offsets(batches(data(first, pid=8, records=records)).foreign_opening) == [first]
    assert offsets(batches(data(98, pid=8, records=2), data(101, pid=8)).foreign_opening) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([data(90, records=10), data(100)], False),
        ([data(90, records=9), data(100)], True),
        ([data(91, records=9), data(100)], True),
        ([data(90, records=12), data(103)], False),
        ([data(90, records=5), marker(95, COMMIT), data(96, records=4, pid=8), data(100)], False),
        ([data(90, records=3), marker(95, COMMIT), data(96, records=4, pid=8), data(100)], False),
        ([data(90, records=5), marker(95, COMMIT), data(97, records=3, pid=8), data(100)], True),
        ([data(90, records=10), data(102)], False),
    ],
)
def test_a_later_marker_may_be_missing_only_between_the_last_one_and_the_start(
    rows: list[dict[str, object]], expected: bool
) -> None:
    """The cleaner has removed batches there; what is missing before that marker, or behind the start, is none of it."""
    assert batches(*rows).has_gaps is expected


def test_a_late_batch_has_the_epoch_that_a_marker_has_ended() -> None:
    ended = marker(99, ABORT)
    assert batches(data(98), ended, data(100, sequence=1)).is_late
    assert batches(data(98), ended, data(100)).is_late, "of a transaction that a marker ended; see `was_never_added`"
    assert not batches(data(98), data(100)).is_late, "nothing has ended it"
    assert not batches(data(98), ended).is_late, "there is no batch"
    assert not batches(data(98), ended, data(100, epoch=1)).is_late, "a new epoch"
    assert not batches(data(98), marker(99, ABORT, epoch=2), data(100, epoch=1)).is_late, "neither is that of the data"
    assert batches(ended, data(100, sequence=1)).is_late, "its predecessors are not read"
    assert not batches(ended, data(100, sequence=0)).is_late, "it may be the first of a transaction"


def test_whether_the_next_sequence_number_follows() -> None:
    ended = marker(99, ABORT)
    assert batches(data(96, records=2), ended, data(100, sequence=2)).sequence_follows is True
    assert batches(data(96, records=2), ended, data(100, sequence=3)).sequence_follows is False
    assert batches(data(96), ended, data(100, sequence=1, epoch=1)).sequence_follows is False, "another epoch"
    assert batches(data(96, sequence=2**31 - 1), ended, data(100)).sequence_follows is True, "it wraps"
    for unknown in ([data(96), ended], [ended, data(100)], [data(96), ended, data(100, sequence=-1)]):
        assert batches(*unknown).sequence_follows is None
    assert batches(data(96, sequence=-1), ended, data(100, sequence=0)).sequence_follows is False


def test_a_time_of_a_broker_is_that_of_a_marker_or_under_log_append_time() -> None:
    appended = {"attributes": TRANSACTIONAL | LOG_APPEND_TIME}
    found = batches(
        data(90, second=0), marker(91, COMMIT, pid=8, second=1), data(92, pid=9, records=8, second=2, **appended),
        data(100, second=3), data(101, second=4), marker(102, COMMIT, pid=8, second=5), data(103, second=6, **appended),
    )  # fmt: skip
    assert (found.brokers_time_before, found.brokers_time_after) == (at(2), at(5))
    assert found.brokers_times == [milliseconds(second) for second in (1, 2, 5, 6)]
    earlier = batches(data(90), marker(91, COMMIT, pid=8, second=1), data(92), data(100))
    assert earlier.brokers_time_before == at(1)
    none = batches(data(90), data(100), data(101), marker(102, COMMIT, pid=8, max_timestamp=-1))
    assert (none.brokers_times, none.brokers_time_before, none.brokers_time_after) == ([], None, None)
    in_it = batches(data(90), data(99, records=3, **appended))
    assert in_it.brokers_time_before is None, "the batch at the start is not before it"
    many = [marker(0, COMMIT, second=0), *(data(n, second=1) for n in range(1, 1_600)), data(1_600)]
    far = producer_batches(excerpt(*many, start=0), 7, 1_600)
    assert far.brokers_time_before is None, "of the last thousand batches only"
    assert producer_batches(excerpt(*reversed_at_end(many), start=0), 7, 1_600).brokers_time_after == at(9)


def reversed_at_end(many: list[dict[str, object]]) -> list[dict[str, object]]:
    """The same, with 1,500 batches and a marker behind them."""
    behind = [data(1_601 + n, second=2) for n in range(1_500)]
    return [*many, *behind, marker(3_101, COMMIT, second=9)]


def test_producers_have_ended_once_each_has_a_control_batch() -> None:
    found = headers(data(90), data(91, pid=8), marker(92, ABORT), data(93, pid=9, attributes=CONTROL | TRANSACTIONAL))
    assert have_ended(found, [7])
    assert have_ended(found, [7, 9])
    assert not have_ended(found, [7, 8])
    assert not have_ended(np.zeros(0, found.dtype), [7])


def test_a_batch_and_a_marker_as_evidence() -> None:
    found = batches(data(98), marker(99, ABORT, epoch=1), data(100, records=2, sequence=4))
    first, ended = found.entry("first_batch", found.first_batch), found.entry("marker_before", found.marker_before)
    assert first.value == (
        "offsets 100..101: batch, epoch 0, sequence 4, 2 records, leader epoch 4, 2026-11-21T11:50:02+00:00"
    )
    assert ended.value == (
        "offsets 99..99: ABORT, epoch 1, coordinator epoch 3, leader epoch 4, 2026-11-21T11:50:01+00:00"
    )
    no_time = batches(data(100, max_timestamp=-1))
    assert (no_time.entry("first_batch", no_time.first_batch).value or "").endswith("leader epoch 4")
