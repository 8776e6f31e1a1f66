"""What the index of a log of ``__transaction_state`` finds is what reading everything finds."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.sources.log_files import (
    SEGMENT,
    STATE_TOPIC,
    after,
    ids_of,
    state_record,
    tombstone,
    write_log,
    write_state_topic,
)
from toolkit.formats.batches import write_batch
from toolkit.lab import Kafka
from toolkit.schema import Row
from toolkit.sources.logdir.log_dir_layout import discover
from toolkit.sources.logdir.replica_log import FolderLog, RecordIndex

LONG = "x" * 300  # a key whose length takes two bytes to write


def log_of(folder: Path) -> FolderLog:
    return FolderLog(discover([folder]).replicas[0])


def newest(rows: list[Row]) -> dict[str, Row]:
    return {row["transactional_id"]: row for row in rows if not row["error"]}


def newest_rows(log: FolderLog) -> list[Row]:
    index, parts = log.indexed()
    for _ in parts:
        pass
    return [each.row() for each in (*index.errors, *index.newest())]


def both_ways(folder: Path) -> tuple[dict[str, Row], dict[str, Row]]:
    log = log_of(folder)
    return newest(newest_rows(log)), newest([each.row() for each in log.transaction_log()])


@pytest.mark.parametrize("seed", range(5))
def test_newest_is_the_last_record_of_each_id_over_all_segments(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    names = [*ids_of(3, 5), LONG, "é" * 70, "a"]
    batches = []
    for offset in range(400):
        name = dice.choice(names)
        at = after(seconds=offset)
        is_last = dice.random() < 0.1
        batches.append(tombstone(offset, name, at) if is_last else state_record(offset, name, offset, "Ongoing", at))
    write_log(tmp_path, f"{STATE_TOPIC}-3", batches[:150])
    folder = write_log(tmp_path, f"{STATE_TOPIC}-3", batches[150:], base_offset=150)
    fast, slow = both_ways(folder)
    assert fast == slow
    assert len(fast) == len(names)


def test_batches_that_no_coordinator_writes_are_read(tmp_path: Path) -> None:
    first, second = ids_of(3, 2)
    several = write_batch([(b"\0\0" + len(name).to_bytes(2, "big") + name.encode(), None) for name in (first, second)],
                          timestamp=after(), base_offset=1)  # fmt: skip
    folder = write_log(
        tmp_path,
        f"{STATE_TOPIC}-3",
        [state_record(0, first, 1, "Empty", after()), several, state_record(3, second, 2, "Empty", after())],
    )
    fast, slow = both_ways(folder)
    assert fast == slow
    assert (fast[first]["tombstone"], fast[second]["tombstone"]) == (True, False)


def test_a_segment_that_the_cleaner_has_replaced_by_a_shorter_one_is_unreadable(tmp_path: Path) -> None:
    """The compiled decoder read beyond the end of the bytes."""
    folder = write_log(tmp_path, f"{STATE_TOPIC}-3", [state_record(0, ids_of(3, 1)[0], 1, "Empty", after())])
    log = log_of(folder)
    (part,) = log.parts()
    os.truncate(folder / SEGMENT, 70)
    index = RecordIndex()
    index.add(part)
    (unread,) = index.errors
    assert unread.error == "UNREADABLE: It has become shorter while it was read."


def test_unreadable_records_are_reported_and_hide_no_others(tmp_path: Path) -> None:
    first, second = ids_of(3, 2)
    broken = state_record(1, first, 1, "Ongoing", after()).replace(b"id-", b"ID-")
    strange = write_batch([(None, b"no key")], timestamp=after(), base_offset=2)
    sound = state_record(3, second, 2, "Empty", after())
    folder = write_log(
        tmp_path, f"{STATE_TOPIC}-3", [state_record(0, first, 1, "Empty", after()), broken, strange, sound]
    )
    rows = newest_rows(log_of(folder))
    assert sorted(newest(rows)) == sorted([first, second])
    errors = [row["error"].partition(":")[0] for row in rows if row["error"]]
    assert sorted(errors) == ["CORRUPT_BATCH", "CORRUPT_RECORD"]
    with (folder / SEGMENT).open("ab") as file:
        file.write(sound[:40])
    errors = [row["error"].partition(":")[0] for row in newest_rows(log_of(folder)) if row["error"]]
    assert "TORN_TAIL" in errors


def test_an_empty_partition_has_no_records(tmp_path: Path) -> None:
    write_state_topic(tmp_path, partitions=1)
    assert newest_rows(log_of(tmp_path / f"{STATE_TOPIC}-0")) == []


def test_the_index_of_a_real_coordinator(kafka: Kafka) -> None:
    from toolkit.lab.incidents import INCIDENTS

    for name in ("marker_only", "never_added"):
        INCIDENTS[name](kafka)
    found = 0
    for number in range(50):
        fast, slow = both_ways(kafka.log_dirs[1] / f"{STATE_TOPIC}-{number}")
        assert fast == slow
        found += len(fast)
    assert found >= 3
