"""What the coordinators have written down, read raw from the leaders of their topics' partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from toolkit.errors import BrokerError, NotFound
from toolkit.formats.batches import CONTROL
from toolkit.formats.events import coordinator_events, group_events, unread_records
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources.coordinators import Places
from toolkit.sources.live_log import Stretch, read_section
from toolkit.sources.offsets import partition_rows
from toolkit.sources.topology import read_topology
from toolkit.sources.wire import Wire

__all__ = ["coordinator_event_rows", "coordinator_places", "event_rows"]

COMPRESSION = 0x07  # bits of attributes


def coordinator_event_rows(
    wire: Wire, transactional_ids: Collection[str] | None, partitions: Collection[int] | None
) -> Iterator[Row]:
    """Rows of ``schema.COORDINATOR_EVENTS`` of some ids, or of all, and what could not be read where they may be.

    Parameters
    ----------
    transactional_ids
        Only these, from the partitions that they hash to; all if null.
    partitions
        Only these partitions of ``__transaction_state``; all if null.

    Raises
    ------
    BrokerError, NotFound
        As `event_rows`.
    """
    places = coordinator_places(wire, STATE_TOPIC)
    if transactional_ids is None:
        yield from event_rows(wire, places, partitions)
        return
    hashed = {number for each in transactional_ids if (number := places.partition(each)) is not None}
    ids = set(transactional_ids)
    wanted = hashed if partitions is None else hashed & set(partitions)
    for row in event_rows(wire, places, wanted, having=[each.encode() for each in ids]):
        if row["transactional_id"] in ids or row["error"]:
            yield row


def coordinator_places(wire: Wire, topic: str) -> Places:
    """The partitions of a coordinators' topic.

    Raises
    ------
    BrokerError
        If this principal may not see it.
    """
    places = Places(topic, read_topology(wire, [topic]))
    if places.hidden:
        code, _, text = places.hidden.partition(": ")
        raise BrokerError(f"Topic {topic!r} cannot be seen: {text or code}.", code=code)
    return places


def event_rows(
    wire: Wire,
    places: Places,
    partitions: Collection[int] | None = None,
    *,
    newest: int | None = None,
    having: Collection[bytes] | None = None,
) -> Iterator[Row]:
    """The records of a coordinators' topic, partition by partition; what could not be read is a row with `error`.

    Parameters
    ----------
    places
        ``__transaction_state``, for rows of ``schema.COORDINATOR_EVENTS``, or ``__consumer_offsets``, for rows of
        ``schema.GROUP_EVENTS``.
    partitions
        Only these; all if null.
    newest
        Only so many offsets before the end of each; all if null.
    having
        Only batches that hold one of these bytes, or are compressed: what is not wanted need not be decoded.

    Raises
    ------
    NotFound
        If the topic does not have one of the partitions.
    """
    bases = {number: row for (_, number), row in places.topology.partitions.items()}
    for missing in sorted(set(partitions or ()) - bases.keys()):
        raise NotFound(f"Topic {places.topic!r} has no partition {missing}; it has {places.count}, counted from 0.")
    wanted = {(places.topic, number): bases[number] for number in sorted(bases if partitions is None else partitions)}
    for row in sorted(partition_rows(wire, wanted), key=lambda row: int(row["partition"])):
        if row["error"]:
            yield _failed(row, row["leader"], row["error"])
            continue
        start = row["log_start_offset"] or 0
        if newest is not None:
            start = max(start, row["high_watermark"] - newest)
        for stretch in read_section(wire, row, start, "high_watermark").stretches:
            yield from _records(row, stretch, having)


def _records(row: Row, stretch: Stretch, having: Collection[bytes] | None) -> Iterator[Row]:
    if stretch.error:
        yield _failed(row, stretch.broker_id, stretch.error)
    for damage in stretch.scanned.damage:
        yield _failed(row, stretch.broker_id, damage.reason)
    for header in stretch.scanned.headers[stretch.scanned.headers["attributes"] & CONTROL == 0]:
        position = int(header["position"])
        if having is not None and header["attributes"] & COMPRESSION == 0:
            end = position + int(header["size"])
            if all(stretch.records.find(each, position, end) < 0 for each in having):
                continue
        if row["topic"] == STATE_TOPIC:
            number: dict[str, Any] = {"txn_state_partition": row["partition"]}
            yield from coordinator_events(stretch.records, position, **number, broker_id=stretch.broker_id)
        else:
            number = {"group_partition": row["partition"]}
            yield from group_events(stretch.records, position, **number, broker_id=stretch.broker_id)


def _failed(row: Row, broker_id: int | None, error: str) -> Row:
    return unread_records(row["topic"], row["partition"], error=error, broker_id=broker_id)
