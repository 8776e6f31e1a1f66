"""The offset that a bound means on a live partition now."""

from __future__ import annotations

import datetime as dt
import operator

from toolkit.errors import BrokerError
from toolkit.schema import Row
from toolkit.sources import wire as kafka
from toolkit.sources.bounds import NAMED, Bound, check_bound, milliseconds
from toolkit.sources.topology import Place
from toolkit.sources.wire import Wire, error_text

__all__ = ["offset_of"]


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
    check_bound(bound)
    high_watermark: int = row["high_watermark"]
    if isinstance(bound, str):
        named: int | None = row[NAMED[bound]]
        return high_watermark if named is None else named
    if isinstance(bound, dt.datetime):
        found = _offset_at(wire, (row["topic"], row["partition"]), row["leader"], bound)
        return high_watermark if found is None else found
    return operator.index(bound)


def _offset_at(wire: Wire, place: Place, leader: int, time: dt.datetime) -> int | None:
    """Offset of the first record at or after a time (ListOffsets); null if there is none."""
    topic = kafka.ListOffsets.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(
        partition_index=place[1],
        current_leader_epoch=-1,
        timestamp=milliseconds(time),
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
