"""What is read of logs that have grown, were cleaned, truncated, deleted; without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from toolkit.spark.intake import READ_AGAIN, Intake, Marks, log_marks, plan_live, plan_log
from toolkit.spark.ledger import Part
from toolkit.spark.units import log_id

from toolkit.schema import Row

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
FOLDER = "/data/orders-0/"


def segment(base: int, size: int, *, modified: int = 0) -> Row:
    return {
        "topic": "orders",
        "partition": 0,
        "base_offset": base,
        "size": size,
        "modified": NOW + dt.timedelta(seconds=modified),
        "broker_id": 1,
        "file": f"{FOLDER}{base:020d}.log",
        "error": None,
    }


def stored(row: Row, end: int, **other: Any) -> Part:
    """What a first run stores of a segment."""
    (part,) = plan_log([row], [], Marks(topic_id="a")).read
    known = {"end_offset": end, "end_position": row["size"], "leader_epoch": 3, "rows": 5, "made_by": 1}
    return replace(part, **{**known, **other})


def read(intake: Intake) -> list[tuple[str, int, int]]:
    return [((part.file or "")[-8:-4], part.from_offset, part.from_position) for part in intake.read]


OLD, NEWEST = segment(0, 100), segment(50, 60)
STORED = [stored(OLD, 50), stored(NEWEST, 80)]
EPOCHS = {3: 0}


def plan(
    present: Sequence[Row], *, epochs: Mapping[int, int] = EPOCHS, known: Sequence[Part] = STORED, **marks: Any
) -> Intake:
    return plan_log(present, known, Marks(epochs=epochs, **{"topic_id": "a", **marks}))


@pytest.fixture(params=[EPOCHS, {}], ids=["epochs", "no epochs"])
def epochs(request: pytest.FixtureRequest) -> Mapping[int, int]:
    found: Mapping[int, int] = request.param
    return found


def test_a_log_that_is_new_is_read_as_a_whole(epochs: Mapping[int, int]) -> None:
    intake = plan([OLD, NEWEST], known=[], epochs=epochs)
    assert read(intake) == [("0000", 0, 0), ("0050", 50, 0)]
    assert [part.key for part in intake.read] == [(log_id(OLD), f"{base:020d}") for base in (0, 50)]


def test_nothing_new_is_nothing_to_do(epochs: Mapping[int, int]) -> None:
    assert plan([NEWEST, OLD], epochs=epochs) == Intake()


def test_the_last_segment_is_read_again_while_it_grows(epochs: Mapping[int, int]) -> None:
    intake = plan([OLD, segment(50, 70), segment(90, 10)], epochs=epochs)
    assert read(intake) == [("0050", 50, 0), ("0090", 90, 0)]
    assert not intake.drop


def test_new_segments_behind_one_that_is_as_it_was(epochs: Mapping[int, int]) -> None:
    assert read(plan([OLD, NEWEST, segment(80, 10)], epochs=epochs)) == [("0080", 80, 0)]


def test_a_torn_end_is_read_again_once_another_segment_follows(epochs: Mapping[int, int]) -> None:
    torn = [STORED[0], replace(STORED[1], errors=1)]
    assert not plan([OLD, NEWEST], known=torn, epochs=epochs).read
    assert read(plan([OLD, NEWEST, segment(80, 10)], known=torn, epochs=epochs)) == [("0050", 50, 0), ("0080", 80, 0)]


def test_a_large_part_is_left_and_what_follows_it_becomes_another(epochs: Mapping[int, int]) -> None:
    large = [STORED[0], stored(segment(50, READ_AGAIN), 80)]
    intake = plan([OLD, segment(50, READ_AGAIN + 9)], known=large, epochs=EPOCHS)
    assert read(intake) == [("0050", 80, READ_AGAIN)]
    (added,) = intake.read
    again = plan(
        [OLD, segment(50, READ_AGAIN + 20)],
        known=[*large, replace(added, end_offset=85, end_position=READ_AGAIN + 9, leader_epoch=3)],
    )
    assert read(again) == [("0050", 80, READ_AGAIN)]
    assert again.read[0].key == added.key


def test_retention_takes_nothing_from_what_is_stored(epochs: Mapping[int, int]) -> None:
    assert plan([NEWEST], epochs=epochs) == Intake()
    assert read(plan([segment(80, 10)], epochs=epochs)) == [("0080", 80, 0)]
    assert plan([segment(80, 10)], epochs=epochs).lost is None


def test_what_retention_took_before_it_was_read_is_lost_and_told(epochs: Mapping[int, int]) -> None:
    intake = plan([segment(95, 10)], epochs=epochs)
    assert (read(intake), intake.lost) == ([("0095", 95, 0)], (80, 95))
    assert [part.stretch for part in intake.read] == [1]


def test_what_the_cleaner_took_stays() -> None:
    assert plan([segment(0, 40), NEWEST]).read == []
    assert [part.size for part in plan([segment(0, 40), NEWEST]).noted] == [40]
    merged = plan([segment(0, 90), segment(100, 10)], cleaned=100)
    assert (read(merged), merged.drop) == ([("0000", 80, 0), ("0100", 100, 0)], [])
    rolled = plan([OLD, segment(50, 55), segment(100, 10)], cleaned=100)
    assert (read(rolled), rolled.drop) == ([("0050", 80, 0), ("0100", 100, 0)], [])


def test_without_leader_epochs_what_has_changed_is_read_again_from_there_on() -> None:
    assert read(plan([segment(0, 40), NEWEST], epochs={})) == [("0000", 0, 0), ("0050", 50, 0)]
    merged = plan([segment(0, 90), segment(100, 10)], epochs={})
    assert (read(merged), merged.drop) == ([("0000", 0, 0), ("0100", 100, 0)], [STORED[1]])


def test_a_part_that_was_being_replaced_when_a_run_crashed_is_read_again() -> None:
    crashed = [STORED[0], replace(STORED[1], state="replacing")]
    assert read(plan([OLD, NEWEST], known=crashed)) == [("0050", 50, 0)]
    assert read(plan([OLD, segment(50, 70), segment(90, 10)], known=crashed, cleaned=90)) == [
        ("0050", 50, 0),
        ("0090", 90, 0),
    ]
    merged = plan([segment(0, 90), segment(100, 10)], known=crashed, cleaned=100)
    assert (read(merged), merged.drop) == ([("0000", 50, 0), ("0100", 100, 0)], [])
    gone = plan([segment(80, 10)], known=crashed)
    assert (read(gone), gone.drop) == ([("0080", 80, 0)], [])


def test_a_truncation_makes_all_from_there_on_false() -> None:
    at_60 = plan([OLD, segment(50, 70)], epochs={3: 0, 4: 60})
    assert (read(at_60), at_60.drop) == ([("0050", 50, 0)], [])
    at_30 = plan([segment(0, 200)], epochs={3: 0, 4: 30})
    assert (read(at_30), at_30.drop) == ([("0000", 0, 0)], [STORED[1]])
    nothing_written_yet = plan([OLD])
    assert (read(nothing_written_yet), nothing_written_yet.drop) == ([("0000", 0, 0)], [STORED[1]])
    of_what_retention_has_taken = plan([segment(55, 20)], epochs={4: 40})
    assert read(of_what_retention_has_taken) == [("0055", 55, 0)]
    assert of_what_retention_has_taken.drop == STORED


def test_a_new_leader_alone_makes_nothing_false() -> None:
    assert plan([OLD, NEWEST], epochs={3: 0, 4: 80}) == Intake()


def test_a_topic_that_was_created_again_is_another() -> None:
    intake = plan([segment(0, 10)], topic_id="b")
    assert (read(intake), intake.drop, intake.false_from) == ([("0000", 0, 0)], [STORED[1]], 0)


def test_a_folder_that_cannot_be_read_tells_of_nothing_gone() -> None:
    unread = {**segment(0, 0), "base_offset": None, "size": None, "file": "/data/orders-0/", "error": "UNREADABLE: no"}
    intake = plan([unread])
    assert [part.segment for part in intake.read] == ["unread"]
    assert not intake.drop
    again = plan([OLD, NEWEST], known=[*intake.read, *STORED])
    assert (again.read, again.drop) == ([], intake.read)


def test_a_segment_that_could_not_be_opened_is_tried_again() -> None:
    intake = plan([OLD, NEWEST], known=[replace(STORED[0], unread=True, errors=1), STORED[1]])
    assert read(intake) == [("0000", 0, 0)]
    assert intake.beside == [NEWEST["file"]]


def test_marks_are_those_of_the_logs_own_folder() -> None:
    other = {**OLD, "file": OLD["file"].replace("/data/", "/more/")}
    line = {"topic": "orders", "partition": 0, "broker_id": 1, "leader_epoch": None, "key": None, "error": None}
    rows = [
        {**line, "name": "leader-epoch-checkpoint", "leader_epoch": 7, "offset": 5, "file": f"{FOLDER}x"},
        {**line, "name": "partition.metadata", "key": "topic_id", "value": "a", "file": f"{FOLDER}y"},
        {**line, "name": "cleaner-offset-checkpoint", "offset": 9, "file": "/data/z"},
    ]
    marks = log_marks(rows, [OLD, other])
    assert marks == {log_id(OLD): Marks(epochs={7: 5}, cleaned=9, topic_id="a"), log_id(other): Marks()}


def live(start: int | None, end: int | None, *, known: Sequence[Part] = (), error: str | None = None) -> Intake:
    row = {"topic": "orders", "partition": 0, "leader": 2, "error": error}
    return plan_live({**row, "log_start_offset": start, "high_watermark": end}, known)


def test_of_a_live_partition_what_is_behind_the_stored_end() -> None:
    (first,) = live(0, 40).read
    assert (first.from_offset, first.end_offset, first.file) == (0, 40, None)
    assert live(10, 40, known=[first]) == Intake()
    (second,) = live(10, 70, known=[first]).read
    assert (second.from_offset, second.end_offset, second.stretch) == (40, 70, 0)
    behind = live(90, 100, known=[first, second])
    assert (behind.read[0].from_offset, behind.read[0].stretch, behind.lost) == (90, 1, (70, 90))
    anew = live(0, 30, known=[first, second])
    assert ([part.from_offset for part in anew.read], anew.drop) == ([0], [second])
    assert live(None, None, known=[first], error="NOT_LEADER: ...") == Intake()
    assert live(0, 0) == Intake()
