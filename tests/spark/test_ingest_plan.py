"""Where reading continues in logs that grew, or were cleaned, truncated or deleted; without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.stored import compare
from toolkit.schema import Row
from toolkit.sources.logdir.contents import NO_ASSERTIONS
from toolkit.spark.datasources.log_reader import LogListing
from toolkit.spark.pipeline.log_states import LogPlan, plan_logs
from toolkit.spark.pipeline.run_sources import ListedLogs
from toolkit.spark.pipeline.stored_tables import IDS, StoredState, records_name

LOG = "1:/data/orders-0/"
CHANGED_LISTING: Any = {"listing": "other"}


def plan(
    state: Row | None = None, *, name: str = LOG, epochs: Mapping[int, int] | None = None, **listing_changes: Any
) -> LogPlan | None:
    """The plan of a log that was read up to offset 80 in epoch 3, with changes of its listing."""
    row: dict[str, Any] = {
        "log": LOG,
        "folder": "/data/orders-0",
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


def plan_live(begin: int | None, end: int | None, state: StoredState | None) -> LogPlan | None:
    row, name = LogListing(log=LOG, begin=begin, high_watermark=end), LOG if state is None else state.log
    return plan_logs({name: row}, {} if state is None else {name: state}).get(name)


KNOWN = {0: 100, 20: 100, 60: 50}


def sizes(found: Mapping[int, int], *, written: Mapping[int, int] = {}) -> str:
    """Base offset, size and time of the segments of a listing."""
    return json.dumps([[base, size, written.get(base, 1)] for base, size in found.items()])


READ: Row = {"segment_sizes": sizes(KNOWN), "damaged_segments": "[20]"}
OF_IDS: dict[str, Any] = {"name": LOG + IDS, **CHANGED_LISTING}


def plans() -> Mapping[str, LogPlan | None]:
    """Where reading continues, by what has become of a log."""
    return {
        "new": plan(None),
        "unchanged": plan({}),
        "unchanged, without leader epochs": plan({}, epochs={}),
        "grown, or old segments were cleaned": plan({}, **CHANGED_LISTING),
        "retention deleted old segments": plan({}, **CHANGED_LISTING, begin=50),
        "retention deleted all offsets that were read": plan({}, **CHANGED_LISTING, begin=80),
        "a new leader epoch after the known end": plan({}, **CHANGED_LISTING, epochs={3: 0, 4: 80}),
        "an additional older leader epoch": plan({}, **CHANGED_LISTING, epochs={2: 0, 3: 60}),
        "no partition.metadata": plan({}, **CHANGED_LISTING, topic_id=None),
        "a folder that cannot be read now": plan({}, **CHANGED_LISTING, begin=None, epochs={}),
        # Its newest segment begins before the known end, but its leader epochs prove that nothing was truncated.
        "a replica that lags": plan({}, **CHANGED_LISTING, begin=0, bytes=10),
        "truncated to 60": plan({}, **CHANGED_LISTING, begin=0, epochs={3: 0, 4: 60}),
        "truncated to 79": plan({}, **CHANGED_LISTING, begin=20, epochs={3: 20, 5: 79}),
        "compacted to 50, and truncated to 60": plan({}, **CHANGED_LISTING, begin=20, cleaned=50, epochs={3: 0, 4: 60}),
        "compacted to 50, truncated to 60, and its beginning was not known": plan(
            {"damaged_segments": "[-21]"}, **CHANGED_LISTING, begin=20, cleaned=50, epochs={3: 0, 4: 60}
        ),
        "truncated to 40, before its start": plan({}, **CHANGED_LISTING, begin=60, epochs={3: 0, 4: 40}),
        "truncated to 70, and begins after it": plan({}, **CHANGED_LISTING, begin=90, epochs={4: 70}),
        "changed, without leader epochs": plan({}, **CHANGED_LISTING, begin=20, epochs={}),
        "changed, of an unknown leader epoch": plan({"leader_epoch": -1}, **CHANGED_LISTING, begin=20),
        **{
            f"segments: {name}": plan(READ, **CHANGED_LISTING, begin=min(found), segment_sizes=sizes(found))
            for name, found in {
                "grown": {0: 100, 20: 100, 60: 90, 90: 10},
                "retention deleted one": {20: 100, 60: 90},
                "retention deleted a damaged one": {60: 50},
                "cleaned": {0: 40, 20: 100, 60: 50},
                "the cleaner merged some": {0: 190, 60: 50},
                "more than was merged": {0: 201, 60: 50},
                "an incomplete one grew": {0: 101, 20: 100, 60: 50},
                "one came late": {0: 100, 20: 100, 40: 9, 60: 50},
                "a damaged one changed": {0: 100, 20: 99, 60: 50},
                "one came late after the newest known": {0: 100, 20: 100, 60: 50, 65: 9, 70: 9},
                "some after the end that was read": {0: 100, 20: 100, 60: 50, 80: 9, 85: 9},
            }.items()
        },
        "a damaged segment was written to": plan(READ, **CHANGED_LISTING, segment_sizes=sizes(KNOWN, written={20: 2})),
        "a sound segment was written to": plan(READ, **CHANGED_LISTING, segment_sizes=sizes(KNOWN, written={0: 2})),
        "without sizes, damaged": plan({"is_damaged": True}, **CHANGED_LISTING),
        "without sizes, sound": plan({"is_damaged": False}, **CHANGED_LISTING),
        # Compaction has deleted what was read of coordinators before: a read from the start would know less.
        "ids: grown, or compacted": plan({"replica": LOG}, **OF_IDS),
        "ids: another replica": plan({"replica": LOG}, **OF_IDS, log="2:/data/orders-0/"),
        "ids: no leader epochs": plan({"replica": LOG}, **OF_IDS, epochs={}),
        "ids: truncated": plan({"replica": LOG}, **OF_IDS, epochs={3: 0, 4: 60}),
        "ids: a damaged segment changed": plan(
            {"replica": LOG, **READ, "is_damaged": True}, **OF_IDS, segment_sizes=sizes(KNOWN, written={20: 2})
        ),
        "ids: a replica that may not be damaged": plan(
            {"replica": LOG, **READ, "is_damaged": True}, **OF_IDS, log="2:/data/orders-0/"
        ),
        "empty": plan({"log_end_offset": 0, "leader_epoch": -1}, **CHANGED_LISTING, begin=0),
        "empty from 50 on": plan({"log_end_offset": 50, "leader_epoch": -1}, **CHANGED_LISTING, begin=50),
        "unchanged, but it could not be opened": plan({"is_unread": True}, begin=20),
        # Stored rows of offsets before its start are kept.
        "never read": plan({"log_end_offset": None, "is_unread": True}, begin=20),
        "deleted before it was read": plan({}, **CHANGED_LISTING, begin=1300),
        "deleted before it was read, with a new leader epoch": plan({}, **CHANGED_LISTING, begin=81, epochs={4: 81}),
        **{
            f"live, {begin} to {end}, read to {known}": plan_live(
                begin, end, None if known is None else StoredState(log=LOG, log_end_offset=known)
            )
            for begin, end, known in (
                *((5, 40, None), (40, 40, None), (10, 40, 40), (10, 70, 40), (40, 70, 40), (0, 30, 40), (0, 0, 40)),
                *((90, 100, 70), (None, None, 40), (None, None, None), (20, 30, 40)),
            )
        },
        "live, with an error": plan_live(5, None, None),
        "live, its leader is back": plan_live(0, 40, StoredState(log=LOG, log_end_offset=40, is_unread=True)),
        "live ids, 0 to 30, read to 40": plan_live(0, 30, StoredState(log=LOG + IDS, log_end_offset=40)),
        "live, after a gap": plan_live(5, 40, StoredState(log=LOG)),
    }


def test_where_reading_continues() -> None:
    compare("ingest_plans.txt", (f"{name}: {each}" for name, each in plans().items()))


def test_nothing_is_planned_for_an_empty_transaction_state_partition() -> None:
    """It would have no stored state, and every run would plan it again."""
    empty = LogListing(
        log=LOG,
        folder="/data/orders-0",
        begin=0,
        bytes=0,
        listing="first",
        topic_id="a",
        leader_epochs="{}",
        is_best=True,
    )
    ids_log = records_name(empty)

    def planned(states: Mapping[str, StoredState], **columns: Any) -> set[str]:
        options: Any = {"paths": [], "topics": None, "assertions": NO_ASSERTIONS}
        return set(ListedLogs(spark=None, logs=[replace(empty, **columns)], **options).plans(states))  # type: ignore[arg-type]

    assert planned({}) == {LOG}
    assert planned({}, bytes=9) == planned({}, begin=None) == {LOG, ids_log}
    stored = StoredState(log=LOG, log_end_offset=80, leader_epoch=3, listing="before", topic_id="a", is_unread=False)
    assert planned({LOG: stored, ids_log: stored}) == {LOG, ids_log}
