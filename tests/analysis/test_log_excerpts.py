"""Excerpts of a log, and the open batches in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.analysis.build import first_batch, partition
from tests.analysis.logged import at, data, excerpt, headers, marker, milliseconds, open_transaction, with_logs
from toolkit.analysis.diagnosis.log_excerpts import (
    LogTime,
    OpenPart,
    ProducerBatches,
    have_ended,
    offsets_text,
    producer_batches,
)
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
    assert found.foreign_producer_id is None
    at_its_end = batches(data(99, records=2), data(101))
    assert (offsets(at_its_end.first_batch), offsets(at_its_end.open_data)) == ([99], [99, 101])
    assert offsets(batches(data(100, records=2)).first_batch) == [100], "its first one"
    leader_change = marker(95, 2)  # another kind of control record
    assert offsets(batches(data(90), leader_change, data(100)).markers_before) == []
    plain = data(95, marker=COMMIT)
    assert offsets(batches(plain, data(100)).markers_before) == [], "only control batches are markers"


def test_a_batch_of_another_producer_at_the_start() -> None:
    for first, records in ((100, 3), (98, 3), (98, 5)):
        assert batches(data(first, pid=8, records=records)).foreign_producer_id == 8
    assert batches(data(98, pid=8, records=2), data(101, pid=8)).foreign_producer_id is None


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


APPENDED = {"attributes": TRANSACTIONAL | LOG_APPEND_TIME}


def parts(
    *rows: dict[str, Any], stop: int = 150, epoch: int = 0, brokers_write: bool = False, **more: Any
) -> Sequence[OpenPart]:
    """Of producer 7 from offset 100 on; the high watermark is 150, and the log was read up to it."""
    log = excerpt(*rows, stop=stop, brokers_write=brokers_write)
    return with_logs(open_transaction(epoch=epoch, **more), log).open_parts


def time(second: float, *, leader_epoch: int = 4, is_exact: bool = False) -> LogTime:
    return LogTime(time=milliseconds(second), leader_epoch=leader_epoch, is_exact=is_exact)


def other(offset: int, second: float, **more: Any) -> dict[str, Any]:
    return marker(offset, COMMIT, pid=8, second=second, **more)


def test_batches_of_which_the_same_is_known_are_one_part() -> None:
    found = parts(other(99, 1), data(100, second=2), data(101, records=3, second=3), data(104, pid=9), other(105, 5))
    assert found == [
        OpenPart(
            first_offset=100, last_offset=103, lowest_epoch=0, highest_epoch=0, after=time(1), before=time(5),
            written_at=milliseconds(2),
        )
    ]  # fmt: skip
    assert (found[0].epoch, found[0].offsets) == (0, "offsets 100 to 103")


def test_a_brokers_time_between_two_batches_parts_them() -> None:
    found = parts(data(100, second=2), other(101, 4), data(102, second=3))
    assert [(each.first_offset, each.last_offset, each.after, each.before) for each in found] == [
        (100, 100, None, time(4)),
        (102, 102, time(4), None),
    ]
    of_client = parts(data(100, second=2), data(101, pid=8, second=4), data(102, second=3))
    assert [each.offsets for each in of_client] == ["offsets 100 to 102"], "CreateTime is no broker's time"
    untimed = parts(data(100, second=2), other(101, 4, max_timestamp=-1), data(102, second=3))
    assert [each.offsets for each in untimed] == ["offsets 100 to 102"]


def test_a_newer_epoch_is_a_part_of_its_own() -> None:
    found = parts(data(100), data(101), data(102, epoch=1), data(103, epoch=1, records=2), epoch=1)
    assert [(each.epoch, each.lowest_epoch, each.highest_epoch, each.offsets) for each in found] == [
        (0, 0, 0, "offsets 100 to 101"),
        (1, 1, 1, "offsets 102 to 104"),
    ]


def test_a_batch_under_log_append_time_has_a_brokers_time_of_its_own() -> None:
    found = parts(data(100, second=2, **APPENDED), data(101, second=3, **APPENDED))
    assert [(each.offsets, each.after, each.before) for each in found] == [
        ("offset 100", time(2, is_exact=True), time(2, is_exact=True)),
        ("offset 101", time(3, is_exact=True), time(3, is_exact=True)),
    ]
    beside = parts(data(99, pid=8, second=1, **APPENDED), data(100, second=9), data(101, pid=8, second=3, **APPENDED))
    assert [(each.after, each.before) for each in beside] == [(time(1, is_exact=True), time(3, is_exact=True))]


def test_a_marker_is_appended_a_little_after_its_time_on_any_topic() -> None:
    (found,) = parts(data(100), other(101, 5, attributes=other(0, 0)["attributes"] | LOG_APPEND_TIME))
    assert found.before == time(5)
    (found,) = parts(data(100), other(101, 5, leader_epoch=6))
    assert found.before == time(5, leader_epoch=6)


def test_what_the_group_coordinator_writes_has_its_time() -> None:
    """On __consumer_offsets no client sets the time."""
    rows = data(99, pid=8, second=1), data(100, second=2), data(101, pid=8, second=3)
    (found,) = parts(*rows, brokers_write=True)
    assert (found.after, found.before) == (time(2), time(2)), "as under LogAppendTime, but not to the millisecond"
    (of_client,) = parts(*rows)
    assert (of_client.after, of_client.before) == (None, None)


def test_the_earliest_time_of_its_records_by_their_client() -> None:
    (found,) = parts(data(100, second=9), data(101, second=3), data(102, second=5))
    assert found.written_at == milliseconds(3)
    (found,) = parts(data(100, second=9), data(101, max_timestamp=-1))
    assert found.written_at == milliseconds(9)
    (found,) = parts(data(100, max_timestamp=0))
    assert found.written_at == 0
    (found,) = parts(data(100, max_timestamp=-1))
    assert found.written_at is None
    both = parts(data(100, second=9), other(101, 4), data(102, second=3))
    assert [each.written_at for each in both] == [milliseconds(9), milliseconds(3)], "each part has its own"


def test_a_part_begins_at_the_start_of_the_transaction() -> None:
    """Its first batch may begin before it, after records were deleted."""
    (found,) = parts(data(98, records=5))
    assert (found.first_offset, found.last_offset) == (100, 102)


def test_a_batch_with_a_brokers_time_and_one_without_are_two_parts() -> None:
    found = parts(data(100, second=2, **APPENDED), data(101, second=3))
    exact = time(2, is_exact=True)
    assert [(each.offsets, each.after, each.before) for each in found] == [
        ("offset 100", exact, exact),
        ("offset 101", exact, None),
    ]


def test_a_transaction_at_offset_0_and_a_time_of_0() -> None:
    log = excerpt(data(0), other(1, 0, max_timestamp=0), start=0, stop=150)
    (found,) = with_logs(open_transaction(start=0), log).open_parts
    assert (found.first_offset, found.before and found.before.time) == (0, 0)


# What was not read


def test_a_leader_without_a_high_watermark_may_have_records_up_to_the_end_of_its_log() -> None:
    assert len(parts(data(100), leader=partition(hw=150, log_end_offset=200))) == 1
    assert len(parts(data(100), leader=partition(hw=None, log_end_offset=200))) == 2
    assert len(parts(data(100), leader=partition(hw=None, log_end_offset=150))) == 1
    assert len(parts(data(100), leader=partition(hw=None))) == 1, "it shows neither"


def test_what_was_not_read_up_to_the_high_watermark_may_be_of_it_too() -> None:
    read, unread = parts(other(99, 1), data(100, epoch=2), data(101, pid=8), stop=149, epoch=4)
    assert (read.first_offset, read.last_offset, read.epoch) == (100, 100, 2)
    assert unread == OpenPart(
        first_offset=149, last_offset=None, lowest_epoch=2, highest_epoch=4, after=time(1), before=None
    )
    assert (unread.epoch, unread.offsets, unread.written_at) == (None, "offsets from 149 on", None)
    assert len(parts(data(100), stop=150)) == 1
    (_, unread) = parts(data(100), other(101, 7), stop=102)
    assert unread.after == time(7), "the last broker's time that was read"
    (_, unread) = parts(data(100), stop=102)
    assert unread.highest_epoch == 0
    (_, same) = parts(data(100, epoch=4), stop=102, epoch=4)
    assert same.epoch == 4, "the leader takes no lower epoch, and knows no higher one"


def test_a_last_batch_that_is_not_replicated_yet_is_of_it_too() -> None:
    """The claims were about all but it, and the marker decides it as well."""
    rows = data(100), data(101, sequence=1)
    for last_sequence, last_epoch, unread in ((1, 0, []), (2, 0, [102]), (0, 1, [102]), (None, 0, [])):
        one = open_transaction(leader=partition(hw=102), last_sequence=last_sequence, epoch=last_epoch)
        parts = with_logs(one, log=excerpt(*rows, stop=102)).open_parts
        assert [each.first_offset for each in parts if each.last_offset is None] == unread
        assert parts[-1].highest_epoch == last_epoch


def test_behind_its_marker_nothing_is_open() -> None:
    assert len(parts(data(100), marker(101, ABORT), stop=102)) == 1


@pytest.mark.parametrize("hw", [150, None])
def test_without_the_log_of_the_partition_all_is_unread(hw: int | None) -> None:
    one = open_transaction(epoch=4, leader=partition(hw=hw))
    (unread,) = one.open_parts
    assert unread == OpenPart(
        first_offset=100, last_offset=None, lowest_epoch=-1, highest_epoch=4, after=None, before=None
    ), "older epochs may have opened it"
    first = open_transaction(epoch=4, first_batches=[first_batch(epoch=3)])
    (unread,) = first.open_parts
    assert (unread.lowest_epoch, unread.highest_epoch, unread.epoch) == (3, 4, None)
    own = open_transaction(epoch=4, first_batches=[first_batch(epoch=4)])
    assert own.open_parts[0].epoch == 4
    assert with_logs(one, excerpt(data(100, pid=8))).open_parts == one.open_parts


def test_a_leader_that_does_not_show_the_epoch_leaves_any() -> None:
    (unread,) = open_transaction(epoch=-1).open_parts
    assert (unread.lowest_epoch, unread.highest_epoch) == (-1, 32767)
    (_, unread) = parts(data(100, epoch=2), stop=102, epoch=-1)
    assert (unread.lowest_epoch, unread.highest_epoch) == (2, 32767)
    assert open_transaction(start=0, epoch=0).open_parts[0].first_offset == 0


def test_an_epoch_above_that_of_the_leader_is_not_lowered() -> None:
    """The log was read after the leader answered."""
    (_, unread) = parts(data(100, epoch=5), stop=102, epoch=4)
    assert (unread.lowest_epoch, unread.highest_epoch) == (5, 5)


@pytest.mark.parametrize(
    ("first", "last", "text"), [(4, 4, "offset 4"), (4, 9, "offsets 4 to 9"), (0, None, "offsets from 0 on")]
)
def test_offsets_in_words(first: int, last: int | None, text: str) -> None:
    assert offsets_text(first, last) == text
