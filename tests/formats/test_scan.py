"""Scanned headers: real brokers against `read_header`, old messages; damage by kind, any in test_damaged_files."""

import gzip
import os
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.logs import assert_accounted, batch, control_batch, joined, logs, marker, message, placed, positions
from toolkit.formats import scan as scanning
from toolkit.formats.batches import HEADER_SIZE, MAGIC_AT
from toolkit.formats.headers import ABORT, COMMIT, NO_MARKER, RAW_BYTES, UNREAD_MARKER, LogChunk, header_table
from toolkit.formats.scan import (
    MESSAGE_SIZE,
    REACH,
    FoundBatches,
    candidates,
    find_batches,
    is_whole,
    readable_size,
    scan,
    scan_file,
    usual_size,
)

# Header values


# Markers


@given(st.lists(st.tuples(st.sampled_from([ABORT, COMMIT]), st.integers(-1, 2**31 - 1)), min_size=1, max_size=5))
def test_a_marker_has_its_type_and_coordinator_epoch(ends: list[tuple[int, int]]) -> None:
    log = placed([batch(producer_id=1), *(marker(type_, coordinator_epoch=epoch) for type_, epoch in ends), batch()])
    headers = scan(b"".join(log)).headers
    assert headers["marker"].tolist() == [NO_MARKER, *(type_ for type_, _ in ends), NO_MARKER]
    assert headers["coordinator_epoch"].tolist() == [-1, *(epoch for _, epoch in ends), -1]


KEY, VALUE = struct.pack(">hh", 0, COMMIT), struct.pack(">hi", 0, 7)
LONG_TIME = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # a varint of ten bytes, the maximum


@pytest.mark.parametrize(
    ("records", "attributes", "expected"),
    [
        pytest.param(b"\x22\0\0\0\x0a" + KEY + b"\xee\x0c" + VALUE + b"\0", 0x30, (COMMIT, 7), id="a longer key"),
        pytest.param(b"\x22\0\0\0\x08" + KEY + b"\x0e" + VALUE + b"\xee\0", 0x30, (COMMIT, 7), id="a longer value"),
        pytest.param(b"\x32\0" + LONG_TIME + b"\0\x08" + KEY + b"\x0c" + VALUE + b"\0", 0x30, (COMMIT, 7), id="a time"),
        pytest.param(b"\x20\0\0\0\x08\0\0\0\2\x0c" + VALUE + b"\0", 0x20, (2, -1), id="LEADER_CHANGE"),
        pytest.param(b"\x20\0\0\0\x08\0\0\0\x63\x0c" + VALUE + b"\0", 0x20, (99, -1), id="an unknown type"),
        pytest.param(b"\x20\0\0\0\x08\0\5\0\1\x0c\0\5\0\0\0\7\0", 0x30, (COMMIT, 7), id="newer versions"),
        pytest.param(b"\x14\0\0\0\x08" + KEY + b"\1\0", 0x30, (COMMIT, -1), id="no value"),
        pytest.param(b"\x14\0\0\0\x08" + KEY + b"\x0c\0", 0x30, (COMMIT, -1), id="cut within the value"),
        pytest.param(
            b"\x20\0\0\0\x08\xff\xff\0\1\x0c" + VALUE + b"\0", 0x30, (UNREAD_MARKER, -1), id="version below 0"
        ),
        pytest.param(b"\x20\0\0\0\x08" + KEY + b"\x0c\xff\xff\0\0\0\7\0", 0x30, (COMMIT, -1), id="value below 0"),
        pytest.param(b"\x08\0\0\0\1\1\0", 0x30, (UNREAD_MARKER, -1), id="no key"),
        pytest.param(b"\x08\0\0\0\x08\0", 0x30, (UNREAD_MARKER, -1), id="cut within the key"),
        pytest.param(b"\x20\0\0\0\x08" + bytes(12), 0x30, (UNREAD_MARKER, -1), id="zeros from a cut on"),
        pytest.param(b"\xff" * 60, 0x30, (UNREAD_MARKER, -1), id="an endless varint"),
        pytest.param(b"\x20\0\0\0\x08" + KEY + b"\x0c" + VALUE + b"\0", 0x31, (UNREAD_MARKER, -1), id="compressed"),
        pytest.param(b"", 0x30, (UNREAD_MARKER, -1), id="its record was cleaned away"),
    ],
)
def test_unusual_control_records_are_read_as_far_as_possible(
    records: bytes, attributes: int, expected: tuple[int, int]
) -> None:
    log = placed([batch(), control_batch(records, attributes=attributes), batch(seed=1)])
    (row,) = scan(b"".join(log), crc=True).headers[1:2]
    assert (row["marker"], row["coordinator_epoch"]) == expected
    assert row["crc_ok"] == 1


