"""Damage by kind: its reason and extent, and bytes that make a search slow; any damage is in test_damaged_files."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.formats.logs import assert_accounted, batch, control_batch, joined, marker, placed, positions
from toolkit.formats.headers import COMMIT, LogChunk
from toolkit.formats.scan import scan, scan_file


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


def damaged(at: int, field: bytes, *, of: int = 2) -> tuple[list[bytes], LogChunk]:
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
