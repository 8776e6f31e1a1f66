"""What waits behind a held LSO, and when a transaction opened."""

import datetime as dt
from typing import Any

import pytest

from tests.analysis.build import NOW
from tests.analysis.logged import at, data, excerpt, marker
from toolkit.analysis.impact import held_back, opening_time
from toolkit.analysis.traces import Traces
from toolkit.formats.batches import LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import COMMIT
from toolkit.schema import FINDINGS, Row


def row(**fields: Any) -> Row:
    return {**dict.fromkeys(FINDINGS.names), "last_stable_offset": 100, "high_watermark": 110, **fields}


BATCHES = (data(95, records=5), data(100, records=4), marker(104, COMMIT), data(105, pid=1, records=5))


def test_records_and_bytes_from_the_lso_to_the_high_watermark() -> None:
    assert held_back(row(), excerpt(*BATCHES)) == {"records_held": 9, "bytes_held": 300}
    assert held_back(row(high_watermark=105), excerpt(*BATCHES)) == {"records_held": 4, "bytes_held": 200}
    assert held_back(row(high_watermark=100), excerpt(*BATCHES)) == {"records_held": 0, "bytes_held": 0}


def test_what_was_not_read_whole_is_not_counted() -> None:
    unknown = {"records_held": None, "bytes_held": None}
    assert held_back(row(high_watermark=111), excerpt(*BATCHES)) == unknown
    assert held_back(row(last_stable_offset=80), excerpt(*BATCHES)) == unknown
    assert held_back(row(last_stable_offset=None), excerpt(*BATCHES)) == unknown


def test_records_that_compaction_took_do_not_wait() -> None:
    cleaned = data(100, records=4) | {"last_offset": 109}
    assert held_back(row(), excerpt(data(95, records=5), cleaned))["records_held"] == 4


def test_a_batch_that_the_log_starts_within_counts_from_there() -> None:
    log = excerpt(data(100, records=6), data(106, records=4), start=103, log_start_offset=103)
    assert held_back(row(), log) == {"records_held": 7, "bytes_held": 200}


BETWEEN = (marker(98, COMMIT, pid=1, second=0), data(100, second=5), marker(101, COMMIT, pid=1, second=60))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (at(5), (at(5), "producer")),
        (at(-3), (at(-3), "producer")),  # clocks differ a little
        (at(-3600), (at(0), "broker")),
        (at(3600), (at(0), "broker")),
    ],
)
def test_a_producers_time_counts_where_the_markers_around_it_allow_it(
    told: dt.datetime, expected: tuple[dt.datetime, str]
) -> None:
    found = opening_time(row(opened_at=told, opened_by="producer"), Traces(excerpt(*BETWEEN), 7, 100))
    assert (found["opened_at"], found["opened_by"]) == expected


def test_without_a_marker_before_it_a_time_to_come_is_not_known() -> None:
    alone = Traces(excerpt(data(100)), 7, 100)
    found = opening_time(row(opened_at=NOW + dt.timedelta(hours=1), opened_by="producer"), alone)
    assert found == {"opened_at": None, "opened_by": None}
    found = opening_time(row(opened_at=at(-3600), opened_by="producer"), alone)
    assert found == {"opened_at": at(-3600), "opened_by": "producer"}


def test_a_time_by_the_broker_itself_bounds_too() -> None:
    appended = data(98, pid=1, second=3) | {"attributes": TRANSACTIONAL | LOG_APPEND_TIME}
    found = opening_time(row(opened_at=at(-3600), opened_by="producer"), Traces(excerpt(appended, data(100)), 7, 100))
    assert found == {"opened_at": at(3), "opened_by": "broker"}


@pytest.mark.parametrize("by", ["coordinator", "broker", None])
def test_other_clocks_are_left_alone(by: str | None) -> None:
    told = None if by is None else at(-3600)
    found = opening_time(row(opened_at=told, opened_by=by), Traces(excerpt(*BETWEEN), 7, 100))
    assert found == {"opened_at": told, "opened_by": by}