# Checksums


def test_a_wrong_checksum_is_marked() -> None:
    """That of a large batch is computed in chunks, and old messages have their own."""
    for log in (
        [batch(seed=1), batch(seed=2), batch(seed=3)],
        [batch(seed=1), batch(size=3_000_000, seed=2), batch(seed=3)],
        [message(0, seed=1), message(1, seed=2), message(1, seed=3)],
    ):
        first, second, third = placed(log)
        assert scan(first + second + third, crc=True).headers["crc_ok"].tolist() == [1, 1, 1]
        spoiled = first + second[:-1] + bytes([second[-1] ^ 1]) + third
        found = scan(spoiled, crc=True)
        assert (found.headers["crc_ok"].tolist(), found.damage) == ([1, 0, 1], ())
        assert found.headers["marker"].tolist() == [NO_MARKER] * 3
        assert scan(spoiled).headers["crc_ok"].tolist() == [-1] * 3


# Windows, chunks, many at once


def test_an_incomplete_batch_is_left_for_the_next_scan() -> None:
    log = placed([batch(seed=1), batch(seed=2)])
    whole = b"".join(log)
    for cut in range(len(log[0]), len(whole)):
        found = scan(whole[:cut], last=False)
        assert (positions(found.headers), found.damage, found.end) == ([0], (), len(log[0]))
    broken = log[0] + b"\xff" * 100
    assert scan(broken, last=False).end == len(log[0])
    assert scan(broken + log[1], last=False).end == len(broken + log[1])


def plain_candidates(data: bytes, room: int) -> list[int]:
    """What `candidates` finds, one byte after the other."""
    found = []
    for at in range(len(data) - MESSAGE_SIZE + 1):
        size = usual_size(data, at, len(data))
        if 0 < size <= room - at and is_whole(data, at, size, min(len(data), at + REACH)):
            found.append(at)
    return found


def plain_batches(data: bytes, position: int, *, at_most: int) -> tuple[list[int], int, bool]:
    """What `find_batches` finds, one batch after the other: positions, `stop` and `in_doubt`."""
    found: list[int] = []
    size = readable_size(data, position, len(data))
    while size > 0 and len(found) < at_most:
        follower = position + size
        if follower + HEADER_SIZE > len(data):
            return found, position, False
        size = usual_size(data, follower, len(data))
        is_old = data[position + MAGIC_AT] < 2
        if size == 0 or (is_old and not is_whole(data, position, follower - position, follower)):
            return found, position, True
        if not is_old and data[follower + MAGIC_AT] < 2:  # logs hardly ever return to an old format
            return found, position, True
        found.append(position)
        position = follower
    return found, position, size == 0


@given(logs, st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3), st.integers(0, 300))
def test_many_batches_at_once_are_found_like_one_after_the_other(
    log: list[bytes], changes: list[tuple[int, int]], start: int
) -> None:
    data = bytearray(b"".join(log))
    for at, byte in changes:
        data[at % len(data)] = byte
    start %= len(data)
    window = np.frombuffer(bytes(data) + b"\xee" * RAW_BYTES, np.uint8)
    for at_most in (len(data), 2):
        found = find_batches(window, start, len(data), at_most=at_most)
        plain, stop, in_doubt = plain_batches(bytes(data), start, at_most=at_most)
        assert (found.positions.tolist(), found.stop, found.in_doubt) == (plain, stop, in_doubt)
        assert [each.tobytes()[:12] for each in found.raw] == [data[at : at + 12] for at in plain]
    assert list(candidates(window, len(data), len(data) + 50)) == plain_candidates(bytes(data), len(data) + 50)


