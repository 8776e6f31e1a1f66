"""The records behind a held LSO, and when a transaction opened."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import NOW
from tests.analysis.logged import at, data, excerpt, marker
from toolkit.analysis.diagnosis.causes import held_back, held_since, opening_time
from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ProducerBatches, producer_batches
from toolkit.formats.batches import LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT
from toolkit.schema.live import Finding


def row(**fields: Any) -> Finding:
    columns = {
        "verdict": "hanging",
        "reason": "",
        "remedy": "",
        "missing": (),
        "evidence": (),
        "observed_at": NOW,
        "brokers_time": NOW,
    }
    return Finding(**{**columns, "last_stable_offset": 100, "high_watermark": 110, **fields})


def counts(finding: Finding, log: Excerpt) -> tuple[int | None, int | None]:
    """Records and bytes."""
    held = held_back(finding, log)
    assert replace(held, records_held=None, bytes_held=None) == finding
    return held.records_held, held.bytes_held


BATCHES = (data(95, records=5), data(100, records=4), marker(104, COMMIT), data(105, pid=1, records=5))


def test_records_and_bytes_from_the_lso_to_the_high_watermark() -> None:
    assert counts(row(), excerpt(*BATCHES)) == (9, 300)
    assert counts(row(high_watermark=105), excerpt(*BATCHES)) == (4, 200)
    assert counts(row(high_watermark=100), excerpt(*BATCHES)) == (0, 0)


def test_a_range_that_was_not_read_completely_is_not_counted() -> None:
    assert counts(row(high_watermark=111), excerpt(*BATCHES)) == (None, None)
    assert counts(row(last_stable_offset=80), excerpt(*BATCHES)) == (None, None)
    assert counts(row(last_stable_offset=None), excerpt(*BATCHES)) == (None, None)
    assert counts(row(high_watermark=None), excerpt(*BATCHES)) == (None, None)
    assert counts(row(high_watermark=100), excerpt(start=150)) == (0, 0), "there is nothing to read"
    assert counts(row(), excerpt(data(100), held=(9, 300))) == (9, 300), "counted while it was read"


def test_compacted_records_do_not_count() -> None:
    cleaned = data(100, records=4) | {"last_offset": 109}
    assert counts(row(), excerpt(data(95, records=5), cleaned))[0] == 4


def test_a_batch_counts_from_the_log_start_offset() -> None:
    log = excerpt(data(100, records=6), data(106, records=4), start=103, log_start_offset=103)
    assert counts(row(), log) == (7, 200)
    unknown = excerpt(data(0, records=2), start=0, log_start_offset=None)
    assert counts(row(last_stable_offset=0, high_watermark=2), unknown) == (2, 100)


def opening(
    at_time: dt.datetime | None, batches: ProducerBatches, *, clock: str | None = "producer"
) -> tuple[dt.datetime | None, str | None]:
    """Opening time and clock."""
    finding = row(opened_at=at_time, opened_at_clock=clock)
    found = opening_time(finding, batches)
    assert replace(found, opened_at=at_time, opened_at_clock=clock) == finding
    return found.opened_at, found.opened_at_clock


BETWEEN = (marker(98, COMMIT, pid=1, second=0), data(100, second=5), marker(101, COMMIT, pid=1, second=60))


@pytest.mark.parametrize(
    ("at_time", "expected"),
    [
        (at(5), (at(5), "producer")),
        (at(-5), (at(-5), "producer")),  # clocks differ a little
        (at(65), (at(65), "producer")),
        (at(66), (at(0), "broker")),
        (at(-3600), (at(0), "broker")),
        (at(3600), (at(0), "broker")),
    ],
)
def test_a_producers_time_counts_within_the_markers_around_it(
    at_time: dt.datetime, expected: tuple[dt.datetime, str]
) -> None:
    assert opening(at_time, producer_batches(excerpt(*BETWEEN), 7, 100)) == expected


def test_a_future_time_without_a_previous_marker_is_null() -> None:
    without_marker = producer_batches(excerpt(data(100)), 7, 100)
    assert opening(NOW + dt.timedelta(hours=1), without_marker) == (None, None)
    assert opening(at(-3600), without_marker) == (at(-3600), "producer")


def test_a_log_append_time_is_a_bound_too() -> None:
    appended = data(98, pid=1, second=3) | {"attributes": TRANSACTIONAL | LOG_APPEND_TIME}
    batches = producer_batches(excerpt(appended, data(100)), 7, 100)
    assert opening(at(-3600), batches) == (at(3), "broker")


@pytest.mark.parametrize("clock", ["coordinator", "broker", None])
def test_other_clocks_are_not_corrected(clock: str | None) -> None:
    at_time = None if clock is None else at(-3600)
    batches = producer_batches(excerpt(*BETWEEN), 7, 100)
    assert opening(at_time, batches, clock=clock) == (at_time, clock)


def holder(**fields: Any) -> Finding:
    """The finding of producer 7's transaction at offset 100, which holds the LSO."""
    columns = {
        "queue_position": 1,
        "producer_id": 7,
        "producer_epoch": 0,
        "start_offset": 100,
        "last_stable_offset": 100,
    }
    return row(**columns | {"high_watermark": 101, **fields})


