"""Both sides of an open transaction, for every incident that is recorded, and where a coordinator is silent."""

import pytest

from toolkit.analysis.crossed import COMBINATIONS, CROSSED, crossed
from toolkit.lab.samples import load
from toolkit.sources.crossed import crossed_frame, crossed_rows

COMBINED = {
    "late-message": ["late"],
    "never-added": ["never added"],
    "offsets-never-added": ["never added"],
    "open-young": ["its own"],
    "orphan": ["orphan"],
    "overdue": ["its own"],
    "several-open": ["never added", "its own", "never added"],
    "superseded-same-partition": ["superseded epoch"],
}


@pytest.mark.parametrize("name", COMBINED)
def test_the_combination_of_an_incident(name: str) -> None:
    sample = load(name)
    rows = crossed_rows(sample.log_dir(), sample.topic, sample.partition)
    assert [row["combination"] for row in rows] == COMBINED[name]
    assert [row["means"] for row in rows] == [COMBINATIONS[each] for each in COMBINED[name]]
    told = {name: rows[0][name] for name in ("producer_id", "producer_epoch", "start_offset")}
    assert told == {name: sample.expected[name] for name in told}
    assert list(crossed_frame(sample.log_dir(), sample.topic, sample.partition).columns) == CROSSED.names


def test_what_the_next_epoch_added_is_not_taken_for_the_dead_one() -> None:
    sample = load("superseded-same-partition")
    (row,) = crossed_rows(sample.log_dir(), sample.topic, sample.partition)
    told = {name: row[name] for name in ("producer_epoch", "owner_epoch", "expects_marker", "was_added", "last_ended")}
    assert told == {
        "producer_epoch": 0,
        "owner_epoch": 1,
        "expects_marker": True,
        "was_added": False,
        "last_ended": None,
    }


def test_a_silent_coordinator_makes_no_orphan() -> None:
    sample = load("orphan")
    producers = sample.log_dir().producer_rows([sample.topic], [sample.partition])
    silent = {"transactional_id": None, "producer_id": None, "error": "COORDINATOR_LOAD_IN_PROGRESS"}
    assert [row["combination"] for row in crossed(producers, [silent])] == ["unknown"]


def test_what_was_not_read_is_neither_late_nor_never_added() -> None:
    sample = load("late-message")
    files = sample.log_dir()
    producers = files.producer_rows([sample.topic], [sample.partition])
    (row,) = crossed(producers, files.transaction_rows())
    assert (row["combination"], row["was_added"], row["last_ended"]) == ("disowned", None, None)


def test_a_transaction_open_elsewhere_does_not_own_this_partition() -> None:
    sample = load("open-young")
    files = sample.log_dir()
    elsewhere = [
        {**row, "topic_partitions": [{"topic": "invoices", "partition": 0}]} for row in files.transaction_rows()
    ]
    (row,) = crossed(files.producer_rows([sample.topic], [sample.partition]), elsewhere)
    assert (row["combination"], row["expects_marker"]) == ("not this partition", False)
