"""Batches and records of coordinators for the tests of causes and impact."""

import datetime as dt
from typing import Any

import numpy as np

from tests.analysis.build import NOW
from toolkit.analysis.diagnosis.evidence.log_excerpts import Excerpt
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.log.headers import HEADER, NO_MARKER, Headers
from toolkit.schema import TRANSACTION_LOG, Row

T0 = NOW - dt.timedelta(minutes=10)


def at(seconds: float) -> dt.datetime:
    return T0 + dt.timedelta(seconds=seconds)


def milliseconds(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1000)


def data(
    offset: int, *, pid: int = 7, epoch: int = 0, sequence: int = 0, records: int = 1, **more: Any
) -> dict[str, Any]:
    return {
        "base_offset": offset, "last_offset": offset + records - 1, "producer_id": pid, "producer_epoch": epoch,
        "base_sequence": sequence, "record_count": records, "attributes": TRANSACTIONAL, "marker": NO_MARKER, **more,
    }  # fmt: skip


def marker(offset: int, kind: int, *, pid: int = 7, epoch: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "base_offset": offset, "last_offset": offset, "producer_id": pid, "producer_epoch": epoch, "base_sequence": -1,
        "record_count": 1, "attributes": TRANSACTIONAL | CONTROL, "marker": kind, "coordinator_epoch": 3, **more,
    }  # fmt: skip


def headers(*rows: dict[str, Any]) -> Headers:
    """One batch per second from T0, 100 bytes each, in leader epoch 4."""
    array = np.zeros(len(rows), HEADER)
    for number, row in enumerate(rows):
        time = milliseconds(row.pop("second", number))
        fields = {"size": 100, "leader_epoch": 4, "base_timestamp": time, "max_timestamp": time, "magic": 2, **row}
        for name, value in fields.items():
            array[name][number] = value
    return array


def excerpt(*rows: dict[str, Any], start: int = 90, **more: Any) -> Excerpt:
    batches = headers(*rows)
    stop = int(batches["last_offset"][-1]) + 1 if len(batches) else start
    fields = {"log_start_offset": 0, "observed_at": NOW, "broker_id": 1}
    return Excerpt(headers=batches, start=start, stop=stop, **{**fields, **more})


def record(
    offset: int, state: str | None, *, second: float, on: Any = (), pid: int = 7, epoch: int = 0, **more: Any
) -> Row:
    started = more.pop("started", None)
    return {
        **dict.fromkeys(TRANSACTION_LOG.names),
        "txn_state_partition": 33, "offset": offset, "timestamp": at(second), "transactional_id": "payments-7",
        "producer_id": None if state is None else pid, "producer_epoch": epoch, "state": state, "timeout_ms": 60_000,
        "topic_partitions": [{"topic": t, "partition": p} for t, p in on], "last_update_time": at(second),
        "start_time": None if started is None else at(started), "tombstone": state is None, "broker_id": 3, **more,
    }  # fmt: skip
