"""From where to where a partition is read: offsets, times, or their names."""

from __future__ import annotations

import datetime as dt
import operator
from typing import SupportsIndex

from toolkit.errors import BrokerError, UsageError
from toolkit.schema import Row
from toolkit.sources import wire as kafka
from toolkit.sources.topology import Place
from toolkit.sources.wire import Wire, error_text

__all__ = ["Bound", "offset_of"]

Bound = SupportsIndex | dt.datetime | str

EPOCH, MILLISECOND = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(milliseconds=1)
NAMES = {
    "log_start": "log_start_offset",
    "lso": "last_stable_offset",
    "high_watermark": "high_watermark",
    "log_end": "log_end_offset",
}


def offset_of(wire: Wire, bound: Bound, row: Row) -> int:
    """The offset that a bound means now.

    Parameters
    ----------
    bound
        An offset; a time with its zone, which means the first record that is as new; or ``"log_start"``, ``"lso"``,
        ``"high_watermark"``, ``"log_end"``.
    row
        The partition's row of ``schema.PARTITIONS``, without error. A time that no record has reached, and a log end
        that the broker does not show, are its high watermark.

    Raises
    ------
    UsageError
        If it is none of these.
    BrokerError, ConnectionFailed
        If the leader does not find the time.
    """
    high_watermark: int = row["high_watermark"]
    if isinstance(bound, str):
        if bound not in NAMES:
            raise UsageError(f"{bound!r} is no place in a log.", do=f"Say an offset, a time, or {', '.join(NAMES)}.")
        named: int | None = row[NAMES[bound]]
        return high_watermark if named is None else named
    if isinstance(bound, dt.datetime):
        found = _offset_at(wire, (row["topic"], row["partition"]), row["leader"], bound)
        return high_watermark if found is None else found
    offset = operator.index(bound)
    if offset < 0:
        raise UsageError(f"{offset} is no offset: they count from 0.", do=f"Or say {', '.join(NAMES)}.")
    return offset


def _offset_at(wire: Wire, place: Place, leader: int, time: dt.datetime) -> int | None:
    """Offset of the first record at or after a time (ListOffsets); null if there is none."""
    if time.tzinfo is None:
        raise UsageError(f"The time {time} has no time zone.", do="Say which: datetime.now(timezone.utc).")
    topic = kafka.ListOffsets.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(
        partition_index=place[1],
        current_leader_epoch=-1,
        timestamp=-((EPOCH - time) // MILLISECOND),  # rounded up
    )
    message = wire.ask(
        kafka.ListOffsets(
            replica_id=-1,
            isolation_level=0,
            topics=[topic(name=place[0], partitions=[asked])],
            timeout_ms=int(wire.timeout * 1000),
        ),
        broker_id=leader,
    )
    found = message.topics[0].partitions[0]
    if found.error_code:
        error = error_text(found.error_code)
        raise BrokerError(f"Broker {leader} did not find {time} in {place[0]}-{place[1]}: {error}",
                          code=error.partition(":")[0])  # fmt: skip
    return found.offset if found.offset >= 0 else None
