"""Where reading continues in logs that grew, or were cleaned, truncated or deleted; without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from toolkit.schema import Row
from toolkit.schema.live import Partition
from toolkit.schema.table import EPOCH
from toolkit.sources.logdir.contents import NO_ASSERTIONS
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline.from_files import LogFiles
from toolkit.spark.pipeline.log_plan import LOST, REMEMBERED, TRUNCATED, LogPlan, plan_live, plan_logs
from toolkit.spark.pipeline.tables.staging_table import IDS, StoredState, records_name

LOG = "1:/data/orders-0/"
FROM_BEGINNING = LogPlan(offset=0)
CONTINUED = LogPlan(start=80, remembered=REMEMBERED)
CHANGED_LISTING: Any = {"listing": "other"}


def plan(
    state: Row | None = None, *, name: str = LOG, epochs: Mapping[int, int] | None = None, **listing_changes: Any
) -> LogPlan | None:
    """The plan of a log that was read up to offset 80 in epoch 3, with changes of its listing."""
    row: dict[str, Any] = {
        "log": LOG,
        "begin": 0,
        "listing": "first",
        "topic_id": "a",
        "segment_sizes": "[]",
        **listing_changes,
    }
    row["leader_epochs"] = json.dumps({3: 0} if epochs is None else epochs)
    stored = {
        "broker_id": 1,
        "log_end_offset": 80,
        "leader_epoch": 3,
        "listing": "first",
        "topic_id": "a",
        "is_unread": False,
    }
    states = {} if state is None else {name: StoredState.of({"log": name, **stored, **state})}
    return plan_logs({name: LogListing(**row)}, states).get(name)


def partition(begin: int | None, end: int | None) -> Partition:
    return Partition(topic="orders", partition=0, log_start_offset=begin, high_watermark=end, observed_at=EPOCH)


def test_a_new_log_is_read_from_its_start() -> None:
    assert plan(None) == FROM_BEGINNING


def test_an_unchanged_log_is_not_read() -> None:
    assert plan({}) is None
    assert plan({}, epochs={}) is None


@pytest.mark.parametrize(
    "listing_changes",
    [
        pytest.param({}, id="grown, or old segments were cleaned"),
        pytest.param({"begin": 50}, id="retention deleted old segments"),
        pytest.param({"begin": 80}, id="retention deleted all offsets that were read"),
        pytest.param({"epochs": {3: 0, 4: 80}}, id="a new leader epoch after the known end"),
        pytest.param({"epochs": {2: 0, 3: 60}}, id="an additional older leader epoch"),
        pytest.param({"topic_id": None}, id="no partition.metadata"),
        pytest.param({"begin": None, "epochs": {}}, id="a folder that cannot be read now"),
    ],
)
def test_a_changed_log_is_read_from_its_last_offset(listing_changes: dict[str, Any]) -> None:
    assert plan({}, **CHANGED_LISTING, **listing_changes) == CONTINUED


def test_a_lagging_replica_is_not_read_again() -> None:
    """Its newest segment begins before the known end, but its leader epochs prove that nothing was truncated."""
    assert plan({}, **CHANGED_LISTING, begin=0, segments=1, bytes=10) == CONTINUED


def test_a_truncated_log_is_read_again() -> None:
    for begin, epochs, offset in ((0, {3: 0, 4: 60}, 0), (20, {3: 20, 5: 79}, 20), (60, {3: 0, 4: 40}, 40)):
        actual = plan({}, **CHANGED_LISTING, begin=begin, epochs=epochs)
        assert actual == LogPlan(remembered=TRUNCATED, offset=offset), "stored rows from that offset on are invalid"
    assert plan({}, **CHANGED_LISTING, begin=90, epochs={4: 70}) == LogPlan(remembered=TRUNCATED, offset=70)


@pytest.mark.parametrize("state", [{}, {"leader_epoch": -1}])
def test_without_leader_epochs_a_changed_log_is_read_again(state: Row) -> None:
    epochs: dict[int, int] | None = {} if not state else None
    assert plan(state, **CHANGED_LISTING, begin=20, epochs=epochs) == LogPlan(remembered=TRUNCATED, offset=20)


KNOWN = {0: 100, 20: 100, 60: 50}
READ = {"segment_sizes": json.dumps([[base, size, 1] for base, size in KNOWN.items()]), "damaged_segments": "[20]"}


@pytest.mark.parametrize(
    ("sizes", "is_read_again"),
    [
        pytest.param({0: 100, 20: 100, 60: 90, 90: 10}, False, id="grown"),
        pytest.param({20: 100, 60: 90}, False, id="retention deleted a segment"),
        pytest.param({60: 50}, False, id="retention deleted a damaged segment"),
        pytest.param({0: 40, 20: 100, 60: 50}, False, id="cleaned"),
        pytest.param({0: 190, 60: 50}, False, id="the cleaner merged segments"),
        pytest.param({0: 201, 60: 50}, True, id="more than was merged"),
        pytest.param({0: 101, 20: 100, 60: 50}, True, id="an incomplete segment grew"),
        pytest.param({0: 100, 20: 100, 40: 9, 60: 50}, True, id="a segment came late"),
        pytest.param({0: 100, 20: 99, 60: 50}, True, id="a damaged segment changed"),
        pytest.param({0: 100, 20: 100, 60: 50, 65: 9, 70: 9}, True, id="a segment came late after the newest known"),
        pytest.param({0: 100, 20: 100, 60: 50, 80: 9, 85: 9}, False, id="segments after the end that was read"),
    ],
)
def test_a_log_whose_old_segments_became_more_is_read_again(sizes: dict[int, int], is_read_again: bool) -> None:
    listed = json.dumps([[base, size, 1] for base, size in sizes.items()])
    begin = min(sizes)
    expected = LogPlan(remembered=TRUNCATED, offset=begin) if is_read_again else CONTINUED
    assert plan(READ, **CHANGED_LISTING, begin=begin, segment_sizes=listed) == expected


def test_a_damaged_segment_of_the_same_size_is_read_again_if_it_was_written_to() -> None:
    listed = json.dumps([[base, size, 1 + (base == 20)] for base, size in KNOWN.items()])
    assert plan(READ, **CHANGED_LISTING, segment_sizes=listed) == LogPlan(remembered=TRUNCATED, offset=0)
    listed = json.dumps([[base, size, 1 + (base == 0)] for base, size in KNOWN.items()])
    assert plan(READ, **CHANGED_LISTING, segment_sizes=listed) == CONTINUED


@pytest.mark.parametrize(
    ("is_damaged", "expected"), [(True, LogPlan(remembered=TRUNCATED, offset=0)), (False, CONTINUED)]
)
def test_a_state_without_sizes_of_segments_is_continued_unless_it_is_damaged(
    is_damaged: bool, expected: LogPlan
) -> None:
    assert plan({"is_damaged": is_damaged}, **CHANGED_LISTING) == expected


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        pytest.param({}, {}, CONTINUED, id="grown, or compacted"),
        pytest.param({}, {"log": "2:/data/orders-0/"}, CONTINUED, id="another replica"),
        pytest.param({}, {"epochs": {}}, CONTINUED, id="no leader epochs"),
        pytest.param({}, {"epochs": {3: 0, 4: 60}}, LogPlan(remembered=TRUNCATED, offset=60), id="truncated"),
        pytest.param(
            {**READ, "is_damaged": True},
            {"segment_sizes": json.dumps([[0, 100, 1], [20, 100, 2], [60, 50, 1]])},
            LogPlan(remembered=TRUNCATED, offset=20),
            id="a damaged segment changed",
        ),
        pytest.param(
            {**READ, "is_damaged": True},
            {"log": "2:/data/orders-0/"},
            LogPlan(remembered=TRUNCATED, offset=20),
            id="a replica that may not be damaged",
        ),
    ],
)
def test_records_of_coordinators_are_read_again_only_from_what_is_false_or_was_not_read(
    state: Row, changes: dict[str, Any], expected: LogPlan
) -> None:
    """Compaction has deleted what was read before, so that a read from the start would know less."""
    assert plan({"replica": LOG, **state}, name=LOG + IDS, **{**CHANGED_LISTING, **changes}) == expected


def test_an_empty_log_continues_without_leader_epochs() -> None:
    for end in (0, 50):
        actual = plan({"log_end_offset": end, "leader_epoch": -1}, **CHANGED_LISTING, begin=end)
        assert actual == LogPlan(start=end, remembered=REMEMBERED)


def test_an_unopened_log_is_read_again_even_if_unchanged() -> None:
    assert plan({"is_unread": True}, begin=20) == LogPlan(remembered=TRUNCATED, offset=20)


def test_a_log_that_was_never_read_is_read_from_its_start() -> None:
    """Stored rows of offsets before its start are kept."""
    assert plan({"log_end_offset": None, "is_unread": True}, begin=20) == LogPlan(remembered=TRUNCATED, offset=20)


def test_offsets_deleted_before_they_were_read_are_lost() -> None:
    error = "OFFSETS_LOST: Offsets 80 to 1,299 were deleted from the log before they were read."
    assert plan({}, **CHANGED_LISTING, begin=1300) == LogPlan(remembered=LOST, offset=1300, error=error)
    assert plan({}, **CHANGED_LISTING, begin=81, epochs={4: 81}) == LogPlan(
        remembered=LOST, offset=81, error=error.replace("1,299", "80")
    )


@pytest.mark.parametrize(
    ("begin", "end", "known", "expected"),
    [
        pytest.param(5, 40, None, LogPlan(start=5, stop=40), id="new"),
        pytest.param(40, 40, None, None, id="new and empty"),
        pytest.param(10, 40, 40, None, id="nothing new"),
        pytest.param(10, 70, 40, LogPlan(start=40, stop=70, remembered=REMEMBERED), id="grown"),
        pytest.param(
            40,
            70,
            40,
            LogPlan(start=40, stop=70, remembered=REMEMBERED),
            id="retention deleted all offsets that were read",
        ),
        pytest.param(0, 30, 40, LogPlan(start=0, stop=30, remembered=TRUNCATED, offset=0), id="recreated"),
        pytest.param(0, 0, 40, LogPlan(start=0, stop=0, remembered=TRUNCATED, offset=0), id="recreated and empty"),
        pytest.param(
            90,
            100,
            70,
            LogPlan(
                start=90,
                stop=100,
                remembered=LOST,
                error="OFFSETS_LOST: Offsets 70 to 89 were deleted from the log before they were read.",
            ),
            id="lost",
        ),
        pytest.param(None, None, 40, None, id="no response"),
    ],
)
def test_a_live_partition_is_read_from_its_known_end(
    begin: int | None, end: int | None, known: int | None, expected: LogPlan | None
) -> None:
    row = partition(begin, end)
    assert plan_live(row, None if known is None else StoredState(log=LOG, log_end_offset=known)) == expected
    assert plan_live(replace(row, error="NOT_LEADER: ..."), None) is None


def test_a_live_partition_after_a_gap_is_read_with_its_state() -> None:
    assert plan_live(partition(5, 40), StoredState(log=LOG)) == LogPlan(start=5, stop=40, remembered=REMEMBERED)


def test_nothing_is_planned_for_an_empty_transaction_state_partition() -> None:
    """It would have no stored state, and every run would plan it again."""
    empty = LogListing(log=LOG, begin=0, bytes=0, listing="first", topic_id="a", leader_epochs="{}", is_best=True)
    ids_log = records_name(empty)

    def planned(states: Mapping[str, StoredState], **columns: Any) -> set[str]:
        options: Any = {"paths": [], "topics": None, "assertions": NO_ASSERTIONS}
        return set(LogFiles(spark=None, logs=[replace(empty, **columns)], **options).plans(states))  # type: ignore[arg-type]

    assert planned({}) == {LOG}
    assert planned({}, bytes=9) == planned({}, begin=None) == {LOG, ids_log}
    stored = StoredState(log=LOG, log_end_offset=80, leader_epoch=3, listing="before", topic_id="a", is_unread=False)
    assert planned({LOG: stored, ids_log: stored}) == {LOG, ids_log}