def test_bytes_made_to_look_like_headers_are_not_followed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second batch has an attribute that Kafka never wrote, and no length leads to a batch that is plausible."""
    log = placed([batch(seed=seed) for seed in range(600)])
    odd = [each[:21] + b"\x40" + each[22:] if i % 2 else each for i, each in enumerate(log)]
    followed = []

    def counted(window: Any, position: int, end: int, *, at_most: int) -> FoundBatches:
        followed.append(at_most)
        return find_batches(window, position, end, at_most=at_most)

    monkeypatch.setattr(scanning, "find_batches", counted)
    found = scan(b"".join(odd))
    assert len(found.headers) + len(found.damage) >= 300
    assert sum(followed) <= 3 * 32 * len(log)


# Files


@pytest.fixture
def log_file(tmp_path: Path) -> tuple[Path, list[bytes]]:
    log = placed([batch(seed=seed, size=30 * seed) for seed in range(8)])
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(log))
    return path, log


def test_a_file_is_read_from_a_batch_on(log_file: tuple[Path, list[bytes]]) -> None:
    path, log = log_file
    starts = [0, *np.cumsum([len(each) for each in log]).tolist()]
    found = joined(list(scan_file(path, start=starts[2])))
    assert (positions(found.headers), found.end) == (starts[2:-1], starts[-1])


def test_an_empty_file_has_no_batches(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    assert list(scan_file(tmp_path / "empty.log")) == []


def test_an_unreadable_file_gives_the_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reasons = {}
    for name in ("missing", "pipe", "."):
        (found,) = scan_file(tmp_path / name)
        assert len(found.headers) == 0
        (damage,) = found.damage
        assert (damage.position, damage.size) == (0, 0)
        reasons[name] = damage.reason
    assert reasons == {
        "missing": "UNREADABLE: No such file or directory.",
        "pipe": "UNREADABLE: this is a pipe or device and no file.",
        ".": "UNREADABLE: this is a directory and no file.",
    }


def test_a_read_error_keeps_the_batches_before_it(
    log_file: tuple[Path, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkit.formats.scan import LogBytes

    path, log = log_file
    bad_sector = len(log[0]) + len(log[1]) + len(log[2])
    read_into = LogBytes.read_into

    def read_until(self: LogBytes, target: memoryview, position: int) -> int:
        if position + min(len(target), self.stop - position) > bad_sector:
            raise OSError(5, "Input/output error")
        return read_into(self, target, position)

    monkeypatch.setattr(LogBytes, "read_into", read_until)
    found = joined(list(scan_file(path, chunk_bytes=128)))
    assert positions(found.headers)[:1] == [0]
    assert found.damage[-1].reason == "UNREADABLE: Input/output error."
    assert_accounted(found, 0, path.stat().st_size)


def test_a_growing_file_is_read_up_to_its_first_end(log_file: tuple[Path, list[bytes]]) -> None:
    path, _ = log_file
    parts = scan_file(path, chunk_bytes=128)
    size = path.stat().st_size
    with path.open("ab") as file:
        first = next(parts)
        file.write(batch(seed=99))
    assert joined([first, *parts]).end == size


@pytest.mark.parametrize("crc", [False, True])
def test_a_file_rewritten_during_the_scan_gives_only_intact_batches(tmp_path: Path, crc: bool) -> None:
    path = tmp_path / "00000000000000000000.log"
    log = placed([batch(seed=seed % 7, size=50 + 40 * (seed % 7)) for seed in range(700)])
    whole = b"".join(log)
    sound = {(len(each), each[17:21]) for each in log}
    path.write_bytes(whole)
    done = threading.Event()

    def truncate_and_append() -> None:
        rng = np.random.default_rng(1)
        with path.open("r+b", buffering=0) as file:
            while not done.wait(0.001):
                cut = int(rng.integers(0, len(whole)))
                file.truncate(cut)
                file.seek(cut)
                file.write(whole[cut:])

    writer = threading.Thread(target=truncate_and_append)
    writer.start()
    try:
        for chunk in [200, 3000, 50_000] * 20:
            found = [*scan_file(path, crc=crc, chunk_bytes=chunk)]
            if not found:
                continue
            every = joined(found)
            assert_accounted(every, 0, every.end)
            assert {(int(h["size"]), int(h["crc"]).to_bytes(4, "big")) for h in every.headers} <= sound
            assert {each.reason.partition(":")[0] for each in every.damage} <= {"TORN_TAIL"}  # none: it was not cut
    finally:
        done.set()
        writer.join(120)


def test_memory_does_not_grow_with_a_batch(tmp_path: Path) -> None:
    """A damaged length claims 2 GB in a sparse file that has them."""
    path = tmp_path / "00000000000000000000.log"
    header = bytearray(batch()[:HEADER_SIZE])
    header[8:12] = (2**31 - 1).to_bytes(4, "big")
    with path.open("wb") as file:
        file.write(batch() + header)
        file.truncate(len(batch()) + 12 + 2**31 - 1)
    code = f"""
import resource
from toolkit.formats.scan import scan_file
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
parts = list(scan_file({str(path)!r}))
assert [len(part.headers) for part in parts] == [2], parts
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300)
    assert int(done.stdout) < 200  # MB


def names(found: LogChunk) -> list[str]:
    """What the damage is, without the sentences."""
    return [each.reason.partition(":")[0] for each in found.damage]


