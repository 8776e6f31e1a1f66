"""Headers and damage as the table ``batches``."""

import datetime as dt
import struct

import numpy as np

from tests.formats.dumped import RECORDED
from tests.formats.logs import NOON, batch, control_batch, marker, placed
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import AS_WRITTEN, COMMIT, DamagedRange, LogChunk, header_table
from toolkit.formats.scan import scan
from toolkit.schema.table import LogId
from toolkit.sources.log_tables import batch_tables

PLACE = {"topic": "orders", "partition": 3, "broker_id": 7, "file": "/logs/orders-3/0.log"}


def test_a_delete_horizon_is_not_a_record_time() -> None:
    log = placed([control_batch(b"", attributes=0x70, count=0)])
    (row,) = header_table(scan(b"".join(log)).headers).to_pylist()
    assert (row["base_timestamp"], row["delete_horizon"], row["max_timestamp"]) == (None, NOON, NOON)


def test_marker_is_null_for_other_control_records() -> None:
    leader_change = control_batch(b"\x20\0\0\0\x08\0\0\0\2\x0c" + bytes(7), attributes=0x20)
    unread = control_batch(b"", attributes=0x30, count=0)
    log = placed([marker(COMMIT), leader_change, unread])
    table = header_table(scan(b"".join(log)).headers)
    assert table.column("marker").to_pylist() == ["COMMIT", None, None]
    assert table.column("is_control").to_pylist() == [True, True, True]


def test_codecs_and_timestamp_types_have_names() -> None:
    log = placed([control_batch(b"x", attributes=attributes) for attributes in (0, 1, 2, 3, 4, 5, 0x0C)])
    table = header_table(scan(b"".join(log)).headers)
    codecs = ["none", "gzip", "snappy", "lz4", "zstd", "unknown (5)", "zstd"]
    assert table.column("compression").to_pylist() == codecs
    assert table.column("timestamp_type").to_pylist() == ["CreateTime"] * 6 + ["LogAppendTime"]


def test_an_unknown_time_is_null() -> None:
    (one,) = placed([batch()])
    headers = scan(one[:35] + struct.pack(">q", -1) + one[43:]).headers
    (row,) = header_table(headers).to_pylist()
    assert (row["max_timestamp"], row["base_timestamp"]) == (None, dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC))


def test_damage_is_a_row_with_only_an_error() -> None:
    damage = (DamagedRange(10, 5, "TORN_TAIL: the bytes end."),)
    chunk = LogChunk(damage=damage, end=15, file=str(PLACE["file"]))
    (table,) = batch_tables([chunk], LogId(topic="orders", partition=3, broker_id=7))
    (row,) = table.to_pylist()
    values = {name: value for name, value in row.items() if value is not None}
    assert values == PLACE | {"position": 10, "size": 5, "error": "TORN_TAIL: the bytes end."}


def test_columns_of_real_segments_have_the_values_of_the_headers() -> None:
    headers = np.concatenate([scan(path.read_bytes(), crc=True).headers for path in RECORDED.rglob("*.log")])
    table = header_table(headers)
    for name in ("crc", *AS_WRITTEN):
        assert table.column(name).to_pylist() == [None if each == -1 else each for each in headers[name].tolist()], name
    flags = {"is_transactional": TRANSACTIONAL, "is_control": CONTROL}
    for column, flag in flags.items():
        assert table.column(column).to_pylist() == (headers["attributes"] & flag != 0).tolist(), column
    times = table.column("max_timestamp").cast("int64").to_pylist()
    assert times == headers["max_timestamp"].tolist()
    assert {"COMMIT", "ABORT", None} == {*table.column("marker").to_pylist()}
