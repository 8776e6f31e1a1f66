"""Scanned headers and damage as rows of the table ``batches``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from toolkit.formats.log.batches import CODECS, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.log.headers import DamagedRange, Headers
from toolkit.schema import BATCHES, Row

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSION = (*CODECS, *(f"unknown ({codec})" for codec in range(len(CODECS), 8)))
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MARKERS = ("ABORT", "COMMIT")
AS_WRITTEN = (
    *("position", "size", "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence"),
    *("leader_epoch", "coordinator_epoch", "record_count", "magic"),
)


def header_table(
    headers: Headers,
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker_id: int | None = None,
    file: str | None = None,
) -> pa.Table:
    """Headers as an Arrow table with exactly the columns of ``schema.BATCHES``, in unchanged order.

    Parameters
    ----------
    headers
        Structured array of `HEADER`.
    topic, partition, broker_id, file
        Location of the log; the same on every row, null if unknown.
    """
    from toolkit.formats.columns import arrow_table, labels, numbers, times

    attributes, magic = headers["attributes"], headers["magic"]
    in_transactions = magic == 2
    horizon = in_transactions & (attributes & DELETE_HORIZON != 0)
    log_append = np.where(magic == 0, -1, attributes & LOG_APPEND_TIME != 0)  # magic 0 has no time
    columns = {name: numbers(headers[name], null=headers[name] == -1) for name in AS_WRITTEN}
    columns |= {
        "is_transactional": numbers(in_transactions & (attributes & TRANSACTIONAL != 0)),
        "is_control": numbers(in_transactions & (attributes & CONTROL != 0)),
        "marker": labels(headers["marker"], MARKERS),
        "base_timestamp": times(np.where(horizon, -1, headers["base_timestamp"])),
        "max_timestamp": times(headers["max_timestamp"]),
        "delete_horizon": times(np.where(horizon, headers["base_timestamp"], -1)),
        "timestamp_type": labels(log_append, TIMESTAMP_TYPES),
        "compression": labels(attributes & 0x07, COMPRESSION),
        "crc": numbers(headers["crc"].astype(np.int64)),
        "crc_ok": numbers(headers["crc_ok"] == 1, null=headers["crc_ok"] == -1),
    }
    where = {"topic": topic, "partition": partition, "broker_id": broker_id, "file": file}
    return arrow_table(BATCHES, columns | where, rows=len(headers))


def damage_rows(
    damage: Iterable[DamagedRange],
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker_id: int | None = None,
    file: str | None = None,
) -> list[Row]:
    """Damage as rows of ``schema.BATCHES``: position, size and error, all header fields null.

    Parameters
    ----------
    damage
        Damaged ranges of one file or partition.
    topic, partition, broker_id, file
        As for `header_table`.
    """
    log_columns = {"topic": topic, "partition": partition, "broker_id": broker_id, "file": file}
    return [log_columns | {"position": each.position, "size": each.size, "error": each.reason} for each in damage]
