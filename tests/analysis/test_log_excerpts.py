"""Excerpts of a log, and the open batches in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.analysis.logged import data, excerpt, headers, marker, milliseconds, open_transaction, with_logs
from toolkit.analysis.diagnosis.log_excerpts import LogTime, OpenPart, ProducerBatches, have_ended, producer_batches
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT


def batches(*rows: dict[str, object], start: int = 100, **more: int) -> ProducerBatches:
    return producer_batches(excerpt(*rows, **more), 7, start)


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


def test_producers_have_ended_once_each_has_a_control_batch() -> None:
    found = headers(data(90), data(91, pid=8), marker(92, ABORT), data(93, pid=9, attributes=CONTROL | TRANSACTIONAL))
    assert have_ended(found, [7])
    assert have_ended(found, [7, 9])
    assert not have_ended(found, [7, 8])
    assert not have_ended(np.zeros(0, found.dtype), [7])


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


# What was not read


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