def starts(log: list[bytes]) -> list[int]:
    return [0, *np.cumsum([len(each) for each in log]).tolist()]


# Cut, and zeros


def test_zeros_after_the_last_batch_are_a_torn_tail() -> None:
    log = placed([batch(seed=1), marker(COMMIT), batch(seed=2)])
    for zeros in (1, 16, 17, 60, 61, 1000, 3_000_000):
        found = scan(b"".join(log) + bytes(zeros))
        assert positions(found.headers) == starts(log)[:-1]
        assert names(found) == ["TORN_TAIL"]
        assert_accounted(found, 0, starts(log)[-1] + zeros)
    assert names(scan(bytes(100_000))) == ["TORN_TAIL"], "an unwritten preallocated file"


@pytest.mark.parametrize("crc", [False, True])
def test_a_partly_written_batch_is_a_torn_tail(crc: bool) -> None:
    log = placed([batch(seed=1), batch(seed=2, size=120)])
    for written in range(1, len(log[1])):
        if any(log[1][written:]):
            half = log[1][:written] + bytes(len(log[1]) - written)
            found = scan(log[0] + half + bytes(2000), crc=crc)
            assert positions(found.headers) == [0]
            assert names(found) == ["TORN_TAIL"], (written, found.damage)


# Contradictions in the middle


@pytest.mark.parametrize(
    ("at", "field", "reason"),
    [
        (0, b"\xff", "no batch starts here: its base offset is negative"),
        (8, struct.pack(">i", 3), "no batch starts here: its length is 3"),
        (8, struct.pack(">i", -1), "no batch starts here: its length is -1"),
        (16, b"\x09", "no batch starts here: magic 9 is not known"),
        (23, b"\xff", "no batch starts here: its fields contradict each other"),
        (8, struct.pack(">i", 60), "its checksum does not match, and its length leads to no batch"),
        (8, struct.pack(">i", 2_000_000_000), "the bytes end within a batch of 2,000,000,012 bytes"),
    ],
)
def test_a_damaged_header_costs_one_batch(at: int, field: bytes, reason: str) -> None:
    log = placed([batch(seed=seed, size=100) for seed in range(5)])
    log[2] = log[2][:at] + field + log[2][at + len(field) :]
    found, begin = scan(b"".join(log)), starts(log)
    assert_accounted(found, 0, begin[-1])
    assert positions(found.headers) == [*begin[:2], *begin[3:5]]
    (damage,) = found.damage
    assert (damage.position, damage.size) == (begin[2], len(log[2]))
    assert damage.reason == f"CORRUPT_BATCH: {reason}; the next intact batch starts at {begin[3]}."


def test_a_header_of_a_newer_kafka_is_read_if_its_checksum_matches() -> None:
    """Attributes that have no meaning yet are no damage."""
    log = placed([batch(seed=1), control_batch(b"any", attributes=0x4080), control_batch(b"", attributes=0x107)])
    found = scan(b"".join(log), crc=True)
    assert positions(found.headers) == starts(log)[:-1]
    assert found.damage == ()
    assert found.headers["crc_ok"].tolist() == [1, 1, 1]


def test_a_header_within_a_record_is_no_batch() -> None:
    """Neither where nothing is damaged, nor after damage: its checksum is not right."""
    fake = bytearray(batch(seed=9, size=100))
    fake[-1] ^= 1
    log = placed([batch(seed=1), control_batch(b"x" * 30 + bytes(fake) + b"y" * 30, attributes=0), batch(seed=2)])
    assert positions(scan(b"".join(log)).headers) == starts(log)[:-1]
    log[1] = log[1][:16] + b"\xff" + log[1][17:]
    found = scan(b"".join(log))
    assert positions(found.headers) == [starts(log)[0], starts(log)[2]]


def test_garbage_at_the_end_is_corrupt_and_not_torn() -> None:
    log = placed([batch(seed=1), batch(seed=2)])
    noise = np.random.default_rng(1).bytes(5000).replace(b"\0", b"\1")
    found = scan(b"".join(log) + b"\xff" * 17 + noise)
    assert names(found) == ["CORRUPT_BATCH"]
    assert found.damage[0].reason.endswith("; no intact batch follows.")


