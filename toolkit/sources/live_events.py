"""What the coordinators have written down, read raw from the leaders of their topics' partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from toolkit.errors import BrokerError, NotFound
from toolkit.formats.batches import CONTROL
from toolkit.formats.events import coordinator_events, group_events
from toolkit.schema import COORDINATOR_EVENTS, GROUP_EVENTS, Row
from toolkit.sources.coordinators import STATE_TOPIC, Places
from toolkit.sources.live_log import Stretch, read_section
from toolkit.sources.offsets import partition_rows
from toolkit.sources.topology import read_topology
from toolkit.sources.wire import Wire

__all__ = ["coordinator_event_rows", "coordinator_places", "event_rows"]


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
    for row in event_rows(wire, places, hashed if partitions is None else hashed & set(partitions)):
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
    wire: Wire, places: Places, partitions: Collection[int] | None = None, *, newest: int | None = None
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
            yield from _records(row, stretch)


def _records(row: Row, stretch: Stretch) -> Iterator[Row]:
    if stretch.error:
        yield _failed(row, stretch.broker_id, stretch.error)
    for damage in stretch.scanned.damage:
        yield _failed(row, stretch.broker_id, damage.reason)
    headers = stretch.scanned.headers
    for position in headers["position"][headers["attributes"] & CONTROL == 0]:
        where: dict[str, Any] = {"broker_id": stretch.broker_id}
        if row["topic"] == STATE_TOPIC:
            yield from coordinator_events(stretch.records, int(position), txn_state_partition=row["partition"], **where)
        else:
            yield from group_events(stretch.records, int(position), group_partition=row["partition"], **where)


def _failed(row: Row, broker_id: int | None, error: str) -> Row:
    number = "txn_state_partition" if row["topic"] == STATE_TOPIC else "group_partition"
    columns = COORDINATOR_EVENTS if row["topic"] == STATE_TOPIC else GROUP_EVENTS
    return {**dict.fromkeys(columns.names), number: row["partition"], "broker_id": broker_id, "error": error}
