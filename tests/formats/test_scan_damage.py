"""Damage: every byte is accounted for, nothing raises or hangs, and intact batches are found again."""

import gzip
import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from tests.formats.logs import assert_accounted, batch, control_batch, joined, logs, marker, placed, positions
from tests.tiers import fuzzed
from toolkit.formats.log.headers import COMMIT, ScanResult
from toolkit.formats.log.scan import scan, scan_file

SEGMENTS = [
    *(Path(__file__).parent / "data" / "dumps").rglob("*.log"),
    *(Path(__file__).parent / "segments").glob("*.log"),
]
fuzz = fuzzed(300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def names(found: ScanResult) -> list[str]:
    """What the damage is, without the sentences."""
    return [each.reason.partition(":")[0] for each in found.damage]


def starts(log: list[bytes]) -> list[int]:
    return [0, *np.cumsum([len(each) for each in log]).tolist()]


# Cut, and zeros


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.parent.name + "-" + path.stem)
def test_a_real_segment_truncated_anywhere_has_a_torn_tail(path: Path) -> None:
    data = path.read_bytes()[:1500]
    whole = scan(data, crc=True)
    ends = (whole.headers["position"] + whole.headers["size"]).tolist()
    for cut in range(1, len(data)):
        found = scan(data[:cut], crc=True)
        assert_accounted(found, 0, cut)
        complete = sum(end <= cut for end in ends)
        assert found.headers.tolist() == whole.headers[:complete].tolist()
        torn = [] if cut in ends else ["TORN_TAIL"]
        assert names(found) == torn, (cut, found.damage)


def test_zeros_after_the_last_batch_are_a_torn_tail() -> None:
    log = placed([batch(seed=1), marker(COMMIT), batch(seed=2)])
    for zeros in (1, 16, 17, 60, 61, 1000, 3_000_000):
        found = scan(b"".join(log) + bytes(zeros))
        assert positions(found.headers) == starts(log)[:-1]
        assert names(found) == ["TORN_TAIL"]
        assert_accounted(found, 0, starts(log)[-1] + zeros)


def test_an_unwritten_preallocated_file_is_a_torn_tail() -> None:
    assert names(scan(bytes(100_000))) == ["TORN_TAIL"]


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


def damaged(at: int, field: bytes, *, of: int = 2) -> tuple[list[bytes], ScanResult]:
    """A log of five batches, one of them with other bytes somewhere."""
    log = placed([batch(seed=seed, size=100) for seed in range(5)])
    log[of] = log[of][:at] + field + log[of][at + len(field) :]
    found = scan(b"".join(log))
    assert_accounted(found, 0, starts(log)[-1])
    return log, found


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
    log, found = damaged(at, field)
    begin = starts(log)
    assert positions(found.headers) == [*begin[:2], *begin[3:5]]
    (damage,) = found.damage
    assert (damage.position, damage.size) == (begin[2], len(log[2]))
    assert damage.reason == f"CORRUPT_BATCH: {reason}; the next intact batch starts at {begin[3]}."


def test_a_damaged_first_header_costs_one_batch() -> None:
    log, found = damaged(16, b"\x09", of=0)
    assert positions(found.headers) == starts(log)[1:-1]


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


# Anything at all


class Change(NamedTuple):
    """One change to a log."""

    kind: str  # flip, insert, remove, repeat, zero
    at: int
    size: int
    byte: int


changes = st.lists(
    st.builds(
        Change,
        st.sampled_from(["flip", "flip", "insert", "remove", "repeat", "zero"]),
        st.integers(0, 4000),
        st.integers(1, 150),
        st.integers(1, 255),
    ),
    min_size=1,
    max_size=4,
)


def change(data: bytes, what: Change) -> bytes:
    at = what.at % (len(data) + 1)
    part = data[at : at + what.size]
    match what.kind:
        case "flip":
            return data[:at] + bytes([byte ^ what.byte for byte in part[:1]]) + data[at + 1 :]
        case "insert":
            return data[:at] + bytes((what.byte * i) & 0xFF for i in range(what.size)) + data[at:]
        case "remove":
            return data[:at] + data[at + what.size :]
        case "repeat":
            return data[:at] + part + data[at:]
    return data[:at] + bytes(len(part)) + data[at + len(part) :]


def assert_sound_batches_are_found(data: bytes, log: list[bytes], found: ScanResult) -> None:
    """Every complete batch is there, except for one that another covers.

    That one has the right checksum too, where a copy cut short goes on in the next by chance; or its length is wrong
    and fits by chance.
    """
    log_transactions = {int(row["position"]): int(row["position"] + row["size"]) for row in found.headers}
    for each in set(log):
        at = data.find(each)
        while at >= 0:
            covered = any(start < at < end for start, end in log_transactions.items())
            assert covered or log_transactions.get(at) == at + len(each), (at, found)
            at = data.find(each, at + 1)


@fuzz
@given(logs, changes)
def test_every_byte_of_a_damaged_log_is_accounted_for(log: list[bytes], made: list[Change]) -> None:
    data = b"".join(log)
    for each in made:
        data = change(data, each)
    found = scan(data, crc=True)
    assert_accounted(found, 0, len(data))
    assert_sound_batches_are_found(data, log, found)
    unchecked = scan(data)
    assert unchecked.damage == found.damage
    assert positions(unchecked.headers) == positions(found.headers)


@fuzz
@given(st.sampled_from(SEGMENTS), changes, st.integers(1, 3000))
def test_every_byte_of_a_damaged_real_segment_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, segment: Path, made: list[Change], chunk: int
) -> None:
    data = segment.read_bytes()
    log = [data[row["position"] : row["position"] + row["size"]] for row in scan(data).headers]
    for each in made:
        data = change(data, each)
    path = tmp_path_factory.getbasetemp() / f"changed-{os.getpid()}.log"
    path.write_bytes(data)
    found = joined([scan(b""), *scan_file(path, crc=True, chunk_bytes=chunk)])
    if data:
        assert_accounted(found, 0, len(data))
    assert_sound_batches_are_found(data, log, found)
    whole = scan(data, crc=True)
    assert (found.headers.tolist(), found.damage) == (whole.headers.tolist(), whole.damage)


@fuzz
@given(st.binary(max_size=400), st.integers(0, 500), st.booleans())
@example(bytes(17), 0, True)
@example(bytes(16) + b"\2", 0, True)
def test_arbitrary_bytes_are_accounted_for(data: bytes, position: int, last: bool) -> None:
    position = min(position, len(data))
    found = scan(data, position=position, crc=True, last=last)
    assert_accounted(found, position, len(data) if last else found.end)