def hold_start(*batches: Any, start: int = 90, **fields: Any) -> tuple[dt.datetime | None, list[str]]:
    """The time since which it holds the LSO, and the names of the evidence."""
    held = held_since(holder(**fields), producer_batches(excerpt(*batches, start=start), 7, 100))
    assert held.held_ms == (held.held_from and (NOW - held.held_from) // dt.timedelta(milliseconds=1))
    return held.held_from, [entry.name or "" for entry in held.evidence]


def test_a_single_transaction_holds_from_its_first_batch() -> None:
    assert hold_start(data(99, pid=1), marker(99, COMMIT, pid=1), data(100, second=30)) == (at(30), [])
    assert hold_start(data(100, second=30), start=0) == (at(30), [])
    assert hold_start(data(100, second=30), start=100) == (at(30), [])


def test_a_transaction_holds_once_all_earlier_transactions_have_ended() -> None:
    before = (data(91, pid=1), data(92, pid=2), data(100, second=30))
    ended = (marker(101, COMMIT, pid=2, second=40), marker(102, ABORT, pid=1, second=50))
    later = (data(103, pid=3), marker(104, COMMIT, pid=3, second=60))
    assert hold_start(*before, *ended, *later, high_watermark=105) == (at(50), ["held_since"])
    log = producer_batches(excerpt(*before, *ended, *later), 7, 100)
    (entry,) = held_since(holder(high_watermark=105), log).evidence
    assert (entry.value or "").startswith("offsets 102..102: ABORT")
    assert hold_start(*before, *ended[:1], high_watermark=102) == (None, []), (
        "the log and the broker contradict each other"
    )


def test_earlier_transactions_of_the_same_producer_are_others() -> None:
    own_earlier = (data(91), marker(92, COMMIT))
    assert hold_start(*own_earlier, data(100, second=30)) == (at(30), [])
    behind = (data(93, pid=1), data(100, second=30), marker(101, COMMIT, pid=1, second=40))
    assert hold_start(*own_earlier, *behind, high_watermark=102) == (at(40), ["held_since"])


def test_a_transaction_that_may_precede_the_excerpt_counts_as_holder() -> None:
    behind = (data(100, second=30), marker(101, COMMIT, pid=2, second=40))
    assert hold_start(*behind, high_watermark=102) == (at(40), ["held_at_least_since"])
    assert hold_start(*behind, start=0, high_watermark=102) == (at(30), []), "no offset is before 0"
    continued = (data(100, second=30), data(101, pid=2, sequence=8), marker(102, COMMIT, pid=2, second=40))
    assert hold_start(*continued, high_watermark=103) == (at(40), ["held_at_least_since"])
    first_of_epoch = (data(100, second=30), data(101, pid=2, sequence=0), marker(102, COMMIT, pid=2, second=40))
    assert hold_start(*first_of_epoch, high_watermark=103) == (at(30), [])
    after_its_marker = (data(92, pid=2, sequence=5), marker(93, ABORT, pid=2), *continued)
    assert hold_start(*after_its_marker, high_watermark=103) == (at(30), [])
    begun_in_it = (data(94, pid=2, sequence=6), data(100, second=30), marker(101, COMMIT, pid=2, second=40))
    assert hold_start(*after_its_marker[:2], *begun_in_it, high_watermark=102) == (at(40), ["held_since"])
    still_open = (data(100, second=30), data(101, pid=2, sequence=8))
    assert hold_start(*still_open, high_watermark=102) == (at(30), []), "the broker has it behind this one"


def test_an_excerpt_below_the_high_watermark_gives_no_hold_time() -> None:
    assert hold_start(data(100, second=30), high_watermark=102) == (None, [])
    assert hold_start(data(100, second=30), high_watermark=None) == (None, [])
    assert hold_start(data(100, second=30), start=0, high_watermark=102) == (at(30), [])


def test_a_deleted_first_batch_takes_its_time_from_the_coordinator() -> None:
    rest = (data(105, second=30), data(106, pid=2), marker(107, COMMIT, pid=2))
    assert hold_start(*rest, start=105, high_watermark=108) == (None, [])
    with_owner: dict[str, Any] = {"opened_at": at(3), "opened_at_clock": "coordinator", "high_watermark": 108}
    assert hold_start(*rest, start=105, **with_owner) == (at(3), [])


def test_an_impossible_producer_time_is_replaced_in_held_from() -> None:
    early = marker(98, COMMIT, pid=1, second=0)
    assert hold_start(early, data(100, second=-3600)) == (at(0), [])
    assert hold_start(early, data(100, second=3600)) == (at(0), [])
    assert hold_start(data(100, second=3600)) == (None, [])
    with_owner: dict[str, Any] = {"opened_at": at(7), "opened_at_clock": "coordinator"}
    assert hold_start(data(100, second=3600), **with_owner) == (at(7), [])
    assert hold_start(data(100, second=-3600), **with_owner) == (at(7), [])
    assert hold_start(data(100, second=30), **with_owner) == (at(30), [])
    assert hold_start(data(100, second=2), **with_owner) == (at(2), []), "clocks differ a little"
    by_producer: dict[str, Any] = {"opened_at": at(90), "opened_at_clock": "producer"}
    assert hold_start(data(100, second=30), **by_producer) == (at(30), [])


def test_a_brokers_time_of_the_first_batch_is_not_corrected() -> None:
    appended = data(100, second=-3600, attributes=TRANSACTIONAL | LOG_APPEND_TIME)
    assert hold_start(marker(98, COMMIT, pid=1, second=0), appended) == (at(-3600), [])


def test_a_hold_ends_at_its_marker() -> None:
    batches = (data(100, second=30), marker(101, ABORT, second=90))
    held = held_since(holder(high_watermark=102), producer_batches(excerpt(*batches), 7, 100))
    assert (held.held_from, held.held_to, held.held_ms) == (at(30), at(90), 60_000)


def test_a_broker_clock_ahead_gives_no_negative_duration() -> None:
    batches = producer_batches(excerpt(data(91, pid=1), data(100), marker(101, COMMIT, pid=1)), 7, 100)
    for second in (0, -3):
        assert held_since(holder(high_watermark=102, brokers_time=at(second)), batches).held_ms == 0
    held = held_since(holder(high_watermark=102, brokers_time=at(-60)), batches)
    assert (held.held_from, held.held_ms) == (at(2), None)
