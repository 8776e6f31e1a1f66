"""Resolve an offset spec on a live partition (ListOffsets)."""

from __future__ import annotations

import datetime as dt
import operator

from toolkit.errors import BrokerError
from toolkit.schema import Row
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import error_text
from toolkit.sources.offset_queries.offset_spec import NAMED, OffsetSpec, check_offset_spec, milliseconds


def offset_of(client: BrokerClient, spec: OffsetSpec, row: Row) -> int:
    """The offset that a spec resolves to now.

    Parameters
    ----------
    client
        The connection to the brokers.
    spec
        An offset; a time with zone, for the first record at or after it; or ``"log_start"``, ``"lso"``,
        ``"high_watermark"``, ``"log_end"``.
    row
        The partition's row of ``schema.PARTITIONS``, without error. A time after the last record, and a log end that
        the broker does not return, resolve to its high watermark.

    Raises
    ------
    UsageError
        If the spec is invalid.
    BrokerError, ConnectionFailed
        If the leader does not return the time's offset.
    """
    check_offset_spec(spec)
    high_watermark: int = row["high_watermark"]
    if isinstance(spec, str):
        named: int | None = row[NAMED[spec]]
        return high_watermark if named is None else named
    if isinstance(spec, dt.datetime):
        offset = _offset_at(client, TopicPartition(row["topic"], row["partition"]), row["leader"], spec)
        return high_watermark if offset is None else offset
    return operator.index(spec)


def _offset_at(client: BrokerClient, tp: TopicPartition, leader: int, time: dt.datetime) -> int | None:
    """Offset of the first record at or after a time; null if there is none."""
    message = client.send_one(
        messages.ListOffsets(
            partitions={tp[0]: [tp[1]]},
            timestamp=milliseconds(time),
            replica_id=-1,
            isolation_level=0,
            timeout_ms=int(client.timeout * 1000),
        ),
        broker_id=leader,
    )
    (result,) = message.partitions
    if result.error_code:
        error = error_text(result.error_code)
        raise BrokerError(f"Broker {leader} did not find {time} in {tp[0]}-{tp[1]}: {error}",
                          code=Error.of(error).code)  # fmt: skip
    return result.offset if result.offset >= 0 else None
