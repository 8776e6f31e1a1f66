"""Sentences about an offset: why a consumer receives it, or why not."""

from __future__ import annotations

import datetime as dt

from toolkit.schema.live import Partition
from toolkit.schema.offsets import OffsetVisibility

MISSING = {
    "non_transactional": "Records outside transactions; consumers receive them.",
    "committed": "Records of committed transactions; consumers receive them.",
    "aborted": "Records of aborted transactions: read_committed consumers never receive them.",
    "open": "Records of open transactions: read_committed consumers wait for their markers.",
    "beyond_lso": "Records beyond the LSO {last_stable_offset}: read_committed consumers receive them once the "
    "transaction that holds it ends.",
    "marker": "Transaction markers: consumers skip them.",
    "control": "Control records: consumers skip them.",
    "compacted": "Removed by the log cleaner: a newer record has the key, or the transaction was aborted.",
    "deleted": "Before the log start offset {log_start_offset}: deleted by retention or DeleteRecords.",
    "truncated": "Beyond the log end offset {log_end_offset}: written by an old leader and truncated by a newer one.",
    "beyond_high_watermark": "Beyond the high watermark {high_watermark}: not replicated to all in-sync replicas yet.",
    "beyond_log_end": "Beyond the log end offset {log_end_offset}: not written, or truncated by a new leader.",
    "unexplained": "Missing from the log of a topic that is not compacted; the cause is unknown.",
}
UNKNOWN = "Unknown: the data that decides it could not be read."


def missing_reason(status: str | None, partition: Partition) -> str:
    """Why offsets of a status are missing.

    Parameters
    ----------
    status
        One of `offset_status.STATUSES`, or `offset_status.BEYOND_LSO`; null if unknown.
    partition
        The partition.
    """
    return UNKNOWN if status is None else _missing(status, partition)


def _missing(status: str, partition: Partition | OffsetVisibility) -> str:
    return MISSING[status].format(
        log_start_offset=partition.log_start_offset,
        last_stable_offset=partition.last_stable_offset,
        high_watermark=partition.high_watermark,
        log_end_offset=partition.log_end_offset,
    )


def visibility_reason(row: OffsetVisibility) -> str:
    """What an offset holds, and which consumers receive it; its `reason` is not used."""
    match row.status:
        case None:
            return UNKNOWN
        case "non_transactional":
            return f"A record outside transactions. {_visibility(row)}"
        case "committed":
            return f"A record of the committed transaction of {_owner(row)}{_ended(row)}. {_visibility(row)}"
        case "aborted":
            aborted = f"A record of the aborted transaction of {_owner(row)}{_ended(row)}."
            return f"{aborted} read_committed consumers never receive it, read_uncommitted ones do."
        case "open":
            return f"A record of an open transaction of {_owner(row)}{_begun(row)}. {_waits(row)}"
        case "marker":
            kind = "ABORT" if row.outcome == "abort" else "COMMIT" if row.outcome == "commit" else "transaction"
            return f"The {kind} marker of {_owner(row)}{_begun(row)}. No consumer receives it: its offset is skipped."
    return _missing(row.status, row)


def _visibility(row: OffsetVisibility) -> str:
    """Since when the LSO is past the offset, or what the record waits for."""
    if not row.read_committed:
        return _waits(row)
    since = f" since {_time(row.visible_at)}" if row.visible_at else ""
    return f"read_committed consumers receive it{since}: the LSO is {row.last_stable_offset}."


def _waits(row: OffsetVisibility) -> str:
    lso, holder = row.last_stable_offset, row.holder_producer_id
    if holder is None:
        held = "and no transaction is open, so it waits for replication"
    else:
        held = f"held by the transaction of producer {holder} that began at {row.holder_first_offset}"
    command = f"See kafka-txn diagnose --topic {row.topic} --partition {row.partition}."
    return f"read_committed consumers do not receive it yet: the LSO is {lso}, {held}. {command}"


def _owner(row: OffsetVisibility) -> str:
    producer = f"producer {row.producer_id}, epoch {row.producer_epoch}"
    if row.transactional_id is None:
        return f"{producer} (transactional id unknown)"
    return f"{row.transactional_id!r} ({producer})"


def _ended(row: OffsetVisibility) -> str:
    if row.marker_offset is None:
        return ", whose marker was not found"
    return f", ended by the marker at {row.marker_offset}, {_time(row.marker_time)}"


def _begun(row: OffsetVisibility) -> str:
    if row.first_offset is None:
        return ", whose start is deleted or was not read"
    log_start = row.log_start_offset or 0
    deleted = f", before the log start offset {log_start}" if row.first_offset < log_start else ""
    return f", which began at {row.first_offset}{deleted}"


def _time(time: dt.datetime | None) -> str:
    return "time unknown" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"
