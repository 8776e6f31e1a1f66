"""Producer state from batches: against the broker's rules batch by batch."""

import datetime as dt
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.analysis.random_logs import Step, batches, step_lists
from toolkit.analysis.log.producer_state import producer_records, producer_state, resume
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, UNREAD_MARKER, Headers
from toolkit.formats.log_dir_files import SnapshotEntry
from toolkit.schema import utc
from toolkit.schema.table import LogId

WHERE = LogId(topic="orders", partition=0, broker_id=1)
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)

STATE_COLUMNS = (
    "producer_id", "producer_epoch", "last_sequence", "last_timestamp", "coordinator_epoch",
    "current_txn_start_offset",
)  # fmt: skip
entries = st.builds(
    SnapshotEntry,
    st.sampled_from([1000, 2000, 9000]),
    st.integers(0, 2),
    st.none() | st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 9),
)
snapshots = st.lists(entries, max_size=3, unique_by=lambda entry: entry.producer_id)


def reference_model(headers: Headers, snapshot: list[SnapshotEntry]) -> list[dict[str, Any]]:
    """The rules of ``ProducerStateEntry``, batch by batch."""
    unknown: dict[str, Any] = dict.fromkeys(STATE_COLUMNS)
    states: dict[int, dict[str, Any]] = {}
    for entry in snapshot:
        states[entry.producer_id] = {name: getattr(entry, name, None) for name in STATE_COLUMNS}
    for batch in headers:
        producer, epoch = int(batch["producer_id"]), int(batch["producer_epoch"])
        control = bool(batch["attributes"] & CONTROL)
        cleaned = control and not batch["record_count"]
        if producer < 0 or (control and not cleaned and batch["marker"] not in {COMMIT, ABORT, UNREAD_MARKER}):
            continue
        state = states.setdefault(producer, unknown | {"producer_id": producer})
        if epoch != state["producer_epoch"]:
            state |= {"producer_epoch": epoch, "last_sequence": None}
        state["last_timestamp"] = int(batch["max_timestamp"])
        if cleaned:
            continue
        if control:
            state["coordinator_epoch"] = int(batch["coordinator_epoch"])
            state["current_txn_start_offset"] = None
            continue
        state["last_sequence"] = (int(batch["base_sequence"] + batch["last_offset"] - batch["base_offset"])) % 2**31
        if batch["attributes"] & TRANSACTIONAL and state["current_txn_start_offset"] is None:
            state["current_txn_start_offset"] = int(batch["base_offset"])
    return [each | {"last_timestamp": utc(each["last_timestamp"])} for _, each in sorted(states.items())]


def rows_of(state: Headers) -> list[dict[str, Any]]:
    records = producer_records(state, WHERE, observed_at=NOW)
    return [{name: getattr(each, name) for name in STATE_COLUMNS} for each in records]


@given(step_lists, snapshots)
@example([Step("data", 1), Step("commit", 1), Step("data", 2), Step("commit", 2, version=2)], [])
@example([Step("data", 1), Step("cleaned", 1, version=2)], [])
@example([Step("plain", 1), Step("plain", 0), Step("other", 0)], [])
@example([Step("data", 1, records=3)], [])  # the first has sequence 2**31 - 2
@example([Step("data", 1)], [SnapshotEntry(1000, 0, 4, 9, 0, 900, 3, 7)])
def test_the_state_follows_the_brokers_rules(steps: list[Step], snapshot: list[SnapshotEntry]) -> None:
    headers = batches(steps, base_offset=50)
    assert rows_of(producer_state(headers)) == reference_model(headers, [])
    assert rows_of(producer_state(resume(snapshot), headers)) == reference_model(headers, snapshot)


def test_rows_have_the_columns_of_producers() -> None:
    headers = batches([Step("data", 1), Step("commit", 2)])
    records = producer_records(producer_state(headers), WHERE, observed_at=NOW)
    columns = {"topic": "orders", "partition": 0, "broker_id": 1, "observed_at": NOW, "error": None}
    assert [record.row() for record in records] == [
        columns
        | {"producer_id": 1000, "producer_epoch": 0, "last_sequence": 2**31 - 2, "coordinator_epoch": None}
        | {"current_txn_start_offset": 0, "last_timestamp": utc(1002)},
        columns
        | {"producer_id": 2000, "producer_epoch": 0, "last_sequence": None, "coordinator_epoch": 7}
        | {"current_txn_start_offset": None, "last_timestamp": utc(1002)},
    ]


def test_an_impossible_time_is_null() -> None:
    headers = batches([Step("data", 1)])
    headers["max_timestamp"] = 2**62
    (record,) = producer_records(producer_state(headers), WHERE, observed_at=NOW)
    assert record.last_timestamp is None


def test_no_batches_give_no_producers() -> None:
    assert rows_of(producer_state()) == rows_of(producer_state(batches([]))) == rows_of(resume([])) == []
