"""What logs tell of held partitions: a bounded part of each, and what its coordinators have written down."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from toolkit.analysis.evidence import Look
from toolkit.analysis.excerpts import Excerpt, LogEvidence, is_to_explain
from toolkit.analysis.explain import explain
from toolkit.analysis.owners import names_any
from toolkit.errors import ToolkitError
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources.compaction import compacted_topics
from toolkit.sources.coordinators import Places
from toolkit.sources.excerpts import Held, read_excerpts
from toolkit.sources.live_events import coordinator_places, event_rows
from toolkit.sources.topology import Place
from toolkit.sources.wire import Wire

__all__ = ["explained", "read_log_evidence"]

MOST = 50  # partitions
AT_ONCE = 10  # partitions that are read together, so that memory stays small
SECONDS = 10.0  # what is not read by then is left out

STATE_PARTITIONS = 8  # of the ids that own something
NEWEST = 20_000  # offsets of each of them
NEWEST_OF_EACH = 4_000  # the same of every partition, where no id has a producer id any more


def explained(wire: Wire, looks: Sequence[Look], rows: Sequence[Row]) -> list[Row]:
    """Rows of ``schema.FINDINGS`` with what the logs tell of them, where they are worth reading."""
    evidence = read_log_evidence(wire, looks, rows)
    return list(rows) if evidence is None else explain(rows, looks, evidence)


def read_log_evidence(wire: Wire, looks: Sequence[Look], rows: Sequence[Row]) -> LogEvidence | None:
    """Read what may explain findings, around the lowest open transaction of at most `MOST` partitions.

    Parameters
    ----------
    looks
        The looks that they were judged by.
    rows
        Rows of ``schema.FINDINGS`` in their order.

    Returns
    -------
    LogEvidence or None
        Null where all is well, so that nothing was read.
    """
    held = _held(looks, rows)[:MOST]
    if not held:
        return None
    deadline = time.monotonic() + SECONDS
    compacted = compacted_topics(wire, {one.place[0] for one in held})
    excerpts: dict[Place, Excerpt] = {}
    for start in range(0, len(held), AT_ONCE):
        if time.monotonic() < deadline:
            some = held[start : start + AT_ONCE]
            excerpts |= read_excerpts(wire, some, compacted=compacted, deadline=deadline)
    explained = [row for row in rows if (row["topic"], row["partition"]) in excerpts and is_to_explain(row)]
    events, unread = _events(wire, _state_partitions(looks), explained)
    return LogEvidence(excerpts=excerpts, events=events, unread=unread)


def _held(looks: Sequence[Look], rows: Sequence[Row]) -> list[Held]:
    leaders = {(row["topic"], row["partition"]): row for look in looks for row in look.partitions_after}
    held = []
    for place, group in groupby(rows, key=lambda row: (row["topic"], row["partition"])):
        found = [row for row in group if row["start_offset"] is not None]
        to_explain = [row for row in found if is_to_explain(row)]
        leader = leaders.get(place, {})
        if not to_explain or leader.get("leader") is None or leader.get("high_watermark") is None:
            continue
        log_start, epoch = leader["log_start_offset"] or 0, leader["leader_epoch"]
        held.append(
            Held(
                place=place,
                offset=max(log_start, min(row["start_offset"] for row in found)),
                log_start=log_start,
                high_watermark=leader["high_watermark"],
                producer_ids=frozenset(row["producer_id"] for row in to_explain),
                broker_id=leader["leader"],
                leader_epoch=-1 if epoch is None else epoch,
            )
        )
    return held


def _state_partitions(looks: Iterable[Look]) -> Mapping[str, int]:
    """Transactional id to the partition of ``__transaction_state`` that it is written in."""
    return {
        row["transactional_id"]: row["txn_state_partition"]
        for look in looks
        for row in look.transactions
        if row["transactional_id"] is not None and row["txn_state_partition"] is not None
    }


def _events(wire: Wire, written_in: Mapping[str, int], rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Records of the owners of transactions, and of former owners where nobody owns them; and what was not read."""
    try:
        places = coordinator_places(wire, STATE_TOPIC)
        owners = {row["transactional_id"] for row in rows} - {None}
        owning = sorted({written_in[each] for each in owners if each in written_in})[:STATE_PARTITIONS]
        events = _of_ids(wire, places, owners, owning, newest=NEWEST)
        orphans = {
            row["producer_id"] for row in rows if row["verdict"] == "hanging" and row["transactional_id"] is None
        }
        events += _of_producers(wire, places, orphans) if orphans else []
    except ToolkitError as error:
        return [], [f"{STATE_TOPIC} could not be read ({error.what.rstrip('.')})"]
    errors = sorted({row["error"].partition(":")[0] for row in events if row["error"]})
    unread = [f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else []
    return events, unread


def _of_ids(wire: Wire, places: Places, ids: Collection[str], partitions: Collection[int], *, newest: int) -> list[Row]:
    needles = [each.encode() for each in ids]
    return [
        row
        for row in event_rows(wire, places, partitions, newest=newest, having=needles)
        if row["error"] or row["transactional_id"] in ids
    ]


def _of_producers(wire: Wire, places: Places, producer_ids: Collection[int]) -> list[Row]:
    """Records of every id that once had one of these producer ids; the last of them, a tombstone, does not name it."""
    needles = [each.to_bytes(8, "big") for each in producer_ids]
    found = list(event_rows(wire, places, newest=NEWEST_OF_EACH, having=needles))
    written_in = {row["transactional_id"]: row["txn_state_partition"] for row in found if names_any(row, producer_ids)}
    errors = [row for row in found if row["error"]]
    return errors + _of_ids(wire, places, set(written_in), set(written_in.values()), newest=NEWEST_OF_EACH)
