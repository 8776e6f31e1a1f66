"""The offsets that a consumer group has committed, by the records of ``__consumer_offsets`` in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.schema import GROUP_EVENTS, SPANS, Row

if TYPE_CHECKING:
    from toolkit.sources.logdir.log_dir import LogDir

__all__ = ["committed_in_files"]

OPEN = "UNSTABLE_OFFSET_COMMIT: an open transaction has committed another offset"


def committed_in_files(files: LogDir, group: str) -> Mapping[tuple[str, int], tuple[int | None, str | None]]:
    """Every offset that a group has committed, null with its error where an open transaction has committed another.

    What a transaction committed counts from its COMMIT marker on, as for the group's coordinator.

    Parameters
    ----------
    files
        Log directories that hold ``__consumer_offsets``.
    group
        Group id.

    Raises
    ------
    NotFound
        If they hold none of it.
    """
    events = [
        row
        for row in GROUP_EVENTS.rows(files.group_events([group]))
        if row["error"] is None and row["kind"] == "offset_commit" and row["topic"] is not None
    ]
    of_transactions = {row["group_partition"] for row in events if row["is_transactional"]}
    spans = SPANS.rows(files.spans(OFFSETS_TOPIC, sorted(of_transactions))) if of_transactions else []
    placed = sorted(((_counts_from(row, spans), row) for row in events), key=lambda pair: pair[0] or 0)
    found: dict[tuple[str, int], tuple[int | None, str | None]] = {}
    for counts_from, row in placed:
        place = row["topic"], row["partition"]
        if row["tombstone"]:
            found.pop(place, None)
        elif counts_from is not None:
            found[place] = row["committed_offset"], None
    return found | {_place(row): (None, OPEN) for row in events if _is_open(row, spans)}


def _place(row: Row) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _counts_from(row: Row, spans: Sequence[Row]) -> int | None:
    """Offset from which on a record counts: its own, or that of its COMMIT marker; null where it never does."""
    if not row["is_transactional"]:
        return int(row["offset"])
    span = _span(row, spans)
    return None if span is None or span["marker"] != "COMMIT" else int(span["marker_offset"])


def _is_open(row: Row, spans: Sequence[Row]) -> bool:
    span = _span(row, spans) if row["is_transactional"] else None
    return span is not None and span["outcome"] == "open"


def _span(row: Row, spans: Sequence[Row]) -> Row | None:
    """The transaction that a record is part of."""
    return next(
        (
            span
            for span in spans
            if (span["partition"], span["producer_id"]) == (row["group_partition"], row["producer_id"])
            and span["first_offset"] is not None
            and span["first_offset"] <= row["offset"] <= span["last_offset"]
        ),
        None,
    )
