"""Messages from before Kafka 0.11, as a broker of Kafka 2.8.2 wrote them and its own tool read them."""

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.formats.logs import assert_accounted, joined, message, placed
from toolkit.formats.headers import NO_MARKER, header_table
from toolkit.formats.scan import scan, scan_file

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


def test_checksums_of_old_messages_are_checked() -> None:
    log = placed([message(0, seed=1), message(1, seed=2), message(1, seed=3)])
    damaged = log[1][:-1] + bytes([log[1][-1] ^ 1])
    found = scan(log[0] + damaged + log[2], crc=True)
    assert found.headers["crc_ok"].tolist() == [1, 0, 1]
    assert found.headers["marker"].tolist() == [NO_MARKER] * 3


def test_the_next_old_message_after_damage_is_found() -> None:
    log = placed([message(0, seed=1), message(1, seed=2), message(1, codec=1, seed=3), message(0, seed=4)])
    found = scan(log[0] + b"\xff" * 50 + b"".join(log[1:]))
    sizes = [len(each) for each in log]
    assert found.headers["size"].tolist() == sizes
    assert [(each.position, each.size) for each in found.damage] == [(sizes[0], 50)]


def test_a_message_with_inconsistent_sizes_is_damage() -> None:
    log = placed([message(1, seed=1), message(1, seed=2), message(1, seed=3)])
    key_size = struct.pack(">i", 5)  # was null
    found = scan(log[0] + log[1][:26] + key_size + log[1][30:] + log[2])
    assert found.headers["size"].tolist() == [len(log[0]), len(log[2])]
