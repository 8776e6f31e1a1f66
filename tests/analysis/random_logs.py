"""Random logs of one partition, as batch headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from toolkit.formats.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, HEADER, NO_MARKER, UNREAD_MARKER, Headers

LEADER_CHANGE = 2  # a control record that ends no transaction


class Step(NamedTuple):
    """The next action of a producer."""

    kind: str  # data, plain (not transactional), commit, abort, fence (a new epoch), unread, other, cleaned
    producer: int
    records: int = 1
    gap: int = 0  # offsets that compaction has removed from the batch
    version: int = 1  # 2: the marker has epoch + 1, and the producer continues with it
    attributes: int = 0  # additional bits
    wait: int = 1  # ms since the previous batch; may be negative, as clients' clocks differ


KINDS = ["data"] * 6 + ["plain", "commit", "commit", "commit", "abort", "abort", "fence", "unread", "other", "cleaned"]
MARKERS = {"commit": COMMIT, "abort": ABORT, "unread": UNREAD_MARKER, "other": LEADER_CHANGE, "cleaned": NO_MARKER}
LAST_SEQUENCE = 2**31 - 1

steps = st.builds(
    Step,
    st.sampled_from(KINDS),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 0, 0, LOG_APPEND_TIME, DELETE_HORIZON]),
    st.integers(-2, 5),
)
step_lists = st.lists(steps, max_size=40)
random_headers = step_lists.map(lambda drawn: batches(drawn))
"""Headers of up to 40 batches of up to four producers, and of batches without one (producer 0)."""


def batches(steps: Sequence[Step], *, base_offset: int = 0) -> Headers:
    """Headers of the batches that these steps write.

    Producer 0 has no producer id; sequences begin just before their overflow.
    """
    rows: list[dict[str, Any]] = []
    offset, now, position = base_offset, 1_000, 0
    epochs: dict[int, int] = {}
    sequences: dict[int, int] = {}
    for step in steps:
        producer = step.producer
        epoch = epochs.setdefault(producer, 0)
        if step.kind == "fence":
            epochs[producer], sequences[producer] = epoch + 1, 0
            continue
        now += step.wait
        row = {
            "position": position,
            "size": 61 + 7 * step.records,
            "base_offset": offset,
            "last_offset": offset + step.records + step.gap - 1,
            "base_timestamp": now,
            "max_timestamp": now + step.records,
            "producer_id": 1000 * producer if producer else -1,
            "base_sequence": -1,
            "record_count": step.records,
            "coordinator_epoch": -1,
            "attributes": step.attributes,
            "producer_epoch": epoch if producer else -1,
            "marker": NO_MARKER,
            "magic": 2,
            "crc_ok": -1,
        }
        if step.kind in MARKERS:
            bumped = step.version == 2
            row |= {
                "last_offset": offset,
                "record_count": 0 if step.kind == "cleaned" else 1,
                "attributes": step.attributes | CONTROL | TRANSACTIONAL,
                "marker": MARKERS[step.kind],
                "coordinator_epoch": 7,
                "producer_epoch": epoch + bumped if producer else -1,
                "max_timestamp": now,
            }
            if bumped and step.kind in {"commit", "abort"}:
                epochs[producer], sequences[producer] = epoch + 1, 0
        else:
            first = sequences.get(producer, LAST_SEQUENCE - 1)
            row["attributes"] |= 0 if step.kind == "plain" or not producer else TRANSACTIONAL
            row["base_sequence"] = first if producer else -1
            sequences[producer] = (first + step.records + step.gap) % 2**31
        rows.append(row)
        offset, position = int(row["last_offset"]) + 1, position + int(row["size"])
    headers = np.zeros(len(rows), HEADER)
    for index, row in enumerate(rows):
        for name, value in row.items():
            headers[name][index] = value
    return headers
