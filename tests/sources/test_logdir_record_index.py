"""What the index of a log of ``__transaction_state`` finds is what reading everything finds."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources.log_files import (
    SEGMENT,
    STATE_TOPIC,
    after,
    data,
    ids_of,
    marker,
    state_record,
    tombstone,
    write_log,
    write_root,
    write_state_topic,
)
from tests.tiers import amount, is_full
from toolkit.analysis.log.offset_status import clip
from toolkit.formats.batches import write_batch
from toolkit.formats.headers import HEADER, LogChunk
from toolkit.lab import Kafka
from toolkit.schema import Row
from toolkit.sources.logdir.log_dir_layout import discover
from toolkit.sources.logdir.replica_log import FolderLog, RecordIndex, SegmentSplit, read_split, splits

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
    with pytest.raises(OSError, match="shorter"):
        index.add(part.headers, (), part.file or "")


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


@pytest.mark.lab
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


BATCHES = 240


def batches(base_offset: int) -> Iterator[bytes]:
    """Transactions of three producers; one record is a whole batch, as a mirror of raw logs would write it."""
    for number in range(BATCHES):
        offset, producer_id = base_offset + 2 * number, number % 3
        if number % 10 > 6:
            yield marker(offset, producer_id, after(seconds=number))
        elif number == 100:
            yield write_batch([(None, data(base_offset + 200, 7, after())), (b"k", b"v")], timestamp=after(),
                              base_offset=offset)  # fmt: skip
        else:
            yield data(offset, producer_id, after(seconds=number), records=2)


def write_index(path: Path, base_offset: int, whole: Iterable[bytes], *, every: int = 7) -> None:
    """An offset index, as brokers write it: the last offset of a batch, and where that begins."""
    position, entries = 0, b""
    for number, batch in enumerate(whole):
        last = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big")
        if number and number % every == 0:
            entries += struct.pack(">ii", last - base_offset, position)
        position += len(batch)
    path.write_bytes(entries + bytes(80))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three segments with their indexes, and an empty newest one."""
    root = write_root(tmp_path / "data")
    for base_offset in (0, 480, 960):
        whole = list(batches(base_offset))
        folder = write_log(root, "orders-0", whole, base_offset=base_offset)
        write_index(folder / f"{base_offset:020}.index", base_offset, whole)
    return write_log(root, "orders-0", [], base_offset=1440)


def only_log_of(folder: Path) -> FolderLog:
    [replica] = discover([folder]).replicas
    return FolderLog(replica)


def found(parts: Iterable[LogChunk]) -> tuple[Any, list[Any]]:
    """Headers and damage, each with its file."""
    parts = list(parts)
    headers = np.concatenate([np.empty(0, HEADER), *(part.headers for part in parts)])
    return headers.tolist(), [(part.file, *each) for part in parts for each in part.damage]


def split_up(folder: Path, max_bytes: int, *, start: int | None = None, stop: int | None = None) -> Iterator[LogChunk]:
    for split in splits(only_log_of(folder), start=start, stop=stop, max_bytes=max_bytes):
        yield from read_split(split)


def assert_the_same(folder: Path, max_bytes: int, *, start: int | None = None, stop: int | None = None) -> None:
    whole = only_log_of(folder).parts(start=start, stop=stop)
    together = split_up(folder, max_bytes, start=start, stop=stop)
    expected = found(clip(whole, start=start, stop=stop))
    assert found(clip(together, start=start, stop=stop)) == expected, (max_bytes, start, stop)


