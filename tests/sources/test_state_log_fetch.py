"""``__transaction_state`` is read to its end, over compacted offsets, from leaders that move; damage is an error."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.formats.packed import pack_batch
from toolkit.errors import ConnectionFailed
from toolkit.formats.batch_records import Record
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema.table import TopicPartition, utc_now
from toolkit.sources.live import transactions
from toolkit.sources.live.leaders import FetchedBatches, PartitionLeader


def batch(offset: int, key: bytes, value: bytes | None) -> bytes:
    return pack_batch([Record(offset, 1_795_277_560_901, key, value)])


def leader(broker_id: int) -> PartitionLeader:
    return PartitionLeader(STATE_TOPIC, 0, broker_id, 5, (1, 2), (1, 2), utc_now(), None)


@pytest.fixture
def responses(monkeypatch: pytest.MonkeyPatch) -> list[FetchedBatches]:
    """What leaders answer, in this order."""
    answers: list[FetchedBatches] = []
    monkeypatch.setattr(transactions, "fetch", lambda client, positions, **options: [answers.pop(0)])
    monkeypatch.setattr(transactions, "PAUSE_S", 0)
    return answers


def read(stop: int, *, seconds: float = 60) -> tuple[dict[bytes, tuple[int, bytes | None]], dict[int, str]]:
    errors: dict[int, str] = {}
    client: Any = SimpleNamespace()
    leaders = {TopicPartition(STATE_TOPIC, 0): leader(1)}
    newest = transactions._newest_records(client, leaders, {0: (0, stop)}, errors, time.monotonic() + seconds)
    return newest, errors


def test_the_newest_value_of_each_key(responses: list[FetchedBatches]) -> None:
    responses += [
        FetchedBatches(batch(0, b"one", b"a") + batch(1, b"two", b"b"), high_watermark=4),
        FetchedBatches(batch(2, b"one", b"c") + batch(3, b"two", None), high_watermark=4),
    ]
    assert read(4) == ({b"one": (0, b"c"), b"two": (0, None)}, {})
    assert responses == []


def test_compacted_offsets_at_the_end_are_read(responses: list[FetchedBatches]) -> None:
    responses += [FetchedBatches(batch(0, b"one", b"a"), high_watermark=9), FetchedBatches(high_watermark=9)]
    assert read(9) == ({b"one": (0, b"a")}, {})


def test_a_high_watermark_behind_the_end_is_waited_for(responses: list[FetchedBatches]) -> None:
    responses += [FetchedBatches(high_watermark=0), FetchedBatches(batch(0, b"one", b"a"), high_watermark=1)]
    assert read(1) == ({b"one": (0, b"a")}, {})


def test_a_leader_that_moved_is_looked_up(responses: list[FetchedBatches], monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = [ConnectionFailed("No broker answers."), SimpleNamespace(at=lambda tps: dict.fromkeys(tps, leader(2)))]

    def metadata(client: object, topics: object) -> Any:
        found = looked_up.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(transactions, "read_metadata", metadata)
    moved = FetchedBatches(error="NOT_LEADER_OR_FOLLOWER: moved")
    responses += [moved, moved, FetchedBatches(batch(0, b"one", b"a"), high_watermark=1)]
    assert read(1) == ({b"one": (0, b"a")}, {})
    assert looked_up == []


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (FetchedBatches(error="TOPIC_AUTHORIZATION_FAILED: no"), "TOPIC_AUTHORIZATION_FAILED"),
        (FetchedBatches(error="OFFSET_OUT_OF_RANGE: gone"), "OFFSET_OUT_OF_RANGE"),
        (FetchedBatches(batch(0, b"one", b"a")[:-1] + b"x", high_watermark=1), "CORRUPT_MESSAGE"),
        (FetchedBatches(batch(0, b"one", b"a")[:40], high_watermark=1), "CORRUPT_MESSAGE"),
        (FetchedBatches(b"no batch" * 20, high_watermark=1), "CORRUPT_MESSAGE"),
    ],
    ids=["no right", "deleted", "a wrong checksum", "no whole batch", "no batch"],
)
def test_what_cannot_be_read_is_an_error(responses: list[FetchedBatches], response: FetchedBatches, code: str) -> None:
    responses.append(response)
    _, errors = read(1)
    assert {number: text.partition(":")[0] for number, text in errors.items()} == {0: code}


def test_what_was_not_read_in_time_is_an_error(responses: list[FetchedBatches]) -> None:
    assert read(1, seconds=0)[1] == {0: "REQUEST_TIMED_OUT: the partition was not read to its end in time"}
