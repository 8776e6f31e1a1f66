"""User data of group members; real ones are read by tests/tools/frameworks.py."""

import struct
import uuid

import pytest

from toolkit.errors import DecodeError
from toolkit.formats.coordinator_records import read_connect_assignment, read_connect_url, read_streams_process_id

PROCESS = uuid.UUID("1f0c6b52-90ab-4c1e-8d31-2f6f0c0a9e11")


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(user_data: bytes | None) -> bytes:
    size = struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return struct.pack(">hi", 1, 1) + text("orders") + size


@pytest.mark.parametrize("version", range(1, 12))
def test_the_process_id_in_each_version_of_kafka_streams(version: int) -> None:
    numbers = struct.pack(">i", version) + (struct.pack(">i", 11) if version >= 3 else b"")
    whole = subscription(numbers + PROCESS.bytes + b"tasks")
    assert read_streams_process_id(whole) == str(PROCESS)
    with pytest.raises(DecodeError):
        read_streams_process_id(whole[:20])


def test_a_consumer_without_user_data_has_no_process_id() -> None:
    assert read_streams_process_id(subscription(None)) is None
    with pytest.raises(DecodeError):
        read_streams_process_id(b"")


def test_the_tasks_of_a_kafka_connect_worker() -> None:
    state = struct.pack(">h", 2) + text("http://a:8083/") + struct.pack(">q", 7)
    assert read_connect_url(state) == "http://a:8083/"
    tasks = struct.pack(">i", 1) + text("files") + struct.pack(">iii", 2, -1, 0)
    head = struct.pack(">hh", 2, 0) + text("connect-1") + text("http://a:8083/") + struct.pack(">q", 7)
    found = read_connect_assignment(head + tasks)
    assert found.leader_member_id == "connect-1"
    assert found.tasks == {("files", -1), ("files", 0)}
    assert read_connect_assignment(head + struct.pack(">i", -1)).tasks == frozenset()
    with pytest.raises(DecodeError):
        read_connect_assignment(head)