# No segments


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (gzip.compress(b"".join(batch(seed=seed) for seed in range(9))), "this is gzip. Unpack it first."),
        (b"PAR1" + bytes(range(256)) * 20, "this is Parquet. Pass the log files that it was made from."),
        (b"baseOffset: 0 lastOffset: 0\n" * 50, "this is text. If kafka-dump-log.sh printed it, read it as a dump."),
        ("größer als 0\n".encode() * 50, "this is text. If kafka-dump-log.sh printed it, read it as a dump."),
        (np.random.default_rng(1).bytes(300_000), "there is no record batch in it."),
    ],
)
def test_other_files_are_distinguished_from_damaged_segments(data: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    for found in (scan(data), joined(list(scan_file(tmp_path / "file", crc=True)))):
        (damage,) = found.damage
        assert damage == (0, len(data), f"NOT_A_SEGMENT: {sentence}")
        assert len(found.headers) == 0


# Bytes that would make a careless search take for ever


def hostile() -> dict[str, bytes]:
    fake = bytearray(batch())
    fake[-1] ^= 1
    claims_much = bytearray(fake[:61])
    claims_much[8:12] = struct.pack(">i", 1_000_000)
    size = 2_000_000
    return {
        "headers after headers": b"\xff" * 9 + bytes(fake[:61]) * (size // 61),
        "headers that claim half of it": b"\xff" * 9 + bytes(claims_much) * (size // 61),
        "wrong checksums": b"\xff" * 9 + bytes(fake) * (size // len(fake)),
        "wrong and right ones": (bytes(claims_much) + batch()) * (size // (61 + len(fake))),
        "small numbers": struct.pack(">i", 2) * (size // 4),
        "small messages": b"\xff" * 9 + struct.pack(">qiIbbii", 1, 14, 0, 0, 0, -1, -1) * (size // 26),
    }


@pytest.mark.parametrize("name", hostile())
def test_hostile_bytes_are_skipped_in_bounded_time(name: str) -> None:
    data = hostile()[name]
    assert_accounted(scan(data), 0, len(data))


FOLDER = Path(__file__).parent / "segments"
SEGMENTS = ["magic-0", "magic-1-log-append-time", "magic-1-then-2"]
LINE = re.compile(
    r"(?:offset|lastOffset): (\d+) .*?position: (\d+) (\w+): (-?\d+) size: (\d+) magic: (\d) "
    r"compresscodec: (\w+) crc: (\d+) isvalid: true"
)


@pytest.mark.parametrize("name", SEGMENTS)
def test_a_real_segment_is_read_as_by_kafka(name: str) -> None:
    parts = list(scan_file(FOLDER / f"{name}.log", crc=True))
    found = joined(parts)
    assert_accounted(found, 0, (FOLDER / f"{name}.log").stat().st_size)
    names = ["last_offset", "position", "timestamp_type", "size", "magic", "compression", "crc"]
    columns = header_table(found.headers).select(names).to_pydict() | {"time": found.headers["max_timestamp"].tolist()}
    columns["timestamp_type"] = [type_ or "NoTimestampType" for type_ in columns["timestamp_type"]]
    columns["compression"] = [codec.upper() for codec in columns["compression"]]
    order = ["last_offset", "position", "timestamp_type", "time", "size", "magic", "compression", "crc"]
    rows = list(zip(*(map(str, columns[name]) for name in order), strict=True))
    assert rows == LINE.findall((FOLDER / f"{name}.txt").read_text())
    assert found.headers["crc_ok"].tolist() == [1] * len(rows)


def test_missing_values_of_a_message_are_null() -> None:
    bare, wrapper, log_append = (
        scan_all("magic-0")[0],
        scan_all("magic-1-then-2")[3],
        scan_all("magic-1-log-append-time")[0],
    )
    for row in (bare, wrapper, log_append):
        unsaid = ["producer_id", "producer_epoch", "base_sequence", "leader_epoch", "marker", "coordinator_epoch"]
        assert [row[name] for name in unsaid] == [None] * len(unsaid)
        assert not row["is_transactional"]
        assert not row["is_control"]
    assert (bare["base_offset"], bare["record_count"]) == (0, 1)
    assert bare["base_timestamp"] is bare["max_timestamp"] is bare["timestamp_type"] is None
    assert wrapper["base_offset"] is wrapper["record_count"] is wrapper["base_timestamp"] is None
    assert (wrapper["last_offset"], wrapper["compression"]) == (5, "gzip")
    assert log_append["timestamp_type"] == "LogAppendTime"


def scan_all(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = header_table(joined(list(scan_file(FOLDER / f"{name}.log"))).headers).to_pylist()
    return rows


def test_a_message_with_inconsistent_sizes_is_damage() -> None:
    log = placed([message(1, seed=1), message(1, seed=2), message(1, seed=3)])
    key_size = struct.pack(">i", 5)  # was null
    found = scan(log[0] + log[1][:26] + key_size + log[1][30:] + log[2])
    assert found.headers["size"].tolist() == [len(log[0]), len(log[2])]