def test_segments_are_split_at_batches(folder: Path) -> None:
    found = splits(only_log_of(folder), max_bytes=4000)
    assert len(found) > 12
    assert all(split.size < 4800 for split in found)
    by_path: dict[str, list[SegmentSplit]] = {}
    for split in found:
        by_path.setdefault(split.path, []).append(split)
    assert list(by_path) == sorted(by_path)
    for mine in by_path.values():
        assert (mine[0].start, mine[-1].stop) == (0, None)
        assert all(one.stop == other.start for one, other in pairwise(mine))
    assert [split.is_newest for split in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("max_bytes", [1, 700, 4000, 1 << 30])
def test_the_splits_together_give_the_log(folder: Path, max_bytes: int) -> None:
    for start in (None, 0, 201, 480, 1001, 1440, 5000):
        for stop in (None, 0, 202, 480, 1000, 1500):
            assert_the_same(folder, max_bytes, start=start, stop=stop)


def test_a_segment_without_index_stays_whole(folder: Path) -> None:
    (folder / f"{480:020}.index").unlink()
    assert [split.start for split in splits(only_log_of(folder), max_bytes=700) if f"{480:020}" in split.path] == [0]


def test_an_index_that_points_into_a_record_is_not_trusted(folder: Path) -> None:
    """A batch with a right checksum, but its offset is not that of the index."""
    log = (folder / f"{0:020}.log").read_bytes()
    inside = log.index(data(200, 7, after()))
    for before, at in ((200, 400), (150, 199)):
        entries = struct.pack(">iiii", before, inside - 60, at, inside)
        (folder / f"{0:020}.index").write_bytes(entries)
        cut = splits(only_log_of(folder), max_bytes=700)
        assert [split.start for split in cut if split.path.endswith(f"{0:020}.log")] == [0]
        assert_the_same(folder, 700)


def test_damage_at_a_split_is_reported_as_in_the_complete_log(folder: Path) -> None:
    log = folder / f"{0:020}.log"
    second = next(split for split in splits(only_log_of(folder), max_bytes=4000) if split.start)
    content = bytearray(log.read_bytes())
    content[second.start - 40 : second.start] = b"\xff" * 40
    log.write_bytes(content)
    assert_the_same(folder, 4000)
    parts = list(split_up(folder, 4000))
    assert any(f"the next intact batch starts at {second.start}" in each.reason for p in parts for each in p.damage)


def test_a_range_that_ends_before_it_begins_has_no_damage(folder: Path) -> None:
    """In a part without batches nothing shows that damage lies outside: only parts of several named it."""
    log = folder / f"{480:020}.log"
    content = bytearray(log.read_bytes())
    content[182:1053] = bytes(871)
    log.write_bytes(content)
    assert [each for part in split_up(folder, 300) for each in part.damage]
    assert not list(clip(split_up(folder, 300), start=859, stop=497))


@pytest.mark.longer
def test_damage_is_never_lost_or_reported_twice(folder: Path) -> None:
    seed = random.randrange(1 << 32) if is_full() else 7  # the sentences of the first tier are stored
    chance = random.Random(seed)
    log = folder / f"{480:020}.log"
    sound, index = log.read_bytes(), (folder / f"{480:020}.index").read_bytes()
    for _ in range(int(amount(60, full=1000))):
        content, entries = bytearray(sound), bytearray(index)
        for _ in range(chance.randint(1, 4)):
            at, size = chance.randrange(len(content)), chance.choice([1, 8, 70, 900])
            content[at : at + size] = chance.choice([bytes(size), chance.randbytes(size), b""])
        for _ in range(chance.randint(0, 2)):
            entries[chance.randrange(len(entries))] = chance.randrange(256)
        log.write_bytes(content[: chance.choice([None, None, chance.randrange(len(content))])])
        (folder / f"{480:020}.index").write_bytes(entries)
        bounds = {name: chance.choice([None, chance.randrange(400, 1000)]) for name in ("start", "stop")}
        offsets = [offset for header in found(only_log_of(folder).parts())[0] for offset in header[2:4]]
        if offsets != sorted(offsets):  # without checksums, the owner of such a batch is unknown
            bounds = {}
        try:
            assert_the_same(folder, chance.choice([300, 1500, 6000]), **bounds)
        except AssertionError as failed:
            raise AssertionError(f"seed {seed}: {failed}") from failed


def test_a_file_removed_or_truncated_meanwhile_is_reported(folder: Path) -> None:
    planned = splits(only_log_of(folder), max_bytes=4000)
    first, second = (folder / f"{offset:020}.log" for offset in (0, 480))
    first.unlink()
    os.truncate(second, 5000)
    damage = [each for split in planned for part in read_split(split) for each in part.damage]
    gone = [split for split in planned if split.path == str(first)]
    assert sum(each.reason.startswith("UNREADABLE: No such file") for each in damage) == len(gone)
    assert sum(each.reason.startswith("CORRUPT_BATCH: The segment ends within a batch") for each in damage) == 1


def test_a_file_that_grew_meanwhile_is_read_to_the_new_end(folder: Path) -> None:
    (folder / f"{1440:020}.log").unlink()
    planned = splits(only_log_of(folder), max_bytes=4000)
    with (folder / f"{960:020}.log").open("ab") as log:
        log.write(data(1440, 1, after()))
    headers, damage = found(part for split in planned for part in read_split(split))
    assert len(headers) == 3 * BATCHES + 1
    assert not damage
