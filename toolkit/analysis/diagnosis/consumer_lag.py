"""Split the lag of a consumer group: records to read, records held behind the LSO, and markers.

A group that has read everything it can still shows a lag: offsets from the LSO on, which read_committed consumers do
not receive, and markers, which no consumer receives (the "lag stuck at 1").
"""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.schema import Row

StatusCount = tuple[int, int, str | None]
"""First and last offset of a range, and their status: `toolkit.analysis.log.offset_status.StatusRange`."""

CONSUMED = {"non_transactional", "committed"}
HELD = {*CONSUMED, "open"}  # an open transaction may yet commit


def group_lag(
    committed: int,
    *,
    last_stable_offset: int,
    high_watermark: int,
    ranges: Iterable[StatusCount] | None = None,
) -> Row:
    """Split a lag; the three parts add up to it.

    Parameters
    ----------
    committed
        The group's committed offset.
    last_stable_offset, high_watermark
        Of the partition, read together.
    ranges
        The status of the offsets from `committed` to the high watermark (`offset_status.status_ranges`); null if the
        log was not read.

    Returns
    -------
    Row
        ``lag``, ``client_lag``, ``behind``, ``held`` and ``markers`` of ``schema.GROUP_LAG``.
    """
    lag = max(0, high_watermark - committed)
    client_lag = max(0, min(last_stable_offset, high_watermark) - committed)
    counts = {"lag": lag, "client_lag": client_lag}
    if ranges is None:
        return counts | {"behind": client_lag, "held": lag - client_lag, "markers": None}
    behind = held = 0
    for first, last, status in ranges:
        first = max(first, committed)
        below = max(0, min(last + 1, last_stable_offset) - first)
        behind += below if status in CONSUMED else 0
        held += max(0, last + 1 - max(first, last_stable_offset)) if status in HELD else 0
    return counts | {"behind": behind, "held": held, "markers": lag - behind - held}


def share_group_lag(
    lag: int | None,
    *,
    start_offset: int,
    last_stable_offset: int,
    high_watermark: int,
    ranges: Iterable[StatusCount] | None,
    read_committed: bool,
) -> Row:
    """Split the lag of a share group, which acknowledges single records: its start offset does not give its lag.

    Parameters
    ----------
    lag
        As the share coordinator counts it (KIP-1226): records up to the high watermark that are not acknowledged; null
        if the broker does not return it.
    start_offset, last_stable_offset, high_watermark
        Of the share partition, and of the partition.
    ranges
        As for `group_lag`.
    read_committed
        Whether the group reads only up to the LSO (``share.isolation.level``).

    Returns
    -------
    Row
        As for `group_lag`, with null ``client_lag``: share consumers do not measure it.
    """
    if not read_committed:
        return {"lag": lag, "client_lag": None, "behind": lag, "held": 0, "markers": None if lag is None else 0}
    beyond = max(0, high_watermark - max(last_stable_offset, start_offset))
    held = beyond
    if ranges is not None:
        split = group_lag(
            start_offset, last_stable_offset=last_stable_offset, high_watermark=high_watermark, ranges=ranges
        )
        held = split["held"]
    behind = None if lag is None else max(0, lag - beyond)
    markers = None if ranges is None else beyond - held
    return {"lag": lag, "client_lag": None, "behind": behind, "held": held, "markers": markers}


def lag_reason(row: Row) -> str | None:
    """A sentence that explains a lag; null if the lag is unknown.

    Parameters
    ----------
    row
        Row of ``schema.GROUP_LAG`` without `reason`.
    """
    lag, behind, held, markers = (row[name] for name in ("lag", "behind", "held", "markers"))
    if lag is None:
        return None
    lso = row["last_stable_offset"]
    see = f"See kafka-txn diagnose --topic {row['topic']} --partition {row['partition']}."
    if held and not behind:
        client = f"A read_committed client reports lag {row['client_lag']}"
        if row["client_lag"] is None:
            client = "The share group has read everything it can"
        return f"{client}, and {_records(held)} held behind the LSO {lso}: visible once it moves. {see}"
    if held:
        return f"{_records(behind)} ready to read; {_records(held)} held behind the LSO {lso}. {see}"
    if behind:
        return f"{_records(behind)} ready to read, and nothing is held."
    if markers:
        return "Nothing is left to read: the rest are markers, aborted records, or offsets that compaction removed."
    return "Everything is read."


def _records(count: int) -> str:
    return f"{count:,} record is" if count == 1 else f"{count:,} records are"
