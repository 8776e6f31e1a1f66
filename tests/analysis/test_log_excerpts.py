"""Excerpts of a log, and the open batches in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.analysis.build import first_batch, partition
from tests.analysis.logged import at, data, excerpt, headers, marker, milliseconds, open_transaction, with_logs
from tests.stored import compare
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


def other(offset: int, second: float, **more: Any) -> dict[str, Any]:
    return marker(offset, COMMIT, pid=8, second=second, **more)


def when(one: LogTime | None) -> str:
    if one is None:
        return "unknown"
    seconds = (one.time - milliseconds(0)) / 1000
    return f"{seconds:g} s of leader epoch {one.leader_epoch}{' exactly' if one.is_exact else ''}"


BETWEEN = data(99, pid=8, second=1), data(100, second=2), data(101, pid=8, second=3)
WITHOUT_LOG = open_transaction(epoch=4)
PARTS: dict[str, Sequence[OpenPart]] = {
    "batches of which the same is known": parts(
        other(99, 1), data(100, second=2), data(101, records=3, second=3), data(104, pid=9), other(105, 5)),
    "a broker's time between two": parts(data(100, second=2), other(101, 4), data(102, second=3)),
    "CreateTime is no broker's time": parts(
        data(100, second=2), data(101, pid=8, second=4), data(102, second=3)),
    "nor is a marker without a time": parts(
        data(100, second=2), other(101, 4, max_timestamp=-1), data(102, second=3)),
    "a newer epoch": parts(data(100), data(101), data(102, epoch=1), data(103, epoch=1, records=2), epoch=1),
    "LogAppendTime": parts(data(100, second=2, **APPENDED), data(101, second=3, **APPENDED)),
    "LogAppendTime beside it": parts(
        data(99, pid=8, second=1, **APPENDED), data(100, second=9), data(101, pid=8, second=3, **APPENDED)),
    "a marker is appended a little after its time on any topic": parts(
        data(100), other(101, 5, attributes=other(0, 0)["attributes"] | LOG_APPEND_TIME)),
    "a marker of another leader": parts(data(100), other(101, 5, leader_epoch=6)),
    # On __consumer_offsets no client sets the time: as under LogAppendTime, but not to the millisecond.
    "what the group coordinator writes has its time": parts(*BETWEEN, brokers_write=True),
    "what a client writes has not": parts(*BETWEEN),
    # The earliest time of its records by their client
    "by their client": parts(data(100, second=9), data(101, second=3), data(102, second=5)),
    "by their client, one has none": parts(data(100, second=9), data(101, max_timestamp=-1)),
    "by their client, at 0": parts(data(100, max_timestamp=0)),
    "by their client, none has any": parts(data(100, max_timestamp=-1)),
    "by their client, each part has its own": parts(data(100, second=9), other(101, 4), data(102, second=3)),
    # After records were deleted
    "its first batch begins before it": parts(data(98, records=5)),
    "a batch with a broker's time and one without": parts(data(100, second=2, **APPENDED), data(101, second=3)),
    "offset 0, and a time of 0": with_logs(
        open_transaction(start=0), excerpt(data(0), other(1, 0, max_timestamp=0), start=0, stop=150)).open_parts,
    # What was not read: a leader without a high watermark may have records up to the end of its log
    "up to the high watermark": parts(data(100), leader=partition(hw=150, log_end_offset=200)),
    "up to the end of the log, which is behind": parts(data(100), leader=partition(hw=None, log_end_offset=200)),
    "up to the end of the log, which was read": parts(data(100), leader=partition(hw=None, log_end_offset=150)),
    "the leader shows neither": parts(data(100), leader=partition(hw=None)),
    "not up to the high watermark": parts(
        other(99, 1), data(100, epoch=2), data(101, pid=8), stop=149, epoch=4),
    "just up to it": parts(data(100), stop=150),
    "the last broker's time that was read": parts(data(100), other(101, 7), stop=102),
    "without a broker's time": parts(data(100), stop=102),
    "the leader takes no lower epoch, and knows no higher one": parts(data(100, epoch=4), stop=102, epoch=4),
    # The claims were about all but it, and the marker decides it as well.
    **{
        f"the leader's last batch has number {number} and epoch {epoch}": with_logs(
            open_transaction(leader=partition(hw=102), last_sequence=number, epoch=epoch),
            log=excerpt(data(100), data(101, sequence=1), stop=102)).open_parts
        for number, epoch in ((1, 0), (2, 0), (0, 1), (None, 0))
    },
    "behind its marker nothing is open": parts(data(100), marker(101, ABORT), stop=102),
    "without the log, older epochs may have opened it": WITHOUT_LOG.open_parts,
    "without the log and a high watermark": open_transaction(epoch=4, leader=partition(hw=None)).open_parts,
    **{
        f"without the log, and its first batch has epoch {epoch}": open_transaction(
            epoch=4, first_batches=[first_batch(epoch=epoch)]).open_parts
        for epoch in (3, 4)
    },
    "in a log without it": with_logs(WITHOUT_LOG, excerpt(data(100, pid=8))).open_parts,
    "a leader that does not show the epoch": open_transaction(epoch=-1).open_parts,
    "a leader that does not show the epoch, and a log": parts(data(100, epoch=2), stop=102, epoch=-1),
    "at offset 0, without the log": open_transaction(start=0, epoch=0).open_parts,
    # The log was read after the leader answered.
    "an epoch above that of the leader is not lowered": parts(data(100, epoch=5), stop=102, epoch=4),
}  # fmt: skip


def test_the_parts_of_an_open_transaction() -> None:
    """Of producer 7 from offset 100 on: of each the same is known, what was not read among them."""
    lines = []
    for name, found in PARTS.items():
        lines.append(f"# {name}")
        for each in found:
            written = "unknown" if each.written_at is None else f"{(each.written_at - milliseconds(0)) / 1000:g} s"
            epochs = f"epoch {each.epoch} of {each.lowest_epoch}..{each.highest_epoch}"
            where = f"{each.offsets} ({each.first_offset}..{each.last_offset}), {epochs}, written at {written}"
            lines.append(f"{where}; after {when(each.after)}, before {when(each.before)}")
    compare("open_parts.txt", lines)


@pytest.mark.parametrize(
    ("first", "last", "text"), [(4, 4, "offset 4"), (4, 9, "offsets 4 to 9"), (0, None, "offsets from 0 on")]
)
def test_offsets_in_words(first: int, last: int | None, text: str) -> None:
    assert offsets_text(first, last) == text
